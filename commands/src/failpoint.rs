//! Panics on demand, for `scripts/panics`. A build with `--cfg failpoints` has the option `failpoint`, which names
//! the place of the next panic. Other builds don't contain this file.

use std::sync::{Mutex, PoisonError};

/// The place that panics the next time it is reached; empty for none.
static ARMED: Mutex<String> = Mutex::new(String::new());

/// The armed place; empty for none.
pub fn armed() -> String {
    ARMED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Arms a place; an empty name disarms.
pub fn arm(place: &str) {
    place.clone_into(&mut ARMED.lock().unwrap_or_else(PoisonError::into_inner));
}

/// If this place is armed, disarms it and panics.
pub fn hit(place: &str) {
    let mut armed = ARMED.lock().unwrap_or_else(PoisonError::into_inner);
    if *armed == place {
        armed.clear();
        drop(armed);
        panic!("fail point {place}");
    }
}
