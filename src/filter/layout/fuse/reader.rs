//! Reads a binary fuse filter. The word after the cells says how they are divided into segments, and how often an
//! item's hash is mixed.

use super::places::Places;
use super::sizes::Sizes;
use crate::filter::layout::packed;
use crate::filter::layout::rounds::mixed;
use crate::mem::{Cells, Source, Words};

/// A reader for a filter's words.
#[derive(Clone, Copy)]
pub(super) struct Reader<W> {
    words: W,
    places: Places,
    rounds: u64,
}

impl<W: Source> Reader<W> {
    /// A reader for these words, the last of which describes the others.
    #[inline(always)]
    pub(super) fn new(words: W, width: u32) -> Reader<W> {
        let (sizes, rounds) = Sizes::described(words.word(words.len() - 1), width);
        Reader { words, places: Places::new(sizes), rounds }
    }

    /// Whether the item with this hash may be in the filter.
    #[inline(always)]
    pub(super) fn contains(self, hash: u64) -> bool {
        let hash = mixed(hash, self.rounds);
        let mut found = self.places.fingerprint(hash);
        for cell in self.places.of(hash) {
            found ^= packed::get(self.words, self.places.width(), cell);
        }
        self.rounds > 0 && found == 0
    }
}

impl Reader<&Cells> {
    /// Prefetches the cache lines of the item's cells.
    #[inline(always)]
    pub(super) fn prefetch(self, hash: u64) {
        for cell in self.places.of(mixed(hash, self.rounds)) {
            Words::prefetch(self.words, packed::word_of(self.places.width(), cell));
        }
    }
}
