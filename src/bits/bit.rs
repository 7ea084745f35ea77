//! One-bit cells: cell i is bit i mod 64 of word i / 64.

use super::Writer;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;

/// Whether cell `index` is set.
#[inline(always)]
pub fn get(words: &[AtomicU64], index: usize) -> bool {
    shifted(words, index) & 1 == 1
}

/// The word that contains cell `index`, shifted so that this cell is the lowest bit.
#[inline(always)]
pub fn shifted(words: &[AtomicU64], index: usize) -> u64 {
    words[index / 64].load(Relaxed) >> (index % 64)
}

/// Sets cell `index`. Returns true if it was clear before.
#[inline(always)]
pub fn set<W: Writer>(words: &[AtomicU64], index: usize) -> bool {
    let mask = 1 << (index % 64);
    W::set(&words[index / 64], mask) & mask == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::{Shared, Single};

    #[test]
    fn set_reports_the_first_time_only() {
        let words: [AtomicU64; 2] = Default::default();
        for index in [0, 1, 63, 64, 127] {
            assert!(!get(&words, index));
            assert!(set::<Shared>(&words, index));
            assert!(!set::<Single>(&words, index));
            assert!(get(&words, index));
        }
        assert_eq!(words[0].load(Relaxed), 1 << 63 | 0b11);
    }
}
