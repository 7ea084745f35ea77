//! A table of buckets: one sub-filter.

use super::super::identity;
use crate::bits::counter;
use crate::error::Error;
use crate::mem::Words;
use crate::parallel::{ParallelFor, in_parts};
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;
use std::ops::Range;

/// Multiplies the fingerprint when the second bucket's index is computed: MurmurHash2's constant, as in RedisBloom.
const SPREAD: u64 = 0x5bd1_e995;

/// Number of distinct fingerprints: all bytes but 0, which marks a free slot.
pub(super) const FINGERPRINTS: u64 = 255;

/// Maximum number of slots that a search for room visits. With four-slot buckets it gives up only when 97% are
/// full.
const SEARCHED: usize = 2048;

/// Maximum number of slots that a search for room looks at. With up to 64 slots a bucket, [`SEARCHED`] ends it first.
const LOOKED_AT: usize = 131_072;

/// Bits per slot.
const SLOT_BITS: u32 = 8;

/// The part of an item's hash that a cuckoo filter uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuckooHash {
    first: u64,
    second: u64,
    fingerprint: u8,
}

impl CuckooHash {
    /// Derived from 64 bits of hash.
    #[inline]
    pub fn new(hash: u64) -> CuckooHash {
        let fingerprint = hash % FINGERPRINTS + 1;
        CuckooHash { first: hash, second: hash ^ (fingerprint * SPREAD), fingerprint: fingerprint as u8 }
    }

    /// Derived from a fingerprint and the bucket it is in. That bucket's table must be at least as large as the
    /// tables that will be searched.
    #[inline]
    pub(super) fn found_in(bucket: u64, fingerprint: u8) -> CuckooHash {
        CuckooHash { first: bucket, second: bucket ^ (u64::from(fingerprint) * SPREAD), fingerprint }
    }

    /// Derived from 32 bits of hash, as in RedisBloom before 2.2.0.
    pub fn old(hash: u32) -> CuckooHash {
        let fingerprint = if hash >> 24 == 0 { 7 } else { hash >> 24 } as u8;
        let spread = (u64::from(fingerprint) * SPREAD) & u64::from(u32::MAX);
        let first = u64::from(hash);
        CuckooHash { first, second: first ^ spread, fingerprint }
    }
}

/// Slots in use in these words of a table.
pub(crate) fn fingerprints(words: &[AtomicU64]) -> u64 {
    words.iter().map(|word| u64::from(counter::census(SLOT_BITS, word.load(Relaxed)).0)).sum()
}

/// One sub-filter: `buckets` buckets, a power of two, with one byte per slot.
pub struct Table {
    words: Words,
    /// Slots in use.
    used: AtomicU64,
    log2_buckets: u8,
    bucket_size: u8,
    /// In bytes that would be padding. That of the oldest table is the filter's.
    identity: u16,
}

impl Table {
    pub(super) fn new(buckets: u64, bucket_size: u8) -> Result<Table, Error> {
        let slots = buckets.checked_mul(bucket_size.into()).ok_or(Error::OutOfMemory { bytes: u64::MAX })?;
        let used = AtomicU64::new(0);
        let log2_buckets = buckets.trailing_zeros() as u8;
        let words = Words::zeroed(slots.div_ceil(8))?;
        Ok(Table { words, used, log2_buckets, bucket_size, identity: identity::next() })
    }

    /// A table with these slots, `buckets` × `bucket_size` in number, of which `used` are in use.
    pub(super) fn from_words(words: Words, used: u64, buckets: u64, bucket_size: u8) -> Table {
        let (used, log2_buckets) = (AtomicU64::new(used), buckets.trailing_zeros() as u8);
        Table { words, used, log2_buckets, bucket_size, identity: identity::next() }
    }

    /// Replaces the slots from `offset` on, which lie within the table. Returns the number of slots in use among them
    /// before and after.
    pub(super) fn overwrite(&self, offset: u64, slots: &[u8]) -> (u64, u64) {
        let around = self.words.around(offset, slots.len());
        let before = fingerprints(around);
        self.words.set_bytes(offset, slots);
        let after = fingerprints(around);
        self.used.store((self.items() + after).saturating_sub(before), Relaxed);
        (before, after)
    }

