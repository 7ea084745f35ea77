//! Where an item's bits are. There is one [`Probe`] for each way in which the original may have placed them.

use crate::murmur::{Murmur3, murmur2, murmur64a};
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;
use std::hash::Hasher as _;

/// How a system finds an item's bits. Hashes and positions are exactly the same as in the original.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scheme {
    /// RedisBloom.
    RedisBloom(RedisBloomPlan),
    /// valkey-bloom, with the keys of its two SipHashes.
    ValkeyBloom {
        /// Two keys of 16 bytes.
        seed: [u8; 32],
    },
    /// go-zero's `core/bloom`.
    GoZero,
    /// bits-and-blooms/bloom, v2 and v3.
    BloomV3,
    /// Guava's MURMUR128_MITZ_64.
    GuavaMitz64,
    /// Guava's MURMUR128_MITZ_32.
    GuavaMitz32,
    /// Redisson since 3.6, with HighwayHash.
    Redisson,
    /// The split-block filter of Parquet.
    Sbbf,
}

/// Which of RedisBloom's hashes may have been used to fill a chain. If the chain's bytes don't show which, a test tries
/// both candidates. Trying one too many makes false positives a little more frequent; trying one too few loses items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RedisBloomPlan {
    /// 64-bit hashes. Used for every chain created since 2.2.0.
    Full = 0,
    /// 64-bit hashes, whose seeds may have been cut to 32 bits. Versions 1.1.1 to 2.0.1 on Linux did so, because a
    /// function of the server replaced the module's function of the same name.
    FullOrCut = 1,
    /// 32-bit hashes. Used by versions up to 1.1.0 for chains in which every modulus divides 2^32.
    Narrow = 2,
    /// 32-bit hashes. Used by versions up to 1.1.0 for chains in which a modulus doesn't divide 2^32. In these
    /// versions, the sum a + i·b wrapped at 32 bits; in later versions, it didn't.
    NarrowEither = 3,
}

impl RedisBloomPlan {
    /// The plan with this number.
    pub fn from_number(number: u8) -> Option<RedisBloomPlan> {
        use RedisBloomPlan::{Full, FullOrCut, Narrow, NarrowEither};
        [Full, FullOrCut, Narrow, NarrowEither].into_iter().find(|plan| *plan as u8 == number)
    }
}

/// The probe sequence of one item, for any modulus.
#[derive(Clone, Debug)]
pub enum Probe {
    /// a + i·b, wrapping at 64 bits.
    Double(u64, u64),
    /// a + i·b, wrapping at 32 bits.
    Double32(u32, u32),
    /// Used by valkey-bloom: a, then b, then a + i·b, which is first reduced modulo a prime.
    DoublePrime(u64, u64),
    /// Used by bits-and-blooms: four hash words.
    Four([u64; 4]),
    /// a + i·b without the sign bit.
    DoublePositive(u64, u64),
    /// a + (i + 1)·b in 32 bits, complemented if negative.
    Mitz32(i32, i32),
    /// a, a + b, 2a + b, 2a + 2b and so on, without the sign bit.
    Alternating(u64, u64),
    /// Used by Parquet: the upper half of a hash selects a block, and the lower half selects one bit in each of the
    /// block's eight words.
    SplitBlock(u64),
    /// One hash per probe.
    Each(SmallVec<[u64; 14]>),
}

/// Bits in a Parquet block, and in each of its words.
pub(super) const SPLIT_BLOCK: u64 = 256;
const SPLIT_WORD: u64 = 32;

/// Parquet's odd multipliers, one for each word of a block.
const SALTS: [u32; 8] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// Largest prime below 2^64, used in valkey-bloom's positions.
const PRIME: u64 = 0xFFFF_FFFF_FFFF_FFC5;

