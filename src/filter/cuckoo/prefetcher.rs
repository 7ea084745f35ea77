//! Hashes items before they are tested or added, so that their buckets can be prefetched in the meantime.

use super::buckets::Buckets;
use super::hash::CuckooHash;
use super::spec::Origin;
use crate::hash::Hasher;
use crate::murmur::{murmur2, murmur64a};

/// Hashes items and prefetches their buckets in the newest sub-filter. Contains everything that hashing needs from the
/// filter, so that the filter isn't read again for each item.
#[derive(Clone, Copy)]
pub struct Prefetcher<'f> {
    pub(super) origin: Origin,
    pub(super) hasher: Hasher,
    pub(super) newest: Option<Buckets<'f>>,
}

impl Prefetcher<'_> {
    /// The item's hash.
    #[inline(always)]
    pub fn hash(self, item: &[u8]) -> CuckooHash {
        let item = match self.origin {
            Origin::Bloomery => CuckooHash::new(self.hasher.hash_in_loop(item).low),
            Origin::RedisBloom => CuckooHash::new(murmur64a(item, 0)),
            Origin::RedisBloom1 => CuckooHash::old(murmur2(item, 0)),
        };
        if let Some(newest) = self.newest {
            newest.prefetch_both(item);
        }
        item
    }
}
