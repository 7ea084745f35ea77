//! Compaction: fingerprints move from newer sub-filters into free slots of older ones, and the newest sub-filters are
//! freed as they become empty.
//!
//! Each fingerprint goes to the oldest sub-filter that has a free slot in one of its buckets. Looking into all older
//! sub-filters would need one step per sub-filter for each fingerprint. In a filter of 4 MiB with 250 sub-filters, in
//! which hardly any fingerprint could move, this took 21.7 s. But no slot of an older sub-filter is freed while
//! fingerprints of newer ones move. So for sub-filters of equal size, [`Rooms`] records up to which sub-filter each
//! bucket is full, and no full bucket is looked at again. If each sub-filter is larger than the one before it, there
//! are at most 40 of them, and no such record is needed.

use super::body::More;
use super::table::Table;
use super::{Cuckoo, CuckooHash, Origin, dump_number};
use crate::bits::counter;
use crate::mem::Words;
use alloc::vec::Vec;

/// A filter with several sub-filters is compacted automatically when the ratio of deleted items to remaining ones
/// exceeds this.
const COMPACT_ABOVE: f64 = 0.1;

/// Size in bytes up to which a filter is compacted automatically, unless it is from RedisBloom 2.2.0 or later. Each
/// part of a compaction scans the newest sub-filter from the start, which takes 0.2 ms at this size.
const COMPACT_UP_TO: u64 = 4 << 20;

/// Bits per bucket in [`Rooms`], enough for 65,536 sub-filters.
const ROOM_BITS: u32 = 16;

/// [`Rooms`] are used if a bucket has at least this many slots in all sub-filters together. Their memory is then at
/// most a quarter of the sub-filters' memory.
const ROOMS_FROM: usize = 8;

/// Rooms are prefetched this many fingerprints in advance. A core can have 10 to 16 cache misses in flight.
const AHEAD: usize = 16;

impl Cuckoo {
    /// Whether the filter should be [compacted](Cuckoo::compact): it has several sub-filters, and the number of deletes
    /// is more than a tenth of the number of items that are left. Filters from RedisBloom 2.2.0 or later can be sparse
    /// at any size, as in RedisBloom. Other filters of more than 4 MiB never are, because a delete must be fast.
    pub fn is_sparse(&self) -> bool {
        self.is_sparse_after(0)
    }

    /// Whether the filter will be sparse once this many more items have been deleted.
    #[inline(always)]
    #[doc(hidden)]
    pub fn is_sparse_after(&self, deletes: u64) -> bool {
        if self.tables().len() == 1 {
            return false;
        }
        let left = self.items().saturating_sub(deletes);
        let deleted = (self.deletes() + deletes) as f64 > COMPACT_ABOVE * left as f64;
        let may_be_large = self.origin == Origin::RedisBloom;
        deleted && (may_be_large || self.bytes() <= COMPACT_UP_TO)
    }

    /// Compacts the filter. If `all` is true, visits every sub-filter, as CF.COMPACT does; otherwise stops at the first
    /// sub-filter that can't be emptied. Returns the dropped sub-filters.
    pub fn compact(&mut self, all: bool) -> Vec<Table> {
        self.compact_while(all, |_| true)
    }

    /// Like [`compact`](Cuckoo::compact), but moves no more fingerprints once it has taken `most` steps. A step looks
    /// for a free slot in one sub-filter. The next call continues the compaction: the filter stays
    /// [sparse](Cuckoo::is_sparse) until a compaction has reached the end or has moved nothing. The moves depend only
    /// on the filter, so a replica makes the same ones.
    #[doc(hidden)]
    pub fn compact_within(&mut self, all: bool, most: u64) -> Vec<Table> {
        self.compact_by(all, None, |steps| steps < most)
    }

    /// Like [`compact`](Cuckoo::compact), but only as long as `go_on` returns true for the number of steps so far.
    /// `go_on` is called before each fingerprint that may move, and after each sub-filter.
    #[doc(hidden)]
    pub fn compact_while(&mut self, all: bool, go_on: impl FnMut(u64) -> bool) -> Vec<Table> {
        let rooms = if self.has_rooms() { Rooms::new(self.tables()) } else { None };
        self.compact_by(all, rooms, go_on)
    }

