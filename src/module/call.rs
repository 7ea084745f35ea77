//! A running command's view of the server: [`Call`] over the API.

use super::api::{Context, OpenKey, OwnText, Text};
use super::names::name_of;
use super::settings::settings;
use super::{log, memory, offload, reclaim};
use crate::command::{AbortedRebuilds, Access, Call, CommandError, Effect, Loads, Reply};
use crate::config::Settings;
use crate::filter::{Filter, Garbage};
use crate::parallel::ParallelFor;
use redis_module::raw::{
    REDISMODULE_CTX_FLAGS_LOADING, REDISMODULE_CTX_FLAGS_OOM, REDISMODULE_CTX_FLAGS_REPLICATED,
};
use std::ffi::{CStr, CString};
use std::sync::{Mutex, PoisonError};

/// The filters that are being loaded in chunks. Only the main thread takes the lock.
static LOADS: Mutex<Option<Loads>> = Mutex::new(None);

/// The rebuilds that ended on their own. Only the main thread takes the lock.
static ABORTED: Mutex<Option<AbortedRebuilds>> = Mutex::new(None);

/// Gives up the loads into a database, or into all databases, whose keys have been flushed.
pub(super) fn flush_loads(database: Option<i32>) {
    let mut loads = LOADS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(dropped) = loads.as_mut().map(|loads| loads.flush(database)) {
        let bytes = dropped.bytes();
        reclaim::free(dropped, bytes);
    }
    if let Some(aborted) = ABORTED.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        aborted.flush(database);
    }
}

/// A command of a client, a primary or an AOF.
pub(super) struct ServerCall<'a> {
    pub(super) ctx: Context<'a>,
    pub(super) arguments: &'a [Text<'a>],
}

impl<'a> ServerCall<'a> {
    /// Argument `index`. Commands use only arguments that their arity guarantees or that they have counted.
    #[inline(always)]
    #[allow(
        clippy::indexing_slicing,
        reason = "a wrong index is a bug, which the guard turns into an error reply"
    )]
    fn text(&self, index: usize) -> Text<'a> {
        self.arguments[index]
    }
}

impl<'a> Call<'a> for ServerCall<'a> {
    type Key = OpenKey<'a>;

    #[inline(always)]
    fn argc(&self) -> usize {
        self.arguments.len()
    }

    #[inline(always)]
    fn arg(&self, index: usize) -> &'a [u8] {
        self.text(index).bytes()
    }

    #[inline(always)]
    fn open(&self, index: usize, access: Access) -> OpenKey<'a> {
        let key = self.ctx.open(self.text(index), access);
        #[cfg(failpoints)]
        crate::failpoint::hit("open");
        key
    }

    #[inline(always)]
    fn close(&self, key: OpenKey<'a>) -> Option<&'a Filter> {
        key.close()
    }

    fn settings(&self) -> Settings {
        settings()
    }

    fn string<R>(&self, index: usize, read: impl FnOnce(&[u8]) -> R) -> Result<R, CommandError> {
        Ok(self.open(index, Access::Read).string(read)?)
    }

    fn hash_field(&self, index: usize, field: &'static str) -> Result<Option<Vec<u8>>, CommandError> {
        let field = CString::new(field).unwrap_or_default();
        Ok(self.open(index, Access::Read).hash_field(&field)?)
    }

    fn now_ms(&self) -> u64 {
        self.ctx.now_ms()
    }

    fn obeys(&self) -> bool {
        self.ctx.flags() & (REDISMODULE_CTX_FLAGS_REPLICATED | REDISMODULE_CTX_FLAGS_LOADING) != 0
    }

    fn admit(&self, total: u64, more: u64) -> Result<(), CommandError> {
        memory::admit(self.ctx, settings().max_filter_bytes, total, more)
    }

    #[inline]
    fn replicate(&self, effect: Effect<'_>) {
        let key = self.text(1);
        match effect {
            Effect::Verbatim => self.ctx.replicate_verbatim(),
            Effect::Items(command, indices) => {
                let items = indices.iter().map(|index| self.text(*index));
                let arguments: Vec<Text<'_>> = std::iter::once(key).chain(items).collect();
                self.ctx.replicate(name_of(command), &arguments);
            }
            Effect::Arguments(command, words) => {
                let own: Vec<OwnText> = words.iter().map(|word| OwnText::new(word)).collect();
                let words = own.iter().map(OwnText::as_text);
                let arguments: Vec<Text<'_>> = std::iter::once(key).chain(words).collect();
                self.ctx.replicate(name_of(command), &arguments);
            }
        }
    }

    #[inline]
    fn changed(&self, event: &'static CStr) {
        self.ctx.changed(self.text(1), event);
    }

    fn discard(&self, dropped: Garbage) {
        let bytes = dropped.bytes();
        reclaim::free(dropped, bytes);
    }

    fn threads(&self) -> usize {
        offload::threads()
    }

    fn parallel(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        offload::fork(tasks, task);
    }

    fn offload(
        &self,
        argument: usize,
        work: impl FnOnce(&[u8], &ParallelFor<'_>) -> Reply + Send + 'static,
    ) -> Reply {
        offload::offload(self.ctx, self.text(argument), work)
            .unwrap_or_else(|work| work(self.arg(argument), &offload::fork))
    }

    fn is_out_of_memory(&self) -> bool {
        self.ctx.flags() & REDISMODULE_CTX_FLAGS_OOM != 0
    }

    fn log(&self, line: &str) {
        log::warning(line);
    }

    fn with_aborted_rebuilds<R>(&self, work: impl FnOnce(&mut AbortedRebuilds, i32) -> R) -> R {
        let mut aborted = ABORTED.lock().unwrap_or_else(PoisonError::into_inner);
        work(aborted.get_or_insert_default(), self.ctx.database())
    }

    fn with_loads<R>(&self, work: impl FnOnce(&mut Loads, i32) -> R) -> R {
        let mut loads = LOADS.lock().unwrap_or_else(PoisonError::into_inner);
        work(loads.get_or_insert_default(), self.ctx.database())
    }
}
