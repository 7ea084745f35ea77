//! The numbers that both of RedisBloom's encodings contain, and the checks on them.

use crate::filter::foreign::redisbloom::{FORCE_64, NO_ROUND};
use crate::filter::foreign::{LinkSpec, RedisBloomPlan};
use crate::filter::{Cuckoo, CuckooSpec, Origin};
use crate::hash::{HashKind, Seed};
use crate::params::limits;
use crate::wire::error::DecodeError;
use core::f64::consts::LN_2;

/// Maximum number of probes per item. No error rate that fits in a double needs more.
const MAX_HASHES: u64 = 1100;

/// The fields of a link in both encodings.
pub(super) struct RawLink {
    pub(super) bytes: u64,
    pub(super) bits: u64,
    pub(super) error_rate: f64,
    pub(super) bits_per_item: f64,
    pub(super) hashes: u64,
    pub(super) capacity: u64,
    pub(super) log2: u64,
}

impl RawLink {
    /// Returns the link, if such a link can exist.
    pub(super) fn spec(&self) -> Result<LinkSpec, DecodeError> {
        let field = DecodeError::Field;
        let log2 = u8::try_from(self.log2).ok().filter(|log2| *log2 < 64).ok_or(field("n2"))?;
        let modulus = if log2 > 0 { 1 << log2 } else { self.bits };
        let hashes = u32::try_from(self.hashes).ok().filter(|_| self.hashes <= MAX_HASHES);
        // Filters that were created before 2.2.0 don't have a number of bits, and current RedisBloom versions refuse
        // them for that reason. We write the number that RedisBloom gives a link of the same length, so RedisBloom
        // accepts these filters.
        let bits = if self.bits == 0 { self.bytes.saturating_mul(8) } else { self.bits };
        let spec = LinkSpec {
            modulus,
            probes: hashes.ok_or(field("hashes"))?,
            capacity: self.capacity,
            error_rate: self.error_rate,
            bits_per_item: self.bits_per_item,
            bits,
            log2,
            bytes: self.bytes,
        };
        spec.validate()?;
        Ok(spec)
    }
}

/// The error rate of a link in a head. RedisShake 4.0.2 to 4.1.0 rounds it to six digits, so a small one
/// becomes 0. It then follows from the bits per item. No bit of the link depends on it, but the next link does.
pub(super) fn known_error_rate(error_rate: f64, bits_per_item: f64) -> f64 {
    if error_rate == 0.0 && bits_per_item > 0.0 {
        libm::exp(-bits_per_item * LN_2 * LN_2)
    } else {
        error_rate
    }
}

/// The link as RedisBloom's fields describe it. Fails if they can't express `spec`.
pub(in crate::wire) fn spec_at_home(spec: &LinkSpec) -> Result<LinkSpec, DecodeError> {
    let LinkSpec { probes, capacity, error_rate, bits_per_item, bits, log2, bytes, .. } = *spec;
    let (hashes, log2) = (probes.into(), log2.into());
    RawLink { bytes, bits, error_rate, bits_per_item, hashes, capacity, log2 }.spec()
}

/// Returns which hashes a chain uses.
///
/// The answer doesn't depend on the encoding of a file: after loading a file of version 1.1.0, RedisBloom saves it in
/// today's encoding, and the bits stay where they are.
pub(in crate::wire) fn plan(options: u32, links: &[LinkSpec]) -> RedisBloomPlan {
    // If the modulus divides 2^32, it doesn't matter whether a sum wraps at 2^32.
    let divides = |link: &LinkSpec| (1..=32).contains(&link.log2);
    if options & FORCE_64 != 0 {
        if options & NO_ROUND != 0 { RedisBloomPlan::Full } else { RedisBloomPlan::FullOrCut }
    } else if links.iter().all(divides) {
        RedisBloomPlan::Narrow
    } else {
        RedisBloomPlan::NarrowEither
    }
}

/// A bit in the number of deletes. It marks a filter that uses the hash of versions before 2.2.0, for which the
/// encoding has no field. RedisBloom reads the bit as part of the number. It doesn't find the items in such a filter,
/// whether or not the filter is marked.
pub(super) const OLD_HASH: u64 = 1 << 63;

/// The parameters of a cuckoo filter in both encodings.
pub(super) struct RawCuckoo {
    pub(super) filters: u64,
    pub(super) buckets: u64,
    pub(super) deletes: u64,
    pub(super) bucket_size: u64,
    pub(super) max_iterations: u64,
    pub(super) expansion: u64,
}

impl RawCuckoo {
    /// Returns the parameters and the number of sub-filters.
    pub(super) fn spec(&self, origin: Origin) -> Result<(CuckooSpec, usize), DecodeError> {
        let field = DecodeError::Field;
        let bucket_size = u8::try_from(self.bucket_size).ok().filter(|slots| *slots > 0);
        let bucket_size = bucket_size.ok_or(field("bucket size"))?;
        // A 32-bit hash can't address more buckets.
        let most = if origin == Origin::RedisBloom1 { 1 << 32 } else { u64::MAX };
        if !self.buckets.is_power_of_two() || self.buckets > most {
            return Err(field("number of buckets"));
        }
        let capacity = self.buckets.checked_mul(bucket_size.into()).ok_or(field("number of buckets"))?;
        let spec = CuckooSpec {
            capacity,
            bucket_size,
            max_iterations: u16::try_from(self.max_iterations).map_err(|_| field("max iterations"))?.max(1),
            expansion: u16::try_from(self.expansion).map_err(|_| field("expansion"))?,
            origin,
            hash: HashKind::default(),
            seed: Seed::default(),
        };
        spec.validate().map_err(|_| field("parameters"))?;
        let filters = usize::try_from(self.filters).unwrap_or(usize::MAX);
        if filters == 0 || filters > limits::MAX_TABLES || (filters > 1 && spec.expansion == 0) {
            return Err(field("number of filters"));
        }
        if self.deletes & !OLD_HASH > limits::MAX_COUNT {
            return Err(field("number of deletes"));
        }
        // No sub-filter is larger than the newest, so it is enough to check the newest.
        spec.buckets_of(filters.saturating_sub(1)).ok_or(field("number of buckets"))?;
        Ok((spec, filters))
    }

    /// Tells which hash the filter uses.
    pub(super) fn origin(&self) -> Origin {
        if self.deletes & OLD_HASH == 0 { Origin::RedisBloom } else { Origin::RedisBloom1 }
    }
}

/// The number of deletes, with the mark if the filter uses the old hash.
pub(super) fn marked_deletes(filter: &Cuckoo) -> u64 {
    let mark = if filter.spec().origin == Origin::RedisBloom1 { OLD_HASH } else { 0 };
    filter.deletes() | mark
}
