//! The filters that are being loaded in chunks, and the events that end an upload without a command: a timeout, a
//! flush, a change to the key, and a shortage of memory.
//!
//! When too much memory is used, the server evicts keys or refuses writes. An upload's memory counts, but an upload
//! isn't in a key, and might never get into one. So when a key has been evicted, or the server is above its memory
//! limit, the uploads of clients are dropped, unless they are small. Eviction frees what the current command needs. The
//! memory of the uploads is freed for the commands after it.
//!
//! A replica has the uploads of its primary. It ends none of them by itself, because the two servers might report
//! different key events. The primary tells the replica which ones to end. A server that isn't a replica treats every
//! upload as if a client had begun it, including uploads from a file or from an earlier primary.

#![allow(unsafe_code)]

use super::api::{Context, OwnText, Text};
use super::data_type::stream::Stream;
use super::data_type::{BesideKeys, give_up_saving};
use super::names::name_of;
use super::server::{server, status};
use super::{guard, log, reclaim, replication_sinks};
use bloomery::filter::Garbage;
use bloomery::wire::VERSION;
use bloomery_commands::metrics;
use bloomery_commands::{Chunked, END, Ended, Uploads};
use redis_module::raw;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The uploads. Only the main thread takes the lock.
static UPLOADS: Mutex<Option<Uploads>> = Mutex::new(None);

/// Whether the module has subscribed to key events.
static WATCHING: AtomicBool = AtomicBool::new(false);

/// Bytes of a filter that are sent in one step. With an append-only file, a step takes 3 ms.
const TURN_BYTES: usize = if cfg!(small_steps) { 1 } else { 1 << 20 };

/// Maximum time that the main thread waits for dropped uploads to be freed.
const PATIENCE: Duration = Duration::from_millis(2);

