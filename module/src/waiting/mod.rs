//! Clients that wait, so that their commands don't block the server. There is one table of them, one timer, and one
//! function that the server calls when a client disconnects.
//!
//! ```text
//! command ──┬─ many items ──────────────► InPieces ⇄ InPiece ─────────────► unblocked
//!           ├─ reads for long ──────────► Working ─── reply ──────────────► unblocked
//!           ├─ writes to a held key ────► Key ─── the command runs ─┐
//!           └─ works in the background ─► [Reading ►] Working ─ commit ─┬─► Reply ─► unblocked
//!                                                                       └─► Sending ─► Reply
//! ```
//!
//! Every event about a waiting client happens on the main thread: it disconnects, its work has been done, its keys are
//! free, its next piece is due, its result has been sent. A client that disconnects is only marked, and its work is
//! told to stop; the next turn ends its command.

mod begin;
mod client;
mod key_locks;
mod pieces;
mod reading;
mod registry;
mod state;
mod timer;
mod turn;
mod work;

pub(super) use begin::{LONG, offload, prepare, send, wait_for_keys};
pub(super) use client::{MOST_WAITING, Request, may_block, most_bytes};
pub(super) use pieces::{hand_over, is_piece};
pub(super) use registry::{block, give_up_kept, holds_any, is_held};
pub(super) use turn::{begin_pieces, count_refusal, waits};
pub(super) use work::{Commit, Resumed};

use super::api::Context;
use super::workers;

/// Applies the configuration.
pub(super) fn configure() {
    client::configure();
    workers::configure();
}

/// Prepares the timer, while the module is being loaded.
pub(super) fn register(ctx: Context<'_>) {
    timer::register(ctx, turn::take_turn);
}

/// Stops all work and joins the workers, when the server has finished saving and no longer replies to clients.
pub(super) fn shut_down() {
    registry::stop_all();
    workers::POOL.shutdown();
}
