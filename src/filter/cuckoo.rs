//! The cuckoo filter: fingerprints in buckets, so that items can be deleted without counters (Fan, Andersen, Kaminsky,
//! Mitzenmacher, "Cuckoo Filter: Practically Better Than Bloom", CoNEXT 2014).
//!
//! A fingerprint is one byte, 1..=255, and lies in one of two buckets of which each is computed from the other and the
//! fingerprint (partial-key hashing): `h mod n` and `(h xor fp·0x5bd1e995) mod n`, n a power of two. That is
//! RedisBloom's derivation, so that one engine serves native filters and those loaded from it; they differ in the hash.
//! An absent item matches one of the 2·b fingerprints of its buckets with probability 1 − (1 − 1/255)^(2b): 1.6 % for
//! two slots a bucket, 3.1 % for four, times the number of sub-filters.
//!
//! Equal fingerprints are kept several times, which counts duplicates, up to 2·b of them in a sub-filter. Deleting an
//! item that was never added may take the fingerprint of another: its next test is a false negative. No filter of
//! fingerprints can tell.
//!
//! Making room searches breadth-first for the shortest chain of moves and carries it out from the free slot backwards:
//! each fingerprint is written to its new place before it leaves the old one. A search that fails has changed nothing.
//! A reader in another thread could miss an item on the move, by looking at its new place before the write and at the old
//! one after it; there is none, since adds take `&mut self`.

use crate::bits::counter;
use crate::error::Error;
use crate::hash::{HashKind, Hasher, Seed};
use crate::mem::Words;
use crate::murmur::{murmur2, murmur64a};
use crate::params::limits;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;
use smallvec::SmallVec;
use std::sync::Arc;

/// Multiplier of a fingerprint in the second bucket's index: MurmurHash2's, as in RedisBloom.
const SPREAD: u64 = 0x5bd1_e995;

/// Distinct fingerprints: a byte without 0, which marks a free slot.
const FINGERPRINTS: u64 = 255;

/// Bits of a slot.
const SLOT_BITS: u32 = 8;

/// Part of the items that may have been deleted before a filter of several sub-filters is compacted by itself.
const COMPACT_ABOVE: f64 = 0.1;

/// Bytes of the largest filter that is compacted by itself: where most moves, it takes 15 ms for each MiB.
const COMPACT_UP_TO: u64 = 4 << 20;

/// What a cuckoo filter is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuckooSpec {
    /// Items that the first sub-filter is sized for.
    pub capacity: u64,
    /// Slots of a bucket, `1..=255`.
    pub bucket_size: u8,
    /// Fingerprints that may be moved to make room for one, `1..=65535`.
    pub max_iterations: u16,
    /// Buckets of a sub-filter over those of the one before it, a power of two up to 32768; 0 for no growth.
    pub expansion: u16,
    /// How an item's hash is made.
    pub origin: Origin,
    /// Hash function, of our own filters.
    pub hash: HashKind,
    /// Key of that.
    pub seed: Seed,
}

/// Whose hash a filter has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// Ours, keyed.
    #[default]
    Bloomery,
    /// RedisBloom's since 2.2.0: MurmurHash64A.
    RedisBloom,
    /// RedisBloom's before that: MurmurHash2, of which the highest byte is the fingerprint. RedisBloom itself no longer
    /// finds the items of such a filter.
    RedisBloom1,
}

impl CuckooSpec {
    /// Checks every bound.
    ///
    /// # Errors
    /// [`Error::Capacity`] or [`Error::Cuckoo`].
    pub fn validate(&self) -> Result<(), Error> {
        // RedisBloom once made filters of one bucket.
        let least = if self.origin == Origin::Bloomery { 2 } else { 1 };
        if self.capacity < least * u64::from(self.bucket_size) || self.capacity > limits::MAX_CAPACITY {
            return Err(Error::Capacity(self.capacity));
        }
        if self.bucket_size == 0 {
            return Err(Error::Cuckoo("a bucket has 1 to 255 slots"));
        }
        if self.max_iterations == 0 {
            return Err(Error::Cuckoo("making room takes 1 to 65535 moves"));
        }
        if self.expansion != 0
            && (!self.expansion.is_power_of_two() || u32::from(self.expansion) > limits::MAX_EXPANSION)
        {
            return Err(Error::Cuckoo("the expansion is 0 or a power of two up to 32768"));
        }
        Ok(())
    }

