//! Metrics for the operator: gauges of what exists, and counts of what has happened. The module shows them in INFO.
//!
//! Each metric is one or two relaxed atomics, and is read independently of the others. Most metrics change when memory
//! is allocated or freed, or when something is refused. `ACROSS` changes once in each command that writes. No command
//! changes a metric for each item.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of the cells of all filters: those in keys, those that are being loaded or copied, and those that are deleted
/// but not freed yet.
#[cfg_attr(all(loom, test), allow(dead_code, reason = "the words of models are not counted"))]
pub(crate) static CELL_BYTES: Sum = Sum::new();

/// Loads by LOADCHUNK that have begun and aren't complete.
pub(crate) static UPLOADS: Gauge = Gauge::new();

/// Bytes of cells that the filters of the [`UPLOADS`] will have.
pub(crate) static UPLOAD_BYTES: Gauge = Gauge::new();

/// Bytes of memory that the [`UPLOADS`] occupy now.
pub(crate) static UPLOAD_HELD_BYTES: Gauge = Gauge::new();

/// Filters that are being sent in pieces and aren't in a key yet.
pub(crate) static FILTERS_SENDING: Gauge = Gauge::new();

/// Loads that were dropped because they made no progress for five minutes, or because memory was short.
pub(crate) static UPLOADS_DROPPED: Counter = Counter::new();

/// Items that workers have tested for waiting clients.
pub(crate) static OFFLOADED_ITEMS: Counter = Counter::new();

/// Numbers of filters, by kind: those in keys, and those that are deleted but not freed yet.
pub(crate) struct Filters {
    pub(crate) fixed: Sum,
    pub(crate) scaling: Sum,
    pub(crate) counting: Sum,
    pub(crate) window: Sum,
    pub(crate) cuckoo: Sum,
    pub(crate) foreign: Sum,
}

/// See [`Filters`].
pub(crate) static FILTERS: Filters = Filters {
    fixed: Sum::new(),
    scaling: Sum::new(),
    counting: Sum::new(),
    window: Sum::new(),
    cuckoo: Sum::new(),
    foreign: Sum::new(),
};

/// Sums over all Bloom filters in keys, and over those that are deleted but not freed yet.
#[cfg(feature = "module")]
pub(crate) struct Across {
    /// Number of layers and links.
    pub(crate) arrays: Sum,
    pub(crate) items: Sum,
    /// Number of items that the filters are sized for.
    pub(crate) capacity: Sum,
}

/// See [`Across`].
#[cfg(feature = "module")]
pub(crate) static ACROSS: Across = Across { arrays: Sum::new(), items: Sum::new(), capacity: Sum::new() };

/// Number of times that data was refused in RESTORE, an RDB file, LOADCHUNK, BF.IMPORT, BF.LOAD or BF.MERGE.
#[cfg(feature = "module")]
pub(crate) static PAYLOADS_REFUSED: Counter = Counter::new();

/// Bytes that the reclaiming thread still has to free.
#[cfg(feature = "module")]
pub(crate) static FREEING_BYTES: Gauge = Gauge::new();

/// Clients that wait for a worker.
#[cfg(feature = "module")]
pub(crate) static CLIENTS_WAITING: Gauge = Gauge::new();

/// Bytes of the arguments that the module keeps for the [`CLIENTS_WAITING`].
#[cfg(feature = "module")]
pub(crate) static WAITING_BYTES: Gauge = Gauge::new();

/// Bytes of the filters that exist only because commands of the [`CLIENTS_WAITING`] still read them. They were in keys
/// when the commands arrived.
#[cfg(feature = "module")]
pub(crate) static KEPT_BYTES: Gauge = Gauge::new();

/// Clients that wait for a command that runs in pieces.
#[cfg(feature = "module")]
pub(crate) static CLIENTS_IN_PIECES: Gauge = Gauge::new();

/// Bytes that work in the background will need but hasn't allocated yet.
#[cfg(feature = "module")]
pub(crate) static PROMISED_BYTES: Gauge = Gauge::new();

/// Commands that were refused because too many clients, or clients with too many bytes, were waiting for a worker.
#[cfg(feature = "module")]
pub(crate) static OFFLOADS_REFUSED: Counter = Counter::new();

/// Commands that were abandoned because their client had disconnected, or to free filters that had left their keys.
#[cfg(feature = "module")]
pub(crate) static OFFLOADS_DROPPED: Counter = Counter::new();

