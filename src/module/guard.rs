//! The panic guard: every call from the server into the module passes through [`call`].
//!
//! A panic that leaves an `extern "C"` function aborts the server. Behind the guard it costs one command.

use super::log;
use crate::metrics::Counter;
use std::panic::{self, AssertUnwindSafe};

/// Panics caught since the module was loaded.
pub(super) static CAUGHT: Counter = Counter::new();

/// Runs `work`, or gives `fallback` if it panics. `place` is what scripts/panics calls it.
#[inline(always)]
#[cfg_attr(not(failpoints), allow(unused_variables))]
pub(crate) fn call<R>(place: &'static str, work: impl FnOnce() -> R, fallback: impl FnOnce() -> R) -> R {
    let work = || {
        #[cfg(failpoints)]
        crate::failpoint::hit(place);
        work()
    };
    match panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(_) => {
            CAUGHT.add(1);
            fallback()
        }
    }
}

/// Sends panic messages to the server's log. The default hook may print a backtrace, which on Valkey ≥ 8.1 frees
/// memory with another allocator than it came from (RTLD_DEEPBIND) and aborts.
pub(crate) fn install_hook() {
    panic::set_hook(Box::new(|panic| {
        let place =
            panic.location().map_or(String::new(), |place| format!(" at {}:{}", place.file(), place.line()));
        let what = panic.payload_as_str().unwrap_or("no message");
        log::warning(&format!(
            "internal error{place}: {what}. Please report it; this command was not completed"
        ));
    }));
}
