//! What the server does for waiting clients: between the commands of other clients, from a timer, and when a command
//! finds its key held.
//!
//! A turn runs only a few commands, and none while the server refuses writes (CLIENT PAUSE, FAILOVER). What runs is a
//! command like any other, but in a context that belongs to no client: the reply goes to the client that waits, and in
//! a cluster the slot of the keys must still be on this node.

use super::super::api::{Context, Detached, Text};
use super::super::call::ServerCall;
use super::super::{reclaim, reply, uploads, workers};
use super::client::{self, Retained};
use super::pieces::{Divided, InPieces};
use super::registry::{self, block, block_in_pieces};
use super::state::{Next, State, Waiting};
use super::timer::NextTurn;
use super::work::Resumed;
use bloomery_commands::metrics::CLIENTS_IN_PIECES;
use bloomery_commands::{CommandError, Continuation, Entry, Reply, put_sent, run};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long waiting commands run before other clients get their turn.
const TURN: Duration = Duration::from_millis(1);

/// Maximum number of commands in pieces that a turn checks to find one that can continue. A check takes half a
/// microsecond.
const LOOKED_AT: u64 = 1000;

/// The number of the client whose piece ran last.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The number of the last client of this round. Clients that have come later get their turn in the next round, so they
/// can't keep the earlier ones waiting.
static END: AtomicU64 = AtomicU64::new(0);

/// Counts a refusal in INFO, if INFO has a counter for it.
#[cold]
pub(crate) fn count_refusal(why: &CommandError) {
    if let Some(counter) = why.counter() {
        counter.add(1);
    }
}

/// Continues a command whose first piece is done: later if its client can wait, otherwise immediately.
#[cold]
pub(crate) fn begin_pieces(
    ctx: Context<'_>,
    command: &'static Entry,
    arguments: &[Text<'_>],
    rest: Continuation,
    first: Reply,
) {
    let mut divided = Divided::new(command);
    let mut progress = divided.begin(arguments, rest, first);
    if is_for_anyone(ctx, arguments)
        && let Some(request) = block_in_pieces(ctx)
    {
        let pieces = InPieces::new(divided, request.client, arguments, Some(progress));
        return registry::insert(request, command, ctx.database(), Vec::new(), State::InPieces(pieces));
    }
    while !divided.reply(ctx, progress) {
        progress = divided.piece(ctx, arguments);
    }
}

/// Whether the server would run the command for any client. A client that has sent ASKING or READONLY may use keys that
/// other clients may not, so the next piece might be refused.
fn is_for_anyone(ctx: Context<'_>, arguments: &[Text<'_>]) -> bool {
    let anyone = Detached::new(ctx, ctx.database());
    let key = arguments.get(1..2).unwrap_or_default();
    anyone.is_some_and(|anyone| anyone.context().serves(key))
}