    /// Compacts the filter, with or without rooms. Without rooms, looks into one sub-filter after the other. The
    /// resulting bytes are the same either way.
    fn compact_by(
        &mut self,
        all: bool,
        rooms: Option<Rooms>,
        mut go_on: impl FnMut(u64) -> bool,
    ) -> Vec<Table> {
        let (mut dropped, mut steps) = (Vec::new(), 0);
        let mut is_over = true;
        let Some(More { tables, deletes, moves, .. }) = self.body.so_far_mut() else { return dropped };
        let before = *moves;
        // All sub-filters before this one are full.
        let mut open = 0;
        for index in (1..tables.len()).rev() {
            let (older, newer) = tables.split_at(index);
            let Some(table) = newer.first() else { break };
            for (bucket, slot, fingerprint) in occupied(table, rooms.as_ref()) {
                while older.get(open).is_some_and(|older| older.is_full()) {
                    open += 1;
                }
                if open >= index || !go_on(steps) {
                    break;
                }
                let item = CuckooHash::found_in(bucket, fingerprint);
                // The fingerprint is written to its new slot before the old one is vacated.
                let is_moved = match &rooms {
                    Some(rooms) => rooms.insert(item, older, open, &mut steps),
                    None => {
                        let looked_into = |_: &&Table| steps += 1;
                        older[open..].iter().inspect(looked_into).any(|older| older.insert(item))
                    }
                };
                if is_moved {
                    table.vacate(slot);
                    *moves += 1;
                }
            }
            is_over = go_on(steps);
            if !is_over {
                break;
            }
            let left = table.items() > 0;
            if !left && index + 1 == tables.len() {
                dropped.extend(tables.pop());
            } else if left && !all {
                break;
            }
        }
        if *deletes > 0 && (is_over || *moves == before) {
            (*deletes, self.dump_number) = (0, dump_number::next());
        }
        dropped
    }

    fn has_rooms(&self) -> bool {
        let slots = self.tables().len() * usize::from(self.bucket_size());
        self.expansion <= 1 && self.tables().len() > 2 && slots >= ROOMS_FROM
    }

    /// Maximum number of steps that a [compaction](Cuckoo::compact) can need.
    #[doc(hidden)]
    pub fn most_steps(&self) -> u64 {
        if self.has_rooms() {
            let buckets: u64 = self.tables().iter().map(Table::buckets).sum();
            self.items().saturating_add(buckets)
        } else {
            self.items().saturating_mul(self.tables().len().saturating_sub(1) as u64)
        }
    }
}

/// Bucket, slot and fingerprint of every slot in use. Prefetches the rooms of later fingerprints.
fn occupied<'t>(table: &'t Table, rooms: Option<&'t Rooms>) -> impl Iterator<Item = (u64, usize, u8)> {
    let mut ahead = rooms.into_iter().flat_map(move |rooms| {
        table.occupied().inspect(move |(bucket, _, fingerprint)| {
            rooms.prefetch(table, CuckooHash::found_in(*bucket, *fingerprint));
        })
    });
    ahead.by_ref().take(AHEAD).for_each(drop);
    table.occupied().inspect(move |_| _ = ahead.next())
}

/// For each bucket, the index of a sub-filter: no sub-filter before it has a free slot in this bucket. All sub-filters
/// have the same size.
struct Rooms(Words);

impl Rooms {
    /// Rooms that don't record any full bucket yet. `None` if memory runs out.
    fn new(tables: &[Table]) -> Option<Rooms> {
        let buckets = tables.first()?.buckets();
        Words::zeroed(buckets.div_ceil(u64::from(u64::BITS / ROOM_BITS))).ok().map(Rooms)
    }

    /// Prefetches the entry of the item's second bucket. The first needs no prefetch, because buckets are visited in
    /// order.
    fn prefetch(&self, table: &Table, item: CuckooHash) {
        let [_, second] = table.view().pair(item);
        Words::prefetch(&self.0, second as usize / (u64::BITS / ROOM_BITS) as usize);
    }