    /// The expansion that an expansion asked for comes to: the next power of two, up to 32768; 0 stays 0.
    pub fn expansion_for(asked: u32) -> u16 {
        if asked == 0 { 0 } else { asked.min(limits::MAX_EXPANSION).next_power_of_two() as u16 }
    }

    /// Buckets of the first sub-filter.
    pub fn first_buckets(&self) -> u64 {
        (self.capacity / u64::from(self.bucket_size)).max(1).next_power_of_two()
    }

    /// Slots of a sub-filter of so many buckets.
    pub fn slots_of(&self, buckets: u64) -> u64 {
        buckets * u64::from(self.bucket_size)
    }

    /// Bytes of a sub-filter of so many buckets: its slots, rounded up to whole words.
    pub fn bytes_of(&self, buckets: u64) -> u64 {
        self.slots_of(buckets).next_multiple_of(8)
    }

    /// Buckets of sub-filter `index`; `None` beyond [`limits::MAX_BYTES`].
    pub fn buckets_of(&self, index: usize) -> Option<u64> {
        let factor = u64::from(self.expansion.max(1)).checked_pow(u32::try_from(index).ok()?)?;
        let buckets = self.first_buckets().checked_mul(factor)?;
        let bytes = buckets.checked_mul(self.bucket_size.into())?;
        (bytes <= limits::MAX_BYTES).then_some(buckets)
    }
}

/// The part of an item's hash that a cuckoo filter uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuckooHash {
    first: u64,
    second: u64,
    fingerprint: u8,
}

impl CuckooHash {
    /// From 64 bits of hash.
    #[inline]
    pub fn new(hash: u64) -> CuckooHash {
        let fingerprint = hash % FINGERPRINTS + 1;
        CuckooHash { first: hash, second: hash ^ (fingerprint * SPREAD), fingerprint: fingerprint as u8 }
    }

    /// From 32 bits of hash, as in RedisBloom before 2.2.0.
    pub fn old(hash: u32) -> CuckooHash {
        let fingerprint = if hash >> 24 == 0 { 7 } else { hash >> 24 } as u8;
        let spread = (u64::from(fingerprint) * SPREAD) & u64::from(u32::MAX);
        let first = u64::from(hash);
        CuckooHash { first, second: first ^ spread, fingerprint }
    }
}

/// One sub-filter: `buckets` buckets, a power of two, one byte a slot.
pub struct Table {
    words: Words,
    buckets: u64,
    bucket_size: u8,
}

impl Table {
    fn new(buckets: u64, bucket_size: u8) -> Result<Table, Error> {
        let slots = buckets.checked_mul(bucket_size.into()).ok_or(Error::OutOfMemory { bytes: u64::MAX })?;
        Ok(Table { words: Words::zeroed(slots.div_ceil(8))?, buckets, bucket_size })
    }

    /// Its slots in words; those behind the last slot are 0.
    pub(crate) fn words(&self) -> &Words {
        &self.words
    }

    /// Whether the bytes behind the last slot are 0.
    fn is_padded(&self) -> bool {
        let slots = self.buckets as usize * usize::from(self.bucket_size);
        (slots..self.words.len() * 8).all(|slot| self.get(slot) == 0)
    }

    /// Slots in use.
    fn items(&self) -> u64 {
        let in_use = |word: &AtomicU64| counter::census(SLOT_BITS, word.load(Relaxed)).0;
        self.words.iter().map(|word| u64::from(in_use(word))).sum()
    }

    /// Number of buckets.
    pub fn buckets(&self) -> u64 {
        self.buckets
    }

    /// Bytes of the slots.
    pub fn bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    /// Indices of a bucket's slots.
    #[inline(always)]
    fn slots(&self, bucket: u64) -> std::ops::Range<usize> {
        let first = bucket as usize * usize::from(self.bucket_size);
        first..first + usize::from(self.bucket_size)
    }

    #[inline(always)]
    fn get(&self, slot: usize) -> u8 {
        counter::get(&self.words, SLOT_BITS, slot) as u8
    }

