//! The cuckoo filter: it stores fingerprints in buckets, so items can be deleted without counters (Fan, Andersen,
//! Kaminsky, Mitzenmacher, "Cuckoo Filter: Practically Better Than Bloom", CoNEXT 2014).
//!
//! A fingerprint is one byte, 1..=255, and lies in one of two buckets. Each bucket can be computed from the other one
//! and the fingerprint (partial-key hashing): `h mod n` and `(h xor fp·0x5bd1e995) mod n`, where n is a power of two.
//! RedisBloom derives them the same way, so one engine serves both native filters and those loaded from RedisBloom.
//! Only the hash differs. With b slots per bucket, an absent item matches one of the 2·b fingerprints of its buckets
//! with probability 1 − (1 − 1/255)^(2b): 1.6% for two slots, 3.1% for four, times the number of sub-filters.
//!
//! Each added duplicate stores its fingerprint once more, so duplicates are counted, up to 2·b of them in a sub-filter.
//! Deleting an item that was never added can remove the fingerprint of another item, which then tests negative although
//! it is present. No fingerprint-based filter can detect this.
//!
//! To make room, an add searches breadth-first for the shortest chain of moves and carries it out backwards from the
//! free slot: each fingerprint is written to its new place before it leaves the old one. A failed search changes
//! nothing. A reader in another thread could miss an item that is being moved, by looking at its new place before the
//! write and at the old one after it. No answer comes from such a reader: adds take `&mut self`, and what another
//! thread computes from a shared filter is discarded if the filter has changed.
//!
//! A filter from RedisBloom 2.2.0 or later makes room and compacts exactly as RedisBloom does, byte for byte.
//! RedisBloom replicates a CF.INSERT verbatim, including the items that it refused. A replica that found room for those
//! would later have none for items that the primary accepted. The behaviour depends on the filter, not on the sender of
//! the command, so all replicas of a filter agree.

mod body;
mod buckets;
mod compaction;
mod hash;
mod prefetcher;
mod spec;
mod std_traits;
mod table;

pub use hash::CuckooHash;
pub use spec::{CuckooSpec, Origin};
pub use table::Table;
pub(crate) use table::{fingerprints, slots_in_use};

use super::dump_number;
use crate::bits::Hits;
use crate::error::Error;
use crate::hash::{HashKind, Hasher, Seed};
use crate::mem::Words;
use crate::parallel::{ParallelFor, alone};
use crate::params::limits;
use body::{Body, More};
use prefetcher::Prefetcher;
use std::mem;

/// Maximum number of items that are tested together. Each has two buckets, and a core can have 10 to 16 cache misses in
/// flight.
pub const GROUP: usize = 32;

/// A cuckoo filter: sub-filters from oldest to newest.
///
/// A small filter consists of two memory blocks: this struct and the slots.
pub struct Cuckoo {
    capacity: u64,
    seed_low: u64,
    body: Body,
    max_iterations: u16,
    expansion: u16,
    /// See [`FilterRef::dump_number`](super::FilterRef::dump_number). Also changes whenever `deletes` is reset to 0.
    /// Otherwise, pieces dumped before and after the reset would look as if they belonged together.
    dump_number: u16,
    origin: Origin,
    hash: HashKind,
}

impl Cuckoo {
    /// An empty filter for `capacity` items that grows when it is full, with a random seed and RedisBloom's defaults.
    ///
    /// # Errors
    /// [`Error::Capacity`], [`Error::OutOfMemory`], [`Error::NoRandomness`].
    pub fn with_capacity(capacity: u64) -> Result<Cuckoo, Error> {
        Cuckoo::new(CuckooSpec::new(capacity).with_random_seed()?)
    }

    /// An empty filter with this spec.
    ///
    /// # Errors
    /// The errors of [`CuckooSpec::validate`], and [`Error::OutOfMemory`].
    pub fn new(spec: CuckooSpec) -> Result<Cuckoo, Error> {
        spec.validate()?;
        let spec = match spec.origin {
            Origin::Bloomery => CuckooSpec { seed: spec.seed.narrow(spec.hash), ..spec },
            // The other origins' hashes aren't keyed, and neither of their formats has a field for a seed.
            _ => CuckooSpec { hash: HashKind::default(), seed: Seed::default(), ..spec },
        };
        let buckets = spec.buckets_of(0).ok_or(Error::TooManyLayers)?;
        Ok(Cuckoo::with_body(spec, Body::One(Table::new(buckets, spec.bucket_size)?)))
    }

