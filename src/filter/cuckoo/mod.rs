//! The cuckoo filter: fingerprints in buckets, so that items can be deleted without counters (Fan, Andersen, Kaminsky,
//! Mitzenmacher, "Cuckoo Filter: Practically Better Than Bloom", CoNEXT 2014).
//!
//! A fingerprint is one byte, 1..=255, and lies in one of two buckets of which each is computed from the other and the
//! fingerprint (partial-key hashing): `h mod n` and `(h xor fp·0x5bd1e995) mod n`, n a power of two. That is
//! RedisBloom's derivation, so that one engine serves native filters and those loaded from it; they differ in the hash.
//! An absent item matches one of the 2·b fingerprints of its buckets with probability 1 − (1 − 1/255)^(2b): 1.6% for
//! two slots a bucket, 3.1% for four, times the number of sub-filters.
//!
//! Equal fingerprints are kept several times, which counts duplicates, up to 2·b of them in a sub-filter. Deleting an
//! item that was never added may take the fingerprint of another: its next test is a false negative. No filter of
//! fingerprints can tell.
//!
//! Making room searches breadth-first for the shortest chain of moves and carries it out from the free slot backwards:
//! each fingerprint is written to its new place before it leaves the old one. A search that fails has changed nothing.
//! A reader in another thread could miss an item on the move, by looking at its new place before the write and at the old
//! one after it. There are no such readers: adds take `&mut self`.

mod spec;
mod std_traits;
mod table;

pub use spec::{CuckooSpec, Origin};
pub use table::{CuckooHash, Table};

use crate::error::Error;
use crate::hash::{HashKind, Hasher, Seed};
use crate::mem::Words;
use crate::murmur::{murmur2, murmur64a};
use crate::params::limits;
use smallvec::SmallVec;
use std::sync::Arc;

/// Part of the items that may have been deleted before a filter of several sub-filters is compacted by itself.
const COMPACT_ABOVE: f64 = 0.1;

/// Bytes of the largest filter that is compacted by itself: where most moves, it takes 15 ms for each MiB.
const COMPACT_UP_TO: u64 = 4 << 20;

/// A cuckoo filter: sub-filters from oldest to newest.
pub struct Cuckoo {
    spec: CuckooSpec,
    tables: SmallVec<[Arc<Table>; 1]>,
    items: u64,
    deletes: u64,
    moves: u64,
}

impl Cuckoo {
    /// An empty filter for `capacity` items that grows when it is full, with a random seed and RedisBloom's defaults.
    ///
    /// # Errors
    /// [`Error::Capacity`], [`Error::OutOfMemory`], [`Error::NoRandomness`].
    pub fn with_capacity(capacity: u64) -> Result<Cuckoo, Error> {
        Cuckoo::new(CuckooSpec::new(capacity).with_random_seed()?)
    }

    /// An empty filter of this spec.
    ///
    /// # Errors
    /// What [`CuckooSpec::validate`] refuses, [`Error::OutOfMemory`].
    pub fn new(spec: CuckooSpec) -> Result<Cuckoo, Error> {
        spec.validate()?;
        let spec = match spec.origin {
            Origin::Bloomery => CuckooSpec { seed: spec.seed.narrow(spec.hash), ..spec },
            // Their hashes have no key, and neither format has a place for one.
            _ => CuckooSpec { hash: HashKind::default(), seed: Seed::default(), ..spec },
        };
        let mut filter = Cuckoo { spec, tables: SmallVec::new(), items: 0, deletes: 0, moves: 0 };
        filter.grow()?;
        Ok(filter)
    }

