//! What is saved: whether this process is writing a file or a snapshot, and for whom.
//!
//! In DUMP, a value is shown as RedisBloom would show it. A file of a server that obeys a primary is also read by
//! servers that go on obeying: its own next start, and its replicas. For them, a value must be what the commands of the
//! primary have made of it.

#![allow(unsafe_code)]

use super::api::Context;
use super::replication_sinks;
use super::server::server;
use redis_module::raw;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether a file or a snapshot is being written, by this process. Only the main thread, or a child's, uses it.
static IS_WRITING: AtomicBool = AtomicBool::new(false);

pub(super) fn register(ctx: Context<'_>) {
    ctx.subscribe(raw::REDISMODULE_EVENT_PERSISTENCE, changed);
}

/// Called in the process that writes.
unsafe extern "C" fn changed(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    let ends = [raw::REDISMODULE_SUBEVENT_PERSISTENCE_ENDED, raw::REDISMODULE_SUBEVENT_PERSISTENCE_FAILED];
    IS_WRITING.store(!ends.contains(&subevent), Relaxed);
    // A file that the main process writes is like one that a child writes.
    replication_sinks::forget();
}

/// Whether a value is being written into a file. If so, whether this server obeys a primary.
pub(super) fn are_written() -> Option<bool> {
    IS_WRITING.load(Relaxed).then(|| {
        // SAFETY: a plain call. Flags of the server need no context.
        let flags = unsafe { server!(RedisModule_GetContextFlags(ptr::null_mut())) };
        flags.unsigned_abs() & raw::REDISMODULE_CTX_FLAGS_SLAVE != 0
    })
}
