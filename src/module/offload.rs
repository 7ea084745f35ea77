//! The worker pool, and clients that wait for it.
//!
//! A worker never touches what belongs to the main thread: neither keys, nor contexts, nor the reference counts of
//! strings, which aren't atomic. The worker has its own references to the filter's layers, so anything can happen to
//! the key in the meantime (DEL, FLUSHALL, RENAME, SWAPDB). Dropping the last reference frees the layers. The worker
//! reads the bytes of an argument that the main thread has retained, and unblocks the client. Then the main thread
//! replies and releases the argument. Commands that write use this module through `background`.
//!
//! The argument of each waiting client occupies memory, which the server counts as used but can't reclaim by itself. So
//! the number of waiting clients and the bytes of their arguments are limited. If a client disconnects, its job ends as
//! well: the server calls [`gone`], and the job is removed from the queue, or stops after its current group of items.

use super::api::{Context, Text};
use super::server::{server, status};
use super::settings::settings;
use super::workers::{POOL, fork};
use super::{guard, log, reclaim, reply};
use crate::command::{CommandError, Reply};
use crate::config::{MAX_THREADS, Settings};
use crate::filter::{Live, LiveRef};
use crate::metrics::{CLIENTS_WAITING, Hold, KEPT_BYTES, OFFLOADS_DROPPED, OFFLOADS_REFUSED, WAITING_BYTES};
use crate::parallel::{ParallelFor, Stop};
use crate::pool::{Figures, Job, JobContext, Ticket};
use redis_module::raw;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

/// Maximum number of waiting clients. A thousand of the shortest jobs take two seconds on one thread.
pub(super) const MOST_WAITING: u64 = 1000;

/// The pool's metrics.
pub(super) fn figures() -> Figures {
    POOL.figures()
}

/// Number of threads in addition to the main thread, as configured.
fn workers() -> usize {
    let cores_but_one = || available_parallelism().map_or(0, |cores| cores.get().saturating_sub(1));
    // There is a worker even on a single core, where the operating system lets the two threads take turns. Without it,
    // large filters would block the server.
    settings().threads.unwrap_or_else(|| cores_but_one().clamp(1, MAX_THREADS))
}

/// Maximum number of bytes of arguments that can wait, as configured. This is a copy, because INFO must not take a
/// lock.
static MOST_BYTES: AtomicU64 = AtomicU64::new(Settings::DEFAULT.offload_max_bytes);

pub(super) fn most_bytes() -> u64 {
    MOST_BYTES.load(Relaxed)
}

/// Applies the configuration. Threads are started at first use: if loading the module failed after they were started,
/// the server would unmap the code that they run.
pub(super) fn configure() {
    MOST_BYTES.store(settings().offload_max_bytes, Relaxed);
    POOL.resize(workers());
}

/// Number of threads that [`fork`] can use, including the caller.
pub(super) fn threads() -> usize {
    workers().saturating_add(1)
}

/// A command argument that outlives the command.
pub(super) struct Retained {
    text: NonNull<raw::RedisModuleString>,
    bytes: *const [u8],
}

// SAFETY: only the main thread retains and releases the string. Other threads only read bytes that nobody writes.
unsafe impl Send for Retained {}
// SAFETY: as above.
unsafe impl Sync for Retained {}

impl Retained {
    pub(super) fn new(ctx: Context<'_>, text: Text<'_>) -> Option<Retained> {
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

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the string is retained and trimmed. The server neither changes nor moves such a string.
        unsafe { &*self.bytes }
    }

    /// The string. Only for the main thread.
    pub(super) fn text(&self) -> Text<'_> {
        // SAFETY: the string is retained. `free` releases it on this thread, after the client has been unblocked.
        unsafe { Text::new(self.text) }
    }

    /// Releases the string. Only for the main thread.
    fn release(&self) {
        // SAFETY: the string was retained once. It is released once, by `free`, which is its last owner.
        unsafe { server!(RedisModule_FreeString(ptr::null_mut(), self.text.as_ptr())) };
    }
}

