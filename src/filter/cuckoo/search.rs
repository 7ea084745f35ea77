//! The breadth-first search for room: the moves that free a slot for a new fingerprint.

use super::hash::CuckooHash;
use super::table::Table;
use smallvec::{SmallVec, smallvec};

/// Maximum number of slots that a search for room visits. With four-slot buckets, a search fails only once 97% of the
/// slots are in use.
const SEARCHED: usize = 2048;

/// Maximum number of slots that a search for room examines in the other buckets of the fingerprints that it visits.
/// With up to 64 slots per bucket, [`SEARCHED`] ends the search first.
const LOOKED_AT: usize = 131_072;

/// A search remembers the buckets that it has visited if the table has at most this many buckets. In a larger table, it
/// seldom comes back to a bucket. But in a table with 64 full buckets, for example, every path soon meets another path.
const REMEMBERED: u64 = 4096;

/// A full bucket to which a fingerprint would move. `from` is the earlier step and the slot in its bucket where the
/// fingerprint is now, or `None` for the new item's fingerprint.
#[derive(Clone, Copy)]
struct Step {
    bucket: u64,
    from: Option<(u16, u8)>,
    depth: u16,
}

/// The buckets that a search has visited, one bit each; empty if the table is too large.
struct Seen(SmallVec<[u64; REMEMBERED as usize / 64]>);

impl Seen {
    fn new(buckets: u64) -> Seen {
        let words = if buckets <= REMEMBERED { buckets.div_ceil(64) } else { 0 };
        Seen(smallvec![0; words as usize])
    }

    /// Whether the search hasn't visited the bucket, as far as it remembers. Remembers it.
    fn is_new(&mut self, bucket: u64) -> bool {
        self.0.get_mut((bucket / 64) as usize).is_none_or(|word| {
            let before = *word;
            *word |= 1 << (bucket % 64);
            *word != before
        })
    }
}

impl Table {
    /// Inserts the item by moving as few other fingerprints as possible, and at most `most`. Returns the number of
    /// moves, or `None` if the search fails; then nothing has changed. Adds the number of slots visited to
    /// `searched`.
    pub(super) fn insert_by_moving(&self, item: CuckooHash, most: u16, searched: &mut u64) -> Option<u16> {
        let (buckets, bucket_size) = (self.view(), usize::from(self.bucket_size()));
        let fetch_others = |bucket| {
            // If the table doesn't fit in the caches, this fetches the next buckets on the path in the background.
            if let Some(buckets) = self.distant() {
                buckets
                    .slots(bucket)
                    .for_each(|slot| buckets.prefetch(buckets.other(bucket, buckets.get(slot))));
            }
        };
        let roots = buckets.pair(item);
        roots.into_iter().for_each(fetch_others);
        if let Some(looked) = self.insert_by_one_move(item, roots) {
            *searched += looked;
            return Some(1);
        }
        // Most of the remaining searches end within a few steps, which need no allocation.
        let mut steps: SmallVec<[Step; 32]> = SmallVec::new();
        let mut seen = Seen::new(self.buckets());
        for bucket in roots {
            if seen.is_new(bucket) {
                steps.push(Step { bucket, from: None, depth: 1 });
            }
        }
        let (mut next, mut looked) = (0, 0);
        while let Some(Step { bucket, depth, .. }) = steps.get(next).copied() {
            for slot in 0..self.bucket_size() {
                if looked * bucket_size >= LOOKED_AT {
                    return None;
                }
                (looked, *searched) = (looked + 1, *searched + 1);
                let from = Some((next as u16, slot));
                let other =
                    buckets.other(bucket, buckets.get(buckets.slots(bucket).start + usize::from(slot)));
                if let Some(free) = buckets.find_in(other, 0) {
                    self.move_along(&steps, from, free, item.fingerprint);
                    return Some(depth);
                }
                if depth < most && steps.len() * bucket_size < SEARCHED && seen.is_new(other) {
                    fetch_others(other);
                    steps.push(Step { bucket: other, from, depth: depth + 1 });
                }
            }
            next += 1;
        }
        None
    }

    /// Makes the moves of a path backwards from the free slot at its end, and sets the new item's fingerprint at its
    /// start. Each fingerprint is written to its new slot before the old one is overwritten.
    fn move_along(&self, steps: &[Step], mut from: Option<(u16, u8)>, mut free: usize, fingerprint: u8) {
        let buckets = self.view();
        while let Some((step, slot)) = from {
            let step = steps[usize::from(step)];
            let slot = buckets.slots(step.bucket).start + usize::from(slot);
            buckets.set(free, buckets.get(slot));
            (free, from) = (slot, step.from);
        }
        buckets.set(free, fingerprint);
        self.count_used(1);
    }

