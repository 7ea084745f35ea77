//! A table of buckets: one sub-filter.

use crate::bits::counter;
use crate::error::Error;
use crate::mem::Words;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;

/// Multiplies the fingerprint when the second bucket's index is computed: MurmurHash2's constant, as in RedisBloom.
const SPREAD: u64 = 0x5bd1_e995;

/// Number of distinct fingerprints: all bytes but 0, which marks a free slot.
pub(super) const FINGERPRINTS: u64 = 255;

/// Maximum number of slots that a search for room visits. With four-slot buckets it gives up only when 97% are
/// full.
const SEARCHED: usize = 2048;

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

/// One sub-filter: `buckets` buckets, a power of two, with one byte per slot.
pub struct Table {
    words: Words,
    buckets: u64,
    bucket_size: u8,
}

impl Table {
    pub(super) fn new(buckets: u64, bucket_size: u8) -> Result<Table, Error> {
        let slots = buckets.checked_mul(bucket_size.into()).ok_or(Error::OutOfMemory { bytes: u64::MAX })?;
        Ok(Table { words: Words::zeroed(slots.div_ceil(8))?, buckets, bucket_size })
    }

    /// A table with these slots, `buckets` × `bucket_size` in number.
    pub(super) fn from_words(words: Words, buckets: u64, bucket_size: u8) -> Table {
        Table { words, buckets, bucket_size }
    }

    /// Its slots as words; the bytes after the last slot are 0.
    pub(crate) fn words(&self) -> &Words {
        &self.words
    }

    /// Whether the bytes after the last slot are 0.
    pub(super) fn is_padded(&self) -> bool {
        let slots = self.buckets as usize * usize::from(self.bucket_size);
        (slots..self.words.len() * 8).all(|slot| self.get(slot) == 0)
    }

    /// Slots in use.
    pub(super) fn items(&self) -> u64 {
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
    pub(super) fn set(&self, slot: usize, fingerprint: u8) {
        counter::store(&self.words, SLOT_BITS, slot, fingerprint.into());
    }

    /// The item's two buckets, which are occasionally the same.
    #[inline(always)]
    fn pair(&self, item: CuckooHash) -> [u64; 2] {
        [item.first & (self.buckets - 1), item.second & (self.buckets - 1)]
    }

    /// The other bucket of a fingerprint that is in `bucket`.
    #[inline(always)]
    fn other(&self, bucket: u64, fingerprint: u8) -> u64 {
        (bucket ^ (u64::from(fingerprint) * SPREAD)) & (self.buckets - 1)
    }

    /// The first slot in the item's buckets that contains `wanted`.
    #[inline]
    fn find(&self, item: CuckooHash, wanted: u8) -> Option<usize> {
        self.pair(item)
            .into_iter()
            .flat_map(|bucket| self.slots(bucket))
            .find(|slot| self.get(*slot) == wanted)
    }

    pub(super) fn contains(&self, item: CuckooHash) -> bool {
        self.find(item, item.fingerprint).is_some()
    }

    pub(super) fn insert(&self, item: CuckooHash) -> bool {
        let free = self.find(item, 0);
        if let Some(slot) = free {
            self.set(slot, item.fingerprint);
        }
        free.is_some()
    }

    pub(super) fn remove(&self, item: CuckooHash) -> bool {
        let slot = self.find(item, item.fingerprint);
        if let Some(slot) = slot {
            self.set(slot, 0);
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
        while next < steps.len() {
            let Step { slot, bucket, depth, .. } = steps[next];
            let other = self.other(bucket, self.get(slot));
            if let Some(free) = self.slots(other).find(|slot| self.get(*slot) == 0) {
                // Backwards from the free slot: write, then vacate.
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

    pub(super) fn occupied(&self) -> impl Iterator<Item = (u64, usize, u8)> {
        (0..self.buckets).flat_map(|bucket| self.slots(bucket).map(move |slot| (bucket, slot))).filter_map(
            |(bucket, slot)| match self.get(slot) {
                0 => None,
                fingerprint => Some((bucket, slot, fingerprint)),
            },
        )
    }

    pub(super) fn snapshot(&self) -> Result<Table, Error> {
        Ok(Table { words: self.words.copy()?, ..*self })
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