/// Makes a command that writes to the key in argument 1 wait for that key, if the key is held. Returns true if the
/// command now waits or was refused. If the command can't wait, finishes the work that holds the key, and returns
/// false.
#[cold]
pub(crate) fn waits(ctx: Context<'_>, command: &'static Entry, arguments: &[Text<'_>]) -> bool {
    let Some(name) = arguments.get(1) else { return false };
    let is_held = if command.in_pieces {
        registry::worker_on(ctx, *name).is_some()
    } else {
        registry::is_held(ctx, *name, u64::MAX)
    };
    if !is_held {
        return false;
    }
    if workers::may_wait(ctx) {
        match wait(ctx, command, arguments) {
            Ok(true) => return true,
            Ok(false) => {}
            Err(why) => {
                reply::send(ctx, Err(why));
                return true;
            }
        }
    }
    while let Some(number) = registry::worker_on(ctx, *name) {
        if let Some(mut waiting) = registry::remove(number) {
            waiting.finish(ctx);
            run_next_step(ctx, waiting);
        }
    }
    false
}

/// Makes a command wait for the key in argument 1. Returns false if its client can't wait.
fn wait(ctx: Context<'_>, command: &'static Entry, arguments: &[Text<'_>]) -> Result<bool, CommandError> {
    let (request, keys, state) = if command.in_pieces {
        if !is_for_anyone(ctx, arguments) {
            return Ok(false);
        }
        let Some(request) = block_in_pieces(ctx) else { return Ok(false) };
        let pieces = InPieces::new(Divided::new(command), request.client, arguments, None);
        (request, Vec::new(), State::InPieces(pieces))
    } else {
        let Some(request) = block(ctx, arguments)? else { return Ok(false) };
        (request, vec![1], State::Key)
    };
    registry::insert(request, command, ctx.database(), keys, state);
    Ok(true)
}

/// Runs the next step of a command, and replies. If its work has failed or its client has disconnected, the command
/// ends here.
fn run_next_step(ctx: Context<'_>, mut waiting: Waiting) {
    let is_sending = waiting.is_sending();
    let (work, step) = waiting.take_step();
    let Waiting { request, command, database, keys, is_gone, .. } = waiting;
    let (now_ms, bytes) = work.as_ref().map_or((None, 0), |work| (Some(work.now_ms), work.bytes));
    let arguments = Arc::clone(request.arguments());
    let words: Vec<Text<'_>> = arguments.iter().map(Retained::text).collect();
    let client = request.client;
    let resumed = Resumed { request: Cell::new(Some(request)), now_ms };
    let detached = Detached::new(ctx, database);
    let own = match &detached {
        Some(detached) if !is_gone => Ok(detached.context()),
        _ => Err(CommandError::Internal),
    };
    let names: Vec<Text<'_>> = keys.iter().filter_map(|index| words.get(*index).copied()).collect();
    let serves = |ctx: &Context<'_>| ctx.serves(&names);
    let own = own.and_then(|ctx| if serves(&ctx) { Ok(ctx) } else { Err(CommandError::SlotMoved) });
    let outcome = match (step, own) {
        (Err(why), _) => Err(why),
        (Ok(step), Err(why)) => {
            reclaim::free(step, bytes);
            Err(why)
        }
        (Ok(step), Ok(ctx)) => {
            client.started();
            let outcome = match step {
                Some(commit) => commit(ctx, &words, &resumed),
                None => ServerCall::resumed(ctx, command, &words, &resumed).run(|call| match is_sending {
                    true => put_sent(call),
                    false => run(command.name, call),
                }),
            };
            client.ended();
            outcome.inspect_err(count_refusal)
        }
    };
    if is_sending && let (Some(detached), Some(name)) = (&detached, words.get(1)) {
        uploads::stop_sending(detached.context(), *name);
    }
    if let Some(request) = resumed.request.take() {
        registry::unblock(request, command, database, outcome);
    }
    // The work may hold the last references to its filters.
    reclaim::free(work, bytes);
}

/// Does a part of what clients wait for, and runs commands that can go on.
pub(super) fn take_turn(ctx: Context<'_>) -> NextTurn {
    let has_run = run_next_piece(ctx);
    let may_write = !ctx.must_not_write();
    registry::read_slices(ctx, TURN);
    if may_write {
        registry::send_pieces(ctx, TURN);
    }
    let next = if run_ready(ctx, may_write) { NextTurn::After(1) } else { registry::next_turn() };
    if has_run { NextTurn::Soon } else { next }
}

/// Runs commands that can go on until the turn is over. Returns whether there may be more.
fn run_ready(ctx: Context<'_>, may_write: bool) -> bool {
    let started = Instant::now();
    let is_free = |number| {
        let Some((database, arguments, keys)) = registry::keys(number) else { return false };
        let Some(detached) = Detached::new(ctx, database) else { return false };
        let mut names = keys.iter().filter_map(|index| arguments.get(*index)).map(Retained::text);
        !names.any(|name| registry::is_held(detached.context(), name, number))
    };
    let mut from = 0;
    let mut is_freed = may_write && registry::take_freed();
    while let Some((number, next)) = registry::next(from, may_write, is_freed) {
        from = number.saturating_add(1);
        let is_ready = match next {
            Next::CheckKeys => is_free(number),
            Next::Run => true,
            Next::EndPieces => {
                registry::end_pieces(number);
                false
            }
        };
        if let Some(waiting) = is_ready.then(|| registry::remove(number)).flatten() {
            is_freed |= may_write;
            run_next_step(ctx, waiting);
            // A command that runs in pieces gets a turn between two others. Otherwise, it could never run while others
            // hold its key one after another.
            run_next_piece(ctx);
        }
        if started.elapsed() > TURN {
            // The remaining commands get their turn next time.
            registry::set_freed();
            return true;
        }
    }
    false
}

/// Runs the next piece of the first command that can continue. Returns whether there was one.
fn run_next_piece(ctx: Context<'_>) -> bool {
    // During CLIENT PAUSE or FAILOVER, nothing may be written.
    let is_paused = ctx.must_not_write();
    for _ in 0..LOOKED_AT.min(CLIENTS_IN_PIECES.get()) {
        let after = LAST.load(Relaxed).saturating_add(1);
        let next = registry::next_in_pieces(ctx, after..=END.load(Relaxed)).or_else(|| {
            END.store(client::newest(), Relaxed);
            registry::next_in_pieces(ctx, 0..=client::newest())
        });
        let Some((number, writes, database, key)) = next else { return false };
        LAST.store(number, Relaxed);
        let is_held = || {
            let (true, Some(key)) = (registry::holds_any(), key) else { return false };
            let detached = Detached::new(ctx, database);
            detached.is_some_and(|detached| registry::worker_on(detached.context(), key).is_some())
        };
        if !(writes && (is_paused || is_held())) {
            registry::run_piece(ctx, number);
            return true;
        }
    }
    false
}