impl Probe {
    /// The position of probe `i` in an array of `modulus` bits.
    #[inline]
    pub fn position(&self, i: u32, modulus: u64) -> u64 {
        const POSITIVE: u64 = u64::MAX >> 1;
        let at = |a: u64, b: u64| a.wrapping_add(u64::from(i).wrapping_mul(b));
        match self {
            Probe::Double(a, b) => at(*a, *b) % modulus,
            Probe::Double32(a, b) => u64::from(a.wrapping_add(i.wrapping_mul(*b))) % modulus,
            Probe::DoublePrime(a, _) if i == 0 => a % modulus,
            Probe::DoublePrime(_, b) if i == 1 => b % modulus,
            Probe::DoublePrime(a, b) => at(*a, *b) % PRIME % modulus,
            Probe::Four(v) => {
                let odd = i % 2;
                let factor = v[2 + ((i + odd) % 4 / 2) as usize];
                v[odd as usize].wrapping_add(u64::from(i).wrapping_mul(factor)) % modulus
            }
            Probe::DoublePositive(a, b) => (at(*a, *b) & POSITIVE) % modulus,
            Probe::Mitz32(a, b) => {
                let sum = a.wrapping_add((i as i32).wrapping_add(1).wrapping_mul(*b));
                u64::from(if sum < 0 { !sum } else { sum } as u32) % modulus
            }
            Probe::Alternating(a, b) => {
                let (first, second) = (u64::from(i / 2 + 1), u64::from(i.div_ceil(2)));
                let sum = a.wrapping_mul(first).wrapping_add(b.wrapping_mul(second));
                (sum & POSITIVE) % modulus
            }
            Probe::SplitBlock(hash) => {
                let block = ((hash >> 32) * (modulus / SPLIT_BLOCK)) >> 32;
                let (word, low) = (i as usize % SALTS.len(), *hash as u32);
                let bit = u64::from(low.wrapping_mul(SALTS[word]) >> 27);
                block * SPLIT_BLOCK + word as u64 * SPLIT_WORD + bit
            }
            Probe::Each(hashes) => hashes.get(i as usize).copied().unwrap_or(0) % modulus,
        }
    }
}

impl Scheme {
    /// The item's possible probe sequences. The item is in the filter if all bits of one sequence are set; adding it
    /// sets the bits of the first sequence. `probes` is the number of probes per item. Only go-zero's scheme, which
    /// hashes once per probe, uses it.
    pub fn probes(&self, item: &[u8], probes: u32) -> SmallVec<[Probe; 2]> {
        let one = |probe| SmallVec::from_iter([probe]);
        match self {
            Scheme::RedisBloom(plan) => redisbloom(*plan, item),
            Scheme::ValkeyBloom { seed } => {
                let (first, second) = seed.split_at(16);
                one(Probe::DoublePrime(sip(first, item), sip(second, item)))
            }
            Scheme::GoZero => {
                let item = Murmur3::new(item);
                one(Probe::Each((0..probes).map(|i| item.finish_with(i as u8)[0]).collect()))
            }
            Scheme::BloomV3 => {
                let item = Murmur3::new(item);
                let ([a, b], [c, d]) = (item.finish(), item.finish_with(1));
                one(Probe::Four([a, b, c, d]))
            }
            Scheme::GuavaMitz64 => {
                let [a, b] = Murmur3::new(item).finish();
                one(Probe::DoublePositive(a, b))
            }
            Scheme::GuavaMitz32 => {
                let [word, _] = Murmur3::new(item).finish();
                one(Probe::Mitz32(word as i32, (word >> 32) as i32))
            }
            Scheme::Redisson => {
                let [a, b] = highway(item);
                one(Probe::Alternating(a, b))
            }
            Scheme::Sbbf => one(Probe::SplitBlock(xxhash_rust::xxh64::xxh64(item, 0))),
        }
    }
}

fn redisbloom(plan: RedisBloomPlan, item: &[u8]) -> SmallVec<[Probe; 2]> {
    /// RedisBloom uses the multiplier of MurmurHash64A as the seed.
    const SEED: u64 = 0xc6a4_a793_5bd1_e995;
    const NARROW_SEED: u32 = 0x9747_b28c;
    let full = || {
        let a = murmur64a(item, SEED);
        Probe::Double(a, murmur64a(item, a))
    };
    let cut = || {
        let low = |word: u64| word & u64::from(u32::MAX);
        let a = murmur64a(item, low(SEED));
        Probe::Double(a, murmur64a(item, low(a)))
    };
    let narrow = || {
        let a = murmur2(item, NARROW_SEED);
        (a, murmur2(item, a))
    };
    let wide = |(a, b): (u32, u32)| Probe::Double(a.into(), b.into());
    let wrapped = |(a, b): (u32, u32)| Probe::Double32(a, b);
    match plan {
        RedisBloomPlan::Full => SmallVec::from_iter([full()]),
        RedisBloomPlan::FullOrCut => SmallVec::from_iter([full(), cut()]),
        RedisBloomPlan::Narrow => SmallVec::from_iter([wide(narrow())]),
        RedisBloomPlan::NarrowEither => SmallVec::from_iter([wide(narrow()), wrapped(narrow())]),
    }
}

