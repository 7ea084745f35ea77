//! Counters of 4, 8 or 16 bits, packed into words, with the lowest counter in the lowest bits.
//!
//! Counters saturate. A counter that has reached its maximum has lost count, so it is never changed again, neither up
//! nor down. Decrementing it could bring it to 0 while items still need it: a false negative (Fan, Cao, Almeida,
//! Broder, "Summary Cache", 2000, §V: at the optimal load, the probability that any of m 4-bit counters overflows is at
//! most 1.37e-15 × m).

use super::Writer;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;

/// The effect of a change on one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Value before the change.
    pub before: u64,
    /// Value after the change. Equal to `before` if the counter was already at its limit (the maximum or 0).
    pub after: u64,
}

/// The largest value of a counter of `width` bits.
#[inline(always)]
pub const fn maximum(width: u32) -> u64 {
    (1 << width) - 1
}

/// Word, shift and mask of counter `index`.
#[inline(always)]
fn locate(width: u32, index: usize) -> (usize, u32, u64) {
    // The width is a power of two, but the compiler can't know that. Shifts save two divisions per probe.
    let log2 = width.trailing_zeros();
    (index >> (u64::BITS.trailing_zeros() - log2), (index as u32) << log2 & (u64::BITS - 1), maximum(width))
}

/// Value of counter `index`.
#[inline(always)]
pub fn get(words: &[AtomicU64], width: u32, index: usize) -> u64 {
    let (word, shift, mask) = locate(width, index);
    words[word].load(Relaxed) >> shift & mask
}

/// Adds 1 unless the counter is at its maximum.
#[inline(always)]
pub fn increment<W: Writer>(words: &[AtomicU64], width: u32, index: usize) -> Step {
    let (word, shift, mask) = locate(width, index);
    // The counter is below its maximum, so the carry stays inside it.
    let (old, changed) = W::update(&words[word], |w| (w >> shift & mask != mask).then(|| w + (1 << shift)));
    let before = old >> shift & mask;
    Step { before, after: before + u64::from(changed) }
}

/// Subtracts 1 unless the counter is 0 or at its maximum.
#[inline(always)]
pub fn decrement<W: Writer>(words: &[AtomicU64], width: u32, index: usize) -> Step {
    let (word, shift, mask) = locate(width, index);
    let (old, changed) = W::update(&words[word], |w| {
        let value = w >> shift & mask;
        (value != 0 && value != mask).then(|| w - (1 << shift))
    });
    let before = old >> shift & mask;
    Step { before, after: before - u64::from(changed) }
}

/// Stores `value` in counter `index`. Only for a single writer; readers may run at the same time.
#[inline(always)]
pub fn store(words: &[AtomicU64], width: u32, index: usize, value: u64) {
    let (word, shift, mask) = locate(width, index);
    let old = words[word].load(Relaxed);
    words[word].store(old & !(mask << shift) | (value & mask) << shift, Relaxed);
}

/// The highest bit of each counter. u64::MAX / maximum has the lowest bit of each counter set, for instance 0x1111… for
/// 4 bits.
#[inline(always)]
const fn highest(width: u32) -> u64 {
    (u64::MAX / maximum(width)) << (width - 1)
}

/// Adds two words, counter by counter, up to the maximum. A counter that is at its maximum stays there.
#[inline(always)]
pub fn saturating_sum(width: u32, a: u64, b: u64) -> u64 {
    let high = highest(width);
    // Adds without the highest bits, so that nothing carries into a neighbour. XOR then adds the highest bits without a
    // carry. Finally, each counter that overflowed is set to its maximum. With four 4-bit counters:
    //   a        7 9 F 3
    //   b        1 9 0 2
    //   sum      8 2 F 5   modulo 16
    //   carried  0 8 0 0   the highest bit of each counter that overflowed
    //   result   8 F F 5
    let sum = ((a & !high) + (b & !high)) ^ ((a ^ b) & high);
    let carried = ((a & b) | ((a | b) & !sum)) & high;
    sum | whole(width, carried)
}

/// The smaller of each pair of counters.
#[inline(always)]
pub fn minimum(width: u32, a: u64, b: u64) -> u64 {
    let high = highest(width);
    // Computes a − b for each pair after setting the highest bit of a and clearing the highest bit of b, so that
    // nothing is borrowed from a neighbour. If the two highest bits of a pair differ, they decide. If they are equal,
    // the highest bit of the difference is set where a ≥ b. With four 4-bit counters:
    //   a           3 9 8 2
    //   b           5 8 7 2
    //   difference  6 9 1 8   B − 5, 9 − 0, 8 − 7, A − 2
    //   not_less    0 F F F   a ≥ b: by difference, by difference, by the highest bits, by difference
    //   result      3 8 7 2
    let difference = (a | high) - (b & !high);
    let not_less = whole(width, ((a & !b) | (!(a ^ b) & difference)) & high);
    (b & not_less) | (a & !not_less)
}

