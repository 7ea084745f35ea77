//! Hashes an item's bytes to 128 bits, once per item. Every layer of a filter uses the same 128 bits.
//!
//! | bits | use |
//! | --- | --- |
//! | `low` 0..10 | shard |
//! | `low` 10..64 | block, or base of the probe sequence over a CLASSIC shard |
//! | `high` | probes inside the block, or stride of the probe sequence |
//!
//! Shard and position never share bits, because otherwise a shard would use only part of its cells.

use crate::error::Error;
use crate::item::ItemBytes;
use crate::spelling::spelling;
use core::fmt;
use core::hash::Hasher as _;
use siphasher::sip128::{Hasher128, SipHasher13};
#[cfg(feature = "std")]
use std::{
    hash::{BuildHasher, RandomState},
    sync::LazyLock,
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Number of bits of `low` that choose the shard: enough for 1024 shards.
const SHARD_BITS: u32 = 10;

/// The hash of one item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemHash {
    /// Low 64 bits of the 128.
    pub low: u64,
    /// High 64 bits.
    pub high: u64,
}

impl ItemHash {
    /// Index of the item's shard. `shards` is the number of shards, a power of two up to 1024.
    #[inline(always)]
    pub fn shard(self, shards: u32) -> u32 {
        self.low as u32 & (shards - 1)
    }

    /// The bits of `low` that choose a position. The bits that choose the shard are 0.
    #[inline(always)]
    pub fn position(self) -> u64 {
        self.low >> SHARD_BITS << SHARD_BITS
    }
}

/// 2^64 / golden ratio, odd: the multiplier of Fibonacci hashing (Knuth, TAOCP 3, §6.4).
pub(crate) const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// XORs the low half of `x` with the high half, then multiplies, so that every bit of `x` affects the high bits of the
/// result.
#[inline(always)]
pub(crate) fn mix(x: u64) -> u64 {
    (x ^ x >> 32).wrapping_mul(GOLDEN)
}

/// Maps 64 random bits onto `0..n` without a division (Lemire, "Fast Random Integer Generation in an Interval", 2019).
#[inline(always)]
pub(crate) fn fast_range(random: u64, n: u64) -> u64 {
    ((u128::from(random) * u128::from(n)) >> 64) as u64
}

/// The hash functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum HashKind {
    /// XXH3-128 with a 64-bit seed: the fast function.
    #[default]
    Xxh3 = 1,
    /// SipHash-1-3-128 with a 128-bit key: for items that an adversary picks. Without the key, an adversary cannot find
    /// items that collide.
    SipHash = 2,
}

spelling!(pub HashKind { Xxh3 = "XXH3", SipHash = "SIPHASH" });

impl HashKind {
    /// The hash function with this number in the wire format.
    pub(crate) fn from_number(number: u8) -> Option<HashKind> {
        HashKind::ALL.iter().copied().find(|kind| *kind as u8 == number)
    }

    /// The hash function, keyed with `seed`.
    #[inline(always)]
    pub fn hasher(self, seed: Seed) -> Hasher {
        Hasher { kind: self, seed }
    }

    /// Number of bits of the seed that the function uses.
    pub const fn seed_bits(self) -> u32 {
        match self {
            HashKind::Xxh3 => 64,
            HashKind::SipHash => 128,
        }
    }
}

/// Key of the hash: 128 bits, of which XXH3 uses the low 64.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Seed {
    /// Low 64 bits.
    pub low: u64,
    /// High 64 bits; 0 for XXH3.
    pub high: u64,
}

impl Seed {
    /// A seed with as many bits as `kind` uses, which nobody can guess. It is SipHash of a count and the time, under a
    /// random key of the process. The time keeps parent and child apart after a fork.
    ///
    /// The standard library gets the key from the operating system, for its hash maps. That is random enough: a seed
    /// keeps strangers from choosing items that collide, and encrypts nothing. On wasm32-unknown-unknown, which has no
    /// source of randomness, every process gets the same seeds: use [`Seed::from`] and a number from the host.
    ///
    /// # Errors
    /// [`Error::NoRandomness`] without the feature `std`.
    pub fn random(kind: HashKind) -> Result<Seed, Error> {
        #[cfg(feature = "std")]
        {
            static KEY: LazyLock<[u64; 2]> = LazyLock::new(|| {
                let random = RandomState::new();
                [random.hash_one(0), random.hash_one(1)]
            });
            static DRAWN: AtomicU64 = AtomicU64::new(0);
            let mut sip = SipHasher13::new_with_keys(KEY[0], KEY[1]);
            sip.write_u64(DRAWN.fetch_add(1, Ordering::Relaxed));
            // Asking for the time would panic there.
            if !cfg!(all(target_family = "wasm", target_os = "unknown")) {
                sip.write_u128(SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos()));
            }
            let hash = sip.finish128();
            Ok(Seed { low: hash.h1, high: hash.h2 }.narrow(kind))
        }
        #[cfg(not(feature = "std"))]
        {
            _ = kind;
            Err(Error::NoRandomness)
        }
    }

    /// Identifies a filter without revealing its seed: SipHash-1-3 of a fixed text, keyed with the seed.
    pub(crate) fn identity(self) -> u64 {
        HashKind::SipHash.hasher(self).hash(b"identity of a filter").low
    }

    /// The part of the seed that `kind` uses.
    pub fn narrow(self, kind: HashKind) -> Seed {
        match kind {
            HashKind::Xxh3 => Seed { high: 0, ..self },
            HashKind::SipHash => self,
        }
    }
}