/// Panics caught by the guard. The worker pool counts its own.
#[cfg(feature = "module")]
pub(crate) static PANICS: Counter = Counter::new();

/// A counter that only rises.
#[derive(Debug)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Relaxed);
    }

    #[cfg_attr(not(feature = "module"), allow(dead_code, reason = "it is INFO that reads it"))]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A gauge, which rises and falls.
#[derive(Debug)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    pub(crate) const fn new() -> Gauge {
        Gauge(AtomicU64::new(0))
    }

    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Relaxed);
    }

    /// Subtracts an amount that was added before.
    pub(crate) fn sub(&self, amount: u64) {
        self.0.fetch_sub(amount, Relaxed);
    }

    #[cfg_attr(not(feature = "module"), allow(dead_code, reason = "it is INFO that reads it"))]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Sets the gauge to a number that is recounted from time to time.
    #[cfg(feature = "module")]
    pub(crate) fn set(&self, amount: u64) {
        self.0.store(amount, Relaxed);
    }

    /// Adds an amount for as long as the [`Hold`] lives.
    pub(crate) fn hold(&'static self, amount: u64) -> Hold {
        self.add(amount);
        Hold { gauge: self, amount }
    }
}

/// A gauge to which the main thread adds nearly all amounts. The main thread needs no locked instruction, which would
/// take 20 cycles. That matters because deleting a small filter changes five sums.
#[derive(Debug)]
pub struct Sum {
    by_main: AtomicU64,
    by_others: Gauge,
}

thread_local!(static IS_MAIN: Cell<bool> = const { Cell::new(false) });

/// Makes the calling thread the main thread. A caller of [`Sum::change`] on another thread must make sure that the main
/// thread isn't running at that time.
#[cfg(feature = "module")]
pub(crate) fn this_is_the_main_thread() {
    IS_MAIN.set(true);
}

impl Sum {
    const fn new() -> Sum {
        Sum { by_main: AtomicU64::new(0), by_others: Gauge::new() }
    }

    /// Subtracts `before` and adds `now`. For the main thread, and for threads that run while the main thread waits.
    #[inline(always)]
    pub(crate) fn change(&self, before: u64, now: u64) {
        let sum = self.by_main.load(Relaxed);
        self.by_main.store(sum.wrapping_add(now).wrapping_sub(before), Relaxed);
    }

    /// Adds an amount, on any thread.
    #[inline]
    pub(crate) fn add(&self, amount: u64) {
        if IS_MAIN.get() { self.change(0, amount) } else { self.by_others.add(amount) }
    }

    /// Subtracts an amount, on any thread.
    #[inline]
    pub(crate) fn sub(&self, amount: u64) {
        if IS_MAIN.get() { self.change(amount, 0) } else { self.by_others.sub(amount) }
    }

    /// The sum of the two parts. One part alone may be below 0, but the sum isn't.
    #[cfg_attr(not(feature = "module"), allow(dead_code, reason = "it is INFO that reads it"))]
    pub(crate) fn get(&self) -> u64 {
        self.by_main.load(Relaxed).wrapping_add(self.by_others.get())
    }
}

/// An amount that a [`Gauge`] includes until this value is dropped, which happens on every path, including panics.
#[derive(Debug)]
pub(crate) struct Hold {
    gauge: &'static Gauge,
    amount: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.gauge.sub(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_counts_what_all_threads_add_and_take_away() {
        static SUM: Sum = Sum::new();
        let work = |is_main: bool| {
            move || {
                IS_MAIN.set(is_main);
                for amount in 0..10_000 {
                    SUM.add(amount + 1);
                    SUM.sub(amount);
                }
            }
        };
        std::thread::scope(|scope| {
            for is_main in [true, false, false] {
                scope.spawn(work(is_main));
            }
        });
        assert_eq!(SUM.get(), 30_000);
    }

    #[test]
    fn a_hold_is_in_its_gauge_while_it_lives() {
        static GAUGE: Gauge = Gauge::new();
        let first = GAUGE.hold(3);
        let second = GAUGE.hold(4);
        assert_eq!(GAUGE.get(), 7);
        drop(first);
        assert_eq!(GAUGE.get(), 4);
        drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = second;
            panic!("on purpose");
        })));
        assert_eq!(GAUGE.get(), 0);
    }
}
