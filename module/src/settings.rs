//! The current values of the module's options.

use bloomery_commands::config::Settings;
use bloomery_commands::tenants::Tenants;
use std::sync::{PoisonError, RwLock};

static SETTINGS: RwLock<Settings> = RwLock::new(Settings::DEFAULT);

/// The values in force.
pub(super) fn settings() -> Settings {
    *SETTINGS.read().unwrap_or_else(PoisonError::into_inner)
}

/// The tenants in force.
pub(super) fn tenants() -> Tenants {
    SETTINGS.read().unwrap_or_else(PoisonError::into_inner).tenants
}

/// Changes the values.
pub(super) fn change<R>(change: impl FnOnce(&mut Settings) -> R) -> R {
    change(&mut SETTINGS.write().unwrap_or_else(PoisonError::into_inner))
}