/// SipHash-1-3 of the item's length followed by the item, as Rust's `Hash` computes it for a slice.
fn sip(key: &[u8], item: &[u8]) -> u64 {
    let half = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    let mut hasher = SipHasher13::new_with_keys(half(&key[..8]), half(&key[8..]));
    hasher.write(&(item.len() as u64).to_le_bytes());
    hasher.write(item);
    hasher.finish()
}

/// HighwayHash-128 with the key that Redisson uses.
fn highway(item: &[u8]) -> [u64; 2] {
    use highway::{HighwayHash as _, HighwayHasher, Key};
    const KEY: Key =
        Key([0x9e37_79b9_7f4a_7c15, 0xf39c_c060_5ced_c834, 0x1082_276b_f3a2_7251, 0xf86c_6a11_d0c1_8e95]);
    HighwayHasher::new(KEY).hash128(item)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(scheme: Scheme, item: &[u8], probes: u32, modulus: u64) -> Vec<u64> {
        positions_of(&scheme.probes(item, probes)[0], probes, modulus)
    }

    fn positions_of(probe: &Probe, probes: u32, modulus: u64) -> Vec<u64> {
        (0..probes).map(|i| probe.position(i, modulus)).collect()
    }

    /// The positions were recorded from the original systems.
    #[test]
    fn positions_are_those_of_the_originals() {
        let full = Scheme::RedisBloom(RedisBloomPlan::Full);
        assert_eq!(positions(full, b"hello", 8, 1152), [537, 957, 97, 517, 809, 77, 497, 789]);
        assert_eq!(positions(full, b"hello", 7, 960), [153, 189, 481, 517, 809, 845, 881]);
        assert_eq!(
            positions(full, b"foo", 11, 15872),
            [6413, 207, 10385, 4179, 14357, 8151, 1945, 12123, 5917, 15583, 9889]
        );
        assert_eq!(positions(full, b"", 8, 1152), [366, 1077, 764, 451, 138, 849, 536, 223]);
        assert_eq!(positions(full, b"0123456789abcdef", 8, 1152), [239, 623, 1007, 367, 751, 1135, 367, 751]);
        assert_eq!(
            positions(full, &[0, 0xff, 1, 0xfe, 2], 8, 11_027_776),
            [408301, 2438395, 4468489, 6498583, 8528677, 10558771, 762049, 2792143]
        );
        let cut = Scheme::RedisBloom(RedisBloomPlan::FullOrCut).probes(b"hello", 7);
        assert_eq!(positions_of(&cut[0], 7, 1024), [665, 317, 993, 645, 297, 973, 625]);
        assert_eq!(positions_of(&cut[1], 7, 1024), [341, 303, 265, 227, 189, 151, 113]);
        let narrow = Scheme::RedisBloom(RedisBloomPlan::NarrowEither).probes(b"hello", 7);
        let sorted = |mut positions: Vec<u64>| {
            positions.sort_unstable();
            positions
        };
        assert_eq!(sorted(positions_of(&narrow[0], 7, 1024)), [113, 234, 414, 535, 715, 836, 957]);
        assert_eq!(sorted(positions_of(&narrow[0], 7, 958)), [33, 208, 383, 469, 644, 730, 905]);
        assert_eq!(sorted(positions_of(&narrow[1], 7, 958)), [14, 33, 327, 346, 640, 659, 953]);
        assert_eq!(positions_of(&narrow[1], 4, 1 << 33), [2132663229, 1823963370, 1515263511, 1206563652]);
        assert_eq!(positions_of(&narrow[0], 4, 1 << 33), [2132663229, 6118930666, 1515263511, 5501530948]);

        let fixed = *b"\x59\x0f\xf5\x22\xea\x78\x11\xda\xa7\x14\xd8\x09\x3b\x3e\x7b\xd9\x1d\x89\x8a\x73\x3e\x98\x88\x87\x30\x7f\x97\xcd\x28\x07\x33\x83";
        let valkey = Scheme::ValkeyBloom { seed: fixed };
        assert_eq!(positions(valkey, b"hello", 7, 960), [953, 573, 179, 752, 365, 938, 551]);
        assert_eq!(
            positions(valkey, b"foo", 10, 14384),
            [1775, 74, 8835, 12365, 1511, 5041, 8571, 12101, 12175, 1321]
        );
        assert_eq!(positions(valkey, b"", 7, 960), [598, 580, 798, 418, 38, 618, 238]);
        let counted = Scheme::ValkeyBloom { seed: std::array::from_fn(|i| i as u8) };
        assert_eq!(positions(counted, b"hello", 7, 960), [845, 632, 893, 309, 941, 613, 29]);
        assert_eq!(positions(counted, b"user:42", 4, 16), [1, 13, 11, 8]);

        assert_eq!(
            positions(Scheme::GoZero, b"hello", 14, 1024),
            [307, 802, 866, 915, 983, 770, 138, 576, 596, 224, 781, 153, 819, 373]
        );
        assert_eq!(
            positions(Scheme::GoZero, b"", 14, 64),
            [53, 22, 50, 25, 45, 56, 51, 23, 62, 37, 24, 39, 49, 38]
        );
        assert_eq!(positions(Scheme::GoZero, b"user:42", 14, 1048576)[..4], [165956, 608074, 397751, 386418]);

        assert_eq!(positions(Scheme::BloomV3, b"hello", 7, 959), [98, 653, 896, 577, 366, 331, 574]);
        assert_eq!(positions(Scheme::BloomV3, b"", 7, 959), [0, 123, 246, 23, 827, 632, 755]);
        assert_eq!(
            positions(Scheme::BloomV3, b"0123456789abcde", 7, 959),
            [268, 645, 407, 240, 617, 923, 685]
        );
        assert_eq!(
            positions(Scheme::BloomV3, b"0123456789abcdef", 7, 959),
            [200, 11, 395, 679, 901, 401, 297]
        );
        assert_eq!(
            positions(Scheme::BloomV3, b"foo", 10, 14378),
            [2329, 2483, 6763, 160, 7885, 11351, 1253, 5716, 10727, 3127]
        );

        assert_eq!(positions(Scheme::GuavaMitz64, b"hello", 7, 960), [898, 91, 244, 525, 678, 831, 152]);
        assert_eq!(
            positions(Scheme::GuavaMitz64, &42i64.to_le_bytes(), 7, 960),
            [184, 376, 440, 632, 824, 56, 120]
        );
        assert_eq!(
            positions(Scheme::GuavaMitz64, b"h\0e\0l\0l\0o\0", 7, 960),
            [71, 395, 719, 83, 407, 731, 95]
        );
        assert_eq!(positions(Scheme::GuavaMitz32, b"hello", 7, 960), [245, 535, 356, 78, 257, 436, 344]);
        assert_eq!(
            positions(Scheme::GuavaMitz32, b"foo", 10, 14400),
            [7623, 5744, 3865, 1986, 8788, 10667, 12546, 25, 12495, 10616]
        );
        assert_eq!(positions(Scheme::GuavaMitz32, b"", 5, 768), [0; 5]);

        assert_eq!(positions(Scheme::Sbbf, b"hello", 8, 1024), [20, 41, 74, 103, 137, 191, 220, 251]);
        assert_eq!(positions(Scheme::Sbbf, b"", 8, 256), [29, 32, 89, 124, 142, 182, 221, 254]);
        assert_eq!(
            positions(Scheme::Sbbf, b"user:42", 8, 1024 * 256),
            [225302, 225321, 225345, 225381, 225428, 225452, 225476, 225517]
        );

        assert_eq!(positions(Scheme::Redisson, b"hello", 7, 958), [635, 186, 859, 410, 125, 634, 349]);
        assert_eq!(positions(Scheme::Redisson, b"", 7, 958), [879, 289, 248, 616, 575, 943, 864]);
        assert_eq!(positions(Scheme::Redisson, b"\x03hell\xef", 7, 958), [634, 655, 369, 390, 104, 125, 797]);
        assert_eq!(
            positions(Scheme::Redisson, b"user:42", 5, 401_414_246),
            [280914879, 122049333, 42751052, 285299752, 206001471]
        );
    }
}