    #[inline(always)]
    fn set(&self, slot: usize, fingerprint: u8) {
        counter::store(&self.words, SLOT_BITS, slot, fingerprint.into());
    }

    /// The item's two buckets; one and the same now and then.
    #[inline(always)]
    fn pair(&self, item: CuckooHash) -> [u64; 2] {
        [item.first & (self.buckets - 1), item.second & (self.buckets - 1)]
    }

    /// The other bucket of a fingerprint that lies in `bucket`.
    #[inline(always)]
    fn other(&self, bucket: u64, fingerprint: u8) -> u64 {
        (bucket ^ (u64::from(fingerprint) * SPREAD)) & (self.buckets - 1)
    }

    /// First slot of the item's buckets that holds `wanted`.
    #[inline]
    fn find(&self, item: CuckooHash, wanted: u8) -> Option<usize> {
        self.pair(item)
            .into_iter()
            .flat_map(|bucket| self.slots(bucket))
            .find(|slot| self.get(*slot) == wanted)
    }

    fn contains(&self, item: CuckooHash) -> bool {
        self.find(item, item.fingerprint).is_some()
    }

    fn insert(&self, item: CuckooHash) -> bool {
        let free = self.find(item, 0);
        if let Some(slot) = free {
            self.set(slot, item.fingerprint);
        }
        free.is_some()
    }

    fn remove(&self, item: CuckooHash) -> bool {
        let slot = self.find(item, item.fingerprint);
        if let Some(slot) = slot {
            self.set(slot, 0);
        }
        slot.is_some()
    }

    /// As RedisBloom counts: a bucket twice when it is both of the item's buckets.
    fn count(&self, item: CuckooHash) -> u64 {
        let buckets = self.pair(item).into_iter();
        buckets
            .flat_map(|bucket| self.slots(bucket))
            .filter(|slot| self.get(*slot) == item.fingerprint)
            .count() as u64
    }

    /// Inserts by moving other fingerprints, at most `most` of them and as few as possible, and says how many it was;
    /// `None` if that does not do, and then nothing has changed.
    fn insert_by_moving(&self, item: CuckooHash, most: u16) -> Option<u16> {
        // A slot to be vacated, and the index of the step that its fingerprint makes room for.
        struct Step {
            slot: usize,
            bucket: u64,
            parent: Option<usize>,
            depth: u16,
        }
        let mut steps: Vec<Step> = Vec::new();
        let [first, second] = self.pair(item);
        for bucket in std::iter::once(first).chain((first != second).then_some(second)) {
            steps.extend(self.slots(bucket).map(|slot| Step { slot, bucket, parent: None, depth: 1 }));
        }
        let mut next = 0;
        while next < steps.len() {
            let Step { slot, bucket, depth, .. } = steps[next];
            let other = self.other(bucket, self.get(slot));
            if let Some(free) = self.slots(other).find(|slot| self.get(*slot) == 0) {
                // From the free slot backwards: write, then vacate.
                let (mut to, mut step) = (free, Some(next));
                while let Some(index) = step {
                    self.set(to, self.get(steps[index].slot));
                    (to, step) = (steps[index].slot, steps[index].parent);
                }
                self.set(to, item.fingerprint);
                return Some(depth);
            }
            if depth < most && steps.len() < SEARCHED && other != bucket {
                let parent = Some(next);
                steps.extend(self.slots(other).map(|slot| Step {
                    slot,
                    bucket: other,
                    parent,
                    depth: depth + 1,
                }));
            }
            next += 1;
        }
        None
    }

    fn occupied(&self) -> impl Iterator<Item = (u64, usize, u8)> {
        (0..self.buckets).flat_map(|bucket| self.slots(bucket).map(move |slot| (bucket, slot))).filter_map(
            |(bucket, slot)| match self.get(slot) {
                0 => None,
                fingerprint => Some((bucket, slot, fingerprint)),
            },
        )
    }

    fn snapshot(&self) -> Result<Table, Error> {
        Ok(Table { words: self.words.copy()?, ..*self })
    }
}