/// A job for a waiting client.
struct Waiting {
    stop: Stop,
    ticket: Ticket,
    /// The filters that the job reads. These references keep the cells alive after the filters have left their keys.
    inputs: Arc<[Live]>,
    /// The largest of the `inputs`, each as its number of bytes and its index.
    largest: Vec<(u64, usize)>,
}

/// Maximum number of filters of one job that [`give_up_kept`] examines. A job can read tens of thousands of filters,
/// and a thousand jobs can wait.
const LOOKED_AT: usize = 16;

/// Total bytes of these filters' cells.
fn bytes_of(filters: &[Live]) -> u64 {
    filters.iter().map(|filter| filter.as_ref().bytes()).sum()
}

/// The jobs that clients wait for, keyed by the address of the client's handle. Only the main thread takes the lock.
static WAITING: Mutex<BTreeMap<usize, Waiting>> = Mutex::new(BTreeMap::new());

fn waiting() -> MutexGuard<'static, BTreeMap<usize, Waiting>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reserves room for another waiting client with this many bytes of arguments. If no client is waiting, any number of
/// bytes is accepted: otherwise a low limit could make a command impossible.
pub(super) fn room(bytes: u64) -> Result<[Hold; 2], CommandError> {
    give_up_kept();
    let (clients, held, most) = (CLIENTS_WAITING.get(), WAITING_BYTES.get(), most_bytes());
    if clients >= MOST_WAITING {
        Err(CommandError::ManyWaiting { most: MOST_WAITING })
    } else if clients > 0 && held.saturating_add(bytes) > most {
        Err(CommandError::MuchWaiting { bytes: held, most })
    } else {
        Ok([CLIENTS_WAITING.hold(1), WAITING_BYTES.hold(bytes)])
    }
}

type Answer =
    unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int;

/// Called on the main thread when a client disconnects while it is still blocked.
type Gone = unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut raw::RedisModuleBlockedClient);

/// A blocked client. It is unblocked exactly once.
#[derive(Clone, Copy)]
pub(super) struct Blocked(NonNull<raw::RedisModuleBlockedClient>);

// SAFETY: the functions that a worker calls with this handle are documented as thread-safe.
unsafe impl Send for Blocked {}

/// What a worker hands to the main thread.
struct Done {
    reply: Result<Reply, CommandError>,
    arguments: Arc<[Retained]>,
    client: usize,
    _waits: [Hold; 2],
}

