//! Cells of any width up to 64 bits, stored back to back in words. One more word follows the last cell; it describes
//! the filter.

use crate::mem::{Cells, Source};
use crate::sync::Ordering::Relaxed;

#[inline(always)]
fn mask(width: u32) -> u64 {
    u64::MAX >> (u64::BITS - width)
}

/// Reads `bits` bits (up to 64), starting at bit `first`. The higher bits of the result are undefined.
///
/// The second load is from the word with the last bit, not simply from the next word: the next word may be in another
/// cache line that hasn't been fetched.
#[inline(always)]
fn load(words: impl Source, first: u64, bits: u32) -> u64 {
    let (word, shift) = ((first / 64) as usize, first % 64);
    let last = ((first + u64::from(bits) - 1) / 64) as usize;
    words.word(word) >> shift | words.word(last) << 1 << (63 - shift)
}

/// Index of the word in which a cell begins.
#[inline(always)]
pub(super) fn word_of(width: u32, cell: u64) -> usize {
    (cell * u64::from(width) / 64) as usize
}

/// Contents of a cell.
#[inline(always)]
pub(super) fn get(words: impl Source, width: u32, cell: u64) -> u64 {
    let first = cell * u64::from(width);
    // A cell of a width that divides 64 never crosses into the next word.
    if width.is_power_of_two() {
        return words.word((first / 64) as usize) >> (first % 64) & mask(width);
    }
    load(words, first, width) & mask(width)
}

/// Changes a cell. Only one thread may write; others can read at the same time.
#[inline(always)]
pub(super) fn set(words: &Cells, width: u32, cell: u64, content: u64) {
    let bit = cell * u64::from(width);
    let (word, shift) = ((bit / 64) as usize, bit % 64);
    let replace = |word: usize, mask: u64, bits: u64| {
        words[word].store(words[word].load(Relaxed) & !mask | bits, Relaxed);
    };
    replace(word, mask(width) << shift, content << shift);
    if shift + u64::from(width) > 64 {
        replace(word + 1, mask(width) >> (64 - shift), content >> (64 - shift));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::AtomicU64;

    /// Changing a cell of any width leaves its neighbours unchanged, whether they are full or empty.
    #[test]
    fn cells_of_any_width_leave_their_neighbours_alone() {
        for width in 3..=64 {
            let words: Vec<AtomicU64> = (0..6).map(|_| AtomicU64::new(0)).collect();
            let cells = 5 * 64 / u64::from(width);
            let all = mask(width);
            for around in [0, all] {
                (0..cells).for_each(|cell| set(&words, width, cell, around));
                for cell in 0..cells {
                    for content in [all & 0x5555_5555_5555_5555, all, 1, 1 << (width - 1), 0] {
                        set(&words, width, cell, content);
                        for other in 0..cells {
                            let expected = if other == cell { content } else { around };
                            assert_eq!(get(&words[..], width, other), expected);
                        }
                    }
                    set(&words, width, cell, around);
                }
            }
            assert_eq!(words[5].load(Relaxed), 0, "the last word is padding");
        }
    }
}