    /// A filter made of parts that [`wire`](crate::wire) has validated, except for the slots. `tables` yields the words
    /// of each sub-filter and the number of its fingerprints.
    ///
    /// # Errors
    /// [`Error::Cuckoo`] if bytes after the last slot are set, or if there is no sub-filter.
    pub(crate) fn from_parts(
        spec: CuckooSpec,
        tables: impl Iterator<Item = (Words, u64)>,
        deletes: u64,
        moves: u64,
    ) -> Result<Cuckoo, Error> {
        let table = |(index, (words, fingerprints))| {
            Some(Table::from_words(words, fingerprints, spec.buckets_of(index)?, spec.bucket_size))
        };
        let mut tables = tables.enumerate().map_while(table);
        let mut body = Body::One(tables.next().ok_or(Error::Cuckoo("sub-filters"))?);
        for table in tables {
            body.more().tables.push(table);
        }
        if !body.tables().iter().all(|table| table.is_padded()) {
            return Err(Error::Cuckoo("padding"));
        }
        if deletes > 0 || moves > 0 {
            let more = body.more();
            (more.deletes, more.moves) = (deletes, moves);
        }
        Ok(Cuckoo::with_body(spec, body))
    }

    fn with_body(spec: CuckooSpec, mut body: Body) -> Cuckoo {
        let CuckooSpec { capacity, max_iterations, expansion, origin, hash, .. } = spec;
        let Seed { low: seed_low, high: seed_high } = spec.seed;
        if seed_high != 0 {
            body.more().seed_high = seed_high;
        }
        let dump_number = dump_number::next();
        Cuckoo { capacity, seed_low, body, max_iterations, expansion, dump_number, origin, hash }
    }

    /// Replaces slots, beginning at byte `offset`. As in RedisBloom, offsets run through all sub-filters and don't
    /// count padding. The slots must lie in one sub-filter.
    ///
    /// # Errors
    /// [`Error::Cuckoo`] if the slots don't lie in one sub-filter; then nothing has changed.
    #[doc(hidden)]
    pub fn overwrite(&mut self, offset: u64, slots: &[u8]) -> Result<(), Error> {
        let found = self.spec().sub_filter_at(offset);
        let Some((first, table, len)) =
            found.and_then(|(first, index, len)| Some((first, self.tables().get(index)?, len)))
        else {
            return Err(Error::Cuckoo("position of the slots"));
        };
        if slots.is_empty() || slots.len() as u64 > len - (offset - first) {
            return Err(Error::Cuckoo("length of the slots"));
        }
        table.overwrite(offset - first, slots);
        Ok(())
    }

    /// The parameters.
    pub fn spec(&self) -> CuckooSpec {
        CuckooSpec {
            capacity: self.capacity,
            bucket_size: self.bucket_size(),
            max_iterations: self.max_iterations,
            expansion: self.expansion,
            origin: self.origin,
            hash: self.hash,
            seed: self.seed(),
        }
    }

    /// Slots per bucket.
    fn bucket_size(&self) -> u8 {
        self.tables().first().map_or(0, Table::bucket_size)
    }

    #[inline(always)]
    fn seed(&self) -> Seed {
        let high = match self.hash {
            HashKind::Xxh3 => 0,
            HashKind::SipHash => self.body.so_far().map_or(0, |more| more.seed_high),
        };
        Seed { low: self.seed_low, high }
    }

    /// Sub-filters from oldest to newest.
    #[inline(always)]
    pub fn tables(&self) -> &[Table] {
        self.body.tables()
    }

    /// Number of fingerprints that the filter holds.
    pub fn items(&self) -> u64 {
        self.tables().iter().map(Table::items).sum()
    }

    /// Number of items deleted since the last compaction.
    pub fn deletes(&self) -> u64 {
        self.body.so_far().map_or(0, |more| more.deletes)
    }

    /// Number of fingerprints moved so far. Slots that were dumped before a move don't match those dumped after it.
    pub fn moves(&self) -> u64 {
        self.body.so_far().map_or(0, |more| more.moves)
    }

    /// Number of slots that searches for room have looked at. When a filter is nearly full, these searches account for
    /// most of the cost of adding.
    #[doc(hidden)]
    pub fn searched(&self) -> u64 {
        self.body.so_far().map_or(0, |more| more.searched)
    }

    /// Number of slots that a test looks at.
    #[doc(hidden)]
    pub fn slots_asked(&self) -> usize {
        2 * usize::from(self.bucket_size()) * self.tables().len()
    }

    /// The keyed hash function.
    pub fn hasher(&self) -> Hasher {
        self.hash.hasher(self.seed())
    }

