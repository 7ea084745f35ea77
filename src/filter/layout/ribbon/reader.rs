//! Reads a ribbon filter. The word after the table says how many blocks there are, and how often an item's hash is
//! mixed.

use super::equation::Equation;
use super::sizes::{BLOCK, SPAN, Sizes};
use crate::filter::layout::rounds::mixed;
use crate::mem::{Cells, Source, Words};
use crate::sync::Ordering::Relaxed;

/// Number of columns that a test reads before it checks whether they rule out the item. Four columns rule out 15 of 16
/// absent items.
const GROUP: usize = 4;

/// Words per cache line.
const LINE: usize = 8;

/// A reader for a filter's words.
#[derive(Clone, Copy)]
pub(super) struct Reader<W> {
    words: W,
    sizes: Sizes,
    rounds: u64,
}

impl<W: Source> Reader<W> {
    /// A reader for these words, the last of which describes the others.
    #[inline(always)]
    pub(super) fn new(words: W, columns: u32) -> Reader<W> {
        let description = words.word(words.len() - 1);
        let (sizes, rounds) = Sizes::described(description, columns, words.len() as u64);
        Reader { words, sizes, rounds }
    }

    /// The indices of the first words of the three blocks that contain an item's rows, and the number of columns that
    /// all three blocks have.
    #[inline(always)]
    fn blocks(self, start: u64) -> ([usize; SPAN as usize], usize) {
        let first = start / BLOCK;
        let last = first + SPAN - 1;
        (
            [first, first + 1, last].map(|block| self.sizes.word(block) as usize),
            self.sizes.columns_at(last) as usize,
        )
    }

    /// Whether the item with this hash may be in the filter.
    #[inline(always)]
    pub(super) fn contains(self, hash: u64) -> bool {
        let item = Equation::of(mixed(hash, self.rounds), self.sizes.starts());
        let (blocks, columns) = self.blocks(item.start);
        let columns_of = |block: usize| self.words.run(blocks[block], columns);
        let masks = item.masks();
        let mut rest = u64::from(item.fingerprint);
        let [first, second, third] = [columns_of(0), columns_of(1), columns_of(2)];
        let [first, second, third] = [&first, &second, &third].map(|run| run.as_ref().chunks(GROUP));
        for ((first, second), third) in first.zip(second).zip(third) {
            let mut differ = 0;
            for ((first, second), third) in first.iter().zip(second).zip(third) {
                let column = first.load(Relaxed) & masks[0]
                    ^ second.load(Relaxed) & masks[1]
                    ^ third.load(Relaxed) & masks[2];
                differ |= u64::from(column.count_ones()) ^ rest;
                rest >>= 1;
            }
            if differ & 1 != 0 {
                return false;
            }
        }
        self.rounds > 0
    }
}

impl Reader<&Cells> {
    /// Prefetches the cache lines of the item's rows.
    #[inline(always)]
    pub(super) fn prefetch(self, hash: u64) {
        let item = Equation::of(mixed(hash, self.rounds), self.sizes.starts());
        let ([first, _, last], columns) = self.blocks(item.start);
        let end = last + columns;
        (first..end).step_by(LINE).for_each(|word| Words::prefetch(self.words, word));
        Words::prefetch(self.words, end.max(1) - 1);
    }
}
