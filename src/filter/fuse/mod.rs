//! A binary fuse filter (Graf, Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters", 2022): a small filter
//! for a set of items that is known in advance. An item has three cells, in three consecutive segments, and a
//! fingerprint, which is the XOR of the cells. A test reads three cache lines. Items can't be added later, because each
//! cell belongs to several items.
//!
//! The word after the cells says how they are divided into segments, and how often an item's hash is mixed. See
//! [`sizing::fuse`](crate::sizing::fuse).

mod build;
mod places;

pub(crate) use build::build;

use super::fingerprint::cells;
use super::rounds::mixed;
use crate::mem::{Cells, Words};
use crate::sizing::fuse;
use crate::sync::Ordering::Relaxed;
use places::Places;

/// A reader for a filter's words.
#[derive(Clone, Copy)]
pub(crate) struct Fuse<'a> {
    words: &'a Cells,
    places: Places,
    rounds: u64,
}

impl<'a> Fuse<'a> {
    /// A reader for these words, the last of which describes the others.
    #[inline(always)]
    pub(crate) fn new(words: &'a Cells, width: u32) -> Fuse<'a> {
        let (sizes, rounds) = fuse::Fuse::described(words[words.len() - 1].load(Relaxed), width);
        Fuse { words, places: Places::new(sizes), rounds }
    }

    /// Whether the item with this hash may be in the filter.
    #[inline(always)]
    pub(crate) fn contains(self, hash: u64) -> bool {
        let hash = mixed(hash, self.rounds);
        let found = self.places.of(hash).map(|cell| cells::get(self.words, self.places.width(), cell));
        self.rounds > 0 && found.into_iter().fold(0, |all, cell| all ^ cell) == self.places.fingerprint(hash)
    }

    /// Prefetches the cache lines of the item's cells.
    #[inline(always)]
    pub(crate) fn prefetch(self, hash: u64) {
        for cell in self.places.of(mixed(hash, self.rounds)) {
            Words::prefetch(self.words, cells::word_of(self.places.width(), cell));
        }
    }
}
