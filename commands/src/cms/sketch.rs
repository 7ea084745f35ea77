//! A count-min sketch: rows of counters, in each of which an item has one counter. An increment raises all of them, and
//! the smallest is the estimate.

use crate::rows::{Rows, copied};
use bloomery::Error;
use bloomery::mem::{Cells, Words};
use bloomery::parallel::{ParallelFor, in_parts};
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Counters in a word. The first is in the lower half.
const IN_A_WORD: usize = 2;

/// Number of words that are summed at a time.
const BLOCK: usize = 256;

/// A count-min sketch.
pub(crate) struct Sketch {
    rows: Rows,
    /// Sum of all increments, modulo 2^64.
    count: u64,
    counters: Words,
}

impl Sketch {
    /// An empty sketch.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn new(rows: Rows) -> Result<Sketch, Error> {
        Ok(Sketch { rows, count: 0, counters: Words::zeroed(rows.cells().div_ceil(IN_A_WORD as u64))? })
    }

    /// A sketch with these counters, little-endian. `None` if their number is wrong.
    pub(super) fn with_counters(rows: Rows, count: u64, bytes: &[u8]) -> Option<Result<Sketch, Error>> {
        (Sketch::bytes_of(rows)? == bytes.len() as u64)
            .then(|| Ok(Sketch { rows, count, counters: Words::from_bytes(bytes)? }))
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

    pub(super) fn set_count(&mut self, count: u64) {
        self.count = count;
    }

    pub(super) fn counters(&self) -> &Cells {
        &self.counters
    }

    pub(super) fn copy(&self, parallel: &ParallelFor<'_>) -> Result<Sketch, Error> {
        Ok(Sketch { rows: self.rows, count: self.count, counters: copied(&self.counters, parallel)? })
    }

    /// Counts each item of a group as often as `increments` says. Appends the new estimates.
    pub(super) fn increase(&mut self, items: &[&[u8]], increments: &[u64], estimates: &mut Vec<u32>) {
        self.count = increments.iter().fold(self.count, |count, increment| count.wrapping_add(*increment));
        let counters = &self.counters;
        self.rows.fold::<IN_A_WORD>(counters, items, (u32::MAX, estimates), |index, least, cells| {
            let increment = increments.get(index).copied().unwrap_or(0);
            let increment = u32::try_from(increment).unwrap_or(u32::MAX);
            cells.iter().fold(least, |least, cell| least.min(raise(counters, *cell, increment)))
        });
    }

    /// Appends the estimate for each item of a group.
    pub(super) fn estimate(&self, items: &[&[u8]], estimates: &mut Vec<u32>) {
        let counters = &self.counters;
        self.rows.fold::<IN_A_WORD>(counters, items, (u32::MAX, estimates), |_, least, cells| {
            cells.iter().fold(least, |least, cell| least.min(counter(counters, *cell).0))
        });
    }

    /// Replaces the counters with the weighted sums of the sources' counters. The sources have the same shape, and this
    /// sketch may be one of them. Returns false, and replaces nothing, if a sum doesn't fit into a counter, or a
    /// product or a partial sum doesn't fit into 64 bits.
    pub(super) fn take_sums(&self, sources: &[(&Sketch, i64)], parallel: &ParallelFor<'_>) -> bool {
        let exceeds = AtomicBool::new(false);
        in_parts(self.counters.len(), parallel, |part| {
            if !exceeds.load(Relaxed) && !sums(sources, part, |_, _| {}) {
                exceeds.store(true, Relaxed);
            }
        });
        let fits = !exceeds.into_inner();
        if fits {
            in_parts(self.counters.len(), parallel, |part| {
                sums(sources, part, |index, sums| {
                    if let Some(word) = self.counters.get(index) {
                        word.store(sums, Relaxed);
                    }
                });
            });
        }
        fits
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

/// Calls `put` with the index and the weighted sum of each word in `part`, until a sum is out of range. Returns whether
/// none is.
fn sums(sources: &[(&Sketch, i64)], part: Range<usize>, mut put: impl FnMut(usize, u64)) -> bool {
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
        for (index, [low, high]) in block.zip(sums) {
            put(index, low.cast_unsigned() | high.cast_unsigned() << u32::BITS);
        }
    }
    true
}
