//! Whether anyone receives what is replicated. If nobody does, the commands to replicate aren't even built: building
//! one of eleven words took a third of the time that it takes to create a small filter.
//!
//! The flags of a context show whether there is an append-only file or a cluster. Replicas are shown only in a section
//! of INFO, which the server needs 5 µs to write. So the answer is remembered. "Somebody listens" holds for a second.
//! "Nobody does" holds until the server forks or changes its role: a new replica first gets a snapshot written by a
//! forked child, which contains everything done before. A server that has changed its role or read a file is asked
//! again, because replicas might then resume from its backlog, without a snapshot.

use super::api::Context;
use redis_module::raw;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// How long the answer "somebody listens" holds, in milliseconds.
const REMEMBERED_MS: u64 = 1000;

/// Whether the server reports forks and changes of its role. Only the main thread uses this and the next two statics.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// Whether it is certain that nobody listens.
static NOBODY: AtomicBool = AtomicBool::new(false);

/// When the server was last asked, in Unix milliseconds; 0 if the answer no longer holds.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// Number of calls of [`forget`], from 1.
static SAVES: AtomicU64 = AtomicU64::new(1);

/// Records that the server reports forks and changes of its role, each of which leads to a call of [`forget`].
pub(super) fn is_told() {
    IS_TOLD.store(true, Relaxed);
}

/// Forgets the answer, because the server has forked, changed its role, or read a file.
pub(super) fn forget() {
    SAVES.fetch_add(1, Relaxed);
    NOBODY.store(false, Relaxed);
    ASKED.store(0, Relaxed);
}

/// A number that changes when the server forks or saves. A server that doesn't report forks may fork at any time.
pub(super) fn saves() -> u64 {
    if IS_TOLD.load(Relaxed) { SAVES.load(Relaxed) } else { SAVES.fetch_add(1, Relaxed) }
}

/// Whether anybody receives what is replicated in this context, which has these flags. If in doubt, the answer is yes.
pub(super) fn exist(ctx: Context<'_>, flags: u32) -> bool {
    // In these states, somebody may begin to listen without a fork of this server.
    let may_be = raw::REDISMODULE_CTX_FLAGS_AOF
        | raw::REDISMODULE_CTX_FLAGS_CLUSTER
        | raw::REDISMODULE_CTX_FLAGS_SLAVE
        | raw::REDISMODULE_CTX_FLAGS_LOADING;
    if flags & may_be != 0 {
        return true;
    }
    if NOBODY.load(Relaxed) {
        return false;
    }
    let now = ctx.now_ms();
    if now.abs_diff(ASKED.load(Relaxed)) < REMEMBERED_MS {
        return true;
    }
    let exist = ctx.has_replicas();
    ASKED.store(now, Relaxed);
    NOBODY.store(!exist && IS_TOLD.load(Relaxed), Relaxed);
    exist
}
