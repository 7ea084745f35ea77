//! Splits work into parts that run on the caller's threads: the pool in a server, a single thread elsewhere.

use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;
use crate::sync::{Mutex, PoisonError};
use alloc::sync::Arc;
use core::ops::Range;

/// A parallel `for` loop: runs tasks 0 to n − 1, each once, on all available threads. Returns when all are done.
pub type ParallelFor<'f> = dyn Fn(usize, &(dyn Fn(usize) + Sync)) + 'f;

/// The [`ParallelFor`] of a single thread.
pub fn alone(tasks: usize, task: &(dyn Fn(usize) + Sync)) {
    (0..tasks).for_each(task);
}

/// Tells work on other threads that its result is no longer needed. All clones share one flag.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicU64>);

impl Default for Stop {
    fn default() -> Stop {
        Stop(Arc::new(AtomicU64::new(0)))
    }
}

impl Stop {
    /// Asks the work to stop. This can't be undone.
    pub fn set(&self) {
        self.0.store(1, Relaxed);
    }

    /// Runs tasks with `parallel`, but skips those that would start after [`set`](Stop::set). If tasks are skipped, the
    /// results are incomplete.
    pub fn run(&self, parallel: &ParallelFor<'_>, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        parallel(tasks, &|index| {
            if !self.is_set() {
                task(index);
            }
        });
    }

    /// Whether the work should stop. This costs only one load, so it can be checked for each group of items.
    #[inline(always)]
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed) != 0
    }
}

/// Runs an empty task, which lets other jobs run, and returns whether it was executed. If not, the work is no longer
/// needed. For work that can't be divided.
pub fn is_wanted(parallel: &ParallelFor<'_>) -> bool {
    let is_run = AtomicU64::new(0);
    parallel(1, &|_| is_run.store(1, Relaxed));
    is_run.into_inner() != 0
}

/// Words per task: 8 MiB, which is about a millisecond of work. A smaller task isn't worth another thread. With
/// `small_steps`, and in loom models, whose layers consist of a few words, a task is one word.
const PART: usize = if cfg!(any(all(loom, test), small_steps)) { 1 } else { 1 << 20 };

/// Indices per task of [`all_of`] and [`in_turns`]. If each takes 80 µs, as looking up the cells of a leaf in another
/// table does, a task takes about a millisecond.
const LOOKS: usize = if cfg!(any(all(loom, test), small_steps)) { 1 } else { 16 };

/// Calls `visit` with ranges that cover `words` words, each word once.
pub fn in_parts(words: usize, parallel: &ParallelFor<'_>, visit: impl Fn(Range<usize>) + Sync) {
    in_parts_of(PART, words, parallel, visit);
}

fn in_parts_of(most: usize, len: usize, parallel: &ParallelFor<'_>, visit: impl Fn(Range<usize>) + Sync) {
    parallel(len.div_ceil(most), &|part| visit(part * most..len.min((part + 1) * most)));
}

/// Whether `holds` is true for all indices below `len`. After the first index for which it is false, no thread begins
/// another part.
pub(crate) fn all_of(len: usize, parallel: &ParallelFor<'_>, holds: impl Fn(usize) -> bool + Sync) -> bool {
    let failed = AtomicU64::new(0);
    in_parts_of(LOOKS, len, parallel, |mut part| {
        if failed.load(Relaxed) == 0 && !part.all(&holds) {
            failed.store(1, Relaxed);
        }
    });
    failed.into_inner() == 0
}

/// Calls `take` with consecutive ranges that cover the indices below `len`, until one call fails. Each range is a task
/// of its own, as short as those of [`all_of`], so that other jobs can run in between.
pub(crate) fn in_turns<E: Send>(
    len: u64,
    parallel: &ParallelFor<'_>,
    take: impl Fn(Range<u64>) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let failed = Mutex::new(None);
    for first in (0..len).step_by(LOOKS) {
        parallel(1, &|_| {
            if let Err(why) = take(first..len.min(first + LOOKS as u64)) {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            }
        });
        if let Some(why) = failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(why);
        }
    }
    Ok(())
}

/// Whether `holds` is true for every pair of words with the same index. After the first pair for which it is false, no
/// thread begins another part.
pub(crate) fn all_pairs(
    a: &[AtomicU64],
    b: &[AtomicU64],
    parallel: &ParallelFor<'_>,
    holds: impl Fn(u64, u64) -> bool + Sync,
) -> bool {
    let failed = AtomicU64::new(0);
    in_parts(a.len(), parallel, |part| {
        let mut pairs = a[part.clone()].iter().zip(&b[part]);
        if failed.load(Relaxed) == 0 && !pairs.all(|(a, b)| holds(a.load(Relaxed), b.load(Relaxed))) {
            failed.store(1, Relaxed);
        }
    });
    failed.into_inner() == 0
}
