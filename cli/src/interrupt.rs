//! Interruptions by the user.

use crate::error::Outcome;
use nix::sys::signal::{SigSet, Signal};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Set when the user asks the program to stop (SIGINT or SIGTERM). A task finishes its current step, then stops.
#[derive(Clone)]
pub(crate) struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    /// Whether the user has asked the program to stop.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Stops every thread that checks the flag, as a signal would.
    pub(crate) fn set(&self) {
        self.0.store(true, Relaxed);
    }
}

/// Starts listening for SIGINT and SIGTERM. A second signal ends the process immediately.
///
/// The calling thread and all threads it starts block the signals, and a dedicated thread waits for them. A signal
/// handler wouldn't work: even with SA_RESTART (signal(7)), it would interrupt reads that have a timeout, and the reply
/// to the command in flight would be lost.
pub(crate) fn listen() -> io::Result<Interrupted> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    signals.thread_block()?;
    let interrupted = Interrupted(Arc::new(AtomicBool::new(false)));
    let listening = interrupted.clone();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        if signals.wait().is_ok() {
            listening.set();
            if signals.wait().is_ok() {
                std::process::exit(Outcome::Interrupted.code().into());
            }
        }
    })?;
    Ok(interrupted)
}
