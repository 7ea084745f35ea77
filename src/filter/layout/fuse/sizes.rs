//! Sizes of binary fuse filters (Graf, Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters", 2022).

use crate::filter::layout::rounds::MOST_ROUNDS;
use crate::params::limits;

/// Number of cells per item. Each is in a different segment.
pub(super) const ARITY: u64 = 3;

/// Minimum and maximum number of bits per cell. The chance that an absent item tests positive is 2^−bits.
pub(super) const WIDTHS: core::ops::RangeInclusive<u32> = 4..=32;

/// Binary logarithm of the smallest segment's number of cells.
const LEAST_LOG2_SEGMENT: u32 = 2;

/// Largest segment: 2^18 cells. While the filter is built, larger ones would not fit in the L2 cache, and they wouldn't
/// reduce the number of cells.
const MOST_LOG2_SEGMENT: u32 = 18;

/// The sizes of a binary fuse filter. The cells are followed by a word that describes the filter, so that two words can
/// be read wherever a cell begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Number of segments that an item's first cell may be in. Its other cells are in the two segments that follow.
    pub(super) starts: u64,
    /// Binary logarithm of a segment's number of cells.
    pub(super) log2_segment: u32,
    /// Bits per cell.
    pub(super) width: u32,
}

impl Sizes {
    /// The sizes for this number of distinct items. They follow the paper, with two changes. The factors are 0.005
    /// smaller, because the cells are rounded up to a whole segment. And the segment size is computed from the bit
    /// length of the number of items.
    pub(super) fn for_items(items: u64, width: u32) -> Sizes {
        let items = items.max(2);
        // ln(n) / ln(3.33) + 2.25, in 256ths. Rounding the logarithm down loses up to a bit of n, so nearly half a bit
        // is added.
        let log2_segment = ((items.ilog2() * 148 + 640) / 256).min(MOST_LOG2_SEGMENT);
        let factor = 0.87 + 0.25 * libm::log(1e6) / libm::log(items as f64);
        let cells = libm::ceil(items as f64 * factor.max(1.12)) as u64;
        let starts = cells.div_ceil(1 << log2_segment).saturating_sub(ARITY - 1).max(1);
        Sizes { starts, log2_segment, width }
    }

    /// The minimum number of bits per cell that keeps this error rate. `None` if that is too many.
    pub(super) fn width_for(error_rate: f64) -> Option<u32> {
        WIDTHS.into_iter().find(|width| libm::exp2(-f64::from(*width)) <= error_rate)
    }

    /// Number of cells.
    pub(super) fn cells(self) -> u64 {
        (self.starts + ARITY - 1) << self.log2_segment
    }

    /// Number of words for this many cells of this width, including the word that describes them.
    pub(super) fn words(cells: u64, width: u32) -> u64 {
        let bits = u128::from(cells) * u128::from(width);
        (bits.div_ceil(u64::BITS.into()) as u64).saturating_add(1)
    }

    /// Whether a filter may have this many cells of this width.
    pub(super) fn is_valid(cells: u64, width: u32) -> bool {
        WIDTHS.contains(&width)
            && cells >= ARITY << LEAST_LOG2_SEGMENT
            && cells.is_multiple_of(1 << LEAST_LOG2_SEGMENT)
            && cells <= limits::MAX_BYTES
            && Sizes::words(cells, width) <= limits::MAX_BYTES / 8
    }

    /// The word that follows the cells of a filter whose items went through `rounds` rounds of mixing. 0 rounds means
    /// an empty filter.
    pub(super) fn describe(self, rounds: u64) -> u64 {
        self.starts << 16 | u64::from(self.log2_segment) << 8 | rounds
    }

    /// The inverse of [`describe`](Sizes::describe): the sizes and the rounds. The word need not be valid.
    #[inline(always)]
    pub(super) fn described(word: u64, width: u32) -> (Sizes, u64) {
        (Sizes { starts: word >> 16, log2_segment: (word >> 8) as u32 & 0xFF, width }, word & 0xFF)
    }

    /// The sizes of an empty filter with this many cells. How they are divided into segments doesn't matter.
    pub(super) fn empty(cells: u64, width: u32) -> Sizes {
        let starts = (cells >> LEAST_LOG2_SEGMENT).saturating_sub(ARITY - 1);
        Sizes { starts, log2_segment: LEAST_LOG2_SEGMENT, width }
    }

    /// Whether a word describes a filter with this many cells and `items` items.
    pub(super) fn is_described_by(cells: u64, width: u32, items: u64, word: u64) -> bool {
        let (fuse, rounds) = Sizes::described(word, width);
        (LEAST_LOG2_SEGMENT..=MOST_LOG2_SEGMENT).contains(&fuse.log2_segment)
            && fuse
                .starts
                .checked_add(ARITY - 1)
                .is_some_and(|segments| segments << fuse.log2_segment == cells)
            && rounds <= MOST_ROUNDS
            && (rounds == 0) == (items == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_needs_an_eighth_more_than_its_bits() {
        for (items, most) in [(1_000_000, 1.13), (10_000_000, 1.13), (100_000_000, 1.13), (1000, 1.42)] {
            let fuse = Sizes::for_items(items, 8);
            let per_item = fuse.cells() as f64 / items as f64;
            assert!((1.119..most).contains(&per_item), "{items}: {per_item}");
        }
        assert_eq!(Sizes::width_for(0.004), Some(8));
        assert_eq!(
            (Sizes::width_for(0.9), Sizes::width_for(1e-6), Sizes::width_for(1e-10)),
            (Some(4), Some(20), None)
        );
        assert_eq!(Sizes::width_for(libm::exp2(-32.0)), Some(32));
    }
}
