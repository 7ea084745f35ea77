//! Metrics for the operator: gauges of what exists, and counts of what has happened. The module shows them in INFO.
//!
//! Each metric is one or two relaxed atomics, and is read independently of the others. Most metrics change when memory
//! is allocated or freed, or when something is refused. `ACROSS` changes once in each command that writes. No command
//! changes a metric for each item.

use bloomery::filter::Refusal;
use bloomery::metrics::Sum;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Filters that the server has evicted.
pub static FILTERS_EVICTED: Counter = Counter::new();

/// Loads by LOADCHUNK that have begun and aren't complete.
pub static UPLOADS: Gauge = Gauge::new();

/// Bytes of cells that the filters of the [`UPLOADS`] will have.
pub static UPLOAD_BYTES: Gauge = Gauge::new();

/// Bytes of memory that the [`UPLOADS`] occupy now.
pub static UPLOAD_HELD_BYTES: Gauge = Gauge::new();

/// Filters that are being sent in pieces and aren't in a key yet.
pub static FILTERS_SENDING: Gauge = Gauge::new();

/// Loads that were dropped because they made no progress for five minutes, or because memory was short.
pub static UPLOADS_DROPPED: Counter = Counter::new();

/// Items that workers have tested for waiting clients.
pub static OFFLOADED_ITEMS: Counter = Counter::new();

/// Numbers of filters, by kind: those in keys, and those that are deleted but not freed yet.
#[expect(missing_docs, reason = "the names say it")]
pub struct Filters {
    pub fixed: Sum,
    pub scaling: Sum,
    pub counting: Sum,
    pub window: Sum,
    pub cuckoo: Sum,
    pub foreign: Sum,
}

/// See [`Filters`].
pub static FILTERS: Filters = Filters {
    fixed: Sum::new(),
    scaling: Sum::new(),
    counting: Sum::new(),
    window: Sum::new(),
    cuckoo: Sum::new(),
    foreign: Sum::new(),
};

/// Numbers of sketches, by family, counted like [`Filters`].
#[expect(missing_docs, reason = "the names say it")]
pub struct Sketches {
    pub cms: Sum,
    pub topk: Sum,
    pub tdigest: Sum,
}

/// See [`Sketches`].
pub static SKETCHES: Sketches = Sketches { cms: Sum::new(), topk: Sum::new(), tdigest: Sum::new() };

/// Sums over all Bloom filters in keys, and over those that are deleted but not freed yet.
pub struct Across {
    /// Number of layers and links.
    pub arrays: Sum,
    /// Number of items.
    pub items: Sum,
    /// Number of items that the filters are sized for.
    pub capacity: Sum,
}

/// See [`Across`].
pub static ACROSS: Across = Across { arrays: Sum::new(), items: Sum::new(), capacity: Sum::new() };

/// Number of times that data was refused in RESTORE, an RDB file, LOADCHUNK, BF.IMPORT, BF.LOAD or BF.MERGE.
pub static PAYLOADS_REFUSED: Counter = Counter::new();

/// Adds that were refused because their key was missing, and the configuration doesn't let them create a filter.
pub static CREATIONS_REFUSED: Counter = Counter::new();

/// Filters that a primary or an append-only file creates, and that were refused because another version computed their
/// size, see [`SIZES`](bloomery::params::SIZES).
pub static SIZES_REFUSED: Counter = Counter::new();

/// Items that filters refused, by reason.
#[expect(missing_docs, reason = "the names say it")]
pub struct AddsRefused {
    pub full: Counter,
    pub limit: Counter,
    pub memory: Counter,
}

/// See [`AddsRefused`].
pub static ADDS_REFUSED: AddsRefused =
    AddsRefused { full: Counter::new(), limit: Counter::new(), memory: Counter::new() };

impl AddsRefused {
    /// Counts an item.
    pub(super) fn count(&self, why: Refusal) {
        let counter = match why {
            Refusal::Full => &self.full,
            Refusal::Limit => &self.limit,
            Refusal::Memory => &self.memory,
        };
        counter.add(1);
    }
}

/// Bytes that the reclaiming thread still has to free.
pub static FREEING_BYTES: Gauge = Gauge::new();

/// Clients that wait for a worker.
pub static CLIENTS_WAITING: Gauge = Gauge::new();

/// Bytes of the arguments that the module keeps for the [`CLIENTS_WAITING`].
pub static WAITING_BYTES: Gauge = Gauge::new();

/// Bytes of the filters that exist only because commands of the [`CLIENTS_WAITING`] still read them. They were in keys
/// when the commands arrived.
pub static KEPT_BYTES: Gauge = Gauge::new();

/// Clients that wait for a command that runs in pieces.
pub static CLIENTS_IN_PIECES: Gauge = Gauge::new();

/// Bytes that work in the background will need but hasn't allocated yet.
pub static PROMISED_BYTES: Gauge = Gauge::new();

/// Commands that were refused because too many clients, or clients with too many bytes, were waiting for a worker.
pub static OFFLOADS_REFUSED: Counter = Counter::new();

/// Commands that were abandoned because their client had disconnected, or to free filters that had left their keys.
pub static OFFLOADS_DROPPED: Counter = Counter::new();

/// Panics caught by the guard. The worker pool counts its own.
pub static PANICS: Counter = Counter::new();

/// A counter that only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// 0.
    pub const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    /// Adds an amount.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Relaxed);
    }

    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A gauge, which rises and falls.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// 0.
    pub const fn new() -> Gauge {
        Gauge(AtomicU64::new(0))
    }

    /// Adds an amount.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Relaxed);
    }

    /// Subtracts an amount that was added before.
    pub fn sub(&self, amount: u64) {
        self.0.fetch_sub(amount, Relaxed);
    }

    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Sets the gauge to a number that is recounted from time to time.
    pub fn set(&self, amount: u64) {
        self.0.store(amount, Relaxed);
    }

    /// Adds an amount for as long as the [`Hold`] lives.
    pub fn hold(&'static self, amount: u64) -> Hold {
        self.add(amount);
        Hold { gauge: self, amount }
    }
}

/// An amount that a [`Gauge`] includes until this value is dropped, which happens on every path, including panics.
#[derive(Debug)]
pub struct Hold {
    gauge: &'static Gauge,
    amount: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.gauge.sub(self.amount);
    }
}
