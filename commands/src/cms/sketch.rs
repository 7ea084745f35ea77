//! A count-min sketch: rows of counters, in each of which an item has one counter. An increment raises all of them, and
//! the smallest is the estimate.

use crate::rows::{Rows, copied};
use bloomery::Error;
use bloomery::mem::{Cells, Words};
use bloomery::parallel::ParallelFor;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Counters in a word. The first is in the lower half.
const IN_A_WORD: usize = 2;

/// Number of words that are summed at a time.
const BLOCK: usize = 256;

/// Number of words of all sources that a task sums. That takes about a millisecond, as long as a task may take.
const WORDS_OF_A_TASK: usize = 1 << 18;

/// A count-min sketch.
pub(crate) struct Sketch {
    rows: Rows,
    /// Sum of all increments, modulo 2^64.
    count: u64,
    /// Shared with merges that read them in the background.
    counters: Arc<Words>,
}

impl Sketch {
    /// An empty sketch.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn new(rows: Rows) -> Result<Sketch, Error> {
        let counters = Words::zeroed(rows.cells().div_ceil(IN_A_WORD as u64))?;
        Ok(Sketch { rows, count: 0, counters: Arc::new(counters) })
    }

    /// A sketch with these counters, little-endian. `None` if their number is wrong.
    pub(super) fn with_counters(rows: Rows, count: u64, bytes: &[u8]) -> Option<Result<Sketch, Error>> {
        (Sketch::bytes_of(rows)? == bytes.len() as u64)
            .then(|| Ok(Sketch { rows, count, counters: Arc::new(Words::from_bytes(bytes)?) }))
    }

    /// Bytes of the counters in a sketch of this shape, if that is below 2^64.
    pub(super) fn bytes_of(rows: Rows) -> Option<u64> {
        rows.cells().checked_mul(size_of::<u32>() as u64)
    }

    /// Bytes of the counters.
    pub(super) fn bytes(&self) -> u64 {
        Sketch::bytes_of(self.rows).unwrap_or(u64::MAX)
    }

    pub(super) fn rows(&self) -> Rows {
        self.rows
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn counters(&self) -> &Cells {
        &self.counters
    }

    pub(super) fn copy(&self, parallel: &ParallelFor<'_>) -> Result<Sketch, Error> {
        Ok(Sketch { counters: Arc::new(copied(&self.counters, parallel)?), ..*self })
    }

    /// A sketch with the same counters in the same memory, for another thread to read.
    pub(super) fn share(&self) -> Sketch {
        Sketch { counters: Arc::clone(&self.counters), ..*self }
    }

    pub(super) fn is_shared_with(&self, other: &Sketch) -> bool {
        Arc::ptr_eq(&self.counters, &other.counters)
    }

    /// Whether a merge may still read the counters: the server has renamed the key, or the merge's client has left.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.counters) > 1
    }

    /// Prepares the counters for a change. If they are shared, the change is made to a copy.
    pub(super) fn own(&mut self, parallel: &ParallelFor<'_>) -> Result<(), Error> {
        if self.is_shared() {
            *self = self.copy(parallel)?;
        }
        Ok(())
    }

    /// Counts each item of a group as often as `increments` says. Appends the new estimates.
    pub(super) fn increase(&mut self, items: &[&[u8]], increments: &[u64], estimates: &mut Vec<u32>) {
        self.count = increments.iter().fold(self.count, |count, increment| count.wrapping_add(*increment));
        let counters: &Cells = &self.counters;
        self.rows.fold::<IN_A_WORD>(counters, items, (u32::MAX, estimates), |index, least, cells| {
            let increment = increments.get(index).copied().unwrap_or(0);
            let increment = u32::try_from(increment).unwrap_or(u32::MAX);
            cells.iter().fold(least, |least, cell| least.min(raise(counters, *cell, increment)))
        });
    }

    /// Appends the estimate for each item of a group.
    pub(super) fn estimate(&self, items: &[&[u8]], estimates: &mut Vec<u32>) {
        let counters: &Cells = &self.counters;
        self.rows.fold::<IN_A_WORD>(counters, items, (u32::MAX, estimates), |_, least, cells| {
            cells.iter().fold(least, |least, cell| least.min(counter(counters, *cell).0))
        });
    }

    /// A sketch with this sum of increments and the weighted sums of the sources' counters. The sources have the same
    /// shape. `None` if a sum doesn't fit into a counter, or a product or a partial sum doesn't fit into 64 bits.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn of_sums(
        rows: Rows,
        count: u64,
        sources: &[(Sketch, i64)],
        parallel: &ParallelFor<'_>,
    ) -> Result<Option<Sketch>, Error> {
        let (made, exceeds) = (Sketch { count, ..Sketch::new(rows)? }, AtomicBool::new(false));
        let words = made.counters.len();
        let most = WORDS_OF_A_TASK.checked_div(sources.len()).unwrap_or(0).max(BLOCK);
        parallel(words.div_ceil(most), &|task| {
            let first = task.saturating_mul(most);
            let part = first..first.saturating_add(most).min(words);
            if !exceeds.load(Relaxed) && !put_sums(&made.counters, sources, part) {
                exceeds.store(true, Relaxed);
            }
        });
        Ok((!exceeds.into_inner()).then_some(made))
    }
}

