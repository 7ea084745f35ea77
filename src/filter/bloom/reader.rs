//! Reads a filter's cells in another thread.

use super::generations::Generations;
use super::layers::contains_many;
use crate::bits::Hits;
use crate::filter::layout::Layer;
use crate::hash::{Hashed, Hasher, Item, ItemHash};
use crate::item::ItemBytes;
use alloc::sync::Arc;

/// Reads a filter's layers from any thread, for any length of time. The layers live until the last reader is gone, even
/// if the filter is dropped.
#[derive(Clone)]
pub struct Reader {
    hasher: Hasher,
    layers: Arc<[Layer]>,
    /// Number of the newest generation, if the filter is a window.
    newest: Option<u64>,
}

impl Reader {
    /// A reader of these layers, which are in the same order as in their filter.
    pub(super) fn new(hasher: Hasher, layers: Arc<[Layer]>, newest: Option<u64>) -> Reader {
        Reader { hasher, layers, newest }
    }

    /// The keyed hash function of the filter.
    pub fn hasher(&self) -> Hasher {
        self.hasher
    }

    /// Hashes an item for the filter.
    pub fn hash(&self, item: impl ItemBytes) -> Hashed {
        Hashed::new(self.hasher, item.item_bytes().as_ref())
    }

    /// Whether the item may be in the filter. A window answers as of the generation that was the newest when the reader
    /// was created.
    pub fn contains(&self, item: impl Item) -> bool {
        self.contains_as_of(item, self.newest.unwrap_or(0))
    }

    /// Prefetches the item's first cache lines in the newest layer, as [`Bloom::prefetch`](crate::Bloom::prefetch)
    /// does.
    pub fn prefetch(&self, item: ItemHash) {
        self.newest_layer().prefetch(item);
    }

    /// The newest layer, which [`contains_many`](Reader::contains_many) visits first.
    pub(super) fn newest_layer(&self) -> &Layer {
        let newest = match self.newest {
            None => self.layers.len() - 1,
            Some(newest) => return Generations::new(&self.layers, newest).current(),
        };
        &self.layers[newest]
    }

    /// Which of up to 64 items may be in the filter. A window answers as of generation `current`.
    pub fn contains_many(&self, items: &[ItemHash], current: u64) -> Hits {
        match self.newest {
            None => contains_many(self.layers.iter().rev(), items),
            Some(newest) => Generations::new(&self.layers, newest).contains_many(items, current),
        }
    }

    /// Like [`contains`](Reader::contains), but a window answers as of generation `current`.
    pub fn contains_as_of(&self, item: impl Item, current: u64) -> bool {
        let item = item.hash_by(self.hasher);
        match self.newest {
            None => self.layers.iter().rev().any(|layer| layer.contains(item)),
            Some(newest) => Generations::new(&self.layers, newest).contains(item, current),
        }
    }
}
