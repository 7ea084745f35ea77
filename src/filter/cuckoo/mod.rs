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
mod items;
pub(super) mod prefetcher;
mod search;
mod spec;
mod std_traits;
mod table;

pub use hash::CuckooHash;
pub use items::{CuckooItem, GROUP};
pub use spec::{CuckooSpec, Origin};
pub use table::Table;
pub(crate) use table::{fingerprints, slots_in_use};

use super::{Refusal, Refused, dump_number};
use crate::error::Error;
use crate::hash::{HashKind, Hasher, Seed};
use crate::mem::Words;
use crate::parallel::{ParallelFor, alone};
use crate::params::limits;
use alloc::boxed::Box;
use body::{Body, More};
use core::mem;
use prefetcher::Prefetcher;

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

    /// Counts an item that the filter refused.
    #[doc(hidden)]
    pub fn refuse(&mut self, why: Refusal) {
        self.body.more().refused.count(why);
    }

    /// Numbers of items that the filter refused.
    #[doc(hidden)]
    pub fn refused(&self) -> Refused {
        self.body.so_far().map_or_else(Refused::default, |more| more.refused.clone())
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
        // number of deletes to 0 gives the filter a new dump number. An add that finds no room searches: it may move
        // fingerprints and put them back, and a copy made meanwhile may lack one.
        let counts = |filter: &Cuckoo| {
            (filter.items(), filter.deletes(), filter.moves(), filter.searched(), filter.dump_number)
        };
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

impl core::fmt::Debug for Cuckoo {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Cuckoo")
            .field("spec", &self.spec())
            .field("items", &self.items())
            .finish_non_exhaustive()
    }
}
