//! The worker pool, and clients that wait for it.
//!
//! A worker never touches what belongs to the main thread: not the key, not the context, and not the reference counts
//! of strings, which aren't atomic. It has its own references to the filter's layers, so anything may happen to the key
//! meanwhile (DEL, FLUSHALL, RENAME, SWAPDB). The last reference frees them. It reads the bytes of an argument that the
//! main thread has retained and unblocks the client. Then the main thread replies and releases the argument.

use super::api::{Context, Text};
use super::server::{server, status};
use super::settings::settings;
use super::{guard, log, reply};
use crate::command::{CommandError, Reply};
use crate::config::MAX_THREADS;
use crate::metrics::{CLIENTS_WAITING, Hold};
use crate::parallel::ParallelFor;
use crate::pool::{Figures, Pool};
use redis_module::raw;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::thread::available_parallelism;

static POOL: Pool = Pool::new();

/// What the pool is doing and has done.
pub(super) fn figures() -> Figures {
    POOL.figures()
}

/// Threads besides the main thread, as configured.
fn workers() -> usize {
    let cores_but_one = || available_parallelism().map_or(0, |cores| cores.get().saturating_sub(1));
    settings().threads.unwrap_or_else(|| cores_but_one().min(MAX_THREADS))
}

/// Applies the configured number of threads. They are started at first use: if loading the module failed after they
/// were started, the server would unmap the code that they run.
pub(super) fn resize() {
    POOL.resize(workers());
}

/// Threads that [`fork`] may use, including the caller.
pub(super) fn threads() -> usize {
    workers().saturating_add(1)
}

/// Runs tasks on the calling thread and on the pool.
pub(super) fn fork(tasks: usize, task: &(dyn Fn(usize) + Sync)) {
    POOL.fork_join(tasks, task);
}

/// An argument of a command that outlives the command.
struct Retained {
    text: NonNull<raw::RedisModuleString>,
    bytes: *const [u8],
}

// SAFETY: only the main thread retains and releases the string. Others read bytes that nobody writes.
unsafe impl Send for Retained {}

impl Retained {
    fn new(ctx: Context<'_>, text: Text<'_>) -> Option<Retained> {
        // SAFETY: context and string are those of the running command.
        unsafe {
            server!(RedisModule_RetainString(ctx.as_ptr(), text.as_ptr()));
            // A large argument may be part of a far larger network buffer. When the command returns, the server moves
            // such a retained argument to a buffer of its own. Doing that here, before the address is taken, leaves it
            // nothing to move.
            server!(RedisModule_TrimStringAllocation(text.as_ptr()));
        }
        let bytes: *const [u8] = text.bytes();
        NonNull::new(text.as_ptr()).map(|text| Retained { text, bytes })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the string is retained and trimmed. The server neither changes nor moves such a string.
        unsafe { &*self.bytes }
    }

    /// For the main thread.
    fn release(self) {
        // SAFETY: it was retained once, and is released once.
        unsafe { server!(RedisModule_FreeString(ptr::null_mut(), self.text.as_ptr())) };
    }
}

/// A client that waits.
struct Blocked(NonNull<raw::RedisModuleBlockedClient>);

// SAFETY: the server documents the functions that a worker calls with it as thread-safe.
unsafe impl Send for Blocked {}

/// What a worker leaves to the main thread.
struct Done {
    reply: Result<Reply, CommandError>,
    argument: Retained,
    _waits: Hold,
}

impl Blocked {
    fn new(ctx: Context<'_>) -> Option<Blocked> {
        // SAFETY: the context is that of the running command. Null for a client that cannot wait.
        let raw =
            unsafe { server!(RedisModule_BlockClient(ctx.as_ptr(), Some(answer), None, Some(free), 0)) };
        NonNull::new(raw).map(Blocked)
    }

    /// For a worker: from now on, time counts as the command's.
    fn started(&self) {
        // SAFETY: the client is blocked by us.
        unsafe {
            server!(RedisModule_BlockedClientMeasureTimeStart(self.0.as_ptr()));
        }
    }