/// All bits of each counter whose highest bit is set in `marks`. With 4-bit counters, 0x0800 becomes 0x0F00.
#[inline(always)]
fn whole(width: u32, marks: u64) -> u64 {
    (marks >> (width - 1)) * maximum(width)
}

/// Number of counters in a word that are not 0, and number of counters at their maximum.
#[inline(always)]
pub fn census(width: u32, word: u64) -> (u32, u32) {
    let high = highest(width);
    // Marks the highest bit of each counter that isn't 0. Adding 7 to the lower three bits of a 4-bit counter carries
    // into its highest bit unless they are 0. OR adds the highest bit itself. With four such counters:
    //   word         0 F 1 8
    //   some(word)   0 8 8 8   three are not 0
    //   !word        F 0 E 7   0 where the counter is at its maximum
    //   some(!word)  8 0 8 8   three are below it, so one is at its maximum
    let some = |word: u64| ((word & !high).wrapping_add(!high) | word) & high;
    (some(word).count_ones(), u64::BITS / width - some(!word).count_ones())
}

/// Sum of the counters in a word.
#[inline(always)]
pub fn total(width: u32, word: u64) -> u64 {
    (0..u64::BITS / width).map(|index| word >> (index * width) & maximum(width)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::{Shared, Single};

    #[test]
    fn counters_saturate_and_leave_their_neighbours_alone() {
        let widths: &[u32] = if cfg!(miri) { &[4] } else { &[4, 8, 16] };
        for &width in widths {
            let words: [AtomicU64; 2] = Default::default();
            let index = (64 / width) as usize; // first of the second word
            let max = maximum(width);
            for value in 0..max {
                assert_eq!(
                    increment::<Shared>(&words, width, index),
                    Step { before: value, after: value + 1 }
                );
            }
            assert_eq!(increment::<Single>(&words, width, index), Step { before: max, after: max });
            assert_eq!(decrement::<Shared>(&words, width, index), Step { before: max, after: max });
            assert_eq!((words[0].load(Relaxed), words[1].load(Relaxed)), (0, max));
            assert_eq!(get(&words, width, index), max);

            increment::<Single>(&words, width, index + 1);
            assert_eq!(decrement::<Shared>(&words, width, index + 1), Step { before: 1, after: 0 });
            assert_eq!(decrement::<Single>(&words, width, index + 1), Step { before: 0, after: 0 });
            assert_eq!(words[1].load(Relaxed), max);
        }
    }

    #[test]
    fn store_leaves_the_neighbours_alone() {
        let words: [AtomicU64; 2] = [u64::MAX.into(), 0.into()];
        store(&words, 8, 3, 0x5A);
        store(&words, 16, 4, 0x1_2345);
        assert_eq!((words[0].load(Relaxed), words[1].load(Relaxed)), (0xFFFF_FFFF_5AFF_FFFF, 0x2345));
    }

    #[test]
    fn words_are_combined_counter_by_counter() {
        assert_eq!(saturating_sum(4, 0xF123, 0x1F11), 0xFF34);
        assert_eq!(minimum(8, 0x01_80, 0x02_90), 0x01_80);
        assert_eq!(census(4, 0xF10F), (3, 2));
        assert_eq!(census(16, 0xFFFF_0001_0000_0002), (3, 1));
        // Pairs every value with every value. With 16 bits, only every 251st value and the largest ones are used. The
        // neighbours of each pair are all full or all empty.
        for width in [4, 8, 16] {
            let most = maximum(width);
            let values = |step: usize| (0..=most).step_by(step).chain(most - 2..=most);
            // Under Miri, which needs a minute where a normal run needs a moment, the steps are larger.
            let step = if width == 16 { 251 } else { 1 } * if cfg!(miri) { 97 } else { 1 };
            for (a, b) in values(step).flat_map(|a| values(step).map(move |b| (a, b))) {
                for (shift, around) in (0..64).step_by(width as usize).flat_map(|s| [(s, 0), (s, u64::MAX)]) {
                    let place = |value: u64| around & !(most << shift) | value << shift;
                    let (sum, least) =
                        (saturating_sum(width, place(a), place(b)), minimum(width, place(a), place(b)));
                    assert_eq!(
                        (sum, least),
                        (place((a + b).min(most)), place(a.min(b))),
                        "{width} {a} {b} {shift}"
                    );
                    let others = if around == 0 { 0 } else { 64 / width - 1 };
                    let counted = (u32::from(a > 0) + others, u32::from(a == most) + others);
                    assert_eq!(census(width, place(a)), counted);
                }
            }
        }
    }
}
