//! Commands with many items, which run in pieces. Between pieces, the server serves other clients.
//!
//! If the first piece of a command has blocked the server for long enough, the client waits for the rest. From then on,
//! one piece runs in each turn of the server's event loop. Several such commands take turns. To run a piece, the server
//! calls the command with some of the items, so it applies the same rules as to a client's command: which keys the node
//! serves, and how effects are replicated. The piece doesn't reply. It hands over its outcome, and its answers are
//! appended to the client's reply.
//!
//! A command that finds its key [held](super::background) by background work waits in the same way, before processing
//! any item. In that case, its first piece receives all arguments, and decides itself when to end. Background work can
//! also begin between two pieces; the next piece waits for it.
//!
//! While a client waits, the server keeps its arguments.

use super::api::{Context, Detached, OwnText, Text};
use super::names::name_of;
use super::offload::Blocked;
use super::server::server;
use super::{background, guard, reply};
use crate::command::{Command, CommandError, Continuation, Pieces, Progress, Reply};
use crate::metrics::{CLIENTS_IN_PIECES, Hold};
use redis_module::raw;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a piece returns: its result, and the items that are left.
type Outcome = (Result<Reply, CommandError>, Option<Continuation>);

/// Whether the next command is a piece.
static IS_NEXT: AtomicBool = AtomicBool::new(false);

/// What the most recent piece handed over.
static OUTCOME: Mutex<Option<Outcome>> = Mutex::new(None);

/// Commands with pieces left, except the running one. Only the main thread takes the lock.
static WAITING: Mutex<VecDeque<Waiting>> = Mutex::new(VecDeque::new());

/// Whether the next turn is scheduled.
static IS_SCHEDULED: AtomicBool = AtomicBool::new(false);

/// Milliseconds until the waiting commands are checked again, if none of them can continue.
const PAUSED_MS: i64 = 10;

/// Maximum number of waiting commands that a turn checks to find one that can continue. A check takes half a
/// microsecond.
const LOOKED_AT: usize = 1000;

/// The address of the client whose piece is running; 0 if there is none or it has disconnected.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

fn waiting() -> MutexGuard<'static, VecDeque<Waiting>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn outcome() -> MutexGuard<'static, Option<Outcome>> {
    OUTCOME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the command that is about to run is a piece, and so has to [hand over](hand_over) its outcome. Clears the
/// flag.
#[inline]
pub(super) fn is_piece() -> bool {
    IS_NEXT.load(Relaxed) && IS_NEXT.swap(false, Relaxed)
}

/// Stores the outcome of a piece for the command that it belongs to.
pub(super) fn hand_over(of: Result<Reply, CommandError>, rest: Option<Continuation>) {
    *outcome() = Some((of, rest));
}

/// Makes the server run a piece: a call of the command with these arguments. Returns the piece's outcome.
fn call(ctx: Context<'_>, command: Command, words: &[Text<'_>]) -> Outcome {
    IS_NEXT.store(true, Relaxed);
    let called = ctx.call(name_of(command), words);
    IS_NEXT.store(false, Relaxed);
    // The server might have refused to call the command at all.
    outcome().take().unwrap_or_else(|| match called {
        Ok(()) => (Err(CommandError::Internal), None),
        Err(why) => (Err(CommandError::Server(why)), None),
    })
}

/// A command that runs in pieces, and the state of its reply.
struct Work {
    command: Command,
    /// `None` before the first piece.
    pieces: Option<Pieces>,
    /// Number of elements in the reply so far, if it is a list.
    answers: Option<usize>,
}

impl Work {
    /// A command that hasn't done anything yet.
    fn new(command: Command) -> Work {
        Work { command, pieces: None, answers: None }
    }

    /// Records that the first piece is done, and which items are left. Returns what the piece adds to the reply.
    fn begin(&mut self, arguments: &[Text<'_>], rest: Continuation, first: Reply) -> Progress {
        let end = match rest.within {
            None => arguments.len(),
            Some(_) => arguments.get(rest.first).map_or(0, |blob| blob.bytes().len()),
        };
        self.pieces.insert(Pieces::new(rest, end)).begin(first)
    }

    /// Runs the next piece.
    fn piece(&mut self, ctx: Context<'_>, arguments: &[Text<'_>]) -> Progress {
        let Some(pieces) = &mut self.pieces else {
            return match call(ctx, self.command, arguments.get(1..).unwrap_or_default()) {
                (Ok(first), Some(rest)) if !first.ends_early() => self.begin(arguments, rest, first),
                (outcome, _) => Progress { answers: None, end: Some(outcome) },
            };
        };
        let first = pieces.first();
        let blob = arguments.get(first).filter(|_| pieces.is_blob()).map(|blob| blob.bytes());
        let piece = pieces.next(blob.unwrap_or_default());
        let range = piece.0.clone();
        let part = blob.map(|blob| OwnText::new(blob.get(range.clone()).unwrap_or_default()));
        let part = part.as_ref().map(OwnText::as_text);
        let items = part.as_slice();
        let items = if blob.is_some() { items } else { arguments.get(range).unwrap_or_default() };
        let words = [arguments.get(1..first).unwrap_or_default(), items].concat();
        let (of, rest) = call(ctx, self.command, &words);
        pieces.absorb(piece, of, rest)
    }

