//! A table of buckets: one sub-filter.

use super::buckets::Buckets;
use super::hash::CuckooHash;
use crate::error::Error;
use crate::mem::{Cells, Words};
use crate::parallel::{ParallelFor, in_parts};
use crate::params::limits;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;
use alloc::sync::Arc;
use smallvec::SmallVec;
// These aren't loom's types, which are larger. No loom model uses bucket tables.
use core::sync::atomic::{AtomicU16, AtomicU32};

/// Buckets are prefetched in tables of more than this many bytes. Smaller tables fit in the L2 cache.
const PREFETCHED_FROM: u64 = 1 << 20;

/// Number of slots in use in these words of a table.
pub(crate) fn fingerprints(words: &[AtomicU64]) -> u64 {
    let mut bytes = [0; 256];
    let slots = words.chunks(bytes.len() / 8).map(|words| {
        let bytes = &mut bytes[..words.len() * 8];
        Words::read_bytes(words, 0, bytes);
        slots_in_use(bytes)
    });
    slots.sum()
}

/// Number of these slots, one byte each, that are in use. The counters are also bytes, so that 16 slots can be counted
/// at once. A byte can count up to 255, so the slots are counted in chunks of 240.
pub(crate) fn slots_in_use(bytes: &[u8]) -> u64 {
    let in_use = |slots: &[u8]| slots.iter().fold(0u8, |sum, slot| sum + u8::from(*slot != 0));
    bytes.chunks(240).map(|slots| u64::from(in_use(slots))).sum()
}

const _: () = assert!(limits::MAX_BYTES < 1 << (u32::BITS + u16::BITS));

/// One sub-filter. The number of buckets is a power of two, and a slot is one byte.
///
/// It needs only 24 bytes in addition to its slots. This matters because most filters are small and have one
/// sub-filter.
pub struct Table {
    slots: Slots,
    /// The lower bits of the number of slots in use. `used_high` has the upper bits. The number is at most
    /// [`limits::MAX_BYTES`].
    used_low: AtomicU32,
    used_high: AtomicU16,
    log2_buckets: u8,
    bucket_size: u8,
}

/// The slots. They belong to one table until another thread needs to [read](Table::shared) them.
enum Slots {
    Own(Words),
    Shared(Arc<Words>),
}

