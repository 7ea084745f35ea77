//! Blocked clients, and command arguments that outlive their command.
//!
//! The arguments of a waiting client occupy memory, which the server counts as used but can't reclaim by itself. So the
//! number of waiting clients and the bytes of their arguments are limited.

#![allow(unsafe_code)]

use super::super::api::{Context, Text};
use super::super::server::server;
use super::super::settings::settings;
use bloomery_commands::config::Settings;
use bloomery_commands::metrics::{CLIENTS_WAITING, Hold, OFFLOADS_REFUSED, WAITING_BYTES};
use bloomery_commands::{CommandError, Reply};
use redis_module::raw;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Maximum number of waiting clients. A thousand of the shortest jobs take two seconds on one thread.
pub(crate) const MOST_WAITING: u64 = 1000;

/// Maximum number of bytes of arguments that can wait, as configured. This is a copy, because INFO must not take a
/// lock.
static MOST_BYTES: AtomicU64 = AtomicU64::new(Settings::DEFAULT.offload_max_bytes);

pub(crate) fn most_bytes() -> u64 {
    MOST_BYTES.load(Relaxed)
}

/// Applies the configuration.
pub(super) fn configure() {
    MOST_BYTES.store(settings().offload_max_bytes, Relaxed);
}

/// A command argument that outlives the command.
pub(crate) struct Retained {
    text: NonNull<raw::RedisModuleString>,
    bytes: *const [u8],
}

// SAFETY: only the main thread retains and releases the string. Other threads only read bytes that nobody writes.
unsafe impl Send for Retained {}
// SAFETY: as above.
unsafe impl Sync for Retained {}

impl Retained {
    fn new(ctx: Context<'_>, text: Text<'_>) -> Option<Retained> {
        // SAFETY: context and string are those of the running command.
        unsafe {
            server!(RedisModule_RetainString(ctx.as_ptr(), text.as_ptr()));
            // A large argument can be part of a far larger network buffer. When the command returns, the server moves
            // such a retained argument to a buffer of its own. Trimming it here, before its address is taken, leaves
            // the server nothing to move.
            server!(RedisModule_TrimStringAllocation(text.as_ptr()));
        }
        let bytes: *const [u8] = text.bytes();
        NonNull::new(text.as_ptr()).map(|text| Retained { text, bytes })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the string is retained and trimmed. The server neither changes nor moves such a string.
        unsafe { &*self.bytes }
    }

    /// The string. Only for the main thread.
    pub(crate) fn text(&self) -> Text<'_> {
        // SAFETY: the string is retained. It is released on this thread, after the client has been unblocked.
        unsafe { Text::new(self.text) }
    }
}

/// Called on the main thread to reply to a client that was unblocked.
type Answer =
    unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int;

/// Called on the main thread when a client disconnects while it is still blocked.
type Gone = unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut raw::RedisModuleBlockedClient);

/// Called on the main thread with the [`Done`] of a client that has received its reply or has disconnected.
type Free = unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut c_void);

/// The server's calls about a blocked client.
#[derive(Clone, Copy)]
pub(super) struct Callbacks {
    pub(super) answer: Answer,
    pub(super) gone: Gone,
    pub(super) free: Free,
}

/// A blocked client. It is unblocked exactly once.
#[derive(Clone, Copy)]
pub(crate) struct Blocked(NonNull<raw::RedisModuleBlockedClient>);

// SAFETY: the functions that a worker calls with this handle are documented as thread-safe.
unsafe impl Send for Blocked {}

/// A reply on its way to the main thread.
pub(super) struct Done {
    pub(super) reply: Result<Reply, CommandError>,
    /// The number of its client's request.
    pub(super) number: u64,
}

impl Blocked {
    /// Blocks the client of the running command. Without `answer`, its reply is [written](Blocked::context) while it is
    /// blocked. Returns `None` for a client that can't wait.
    fn new(ctx: Context<'_>, answer: Option<Answer>, callbacks: Callbacks) -> Option<Blocked> {
        let Callbacks { gone, free, .. } = callbacks;
        // SAFETY: the context is that of the running command. The handle is null for a client that cannot wait.
        let raw = unsafe { server!(RedisModule_BlockClient(ctx.as_ptr(), answer, None, Some(free), 0)) };
        let client = NonNull::new(raw)?;
        // SAFETY: the client is blocked by us, and the callback lives as long as the module, which is never unloaded.
        unsafe { server!(RedisModule_SetDisconnectCallback(client.as_ptr(), Some(gone))) };
        Some(Blocked(client))
    }

    /// A context in which the main thread can write the client's reply while the client waits. The caller frees it.
    pub(super) fn context(&self) -> NonNull<raw::RedisModuleCtx> {
        // SAFETY: the client is blocked by us.
        let raw = unsafe { server!(RedisModule_GetThreadSafeContext(self.0.as_ptr())) };
        match NonNull::new(raw) {
            Some(ctx) => ctx,
            None => unreachable!("the server allocates a context, or ends"),
        }
    }