    /// From parts that [`wire`](crate::wire) has validated but for the slots: buckets and words of each sub-filter.
    ///
    /// # Errors
    /// [`Error::Cuckoo`] where bytes after the last slot are set.
    pub(crate) fn from_parts(
        spec: CuckooSpec,
        tables: impl Iterator<Item = (u64, Words)>,
        deletes: u64,
        moves: u64,
    ) -> Result<Cuckoo, Error> {
        let table = |(buckets, words)| Arc::new(Table::from_words(words, buckets, spec.bucket_size));
        let tables: SmallVec<[Arc<Table>; 1]> = tables.map(table).collect();
        if !tables.iter().all(|table| table.is_padded()) {
            return Err(Error::Cuckoo("padding"));
        }
        let items = tables.iter().map(|table| table.items()).sum();
        Ok(Cuckoo { spec, tables, items, deletes, moves })
    }

    /// The parameters.
    pub fn spec(&self) -> &CuckooSpec {
        &self.spec
    }

    /// Sub-filters from oldest to newest.
    pub fn tables(&self) -> &[Arc<Table>] {
        &self.tables
    }

    /// Fingerprints that it holds.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Items deleted since the last compaction.
    pub fn deletes(&self) -> u64 {
        self.deletes
    }

    /// Fingerprints moved so far: slots that were dumped before a move do not go with those dumped after it.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// The keyed hash function.
    pub fn hasher(&self) -> Hasher {
        self.spec.hash.hasher(self.spec.seed)
    }

    /// The hash of an item, for this filter alone.
    #[doc(hidden)]
    #[inline]
    pub fn hash(&self, item: &[u8]) -> CuckooHash {
        match self.spec.origin {
            Origin::Bloomery => CuckooHash::new(self.hasher().hash(item).low),
            Origin::RedisBloom => CuckooHash::new(murmur64a(item, 0)),
            Origin::RedisBloom1 => CuckooHash::old(murmur2(item, 0)),
        }
    }

    /// Whether the item may be in the filter.
    pub fn contains(&self, item: impl CuckooItem) -> bool {
        let item = item.hash_for(self);
        self.tables.iter().rev().any(|table| table.contains(item))
    }

    /// How often the item was added, at most, if it was never deleted without having been added.
    pub fn count(&self, item: impl CuckooItem) -> u64 {
        let item = item.hash_for(self);
        self.tables.iter().map(|table| table.count(item)).sum()
    }

    /// Adds one occurrence of the item, growing if need be.
    ///
    /// # Errors
    /// [`Error::Full`] if the filter may not grow, and what growing may run into. Then nothing has changed.
    pub fn insert(&mut self, item: impl CuckooItem) -> Result<(), Error> {
        let item = item.hash_for(self);
        match self.try_insert(item) {
            Err(Error::Full) => {
                self.grow()?;
                self.try_insert(item)
            }
            done => done,
        }
    }

    /// Adds one occurrence of the item without growing: into a free slot of the newest sub-filter that has one, or by
    /// moving other fingerprints in the newest sub-filter.
    ///
    /// # Errors
    /// [`Error::Full`], and then nothing has changed: see [`grow`](Cuckoo::grow).
    pub fn try_insert(&mut self, item: impl CuckooItem) -> Result<(), Error> {
        let item = item.hash_for(self);
        if !self.tables.iter().rev().any(|table| table.insert(item)) {
            let moved =
                self.tables.last().and_then(|table| table.insert_by_moving(item, self.spec.max_iterations));
            self.moves += u64::from(moved.ok_or(Error::Full)?);
        }
        self.items += 1;
        Ok(())
    }

    /// Bytes of the sub-filter that [`grow`](Cuckoo::grow) would open; `None` if it cannot.
    pub fn next_bytes(&self) -> Option<u64> {
        let len = self.tables.len();
        if len >= limits::MAX_TABLES || (self.spec.expansion == 0 && len > 0) {
            return None;
        }
        Some(self.spec.bytes_of(self.spec.buckets_of(self.tables.len())?))
    }

    /// Adds the next sub-filter.
    ///
    /// # Errors
    /// [`Error::Full`] if the filter may not grow, [`Error::OutOfMemory`].
    pub fn grow(&mut self) -> Result<(), Error> {
        if self.next_bytes().is_none() {
            return Err(if self.spec.expansion == 0 { Error::Full } else { Error::TooManyLayers });
        }
        let buckets = self.spec.buckets_of(self.tables.len()).ok_or(Error::TooManyLayers)?;
        self.tables.push(Arc::new(Table::new(buckets, self.spec.bucket_size)?));
        Ok(())
    }

