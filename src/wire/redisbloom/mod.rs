//! RedisBloom's own encodings of its Bloom and cuckoo filters, read and written, so that data moves in and out without
//! a rebuild: the fields of RDB files and DUMP payloads, and the headers and chunks of SCANDUMP.
//!
//! Every version is read, 1.0 to today; what is written is today's. A filter that came from there stays one, bit for
//! bit.

mod chunks;
mod fields;

pub use chunks::{Loader, MAX_PIECE};
pub(super) use chunks::{bloom_head, cuckoo_head};
pub use fields::{Sink, Source, load_bloom, load_cuckoo, save_bloom, save_cuckoo};

use super::DecodeError;
use crate::filter::foreign::redisbloom::{FORCE_64, NO_ROUND};
use crate::filter::foreign::{LinkSpec, RedisBloomPlan};
use crate::filter::{CuckooSpec, Origin};
use crate::hash::{HashKind, Seed};
use crate::params::limits;

/// Version of the encoding that is written, and the newest that is read.
pub const ENCODING: u32 = 4;

/// Probes of an item beyond which no error rate that a double can hold needs more.
const MAX_HASHES: u64 = 1100;

/// A link as both encodings have it.
struct RawLink {
    bytes: u64,
    bits: u64,
    items: u64,
    error_rate: f64,
    bits_per_item: f64,
    hashes: u64,
    capacity: u64,
    log2: u64,
}

impl RawLink {
    fn spec(&self) -> Result<LinkSpec, DecodeError> {
        let field = DecodeError::Field;
        let log2 = u8::try_from(self.log2).ok().filter(|log2| *log2 < 64).ok_or(field("n2"))?;
        let modulus = if log2 > 0 { 1 << log2 } else { self.bits };
        let hashes = u32::try_from(self.hashes).ok().filter(|_| self.hashes <= MAX_HASHES);
        // Filters made before 2.2.0 have no number of bits, and today's RedisBloom refuses them for that. The one that
        // it gives a link of the same length heals them on the way back.
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

/// What the fields say of a link, if they can say what `spec` does.
pub(super) fn spec_at_home(spec: &LinkSpec, items: u64) -> Result<LinkSpec, DecodeError> {
    let LinkSpec { probes, capacity, error_rate, bits_per_item, bits, log2, bytes, .. } = *spec;
    let (hashes, log2) = (probes.into(), log2.into());
    RawLink { bytes, bits, items, error_rate, bits_per_item, hashes, capacity, log2 }.spec()
}

/// Which hashes to ask of a chain.
///
/// The encoding of a file does not take part: one that version 1.1.0 wrote is saved in today's from then on, and the
/// items in it stay where they are.
pub(super) fn plan(options: u32, links: &[LinkSpec]) -> RedisBloomPlan {
    // Where the modulus divides 2^32 it does not matter whether a sum wraps there.
    let divides = |link: &LinkSpec| (1..=32).contains(&link.log2);
    if options & FORCE_64 != 0 {
        if options & NO_ROUND != 0 { RedisBloomPlan::Full } else { RedisBloomPlan::FullOrCut }
    } else if links.iter().all(divides) {
        RedisBloomPlan::Narrow
    } else {
        RedisBloomPlan::NarrowEither
    }
}

/// Parameters of a cuckoo filter as both encodings have them.
struct RawCuckoo {
    filters: u64,
    buckets: u64,
    deletes: u64,
    bucket_size: u64,
    max_iterations: u64,
    expansion: u64,
}

/// Of the number of deletes: says that the filter has the hash of versions before 2.2.0, which the encoding has no
/// place for. RedisBloom takes the number as it is, and misses the items of such a filter with or without it.
const OLD_HASH: u64 = 1 << 63;

impl RawCuckoo {
    /// Parameters, and buckets of each sub-filter.
    fn spec(&self, origin: Origin) -> Result<(CuckooSpec, Vec<u64>), DecodeError> {
        let field = DecodeError::Field;
        let bucket_size = u8::try_from(self.bucket_size).ok().filter(|slots| *slots > 0);
        let bucket_size = bucket_size.ok_or(field("bucket size"))?;
        // A hash of 32 bits reaches no further.
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
        let buckets = (0..filters).map(|index| spec.buckets_of(index)).collect::<Option<_>>();
        Ok((spec, buckets.ok_or(field("number of buckets"))?))
    }

    fn origin(&self) -> Origin {
        if self.deletes & OLD_HASH == 0 { Origin::RedisBloom } else { Origin::RedisBloom1 }
    }
}
