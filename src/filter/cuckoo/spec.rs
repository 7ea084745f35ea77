//! The parameters of a cuckoo filter and the sizes that follow from them.

use crate::error::Error;
use crate::hash::{HashKind, Seed};
use crate::params::limits;

/// The parameters of a cuckoo filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuckooSpec {
    /// Number of items that the first sub-filter is sized for.
    pub capacity: u64,
    /// Slots per bucket, `1..=255`.
    pub bucket_size: u8,
    /// Maximum number of fingerprints moved to make room for a new one, `1..=65535`.
    pub max_iterations: u16,
    /// Ratio of a sub-filter's number of buckets to that of the previous sub-filter, a power of two up to 32768; 0 if
    /// the filter doesn't grow.
    pub expansion: u16,
    /// The system whose hash function is used for items.
    pub origin: Origin,
    /// Hash function; only native filters use it.
    pub hash: HashKind,
    /// Key of the hash function.
    pub seed: Seed,
}

/// The system whose hash function a filter uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// Bloomery, whose hash functions are keyed.
    #[default]
    Bloomery,
    /// RedisBloom since 2.2.0: MurmurHash64A.
    RedisBloom,
    /// RedisBloom before 2.2.0: MurmurHash2, whose highest byte is the fingerprint. RedisBloom itself no longer
    /// finds the items of such a filter.
    RedisBloom1,
}

impl CuckooSpec {
    /// A native filter with RedisBloom's defaults: two slots per bucket, up to 20 moves per add, and sub-filters of
    /// equal size.
    pub fn new(capacity: u64) -> CuckooSpec {
        CuckooSpec {
            capacity,
            bucket_size: 2,
            max_iterations: 20,
            expansion: 1,
            origin: Origin::Bloomery,
            hash: HashKind::default(),
            seed: Seed::default(),
        }
    }

    /// This spec with a random seed.
    ///
    /// # Errors
    /// [`Error::NoRandomness`].
    pub fn with_random_seed(self) -> Result<CuckooSpec, Error> {
        let seed = Seed::random(self.hash)?;
        Ok(CuckooSpec { seed, ..self })
    }

    /// Checks whether all parameters are within their bounds.
    ///
    /// # Errors
    /// [`Error::Capacity`] or [`Error::Cuckoo`].
    pub fn validate(&self) -> Result<(), Error> {
        // Old versions of RedisBloom could create filters with one bucket.
        let least = if self.origin == Origin::Bloomery { 2 } else { 1 };
        if self.capacity < least * u64::from(self.bucket_size) || self.capacity > limits::MAX_CAPACITY {
            return Err(Error::Capacity(self.capacity));
        }
        if self.bucket_size == 0 {
            return Err(Error::Cuckoo("a bucket has 1 to 255 slots"));
        }
        if self.max_iterations == 0 {
            return Err(Error::Cuckoo("making room needs 1 to 65535 moves"));
        }
        if self.expansion != 0
            && (!self.expansion.is_power_of_two() || u32::from(self.expansion) > limits::MAX_EXPANSION)
        {
            return Err(Error::Cuckoo("the expansion is 0 or a power of two up to 32768"));
        }
        Ok(())
    }

    /// The expansion used for a requested expansion: the next power of two, up to 32768; 0 stays 0.
    pub fn expansion_for(asked: u32) -> u16 {
        if asked == 0 { 0 } else { asked.min(limits::MAX_EXPANSION).next_power_of_two() as u16 }
    }

    /// Number of buckets in the first sub-filter.
    pub fn first_buckets(&self) -> u64 {
        (self.capacity / u64::from(self.bucket_size)).max(1).next_power_of_two()
    }

    /// Number of slots in a sub-filter with `buckets` buckets.
    pub fn slots_of(&self, buckets: u64) -> u64 {
        buckets * u64::from(self.bucket_size)
    }

    /// Size in bytes of a sub-filter with `buckets` buckets: its slots, rounded up to whole words.
    pub fn bytes_of(&self, buckets: u64) -> u64 {
        self.slots_of(buckets).next_multiple_of(8)
    }

    /// Finds the sub-filter that contains slot `offset`, whether or not the filter has grown that far. Slots are
    /// counted through all sub-filters, without padding. Returns the sub-filter's first slot, its index and its number
    /// of slots. `None` if sub-filters of increasing size reach a limit before that slot. Sub-filters of equal size
    /// aren't stepped through, because there can be 65,536 of them.
    pub(crate) fn sub_filter_at(&self, offset: u64) -> Option<(u64, usize, u64)> {
        if self.expansion <= 1 {
            let slots = self.slots_of(self.first_buckets());
            let index = offset / slots;
            return Some((index * slots, usize::try_from(index).ok()?, slots));
        }
        let mut first = 0;
        (0..).map_while(|index| Some((index, self.slots_of(self.buckets_of(index)?)))).find_map(
            |(index, slots)| {
                let (begins, end) = (first, first + slots);
                first = end;
                (offset < end).then_some((begins, index, slots))
            },
        )
    }

    /// Number of buckets in sub-filter `index`. `None` if the sub-filter would exceed [`limits::MAX_BYTES`], or if a
    /// test would then look at more than [`limits::MAX_SLOTS_ASKED`] slots.
    pub fn buckets_of(&self, index: usize) -> Option<u64> {
        let asked = (index as u64 + 1).checked_mul(2 * u64::from(self.bucket_size))?;
        if asked > limits::MAX_SLOTS_ASKED {
            return None;
        }
        let factor = u64::from(self.expansion.max(1)).checked_pow(u32::try_from(index).ok()?)?;
        let buckets = self.first_buckets().checked_mul(factor)?;
        let bytes = buckets.checked_mul(self.bucket_size.into())?;
        (bytes <= limits::MAX_BYTES).then_some(buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(capacity: u64, bucket_size: u8) -> CuckooSpec {
        CuckooSpec { bucket_size, ..CuckooSpec::new(capacity) }
    }

    #[test]
    fn geometry_is_redisblooms() {
        for (capacity, bucket_size, buckets) in
            [(1024, 2, 512), (1000, 4, 256), (7, 3, 2), (5, 2, 2), (1025, 2, 512)]
        {
            assert_eq!(spec(capacity, bucket_size).first_buckets(), buckets);
        }
    }

    #[test]
    fn the_slots_that_a_test_looks_at_are_limited() {
        // With 8 slots per bucket, a filter can have as many sub-filters as RedisBloom allows; with more slots, it can
        // have fewer.
        assert!(spec(16, 8).buckets_of(limits::MAX_TABLES - 1).is_some());
        assert!(spec(510, 255).buckets_of(2055).is_some() && spec(510, 255).buckets_of(2056).is_none());
    }
}