    /// Inserts the item if one move makes room for it, as most searches find. The search that follows would find that
    /// move too, but at twice the cost. Returns the number of slots that were looked at.
    fn insert_by_one_move(&self, item: CuckooHash, roots: [u64; 2]) -> Option<u64> {
        let buckets = self.view();
        let firsts = roots.into_iter().flat_map(|root| buckets.slots(root).map(move |slot| (root, slot)));
        for (looked, (root, slot)) in (1..).zip(firsts) {
            let other = buckets.other(root, buckets.get(slot));
            if let Some(free) = buckets.find_in(other, 0) {
                // Writes the moved fingerprint to its new slot before overwriting the old one.
                buckets.set(free, buckets.get(slot));
                buckets.set(slot, item.fingerprint);
                self.count_used(1);
                return Some(looked);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Words;
    use crate::murmur::murmur64a;
    use alloc::collections::BTreeSet;

    /// The documented search, slot by slot. A replica that runs another version must end with the same bytes.
    fn plain_search(table: &Table, item: CuckooHash, most: u16) -> Option<u16> {
        let (mut seen, remembers) = (BTreeSet::new(), table.buckets() <= REMEMBERED);
        let mut is_new = |bucket| seen.insert(bucket) || !remembers;
        let roots = table.view().pair(item).into_iter().filter(|bucket| is_new(*bucket)).collect::<Vec<_>>();
        let slots = |bucket, parent, depth| {
            table.view().slots(bucket).map(move |slot| (slot, bucket, parent, depth)).collect::<Vec<_>>()
        };
        let mut steps: Vec<(usize, u64, Option<usize>, u16)> =
            roots.into_iter().flat_map(|bucket| slots(bucket, None, 1)).collect();
        let mut next = 0;
        while next < steps.len() && next * usize::from(table.bucket_size()) < LOOKED_AT {
            let (slot, bucket, _, depth) = steps[next];
            let other = table.view().other(bucket, table.get(slot));
            if let Some(mut to) = table.view().slots(other).find(|slot| table.get(*slot) == 0) {
                let mut step = Some(next);
                while let Some((slot, _, parent, _)) = step.map(|index| steps[index]) {
                    table.set(to, table.get(slot));
                    (to, step) = (slot, parent);
                }
                table.set(to, item.fingerprint);
                return Some(depth);
            }
            if depth < most && steps.len() < SEARCHED && is_new(other) {
                steps.extend(slots(other, Some(next), depth + 1));
            }
            next += 1;
        }
        None
    }

    #[test]
    fn searches_for_room_end_as_the_plain_one_does() {
        for bucket_size in [1, 2, 3, 4, 8, 9, 64, 255] {
            for (buckets, most) in [(2, 20), (64, 1), (64, 3), (64, 20), (1024, 500), (2 * REMEMBERED, 20)] {
                if buckets * u64::from(bucket_size) > 1 << 18 {
                    continue;
                }
                let table = Table::new(buckets, bucket_size).unwrap();
                let plain = Table::new(buckets, bucket_size).unwrap();
                let (mut searches, mut refused) = (0, 0);
                for number in 0..table.slot_count() * 2 {
                    let item = CuckooHash::new(murmur64a(&number.to_le_bytes(), 7));
                    assert_eq!(table.insert(item), plain.insert(item));
                    if table.view().find(item, item.fingerprint).is_some() {
                        continue;
                    }
                    let mut searched = 0;
                    let moved = table.insert_by_moving(item, most, &mut searched);
                    assert_eq!(moved, plain_search(&plain, item, most));
                    assert!(searched <= table.slot_count(), "it comes back: {bucket_size} {buckets} {most}");
                    plain.count_used(moved.is_some().into());
                    searches += 1;
                    refused += u32::from(moved.is_none());
                    // Refusals are slow.
                    if refused > 40 {
                        break;
                    }
                }
                let bytes = |table: &Table| Words::to_bytes(table.words(), table.slot_count());
                assert_eq!(bytes(&table), bytes(&plain), "{bucket_size} {buckets} {most}");
                assert!(searches > 0 && refused > 0, "{bucket_size} {buckets} {most}");
            }
        }
    }
}
