//! Fields of any width up to 64 bits in a slice of words, and shifts of whole ranges of bits.

/// Reads `width` bits (1 to 64) at bit `at`.
#[inline(always)]
pub(super) fn get(words: &[u64], at: usize, width: u32) -> u64 {
    let (word, shift) = (at / 64, at % 64);
    let last = (at + width as usize - 1) / 64;
    let bits = words[word] >> shift | words[last] << 1 << (63 - shift);
    bits & u64::MAX >> (64 - width)
}

/// Writes `width` bits (1 to 64) at bit `at`.
#[inline(always)]
pub(super) fn put(words: &mut [u64], at: usize, width: u32, bits: u64) {
    let (word, shift) = (at / 64, at % 64);
    let mask = u64::MAX >> (64 - width);
    words[word] = words[word] & !(mask << shift) | bits << shift;
    if shift + width as usize > 64 {
        words[word + 1] = words[word + 1] & !(mask >> (64 - shift)) | bits >> (64 - shift);
    }
}

/// Moves the bits `from..to` down by `by` bits.
pub(super) fn move_down(words: &mut [u64], from: usize, to: usize, by: usize) {
    let (mut at, end) = (from - by, to - by);
    while at < end {
        if at.is_multiple_of(64) && end - at >= 64 && by < 64 {
            let whole = (end - at) / 64;
            // A slice of its own, so that the compiler can leave out checks and handle two words at once.
            let words = &mut words[at / 64..=at / 64 + whole];
            for index in 0..whole {
                words[index] = words[index] >> by | words[index + 1] << 1 << (63 - by);
            }
            at += whole * 64;
            continue;
        }
        let width = (64 - at % 64).min(end - at);
        let bits = get(words, at + by, width as u32);
        put(words, at, width as u32, bits);
        at += width;
    }
}

/// Moves the bits `from..to` up by `by` bits.
pub(super) fn move_up(words: &mut [u64], from: usize, to: usize, by: usize) {
    let (start, mut end) = (from + by, to + by);
    while start < end {
        if end.is_multiple_of(64) && end - start >= 64 && by < 64 {
            let first = start.div_ceil(64);
            let mut carry = words[first - 1] >> (64 - by);
            for word in &mut words[first..end / 64] {
                (*word, carry) = (*word << by | carry, *word >> (64 - by));
            }
            end = first * 64;
            continue;
        }
        let width = match end % 64 {
            0 => 64,
            part => part,
        }
        .min(end - start);
        end -= width;
        let bits = get(words, end - by, width as u32);
        put(words, end, width as u32, bits);
    }
}

/// Inserts a 1 at bit `at` of bits that end at `end`, where a bit is free. The bits after them in the last word are 0.
pub(super) fn insert_one(words: &mut [u64], at: usize, end: usize) {
    let (first, last) = (at / 64, end / 64);
    if end.is_multiple_of(64) {
        words[last] = 0;
    }
    let (below, word) = ((1 << (at % 64)) - 1, words[first]);
    let mut carry = word >> 63;
    for word in &mut words[first + 1..=last] {
        (*word, carry) = (*word << 1 | carry, *word >> 63);
    }
    words[first] = word & below | (word & !below) << 1 | 1 << (at % 64);
}

/// Removes bit `at` of bits that end at `end`.
pub(super) fn remove_bit(words: &mut [u64], at: usize, end: usize) {
    move_down(words, at + 1, end, 1);
    put(words, end - 1, 1, 0);
}

/// 64 bits at bit `at`. Bits after the last word are 0.
#[inline(always)]
pub(super) fn window(words: &[u64], at: usize) -> u64 {
    let (word, shift) = (at / 64, at % 64);
    let at = |word: usize| words.get(word).copied().unwrap_or(0);
    at(word) >> shift | at(word + 1) << 1 << (63 - shift)
}

/// The place of each 1 in each byte: entry 8 · byte + rank is the index of the 1 before which there are `rank` others.
static IN_BYTE: [u8; 2048] = {
    let (mut places, mut byte) = ([0; 2048], 0);
    while byte < 256 {
        let (mut bit, mut rank) = (0, 0);
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                places[8 * byte + rank] = bit as u8;
                rank += 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    places
};

/// Index of the 1 before which there are `rank` others; `None` if there are at most `rank` ones. Without branches,
/// which would be mispredicted. (Vigna, "Broadword implementation of rank/select queries", 2008)
#[inline(always)]
pub(super) fn select(word: u64, rank: u32) -> Option<u32> {
    const BYTES: u64 = 0x0101_0101_0101_0101;
    let pairs = word - (word >> 1 & 0x5555_5555_5555_5555);
    let nibbles = (pairs & 0x3333_3333_3333_3333) + (pairs >> 2 & 0x3333_3333_3333_3333);
    // Byte i has the number of ones in the bytes up to i.
    let sums = ((nibbles + (nibbles >> 4)) & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul(BYTES);
    if (sums >> 56) as u32 <= rank {
        return None;
    }
    // The high bit of byte i says whether at most `rank` ones are in the bytes up to i.
    let before = (((u64::from(rank) * BYTES) | (BYTES << 7)) - sums) & (BYTES << 7);
    let byte = ((before >> 7).wrapping_mul(BYTES) >> 56) as u32 * 8;
    let rank = u64::from(rank) - (sums << 8 >> byte & 0xff);
    Some(byte + u32::from(IN_BYTE[((word >> byte & 0xff) * 8 + (rank & 7)) as usize]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    fn bits_of(words: &[u64]) -> Vec<bool> {
        (0..words.len() * 64).map(|at| get(words, at, 1) == 1).collect()
    }

    #[test]
    fn ranges_move_like_a_list_of_bits() {
        let mut random = SmallRng::seed_from_u64(1);
        for _ in 0..if cfg!(miri) { 20 } else { 2000 } {
            let mut words: Vec<u64> = (0..6).map(|_| random.random()).collect();
            let mut bits = bits_of(&words);
            let (from, by) = (random.random_range(64..150), random.random_range(1..=64));
            let to = random.random_range(from..=384 - by);
            if random.random() {
                move_down(&mut words, from, to, by);
                bits.copy_within(from..to, from - by);
            } else {
                move_up(&mut words, from, to, by);
                bits.copy_within(from..to, from + by);
            }
            assert!(bits_of(&words) == bits, "{from}..{to} by {by}");

            let (at, end) = (random.random_range(0..200), random.random_range(200..384));
            words[end / 64] &= (1 << (end % 64)) - 1;
            let mut bits = bits_of(&words);
            insert_one(&mut words, at, end);
            bits.copy_within(at..end, at + 1);
            bits[at] = true;
            assert!(bits_of(&words) == bits, "at {at} of {end}");
            remove_bit(&mut words, at, end + 1);
            bits.copy_within(at + 1..end + 1, at);
            bits[end] = false;
            assert!(bits_of(&words) == bits, "at {at} of {end}");
        }
    }

    #[test]
    fn select_finds_every_one() {
        let mut random = SmallRng::seed_from_u64(2);
        for word in [u64::MAX, 1, 1 << 63].into_iter().chain((0..200).map(|_| random.random())) {
            let ones = (0..64).filter(|bit| word >> bit & 1 == 1);
            ones.zip(0..).for_each(|(bit, rank)| assert_eq!(select(word, rank), Some(bit), "{word:x}"));
            assert_eq!(select(word, word.count_ones()), None);
        }
    }
}