    /// The hash of an item, valid only for this filter.
    #[doc(hidden)]
    #[inline]
    pub fn hash(&self, item: &[u8]) -> CuckooHash {
        Prefetcher { origin: self.origin, hasher: self.hasher(), newest: None }.hash(item)
    }

    /// The hasher for items that are about to be tested or added.
    #[inline(always)]
    #[doc(hidden)]
    pub fn prefetcher(&self) -> Prefetcher<'_> {
        let newest = self.tables().last().and_then(Table::distant);
        Prefetcher { origin: self.origin, hasher: self.hasher(), newest }
    }

    /// Whether the item may be in the filter.
    pub fn contains(&self, item: impl CuckooItem) -> bool {
        let item = item.hash_for(self);
        self.tables().iter().rev().any(|table| table.view().contains(item))
    }

    /// Tests items in order, in groups of `group` (at most [`GROUP`]), and passes each group's answers and its number
    /// of items to `show`. The buckets of a group are fetched together if the items were hashed
    /// [ahead](Cuckoo::prefetcher) of the test.
    #[inline(always)]
    #[doc(hidden)]
    pub fn test_each(
        &self,
        mut items: impl Iterator<Item = CuckooHash>,
        group: usize,
        mut show: impl FnMut(Hits, usize),
    ) {
        let mut hashes = [CuckooHash::default(); GROUP];
        loop {
            let mut len = 0;
            for (slot, item) in hashes.iter_mut().take(group).zip(items.by_ref()) {
                *slot = item;
                len += 1;
            }
            if len > 0 {
                show(self.contains_many(&hashes[..len]), len);
            }
            if len < group {
                return;
            }
        }
    }

    /// Which of up to [`GROUP`] items may be in the filter. While one sub-filter is tested, the buckets of the next are
    /// prefetched.
    #[inline(always)]
    fn contains_many(&self, items: &[CuckooHash]) -> Hits {
        let Some((newest, older)) = self.tables().split_last() else { return Hits::default() };
        let all = Hits::first(items.len());
        let mut hits = Hits::default();
        let newest = newest.view();
        for (index, item) in items.iter().enumerate() {
            hits = hits.with(index, newest.contains(*item));
        }
        let mut next = older.iter().rev();
        if let Some(older) = next.next().and_then(Table::distant) {
            (all & !hits).for_each(|index| older.prefetch_both(items[index]));
        }
        for table in older.iter().rev() {
            let (table, next) = (table.view(), next.next().and_then(Table::distant));
            for index in all & !hits {
                hits = hits.with(index, table.contains(items[index]));
                if let Some(next) = next {
                    next.prefetch_both(items[index]);
                }
            }
        }
        hits
    }

    /// An upper bound on the number of occurrences of the item, provided that every deleted item had been added.
    pub fn count(&self, item: impl CuckooItem) -> u64 {
        let item = item.hash_for(self);
        self.tables().iter().map(|table| table.view().count(item)).sum()
    }

    /// Adds one occurrence of the item and grows if necessary.
    ///
    /// # Errors
    /// [`Error::Full`] if the filter isn't allowed to grow, or the error of [`grow`](Cuckoo::grow). Then nothing has
    /// changed.
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

    /// Adds one occurrence of the item without growing. Uses a free slot, in the newest sub-filter that has one in the
    /// item's buckets. If there is none, moves other fingerprints of the newest sub-filter.
    ///
    /// # Errors
    /// [`Error::Full`]; then nothing has changed. See [`grow`](Cuckoo::grow).
    pub fn try_insert(&mut self, item: impl CuckooItem) -> Result<(), Error> {
        let item = item.hash_for(self);
        let is_in = match &mut self.body {
            Body::One(table) => table.insert(item),
            Body::More(more) => more.insert(item),
        };
        if !is_in {
            let moved = self.make_room(item).ok_or(Error::Full)?;
            self.body.more().moves += u64::from(moved);
        }
        Ok(())
    }

    /// Adds items in order for as long as each finds a free slot in the newest sub-filter without a search. Returns the
    /// number of items added. Use [`try_insert`](Cuckoo::try_insert) for the next one.
    #[inline(always)]
    #[doc(hidden)]
    pub fn insert_each(&mut self, items: &[CuckooHash]) -> usize {
        match &self.body {
            Body::One(table) => table.insert_each(items),
            Body::More(more) => more.tables.last().map_or(0, |newest| newest.insert_each(items)),
        }
    }

    /// Maximum number of fingerprints that a search for room moves before it has found a free slot. 0 for our own
    /// search, which moves nothing until it has found one.
    #[doc(hidden)]
    pub fn longest_walk(&self) -> u16 {
        if self.origin == Origin::RedisBloom { self.max_iterations } else { 0 }
    }

    /// Adds an item to the newest sub-filter by moving other fingerprints. Returns the number of moves, or `None` if
    /// there is no room.
    fn make_room(&mut self, item: CuckooHash) -> Option<u16> {
        self.tables().last().filter(|newest| !newest.is_full())?;
        let (origin, most) = (self.origin, self.max_iterations);
        let More { tables, searched, .. } = self.body.more();
        let newest = tables.last()?;
        match origin {
            Origin::RedisBloom => newest.insert_by_kicking(item, most, searched),
            Origin::Bloomery | Origin::RedisBloom1 => newest.insert_by_moving(item, most, searched),
        }
    }

    /// Bytes of the sub-filter that [`grow`](Cuckoo::grow) would add; `None` if the filter cannot grow.
    pub fn next_bytes(&self) -> Option<u64> {
        let len = self.tables().len();
        if len >= limits::MAX_TABLES || self.expansion == 0 {
            return None;
        }
        let spec = self.spec();
        Some(spec.bytes_of(spec.buckets_of(len)?))
    }

    /// Adds the next sub-filter.
    ///
    /// # Errors
    /// [`Error::Full`] if the filter isn't allowed to grow, [`Error::TooManyLayers`], [`Error::OutOfMemory`].
    pub fn grow(&mut self) -> Result<(), Error> {
        if self.next_bytes().is_none() {
            return Err(if self.expansion == 0 { Error::Full } else { Error::TooManyLayers });
        }
        let spec = self.spec();
        let buckets = spec.buckets_of(self.tables().len()).ok_or(Error::TooManyLayers)?;
        self.body.more().tables.push(Table::new(buckets, spec.bucket_size)?);
        Ok(())
    }

    /// Deletes one occurrence of the item. Returns false if the item is certainly absent.
    pub fn remove(&mut self, item: impl CuckooItem) -> bool {
        let item = item.hash_for(self);
        let removed = self.tables().iter().rev().any(|table| table.remove(item));
        if removed {
            self.body.more().deletes += 1;
        }
        removed
    }

    /// Bytes of memory, including all overhead.
    pub fn allocated(&self) -> usize {
        let tables = self.tables();
        let list = if tables.len() > 1 { size_of_val(tables) } else { 0 };
        let is_more = tables.len() > 1 || self.deletes() > 0 || self.moves() > 0 || self.seed().high != 0;
        let more = if is_more { size_of::<More>() + list } else { 0 };
        size_of::<Cuckoo>() + more + tables.iter().map(Table::allocated).sum::<usize>()
    }

    /// Number of slots in all sub-filters.
    pub fn slots(&self) -> u64 {
        self.tables().iter().map(Table::slot_count).sum()
    }

    /// Fraction of the slots that are in use.
    pub fn fill(&self) -> f64 {
        self.items() as f64 / self.slots() as f64
    }

    /// The false-positive rate when this fraction of the slots is in use. In every sub-filter, an absent item matches
    /// each fingerprint in its two buckets with a probability of 1/255.
    pub fn rate_at(&self, fill: f64) -> f64 {
        let seen = 2.0 * f64::from(self.bucket_size()) * self.tables().len() as f64 * fill;
        -libm::expm1(seen * libm::log1p(-1.0 / hash::FINGERPRINTS as f64))
    }

    /// Bytes of all slots.
    pub fn bytes(&self) -> u64 {
        self.tables().iter().map(|table| table.bytes()).sum()
    }

    /// A copy that shares no memory with this filter.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn snapshot(&self) -> Result<Cuckoo, Error> {
        self.copy(&alone)
    }

    /// Like [`snapshot`](Cuckoo::snapshot), but made on the threads of `parallel`.
    #[doc(hidden)]
    pub fn copy(&self, parallel: &ParallelFor<'_>) -> Result<Cuckoo, Error> {
        let copy = |table: &Table| table.copy(parallel);
        let body = match &self.body {
            Body::One(table) => Body::One(copy(table)?),
            Body::More(more) => Body::More(Box::new(
                more.with_tables(more.tables.iter().map(copy).collect::<Result<_, _>>()?),
            )),
        };
        Ok(Cuckoo { body, dump_number: dump_number::next(), ..*self })
    }

    /// A filter with the same slots in the same memory, for reading in another thread. The two are equal until this
    /// filter changes; see [`is_shared_with`](Cuckoo::is_shared_with).
    #[doc(hidden)]
    pub fn share(&mut self) -> Cuckoo {
        let more = self.body.more();
        let (mine, theirs) = mem::take(&mut more.tables).into_iter().map(Table::shared).unzip();
        more.tables = mine;
        Cuckoo { body: Body::More(Box::new(more.with_tables(theirs))), ..*self }
    }

    /// Whether the other filter was created by [sharing](Cuckoo::share) this one, and this one hasn't changed since.
    #[doc(hidden)]
    pub fn is_shared_with(&self, other: &Cuckoo) -> bool {
        // Adding changes the number of items, and deleting changes the number of deletes. Any operation that resets the
        // number of deletes to 0 gives the filter a new dump number.
        let counts = |filter: &Cuckoo| (filter.items(), filter.deletes(), filter.moves(), filter.dump_number);
        let mut pairs = self.tables().iter().zip(other.tables());
        self.tables().len() == other.tables().len()
            && pairs.all(|(mine, theirs)| mine.is(theirs))
            && counts(self) == counts(other)
    }

    /// See [`FilterRef::dump_number`](super::FilterRef::dump_number).
    pub(super) fn dump_number(&self) -> u16 {
        self.dump_number
    }
}

