//! Sizes of ribbon filters (Dillinger, Walzer, "Ribbon filter: practically smaller than Bloom and Xor", 2021).

use crate::filter::layout::rounds::MOST_ROUNDS;
use crate::params::limits;

/// Number of consecutive rows that an item can use, starting at its first row. With 64 instead of 128, a filter with 10
/// million items would need 14% more rows than items, rather than 5.5%.
pub(super) const WINDOW: u64 = 128;

/// Rows per block. In each column, a block is one word.
pub(super) const BLOCK: u64 = u64::BITS as u64;

/// Number of blocks that an item's rows can extend over.
pub(super) const SPAN: u64 = WINDOW / BLOCK + 1;

/// Maximum number of columns. In each column, half of the absent items test positive, so each additional column halves
/// the error rate.
pub(super) const MOST_COLUMNS: u32 = 32;

/// Number of additional rows for each doubling of the items, in 65,536ths of the number of items: 0.35%. The more items
/// there are, the more likely it is that too many of them are close together somewhere.
const MORE_FOR_DOUBLE: u64 = 227;

/// Subtracted from the additional rows, also in 65,536ths of the number of items, because small filters don't need more
/// rows than items. Of 600 builds with 100,000 items, 39 needed another round of mixing, and of 300 builds with a
/// million items, 35 did. None needed more than three additional rounds.
const LESS: u64 = 1558;

/// The sizes of a ribbon filter: a table of bits in rows and columns. The first `wide` blocks have one more column than
/// the others, so that the table isn't larger than the error rate requires. The table is followed by a word that
/// describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Total number of blocks.
    pub(super) blocks: u64,
    /// Number of blocks with all columns. The other blocks lack the last column.
    pub(super) wide: u64,
    /// Number of columns.
    pub(super) columns: u32,
}

impl Sizes {
    /// The sizes for this number of distinct items. `None` if the error rate needs too many columns.
    pub(super) fn for_items(items: u64, error_rate: f64) -> Option<Sizes> {
        let items = items.max(1);
        let more = (MORE_FOR_DOUBLE * u64::from(items.ilog2())).saturating_sub(LESS);
        let starts = items.saturating_add(items.saturating_mul(more) >> 16);
        Sizes::of_blocks(starts.div_ceil(BLOCK) + SPAN - 1, error_rate)
    }

    /// The sizes for this many blocks, with the fewest columns that the error rate allows. All operations are exact in
    /// binary arithmetic, except for a product and a ceiling, whose results are the same on all platforms.
    fn of_blocks(blocks: u64, error_rate: f64) -> Option<Sizes> {
        let columns = (1..=MOST_COLUMNS).find(|columns| half_to(*columns) <= error_rate)?;
        // The share of items that need all columns: x, if x · 2^−columns + (1 − x) · 2^(1 − columns) is the error rate.
        let share = (2.0 - error_rate / half_to(columns)).min(1.0);
        let starts = blocks.saturating_sub(SPAN - 1);
        let wide = libm::ceil(starts as f64 * share) as u64 + SPAN - 1;
        Some(Sizes { blocks, wide: wide.min(blocks), columns })
    }

    /// The table with this many cells, each of which is a row. `None` if there is no such table.
    pub(super) fn of_cells(cells: u64, error_rate: f64) -> Option<Sizes> {
        let is_whole = cells.is_multiple_of(BLOCK) && cells >= SPAN * BLOCK;
        let ribbon = Sizes::of_blocks(cells / BLOCK, error_rate)?;
        (is_whole && cells <= limits::MAX_BYTES && ribbon.words() <= limits::MAX_BYTES / 8).then_some(ribbon)
    }

    /// Number of cells. A row counts as one cell, because a filter has about one row for each item.
    pub(super) fn cells(self) -> u64 {
        self.blocks * BLOCK
    }

    /// Number of rows that can be an item's first row.
    #[inline(always)]
    pub(super) fn starts(self) -> u64 {
        (self.blocks - (SPAN - 1)) * BLOCK
    }

    /// Index of the first word of a block.
    #[inline(always)]
    pub(super) fn word(self, block: u64) -> u64 {
        block * u64::from(self.columns - 1) + block.min(self.wide)
    }

    /// Number of columns that all of an item's blocks have, if `block` is the last of them.
    #[inline(always)]
    pub(super) fn columns_at(self, block: u64) -> u32 {
        self.columns - u32::from(block >= self.wide)
    }

    /// Number of words of the table, including the one that describes it.
    pub(super) fn words(self) -> u64 {
        self.word(self.blocks).saturating_add(1)
    }

    /// The chance that an absent item tests positive.
    pub(super) fn rate(self) -> f64 {
        let wide = (self.wide - (SPAN - 1)) as f64 / (self.starts() / BLOCK) as f64;
        half_to(self.columns) * (2.0 - wide)
    }

    /// The word that follows the table of a filter whose items went through `rounds` rounds of mixing. 0 rounds means
    /// an empty filter.
    pub(super) fn describe(self, rounds: u64) -> u64 {
        self.blocks << 8 | rounds
    }

    /// The inverse of [`describe`](Sizes::describe): the rounds, and the sizes of a table with this many words,
    /// including its description.
    #[inline(always)]
    pub(super) fn described(word: u64, columns: u32, words: u64) -> (Sizes, u64) {
        let blocks = word >> 8;
        let narrow = blocks.wrapping_mul(u64::from(columns - 1));
        (Sizes { blocks, wide: words.wrapping_sub(narrow + 1), columns }, word & 0xFF)
    }

    /// Whether a word describes a table with this many cells and `items` items.
    pub(super) fn is_described_by(cells: u64, items: u64, word: u64) -> bool {
        let rounds = word & 0xFF;
        word >> 8 == cells / BLOCK && rounds <= MOST_ROUNDS && (rounds == 0) == (items == 0)
    }
}

/// 2^−power.
fn half_to(power: u32) -> f64 {
    1.0 / (1u64 << power) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filter of any size keeps any error rate. With one column fewer in a single block, it wouldn't.
    #[test]
    fn no_column_is_wasted() {
        let rates = (1..400).map(|step| libm::exp2(-f64::from(step) * 0.08)).chain([0.9, 0.5, 0.01]);
        for error_rate in rates {
            for items in [1, 64, 65, 1000, 123_456, 10_000_000] {
                let ribbon = Sizes::for_items(items, error_rate).unwrap();
                assert!(ribbon.rate() <= error_rate * (1.0 + 1e-12), "{items}, {error_rate}: {ribbon:?}");
                assert!(ribbon.wide >= SPAN && ribbon.wide <= ribbon.blocks);
                let narrower = Sizes { wide: ribbon.wide - 1, ..ribbon };
                assert!(narrower.rate() > error_rate, "{items}, {error_rate}: {ribbon:?}");
                assert_eq!(Sizes::of_cells(ribbon.cells(), error_rate), Some(ribbon));
                let word = ribbon.describe(3);
                assert_eq!(Sizes::described(word, ribbon.columns, ribbon.words()), (ribbon, 3));
            }
        }
        assert_eq!(Sizes::for_items(1, 1e-10), None);
        assert_eq!(Sizes::for_items(1, half_to(32)).map(|ribbon| ribbon.columns), Some(32));
    }

    #[test]
    fn no_number_of_cells_overflows() {
        for cells in [0, 64, 128, 191, 193, limits::MAX_BYTES, u64::MAX, u64::MAX - 63] {
            assert_eq!(Sizes::of_cells(cells, 0.001), None, "{cells}");
        }
        assert_eq!(Sizes::of_cells(192, 0.4).map(Sizes::words), Some(7));
    }
}
