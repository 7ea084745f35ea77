//! Locks without the standard library. A thread that waits for one spins. One of the few files with `unsafe`.

#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::convert::Infallible;
use core::fmt;
use core::hint::spin_loop;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The number of readers while one thread writes.
const WRITER: usize = usize::MAX;

/// A lock for any number of readers or one writer. A reader needn't wait for writers that wait, so a thread may read
/// twice at the same time.
pub(crate) struct RwLock<T> {
    readers: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands out references as `&mut T` would, and several at a time only for reading.
unsafe impl<T: Send + Sync> Sync for RwLock<T> {}

impl<T> RwLock<T> {
    pub(crate) const fn new(value: T) -> RwLock<T> {
        RwLock { readers: AtomicUsize::new(0), value: UnsafeCell::new(value) }
    }

    /// Waits until nobody writes.
    pub(crate) fn read(&self) -> Locked<RwLockReadGuard<'_, T>> {
        let one_more = |readers: usize| readers.checked_add(1).filter(|readers| *readers != WRITER);
        while self.readers.fetch_update(Acquire, Relaxed, one_more).is_err() {
            spin_loop();
        }
        Ok(RwLockReadGuard(self))
    }

    /// Waits until nobody else reads or writes.
    pub(crate) fn write(&self) -> Locked<RwLockWriteGuard<'_, T>> {
        while self.readers.compare_exchange_weak(0, WRITER, Acquire, Relaxed).is_err() {
            spin_loop();
        }
        Ok(RwLockWriteGuard(self))
    }

    pub(crate) fn into_inner(self) -> Locked<T> {
        Ok(self.value.into_inner())
    }
}

/// One of the readers.
pub(crate) struct RwLockReadGuard<'l, T>(&'l RwLock<T>);

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: nobody writes while there is a reader.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Release);
    }
}

/// The writer.
pub(crate) struct RwLockWriteGuard<'l, T>(&'l RwLock<T>);

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: nobody else has access while there is a writer.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: nobody else has access while there is a writer.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        self.0.readers.store(0, Release);
    }
}

/// A lock for one thread at a time.
pub(crate) struct Mutex<T>(RwLock<T>);

pub(crate) type MutexGuard<'l, T> = RwLockWriteGuard<'l, T>;

// SAFETY: one thread at a time has access to the value, so it needn't be `Sync`.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex(RwLock::new(value))
    }

    /// Waits until nobody else has access.
    pub(crate) fn lock(&self) -> Locked<MutexGuard<'_, T>> {
        self.0.write()
    }

    pub(crate) fn into_inner(self) -> Locked<T> {
        self.0.into_inner()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

/// The same results as those of the standard library's locks.
type Locked<G> = Result<G, PoisonError<G>>;

/// Never happens.
pub(crate) struct PoisonError<G>(Infallible, PhantomData<G>);

impl<G> PoisonError<G> {
    pub(crate) fn into_inner(self) -> G {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::yield_now;

    /// Threads give way between two steps, because otherwise, each would end before the next one begins.
    #[test]
    fn writers_are_alone() {
        let rounds = if cfg!(miri) { 10 } else { 100 };
        let (lock, mutex) = (RwLock::new([0, 0]), Mutex::new(0));
        let write = || {
            let mut both = lock.write().unwrap_or_else(PoisonError::into_inner);
            both[0] += 1;
            yield_now();
            both[1] += 1;
            drop(both);
            let mut one = mutex.lock().unwrap_or_else(PoisonError::into_inner);
            let before = *one;
            yield_now();
            *one = before + 1;
        };
        let read = || {
            let both = lock.read().unwrap_or_else(PoisonError::into_inner);
            let before = *both;
            yield_now();
            let again = lock.read().unwrap_or_else(PoisonError::into_inner);
            assert_eq!((before[0], before), (before[1], *again));
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..rounds).for_each(|_| write()));
                scope.spawn(|| (0..rounds).for_each(|_| read()));
            }
        });
        assert_eq!(lock.into_inner().unwrap_or_else(PoisonError::into_inner), [2 * rounds; 2]);
        assert_eq!(mutex.into_inner().unwrap_or_else(PoisonError::into_inner), 2 * rounds);
    }
}
