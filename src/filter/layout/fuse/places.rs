//! An item's cells and fingerprint.

use super::sizes::{ARITY, Sizes};
use crate::filter::layout::rounds::{GOLDEN, MURMUR};
use crate::hash::fast_range;

/// Computes where a filter's items are. The computation is part of the format (docs/FORMAT.md, "Static filters").
#[derive(Clone, Copy)]
pub(super) struct Places {
    /// Bits of a fingerprint.
    width: u32,
    /// Number of cells that can be an item's first cell.
    starts: u64,
    segment: u64,
}

impl Places {
    #[inline(always)]
    pub(super) fn new(sizes: Sizes) -> Places {
        let segment = 1 << (sizes.log2_segment & 63);
        Places { width: sizes.width, starts: sizes.starts * segment, segment }
    }

    #[inline(always)]
    pub(super) fn width(self) -> u32 {
        self.width
    }

    /// The cells of the item with this mixed hash. Neighbouring hashes have neighbouring first cells.
    #[inline(always)]
    pub(super) fn of(self, hash: u64) -> [u64; ARITY as usize] {
        let first = fast_range(hash, self.starts);
        let (mask, offsets) = (self.segment - 1, hash.wrapping_mul(GOLDEN));
        [
            first,
            (first + self.segment) ^ (offsets >> 44 & mask),
            (first + 2 * self.segment) ^ (offsets >> 24 & mask),
        ]
    }

    /// The item's fingerprint, which the XOR of its cells must equal.
    #[inline(always)]
    pub(super) fn fingerprint(self, hash: u64) -> u64 {
        (hash ^ hash >> 32).wrapping_mul(MURMUR) >> (u64::BITS - self.width)
    }
}
