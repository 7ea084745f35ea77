//! The table of all waiting clients, each with its [state](State).
//!
//! Clients are in the order in which they began to wait. Until the second step of its command, a client that works
//! *holds* its keys: a write to them would be lost, or would be applied in a different order on replicas, which execute
//! the whole command at the end. So commands that write to a held key wait as well. A waiting client can go on when no
//! earlier one holds one of its keys.
//!
//! The server itself also changes keys, without asking us: DEL, RENAME, RESTORE, FLUSHALL, SWAPDB, expiry, eviction. So
//! a key is held by name, and a Bloom filter that is being read is held whichever key it is in. In its second step, a
//! command must find the same values in its keys. A cuckoo filter or sketch that was written under another name is no
//! longer the same.

#![allow(unsafe_code)]

use super::super::api::{Context, Text};
use super::super::key::OpenKey;
use super::super::server::{server, status};
use super::super::workers::POOL;
use super::super::{guard, reclaim, reply};
use super::client::{Callbacks, Done, Request, Retained, most_bytes};
use super::key_locks::KeyLocks;
use super::state::{Next, State, Waiting};
use super::timer::{self, NextTurn};
use super::work::{CommandResult, PoolWork};
use bloomery::filter::{Filter, LiveRef};
use bloomery_commands::metrics::{KEPT_BYTES, OFFLOADS_DROPPED};
use bloomery_commands::pool::Ticket;
use bloomery_commands::{Access, CommandError, Entry, Key, Reply};
use redis_module::raw;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The table. Only the main thread takes the lock.
static REGISTRY: Mutex<Registry> = Mutex::new(Registry { clients: BTreeMap::new(), locks: KeyLocks::new() });

/// Number of clients that hold keys. Every write command checks it.
static HOLDERS: AtomicUsize = AtomicUsize::new(0);

/// Whether clients that wait for keys must be looked at again, because a key was released.
static FREED: AtomicBool = AtomicBool::new(false);

struct Registry {
    /// The clients, by the numbers of their requests.
    clients: BTreeMap<u64, Waiting>,
    locks: KeyLocks,
}

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether any client holds keys.
#[inline(always)]
pub(crate) fn holds_any() -> bool {
    HOLDERS.load(Relaxed) > 0
}

/// Whether keys have been released since the last call.
pub(super) fn take_freed() -> bool {
    FREED.swap(false, Relaxed)
}

/// Makes clients that wait for keys be looked at again.
pub(super) fn set_freed() {
    FREED.store(true, Relaxed);
}

/// Blocks the client of the running command, and keeps these arguments. `None` if it can't wait.
pub(crate) fn block(ctx: Context<'_>, arguments: &[Text<'_>]) -> Result<Option<Request>, CommandError> {
    give_up_kept();
    Request::new(ctx, arguments, CALLBACKS)
}

/// Blocks the client of a command in pieces. `None` if it can't wait.
pub(super) fn block_in_pieces(ctx: Context<'_>) -> Option<Request> {
    Request::with_arguments_of_server(ctx, CALLBACKS)
}

const CALLBACKS: Callbacks = Callbacks { answer, gone, free };

/// Makes a client wait. `keys` are the indexes of the arguments that name the keys that it holds.
pub(super) fn insert(
    request: Request,
    command: &'static Entry,
    database: i32,
    keys: Vec<usize>,
    state: State,
) {
    let number = request.number;
    let waiting = Waiting { request, command, database, keys, state, is_gone: false };
    let mut registry = registry();
    let Registry { clients, locks } = &mut *registry;
    waiting.names().for_each(|name| locks.hold_name(number, database, name));
    waiting.filters().for_each(|address| locks.hold_filter(number, address));
    HOLDERS.fetch_add(usize::from(waiting.holds_keys()), Relaxed);
    if waiting.next_turn() != NextTurn::Never {
        timer::soon();
    }
    clients.insert(number, waiting);
}

/// Takes a client out of the table.
pub(super) fn remove(number: u64) -> Option<Waiting> {
    let mut registry = registry();
    let Registry { clients, locks } = &mut *registry;
    let waiting = clients.remove(&number)?;
    waiting.names().for_each(|name| locks.free_name(number, waiting.database, name));
    waiting.filters().for_each(|address| locks.free_filter(number, address));
    if waiting.holds_keys() {
        HOLDERS.fetch_sub(1, Relaxed);
        set_freed();
        timer::soon();
    }
    Some(waiting)
}