impl Blocked {
    /// Blocks the client of the running command. When the client is unblocked, `answer` replies to it. If it
    /// disconnects first, `gone` is called. Returns `None` for a client that can't wait.
    pub(super) fn new(ctx: Context<'_>, answer: Option<Answer>, gone: Gone) -> Option<Blocked> {
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

    /// Unblocks the client. The main thread then sends the reply.
    fn unblock(self, done: Done) {
        let done: *mut c_void = Box::into_raw(Box::new(done)).cast();
        // SAFETY: the client is blocked by us and unblocked once. `free` takes the box.
        unsafe {
            server!(RedisModule_UnblockClient(self.0.as_ptr(), done));
        }
    }
}

/// A command whose client is blocked until the command finishes.
pub(super) struct Request {
    pub(super) client: Blocked,
    arguments: Arc<[Retained]>,
    _waits: [Hold; 2],
}

impl Request {
    /// Blocks the client of the running command, and keeps these arguments. `None` if the client can't wait: in that
    /// case, Valkey ≥ 8.1 returns no handle, and sends no reply itself.
    ///
    /// # Errors
    /// [`CommandError::ManyWaiting`] or [`CommandError::MuchWaiting`].
    pub(super) fn new(
        ctx: Context<'_>,
        arguments: &[Text<'_>],
        gone: Gone,
    ) -> Result<Option<Request>, CommandError> {
        let bytes = arguments.iter().map(|argument| argument.bytes().len() as u64).sum();
        let _waits = room(bytes).inspect_err(|_| OFFLOADS_REFUSED.add(1))?;
        let Some(client) = Blocked::new(ctx, Some(answer), gone) else { return Ok(None) };
        let arguments = arguments.iter().filter_map(|text| Retained::new(ctx, *text)).collect();
        Ok(Some(Request { client, arguments, _waits }))
    }

    /// The bytes of a kept argument.
    pub(super) fn argument(&self, index: usize) -> &[u8] {
        self.arguments.get(index).map_or(&[], Retained::bytes)
    }

    /// The arguments. A worker can read them until it replies.
    pub(super) fn arguments(&self) -> &Arc<[Retained]> {
        &self.arguments
    }

    /// Makes the main thread send the reply and release the arguments.
    pub(super) fn reply(self, reply: Result<Reply, CommandError>) {
        let Request { client, arguments, _waits } = self;
        client.unblock(Done { reply, arguments, client: client.address(), _waits });
    }
}

/// Whether the client of the running command can be blocked.
pub(super) fn may_block(ctx: Context<'_>) -> bool {
    let denied = raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING
        | raw::REDISMODULE_CTX_FLAGS_LOADING
        | raw::REDISMODULE_CTX_FLAGS_REPLICATED;
    ctx.flags() & denied == 0
}

/// Whether the client of the running command can wait for the pool.
pub(super) fn may_wait(ctx: Context<'_>) -> bool {
    has_workers() && may_block(ctx)
}

/// Whether there are workers to wait for.
pub(super) fn has_workers() -> bool {
    workers() > 0
}

/// Answers a command with the result of `work` on an argument. A worker does the work while the client waits. If the
/// client can't wait, the main thread does the work immediately: in transactions and scripts, for commands from a
/// primary or an AOF, and if there are no workers. `inputs` are the filters that `work` reads.
pub(super) fn offload<W>(
    ctx: Context<'_>,
    text: Text<'_>,
    inputs: Arc<[Live]>,
    work: W,
) -> Result<Reply, CommandError>
where
    W: FnOnce(&[u8], &ParallelFor<'_>, &Stop) -> Option<Result<Reply, CommandError>> + Send + 'static,
{
    let here = |work: W| work(text.bytes(), &fork, &Stop::default()).unwrap_or(Err(CommandError::Internal));
    if !may_wait(ctx) {
        return here(work);
    }
    let Some(request) = Request::new(ctx, &[text], gone)? else { return here(work) };
    let (client, stop) = (request.client, Stop::default());
    let job = Box::new({
        let stop = stop.clone();
        move |context: &JobContext<'_>| {
            client.started();
            let parallel: &ParallelFor<'_> = &|tasks, task| context.fork_join(tasks, task);
            let run = || if stop.is_set() { None } else { work(request.argument(0), parallel, &stop) };
            let done = guard::call("job", run, || Some(Err(CommandError::Internal)));
            if stop.is_set() {
                OFFLOADS_DROPPED.add(1);
            }
            // A stopped job has no reply. Nobody waits for one, unless the job was stopped because a filter has left
            // its key.
            let reply = done.unwrap_or(Err(CommandError::Changed));
            client.ended();
            request.reply(reply);
        }
    });
    submit(client, stop, inputs, job);
    Ok(Reply::Later)
}

/// Queues a job that a client waits for.
pub(super) fn submit(client: Blocked, stop: Stop, inputs: Arc<[Live]>, job: Job) {
    match POOL.submit(job) {
        Ok(ticket) => {
            let sized = inputs.iter().enumerate().map(|(place, filter)| (filter.as_ref().bytes(), place));
            let mut largest: Vec<_> = sized.collect();
            largest.sort_unstable_by(|a, b| b.cmp(a));
            largest.truncate(LOOKED_AT);
            let job = Waiting { stop, ticket, inputs, largest };
            drop(waiting().insert(client.address(), job));
        }
        // The pool returns the job if it has no worker to run it. The client is already blocked, so run the job here to
        // unblock it.
        Err(job) => job(&POOL.job_context()),
    }
}

/// Runs a client's job now, on this thread. If a worker has already started the job, leaves it to that worker.
pub(super) fn hurry(client: Blocked) {
    let ticket = waiting().get(&client.address()).map(|waiting| waiting.ticket);
    if let Some(job) = ticket.and_then(|ticket| POOL.withdraw(ticket)) {
        job(&POOL.job_context());
    }
}

/// Gives up the job of a client that disconnected while it was blocked: it hung up, was killed, or was disconnected by
/// REPLICAOF. The server calls this on the main thread.
unsafe extern "C" fn gone(_ctx: *mut raw::RedisModuleCtx, client: *mut raw::RedisModuleBlockedClient) {
    guard::call("gone", || abandon(client.addr()), || ());
}

/// Gives up a client's job: sets its stop flag and runs it here if it is still queued. The job always runs to its end,
/// which unblocks the client and releases the argument.
pub(super) fn abandon(client: usize) {
    let Some(ticket) = waiting().get(&client).map(|waiting| {
        waiting.stop.set();
        waiting.ticket
    }) else {
        return;
    };
    if let Some(job) = POOL.withdraw(ticket) {
        job(&POOL.job_context());
    }
}

/// A filter that is read by jobs.
struct Read<'w> {
    filter: LiveRef<'w>,
    /// The ticket of its first job.
    ticket: Ticket,
    /// The clients of its jobs. A client whose job reads the filter twice is listed twice.
    clients: Vec<usize>,
}

/// Counts the bytes of filters that are no longer in a key and are kept only by jobs. Nobody can delete such filters,
/// so the server would evict other keys instead. If their bytes exceed the limit for waiting bytes, their jobs are
/// given up, the most recent first. A filter that isn't among the largest of its job counts as if it were still in its
/// key.
pub(super) fn give_up_kept() {
    let waiting = waiting();
    let mut read: BTreeMap<usize, Read<'_>> = BTreeMap::new();
    for (client, job) in &*waiting {
        let largest = job.largest.iter().filter_map(|(_, place)| job.inputs.get(*place));
        for filter in largest.map(Live::as_ref) {
            let new = Read { filter, ticket: job.ticket, clients: Vec::new() };
            let read = read.entry(filter.address()).or_insert(new);
            read.ticket = read.ticket.min(job.ticket);
            read.clients.push(*client);
        }
    }
    let mut kept: Vec<_> = read.into_values().collect();
    kept.retain(|read| !read.filter.is_owned_beside(read.clients.len()));
    kept.sort_by_key(|read| read.ticket);
    let (mut bytes, mut given_up) = (0u64, Vec::new());
    for read in kept {
        bytes = bytes.saturating_add(read.filter.bytes());
        if bytes > most_bytes() {
            given_up.extend(read.clients);
        }
    }
    KEPT_BYTES.set(bytes);
    drop(waiting);
    given_up.into_iter().for_each(abandon);
}

/// Replies to an unblocked client. The server calls this on the main thread.
unsafe extern "C" fn answer(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    // SAFETY: the context is valid for this call. The private data is the box from `unblock`, which `free` takes later.
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

/// Frees what was kept for a client. The server calls this on the main thread when the client has received its reply or
/// has disconnected.
unsafe extern "C" fn free(_ctx: *mut raw::RedisModuleCtx, done: *mut c_void) {
    if done.is_null() {
        return;
    }
    // SAFETY: this is the box from `unblock`, and it is passed here once.
    let done: Box<Done> = unsafe { Box::from_raw(done.cast()) };
    let release = || {
        if let Some(Waiting { inputs, .. }) = waiting().remove(&done.client) {
            let bytes = bytes_of(&inputs);
            reclaim::free(inputs, bytes);
        }
        done.arguments.iter().for_each(Retained::release);
    };
    guard::call("release", release, || ());
}

/// Makes the module stop all jobs and join the workers when the server shuts down. The server ends with `exit`, and
/// none of our threads may be running at that point.
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
    let stop_all = || {
        // The server has finished saving, and no longer replies to clients.
        waiting().values().for_each(|waiting| waiting.stop.set());
        POOL.shutdown();
    };
    guard::call("shutdown", stop_all, || ());
}
