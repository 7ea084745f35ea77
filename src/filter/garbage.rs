//! Parts that a filter has dropped and that the caller still has to free.

use super::bloom::Bloom;
use super::cuckoo::{Cuckoo, Table};
use super::layout::Layer;
use super::live::Live;
use alloc::{boxed::Box, vec::Vec};

/// Parts that a filter has dropped. They may be large, so the owner chooses the thread that frees them.
pub enum Garbage {
    /// Layers of a Bloom filter.
    Layers(Vec<Layer>),
    /// Sub-filters of a cuckoo filter.
    Tables(Vec<Table>),
    /// Anything else that has cells, such as a filter that was being loaded or rebuilt. The number is the size of its
    /// cells in bytes.
    Other(Box<dyn Send>, u64),
}

impl From<Vec<Layer>> for Garbage {
    fn from(layers: Vec<Layer>) -> Garbage {
        Garbage::Layers(layers)
    }
}

impl From<Vec<Table>> for Garbage {
    fn from(tables: Vec<Table>) -> Garbage {
        Garbage::Tables(tables)
    }
}

impl From<Cuckoo> for Garbage {
    fn from(filter: Cuckoo) -> Garbage {
        let bytes = filter.bytes();
        Garbage::Other(Box::new(filter), bytes)
    }
}

impl From<Bloom> for Garbage {
    fn from(filter: Bloom) -> Garbage {
        let bytes = filter.bytes();
        Garbage::Other(Box::new(filter), bytes)
    }
}

impl From<Live> for Garbage {
    fn from(filter: Live) -> Garbage {
        let bytes = filter.as_ref().bytes();
        Garbage::Other(Box::new(filter), bytes)
    }
}

impl Garbage {
    /// Whether there is nothing to free.
    pub fn is_empty(&self) -> bool {
        match self {
            Garbage::Layers(layers) => layers.is_empty(),
            Garbage::Tables(tables) => tables.is_empty(),
            Garbage::Other(..) => false,
        }
    }

    /// Size of the parts' cells in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Garbage::Layers(layers) => layers.iter().map(|layer| layer.bytes()).sum(),
            Garbage::Tables(tables) => tables.iter().map(|table| table.bytes()).sum(),
            Garbage::Other(_, bytes) => *bytes,
        }
    }
}
