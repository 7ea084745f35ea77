//! Frees large filters on a separate thread. Returning 1 GiB of touched pages to the system takes 45 to 200 ms, and
//! would stall the main thread for that time.
//!
//! The memory counts as used until the thread has freed it. For UNLINK, the server itself frees values on another
//! thread. This thread does the same for DEL of a large filter.

use bloomery_commands::metrics::FREEING_BYTES;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Garbage of fewer bytes is freed immediately, which takes about a millisecond at most.
const LARGE: u64 = if cfg!(small_steps) { 0 } else { 8 << 20 };

type Garbage = Box<dyn Send>;

/// The channel to the thread. `None` if the thread couldn't be started.
static RECLAIMER: OnceLock<Option<Sender<Garbage>>> = OnceLock::new();

/// Does the same as [`free`], then waits until the memory is free, for at most `patience`. For a caller that needs the
/// memory.
pub(crate) fn free_soon(garbage: impl Send + 'static, bytes: u64, patience: Duration) {
    let (last, freed) = channel::<()>();
    free((garbage, last), bytes);
    _ = freed.recv_timeout(patience);
}

/// Drops `garbage`, which owns `bytes` bytes or may have the last reference to them. If it is large, the thread drops
/// it.
pub(crate) fn free(garbage: impl Send + 'static, bytes: u64) {
    if bytes < LARGE {
        return;
    }
    // Started at first use, not when the module is loaded: if loading failed later, the server would unmap the code
    // that the thread runs.
    let reclaimer = RECLAIMER.get_or_init(|| {
        let (sender, receiver) = channel::<Garbage>();
        let thread = std::thread::Builder::new().name("bloomery-free".into());
        thread.spawn(move || receiver.into_iter().for_each(drop)).ok().map(|_| sender)
    });
    if let Some(reclaimer) = reclaimer {
        // If the thread is dead, the channel returns the garbage, and it is freed here.
        drop(reclaimer.send(Box::new((garbage, FREEING_BYTES.hold(bytes)))));
    }
}