/// Replies to a client that isn't in the table.
pub(super) fn unblock(request: Request, command: &'static Entry, database: i32, reply: CommandResult) {
    let (client, number) = (request.client, request.number);
    insert(request, command, database, Vec::new(), State::Reply);
    client.unblock(Done { reply, number });
}

/// Whether a client with a number below `before` holds the key.
pub(crate) fn is_held(ctx: Context<'_>, name: Text<'_>, before: u64) -> bool {
    holds_any() && find(ctx, name, |_| true).is_some_and(|number| number < before)
}

/// The first client that holds the key and doesn't itself wait for keys.
pub(super) fn worker_on(ctx: Context<'_>, name: Text<'_>) -> Option<u64> {
    find(ctx, name, |waiting| !matches!(waiting.state, State::Key))
}

/// The first client that satisfies `is_meant` and holds the key of this name or the filter in that key. Clients that
/// have disconnected are skipped.
fn find(ctx: Context<'_>, name: Text<'_>, is_meant: impl Fn(&Waiting) -> bool) -> Option<u64> {
    let key = OpenKey::<Filter>::open(ctx, name, Access::Read);
    let filter = key.value().ok().flatten().and_then(|filter| filter.live());
    let Registry { clients, locks } = &*registry();
    let is_meant =
        |number: &u64| clients.get(number).filter(|waiting| !waiting.is_gone).is_some_and(&is_meant);
    let named = locks.by_name(ctx.database(), name.bytes()).find(is_meant);
    let reads = |number: &u64, filter| clients.get(number).is_some_and(|waiting| waiting.reads(filter));
    let mut read = filter.into_iter().flat_map(|filter: LiveRef<'_>| {
        locks.by_filter(filter.address()).filter(move |number| reads(number, filter))
    });
    named.into_iter().chain(read.find(is_meant)).min()
}

/// The database and the arguments of a client, and which of the arguments name its keys.
pub(super) fn keys(number: u64) -> Option<(i32, Arc<[Retained]>, Vec<usize>)> {
    let registry = registry();
    let waiting = registry.clients.get(&number)?;
    Some((waiting.database, Arc::clone(waiting.request.arguments()), waiting.keys.clone()))
}

/// The first client with at least this number for which there is something to do.
pub(super) fn next(from: u64, may_write: bool, is_freed: bool) -> Option<(u64, Next)> {
    let registry = registry();
    let mut clients = registry.clients.range(from..);
    clients.find_map(|(number, waiting)| Some((*number, waiting.next(may_write, is_freed)?)))
}

/// When the clients must be looked at again.
pub(super) fn next_turn() -> NextTurn {
    registry().clients.values().map(Waiting::next_turn).min().unwrap_or(NextTurn::Never)
}

/// The first client in this range of numbers whose command can go on with its next piece. Also says whether the command
/// writes, its database, and its key.
pub(super) fn next_in_pieces<'c>(
    _ctx: Context<'c>,
    numbers: RangeInclusive<u64>,
) -> Option<(u64, bool, i32, Option<Text<'c>>)> {
    if numbers.is_empty() {
        return None; // such a range would be a panic
    }
    let registry = registry();
    let mut clients = registry.clients.range(numbers).filter(|(_, waiting)| !waiting.is_gone);
    clients.find_map(|(number, waiting)| match &waiting.state {
        // SAFETY: the client is blocked and connected, and can disconnect only when the running callback has ended.
        State::InPieces(pieces) => Some((*number, pieces.writes, waiting.database, unsafe { pieces.key() })),
        _ => None,
    })
}

/// Runs the next piece of a client's command.
pub(super) fn run_piece(ctx: Context<'_>, number: u64) {
    let begun = registry().clients.get_mut(&number).and_then(|waiting| {
        let state = std::mem::replace(&mut waiting.state, State::InPiece);
        if let State::InPieces(pieces) = state {
            return Some((pieces, waiting.database));
        }
        waiting.state = state;
        None
    });
    let Some((mut pieces, database)) = begun else { return };
    ctx.select(database);
    // SAFETY: the client was just found in pieces, so it is blocked and connected. If it disconnects while the piece
    // runs, the piece has its own references to the strings.
    let is_complete = unsafe { pieces.run(ctx) };
    let mut registry = registry();
    let Some(waiting) = registry.clients.get_mut(&number) else { return };
    waiting.state = State::InPieces(pieces);
    if is_complete || waiting.is_gone {
        drop(registry);
        end_pieces(number);
    }
}

