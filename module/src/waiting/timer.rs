//! The timer of the clients that wait. Whenever it fires, the turn of [`register`] runs on the main thread, between the
//! commands of other clients, and says when its next turn is.
//!
//! Any thread may ask for a turn [soon]: an event of the server's loop then sets the timer. The event doesn't run
//! the turn itself, because the server also handles events in the middle of a long-running script, when no command may
//! run. It doesn't call timers at such times. A running timer couldn't set the timer either: a timer that is set by a
//! timer fires a millisecond later at the earliest.

#![allow(unsafe_code)]

use super::super::api::Context;
use super::super::guard;
use super::super::server::server;
use redis_module::raw;
use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::AcqRel, Ordering::Relaxed};

/// When the next turn is, the earliest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NextTurn {
    /// In the next round of the server's event loop.
    Soon,
    /// After this number of milliseconds.
    After(i64),
    /// When somebody asks for it.
    Never,
}

type Turn = fn(Context<'_>) -> NextTurn;

static TURN: OnceLock<Turn> = OnceLock::new();

/// A context of our own, with which timers are set.
static OWN: AtomicPtr<raw::RedisModuleCtx> = AtomicPtr::new(ptr::null_mut());

/// Whether the next turn has been asked for, and hasn't begun.
static IS_ASKED_FOR: AtomicBool = AtomicBool::new(false);

/// The number of the timer that was set last. The earlier ones have no effect.
static LAST: AtomicUsize = AtomicUsize::new(0);

/// Sets what runs when the timer fires.
pub(super) fn register(ctx: Context<'_>, turn: Turn) {
    TURN.get_or_init(|| turn);
    // SAFETY: the context is valid. Ours is never freed, because the module is never unloaded.
    OWN.store(unsafe { server!(RedisModule_GetDetachedThreadSafeContext(ctx.as_ptr())) }, Relaxed);
}

/// Asks for a turn in the next round of the server's event loop. Can be called on any thread.
pub(crate) fn soon() {
    if !IS_ASKED_FOR.swap(true, AcqRel) {
        // SAFETY: this function of the server is documented for any thread. The callback lives as long as the module,
        // which is never unloaded.
        unsafe { server!(RedisModule_EventLoopAddOneShot(Some(set), ptr::null_mut())) };
    }
}

/// Sets the timer. The server calls this on the main thread.
unsafe extern "C" fn set(_data: *mut c_void) {
    guard::call("timer", || fire_after(0), || IS_ASKED_FOR.store(false, Relaxed));
}

/// Sets the timer, in place of one that was set before. Only for the main thread.
fn fire_after(ms: i64) {
    let number = LAST.load(Relaxed).wrapping_add(1);
    LAST.store(number, Relaxed);
    // SAFETY: the context is our own, and the callback lives as long as the module, which is never unloaded. The data
    // is a number.
    unsafe {
        server!(RedisModule_CreateTimer(
            OWN.load(Relaxed),
            ms,
            Some(fired),
            ptr::without_provenance_mut(number)
        ))
    };
}

/// Runs a turn, and sets the timer for the next one. The server calls this on the main thread.
unsafe extern "C" fn fired(ctx: *mut raw::RedisModuleCtx, number: *mut c_void) {
    if number.addr() != LAST.load(Relaxed) {
        return;
    }
    // Whoever asked before this, and so caused no event of its own, has its work seen by this turn.
    IS_ASKED_FOR.swap(false, AcqRel);
    // SAFETY: the server passes a context that is valid during the call.
    let Some(ctx) = (unsafe { Context::new(ctx) }) else { return };
    let turn = || TURN.get().map_or(NextTurn::Never, |turn| turn(ctx));
    match guard::call("turn", turn, || NextTurn::Soon) {
        NextTurn::Soon => soon(),
        NextTurn::After(ms) => fire_after(ms),
        NextTurn::Never => {}
    }
}
