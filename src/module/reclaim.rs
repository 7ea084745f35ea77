//! Frees large layers on a thread of its own: returning 1 GiB of touched pages to the system takes tens of
//! milliseconds, which the main thread does not have.

use crate::filter::Retired;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

/// Below this many bytes the hand-over costs more than the freeing.
const LARGE: u64 = 1 << 20;

/// The way to the thread; `None` if it could not be started.
static RECLAIMER: OnceLock<Option<Sender<Retired>>> = OnceLock::new();

/// Frees parts of a filter, unless a reader still holds one: then that reader does.
pub(crate) fn free(dropped: Retired) {
    if dropped.bytes() < LARGE {
        return;
    }
    // Started at first use, not when the module loads: if loading failed later, the code would be unmapped under it.
    let reclaimer = RECLAIMER.get_or_init(|| {
        let (sender, receiver) = channel::<Retired>();
        let thread = std::thread::Builder::new().name("bloomery-free".into());
        thread.spawn(move || receiver.into_iter().for_each(drop)).ok().map(|_| sender)
    });
    if let Some(reclaimer) = reclaimer {
        // A dead thread gives them back, and they are freed here.
        drop(reclaimer.send(dropped));
    }
}