/// Ends a command in pieces, whose reply is complete or isn't wanted.
pub(super) fn end_pieces(number: u64) {
    let Some(waiting) = remove(number) else { return };
    if let State::InPieces(pieces) = waiting.state {
        pieces.end(waiting.request.client);
    }
}

/// Continues to read the strings that clients' work needs, one after another, until `turn` is over.
pub(super) fn read_slices(ctx: Context<'_>, turn: Duration) {
    let begun = Instant::now();
    // The lock can be held here: opening a key doesn't make the server call back into the table.
    for waiting in registry().clients.values_mut().filter(|waiting| !waiting.is_gone) {
        while matches!(waiting.state, State::Reading(_)) {
            if begun.elapsed() >= turn {
                return;
            }
            waiting.read_slice(ctx);
        }
    }
}

/// Continues to send the result of the first client whose result is being sent. The others have to wait, because
/// sending a piece takes as long as a turn.
pub(super) fn send_pieces(ctx: Context<'_>, turn: Duration) {
    let mut registry = registry();
    let mut clients = registry.clients.values_mut().filter(|waiting| !waiting.is_gone);
    if let Some(waiting) = clients.find(|waiting| matches!(waiting.state, State::Sending { is_over: false }))
    {
        waiting.send_more(ctx, turn);
    }
}

/// A filter that is read by jobs.
struct Read<'w> {
    filter: LiveRef<'w>,
    /// The ticket of its first job.
    ticket: Ticket,
    /// The clients of its jobs. A client whose job reads the filter twice is listed twice.
    clients: Vec<u64>,
}

/// Counts the bytes of filters that are no longer in a key and are kept only by jobs. Nobody can delete such filters,
/// so the server would evict other keys instead. If their bytes exceed the limit for waiting bytes, their jobs are
/// given up, the most recent first. A filter that isn't among the largest of its job counts as if it were still in its
/// key.
pub(crate) fn give_up_kept() {
    let registry = registry();
    let mut read: BTreeMap<usize, Read<'_>> = BTreeMap::new();
    for (number, waiting) in &registry.clients {
        let State::Working(work) = &waiting.state else { continue };
        for (filter, ticket) in work.largest() {
            let filter = filter.as_ref();
            let new = Read { filter, ticket, clients: Vec::new() };
            let read = read.entry(filter.address()).or_insert(new);
            read.ticket = read.ticket.min(ticket);
            read.clients.push(*number);
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
    drop(registry);
    given_up.into_iter().for_each(abandon);
}

/// Gives up a client's work: tells it to stop, and runs its job here if it is still queued. The job always runs to its
/// end, which makes the client be unblocked.
fn abandon(number: u64) {
    let job = registry().clients.get(&number).and_then(|waiting| {
        let State::Working(work) = &waiting.state else { return None };
        work.stop();
        work.withdraw()
    });
    if let Some(job) = job {
        job(&POOL.job_context());
    }
}

/// Tells all jobs to stop, because the server shuts down.
pub(super) fn stop_all() {
    registry().clients.values().filter_map(Waiting::work).for_each(PoolWork::stop);
}

/// Records that a client has disconnected while it was blocked: it hung up, was killed, or was disconnected by
/// REPLICAOF. Its command ends in the next turn. The server calls this on the main thread.
unsafe extern "C" fn gone(_ctx: *mut raw::RedisModuleCtx, client: *mut raw::RedisModuleBlockedClient) {
    let forget = || {
        let mut registry = registry();
        let is_its = |(_, waiting): &(&u64, &mut Waiting)| waiting.request.client.address() == client.addr();
        let Some((number, waiting)) = registry.clients.iter_mut().find(is_its) else { return };
        let number = *number;
        waiting.is_gone = true;
        if waiting.holds_keys() {
            OFFLOADS_DROPPED.add(1);
        }
        drop(registry);
        abandon(number);
        timer::soon();
    };
    guard::call("gone", forget, || ());
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
        if let Some(Waiting { request, state, .. }) = remove(done.number) {
            if let State::Working(work) = state {
                let bytes = work.bytes;
                reclaim::free(work, bytes);
            }
            request.release();
        }
    };
    guard::call("release", release, || ());
}
