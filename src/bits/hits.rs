//! Answers for a group of up to 64 items, stored in one word.

use core::ops::{BitAnd, BitOr, BitOrAssign, Not};

/// Which of up to 64 items got the answer "yes": bit i is for item i. As an iterator, returns the indices of these
/// items, lowest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits(pub u64);

impl Hits {
    /// Number of items that one `Hits` has answers for.
    pub const MAX: usize = u64::BITS as usize;

    /// "Yes" for the first `len` items; for [`Hits::MAX`] items if `len` is larger.
    #[inline]
    pub fn first(len: usize) -> Hits {
        Hits(u64::MAX.checked_shr((Hits::MAX - len.min(Hits::MAX)) as u32).unwrap_or(0))
    }

    /// The answer for item `index`, which must be below [`Hits::MAX`].
    #[inline(always)]
    pub fn has(self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }

    /// These answers, with "yes" added for item `index` if `hit` is true. `index` must be below [`Hits::MAX`].
    #[inline(always)]
    #[must_use]
    pub fn with(self, index: usize, hit: bool) -> Hits {
        Hits(self.0 | u64::from(hit) << index)
    }

    /// Number of items with the answer "yes".
    #[inline(always)]
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether the answer is "no" for every item.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Iterator for Hits {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let index = self.0.trailing_zeros() as usize;
        // Clears the lowest set bit: 0b1100 & 0b1011 = 0b1000.
        self.0 &= self.0 - 1;
        Some(index)
    }
}

impl BitAnd for Hits {
    type Output = Hits;

    #[inline(always)]
    fn bitand(self, other: Hits) -> Hits {
        Hits(self.0 & other.0)
    }
}

impl BitOr for Hits {
    type Output = Hits;

    #[inline(always)]
    fn bitor(self, other: Hits) -> Hits {
        Hits(self.0 | other.0)
    }
}

impl BitOrAssign for Hits {
    #[inline(always)]
    fn bitor_assign(&mut self, other: Hits) {
        self.0 |= other.0;
    }
}

impl Not for Hits {
    type Output = Hits;

    #[inline(always)]
    fn not(self) -> Hits {
        Hits(!self.0)
    }
}
