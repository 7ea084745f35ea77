//! What one key holds: a Bloom filter of any family, a cuckoo filter, another system's Bloom filter, or a filter that
//! is being rebuilt.

use super::cuckoo::{Cuckoo, Table};
use super::rebuild::Rebuild;
use super::{Bloom, Layer, Usage};
use crate::error::Error;
use crate::filter::foreign::Foreign;
use crate::mem::Words;
use std::sync::Arc;

/// A filter of any kind.
pub enum Filter {
    /// Fixed, scaling or a window; of bits or counters.
    Bloom(Bloom),
    /// Fingerprints in buckets.
    Cuckoo(Box<Cuckoo>),
    /// Another system's Bloom filter.
    Foreign(Box<Foreign>),
    /// A filter that is being rebuilt, and its shadow.
    Rebuild(Box<Rebuild>),
}

/// A borrowed [`Filter`].
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "they are those of Filter")]
pub enum FilterRef<'a> {
    Bloom(&'a Bloom),
    Cuckoo(&'a Cuckoo),
    Foreign(&'a Foreign),
    Rebuild(&'a Rebuild),
}

impl<'a> From<&'a Bloom> for FilterRef<'a> {
    fn from(filter: &'a Bloom) -> FilterRef<'a> {
        FilterRef::Bloom(filter)
    }
}

impl<'a> From<&'a Cuckoo> for FilterRef<'a> {
    fn from(filter: &'a Cuckoo) -> FilterRef<'a> {
        FilterRef::Cuckoo(filter)
    }
}

impl<'a> From<&'a Foreign> for FilterRef<'a> {
    fn from(filter: &'a Foreign) -> FilterRef<'a> {
        FilterRef::Foreign(filter)
    }
}

impl<'a> From<&'a Filter> for FilterRef<'a> {
    fn from(value: &'a Filter) -> FilterRef<'a> {
        match value {
            Filter::Bloom(filter) => FilterRef::Bloom(filter),
            Filter::Cuckoo(filter) => FilterRef::Cuckoo(filter),
            Filter::Foreign(filter) => FilterRef::Foreign(filter),
            Filter::Rebuild(rebuild) => FilterRef::Rebuild(rebuild),
        }
    }
}

impl<'a> FilterRef<'a> {
    /// Its arrays of cells: layers, sub-filters or links; behind those of a live filter the layers of its shadow.
    pub(crate) fn arrays(self) -> impl Iterator<Item = &'a Words> {
        let (value, shadow) = match self {
            FilterRef::Rebuild(rebuild) => (rebuild.live().into(), rebuild.shadow().layers()),
            value => (value, &[][..]),
        };
        let (layers, tables, links) = match value {
            FilterRef::Bloom(filter) => (filter.layers(), &[][..], &[][..]),
            FilterRef::Cuckoo(filter) => (&[][..], filter.tables(), &[][..]),
            FilterRef::Foreign(filter) => (&[][..], &[][..], filter.links()),
            // A filter has one shadow at most.
            FilterRef::Rebuild(_) => (&[][..], &[][..], &[][..]),
        };
        let words = |layers: &'a [Arc<Layer>]| layers.iter().map(|layer| layer.words());
        let tables = tables.iter().map(|table| table.words());
        words(layers).chain(tables).chain(links.iter().map(|link| link.words())).chain(words(shadow))
    }

    /// Bytes of all cells.
    pub fn bytes(self) -> u64 {
        self.arrays().map(Words::bytes).sum()
    }
}

impl Filter {
    /// The Bloom filter, if it is one of ours.
    pub fn into_bloom(self) -> Option<Bloom> {
        match self {
            Filter::Bloom(filter) => Some(filter),
            _ => None,
        }
    }

    /// The cuckoo filter, if it is one.
    pub fn into_cuckoo(self) -> Option<Cuckoo> {
        match self {
            Filter::Cuckoo(filter) => Some(*filter),
            _ => None,
        }
    }

    /// The other system's filter, if it is one.
    pub fn into_foreign(self) -> Option<Foreign> {
        match self {
            Filter::Foreign(filter) => Some(*filter),
            _ => None,
        }
    }

    /// What this server has been asked of the filter, of one that is being rebuilt the live one; `None` of a cuckoo
    /// filter, which does not count that.
    pub fn usage(&self) -> Option<&Usage> {
        match self.live() {
            Filter::Bloom(filter) => Some(filter.usage()),
            Filter::Foreign(filter) => Some(filter.usage()),
            Filter::Cuckoo(_) | Filter::Rebuild(_) => None,
        }
    }

    /// Bytes of all cells.
    pub fn bytes(&self) -> u64 {
        FilterRef::from(self).bytes()
    }

    /// Bytes of memory, with all overhead, and with what has been counted of its use.
    pub fn allocated(&self) -> usize {
        match self {
            Filter::Bloom(filter) => filter.allocated() + filter.usage_allocated(),
            Filter::Cuckoo(filter) => size_of::<Filter>() + filter.allocated(),
            Filter::Foreign(filter) => size_of::<Filter>() + filter.allocated() + filter.usage().allocated(),
            Filter::Rebuild(rebuild) => rebuild.allocated(),
        }
    }

    /// A copy that shares nothing.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn snapshot(&self) -> Result<Filter, Error> {
        Ok(match self {
            Filter::Bloom(filter) => Filter::Bloom(filter.snapshot()?),
            Filter::Cuckoo(filter) => Filter::Cuckoo(Box::new(filter.snapshot()?)),
            Filter::Foreign(filter) => Filter::Foreign(Box::new(filter.snapshot()?)),
            Filter::Rebuild(rebuild) => Filter::Rebuild(Box::new(rebuild.snapshot()?)),
        })
    }

    /// Takes the value out of its place; what is left there has no bit and no item, and must be replaced.
    #[must_use]
    pub fn take(&mut self) -> Filter {
        std::mem::replace(self, Filter::Foreign(Box::new(Foreign::nothing())))
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Filter::Bloom(filter) => f.debug_tuple("Bloom").field(filter.spec()).finish_non_exhaustive(),
            Filter::Cuckoo(filter) => f.debug_tuple("Cuckoo").field(filter.spec()).finish_non_exhaustive(),
            Filter::Foreign(filter) => f.debug_tuple("Foreign").field(filter).finish(),
            Filter::Rebuild(rebuild) => {
                f.debug_tuple("Rebuild").field(rebuild.live()).field(rebuild.shadow().spec()).finish()
            }
        }
    }
}

