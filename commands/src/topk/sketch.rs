//! A Top-K sketch: rows of buckets, each with the fingerprint of an item and its count, and a heap of items. An item
//! raises the counts of its own buckets, and lets those of other items decay.

use super::decay::{Decay, Dice};
use super::heap::{Counted, Heap, Item};
use crate::call::Call;
use crate::rows::{Rows, copied};
use bloomery::Error;
use bloomery::mem::Words;
use bloomery::murmur::murmur2;
use bloomery::parallel::ParallelFor;
use std::sync::atomic::Ordering::Relaxed;

/// Number of entries of the list that a group of items visits, which takes a fifth of a millisecond.
const VISITED: usize = 1 << 18;

/// Seed of the hash that gives the fingerprint.
const FINGERPRINT: u32 = 1919;

/// A Top-K sketch.
pub(crate) struct Sketch {
    rows: Rows,
    decay: f64,
    chances: Box<Decay>,
    dice: Dice,
    buckets: Words,
    heap: Heap,
}

/// A bucket. Its fingerprint is in the lower half of the word.
#[inline(always)]
fn bucket(buckets: &Words, cell: usize) -> Counted {
    let word = buckets.get(cell).map_or(0, |word| word.load(Relaxed));
    #[allow(clippy::cast_possible_truncation, reason = "the fingerprint is the lower half")]
    Counted { fingerprint: word as u32, count: (word >> u32::BITS) as u32 }
}

/// An item's fingerprint.
pub(super) fn fingerprint(item: &[u8]) -> u32 {
    murmur2(item, FINGERPRINT)
}

impl Sketch {
    /// An empty sketch for `k` items.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn new(k: u32, rows: Rows, decay: f64) -> Result<Sketch, Error> {
        Ok(Sketch::with_buckets(rows, decay, Words::zeroed(rows.cells())?, Heap::new(k as usize)?, Dice(0)))
    }

    pub(super) fn with_buckets(rows: Rows, decay: f64, buckets: Words, heap: Heap, dice: Dice) -> Sketch {
        Sketch { rows, decay, chances: Box::new(Decay::new(decay)), dice, buckets, heap }
    }

    pub(super) fn copy(&self, parallel: &ParallelFor<'_>) -> Result<Sketch, Error> {
        let (buckets, heap) = (copied(&self.buckets, parallel)?, self.heap.copy()?);
        Ok(Sketch::with_buckets(self.rows, self.decay, buckets, heap, self.dice))
    }

    pub(super) fn rows(&self) -> Rows {
        self.rows
    }

    pub(super) fn decay(&self) -> f64 {
        self.decay
    }

    pub(super) fn dice(&self) -> Dice {
        self.dice
    }

    pub(super) fn buckets(&self) -> &Words {
        &self.buckets
    }

    pub(super) fn heap(&self) -> &Heap {
        &self.heap
    }

    /// The items of the next [group](Rows::group). Each visits the whole list.
    pub(super) fn group<'a, C: Call<'a>>(&self, call: &C, first: usize, stride: usize) -> Vec<&'a [u8]> {
        let mut group = self.rows.group(call, first, stride);
        group.truncate(VISITED.checked_div(self.heap.len()).unwrap_or(0).max(1));
        group
    }

    /// Adds each item of a group as often as `times` says. Appends the items that leave the heap.
    pub(super) fn add(&mut self, items: &[&[u8]], times: impl Fn(usize) -> u32, expelled: &mut Vec<Item>) {
        let fingerprints: Vec<u32> = items.iter().map(|item| fingerprint(item)).collect();
        // The buckets don't depend on the heap, so a group can go through all buckets first.
        let mut counts = Vec::with_capacity(items.len());
        let (buckets, chances, dice) = (&self.buckets, &self.chances, &mut self.dice);
        self.rows.fold::<1>(buckets, items, (0, &mut counts), |index, most, cells| {
            let fingerprint = fingerprints.get(index).copied().unwrap_or_default();
            let times = times(index);
            cells.iter().fold(most, |most, cell| {
                let bucket = bucket(buckets, *cell);
                let count = if bucket.count == 0 {
                    Ok(times)
                } else if bucket.fingerprint == fingerprint {
                    Ok(bucket.count.wrapping_add(times))
                } else {
                    match chances.meet(dice, bucket.count, times) {
                        Ok(count) => Err(Counted { count, ..bucket }),
                        Err(left) => Ok(left),
                    }
                };
                let (now, own) = match count {
                    Ok(count) => (Counted { fingerprint, count }, count),
                    Err(other) => (other, 0),
                };
                if let Some(to) = buckets.get(*cell).filter(|_| now != bucket) {
                    to.store(u64::from(now.count) << u32::BITS | u64::from(now.fingerprint), Relaxed);
                }
                most.max(own)
            })
        });
        for ((item, fingerprint), count) in items.iter().zip(fingerprints).zip(counts) {
            let enters = count >= self.heap.least();
            expelled.push(if enters { self.heap.put(item, Counted { fingerprint, count }) } else { None });
        }
    }

    /// Whether the heap holds the item.
    pub(super) fn holds(&self, item: &[u8]) -> bool {
        self.heap.find(fingerprint(item), item).is_some()
    }

    /// Maximum number of bytes by which the list grows if these items are added. Looks for the items in the list only
    /// if that takes less than a millisecond.
    pub(super) fn most_new<'a>(&self, items: impl ExactSizeIterator<Item = &'a [u8]>) -> usize {
        const MOST_COMPARED: usize = 1 << 20;
        let is_short = items.len().saturating_mul(self.heap.len()) <= MOST_COMPARED;
        let mut lengths: Vec<usize> =
            items.filter(|item| !is_short || !self.holds(item)).map(<[u8]>::len).collect();
        lengths.sort_unstable_by_key(|len| std::cmp::Reverse(*len));
        lengths.iter().take(self.heap.len()).fold(0, |sum, len| sum.saturating_add(*len))
    }

    /// Appends the count for each item of a group. As in RedisBloom, the count of an item in the heap is 0 if no bucket
    /// has at least the heap's smallest count.
    pub(super) fn counts(&self, items: &[&[u8]], counts: &mut Vec<u32>) {
        let of = |item: &&[u8]| {
            let fingerprint = fingerprint(item);
            let is_held = self.heap.find(fingerprint, item).is_some();
            (fingerprint, if is_held { self.heap.least() } else { 0 })
        };
        let asked: Vec<(u32, u32)> = items.iter().map(of).collect();
        self.rows.fold::<1>(&self.buckets, items, (0, counts), |index, most, cells| {
            let (fingerprint, least) = asked.get(index).copied().unwrap_or_default();
            let buckets = cells.iter().map(|cell| bucket(&self.buckets, *cell));
            let own = buckets.filter(|bucket| bucket.fingerprint == fingerprint && bucket.count >= least);
            own.fold(most, |most, bucket| most.max(bucket.count))
        });
    }
}
