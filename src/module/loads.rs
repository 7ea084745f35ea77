//! The filters that are being loaded in chunks, and what ends a load besides commands: time, a flush, a key of the same
//! name, and memory that others need.
//!
//! The server evicts keys, or refuses writes, when too much memory is used, and counts what a load holds. But a load
//! isn't in a key, and may never be in one. So when a key has been evicted, and when the server is above its limit, the
//! loads are dropped. Evicting frees as much as the command at hand needs; the next command finds the memory of the
//! loads free.

use super::api::{Context, Text};
use super::server::{server, status};
use super::{guard, log, reclaim};
use crate::command::Loads;
use crate::filter::Garbage;
use crate::metrics;
use redis_module::raw;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Only the main thread takes the lock.
static LOADS: Mutex<Option<Loads>> = Mutex::new(None);

/// Whether the server tells of keys that appear or are evicted.
static WATCHING: AtomicBool = AtomicBool::new(false);

/// Runs `work` on the loads. It must not call the server: what happens to keys there comes back here.
fn with<R>(work: impl FnOnce(&mut Loads) -> R) -> R {
    work(LOADS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Like [`with`], for a command, which may begin a load. With the first one the server is asked to tell of keys: a callback
/// costs every write some 100 ns, so servers without loads are spared it.
pub(super) fn with_loads<R>(ctx: Context<'_>, work: impl FnOnce(&mut Loads) -> R) -> R {
    let result = with(work);
    if metrics::LOADS.get() > 0 && !WATCHING.swap(true, Relaxed) {
        watch_keys(ctx);
    }
    result
}

/// Drops the loads into a database, or into all databases, whose keys have been flushed.
pub(super) fn flush(database: Option<i32>) {
    if metrics::LOADS.get() > 0 {
        free(with(|loads| loads.flush(database)));
    }
}

fn free(dropped: Garbage) {
    let bytes = dropped.bytes();
    reclaim::free(dropped, bytes);
}

/// Subscribes to the server's clock.
///
/// # Safety
/// `ctx` is the context of the running `RedisModule_OnLoad`, and the API is bound.
pub(super) unsafe fn register(ctx: *mut raw::RedisModuleCtx) {
    let cron = raw::RedisModuleEvent { id: raw::REDISMODULE_EVENT_CRON_LOOP, dataver: 1 };
    // SAFETY: the context is the caller's, and the callback lives as long as the module, which is never unloaded.
    if unsafe { server!(RedisModule_SubscribeToServerEvent(ctx, cron, Some(tick))) } != status::OK {
        log::warning("the server does not say that time passes; abandoned loads stay");
    }
}

/// On Valkey only of keys that are evicted: with a callback for other events, MOVE of Valkey 8.1 leaves the key in both
/// databases.
fn watch_keys(ctx: Context<'_>) {
    let is_valkey = ctx.info_is(c"server", c"server_name", "valkey");
    let all = if is_valkey { raw::REDISMODULE_NOTIFY_EVICTED } else { raw::REDISMODULE_NOTIFY_ALL };
    // SAFETY: the context is valid, and the callback lives as long as the module, which is never unloaded.
    if unsafe { server!(RedisModule_SubscribeToKeyspaceEvents(ctx.as_ptr(), all, Some(key_changed))) }
        != status::OK
    {
        log::warning(
            "the server does not say what becomes of keys; loads may outlive the need of their memory",
        );
    }
}

/// The server calls this some times in a second.
unsafe extern "C" fn tick(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    _data: *mut c_void,
) {
    if metrics::LOADS.get() == 0 {
        return;
    }
    let work = || {
        let abandoned = with(|loads| loads.drop_abandoned(Instant::now()));
        if !abandoned.is_empty() {
            report(&abandoned, "they had not moved for five minutes");
            free(abandoned);
        }
        // SAFETY: a plain call, which allows a null context.
        let flags = unsafe { server!(RedisModule_GetContextFlags(std::ptr::null_mut())) }.unsigned_abs();
        // A replica may use more than its limit, and leaves the decision to its primary.
        if flags & raw::REDISMODULE_CTX_FLAGS_OOM != 0 {
            drop_for_memory();
        }
    };
    guard::call("tick", work, || ());
}

fn drop_for_memory() {
    let dropped = with(Loads::drop_for_memory);
    if !dropped.is_empty() {
        report(&dropped, "memory is short");
        // Here, and not on the thread that frees large filters: until their memory is free, each write costs keys. It
        // lasts some 50 ms for 1 GiB.
        drop(dropped);
    }
}

fn report(dropped: &Garbage, why: &str) {
    log::warning(&format!("dropped loads in chunks that held {} bytes: {why}", dropped.bytes()));
}

/// A key has changed, or is gone. If it was evicted, others need the memory of the loads. If it has the name of a load,
/// the load is obsolete.
unsafe extern "C" fn key_changed(
    ctx: *mut raw::RedisModuleCtx,
    kind: c_int,
    _event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // This is called for every write.
    if metrics::LOADS.get() == 0 {
        return status::OK;
    }
    let work = || {
        if kind == raw::REDISMODULE_NOTIFY_EVICTED {
            drop_for_memory();
        }
        let mut key = key;
        // SAFETY: the server passes the context and the name of the key, valid during the call.
        let (ctx, name) = unsafe { (Context::new(ctx), Text::arguments(&mut key, 1)) };
        if let (Some(ctx), Some(name)) = (ctx, name.first()) {
            let key = (ctx.database(), name.bytes().to_vec());
            if let Some(dropped) = with(|loads| loads.forget(&key)) {
                free(dropped);
            }
        }
    };
    guard::call("changed", work, || ());
    status::OK
}