/// Slots that a search for room looks at, at most: 0.97 of four-slot buckets are full before it gives up.
const SEARCHED: usize = 2048;

/// A cuckoo filter: sub-filters from oldest to newest.
pub struct Cuckoo {
    spec: CuckooSpec,
    tables: SmallVec<[Arc<Table>; 1]>,
    items: u64,
    deletes: u64,
    moves: u64,
}

impl Cuckoo {
    /// An empty filter.
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
    /// [`Error::Cuckoo`] where bytes behind the last slot are set.
    pub(crate) fn from_parts(
        spec: CuckooSpec,
        tables: impl Iterator<Item = (u64, Words)>,
        deletes: u64,
        moves: u64,
    ) -> Result<Cuckoo, Error> {
        let table = |(buckets, words)| Arc::new(Table { words, buckets, bucket_size: spec.bucket_size });
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

    /// Fingerprints moved so far: what was dumped of the slots before a move does not go with what is dumped behind it.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// The keyed hash function.
    pub fn hasher(&self) -> Hasher {
        self.spec.hash.hasher(self.spec.seed)
    }

    /// Hashes an item for this filter.
    #[inline]
    pub fn hash(&self, item: &[u8]) -> CuckooHash {
        match self.spec.origin {
            Origin::Bloomery => CuckooHash::new(self.hasher().hash(item).low),
            Origin::RedisBloom => CuckooHash::new(murmur64a(item, 0)),
            Origin::RedisBloom1 => CuckooHash::old(murmur2(item, 0)),
        }
    }

    /// Whether the item may be in the filter.
    pub fn contains(&self, item: CuckooHash) -> bool {
        self.tables.iter().rev().any(|table| table.contains(item))
    }

    /// How often the item was added, at most, if it was never deleted without having been added.
    pub fn count(&self, item: CuckooHash) -> u64 {
        self.tables.iter().map(|table| table.count(item)).sum()
    }

    /// Adds one occurrence of the item: into a free slot of the newest sub-filter that has one, or by moving others in
    /// the newest. It does not grow; see [`grow`](Cuckoo::grow).
    ///
    /// # Errors
    /// [`Error::Full`], and then nothing has changed.
    pub fn insert(&mut self, item: CuckooHash) -> Result<(), Error> {
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

    /// Opens the next sub-filter.
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
    pub fn remove(&mut self, item: CuckooHash) -> bool {
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
                let other = bucket ^ (u64::from(fingerprint) * SPREAD);
                let item = CuckooHash { first: bucket, second: other, fingerprint };
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
        let tables = self.tables.iter().map(|table| size_of::<Table>() + 16 + table.words.allocated());
        let list = if self.tables.len() > 1 { size_of_val(&*self.tables) } else { 0 };
        size_of::<Cuckoo>() + list + tables.sum::<usize>()
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

    /// Vectors recorded from RedisBloom, whose hash is MurmurHash64A with seed 0: the hashes are given here.
    #[test]
    fn derivation_is_redisblooms() {
        let table = Table::new(512, 2).unwrap();
        for (hash, fingerprint, first, second) in
            [(0x1e68d17c457bf117, 159, 279, 156), (0xcdde38358fd25b01, 217, 257, 76), (0, 1, 0, 405)]
        {
            let item = CuckooHash::new(hash);
            assert_eq!((item.fingerprint, table.pair(item)), (fingerprint, [first, second]));
            assert_eq!([table.other(first, fingerprint), table.other(second, fingerprint)], [second, first]);
        }
    }

    #[test]
    fn four_slot_buckets_are_95_percent_full_before_they_grow() {
        for seed in 0..5u128 {
            let mut filter =
                Cuckoo::new(CuckooSpec { seed: Seed::from(seed), ..spec(1 << 16, 4, 1) }).unwrap();
            let mut items = 0u32;
            while filter.insert(filter.hash(&items.to_le_bytes())).is_ok() {
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
            filter.insert(item).unwrap();
            assert_eq!(filter.count(item), count);
        }
        assert_eq!(filter.insert(item), Err(Error::Full));
        filter.grow().unwrap();
        filter.insert(item).unwrap();
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
            while items < 25_000 && filter.insert(filter.hash(&items.to_le_bytes())).is_ok() {
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
