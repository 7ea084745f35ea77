//! A command that runs in pieces, and its reply so far.
//!
//! To run a piece, the server calls the command with some of the items, so it applies the same rules as to a client's
//! command: which keys the node serves, and how effects are replicated. The piece doesn't reply. It hands over its
//! outcome, and its answers are appended to the client's reply.
//!
//! A command that finds its key held by background work waits in the same way, before processing any item. In that
//! case, its first piece receives all arguments, and decides itself when to end.

#![allow(unsafe_code)]

use super::super::api::{Context, OwnText, Text};
use super::super::names::name_of;
use super::super::server::server;
use super::super::{guard, reply};
use super::client::Blocked;
use bloomery_commands::metrics::{CLIENTS_IN_PIECES, Hold};
use bloomery_commands::{CommandError, Continuation, Entry, Pieces, Progress, Reply};
use redis_module::raw;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a piece returns: its result, and the items that are left.
type HandedOver = (Result<Reply, CommandError>, Option<Continuation>);

/// Whether the next command is a piece.
static IS_NEXT: AtomicBool = AtomicBool::new(false);

/// What the most recent piece handed over.
static HANDED_OVER: Mutex<Option<HandedOver>> = Mutex::new(None);

fn handed_over() -> MutexGuard<'static, Option<HandedOver>> {
    HANDED_OVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the command that is about to run is a piece, and so has to [hand over](hand_over) its outcome. Clears the
/// flag.
#[inline]
pub(crate) fn is_piece() -> bool {
    IS_NEXT.load(Relaxed) && IS_NEXT.swap(false, Relaxed)
}

/// Stores the outcome of a piece for the command that it belongs to.
pub(crate) fn hand_over(of: Result<Reply, CommandError>, rest: Option<Continuation>) {
    *handed_over() = Some((of, rest));
}

/// Makes the server run a piece: a call of the command with these arguments. Returns the piece's outcome.
fn call(ctx: Context<'_>, command: &'static Entry, words: &[Text<'_>]) -> HandedOver {
    IS_NEXT.store(true, Relaxed);
    let called = ctx.call(name_of(command.name), words);
    IS_NEXT.store(false, Relaxed);
    // The server might have refused to call the command at all.
    handed_over().take().unwrap_or_else(|| match called {
        Ok(()) => (Err(CommandError::Internal), None),
        Err(why) => (Err(CommandError::Server(why)), None),
    })
}

/// A command that runs in pieces, and the state of its reply.
pub(super) struct Divided {
    command: &'static Entry,
    /// `None` before the first piece.
    pieces: Option<Pieces>,
    /// Number of elements in the reply so far, if it is a list.
    answers: Option<usize>,
}

impl Divided {
    /// A command that hasn't done anything yet.
    pub(super) fn new(command: &'static Entry) -> Divided {
        Divided { command, pieces: None, answers: None }
    }

    /// Records that the first piece is done, and which items are left. Returns what the piece adds to the reply.
    pub(super) fn begin(&mut self, arguments: &[Text<'_>], rest: Continuation, first: Reply) -> Progress {
        let end = match rest.within {
            None => arguments.len(),
            Some(_) => arguments.get(rest.first).map_or(0, |blob| blob.bytes().len()),
        };
        self.pieces.insert(Pieces::new(rest, end)).begin(first)
    }

    /// Runs the next piece.
    pub(super) fn piece(&mut self, ctx: Context<'_>, arguments: &[Text<'_>]) -> Progress {
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
    pub(super) fn reply(&mut self, out: Context<'_>, Progress { answers, end }: Progress) -> bool {
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

/// The state of a client whose command runs in pieces.
pub(super) struct InPieces {
    command: Divided,
    /// Where the reply is written.
    out: NonNull<raw::RedisModuleCtx>,
    /// The arguments, which the server keeps while the client is blocked and connected.
    argv: NonNull<[Text<'static>]>,
    pub(super) writes: bool,
    _counted: Hold,
}

// SAFETY: only the main thread uses these values.
unsafe impl Send for InPieces {}

impl InPieces {
    /// `first` is what the first piece adds to the reply, if there has been one.
    pub(super) fn new(
        mut command: Divided,
        client: Blocked,
        arguments: &[Text<'_>],
        first: Option<Progress>,
    ) -> InPieces {
        let out = client.context();
        // SAFETY: the context was just made.
        if let (Some(first), Some(out)) = (first, unsafe { Context::new(out.as_ptr()) }) {
            command.reply(out, first);
        }
        // SAFETY: this is a pointer to the same slice. It is used only while the client is blocked and connected.
        let argv = unsafe { NonNull::new_unchecked(ptr::from_ref(arguments) as *mut [Text<'static>]) };
        let writes = command.command.writes();
        InPieces { command, out, argv, writes, _counted: CLIENTS_IN_PIECES.hold(1) }
    }

    /// The name of the command's key.
    ///
    /// # Safety
    /// The client is blocked and connected, and `'a` doesn't outlive the running callback.
    pub(super) unsafe fn key<'a>(&self) -> Option<Text<'a>> {
        // SAFETY: the server keeps the arguments of such a client.
        unsafe { self.argv.as_ref() }.get(1).copied()
    }

    /// Runs the next piece, and appends its answers to the reply. Returns whether the reply is complete.
    ///
    /// # Safety
    /// The client is blocked and connected.
    pub(super) unsafe fn run(&mut self, ctx: Context<'_>) -> bool {
        // SAFETY: the server keeps the arguments of such a client.
        let arguments = unsafe { self.argv.as_ref() };
        let command = &mut self.command;
        let progress = guard::call(
            "piece",
            || command.piece(ctx, arguments),
            || Progress { answers: None, end: Some(Err(CommandError::Internal)) },
        );
        // SAFETY: the context lives until `end`.
        let out = unsafe { Context::new(self.out.as_ptr()) };
        out.is_none_or(|out| self.command.reply(out, progress))
    }

    /// Sends the reply to the client, if it is still connected.
    pub(super) fn end(self, client: Blocked) {
        // SAFETY: the context was made for this client, and is freed once.
        unsafe { server!(RedisModule_FreeThreadSafeContext(self.out.as_ptr())) };
        client.unblock_with_written();
    }
}