impl From<u128> for Seed {
    fn from(value: u128) -> Seed {
        Seed { low: value as u64, high: (value >> 64) as u64 }
    }
}

impl From<Seed> for u128 {
    fn from(seed: Seed) -> u128 {
        u128::from(seed.high) << 64 | u128::from(seed.low)
    }
}

/// Doesn't show the seed, because the key of a SipHash filter is a secret, and many people can read logs.
impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// A hash function with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hasher {
    kind: HashKind,
    seed: Seed,
}

impl Hasher {
    /// Hashes one item.
    #[inline]
    pub fn hash(&self, item: &[u8]) -> ItemHash {
        self.hash_in_loop(item)
    }

    /// Like [`hash`](Hasher::hash), but inlined, for places where many items are hashed: a call would take as long as
    /// the hash.
    #[inline(always)]
    pub(crate) fn hash_in_loop(&self, item: &[u8]) -> ItemHash {
        match self.kind {
            HashKind::Xxh3 => {
                let hash = xxh3_128_with_seed(item, self.seed.low);
                ItemHash { low: hash as u64, high: (hash >> 64) as u64 }
            }
            HashKind::SipHash => {
                let mut sip = SipHasher13::new_with_keys(self.seed.low, self.seed.high);
                sip.write(item);
                let hash = sip.finish128();
                ItemHash { low: hash.h1, high: hash.h2 }
            }
        }
    }
}

/// An item that has already been hashed, for filters with the same hash function and seed. It remembers both, so a
/// filter with a different function or seed panics instead of giving a wrong answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashed {
    hasher: Hasher,
    hash: ItemHash,
}

impl Hashed {
    /// Hashes an item.
    #[inline]
    pub(crate) fn new(hasher: Hasher, item: &[u8]) -> Hashed {
        Hashed { hasher, hash: hasher.hash(item) }
    }
}

impl From<Hashed> for ItemHash {
    fn from(item: Hashed) -> ItemHash {
        item.hash
    }
}

/// An item that a filter accepts: what has [bytes](ItemBytes), or a [`Hashed`] item.
pub trait Item {
    /// The item's hash with this function.
    ///
    /// # Panics
    /// For a [`Hashed`] item, if it was hashed by another function or with another seed.
    #[doc(hidden)]
    fn hash_by(&self, hasher: Hasher) -> ItemHash;
}

impl<T: ItemBytes> Item for T {
    #[inline(always)]
    fn hash_by(&self, hasher: Hasher) -> ItemHash {
        hasher.hash(self.item_bytes().as_ref())
    }
}

impl Item for Hashed {
    #[inline]
    fn hash_by(&self, hasher: Hasher) -> ItemHash {
        assert!(self.hasher == hasher, "the item was hashed for a filter with another hash function or seed");
        self.hash
    }
}

/// For commands, which have already hashed the item for their filter.
impl Item for ItemHash {
    #[inline(always)]
    fn hash_by(&self, _: Hasher) -> ItemHash {
        *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors for XXH3 come from the xxHash reference code (XXH3_128bits_withSeed, through Python's xxhash). The
    /// vector for SipHash comes from a Python program that follows the paper. Run with the rounds of SipHash-2-4-128,
    /// that program gives the published vectors. If a hash changed, saved filters would no longer find their items.
    #[test]
    fn pinned_vectors() {
        let xxh3 = |seed: u64, item: &[u8]| {
            let hash = HashKind::Xxh3.hasher(Seed { low: seed, high: 0 }).hash(item);
            u128::from(hash.high) << 64 | u128::from(hash.low)
        };
        assert_eq!(xxh3(0, b""), 0x99aa06d3014798d86001c324468d497f);
        assert_eq!(xxh3(0, b"bloomery"), XXH3_BLOOMERY_0);
        assert_eq!(xxh3(0x0123456789abcdef, b"bloomery"), XXH3_BLOOMERY_SEEDED);
        let key = Seed { low: 0x0706050403020100, high: 0x0f0e0d0c0b0a0908 };
        let item: Vec<u8> = (0..15).collect();
        let hash = HashKind::SipHash.hasher(key).hash(&item);
        assert_eq!((hash.low, hash.high), SIP_15);
    }

    const XXH3_BLOOMERY_0: u128 = 0x0c70_3415_229c_1045_3067_7db7_ab3c_53a0;
    const XXH3_BLOOMERY_SEEDED: u128 = 0xa9ac_d1e0_1cce_82e5_b3b2_c23b_83f6_d58a;
    const SIP_15: (u64, u64) = (0x6c52_bdb2_0555_7ec1, 0x0901_7e1e_eccd_2129);

    #[test]
    fn a_seed_is_as_wide_as_its_hash_uses() {
        let wide = Seed::from(u128::MAX);
        assert_eq!(wide.narrow(HashKind::Xxh3).high, 0);
        assert_eq!(u128::from(wide.narrow(HashKind::SipHash)), u128::MAX);
        assert_ne!(Seed::random(HashKind::SipHash).unwrap(), Seed::random(HashKind::SipHash).unwrap());
    }
}
