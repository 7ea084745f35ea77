//! Starts workers, each with a name and with the signals of the process blocked.

#![allow(unsafe_code)]

use crate::sync::thread::{Builder, JoinHandle};
use std::io;

/// Starts worker `number`.
pub(super) fn spawn(number: u64, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    without_signals(|| Builder::new().name(format!("bloomery-{number}")).spawn(work))
}

/// Whether joining a thread would return at once.
#[cfg(not(all(loom, test)))]
pub(super) fn is_finished(thread: &JoinHandle<()>) -> bool {
    thread.is_finished()
}

/// Always false, because loom can't tell whether a thread has ended.
#[cfg(all(loom, test))]
pub(super) fn is_finished(_: &JoinHandle<()>) -> bool {
    false
}

/// Runs `start` with signals blocked. A thread inherits the signal mask of the thread that starts it. If the new thread
/// blocked signals itself, some could arrive before that. Faults stay unblocked: they go to the thread that causes
/// them, and if they were blocked, they would kill the process without the report that the process's handler writes.
#[cfg(all(unix, not(miri)))]
fn without_signals<R>(start: impl FnOnce() -> R) -> R {
    use std::mem::MaybeUninit;
    use std::ptr;
    let (mut blocked, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the calls get sets to write to and to read, and `blocked` is filled before it is read.
    unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT] {
            libc::sigdelset(blocked.as_mut_ptr(), fault);
        }
        if libc::pthread_sigmask(libc::SIG_SETMASK, blocked.as_ptr(), before.as_mut_ptr()) != 0 {
            return start();
        }
    }
    let started = start();
    // SAFETY: the call above succeeded, and so wrote `before`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    started
}

/// Only runs `start`, because Miri and systems other than Unix have no signals to block.
#[cfg(any(not(unix), miri))]
fn without_signals<R>(start: impl FnOnce() -> R) -> R {
    start()
}