/// Parts of a filter that it has dropped. They may be large: their owner chooses the thread that frees them.
pub enum Retired {
    /// Layers of a Bloom filter.
    Layers(Vec<Arc<Layer>>),
    /// Sub-filters of a cuckoo filter.
    Tables(Vec<Arc<Table>>),
    /// Whatever else has cells, and how many bytes of them: a filter that was being loaded or rebuilt.
    Other(Box<dyn Send>, u64),
}

impl From<Vec<Arc<Layer>>> for Retired {
    fn from(layers: Vec<Arc<Layer>>) -> Retired {
        Retired::Layers(layers)
    }
}

impl From<Vec<Arc<Table>>> for Retired {
    fn from(tables: Vec<Arc<Table>>) -> Retired {
        Retired::Tables(tables)
    }
}

impl From<Filter> for Retired {
    fn from(value: Filter) -> Retired {
        let bytes = value.bytes();
        Retired::Other(Box::new(value), bytes)
    }
}

impl Retired {
    /// Number of parts.
    pub fn len(&self) -> usize {
        match self {
            Retired::Layers(layers) => layers.len(),
            Retired::Tables(tables) => tables.len(),
            Retired::Other(..) => 1,
        }
    }

    /// Whether nothing was dropped.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of their cells.
    pub fn bytes(&self) -> u64 {
        match self {
            Retired::Layers(layers) => layers.iter().map(|layer| layer.bytes()).sum(),
            Retired::Tables(tables) => tables.iter().map(|table| table.bytes()).sum(),
            Retired::Other(_, bytes) => *bytes,
        }
    }
}

/// A Bloom filter takes no more than it would without the other kind.
const _: () = assert!(size_of::<Filter>() == size_of::<Bloom>());
