//! Reads a ribbon filter. The word after the table says how many blocks there are, and how often an item's hash is
//! mixed.

use super::equation::Equation;
use super::sizes::{BLOCK, SPAN, Sizes};
use crate::filter::layout::rounds::mixed;
use crate::mem::{Cells, Words};
use crate::sync::Ordering::Relaxed;

/// Number of columns that a test reads before it checks whether they rule out the item. Four columns rule out 15 of 16
/// absent items.
const GROUP: usize = 4;

/// Words per cache line.
const LINE: usize = 8;

/// A reader for a filter's words.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    words: &'a Cells,
    sizes: Sizes,
    rounds: u64,
}

impl<'a> Reader<'a> {
    /// A reader for these words, the last of which describes the others.
    #[inline(always)]
    pub(super) fn new(words: &'a Cells, columns: u32) -> Reader<'a> {
        let description = words[words.len() - 1].load(Relaxed);
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
        let columns_of = |block: usize| &self.words[blocks[block]..blocks[block] + columns];
        let masks = item.masks();
        let mut rest = u64::from(item.fingerprint);
        let [first, second, third] = [columns_of(0), columns_of(1), columns_of(2)];
        let groups = first.chunks(GROUP).zip(second.chunks(GROUP)).zip(third.chunks(GROUP));
        for ((first, second), third) in groups {
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
