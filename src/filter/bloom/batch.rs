//! Processes items in groups. All items of a group are hashed and their cache lines prefetched before the first item is
//! probed, so that the group's cache misses overlap. If items were processed one at a time, each would have to wait for
//! memory.

use super::Bloom;
use super::reader::Reader;
use crate::bits::Hits;
use crate::filter::layout::Layer;
use crate::hash::{Hasher, ItemHash};
use core::ops::{ControlFlow, Deref};

/// Items per group: one [`Hits`] holds the answers. A core can have 10 to 16 cache misses in flight; a group is enough
/// to keep it busy.
pub const GROUP: usize = Hits::MAX;

/// Maximum number of cache lines that the adds of a group touch. In memory that nobody has written to, each line may
/// need two page faults, one for the read and one for the write, which take 3 µs together. Without this limit, a group
/// of 64 items with 29 probes each blocked a server for 6 ms, because commands look at the clock only between groups. A
/// group's lines also fit into the L1 cache.
const LINES: usize = 512;

/// Number of items to add as a group if each touches `lines` cache lines. It is a power of two, so 32, the largest
/// number of items between two readings of the clock, is a multiple of every smaller group.
#[inline]
pub fn group_for(lines: usize) -> usize {
    // True for nearly all filters, which thus avoid the division.
    if lines <= LINES / GROUP {
        return GROUP;
    }
    1 << (LINES / lines).max(1).ilog2()
}

/// What is done with a group of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The items are looked up.
    Test,
    /// The items are added or deleted.
    Write,
}

/// A filter, or a reader of a filter, in which items are looked up.
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

/// Hashes the items in groups, and calls `visit` with each group until it returns `Break`. A group has up to [`GROUP`]
/// items, or for [`Work::Write`] up to the number of items that [`group_for`] returns. Before each call, the items'
/// cache lines in the filter's first layer are prefetched, unless that layer [is near](Layer::is_near). `filter` is a
/// shared or an exclusive reference, which is passed on to `visit`.
#[inline(always)]
pub fn for_each_group<'i, F: Deref<Target: Probed>>(
    filter: &mut F,
    work: Work,
    items: impl Iterator<Item = &'i [u8]>,
    visit: impl FnMut(&mut F, &[ItemHash]) -> ControlFlow<()>,
) {
    let hasher = filter.hasher();
    for_each_hashed_group(filter, work, items.map(|item| hasher.hash_in_loop(item)), visit);
}

/// Like [`for_each_group`], for an iterator over hashes.
#[inline(always)]
pub fn for_each_hashed_group<F: Deref<Target: Probed>>(
    filter: &mut F,
    work: Work,
    mut items: impl Iterator<Item = ItemHash>,
    mut visit: impl FnMut(&mut F, &[ItemHash]) -> ControlFlow<()>,
) {
    let mut group = [ItemHash::default(); GROUP];
    loop {
        let mut len = 0;
        let first = filter.first();
        let is_near = first.is_near();
        let most = match work {
            Work::Test => GROUP,
            Work::Write => group_for(first.lines()),
        };
        for (slot, item) in group[..most].iter_mut().zip(items.by_ref()) {
            *slot = item;
            match work {
                _ if is_near => {}
                Work::Test => first.prefetch(item),
                Work::Write => first.prefetch_all(item),
            }
            len += 1;
        }
        if len == 0 || visit(filter, &group[..len]).is_break() || len < most {
            return;
        }
    }
}
