//! The atomics, locks and threads that loom replaces in the models of this crate (the modules called `model`), and the
//! locks without the standard library.

#[cfg(not(any(feature = "std", all(loom, test))))]
pub(crate) use crate::mem::lock::{
    Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
#[cfg(not(all(loom, test)))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
// Unit tests only: loom is a development dependency, and an ordinary build never contains it.
#[cfg(all(loom, test))]
pub(crate) use loom::{
    sync::{
        Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};
#[cfg(any(feature = "std", all(loom, test)))]
pub(crate) use std::sync::PoisonError;
#[cfg(all(feature = "std", not(all(loom, test))))]
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Tries every interleaving of a model's threads with up to `LOOM_MAX_PREEMPTIONS` (default 2) preemptions:
///
/// ```text
/// RUSTFLAGS="--cfg loom" cargo test --release --lib model
/// ```
#[cfg(all(loom, test))]
pub(crate) fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(model);
}
