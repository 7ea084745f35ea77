//! Which cells an item has, and the fingerprint that they make together.

use crate::hash::fast_range;
use crate::sizing::fuse::{ARITY, Fuse};

/// Multipliers: 2^64 / golden ratio, and the second of MurmurHash3's finalizer.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
const MURMUR: u64 = 0xC4CE_B9FE_1A85_EC53;

/// Where the items of a filter are. This is part of the format (docs/FORMAT.md, "Static filters").
#[derive(Clone, Copy)]
pub(super) struct Places {
    /// Bits of a fingerprint.
    width: u32,
    /// Cells that may be the first of an item.
    starts: u64,
    segment: u64,
}

impl Places {
    #[inline(always)]
    pub(super) fn new(sizes: Fuse) -> Places {
        let segment = 1 << (sizes.log2_segment & 63);
        Places { width: sizes.width, starts: sizes.starts * segment, segment }
    }

    #[inline(always)]
    pub(super) fn width(self) -> u32 {
        self.width
    }

    /// The cells of an item with this mixed hash. Neighbouring hashes have neighbouring first cells.
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

    /// The XOR of these cells.
    #[inline(always)]
    pub(super) fn fingerprint(self, hash: u64) -> u64 {
        (hash ^ hash >> 32).wrapping_mul(MURMUR) >> (u64::BITS - self.width)
    }
}

/// One round of mixing: the finalizer of MurmurHash3, which maps no two hashes to one.
#[inline(always)]
pub(super) fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash = (hash ^ hash >> 33).wrapping_mul(MURMUR);
    hash ^ hash >> 33
}