/// Runs `work` on the uploads. `work` must not touch keys, because the server would call back into this file while the
/// lock is held.
fn with<R>(work: impl FnOnce(&mut Uploads) -> R) -> R {
    work(UPLOADS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Like [`with`], for work that might begin an upload. Subscribes to key events when the first upload begins, and not
/// earlier, because the callback costs every write about 100 ns.
pub(super) fn with_uploads<R>(ctx: Context<'_>, work: impl FnOnce(&mut Uploads) -> R) -> R {
    let result = with(work);
    if metrics::UPLOADS.get() > 0 && !WATCHING.swap(true, Relaxed) {
        watch_keys(ctx);
    }
    result
}

/// Drops the uploads in a database, or in all databases, after its keys have been flushed.
pub(super) fn flush(database: Option<i32>) {
    if are_any() {
        free(with(|uploads| uploads.flush(database)));
    }
}

/// Whether there are uploads here, or filters that this server is sending, which are uploads only on other servers.
fn are_any() -> bool {
    metrics::UPLOADS.get() > 0 || metrics::FILTERS_SENDING.get() > 0
}

/// Begins to send a filter for a key in the context's database.
pub(super) fn send(ctx: Context<'_>, key: Text<'_>, filter: impl Chunked, event: &'static CStr) {
    let key = (ctx.database(), key.bytes().to_vec());
    let ended = with(|uploads| uploads.send(key, filter, event));
    if !ended.is_empty() {
        free(end(ctx, ended, "a filter is created in the key"));
    }
}

/// Continues to send the filter for a key in the context's database, until 1 MiB has been sent or `turn` is over.
/// Returns whether only the last piece is left.
pub(super) fn send_more(ctx: Context<'_>, name: Text<'_>, turn: Duration) -> bool {
    let key = (ctx.database(), name.bytes().to_vec());
    let begun = Instant::now();
    let (mut pieces, mut bytes) = (Vec::new(), 0usize);
    let is_last = with(|uploads| {
        uploads.send_more(&key, |command, iterator, piece| {
            bytes = bytes.saturating_add(piece.len());
            pieces.push((command, [iterator.to_string().as_bytes(), piece].map(OwnText::new)));
            bytes < TURN_BYTES && begun.elapsed() < turn
        })
    });
    for (command, [iterator, piece]) in &pieces {
        ctx.replicate(name_of(command), &[name, iterator.as_text(), piece.as_text()]);
    }
    is_last
}

/// Whether filters can be sent in pieces: a replica that restarts in between, or has a replica of its own, finds the
/// earlier pieces only in its RDB file.
pub(super) fn can_be_sent() -> bool {
    with(|uploads| uploads.are_saved)
}

/// Gives up sending a filter. Does nothing if the filter is already in its key.
pub(super) fn stop_sending(ctx: Context<'_>, name: Text<'_>) {
    let key = (ctx.database(), name.bytes().to_vec());
    let Some((filter, command)) = with(|uploads| uploads.stop_sending(&key)) else { return };
    // If this server has become a replica, its primary decides about uploads.
    if may_end(ctx) {
        end_elsewhere(ctx, name, command);
    }
    let bytes = filter.bytes();
    reclaim::free(filter, bytes);
}

fn free(dropped: Garbage) {
    let bytes = dropped.bytes();
    reclaim::free(dropped, bytes);
}

/// The callbacks that save the uploads in RDB files, after the keys, and read them.
pub(super) const BESIDE_KEYS: BesideKeys = BesideKeys { save, load };

/// Writes the uploads, if there are any. If nothing is written here, the server adds nothing to the file either.
unsafe extern "C" fn save(io: *mut raw::RedisModuleIO, _when: c_int) {
    // SAFETY: `io` is the stream that the server passed in.
    let mut stream = unsafe { Stream::new(io) };
    let work = || {
        with(|uploads| {
            if !uploads.is_empty() {
                uploads.save(&mut stream);
            }
        });
    };
    // SAFETY: as above.
    guard::call("save-loads", work, || unsafe { give_up_saving(io) });
}

/// Reads what [`save`] wrote.
unsafe extern "C" fn load(io: *mut raw::RedisModuleIO, encoding: c_int, _when: c_int) -> c_int {
    let work = || {
        if encoding > VERSION.into() {
            return Err(format!("encoding version {encoding} is newer than {VERSION}"));
        }
        // SAFETY: `io` is the stream that the server passed in, and its context lives as long.
        let (ctx, mut stream) =
            unsafe { (Context::new(server!(RedisModule_GetContextFromIO(io))), Stream::new(io)) };
        let loaded = with_uploads(ctx.ok_or("no context")?, |uploads| uploads.load(&mut stream));
        loaded.ok_or("the data ends early")?.map_err(|why| why.to_string())
    };
    match guard::call("load-loads", work, || Err("internal error".to_owned())) {
        Ok(()) => status::OK,
        Err(why) => {
            metrics::PAYLOADS_REFUSED.add(1);
            log::warning(&format!("refused to load what was being loaded in chunks: {why}"));
            status::ERR
        }
    }
}

/// Subscribes to the events that affect uploads. Loads are saved in RDB files only if the server can omit the section
/// when there are no uploads, because a file with such a section can't be read without this module.
pub(super) fn register(ctx: Context<'_>) {
    // SAFETY: a plain call.
    let can_be_saved = unsafe { server!(RedisModule_GetTypeMethodVersion()) } >= SAVING_SOMETIMES;
    let reports_forks = ctx.subscribe(raw::REDISMODULE_EVENT_FORK_CHILD, forked);
    let tells_source = ctx.subscribe(raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, source_changed)
        && ctx.subscribe(raw::REDISMODULE_EVENT_LOADING, source_changed);
    if reports_forks && tells_source {
        replication_sinks::is_told();
    }
    let are_saved = can_be_saved
        && reports_forks
        && tells_source
        && ctx.subscribe(raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD, synced);
    with(|uploads| uploads.are_saved = are_saved);
}

/// The first version of the type methods that lets a type save nothing besides its keys if there is nothing to save
/// (Redis 7.2).
const SAVING_SOMETIMES: c_int = 5;

/// Called when the server has forked. The child writes either an RDB file, which contains the uploads, or something
/// that doesn't contain them: an append-only file without an RDB part, or the keys of a slot that is being migrated. If
/// the child doesn't save the uploads, they are recorded as missed.
unsafe extern "C" fn forked(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    if subevent != raw::REDISMODULE_SUBEVENT_FORK_CHILD_BORN {
        return;
    }
    replication_sinks::forget();
    if !are_any() {
        return;
    }
    let work = || {
        // SAFETY: the context is valid during the call.
        let is_saving = unsafe { Context::new(ctx) }.is_some_and(|ctx| {
            let writes = [c"rdb_bgsave_in_progress", c"aof_rewrite_in_progress"];
            match ctx.info(c"persistence", writes) {
                [Some(1), _] => true,
                [_, Some(1)] => ctx.is_configured(c"aof-use-rdb-preamble", "yes"),
                _ => false,
            }
        });
        with(|uploads| {
            if !(is_saving && uploads.are_saved) {
                uploads.are_missed();
            }
        });
    };
    guard::call("fork", work, || ());
}

/// Called when the server gets or loses a primary, and when it begins or ends reading a file. From then on, the uploads
/// are treated like uploads of clients. While the server has a primary, [`may_end`] protects them, except those that
/// only this server has: nobody would end them.
unsafe extern "C" fn source_changed(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    replication_sinks::forget();
    let is_replica = event.id == raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED
        && subevent == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA;
    let work = || {
        with(Uploads::are_own);
        let unsent = if is_replica { with(Uploads::drop_unsent) } else { Ended::default() };
        // SAFETY: the context is valid during the call.
        if let Some(ctx) = unsafe { Context::new(ctx) }.filter(|_| !unsent.is_empty()) {
            free(end(ctx, unsent, "this server has become a replica"));
        }
    };
    guard::call("source", work, || ());
}

/// Ends the uploads in a full sync, which replaces all keys. If the server empties its databases for the sync, that
/// flush ends the uploads like any other. If it serves the old keys during the sync, it calls this function instead.
unsafe extern "C" fn synced(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    // The old uploads end when the sync begins. If the sync fails, the uploads that have been read so far end, too.
    if subevent != raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_COMPLETED {
        guard::call("sync", || flush(None), || ());
    }
}

/// Subscribes to key events, except evictions. Not on Valkey, because with a callback for these events, MOVE leaves the
/// key in both databases on Valkey 8.1.
fn watch_keys(ctx: Context<'_>) {
    let events = raw::REDISMODULE_NOTIFY_ALL & !raw::REDISMODULE_NOTIFY_EVICTED;
    let subscribe = || {
        // SAFETY: the context is valid, and the callback lives as long as the module, which is never unloaded.
        unsafe { server!(RedisModule_SubscribeToKeyspaceEvents(ctx.as_ptr(), events, Some(key_changed))) }
    };
    if !ctx.is_valkey() && subscribe() != status::OK {
        log::warning(
            "cannot subscribe to keyspace events; loads may occupy memory for longer than necessary",
        );
    }
}

/// Drops uploads that are abandoned or for which there is no memory. Called several times a second.
pub(super) fn tick(ctx: Context<'_>) {
    if metrics::UPLOADS.get() == 0 || !may_end(ctx) {
        return;
    }
    let abandoned = with(|uploads| uploads.drop_abandoned(Instant::now()));
    if !abandoned.is_empty() {
        free(end(ctx, abandoned, "they had not moved for five minutes"));
    }
    if ctx.flags() & raw::REDISMODULE_CTX_FLAGS_OOM != 0 {
        drop_for_memory(ctx);
    }
}

/// Whether this server may now end uploads on its own, without a command. While writes are paused, as in a failover, it
/// can't replicate anything. On a replica, the primary decides which uploads end; while an append-only file is being
/// loaded, the file does.
fn may_end(ctx: Context<'_>) -> bool {
    let obeys = raw::REDISMODULE_CTX_FLAGS_SLAVE | raw::REDISMODULE_CTX_FLAGS_LOADING;
    !ctx.must_not_write() && ctx.flags() & obeys == 0
}

fn drop_for_memory(ctx: Context<'_>) {
    let dropped = with(Uploads::drop_for_memory);
    if !dropped.is_empty() {
        let dropped = end(ctx, dropped, "memory is short");
        let bytes = dropped.bytes();
        // Until the memory of the uploads is free, each write evicts keys. Freeing 1 GiB takes 45 to 200 ms if it
        // consists of cells, and a second if it consists of short pieces.
        reclaim::free_soon(dropped, bytes, PATIENCE);
    }
}

/// Ends dropped uploads on all servers that have their pieces. Returns the uploads, for the caller to free.
fn end(ctx: Context<'_>, dropped: Ended, why: &str) -> Garbage {
    for (database, key, command) in &dropped.elsewhere {
        ctx.select(*database);
        end_elsewhere(ctx, OwnText::new(key).as_text(), command);
    }
    let garbage = dropped.garbage();
    log::warning(&format!("dropped loads in chunks that held {} bytes: {why}", garbage.bytes()));
    garbage
}

/// Ends an upload on all servers that have its pieces.
fn end_elsewhere(ctx: Context<'_>, key: Text<'_>, command: &str) {
    let [iterator, nothing] = END.map(OwnText::new);
    ctx.replicate(name_of(command), &[key, iterator.as_text(), nothing.as_text()]);
}

/// Called when a key has been evicted. Memory is short, so the uploads of clients are dropped.
pub(super) fn evicted(ctx: Context<'_>) {
    if metrics::UPLOADS.get() > 0 && may_end(ctx) {
        drop_for_memory(ctx);
    }
}

/// Called when a key has changed or is gone. An upload for this key is obsolete, and ends here and on the servers that
/// have its pieces.
unsafe extern "C" fn key_changed(
    ctx: *mut raw::RedisModuleCtx,
    _kind: c_int,
    _event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // This is called for every write.
    if metrics::UPLOADS.get() == 0 {
        return status::OK;
    }
    let work = || {
        let mut key = key;
        // SAFETY: the server passes the context and the name of the key, valid during the call.
        let (ctx, name) = unsafe { (Context::new(ctx), Text::arguments(&mut key, 1)) };
        let (Some(ctx), Some(name)) = (ctx, name.first()) else { return };
        if !may_end(ctx) {
            return;
        }
        let key = (ctx.database(), name.bytes().to_vec());
        let obsolete = with(|uploads| uploads.forget(&key));
        if !obsolete.is_empty() {
            free(end(ctx, obsolete, "something else was written to the key"));
        }
    };
    guard::call("changed", work, || ());
    status::OK
}