    /// Deletes one occurrence of the item; false if it is certainly absent.
    pub fn remove(&mut self, item: impl CuckooItem) -> bool {
        let item = item.hash_for(self);
        let removed = self.tables.iter().rev().any(|table| table.remove(item));
        if removed {
            self.items = self.items.saturating_sub(1);
            self.deletes += 1;
        }
        removed
    }

    /// Whether so much was deleted that it is time to [`compact`](Cuckoo::compact): a tenth of the items, and there are
    /// several sub-filters. Not of a large filter, where that takes seconds, and a delete is no place for it.
    pub fn is_sparse(&self) -> bool {
        let deleted = self.deletes as f64 > COMPACT_ABOVE * self.items as f64;
        self.tables.len() > 1 && deleted && self.bytes() <= COMPACT_UP_TO
    }

    /// Moves fingerprints of newer sub-filters into free slots of older ones, and frees the newest while it is empty.
    /// `all` goes through every sub-filter, as CF.COMPACT does; without it the first that cannot be emptied ends it.
    /// Returns the sub-filters that it has dropped.
    pub fn compact(&mut self, all: bool) -> Vec<Arc<Table>> {
        let mut dropped = Vec::new();
        for index in (1..self.tables.len()).rev() {
            let (older, newer) = self.tables.split_at(index);
            let Some(table) = newer.first() else { break };
            let mut left = 0u64;
            for (bucket, slot, fingerprint) in table.occupied() {
                let item = CuckooHash::found_in(bucket, fingerprint);
                // Written before it is vacated.
                if older.iter().any(|older| older.insert(item)) {
                    table.set(slot, 0);
                    self.moves += 1;
                } else {
                    left += 1;
                }
            }
            if left == 0 && index + 1 == self.tables.len() {
                dropped.extend(self.tables.pop());
            } else if left > 0 && !all {
                break;
            }
        }
        self.deletes = 0;
        dropped
    }

    /// Bytes of memory, with all overhead.
    pub fn allocated(&self) -> usize {
        let tables = self.tables.iter().map(|table| size_of::<Table>() + 16 + table.words().allocated());
        let list = if self.tables.len() > 1 { size_of_val(&*self.tables) } else { 0 };
        size_of::<Cuckoo>() + list + tables.sum::<usize>()
    }

    /// Slots of all sub-filters.
    pub fn slots(&self) -> u64 {
        self.tables.iter().map(|table| self.spec.slots_of(table.buckets())).sum()
    }

    /// Fraction of the slots that are in use.
    pub fn fill(&self) -> f64 {
        self.items as f64 / self.slots() as f64
    }

    /// The error rate when this fraction of the slots is in use: an absent item matches each fingerprint in its two
    /// buckets of every sub-filter with a chance of 1/255.
    pub fn rate_at(&self, fill: f64) -> f64 {
        let seen = 2.0 * f64::from(self.spec.bucket_size) * self.tables.len() as f64 * fill;
        -libm::expm1(seen * libm::log1p(-1.0 / table::FINGERPRINTS as f64))
    }

    /// Bytes of all slots.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.bytes()).sum()
    }

    /// A copy that shares nothing.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn snapshot(&self) -> Result<Cuckoo, Error> {
        let tables =
            self.tables.iter().map(|table| table.snapshot().map(Arc::new)).collect::<Result<_, Error>>()?;
        Ok(Cuckoo { tables, ..*self })
    }
}

/// What a cuckoo filter takes: bytes.
pub trait CuckooItem {
    /// The item's hash for this filter.
    #[doc(hidden)]
    fn hash_for(&self, filter: &Cuckoo) -> CuckooHash;
}

