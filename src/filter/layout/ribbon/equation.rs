//! An item's rows and fingerprint.

use super::sizes::{BLOCK, SPAN};
use crate::filter::layout::rounds::{GOLDEN, MURMUR};
use crate::hash::fast_range;

/// The equation that the table must satisfy for an item: the XOR of the item's rows is its fingerprint. This is part of
/// the format (docs/FORMAT.md, "Static filters").
#[derive(Clone, Copy)]
pub(super) struct Equation {
    /// The item's first row.
    pub start: u64,
    /// Which of the 128 rows that begin with `start` belong to the item. The lowest bit is for `start` itself, and is
    /// always set.
    pub rows: u128,
    /// One bit per column.
    pub fingerprint: u32,
}

impl Equation {
    /// The equation of an item with this mixed hash. Neighbouring hashes have neighbouring first rows.
    #[inline(always)]
    pub(super) fn of(hash: u64, starts: u64) -> Equation {
        let near = hash.wrapping_mul(GOLDEN);
        let far = (hash ^ hash >> 32).wrapping_mul(MURMUR);
        Equation {
            start: fast_range(hash, starts),
            rows: u128::from(far ^ far >> 32) << 64 | u128::from(near ^ near >> 32) | 1,
            fingerprint: ((near ^ far >> 1).wrapping_mul(MURMUR) >> 32) as u32,
        }
    }

    /// The item's rows, as one mask per block.
    #[inline(always)]
    pub(super) fn masks(self) -> [u64; SPAN as usize] {
        let shift = (self.start % BLOCK) as u32;
        let low = self.rows << shift;
        [low as u64, (low >> 64) as u64, (self.rows >> 64 >> 1 >> (BLOCK as u32 - 1 - shift)) as u64]
    }
}