    /// Appends a piece's answers to the reply, and ends the reply after the last piece. Returns whether the reply is
    /// complete.
    fn reply(&mut self, out: Context<'_>, Progress { answers, end }: Progress) -> bool {
        if let Some(list) = answers {
            if self.answers.is_none() {
                out.begin_array();
            }
            let sent = self.answers.unwrap_or(0).saturating_add(reply::send_elements(out, &list));
            self.answers = Some(sent);
        }
        match (end, self.answers) {
            (None, _) => return false,
            (Some(Ok(_)), Some(sent)) => out.end_array(sent),
            (Some(Err(why)), Some(sent)) => {
                reply::send(out, Err(why));
                out.end_array(sent.saturating_add(1));
            }
            (Some(outcome), None) => reply::send(out, outcome),
        }
        true
    }
}

/// A command whose client waits for its next piece.
struct Waiting {
    work: Work,
    client: Blocked,
    /// Where the reply is written.
    out: NonNull<raw::RedisModuleCtx>,
    /// The arguments, which the server keeps while the client waits.
    argv: NonNull<[Text<'static>]>,
    database: i32,
    writes: bool,
    _waits: Hold,
}

// SAFETY: only the main thread uses these values.
unsafe impl Send for Waiting {}

impl Waiting {
    /// Whether background work still holds the command's key.
    fn is_held(&self, ctx: Context<'_>) -> bool {
        if !background::is_any() {
            return false;
        }
        // SAFETY: the client is blocked, so the server keeps its arguments.
        let arguments = unsafe { self.argv.as_ref() };
        let (detached, name) = (Detached::new(ctx, self.database), arguments.get(1));
        let (Some(detached), Some(name)) = (detached, name) else { return false };
        background::worker_on(detached.context(), *name).is_some()
    }

    /// Runs the next piece, and appends its answers to the reply. Returns whether the reply is complete.
    fn run(&mut self, ctx: Context<'_>) -> bool {
        ctx.select(self.database);
        // SAFETY: the client is blocked, so the server keeps its arguments.
        let arguments = unsafe { self.argv.as_ref() };
        let work = &mut self.work;
        let progress = guard::call(
            "piece",
            || work.piece(ctx, arguments),
            || Progress { answers: None, end: Some(Err(CommandError::Internal)) },
        );
        // SAFETY: the context lives until `end`.
        let out = unsafe { Context::new(self.out.as_ptr()) };
        out.is_none_or(|out| self.work.reply(out, progress))
    }

