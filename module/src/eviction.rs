//! Counts the filters that the server evicts, and tells the uploads that memory is short.
//!
//! The server reports an eviction when the value is already gone. So the module remembers the last key that a filter
//! has left, and the server's time, which changes with each command and each eviction. Redis 7.0 doesn't tell the time:
//! there, a key is counted by mistake if its filter is deleted, and another value is then evicted from it before the
//! next tick.

#![allow(unsafe_code)]

use super::api::{Context, Text};
use super::server::{server, status};
use super::{guard, log, uploads};
use bloomery_commands::metrics::FILTERS_EVICTED;
use redis_module::raw;
use std::ffi::{c_char, c_int};
use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A [hash](hash_now) of the key that lost its filter most recently; 0 if there is none.
static LEFT: AtomicU64 = AtomicU64::new(0);

/// Called when a filter leaves a key.
///
/// # Safety
/// The server passed the name of the key to the running callback.
pub(super) unsafe fn left(key: *mut raw::RedisModuleString) {
    // SAFETY: the caller's contract.
    LEFT.store(unsafe { hash_now(key) }, Relaxed);
}

/// Forgets the last key. Called several times a second.
pub(super) fn tick() {
    LEFT.store(0, Relaxed);
}

/// A hash of the key's name and the server's time.
///
/// # Safety
/// As for [`left`].
unsafe fn hash_now(mut key: *mut raw::RedisModuleString) -> u64 {
    let mut hasher = DefaultHasher::new();
    // SAFETY: the caller's contract, and a plain call.
    unsafe {
        Text::arguments(&mut key, 1).iter().for_each(|name| hasher.write(name.bytes()));
        hasher.write_i64(raw::RedisModule_CachedMicroseconds.map_or(0, |now| now()));
    }
    hasher.finish() | 1
}

/// Subscribes to evictions.
///
/// # Safety
/// `ctx` is the context of the running `RedisModule_OnLoad`, and the API is bound.
pub(super) unsafe fn register(ctx: *mut raw::RedisModuleCtx) {
    let kind = raw::REDISMODULE_NOTIFY_EVICTED;
    // SAFETY: the context is the caller's, and the callback lives as long as the module, which is never unloaded.
    if unsafe { server!(RedisModule_SubscribeToKeyspaceEvents(ctx, kind, Some(evicted))) } != status::OK {
        log::warning("the server does not say which keys it evicts; evicted filters are not counted");
    }
}

unsafe extern "C" fn evicted(
    ctx: *mut raw::RedisModuleCtx,
    _kind: c_int,
    _event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    let work = || {
        // SAFETY: the server passes the context and the name of the key, valid during the call.
        let (ctx, hash) = unsafe { (Context::new(ctx), hash_now(key)) };
        if LEFT.swap(0, Relaxed) == hash {
            FILTERS_EVICTED.add(1);
        }
        if let Some(ctx) = ctx {
            uploads::evicted(ctx);
        }
    };
    guard::call("evicted", work, || ());
    status::OK
}
