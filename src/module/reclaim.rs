//! Frees large filters on a thread of its own: returning 1 GiB of touched pages to the system takes 90 to 200 ms, which
//! the main thread does not have.
//!
//! Until the thread has come to it, the memory counts as used: what UNLINK does at any size, DEL does here at this one.

use crate::metrics::Gauge;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

/// Below this many bytes the main thread frees by itself, in about a millisecond at most.
const LARGE: u64 = 8 << 20;

type Garbage = Box<dyn Send>;

/// Bytes that the thread has still to free.
pub(super) static WAITING_BYTES: Gauge = Gauge::new();

/// The way to the thread; `None` if it could not be started.
static RECLAIMER: OnceLock<Option<Sender<Garbage>>> = OnceLock::new();

/// Drops something that holds so many bytes, or the last reference to them.
pub(crate) fn free(garbage: impl Send + 'static, bytes: u64) {
    if bytes < LARGE {
        return;
    }
    // Started at first use, not when the module loads: if loading failed later, the code would be unmapped under it.
    let reclaimer = RECLAIMER.get_or_init(|| {
        let (sender, receiver) = channel::<Garbage>();
        let thread = std::thread::Builder::new().name("bloomery-free".into());
        thread.spawn(move || receiver.into_iter().for_each(drop)).ok().map(|_| sender)
    });
    if let Some(reclaimer) = reclaimer {
        // A dead thread gives it back, and it is freed here.
        drop(reclaimer.send(Box::new((garbage, WAITING_BYTES.hold(bytes)))));
    }
}
