//! Items in groups: hashed, their cache lines prefetched, and only then probed, so that the cache misses of a group
//! overlap. One at a time, each item would wait for memory.

use super::Bloom;
use super::layer::Layer;
use super::reader::Reader;
use crate::bits::Hits;
use crate::hash::{Hasher, ItemHash};
use std::ops::{ControlFlow, Deref};

/// Items per group: one [`Hits`] holds the answers. A core has 10 to 16 misses in flight at once; a group keeps it
/// busy.
pub const GROUP: usize = Hits::MAX;

/// A filter that items are looked up in.
pub trait Probed {
    /// The keyed hash function.
    fn hasher(&self) -> Hasher;

    /// The layer that a test or add of an item touches first.
    fn first(&self) -> &Layer;

    /// Which of up to 64 items it may contain; a window answers as of generation `current`.
    fn contains_many(&self, items: &[ItemHash], current: u64) -> Hits;
}

impl Probed for Bloom {
    #[inline(always)]
    fn hasher(&self) -> Hasher {
        Bloom::hasher(self)
    }

    #[inline(always)]
    fn first(&self) -> &Layer {
        self.newest_layer()
    }

    #[inline(always)]
    fn contains_many(&self, items: &[ItemHash], current: u64) -> Hits {
        Bloom::contains_many(self, items, current)
    }
}

impl Probed for Reader {
    #[inline(always)]
    fn hasher(&self) -> Hasher {
        Reader::hasher(self)
    }

    #[inline(always)]
    fn first(&self) -> &Layer {
        self.newest_layer()
    }

    #[inline(always)]
    fn contains_many(&self, items: &[ItemHash], current: u64) -> Hits {
        Reader::contains_many(self, items, current)
    }
}

/// Hashes the items in groups of up to [`GROUP`]. Each group's cache lines are requested by `prefetch`, which is
/// [`Layer::prefetch`] or [`Layer::prefetch_all`], unless the layer [is near](Layer::is_near); then `visit` gets the
/// group, until it says stop. `filter` is a shared or an exclusive reference, which `visit` gets back.
#[inline(always)]
pub fn for_each_group<'i, F: Deref<Target: Probed>>(
    filter: &mut F,
    prefetch: impl Fn(&Layer, ItemHash),
    items: impl Iterator<Item = &'i [u8]>,
    visit: impl FnMut(&mut F, &[ItemHash]) -> ControlFlow<()>,
) {
    let hasher = filter.hasher();
    for_each_hashed_group(filter, prefetch, items.map(|item| hasher.hash_in_loop(item)), visit);
}

/// Like [`for_each_group`], for an iterator that hashes the items itself.
#[inline(always)]
pub fn for_each_hashed_group<F: Deref<Target: Probed>>(
    filter: &mut F,
    prefetch: impl Fn(&Layer, ItemHash),
    mut items: impl Iterator<Item = ItemHash>,
    mut visit: impl FnMut(&mut F, &[ItemHash]) -> ControlFlow<()>,
) {
    let mut group = [ItemHash::default(); GROUP];
    loop {
        let mut len = 0;
        let first = filter.first();
        let is_near = first.is_near();
        for (slot, item) in group.iter_mut().zip(items.by_ref()) {
            *slot = item;
            if !is_near {
                prefetch(first, item);
            }
            len += 1;
        }
        if len == 0 || visit(filter, &group[..len]).is_break() || len < GROUP {
            return;
        }
    }
}
