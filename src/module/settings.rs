//! The current values of the module's options.

use crate::config::Settings;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

static SETTINGS: RwLock<Settings> = RwLock::new(Settings::DEFAULT);

/// The number of times that the options have changed.
static CHANGES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// This thread's copy of the values, and the number of changes that it includes. A command that creates a filter
    /// reads the values twice, and taking the lock cost 20 ns of the microsecond that such a command needs.
    static KNOWN: Cell<(u64, Settings)> = const { Cell::new((0, Settings::DEFAULT)) };
}

/// The values in force.
#[inline]
pub(super) fn settings() -> Settings {
    KNOWN.with(|known| {
        if known.get().0 != CHANGES.load(Ordering::Acquire) {
            known.set(look());
        }
        known.get().1
    })
}

#[cold]
fn look() -> (u64, Settings) {
    let settings = SETTINGS.read().unwrap_or_else(PoisonError::into_inner);
    (CHANGES.load(Ordering::Acquire), *settings)
}

/// Changes the values.
pub(super) fn change<R>(change: impl FnOnce(&mut Settings) -> R) -> R {
    let mut settings = SETTINGS.write().unwrap_or_else(PoisonError::into_inner);
    let result = change(&mut settings);
    CHANGES.fetch_add(1, Ordering::Release);
    result
}
