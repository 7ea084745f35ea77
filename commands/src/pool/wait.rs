//! Functions with which the threads of a pool wait for a lock and for news.

use crate::sync::{Mutex, MutexGuard};
use std::hint::spin_loop;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// How long an idle worker, or a caller whose tasks are all claimed, watches for news before it sleeps. Waking a thread
/// takes about as long: a worker began a task after 1.2 µs if it was spinning, and after 8 µs if it was asleep.
const SPIN: Duration = Duration::from_micros(5);

/// Takes a lock, poisoned or not. No code that may panic runs under these locks, so the data that they protect is
/// always consistent.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches for news for up to [`SPIN`], and calls `pause` from time to time. Returns whether there is any news. In a
/// model, where time doesn't pass, it looks once.
pub(super) fn spin(news: impl Fn() -> bool, pause: fn()) -> bool {
    let end = (!cfg!(all(loom, test))).then(|| Instant::now() + SPIN);
    while end.is_some_and(|end| Instant::now() < end) {
        // Reading the clock takes about as long as `spin_loop`, so it happens once in eight looks.
        for _ in 0..8 {
            if news() {
                return true;
            }
            spin_loop();
        }
        pause();
    }
    news()
}
