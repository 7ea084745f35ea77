//! The values of the module's options that are in force.

use crate::config::Settings;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::{PoisonError, RwLock};

static SETTINGS: RwLock<Settings> = RwLock::new(Settings::DEFAULT);

/// How often they have changed.
static CHANGES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// What this thread has read last, and after which change. The lock takes 20 ns, and creating a filter needs it twice.
    static READ: Cell<(u64, Settings)> = const { Cell::new((0, Settings::DEFAULT)) };
}

/// The values in force.
pub(super) fn settings() -> Settings {
    let changes = CHANGES.load(Acquire);
    let (read_after, settings) = READ.get();
    if read_after == changes {
        return settings;
    }
    let settings = *SETTINGS.read().unwrap_or_else(PoisonError::into_inner);
    READ.set((changes, settings));
    settings
}

/// Changes them.
pub(super) fn change<R>(change: impl FnOnce(&mut Settings) -> R) -> R {
    let result = change(&mut SETTINGS.write().unwrap_or_else(PoisonError::into_inner));
    CHANGES.fetch_add(1, Release);
    result
}
