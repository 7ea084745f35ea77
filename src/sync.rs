//! The one door to atomics, locks and threads, so that loom can stand in for `std` in the models of `pool`.

/// Always `std`'s: filters carve their words out of zeroed memory, which loom's atomics cannot be.
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

// Unit tests only: loom is a development dependency, and an ordinary build never sees it.
#[cfg(all(loom, test))]
pub(crate) use loom::{
    sync::{Condvar, Mutex, MutexGuard, atomic::AtomicUsize},
    thread,
};
#[cfg(not(all(loom, test)))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, atomic::AtomicUsize},
    thread,
};