    /// Unblocks the client, and sends it what was written in its [context](Blocked::context). Only for the main thread.
    pub(super) fn unblock_with_written(self) {
        // SAFETY: the client is blocked by us and unblocked once.
        unsafe { server!(RedisModule_UnblockClient(self.0.as_ptr(), ptr::null_mut())) };
    }

    /// An identifier that is the same in all callbacks about this client.
    pub(super) fn address(&self) -> usize {
        self.0.addr().get()
    }

    /// Starts measuring the command's run time. Can be called on any thread.
    pub(super) fn started(&self) {
        // SAFETY: the client is blocked by us.
        unsafe {
            server!(RedisModule_BlockedClientMeasureTimeStart(self.0.as_ptr()));
        }
    }

    /// Stops measuring the command's run time.
    pub(super) fn ended(&self) {
        // SAFETY: the client is blocked by us.
        unsafe {
            server!(RedisModule_BlockedClientMeasureTimeEnd(self.0.as_ptr()));
        }
    }

    /// Unblocks the client. The main thread then sends the reply. Can be called on any thread.
    pub(super) fn unblock(self, done: Done) {
        let done: *mut c_void = Box::into_raw(Box::new(done)).cast();
        // SAFETY: the client is blocked by us and unblocked once. The `free` of its callbacks takes the box.
        unsafe {
            server!(RedisModule_UnblockClient(self.0.as_ptr(), done));
        }
    }
}

/// The number of the next request.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The number of the newest request.
pub(super) fn newest() -> u64 {
    NEXT.load(Relaxed).saturating_sub(1)
}

/// The command of a client that is blocked until the command ends.
pub(crate) struct Request {
    pub(super) number: u64,
    pub(super) client: Blocked,
    /// The arguments, if they are kept.
    arguments: Arc<[Retained]>,
    _room: Option<[Hold; 2]>,
}

impl Request {
    /// Blocks the client of the running command, and keeps these arguments. `None` if the client can't wait: in that
    /// case, Valkey ≥ 8.1 returns no handle, and sends no reply itself.
    pub(super) fn new(
        ctx: Context<'_>,
        arguments: &[Text<'_>],
        callbacks: Callbacks,
    ) -> Result<Option<Request>, CommandError> {
        let bytes = arguments.iter().map(|argument| argument.bytes().len() as u64).sum();
        let room = room(bytes).inspect_err(|_| OFFLOADS_REFUSED.add(1))?;
        let Some(client) = Blocked::new(ctx, Some(callbacks.answer), callbacks) else { return Ok(None) };
        let arguments = arguments.iter().filter_map(|text| Retained::new(ctx, *text)).collect();
        Ok(Some(Request { number: NEXT.fetch_add(1, Relaxed), client, arguments, _room: Some(room) }))
    }

    /// Blocks the client of the running command, whose arguments the server keeps. `None` if the client can't wait. Any
    /// number of clients can wait in this way, because their arguments are in memory anyway.
    pub(super) fn with_arguments_of_server(ctx: Context<'_>, callbacks: Callbacks) -> Option<Request> {
        let client = Blocked::new(ctx, None, callbacks)?;
        Some(Request { number: NEXT.fetch_add(1, Relaxed), client, arguments: Arc::new([]), _room: None })
    }

    /// Its number: requests are numbered in order of arrival.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The arguments. A worker can read them until it replies.
    pub(super) fn arguments(&self) -> &Arc<[Retained]> {
        &self.arguments
    }

    /// Releases the arguments. Only for the main thread.
    pub(super) fn release(self) {
        for argument in &*self.arguments {
            // SAFETY: the string was retained once. It is released once, here, by its last owner.
            unsafe { server!(RedisModule_FreeString(ptr::null_mut(), argument.text.as_ptr())) };
        }
    }
}

/// Reserves room for another waiting client with this many bytes of arguments. If no client is waiting, any number of
/// bytes is accepted: otherwise a low limit could make a command impossible.
fn room(bytes: u64) -> Result<[Hold; 2], CommandError> {
    let (clients, held, most) = (CLIENTS_WAITING.get(), WAITING_BYTES.get(), most_bytes());
    if clients >= MOST_WAITING {
        Err(CommandError::ManyWaiting { most: MOST_WAITING })
    } else if clients > 0 && held.saturating_add(bytes) > most {
        Err(CommandError::MuchWaiting { bytes: held, most })
    } else {
        Ok([CLIENTS_WAITING.hold(1), WAITING_BYTES.hold(bytes)])
    }
}

/// Whether the client of the running command can be blocked.
pub(crate) fn may_block(ctx: Context<'_>) -> bool {
    let denied = raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING
        | raw::REDISMODULE_CTX_FLAGS_LOADING
        | raw::REDISMODULE_CTX_FLAGS_REPLICATED;
    ctx.flags() & denied == 0
}
