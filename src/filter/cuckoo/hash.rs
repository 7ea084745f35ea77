//! An item's hash, as cuckoo filters use it.

/// The factor by which the fingerprint is multiplied to compute the second bucket's index: MurmurHash2's constant, as
/// in RedisBloom.
pub(super) const SPREAD: u64 = 0x5bd1_e995;

/// Number of distinct fingerprints: all byte values except 0, which marks a free slot.
pub(super) const FINGERPRINTS: u64 = 255;

/// The part of an item's hash that a cuckoo filter uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CuckooHash {
    pub(super) first: u64,
    pub(super) second: u64,
    pub(super) fingerprint: u8,
}

impl CuckooHash {
    /// Derives the cuckoo hash from a 64-bit hash.
    #[inline]
    pub fn new(hash: u64) -> CuckooHash {
        let fingerprint = hash % FINGERPRINTS + 1;
        CuckooHash { first: hash, second: hash ^ (fingerprint * SPREAD), fingerprint: fingerprint as u8 }
    }

    /// Derives the cuckoo hash from a fingerprint and its bucket. The bucket's table must be at least as large as the
    /// tables that will be searched.
    #[inline]
    pub(super) fn found_in(bucket: u64, fingerprint: u8) -> CuckooHash {
        CuckooHash { first: bucket, second: bucket ^ (u64::from(fingerprint) * SPREAD), fingerprint }
    }

    /// Derives the cuckoo hash from a 32-bit hash, as RedisBloom did before 2.2.0.
    pub fn old(hash: u32) -> CuckooHash {
        let fingerprint = if hash >> 24 == 0 { 7 } else { hash >> 24 } as u8;
        let spread = (u64::from(fingerprint) * SPREAD) & u64::from(u32::MAX);
        let first = u64::from(hash);
        CuckooHash { first, second: first ^ spread, fingerprint }
    }
}
