//! The buckets of a table: which buckets an item can be in, and which of their slots contain a given fingerprint.

use super::hash::{CuckooHash, SPREAD};
use crate::bits::counter;
use crate::mem::{Cells, Words};
use crate::sync::Ordering::Relaxed;
use core::ops::Range;

/// Bits per slot.
pub(super) const SLOT_BITS: u32 = 8;

/// The buckets of a table, as values that stay in registers in loops over many items. Loops that use the table itself
/// would read these values again for each item, because the compiler assumes that a write to a slot can change them.
#[derive(Clone, Copy)]
pub(super) struct Buckets<'t> {
    words: &'t Cells,
    /// The index of the last bucket, which is also the mask for indices.
    last: u64,
    /// Slots per bucket.
    size: usize,
}

impl<'t> Buckets<'t> {
    /// `count` buckets of `size` slots each. `count` is a power of two.
    #[inline(always)]
    pub(super) fn new(words: &'t Cells, count: u64, size: u8) -> Buckets<'t> {
        Buckets { words, last: count - 1, size: size.into() }
    }

    /// Indices of a bucket's slots.
    #[inline(always)]
    pub(super) fn slots(self, bucket: u64) -> Range<usize> {
        let first = bucket as usize * self.size;
        first..first + self.size
    }

    /// The fingerprint in a slot, or 0.
    #[inline(always)]
    pub(super) fn get(self, slot: usize) -> u8 {
        counter::get(self.words, SLOT_BITS, slot) as u8
    }

    /// Replaces the content of a slot. Only one thread may write.
    #[inline(always)]
    pub(super) fn set(self, slot: usize, fingerprint: u8) {
        counter::store(self.words, SLOT_BITS, slot, fingerprint.into());
    }

    /// The item's two buckets, which are occasionally identical.
    #[inline(always)]
    pub(super) fn pair(self, item: CuckooHash) -> [u64; 2] {
        [item.first & self.last, item.second & self.last]
    }

    /// The other bucket of a fingerprint that is in `bucket`.
    #[inline(always)]
    pub(super) fn other(self, bucket: u64, fingerprint: u8) -> u64 {
        (bucket ^ (u64::from(fingerprint) * SPREAD)) & self.last
    }

    /// Prefetches the cache line in which a bucket begins.
    #[inline(always)]
    pub(super) fn prefetch(self, bucket: u64) {
        Words::prefetch(self.words, self.slots(bucket).start / 8);
    }

    /// Prefetches both of the item's buckets.
    #[inline(always)]
    pub(super) fn prefetch_both(self, item: CuckooHash) {
        self.pair(item).into_iter().for_each(|bucket| self.prefetch(bucket));
    }

    /// The first slot in the item's buckets that contains `wanted`.
    #[inline(always)]
    pub(super) fn find(self, item: CuckooHash, wanted: u8) -> Option<usize> {
        let [first, second] = self.pair(item);
        match self.find_in(first, wanted) {
            None => self.find_in(second, wanted),
            found => found,
        }
    }

    /// The first slot of a bucket that contains `wanted`.
    #[inline(always)]
    pub(super) fn find_in(self, bucket: u64, wanted: u8) -> Option<usize> {
        let found =
            |(slot, marks): (usize, u64)| (marks != 0).then(|| slot + marks.trailing_zeros() as usize / 8);
        let (first, rest) = self.marks(bucket, wanted);
        found(first).or_else(|| rest.into_iter().flatten().find_map(found))
    }

    /// Marks the slots of a bucket that contain `wanted`. Returns a slot and a word of marks for each of the bucket's
    /// words: byte i of the marks is for the i-th slot after the returned one, and its highest bit is set if that slot
    /// contains `wanted`. The first pair is separate, because most buckets lie in a single word.
    #[inline(always)]
    fn marks(self, bucket: u64, wanted: u8) -> ((usize, u64), Option<impl Iterator<Item = (usize, u64)>>) {
        const ONES: u64 = u64::MAX / 0xff;
        let Range { start, end } = self.slots(bucket);
        let marks = move |index: usize| {
            // XOR sets the bytes of matching slots to 0. All other bytes have their highest bit set, or get it set by
            // adding 127 to their lower seven bits, which never carries into the next byte.
            let differ = self.words[index].load(Relaxed) ^ (ONES * u64::from(wanted));
            let low = ONES * 0x7f;
            !(((differ & low) + low) | differ | low)
        };
        // Excludes the slots of the buckets before and after this one.
        let first = marks(start / 8) >> (start % 8 * 8);
        let of_len = |len: usize| u64::MAX >> (64 - 8 * len);
        if start % 8 + self.size <= 8 {
            return ((start, first & of_len(self.size)), None);
        }
        let last = (end - 1) / 8;
        let rest = (start / 8 + 1..=last).map(move |index| {
            (index * 8, marks(index) & if index == last { of_len(end - index * 8) } else { u64::MAX })
        });
        ((start, first), Some(rest))
    }

    /// Whether a bucket contains `wanted`.
    #[inline(always)]
    pub(super) fn has(self, bucket: u64, wanted: u8) -> bool {
        let ((_, marks), rest) = self.marks(bucket, wanted);
        marks != 0 || rest.is_some_and(|mut rest| rest.any(|(_, marks)| marks != 0))
    }

    /// Whether one of the item's buckets contains its fingerprint.
    #[inline(always)]
    pub(super) fn contains(self, item: CuckooHash) -> bool {
        // Always looks into both buckets. A branch on the result for the first would be mispredicted half of the time.
        let [first, second] = self.pair(item);
        self.has(first, item.fingerprint) | self.has(second, item.fingerprint)
    }

    /// Number of slots in the item's buckets that contain its fingerprint. As in RedisBloom, each counts twice if the
    /// two buckets are identical.
    pub(super) fn count(self, item: CuckooHash) -> u64 {
        let in_bucket = |bucket| {
            let ((_, marks), rest) = self.marks(bucket, item.fingerprint);
            let rest: u32 = rest.into_iter().flatten().map(|(_, marks)| marks.count_ones()).sum();
            u64::from(marks.count_ones() + rest)
        };
        let [first, second] = self.pair(item);
        in_bucket(first) + in_bucket(second)
    }
}
