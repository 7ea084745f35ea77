//! Cells of any width up to 64 bits, back to back in words. A word that is always 0 follows the last of them, so that two
//! words are read wherever a cell begins.

use crate::mem::Cells;
use crate::sync::Ordering::Relaxed;

#[inline(always)]
fn mask(width: u32) -> u64 {
    u64::MAX >> (u64::BITS - width)
}

/// The 64 bits from the first of a cell on.
#[inline(always)]
fn load(words: &Cells, width: u32, cell: u64) -> u64 {
    let bit = cell * u64::from(width);
    let (word, shift) = ((bit / 64) as usize, bit % 64);
    words[word].load(Relaxed) >> shift | words[word + 1].load(Relaxed) << 1 << (63 - shift)
}

/// Number of the word that a cell begins in.
#[inline(always)]
pub(super) fn word_of(width: u32, cell: u64) -> usize {
    (cell * u64::from(width) / 64) as usize
}

/// Contents of a cell.
#[inline(always)]
pub(super) fn get(words: &Cells, width: u32, cell: u64) -> u64 {
    load(words, width, cell) & mask(width)
}

/// Contents of two neighbouring cells.
#[inline(always)]
pub(super) fn pair(words: &Cells, width: u32, cell: u64) -> [u64; 2] {
    let first = load(words, width, cell);
    let second = if width <= 32 { first >> width } else { load(words, width, cell + 1) };
    [first & mask(width), second & mask(width)]
}

/// Changes a cell. One thread writes; readers may run at the same time.
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

    /// Each cell of each width is changed alone, among neighbours that are full or empty.
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