    /// Sends the reply to the client, if it is still connected.
    fn end(self) {
        // SAFETY: the context was made for this client, and is freed once.
        unsafe { server!(RedisModule_FreeThreadSafeContext(self.out.as_ptr())) };
        self.client.unblock_with_written();
    }
}

/// Continues a command whose first piece is done: later if its client can wait, otherwise immediately.
#[cold]
pub(super) fn begin(
    ctx: Context<'_>,
    (command, writes): (Command, bool),
    arguments: &[Text<'_>],
    rest: Continuation,
    first: Reply,
) {
    let mut work = Work::new(command);
    let mut progress = work.begin(arguments, rest, first);
    let Some(client) = block(ctx, arguments) else {
        while !work.reply(ctx, progress) {
            progress = work.piece(ctx, arguments);
        }
        return;
    };
    let out = client.context();
    // SAFETY: the context was just made.
    if let Some(out) = unsafe { Context::new(out.as_ptr()) } {
        work.reply(out, progress);
    }
    wait(ctx, work, client, out, arguments, writes);
}

/// Makes a write command wait for its key. Returns false if its client can't wait.
pub(super) fn wait_for_key(ctx: Context<'_>, command: Command, arguments: &[Text<'_>]) -> bool {
    let Some(client) = block(ctx, arguments) else { return false };
    let out = client.context();
    wait(ctx, Work::new(command), client, out, arguments, true);
    true
}

fn wait(
    ctx: Context<'_>,
    work: Work,
    client: Blocked,
    out: NonNull<raw::RedisModuleCtx>,
    arguments: &[Text<'_>],
    writes: bool,
) {
    // SAFETY: this is a pointer to the same slice. It is used only while the client is blocked.
    let argv = unsafe { NonNull::new_unchecked(ptr::from_ref(arguments) as *mut [Text<'static>]) };
    let _waits = CLIENTS_IN_PIECES.hold(1);
    waiting().push_back(Waiting { work, client, out, argv, database: ctx.database(), writes, _waits });
    schedule();
}

/// Blocks the client of a command. `None` if the server would run the command only for this client, or if the client is
/// of a kind that Valkey ≥ 8.1 doesn't block. Any number of clients can wait, because their arguments are in memory
/// anyway.
fn block(ctx: Context<'_>, arguments: &[Text<'_>]) -> Option<Blocked> {
    // A client that has sent ASKING or READONLY may use keys that other clients may not.
    let anyone = Detached::new(ctx, ctx.database());
    let key = arguments.get(1..2).unwrap_or_default();
    if !anyone.is_some_and(|anyone| anyone.context().serves(key)) {
        return None;
    }
    Blocked::new(ctx, None, gone)
}

/// Makes the server call [`turn`] in the next turn of its event loop, from a timer. An event in that turn sets the
/// timer, because a timer that is set by a running timer fires a millisecond later at the earliest.
fn schedule() {
    if !IS_SCHEDULED.swap(true, Relaxed) {
        // SAFETY: the callback lives as long as the module, which is never unloaded.
        unsafe { server!(RedisModule_EventLoopAddOneShot(Some(set_timer), ptr::null_mut())) };
    }
}

/// Sets the timer that runs the next piece. The server calls this on the main thread, even when it handles events in
/// the middle of a long-running script. It doesn't call timers at such times, so the piece runs from a timer.
unsafe extern "C" fn set_timer(_data: *mut c_void) {
    let set = || match waiting().front() {
        Some(first) => call_after(first.out, 0),
        None => IS_SCHEDULED.store(false, Relaxed),
    };
    guard::call("timer", set, || IS_SCHEDULED.store(false, Relaxed));
}

fn call_after(ctx: NonNull<raw::RedisModuleCtx>, ms: i64) {
    // SAFETY: the context is valid, and the callback lives as long as the module, which is never unloaded.
    unsafe { server!(RedisModule_CreateTimer(ctx.as_ptr(), ms, Some(turn), ptr::null_mut())) };
}

/// Runs the next piece. The server calls this on the main thread, between the commands of other clients.
unsafe extern "C" fn turn(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    // SAFETY: the context is valid for this call.
    let Some(ctx) = (unsafe { Context::new(ctx) }) else { return };
    let again = || {
        IS_SCHEDULED.store(false, Relaxed);
        schedule();
    };
    guard::call("turn", || take_turn(ctx), again);
}

fn take_turn(ctx: Context<'_>) {
    IS_SCHEDULED.store(false, Relaxed);
    if run_next(ctx) {
        schedule();
    } else if let Some(first) = waiting().front() {
        IS_SCHEDULED.store(true, Relaxed);
        call_after(first.out, PAUSED_MS);
    }
}

/// Runs the next piece of the first command that can continue. Returns whether there was one.
pub(super) fn run_next(ctx: Context<'_>) -> bool {
    // During CLIENT PAUSE or FAILOVER, nothing may be written.
    let is_paused = ctx.must_not_write();
    let next = {
        let mut waiting = waiting();
        (0..waiting.len().min(LOOKED_AT)).find_map(|_| {
            let next = waiting.pop_front()?;
            if next.writes && (is_paused || next.is_held(ctx)) {
                waiting.push_back(next);
                return None;
            }
            Some(next)
        })
    };
    let Some(mut next) = next else { return false };
    RUNNING.store(next.client.address(), Relaxed);
    let is_complete = next.run(ctx);
    let has_gone = RUNNING.swap(0, Relaxed) == 0;
    if is_complete || has_gone {
        next.end();
    } else {
        waiting().push_back(next);
    }
    true
}

/// Ends the command of a client that disconnected while it was waiting: it hung up, was killed, or was disconnected by
/// REPLICAOF. The server calls this on the main thread.
unsafe extern "C" fn gone(_ctx: *mut raw::RedisModuleCtx, client: *mut raw::RedisModuleBlockedClient) {
    let forget = || {
        let client = client.addr();
        if RUNNING.load(Relaxed) == client {
            RUNNING.store(0, Relaxed);
            return;
        }
        let gone = {
            let mut waiting = waiting();
            let place = waiting.iter().position(|waiting| waiting.client.address() == client);
            place.and_then(|place| waiting.remove(place))
        };
        if let Some(gone) = gone {
            gone.end();
        }
    };
    guard::call("gone", forget, || ());
}