impl Table {
    /// A table without items.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn new(buckets: u64, bucket_size: u8) -> Result<Table, Error> {
        let slots = buckets.checked_mul(bucket_size.into()).ok_or(Error::OutOfMemory { bytes: u64::MAX })?;
        Ok(Table::from_words(Words::zeroed(slots.div_ceil(8))?, 0, buckets, bucket_size))
    }

    /// A table with these `buckets` × `bucket_size` slots, of which `used` are in use.
    pub(super) fn from_words(words: Words, used: u64, buckets: u64, bucket_size: u8) -> Table {
        Table::with_slots(Slots::Own(words), used, buckets, bucket_size)
    }

    fn with_slots(slots: Slots, used: u64, buckets: u64, bucket_size: u8) -> Table {
        let table = Table {
            slots,
            used_low: AtomicU32::new(0),
            used_high: AtomicU16::new(0),
            log2_buckets: buckets.trailing_zeros() as u8,
            bucket_size,
        };
        table.set_used(used);
        table
    }

    /// The table and a second one with the same slots in the same memory. Each keeps its own count of the slots in use.
    pub(super) fn shared(self) -> (Table, Table) {
        let (used, buckets, bucket_size) = (self.items(), self.buckets(), self.bucket_size);
        let slots = match self.slots {
            Slots::Own(words) => Arc::new(words),
            Slots::Shared(words) => words,
        };
        let of = |slots| Table::with_slots(Slots::Shared(slots), used, buckets, bucket_size);
        (of(Arc::clone(&slots)), of(slots))
    }

    /// Whether both tables have the same slots in the same memory.
    pub(super) fn is(&self, other: &Table) -> bool {
        self.words().as_ptr() == other.words().as_ptr()
    }

    /// Bytes of memory for the slots, including all overhead.
    pub(super) fn allocated(&self) -> usize {
        match &self.slots {
            Slots::Own(words) => words.allocated(),
            Slots::Shared(words) => words.allocated(),
        }
    }

    /// Adds `more` to the number of slots in use; a negative number means that slots were freed. Only one thread may
    /// write. A copy made during a write may have more slots in use than it has counted, so the number stops at 0
    /// instead of falling below it.
    #[inline(always)]
    pub(super) fn count_used(&self, more: i64) {
        self.set_used(self.items().saturating_add_signed(more));
    }

    #[inline(always)]
    fn set_used(&self, used: u64) {
        self.used_low.store(used as u32, Relaxed);
        self.used_high.store((used >> u32::BITS) as u16, Relaxed);
    }

    /// Replaces slots, beginning at `offset`. They must lie within the table.
    pub(super) fn overwrite(&self, offset: u64, slots: &[u8]) {
        let around = Words::around(self.words(), offset, slots.len());
        let before = fingerprints(around);
        Words::set_bytes(self.words(), offset, slots);
        self.count_used(fingerprints(around) as i64 - before as i64);
    }

    /// The slots as words. The bytes after the last slot are 0.
    #[inline(always)]
    pub(crate) fn words(&self) -> &Cells {
        match &self.slots {
            Slots::Own(words) => words,
            Slots::Shared(words) => words,
        }
    }

    /// Whether the bytes after the last slot are 0.
    pub(super) fn is_padded(&self) -> bool {
        (self.slot_count() as usize..self.words().len() * 8).all(|slot| self.get(slot) == 0)
    }

    /// Number of slots in use.
    pub(super) fn items(&self) -> u64 {
        u64::from(self.used_high.load(Relaxed)) << u32::BITS | u64::from(self.used_low.load(Relaxed))
    }

    /// Whether no slot is free.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.items() == self.slot_count()
    }

    #[inline(always)]
    pub(super) fn slot_count(&self) -> u64 {
        self.buckets() * u64::from(self.bucket_size())
    }

    /// Number of buckets.
    #[inline(always)]
    pub fn buckets(&self) -> u64 {
        1 << self.log2_buckets
    }

    /// Slots per bucket.
    #[inline(always)]
    pub(super) fn bucket_size(&self) -> u8 {
        self.bucket_size
    }

    /// Size of the slots in bytes.
    pub fn bytes(&self) -> u64 {
        self.words().len() as u64 * 8
    }

    #[inline(always)]
    pub(super) fn get(&self, slot: usize) -> u8 {
        self.view().get(slot)
    }

    #[inline(always)]
    pub(super) fn set(&self, slot: usize, fingerprint: u8) {
        self.view().set(slot, fingerprint);
    }

    /// Puts a fingerprint into a free slot. Only one thread may write.
    #[inline(always)]
    fn occupy(&self, slot: usize, fingerprint: u8) {
        self.set(slot, fingerprint);
        self.count_used(1);
    }

    /// Frees a slot that is in use.
    #[inline(always)]
    pub(super) fn vacate(&self, slot: usize) {
        self.set(slot, 0);
        self.count_used(-1);
    }

    /// The table's buckets.
    #[inline(always)]
    pub(super) fn view(&self) -> Buckets<'_> {
        Buckets::new(self.words(), self.buckets(), self.bucket_size)
    }

    /// The buckets, if they should be prefetched; otherwise `None`.
    #[inline(always)]
    pub(super) fn distant(&self) -> Option<Buckets<'_>> {
        (self.bytes() > PREFETCHED_FROM).then(|| self.view())
    }

    /// Puts the item into a free slot in one of its buckets. Returns false if both buckets are full.
    pub(super) fn insert(&self, item: CuckooHash) -> bool {
        // After repeated growth, a filter has many full sub-filters. Their slots needn't be visited.
        let free = if self.is_full() { None } else { self.view().find(item, 0) };
        if let Some(slot) = free {
            self.occupy(slot, item.fingerprint);
        }
        free.is_some()
    }

    /// Puts items into free slots of their buckets, in order, up to the first item whose buckets are full. Returns the
    /// number of items inserted.
    #[inline(always)]
    pub(super) fn insert_each(&self, items: &[CuckooHash]) -> usize {
        if self.is_full() {
            return 0;
        }
        let buckets = self.view();
        let is_put = |item: &&CuckooHash| match buckets.find(**item, 0) {
            Some(slot) => {
                buckets.set(slot, item.fingerprint);
                true
            }
            None => false,
        };
        let put = items.iter().take_while(is_put).count();
        self.count_used(put as i64);
        put
    }

    pub(super) fn remove(&self, item: CuckooHash) -> bool {
        let slot = self.view().find(item, item.fingerprint);
        if let Some(slot) = slot {
            self.vacate(slot);
        }
        slot.is_some()
    }

    /// Inserts the item and makes room as RedisBloom does: puts the fingerprint into a slot of its first bucket, moves
    /// the fingerprint that was there to its other bucket, and so on, up to `most` times. Slots are chosen in turn, not
    /// at random, so all servers that start with the same bytes end with the same bytes. Returns the number of moves,
    /// or `None` if there was still no free slot; then the walk is undone. Adds the number of slots that it looks at to
    /// `searched`.
    pub(super) fn insert_by_kicking(&self, item: CuckooHash, most: u16, searched: &mut u64) -> Option<u16> {
        let (mut bucket, mut fingerprint) = (item.first & (self.buckets() - 1), item.fingerprint);
        let buckets = self.view();
        let slot_of = |bucket, turn: u16| {
            buckets.slots(bucket).start + usize::from(turn) % usize::from(self.bucket_size())
        };
        let mut kicked: SmallVec<[u8; 512]> = SmallVec::new();
        for turn in 0..most {
            *searched += u64::from(self.bucket_size());
            let slot = slot_of(bucket, turn);
            kicked.push(buckets.get(slot));
            buckets.set(slot, fingerprint);
            fingerprint = kicked[usize::from(turn)];
            bucket = buckets.other(bucket, fingerprint);
            if let Some(free) = buckets.find_in(bucket, 0) {
                self.occupy(free, fingerprint);
                return Some(turn + 1);
            }
        }
        // Walks back: a fingerprint's other bucket is the one that it was moved from. No step has to wait for a slot to
        // be read.
        for (turn, fingerprint) in (0..most).zip(kicked).rev() {
            bucket = buckets.other(bucket, fingerprint);
            buckets.set(slot_of(bucket, turn), fingerprint);
        }
        None
    }

    /// Bucket, slot and fingerprint of every slot in use, in order. Slots may be vacated during the iteration.
    pub(super) fn occupied(&self) -> impl Iterator<Item = (u64, usize, u8)> {
        let in_use = self.words().iter().enumerate().map(|(index, word)| (index, word.load(Relaxed)));
        // Words in which all slots are free are skipped, because a sub-filter that is being emptied has many.
        let in_use = in_use.filter(|(_, word)| *word != 0);
        let bucket_size = usize::from(self.bucket_size());
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
        let copy = Words::zeroed(self.words().len() as u64)?;
        in_parts(copy.len(), parallel, |part| Words::copy_range(&copy, self.words(), part));
        Ok(Table::from_words(copy, self.items(), self.buckets(), self.bucket_size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some of the lists have more slots in use than a byte can count.
    #[test]
    fn slots_in_use_are_those_that_are_not_0() {
        for len in [0, 1, 239, 240, 241, 255, 256, 480, 1000] {
            assert_eq!(slots_in_use(&vec![255; len]), len as u64);
            let slots: Vec<u8> = (0..len).map(|slot| (slot % 3) as u8).collect();
            assert_eq!(slots_in_use(&slots), slots.iter().filter(|slot| **slot != 0).count() as u64, "{len}");
        }
    }

    /// Compares the answers with those of a search slot by slot, for many bucket sizes and every position of a bucket
    /// in its words.
    #[test]
    fn whole_words_are_compared_as_slots_are() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) % below
        };
        for bucket_size in (1..=25).chain([64, 255]) {
            let table = Table::new(16, bucket_size).unwrap();
            for slot in 0..table.slot_count() as usize {
                // Uses only a few values, including those around 0 and 128, so that neighbours are often equal, and a
                // carry from one slot to the next would be noticed.
                table.set(slot, [0, 1, 2, 127, 128, 129, 255][random(7) as usize]);
            }
            for wanted in [0, 1, 2, 3, 127, 128, 129, 254, 255] {
                let naive = |bucket| table.view().slots(bucket).filter(|slot| table.get(*slot) == wanted);
                for (first, second) in (0..16).map(|first| (first, random(16))) {
                    let item = CuckooHash { first, second, fingerprint: wanted };
                    let found = naive(first).chain(naive(second)).next();
                    assert_eq!(table.view().find(item, wanted), found, "{bucket_size} {wanted}");
                    assert_eq!(table.view().contains(item), found.is_some(), "{bucket_size} {wanted}");
                    assert_eq!(table.view().count(item), naive(first).chain(naive(second)).count() as u64);
                }
            }
        }
    }
}