impl<T: AsRef<[u8]>> CuckooItem for T {
    #[inline(always)]
    fn hash_for(&self, filter: &Cuckoo) -> CuckooHash {
        filter.hash(self.as_ref())
    }
}

/// The commands hash an item for the filter that they ask.
impl CuckooItem for CuckooHash {
    #[inline(always)]
    fn hash_for(&self, _: &Cuckoo) -> CuckooHash {
        *self
    }
}

impl std::fmt::Debug for Cuckoo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cuckoo").field("spec", &self.spec).field("items", &self.items).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(capacity: u64, bucket_size: u8, expansion: u16) -> CuckooSpec {
        let (hash, seed) = (HashKind::Xxh3, Seed::from(7));
        CuckooSpec {
            capacity,
            bucket_size,
            max_iterations: 20,
            expansion,
            origin: Origin::Bloomery,
            hash,
            seed,
        }
    }

    #[test]
    fn geometry_is_redisblooms() {
        for (capacity, bucket_size, buckets) in
            [(1024, 2, 512), (1000, 4, 256), (7, 3, 2), (5, 2, 2), (1025, 2, 512)]
        {
            assert_eq!(spec(capacity, bucket_size, 1).first_buckets(), buckets);
        }
    }

    #[test]
    fn four_slot_buckets_are_95_percent_full_before_they_grow() {
        for seed in 0..5u128 {
            let mut filter =
                Cuckoo::new(CuckooSpec { seed: Seed::from(seed), ..spec(1 << 16, 4, 1) }).unwrap();
            let mut items = 0u32;
            while filter.try_insert(filter.hash(&items.to_le_bytes())).is_ok() {
                items += 1;
            }
            assert!(f64::from(items) >= 0.95 * f64::from(1 << 16), "{items}");
            // The failed insert has changed nothing, and moving has lost nobody.
            assert_eq!(filter.items(), u64::from(items));
            assert_eq!(filter.tables[0].occupied().count(), items as usize);
            assert!((0..items).all(|item| filter.contains(filter.hash(&item.to_le_bytes()))));
        }
    }

    #[test]
    fn duplicates_are_counted_and_deleted_one_by_one() {
        let mut filter = Cuckoo::new(spec(8, 2, 2)).unwrap();
        let item = filter.hash(b"hello");
        for count in 1..=4 {
            filter.try_insert(item).unwrap();
            assert_eq!(filter.count(item), count);
        }
        assert_eq!(filter.try_insert(item), Err(Error::Full));
        filter.grow().unwrap();
        filter.try_insert(item).unwrap();
        assert_eq!((filter.count(item), filter.tables()[1].buckets()), (5, 8));
        for count in (0..5).rev() {
            assert!(filter.remove(item));
            assert_eq!(filter.count(item), count);
        }
        assert!(!filter.remove(item) && filter.is_sparse());
        assert_eq!(filter.compact(false).len(), 1);
        assert_eq!((filter.tables().len(), filter.is_sparse()), (1, false));
    }

    #[test]
    fn the_error_rate_is_that_of_the_formula() {
        for bucket_size in [1, 2, 4] {
            let mut filter = Cuckoo::new(spec(1 << 15, bucket_size, 1)).unwrap();
            let mut items = 0u32;
            while items < 25_000 && filter.try_insert(filter.hash(&items.to_le_bytes())).is_ok() {
                items += 1;
            }
            let queries = 400_000u32;
            let hits = (1 << 30..(1 << 30) + queries)
                .filter(|i| filter.contains(filter.hash(&i.to_le_bytes())))
                .count();
            let load = f64::from(items) / f64::from(1 << 15);
            let slots = 2.0 * f64::from(bucket_size) * load;
            let expected = f64::from(queries) * (1.0 - (1.0f64 - 1.0 / 255.0).powf(slots));
            assert!(
                (hits as f64 - expected).abs() < 5.0 * expected.sqrt() + 0.01 * expected,
                "{hits} {expected}"
            );
        }
    }
}
