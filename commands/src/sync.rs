//! The atomics, locks and threads that loom replaces in the models of this crate.

/// `std`'s atomic even in the models, for a metric that is only displayed. With loom's atomic, a model would explore
/// every value that a thread may see, which would multiply the executions for nothing.
pub(crate) use std::sync::atomic::AtomicU64 as Figure;

// Unit tests only: loom is a development dependency, and an ordinary build never contains it.
#[cfg(all(loom, test))]
pub(crate) use loom::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    thread,
};
#[cfg(not(all(loom, test)))]
pub(crate) use std::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    thread,
};

/// Tries every interleaving of a model's threads with up to `LOOM_MAX_PREEMPTIONS` (default 2) preemptions.
#[cfg(all(loom, test))]
pub(crate) fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(model);
}