/// A counter and its word, and the counter's place in the word.
#[inline(always)]
fn counter(counters: &Cells, cell: usize) -> (u32, u64, u32) {
    let word = counters.get(cell / IN_A_WORD).map_or(0, |word| word.load(Relaxed));
    let place = if cell.is_multiple_of(IN_A_WORD) { 0 } else { u32::BITS };
    #[allow(clippy::cast_possible_truncation, reason = "the counter is the lower half")]
    ((word >> place) as u32, word, place)
}

/// Raises a counter, at most to its largest value. Returns its new value.
#[inline(always)]
fn raise(counters: &Cells, cell: usize, increment: u32) -> u32 {
    let (old, word, place) = counter(counters, cell);
    let new = old.saturating_add(increment);
    if new != old
        && let Some(to) = counters.get(cell / IN_A_WORD)
    {
        to.store(word & !(u64::from(u32::MAX) << place) | u64::from(new) << place, Relaxed);
    }
    new
}

/// Puts the weighted sums of the words in `part` into `counters`, until a sum is out of range. Returns whether none is.
fn put_sums(counters: &Cells, sources: &[(Sketch, i64)], part: Range<usize>) -> bool {
    // With such weights, no part of a sum leaves the range of 64-bit integers.
    let weights = sources.iter().fold(0u64, |sum, (_, weight)| sum.saturating_add(weight.unsigned_abs()));
    let are_small = weights < 1 << 31;
    for first in part.clone().step_by(BLOCK) {
        let block = first..first.saturating_add(BLOCK).min(part.end);
        let mut sums = [[0i64; IN_A_WORD]; BLOCK];
        let mut fits = true;
        for (source, weight) in sources {
            let words = source.counters.get(block.clone()).unwrap_or_default();
            let mut add = |sum: &mut i64, counter: u64| {
                if are_small {
                    *sum = sum.wrapping_add(weight.wrapping_mul(counter.cast_signed()));
                } else {
                    let more =
                        weight.checked_mul(counter.cast_signed()).and_then(|more| sum.checked_add(more));
                    fits &= more.is_some();
                    *sum = more.unwrap_or(0);
                }
            };
            for ([low, high], word) in sums.iter_mut().zip(words) {
                let word = word.load(Relaxed);
                add(low, word & u64::from(u32::MAX));
                add(high, word >> u32::BITS);
            }
        }
        let beyond =
            sums.as_flattened().iter().fold(0, |beyond, sum| beyond | sum.cast_unsigned() >> u32::BITS);
        if beyond != 0 || !fits {
            return false;
        }
        for (word, [low, high]) in counters.get(block).unwrap_or_default().iter().zip(sums) {
            word.store(low.cast_unsigned() | high.cast_unsigned() << u32::BITS, Relaxed);
        }
    }
    true
}
