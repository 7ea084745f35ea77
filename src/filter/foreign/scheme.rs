//! Where an item's bits are. There is one [`Probe`] for each way in which the original may have placed them.

use crate::murmur::{Murmur3, murmur2, murmur64a};
use core::hash::Hasher as _;
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;

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