/// An item that a cuckoo filter accepts: bytes.
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

/// Lets commands pass an item that they have already hashed for the filter.
impl CuckooItem for CuckooHash {
    #[inline(always)]
    fn hash_for(&self, _: &Cuckoo) -> CuckooHash {
        *self
    }
}

impl std::fmt::Debug for Cuckoo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cuckoo")
            .field("spec", &self.spec())
            .field("items", &self.items())
            .finish_non_exhaustive()
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
            // The failed insert hasn't changed anything, and the moves haven't lost any fingerprint.
            assert_eq!(filter.items(), u64::from(items));
            assert_eq!(filter.tables()[0].occupied().count(), items as usize);
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

    /// RedisBloom's walk, forward and back: a failed add leaves every fingerprint in its slot.
    #[test]
    fn a_walk_that_fails_is_undone() {
        for (bucket_size, max_iterations) in [(1, 1), (1, 500), (2, 20), (3, 7), (4, 65_535)] {
            let origin = Origin::RedisBloom;
            let fixed = CuckooSpec { origin, max_iterations, ..spec(64, bucket_size, 0) };
            let mut filter = Cuckoo::new(fixed).unwrap();
            let (mut refused, mut moved) = (0, 0);
            for item in 0..400u32 {
                let before: Vec<_> = filter.tables()[0].occupied().collect();
                let moves = filter.moves();
                match filter.try_insert(item.to_le_bytes()) {
                    Ok(()) => moved += filter.moves() - moves,
                    Err(why) => {
                        refused += 1;
                        assert_eq!((why, filter.moves()), (Error::Full, moves));
                        assert!(filter.tables()[0].occupied().eq(before), "{bucket_size} {item}");
                    }
                }
                assert_eq!(filter.tables()[0].occupied().count() as u64, filter.items());
            }
            assert!(refused > 100 && moved > 0, "{bucket_size} {max_iterations}: {refused} {moved}");
        }
    }

    #[test]
    fn the_slots_that_a_test_looks_at_are_limited() {
        // With 8 slots per bucket, a filter can have as many sub-filters as RedisBloom allows; with more slots, it can
        // have fewer.
        assert!(spec(16, 8, 1).buckets_of(limits::MAX_TABLES - 1).is_some());
        assert!(spec(510, 255, 1).buckets_of(2055).is_some() && spec(510, 255, 1).buckets_of(2056).is_none());
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

    /// Tests groups of different lengths, in filters with one sub-filter and with several.
    #[test]
    fn a_group_is_answered_as_its_items_are() {
        let mut filter = Cuckoo::new(CuckooSpec::new(64)).unwrap();
        for sub_filters in [1, 2, 3, 7] {
            for item in 0u64.. {
                if filter.tables().len() > sub_filters {
                    break;
                }
                filter.insert(item.to_le_bytes()).unwrap();
            }
            for group in [1, 4, 31, GROUP] {
                let items = || (0..700u64).map(|item| filter.hash(&item.to_le_bytes()));
                let mut answers = Vec::new();
                filter.test_each(items(), group, |hits, len| {
                    answers.extend((0..len).map(|index| hits.has(index)))
                });
                assert!(
                    answers.into_iter().eq(items().map(|item| filter.contains(item))),
                    "{sub_filters} {group}"
                );
            }
        }
    }
}