    /// For a worker: hands the reply to the main thread.
    fn unblock(self, done: Done) {
        let done: *mut c_void = Box::into_raw(Box::new(done)).cast();
        // SAFETY: the client is blocked by us and unblocked once. `free` takes the box.
        unsafe {
            server!(RedisModule_BlockedClientMeasureTimeEnd(self.0.as_ptr()));
            server!(RedisModule_UnblockClient(self.0.as_ptr(), done));
        }
    }
}

/// Answers a command with what a worker makes of an argument. Returns `work` if the client cannot wait: in transactions
/// and scripts, while an AOF is loaded, or without workers.
pub(super) fn offload<W>(ctx: Context<'_>, text: Text<'_>, work: W) -> Result<Reply, W>
where
    W: FnOnce(&[u8], &ParallelFor<'_>) -> Reply + Send + 'static,
{
    let denied = raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING | raw::REDISMODULE_CTX_FLAGS_LOADING;
    if workers() == 0 || ctx.flags() & denied != 0 {
        return Err(work);
    }
    // For a client that cannot wait, Valkey ≥ 8.1 returns no handle, and hasn't replied anything.
    let Some(client) = Blocked::new(ctx) else { return Err(work) };
    let Some(argument) = Retained::new(ctx, text) else {
        unreachable!("an argument is never a null pointer")
    };
    let waits = CLIENTS_WAITING.hold(1);
    let job = Box::new(move || {
        client.started();
        let reply = guard::call("job", || Ok(work(argument.bytes(), &fork)), || Err(CommandError::Internal));
        client.unblock(Done { reply, argument, _waits: waits });
    });
    // A pool that has lost its threads returns the job. The client is blocked by now, so the job has to unblock it.
    if let Err(job) = POOL.submit(job) {
        job();
    }
    Ok(Reply::Later)
}

/// The server calls this on the main thread to reply to a client that was unblocked.
unsafe extern "C" fn answer(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    // SAFETY: the context is valid for this call. The private data is the box of `unblock`, which `free` takes later.
    let (ctx, done) = unsafe {
        let done: *mut Done = server!(RedisModule_GetBlockedClientPrivateData(ctx)).cast();
        (Context::new(ctx), done.as_mut())
    };
    if let (Some(ctx), Some(done)) = (ctx, done) {
        let reply = std::mem::replace(&mut done.reply, Ok(Reply::Later));
        guard::call("answer", || reply::send(ctx, reply), || reply::send(ctx, Err(CommandError::Internal)));
    }
    status::OK
}

/// The server calls this on the main thread when the client has its reply, or is gone.
unsafe extern "C" fn free(_ctx: *mut raw::RedisModuleCtx, done: *mut c_void) {
    if done.is_null() {
        return;
    }
    // SAFETY: the box of `unblock`, passed here once.
    let done: Box<Done> = unsafe { Box::from_raw(done.cast()) };
    guard::call("release", || done.argument.release(), || ());
}

/// Joins the workers when the server shuts down. The server ends by `exit`, and none of our threads may run by then.
///
/// # Safety
/// `ctx` is the context of a running `RedisModule_OnLoad`.
pub(super) unsafe fn join_at_shutdown(ctx: *mut raw::RedisModuleCtx) {
    let event = raw::RedisModuleEvent { id: raw::REDISMODULE_EVENT_SHUTDOWN, dataver: 1 };
    // SAFETY: the context is the caller's, and the callback lives as long as the module, which is never unloaded.
    if unsafe { server!(RedisModule_SubscribeToServerEvent(ctx, event, Some(shut_down))) } != status::OK {
        log::warning("the server does not say when it shuts down; worker threads will not be joined then");
    }
}

unsafe extern "C" fn shut_down(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    _data: *mut c_void,
) {
    guard::call("shutdown", || POOL.shutdown(), || ());
}
