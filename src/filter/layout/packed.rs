//! Cells of any width up to 64 bits, stored back to back in words. One more word follows the last cell: in a
//! fingerprint table, it is always 0, and in a fuse filter, it describes the filter.

use crate::mem::{Cells, Words};
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
fn load(words: &Cells, first: u64, bits: u32) -> u64 {
    let (word, shift) = ((first / 64) as usize, first % 64);
    let last = ((first + u64::from(bits) - 1) / 64) as usize;
    words[word].load(Relaxed) >> shift | words[last].load(Relaxed) << 1 << (63 - shift)
}

/// Index of the word in which a cell begins.
#[inline(always)]
pub(super) fn word_of(width: u32, cell: u64) -> usize {
    (cell * u64::from(width) / 64) as usize
}

/// Whether a single store changes the whole cell.
#[inline(always)]
pub(super) fn is_in_one_word(width: u32, cell: u64) -> bool {
    let first = cell * u64::from(width);
    first / 64 == (first + u64::from(width) - 1) / 64
}

/// Prefetches the cache lines of two neighbouring cells, which usually share one line. There is no branch, because one
/// in twenty would be mispredicted and a test would take 10% longer.
#[inline(always)]
pub(super) fn prefetch(words: &Cells, width: u32, cell: u64) {
    let first = (cell * u64::from(width)) as usize;
    let last = first + 2 * width as usize - 1;
    Words::prefetch(words, first / 64);
    Words::prefetch(words, last / 64);
}

/// Contents of a cell.
#[inline(always)]
pub(super) fn get(words: &Cells, width: u32, cell: u64) -> u64 {
    load(words, cell * u64::from(width), width) & mask(width)
}

/// Contents of two neighbouring cells.
#[inline(always)]
pub(super) fn pair(words: &Cells, width: u32, cell: u64) -> [u64; 2] {
    if width > u64::BITS / 2 {
        return [get(words, width, cell), get(words, width, cell + 1)];
    }
    let both = load(words, cell * u64::from(width), 2 * width);
    [both & mask(width), both >> width & mask(width)]
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
                            assert_eq!(get(&words, width, other), expected);
                        }
                        if cell + 1 < cells {
                            assert_eq!(pair(&words, width, cell), [content, around]);
                        }
                        if cell > 0 {
                            assert_eq!(pair(&words, width, cell - 1), [around, content]);
                        }
                    }
                    set(&words, width, cell, around);
                }
            }
            assert_eq!(words[5].load(Relaxed), 0, "the last word is padding");
        }
    }
}
