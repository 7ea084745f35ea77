//! Commands that run again: those whose work in the background ([`background`]) is done, and those that waited for
//! their keys.
//!
//! A timer checks these commands while there are any. It runs only a few at a time, and none while the server refuses
//! writes (CLIENT PAUSE, FAILOVER). A second run is a command like any other, but in a context that belongs to no
//! client: the reply goes to the client that waits, and in a cluster the slot of the keys must still be on this node.

use super::api::{Context, Detached, Text};
use super::background::{self, Entry, Next};
use super::call::ServerCall;
use super::offload::Retained;
use super::{guard, offload, pieces, reply, uploads};
use crate::command::{Command, CommandError, Reply, put_sent, run};
use crate::metrics::PAYLOADS_REFUSED;
use redis_module::raw;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long waiting commands run before other clients get their turn.
const TURN: Duration = Duration::from_millis(1);

/// Whether a timer is set.
static WATCHING: AtomicBool = AtomicBool::new(false);

/// Runs a command, and sets the timer if it is needed.
#[inline]
pub(super) fn run_watched(command: Command, call: &ServerCall<'_>) -> Result<Reply, CommandError> {
    let outcome = call.reported(|| run(command, call));
    watch(call.ctx);
    outcome
}

/// Counts a refused payload in INFO. Ignores other refusals.
#[cold]
pub(super) fn count_refusal(why: &CommandError) {
    if why.is_of_payload() {
        PAYLOADS_REFUSED.add(1);
    }
}

/// Makes a command that writes to the key in argument 1 wait for that key, if the key is held. Returns true if the
/// command now waits or was refused. If the command can't wait, finishes the work that holds the key, and returns
/// false.
#[cold]
pub(super) fn waits(ctx: Context<'_>, (command, divides): (Command, bool), arguments: &[Text<'_>]) -> bool {
    let Some(name) = arguments.get(1) else { return false };
    let is_held = if divides {
        background::worker_on(ctx, *name).is_some()
    } else {
        background::is_held(ctx, *name, u64::MAX)
    };
    if !is_held {
        return false;
    }
    let wait = || {
        if divides {
            return Ok(pieces::wait_for_key(ctx, command, arguments));
        }
        let Some(request) = background::block(ctx, arguments)? else { return Ok(false) };
        background::wait((None, request), command, ctx.database(), 1..2);
        Ok(true)
    };
    if offload::may_wait(ctx) {
        match wait() {
            Ok(true) => {
                watch(ctx);
                return true;
            }
            Ok(false) => {}
            Err(why) => {
                reply::send(ctx, Err(why));
                return true;
            }
        }
    }
    while let Some(number) = background::worker_on(ctx, *name) {
        if let Some(mut entry) = background::remove(number) {
            entry.finish(ctx);
            run_next(ctx, entry, number);
        }
    }
    false
}

/// Runs the next step of a command from the queue, and replies.
fn run_next(ctx: Context<'_>, entry: Entry, number: u64) {
    let (command, database, keys) = (entry.command, entry.database, entry.keys.clone());
    let arguments = Arc::clone(entry.request.arguments());
    let is_sending = entry.is_sending();
    let detached = Detached::new(ctx, database);
    let words: Vec<Text<'_>> = arguments.iter().map(Retained::text).collect();
    let refused = match &detached {
        None => Some(CommandError::Internal),
        Some(detached) => {
            let serves = detached.context().serves(words.get(keys).unwrap_or_default());
            (!serves).then_some(CommandError::SlotMoved)
        }
    };
    entry.resume(number, refused, |step, resumed| {
        let ctx = detached.as_ref().ok_or(CommandError::Internal)?.context();
        let outcome = match step {
            Some(commit) => commit(ctx, &words, resumed),
            None => ServerCall::resumed(ctx, command, &words, resumed).run(|call| match is_sending {
                true => put_sent(call),
                false => run(command, call),
            }),
        };
        outcome.inspect_err(count_refusal)
    });
    if let (true, Some(detached), Some(name)) = (is_sending, &detached, arguments.get(1)) {
        uploads::stop_sending(detached.context(), name.text());
    }
    watch(ctx);
}

/// Sets the timer, if there is anything to check.
fn watch(ctx: Context<'_>) {
    if background::is_any()
        && let Some(wait) = background::next_look()
        && !WATCHING.swap(true, Relaxed)
    {
        ctx.call_later(wait, look);
    }
}

/// Checks the queue and sets the next timer. The server calls this on the main thread when the timer fires.
unsafe extern "C" fn look(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    WATCHING.store(false, Relaxed);
    // SAFETY: the server passes a context that is valid during the call.
    if let Some(ctx) = unsafe { Context::new(ctx) } {
        guard::call("look", || run_ready(ctx), || ());
        watch(ctx);
    }
}

/// Continues to read and to send for the commands in the queue, and runs those that are ready.
fn run_ready(ctx: Context<'_>) {
    background::read_slices(ctx, TURN);
    let may_write = !ctx.must_not_write();
    if may_write {
        background::send_pieces(ctx, TURN);
    }
    let started = Instant::now();
    let is_free = |number| {
        let Some((database, arguments, keys)) = background::keys(number) else { return false };
        let Some(detached) = Detached::new(ctx, database) else { return false };
        let mut names = arguments.get(keys).unwrap_or_default().iter().map(Retained::text);
        !names.any(|name| background::is_held(detached.context(), name, number))
    };
    let mut from = 0;
    let mut freed = may_write && background::take_freed();
    while let Some(number) = background::first_from(from) {
        from = number.saturating_add(1);
        let is_ready = match background::next(number, may_write) {
            Next::Nothing => false,
            Next::Look => freed && is_free(number),
            Next::Run => true,
        };
        if let Some(entry) = is_ready.then(|| background::remove(number)).flatten() {
            freed = true;
            run_next(ctx, entry, number);
            // A command that runs in pieces gets a turn between two commands of the queue. Otherwise, it could never
            // run while commands in the queue hold its key one after another.
            pieces::run_next(ctx);
        }
        if started.elapsed() > TURN {
            // The remaining commands get their turn next time.
            background::set_freed();
            return;
        }
    }
}
