//! Counts what tenants have when their prefixes have been configured: for a millisecond, several times a second.
//! 100,000 filters took 16 s.

#![allow(unsafe_code)]

use super::api::{Context, Detached, Text};
use super::data_type::with_share;
use super::guard;
use super::server::server;
use super::settings::tenants;
use bloomery_commands::tenants::{Share, Tenants};
use redis_module::raw;
use std::ffi::{CString, c_void};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long keys are counted before other clients get their turn.
const TURN: Duration = Duration::from_millis(1);

/// The count in progress. Only the main thread takes the lock.
static COUNT: Mutex<Option<Count>> = Mutex::new(None);

fn with<R>(work: impl FnOnce(&mut Option<Count>) -> R) -> R {
    work(&mut COUNT.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Begins to count all keys, if the prefixes aren't the earlier ones.
pub(super) fn configured(earlier: Tenants) {
    if !tenants().has_prefixes_of(earlier) {
        with(|count| *count = Some(Count::new()));
    }
}

/// Whether there are keys that haven't been counted yet.
pub(super) fn are_being_counted() -> bool {
    with(|count| count.is_some())
}

/// Counts some keys. Called several times a second.
pub(super) fn tick(ctx: Context<'_>) {
    if let Some(mut count) = with(Option::take)
        && count.go_on(ctx)
    {
        with(|left| *left = Some(count));
    }
}

type Moves = [Option<CString>; 4];

/// The server's statistics of the commands that move keys. A callback for keyspace events would have to be called for
/// every change of every key, and Valkey 8.1 doesn't delete a moved key then.
fn moves(ctx: Context<'_>) -> Moves {
    let names = [c"cmdstat_move", c"cmdstat_rename", c"cmdstat_renamenx", c"cmdstat_swapdb"];
    ctx.info_texts(c"commandstats", names)
}

/// How far the keys have been counted.
struct Count {
    database: i32,
    /// Whether a value has got another tenant since the count has begun with the first key.
    has_changed: bool,
    /// What [`moves`] returned at that time.
    moves: Option<Moves>,
    /// How often in a row all keys were counted without a change.
    unchanged: u32,
    cursor: *mut raw::RedisModuleScanCursor,
}

// SAFETY: a cursor belongs to no thread.
unsafe impl Send for Count {}

impl Count {
    fn new() -> Count {
        // SAFETY: a plain call. The cursor is destroyed once, by Drop.
        let cursor = unsafe { server!(RedisModule_ScanCursorCreate()) };
        Count { database: 0, has_changed: false, moves: None, unchanged: 0, cursor }
    }

    /// Counts keys until the turn is over. Returns whether others remain.
    ///
    /// A key can be moved to where the count has already been, so it begins again until it has found nothing to change
    /// and nothing was moved. If keys are moved all the time, it ends when it has found nothing three times.
    fn go_on(&mut self, ctx: Context<'_>) -> bool {
        let begun = Instant::now();
        self.moves.get_or_insert_with(|| moves(ctx));
        loop {
            while let Some(in_database) = Detached::new(ctx, self.database) {
                let (raw, changed) =
                    (in_database.context().as_ptr(), ptr::from_mut(&mut self.has_changed).cast());
                // SAFETY: context and cursor are ours, and the callback changes no keys.
                while unsafe { server!(RedisModule_Scan(raw, self.cursor, Some(found), changed)) } != 0 {
                    if begun.elapsed() >= TURN {
                        return true;
                    }
                }
                self.database = self.database.saturating_add(1);
                // SAFETY: the cursor is ours.
                unsafe { server!(RedisModule_ScanCursorRestart(self.cursor)) };
            }
            let moves = Some(moves(ctx));
            let unchanged = self.unchanged.saturating_add(1);
            self.unchanged = if std::mem::take(&mut self.has_changed) { 0 } else { unchanged };
            let enough = if self.moves == moves { 1 } else { 3 };
            if self.unchanged >= enough {
                return false;
            }
            self.moves = moves;
            self.database = 0;
        }
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        // SAFETY: the cursor is ours, and is destroyed once.
        unsafe { server!(RedisModule_ScanCursorDestroy(self.cursor)) };
    }
}

unsafe extern "C" fn found(
    _ctx: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    key: *mut raw::RedisModuleKey,
    has_changed: *mut c_void,
) {
    let count = || {
        if let Some(name) = NonNull::new(name) {
            // SAFETY: the server passes an open key and its name, valid during the call. No command is running.
            // `go_on` passes its flag.
            unsafe {
                with_share(key, |share, bytes| {
                    let tenant = tenants().of(Text::new(name).bytes());
                    if !share.is_of(tenant) {
                        *share = Share::new(tenant, bytes);
                        *has_changed.cast() = true;
                    }
                })
            };
        }
    };
    guard::call("count", count, || ());
}
