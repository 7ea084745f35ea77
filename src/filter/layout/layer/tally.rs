//! Tallies that are updated with the cells, so that reading the fill and error rate needs no pass over the cells.

use crate::bits::{PerShard, Shared, Single, Writer};
use crate::error::Error;
use crate::filter::layout::quotient::Locked;
use crate::filter::layout::shape::Shape;
use crate::sync::Ordering::Relaxed;
use crate::sync::PoisonError;
use crate::sync::{AtomicU64, Mutex};
use alloc::{boxed::Box, vec::Vec};
use crossbeam_utils::CachePadded;

/// The counts of one shard.
#[derive(Default)]
pub(in crate::filter::layout) struct Tally {
    /// Number of cells that are not 0.
    pub(super) set: AtomicU64,
    /// Number of added items that were absent, minus items that a delete made absent. Can be below 0 for a moment while
    /// deletes race.
    pub(super) items: AtomicU64,
    /// Sum of the counters.
    pub(super) sum: AtomicU64,
    /// Number of counters at their maximum.
    pub(super) saturated: AtomicU64,
    /// Locked by a thread while it deletes an item of the shard, if several threads may do so.
    pub(super) deletes: Mutex<()>,
}

/// In layers of up to this many words (8 KiB), set bits are counted on demand, which takes half a microsecond. Many
/// filters are this small.
const COUNTED_UP_TO: u64 = 1024;

/// Minimum number of places in which several threads count.
const PLACES: usize = 16;

/// Represents an unknown number of items.
pub(super) const UNKNOWN: u64 = u64::MAX;

/// A layer's tallies. A small layer with one shard of bits needs none.
pub(in crate::filter::layout) enum Tallies {
    /// Number of set bits, for a single shard.
    Ones(AtomicU64),
    /// All counts for each shard, or in more places for several writers. Each has its own cache lines, so that writers
    /// on two shards never share one.
    Padded {
        shards: Box<[CachePadded<Tally>]>,
        /// Number of items in all shards, so that a single writer needn't add up the shards; or [`UNKNOWN`].
        total: AtomicU64,
    },
    /// The table of the layout QUOTIENT, which counts by itself. The layer has no other cells.
    Table(Box<Locked>),
}

impl Tallies {
    /// The tallies of an empty layer of this many words, if it needs any.
    pub(super) fn new(shape: &Shape, words: u64) -> Result<Option<Tallies>, Error> {
        if shape.shards == 1 && !shape.cell.counts() {
            return Ok((words > COUNTED_UP_TO).then(|| Tallies::Ones(AtomicU64::new(0))));
        }
        Tallies::padded(shape.shards as usize).map(Some)
    }

    /// The tallies of an empty layer to which several threads will write: each nearly always counts in a place of its
    /// own. In a single place, adds by two threads took longer than by one.
    pub(super) fn for_writers(shape: &Shape) -> Result<Tallies, Error> {
        Tallies::padded(PLACES.max(shape.shards as usize))
    }

    fn padded(count: usize) -> Result<Tallies, Error> {
        // The tallies of 1024 shards need 128 KiB, so their allocation can fail, like that of the cells.
        let refused = Error::OutOfMemory { bytes: (count * size_of::<CachePadded<Tally>>()) as u64 };
        let mut shards: Vec<CachePadded<Tally>> = Vec::new();
        shards.try_reserve_exact(count).map_err(|_| refused)?;
        shards.resize_with(count, CachePadded::default);
        Ok(Tallies::Padded { shards: shards.into_boxed_slice(), total: AtomicU64::new(0) })
    }

    /// Bytes of memory in addition to the layer itself.
    pub(super) fn allocated(&self) -> usize {
        match self {
            Tallies::Ones(_) => 0,
            Tallies::Padded { shards, .. } => size_of_val(&**shards),
            Tallies::Table(table) => {
                let table = table.read().unwrap_or_else(PoisonError::into_inner);
                size_of::<Locked>() + table.allocated()
            }
        }
    }
}

/// The amounts by which a write changes the tallies.
#[derive(Clone, Copy, Default)]
pub(in crate::filter::layout) struct Change {
    pub set: i64,
    pub items: i64,
    pub sum: i64,
    pub saturated: i64,
}

/// Updates tallies, in the way that the kind of [`Writer`] allows.
pub(in crate::filter::layout) trait TallyWriter: Writer {
    /// Adds to a count.
    fn tally(count: &AtomicU64, delta: i64);

    /// Which of the `shards` tallies to use. Only their sum is ever read.
    fn own_tally(shard: usize, shards: usize) -> usize;

    /// Adds items to the total over all shards, or marks the total as [`UNKNOWN`].
    fn tally_total(total: &AtomicU64, items: i64);
}

impl TallyWriter for Shared {
    #[inline(always)]
    fn tally(count: &AtomicU64, delta: i64) {
        if delta != 0 {
            count.fetch_add(delta as u64, Relaxed);
        }
    }

    #[inline(always)]
    fn own_tally(_: usize, shards: usize) -> usize {
        // No other thread writes to this tally unless there have been more threads than shards.
        thread_number() % shards
    }

    #[inline(always)]
    fn tally_total(total: &AtomicU64, _: i64) {
        // Writers on different shards must not contend for this cache line, so they only mark the total as unknown.
        if total.load(Relaxed) != UNKNOWN {
            total.store(UNKNOWN, Relaxed);
        }
    }
}

impl TallyWriter for Single {
    #[inline(always)]
    fn tally(count: &AtomicU64, delta: i64) {
        if delta != 0 {
            count.store(count.load(Relaxed).wrapping_add(delta as u64), Relaxed);
        }
    }

    #[inline(always)]
    fn own_tally(_: usize, _: usize) -> usize {
        0
    }

    #[inline(always)]
    fn tally_total(total: &AtomicU64, items: i64) {
        if items != 0 && total.load(Relaxed) != UNKNOWN {
            Single::tally(total, items);
        }
    }
}

impl TallyWriter for PerShard {
    #[inline(always)]
    fn tally(count: &AtomicU64, delta: i64) {
        Single::tally(count, delta);
    }

    #[inline(always)]
    fn own_tally(shard: usize, _: usize) -> usize {
        shard
    }

    #[inline(always)]
    fn tally_total(total: &AtomicU64, items: i64) {
        Shared::tally_total(total, items);
    }
}

/// The number of this thread: 0, 1, 2, … in the order in which threads first ask for one. Without `std`, threads have
/// no numbers, and all use the same tally.
#[inline]
fn thread_number() -> usize {
    #[cfg(feature = "std")]
    {
        // Not loom's type, because the models don't depend on thread numbers.
        use core::sync::atomic::AtomicUsize;
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        std::thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Relaxed));
        NUMBER.with(|number| *number)
    }
    #[cfg(not(feature = "std"))]
    0
}
