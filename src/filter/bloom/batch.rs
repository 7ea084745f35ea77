//! Processes items in groups. All items of a group are hashed and their cache lines prefetched before the first is
//! probed, so that the group's cache misses overlap. If items were processed one at a time, each would wait for memory.

use super::Bloom;
use super::layer::Layer;
use super::reader::Reader;
use crate::bits::Hits;
use crate::hash::{Hasher, ItemHash};
use std::ops::{ControlFlow, Deref};

/// Items per group: one [`Hits`] holds the answers. A core can have 10 to 16 cache misses in flight; a group is enough
/// to keep it busy.
pub const GROUP: usize = Hits::MAX;

/// A filter that items are looked up in.
pub trait Probed {
    /// The keyed hash function.
    fn hasher(&self) -> Hasher;

    /// The layer that a test or add of an item touches first.
    fn first(&self) -> &Layer;

    /// Which of up to 64 items the filter may contain. A window answers as of generation `current`.
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

/// Hashes the items in groups of up to [`GROUP`]. Unless the layer [is near](Layer::is_near), `prefetch`
/// ([`Layer::prefetch`] or [`Layer::prefetch_all`]) requests each item's cache lines. Then `visit` is called with the
/// group. The loop ends when `visit` returns `Break`. `filter` is a shared or an exclusive reference, which is passed
/// on to `visit`.
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

/// Like [`for_each_group`], for an iterator over hashes.
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