    /// Its slots as words; the bytes after the last slot are 0.
    pub(crate) fn words(&self) -> &Words {
        &self.words
    }

    /// Whether the bytes after the last slot are 0.
    pub(super) fn is_padded(&self) -> bool {
        (self.slot_count() as usize..self.words.len() * 8).all(|slot| self.get(slot) == 0)
    }

    pub(super) fn identity(&self) -> u16 {
        self.identity
    }

    /// Slots in use.
    pub(super) fn items(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Whether no slot is free.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.items() == self.slot_count()
    }

    #[inline(always)]
    fn slot_count(&self) -> u64 {
        u64::from(self.bucket_size) << self.log2_buckets
    }

    /// Number of buckets.
    #[inline(always)]
    pub fn buckets(&self) -> u64 {
        1 << self.log2_buckets
    }

    /// Bytes of the slots.
    pub fn bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    /// Indices of a bucket's slots.
    #[inline(always)]
    fn slots(&self, bucket: u64) -> Range<usize> {
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

    /// Puts a fingerprint into a free slot. One thread writes.
    #[inline(always)]
    fn occupy(&self, slot: usize, fingerprint: u8) {
        self.set(slot, fingerprint);
        self.used.store(self.items() + 1, Relaxed);
    }

    /// Frees a slot that is in use.
    #[inline(always)]
    pub(super) fn vacate(&self, slot: usize) {
        self.set(slot, 0);
        self.used.store(self.items() - 1, Relaxed);
    }

    /// The item's two buckets, which are occasionally the same.
    #[inline(always)]
    fn pair(&self, item: CuckooHash) -> [u64; 2] {
        [item.first & (self.buckets() - 1), item.second & (self.buckets() - 1)]
    }

    /// The other bucket of a fingerprint that is in `bucket`.
    #[inline(always)]
    fn other(&self, bucket: u64, fingerprint: u8) -> u64 {
        (bucket ^ (u64::from(fingerprint) * SPREAD)) & (self.buckets() - 1)
    }

    /// The first slot in the item's buckets that contains `wanted`.
    #[inline]
    fn find(&self, item: CuckooHash, wanted: u8) -> Option<usize> {
        self.pair(item).into_iter().find_map(|bucket| self.find_in(bucket, wanted))
    }

    /// The first slot of a bucket that contains `wanted`, eight slots at a time.
    #[inline(always)]
    fn find_in(&self, bucket: u64, wanted: u8) -> Option<usize> {
        const ONES: u64 = u64::MAX / 0xff;
        let Range { start, end } = self.slots(bucket);
        (start / 8..end.div_ceil(8)).find_map(|index| {
            // Bytes that are 0 where the slot contains it. Those of other buckets aren't.
            let mut differ = self.words[index].load(Relaxed) ^ (ONES * u64::from(wanted));
            if index == start / 8 {
                differ |= !(u64::MAX << (start % 8 * 8));
            }
            if index == end / 8 {
                differ |= u64::MAX << (end % 8 * 8);
            }
            // Sets the highest bit of the lowest byte that is 0, and of some above it.
            let zero = differ.wrapping_sub(ONES) & !differ & (ONES << 7);
            (zero != 0).then(|| index * 8 + zero.trailing_zeros() as usize / 8)
        })
    }

    pub(super) fn contains(&self, item: CuckooHash) -> bool {
        self.find(item, item.fingerprint).is_some()
    }

    pub(super) fn insert(&self, item: CuckooHash) -> bool {
        // A filter that has grown often has many full sub-filters, whose slots need not be looked at.
        let free = if self.is_full() { None } else { self.find(item, 0) };
        if let Some(slot) = free {
            self.occupy(slot, item.fingerprint);
        }
        free.is_some()
    }

    pub(super) fn remove(&self, item: CuckooHash) -> bool {
        let slot = self.find(item, item.fingerprint);
        if let Some(slot) = slot {
            self.vacate(slot);
        }
        slot.is_some()
    }

    /// Counts as RedisBloom does: if both of the item's buckets are the same one, it counts twice.
    pub(super) fn count(&self, item: CuckooHash) -> u64 {
        let buckets = self.pair(item).into_iter();
        buckets
            .flat_map(|bucket| self.slots(bucket))
            .filter(|slot| self.get(*slot) == item.fingerprint)
            .count() as u64
    }

    /// Inserts by moving as few other fingerprints as possible, and at most `most`. Returns how many were moved;
    /// `None` if there is no such way, and then nothing has changed.
    pub(super) fn insert_by_moving(&self, item: CuckooHash, most: u16) -> Option<u16> {
        // A slot to be vacated, and the index of the step that gets its place.
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
        while next < steps.len() && next * usize::from(self.bucket_size) < LOOKED_AT {
            let Step { slot, bucket, depth, .. } = steps[next];
            let other = self.other(bucket, self.get(slot));
            if let Some(free) = self.find_in(other, 0) {
                // Backwards from the free slot: write, then vacate.
                let (mut to, mut step) = (free, Some(next));
                while let Some(index) = step {
                    self.set(to, self.get(steps[index].slot));
                    (to, step) = (steps[index].slot, steps[index].parent);
                }
                self.set(to, item.fingerprint);
                self.used.store(self.items() + 1, Relaxed);
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

    /// Inserts as RedisBloom makes room: puts the fingerprint into a slot of its first bucket, takes what was there to
    /// that one's other bucket, and so on, `most` times. Slots are taken in turn, not at random, so every server that
    /// starts from the same bytes ends with the same bytes. Returns how many fingerprints were moved; `None` if there
    /// still was no free slot, and then the walk is undone.
    pub(super) fn insert_by_kicking(&self, item: CuckooHash, most: u16) -> Option<u16> {
        let (mut bucket, mut fingerprint) = (item.first & (self.buckets() - 1), item.fingerprint);
        let slot_of =
            |bucket, turn: u16| self.slots(bucket).start + usize::from(turn) % usize::from(self.bucket_size);
        let swap = |slot, fingerprint| {
            let kicked = self.get(slot);
            self.set(slot, fingerprint);
            kicked
        };
        for turn in 0..most {
            fingerprint = swap(slot_of(bucket, turn), fingerprint);
            bucket = self.other(bucket, fingerprint);
            if let Some(free) = self.find_in(bucket, 0) {
                self.occupy(free, fingerprint);
                return Some(turn + 1);
            }
        }
        // The way back: a fingerprint's other bucket is where it was kicked from.
        for turn in (0..most).rev() {
            bucket = self.other(bucket, fingerprint);
            fingerprint = swap(slot_of(bucket, turn), fingerprint);
        }
        None
    }

    /// Bucket, slot and fingerprint of every slot in use, in order. Slots may be vacated meanwhile.
    pub(super) fn occupied(&self) -> impl Iterator<Item = (u64, usize, u8)> {
        let in_use = self.words.iter().enumerate().map(|(index, word)| (index, word.load(Relaxed)));
        // Whole words of free slots are skipped: a sub-filter that is being emptied has many.
        let in_use = in_use.filter(|(_, word)| *word != 0);
        let bucket_size = usize::from(self.bucket_size);
        in_use.flat_map(move |(index, word)| {
            let slots =
                word.to_le_bytes().into_iter().enumerate().filter(|(_, fingerprint)| *fingerprint != 0);
            slots.map(move |(slot, fingerprint)| {
                let slot = index * 8 + slot;
                ((slot / bucket_size) as u64, slot, fingerprint)
            })
        })
    }

    /// A copy, made on the threads of `parallel`.
    pub(super) fn copy(&self, parallel: &ParallelFor<'_>) -> Result<Table, Error> {
        let words = Words::zeroed(self.words.len() as u64)?;
        in_parts(words.len(), parallel, |part| words.copy_range(&self.words, part));
        let used = AtomicU64::new(self.items());
        Ok(Table { words, used, identity: identity::next(), ..*self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors recorded from RedisBloom, which hashes with MurmurHash64A and seed 0. The hashes are given here.
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
}
