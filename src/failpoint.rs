//! Panics on demand, for `scripts/panics`: a build with `--cfg failpoints` has the option `failpoint`, which names the
//! place where the next panic shall be. No other build has this file.

use std::sync::{Mutex, PoisonError};

/// The place that panics when it is come to next; empty for none.
static ARMED: Mutex<String> = Mutex::new(String::new());

/// The place that is armed.
pub(crate) fn armed() -> String {
    ARMED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Arms a place, or none.
pub(crate) fn arm(place: &str) {
    place.clone_into(&mut ARMED.lock().unwrap_or_else(PoisonError::into_inner));
}

/// Panics if this place is armed; it no longer is then.
pub(crate) fn hit(place: &str) {
    let mut armed = ARMED.lock().unwrap_or_else(PoisonError::into_inner);
    if *armed == place {
        armed.clear();
        drop(armed);
        panic!("fail point {place}");
    }
}
