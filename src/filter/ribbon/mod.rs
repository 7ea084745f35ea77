//! A ribbon filter (Dillinger, Walzer, "Ribbon filter: practically smaller than Bloom and Xor", 2021): a table of bits
//! for a set of items that is known in advance. An item has some of 128 neighbouring rows and a fingerprint: the XOR of
//! these rows. It needs 5 to 6% more bits than the error rate demands, where a binary fuse filter needs 12.5% more and
//! a whole number of bits. A test reads up to 168 neighbouring bytes at 1%, and needs more instructions.
//!
//! The table is stored by blocks of 64 rows, and in a block by columns. So a test handles 64 rows at a time, and may
//! stop after some columns. The word after the table says how many blocks there are, and how often the hash of an item
//! is mixed. See [`sizing::ribbon`](crate::sizing::ribbon).

mod build;
mod equation;

pub(crate) use build::build;

use super::rounds::mixed;
use crate::mem::{Cells, Words};
use crate::sizing::ribbon::{self, BLOCK, SPAN};
use crate::sync::Ordering::Relaxed;
use equation::Equation;

/// Columns that are read before the test looks whether the item is absent: 15 of 16 absent items are.
const GROUP: usize = 4;

/// Words of a cache line.
const LINE: usize = 8;

/// A filter's words, for reading.
#[derive(Clone, Copy)]
pub(crate) struct Ribbon<'a> {
    words: &'a Cells,
    sizes: ribbon::Ribbon,
    rounds: u64,
}

impl<'a> Ribbon<'a> {
    /// The words. The last one describes the others.
    #[inline(always)]
    pub(crate) fn new(words: &'a Cells, columns: u32) -> Ribbon<'a> {
        let description = words[words.len() - 1].load(Relaxed);
        let (sizes, rounds) = ribbon::Ribbon::described(description, columns, words.len() as u64);
        Ribbon { words, sizes, rounds }
    }

    /// The first words of the three blocks that an item's rows lie in, and the number of columns that all three have.
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
    pub(crate) fn contains(self, hash: u64) -> bool {
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

    /// Fetches the lines of its rows.
    #[inline(always)]
    pub(crate) fn prefetch(self, hash: u64) {
        let item = Equation::of(mixed(hash, self.rounds), self.sizes.starts());
        let ([first, _, last], columns) = self.blocks(item.start);
        let end = last + columns;
        (first..end).step_by(LINE).for_each(|word| Words::prefetch(self.words, word));
        Words::prefetch(self.words, end.max(1) - 1);
    }
}