    /// Puts the item into the oldest sub-filter that has room for it. Returns false if none has. All sub-filters before
    /// `open` are full. Adds the number of steps to `steps`.
    fn insert(&self, item: CuckooHash, older: &[Table], open: usize, steps: &mut u64) -> bool {
        *steps += 1;
        let mut oldest = older.len();
        for bucket in older[open].view().pair(item) {
            let room = counter::get(&self.0, ROOM_BITS, bucket as usize);
            let mut next = open.max(room as usize);
            while next < oldest && !older[next].view().has(bucket, 0) {
                *steps += 1;
                next += 1;
            }
            // `next` is below 65,536, because there is at least one newer sub-filter.
            if next as u64 != room {
                counter::store(&self.0, ROOM_BITS, bucket as usize, next as u64);
            }
            oldest = oldest.min(next);
        }
        older.get(oldest).is_some_and(|table| table.insert(item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::CuckooSpec;
    use crate::hash::{HashKind, Seed};

    fn spec(capacity: u64, bucket_size: u8, expansion: u16) -> CuckooSpec {
        let (hash, seed) = (HashKind::Xxh3, Seed::from(7));
        CuckooSpec { bucket_size, expansion, hash, seed, ..CuckooSpec::new(capacity) }
    }

    /// A delete that compacts blocks the server until the compaction is over, so large native filters aren't compacted
    /// automatically. RedisBloom's filters are, because a replica must have the same sub-filters as a primary that runs
    /// RedisBloom.
    #[test]
    fn a_large_filter_is_sparse_only_if_it_is_redisblooms() {
        for (origin, is_sparse) in [(Origin::Bloomery, false), (Origin::RedisBloom, true)] {
            let mut filter = Cuckoo::new(CuckooSpec { origin, ..spec(COMPACT_UP_TO, 2, 1) }).unwrap();
            filter.grow().unwrap();
            filter.insert(b"item").unwrap();
            assert!(filter.remove(b"item"));
            assert_eq!((filter.bytes(), filter.is_sparse()), (2 * COMPACT_UP_TO, is_sparse));
        }
    }

    /// Every item is still there, each call stays within its bound, and the calls eventually finish the compaction.
    #[test]
    fn a_compaction_in_steps_comes_to_an_end() {
        for expansion in [1, 2] {
            for most in [1, 7, 50] {
                let mut filter = Cuckoo::new(spec(8, 2, expansion)).unwrap();
                let items: Vec<[u8; 4]> = (0..600u32).map(u32::to_le_bytes).collect();
                items.iter().for_each(|item| filter.insert(item).unwrap());
                // The kept items are spread over all sub-filters.
                let (kept, deleted): (Vec<[u8; 4]>, Vec<_>) = items.iter().partition(|item| item[0] % 3 == 0);
                assert!(deleted.iter().all(|item| filter.remove(item)));
                let (before, mut calls) = (filter.tables().len(), 0);
                while filter.deletes() > 0 {
                    let moves = filter.moves();
                    filter.compact_within(true, most);
                    assert!(filter.moves() - moves <= most);
                    calls += 1;
                }
                assert!(most < 50 || calls > 1 && filter.tables().len() < before, "{most}: {calls} calls");
                assert!(kept.iter().all(|item| filter.contains(item)));
                let counted: u64 = filter.tables().iter().map(|table| table.occupied().count() as u64).sum();
                assert_eq!((filter.items(), counted), (kept.len() as u64, kept.len() as u64));
                assert!(filter.tables().iter().all(|table| table.items() == table.occupied().count() as u64));
            }
        }
    }

    /// With many or few sub-filters, and with growing ones, the moves and the result are the same as without rooms.
    #[test]
    fn a_compaction_by_rooms_ends_as_one_without() {
        let mut most_moved = 0;
        for (capacity, bucket_size, expansion, number) in [
            (2, 1, 1, 300),
            (64, 1, 1, 900),
            (64, 3, 1, 3000),
            (256, 2, 1, 9000),
            (64, 2, 2, 3000),
            (8, 4, 1, 60),
        ] {
            for (modulus, kept) in [(2, 1), (3, 1), (10, 9), (10, 1)] {
                for all in [false, true] {
                    let mut made = Cuckoo::new(spec(capacity, bucket_size, expansion)).unwrap();
                    let items: Vec<[u8; 4]> = (0..number).map(u32::to_le_bytes).collect();
                    items.iter().for_each(|item| made.insert(item).unwrap());
                    items
                        .iter()
                        .filter(|item| item[0] % modulus >= kept)
                        .for_each(|item| assert!(made.remove(item)));
                    let mut plain = made.snapshot().unwrap();
                    let (mut steps, before) = (0, made.moves());
                    let bound = made.most_steps();
                    let dropped = made.compact_while(all, |so_far| {
                        steps = so_far;
                        true
                    });
                    assert_eq!(dropped.len(), plain.compact_within(all, u64::MAX).len());
                    assert!(steps <= bound, "{steps} {bound}");
                    let seen = |filter: &Cuckoo| {
                        let bytes = |table: &Table| Words::to_bytes(table.words(), table.bytes());
                        let tables: Vec<_> =
                            filter.tables().iter().map(|table| (table.items(), bytes(table))).collect();
                        (tables, filter.moves(), filter.items(), filter.deletes())
                    };
                    assert!(
                        seen(&made) == seen(&plain),
                        "{capacity} {bucket_size} {expansion} {modulus} {all}"
                    );
                    most_moved = most_moved.max(made.moves() - before);
                }
            }
        }
        assert!(most_moved > 1000, "{most_moved}");
    }
}
