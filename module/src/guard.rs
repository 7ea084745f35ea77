//! The panic guard: the module's commands and callbacks do their work within [`call`].
//!
//! A panic that leaves an `extern "C"` function aborts the server. The guard turns it into one failed command.

use super::log;
use bloomery_commands::metrics::PANICS;
use std::panic::{self, AssertUnwindSafe};

/// Runs `work`. If that panics, runs `fallback`. `place` is the name by which scripts/panics plants a panic here.
#[inline(always)]
#[cfg_attr(not(failpoints), allow(unused_variables))]
pub(crate) fn call<R>(place: &'static str, work: impl FnOnce() -> R, fallback: impl FnOnce() -> R) -> R {
    let work = || {
        #[cfg(failpoints)]
        bloomery_commands::failpoint::hit(place);
        work()
    };
    match panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(_) => {
            PANICS.add(1);
            fallback()
        }
    }
}

/// Sends panic messages to the server's log. The default hook may print a backtrace, which aborts the server on Valkey
/// ≥ 8.1, because memory is freed with an allocator other than the one that it came from (RTLD_DEEPBIND).
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
