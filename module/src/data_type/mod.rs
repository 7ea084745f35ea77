//! The functions that the server calls to save, load, copy, measure and free a value, for each [`DataType`]. A value is
//! the type's [`Stored`] in a boxed [`Owned`]. The callbacks may run in a forked child (save, rewrite) or on the
//! lazy-free thread (free). In a child, the only lock that they take is the one for the loads. Only the main thread
//! takes that lock, so the child finds it free.

#![allow(unsafe_code)]

pub(super) mod stream;

use super::api::{OwnText, Text};
use super::names::{is_chosen, name_of};
use super::server::server;
use super::settings::tenants;
use super::workers::fork;
use super::{eviction, guard, log, reclaim, snapshots};
use bloomery::filter::Contents;
use bloomery::metrics::Sum;
use bloomery::wire::{Dump, Sink, type_id};
use bloomery_commands::metrics::{ACROSS, PAYLOADS_REFUSED};
use bloomery_commands::tenants::Share;
use bloomery_commands::{DataType, Family, ForEach, Handle, Stored, for_each};
use redis_module::raw;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{self, NonNull};
use stream::{Digest, Stream};

/// Number of bytes that count as one unit of effort to free. For UNLINK, the server frees a value of more than 64 units
/// on another thread.
const BYTES_PER_EFFORT: usize = 4096;

/// The flag that makes the server save a type's additional data after all keys.
#[allow(clippy::cast_possible_truncation, reason = "it is 2")]
const AUX_AFTER_RDB: c_int = raw::REDISMODULE_AUX_AFTER_RDB as c_int;

/// The callbacks that save and load data that isn't in a key.
pub(super) struct BesideKeys {
    pub(super) save: unsafe extern "C" fn(*mut raw::RedisModuleIO, c_int),
    pub(super) load: unsafe extern "C" fn(*mut raw::RedisModuleIO, c_int, c_int) -> c_int,
}

/// Whether a type of the server is one for values of the type `T`.
#[inline(always)]
pub(super) fn is_of<T: Stored>(other: *mut raw::RedisModuleType) -> bool {
    // The first is by far the most common.
    !other.is_null() && T::handles().iter().any(|handle| handle.get() == other.cast())
}

/// The type for a key with this value. If another module has registered that type, the family's own is used instead.
pub(super) fn handle_for<T: Stored>(value: &T) -> *mut raw::RedisModuleType {
    let handle = |index| T::handles().get(index).map_or(ptr::null_mut(), Handle::get);
    let other = handle(value.data_type());
    if other.is_null() { handle(0).cast() } else { other.cast() }
}

/// Registers the types. It is an error if the server refuses a family's own type. If another module has one of the
/// other types, that module keeps loading the type's data, and the log says so.
///
/// # Safety
/// `ctx` is the context of a running `RedisModule_OnLoad`.
pub(super) unsafe fn register(ctx: *mut raw::RedisModuleCtx, beside: BesideKeys) -> Result<(), String> {
    let mut registration =
        Registration { ctx, beside: Some(beside), family: None, index: 0, outcome: Ok(()) };
    for_each(&mut registration);
    registration.outcome
}

/// The registration of the types, up to the first that the server must not refuse.
struct Registration {
    /// The context of a running `RedisModule_OnLoad`.
    ctx: *mut raw::RedisModuleCtx,
    /// What the first type saves besides the keys.
    beside: Option<BesideKeys>,
    /// The family of the next type.
    family: Option<&'static Family>,
    /// The index of the next type in its family.
    index: usize,
    outcome: Result<(), String>,
}

impl ForEach for Registration {
    fn family(&mut self, family: &'static Family) {
        self.family = Some(family);
        self.index = 0;
    }

    fn data_type<D: DataType>(&mut self) {
        if self.outcome.is_ok() {
            self.outcome = self.register::<D>();
            self.index = self.index.saturating_add(1);
        }
    }
}

impl Registration {
    fn register<D: DataType>(&mut self) -> Result<(), String> {
        let beside = self.beside.take();
        let mut methods = raw::RedisModuleTypeMethods {
            version: raw::REDISMODULE_TYPE_METHOD_VERSION.into(),
            rdb_load: Some(load::<D>),
            rdb_save: Some(save::<D>),
            aof_rewrite: Some(aof_rewrite::<D>),
            mem_usage: Some(mem_usage::<D>),
            digest: Some(digest::<D>),
            free: Some(free::<D>),
            // A server that doesn't know `aux_save2` saves nothing besides the keys.
            aux_load: beside.as_ref().map(|beside| beside.load),
            aux_save: None,
            aux_save2: beside.as_ref().map(|beside| beside.save),
            aux_save_triggers: AUX_AFTER_RDB,
            free_effort: Some(free_effort::<D>),
            unlink: Some(unlink),
            copy: Some(copy::<D>),
            // No server that the tests can run has the allocator that defragmentation needs; see
            // docs/decisions/server.md.
            defrag: None,
            // These also get the key's name and database, which no value needs.
            mem_usage2: None,
            free_effort2: None,
            unlink2: None,
            copy2: None,
        };
        // SAFETY: the context is that of a running `RedisModule_OnLoad`, and the server copies the methods.
        let registered = unsafe {
            server!(RedisModule_CreateDataType(self.ctx, D::NAME.as_ptr(), D::ENCODING, &mut methods))
        };
        let name = D::NAME.to_string_lossy();
        if let Some(handle) = D::Value::handles().get(self.index) {
            handle.set(registered.cast());
        }
        let without = match self.family {
            _ if !registered.is_null() => return Ok(()),
            Some(family) if self.index == 0 && family.has_own_type => {
                return Err(format!("the data type {name} is taken: is Bloomery loaded twice?"));
            }
            Some(family) if self.index == 0 => {
                format!(", and {}.* is left out", family.name.to_ascii_uppercase())
            }
            _ => ", and RDB files with them are not read here".to_owned(),
        };
        log::notice(&format!(
            "another module has the data type {name}: keys of that type are its own{without}"
        ));
        Ok(())
    }
}

/// A value that the server owns. A pointer to it is also one to the value.
#[repr(C)]
struct Owned<T> {
    value: T,
    share: Share,
}

/// Counts what a value has now among what its tenant has.
///
/// # Safety
/// `value` came from [`give`] and is the server's, or is null. No reference to it is in use.
#[inline]
pub(super) unsafe fn count_for_tenant<T: Stored>(value: *mut T) {
    // SAFETY: the caller's contract.
    if let Some(Owned { value, share }) = unsafe { value.cast::<Owned<T>>().as_mut() } {
        share.update(|| value.reserved_bytes());
    }
}

/// Calls `work` with a value's share of what its tenant has, and with a function that returns the bytes that the value
/// has now. `None` if the key has no value of a type of this module.
///
/// # Safety
/// The key is open, or null. If `work` asks for the bytes, no reference to the value is in use.
pub(super) unsafe fn with_share<R>(
    key: *mut raw::RedisModuleKey,
    work: impl FnOnce(&mut Share, &dyn Fn() -> u64) -> R,
) -> Option<R> {
    // SAFETY: the caller's contract. For a key without a module's value, or null, both are null.
    let (data_type, value) = unsafe {
        (server!(RedisModule_ModuleTypeGetType(key)), server!(RedisModule_ModuleTypeGetValue(key)))
    };
    let mut found = Found { data_type, value: NonNull::new(value)?, work: Some(work), result: None };
    for_each(&mut found);
    found.result
}

/// The value of a key, until its type has been found.
struct Found<F, R> {
    data_type: *mut raw::RedisModuleType,
    value: NonNull<c_void>,
    work: Option<F>,
    result: Option<R>,
}

impl<R, F: FnOnce(&mut Share, &dyn Fn() -> u64) -> R> ForEach for Found<F, R> {
    fn data_type<D: DataType>(&mut self) {
        if is_of::<D::Value>(self.data_type)
            && let Some(work) = self.work.take()
        {
            let owned = self.value.cast::<Owned<D::Value>>().as_ptr();
            // SAFETY: a value of our type is in an `Owned`. The share is apart from the value.
            let share = unsafe { &mut (*owned).share };
            // SAFETY: the caller's contract.
            self.result = Some(work(share, &|| unsafe { &(*owned).value }.reserved_bytes()));
        }
    }
}

/// Changes by 1 the metric that counts values of this kind.
fn count(gauge: Option<&'static Sum>, before: u64, now: u64) {
    if let Some(gauge) = gauge {
        gauge.change(before, now);
    }
}

/// Updates the totals in INFO after a change to a filter in a key. Only the main thread changes filters in keys.
#[inline]
pub(super) fn has_changed(before: Contents, now: Contents) {
    ACROSS.items.change(before.items, now.items);
    if (before.arrays, before.capacity) != (now.arrays, now.capacity) {
        ACROSS.arrays.change(before.arrays, now.arrays);
        ACROSS.capacity.change(before.capacity, now.capacity);
    }
}

/// Gives a value for a key to the server, which calls [`free`] for it once. The value is counted in INFO until then.
/// Returns the value's pointer, and its share of the totals in INFO.
pub(super) fn give<T: Stored>(value: T, key: &[u8]) -> (*mut c_void, Contents) {
    count(value.gauge(), 0, 1);
    let contents = value.contents();
    has_changed(Contents::default(), contents);
    let share = Share::new(tenants().of(key), || value.reserved_bytes());
    (Box::into_raw(Box::new(Owned { value, share })).cast(), contents)
}

/// Takes a value back from the server, and stops counting it in INFO.
///
/// # Safety
/// `value` came from [`give`], and is taken back once.
unsafe fn take<T: Stored>(value: *mut c_void) -> Box<Owned<T>> {
    // SAFETY: the caller's contract.
    let mut owned = unsafe { Box::from_raw(value.cast::<Owned<T>>()) };
    if let Some(gauge) = owned.value.gauge() {
        gauge.sub(1);
    }
    owned.share = Share::default();
    let Contents { arrays, items, capacity } = owned.value.contents();
    ACROSS.arrays.sub(arrays);
    ACROSS.items.sub(items);
    ACROSS.capacity.sub(capacity);
    owned
}

/// Changes a value that the server owns. If this turns the value into one of another kind, it is counted as that kind
/// from then on.
pub(super) fn change<T: Stored, R>(value: &mut T, change: impl FnOnce(&mut T) -> R) -> R {
    let before = value.gauge();
    let result = change(value);
    count(before, 1, 0);
    count(value.gauge(), 0, 1);
    result
}

/// Loads a value, and gives it to the server. If that fails, keeps nothing in memory and returns null, so that the
/// server refuses the file or payload.
unsafe extern "C" fn load<D: DataType>(io: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    // SAFETY: `io` is the stream that the server passed in.
    let mut stream = unsafe { Stream::new(io) };
    let load = || D::load(&mut stream, encoding.unsigned_abs());
    match guard::call("load", load, || Err("internal error".to_owned())) {
        // SAFETY: the stream is valid, and the key's name lives until the callback ends.
        Ok(value) => give(value, unsafe { bytes_of(server!(RedisModule_GetKeyNameFromIO(io))) }).0,
        Err(why) => {
            PAYLOADS_REFUSED.add(1);
            log::warning(&format!("refused to load a filter: {why}"));
            ptr::null_mut()
        }
    }
}

/// The bytes of a key's name.
///
/// # Safety
/// The server passed the name, which may be null, to the running callback.
unsafe fn bytes_of<'a>(name: *const raw::RedisModuleString) -> &'a [u8] {
    // SAFETY: the caller's contract.
    NonNull::new(name.cast_mut()).map_or(&[], |name| unsafe { Text::new(name) }.bytes())
}

/// The value that a pointer from the server points to.
///
/// # Safety
/// `value` is one of the type and alive for `'a`.
unsafe fn read<'a, D: DataType>(value: *const c_void) -> &'a D::Value {
    // SAFETY: the caller's contract.
    unsafe { &*value.cast::<D::Value>() }
}

/// Makes the running save fail, in the server or in a child. Called when saving has panicked, because a value that was
/// written only in part can't be read. As when the disk is full, the server reports the failure and keeps the last good
/// file.
///
/// # Safety
/// `io` is the stream of the running callback.
pub(super) unsafe fn give_up_saving(io: *mut raw::RedisModuleIO) {
    // SAFETY: the caller's contract. Reading fails, because the stream is being written, and the server takes that for
    // an error of the stream. But if nothing was written beside the keys, it doesn't look: hence the write.
    unsafe {
        server!(RedisModule_SaveUnsigned(io, 0));
        server!(RedisModule_LoadUnsigned(io));
    }
}

/// Writes a value, into a file or as DUMP shows it.
fn write<D: DataType>(value: &D::Value, sink: &mut impl Sink) {
    match snapshots::are_written() {
        Some(obeys) => D::save_file(value, sink, obeys),
        None => D::save(value, sink),
    }
}

/// Writes a value.
unsafe extern "C" fn save<D: DataType>(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    guard::call(
        "save",
        || {
            // SAFETY: the server passes its stream and a value of the type.
            let (mut stream, value) = unsafe { (Stream::new(io), read::<D>(value)) };
            write::<D>(value, &mut stream);
        },
        // SAFETY: as above.
        || unsafe { give_up_saving(io) },
    );
}

/// Writes the commands that load a value. RESTORE writes those whose own commands are missing.
unsafe extern "C" fn aof_rewrite<D: DataType>(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    guard::call(
        "rewrite",
        || {
            // SAFETY: the server passes a value of the type.
            let value = unsafe { read::<D>(value) };
            let emit = |command: &CStr, arguments: &[&[u8]]| {
                let own: Vec<OwnText> = arguments.iter().map(|argument| OwnText::new(argument)).collect();
                let mut words: Vec<_> = own.iter().map(|word| word.as_text().as_ptr()).collect();
                // SAFETY: format "sv" takes a string, and an array of strings with its length.
                unsafe {
                    server!(RedisModule_EmitAOF(
                        io,
                        command.as_ptr(),
                        c"sv".as_ptr(),
                        key,
                        words.as_mut_ptr(),
                        words.len()
                    ));
                }
            };
            if D::Value::REWRITTEN_AS.is_some_and(is_chosen) {
                value.rewrite(&mut |command, arguments| emit(name_of(command), arguments));
            } else {
                let mut dump = Dump::new(type_id(D::NAME, D::ENCODING.unsigned_abs()));
                write::<D>(value, &mut dump);
                emit(c"RESTORE", &[b"0", &dump.finish()]);
            }
        },
        // SAFETY: as above.
        || unsafe { give_up_saving(io) },
    );
}

unsafe extern "C" fn mem_usage<D: DataType>(value: *const c_void) -> usize {
    // SAFETY: the server passes a value of the type.
    guard::call("mem-usage", || unsafe { read::<D>(value) }.allocated(), || 0)
}

/// Computes the digest of what is saved of a value.
unsafe extern "C" fn digest<D: DataType>(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    guard::call(
        "digest",
        || {
            // SAFETY: the server passes its digest and a value of the type.
            D::save(unsafe { read::<D>(value) }, &mut Digest(digest));
            // SAFETY: the digest is valid.
            unsafe { server!(RedisModule_DigestEndSequence(digest)) };
        },
        || (),
    );
}

/// Frees a value: at once, or on the reclaiming thread.
///
/// # Safety
/// As for [`take`].
pub(super) unsafe fn release<T: Stored>(value: *mut c_void) {
    // SAFETY: the caller's promise.
    let owned = unsafe { take::<T>(value) };
    let bytes = owned.value.bytes();
    reclaim::free(owned, bytes);
}

/// Frees a value. The server may call this on any thread.
unsafe extern "C" fn free<D: DataType>(value: *mut c_void) {
    // SAFETY: the server gives the value back, once.
    guard::call("free", || unsafe { release::<D::Value>(value) }, || ());
}

/// Called when a value leaves its key. Nothing outside the key refers to the value, so there is nothing to do but to
/// remember the key, which may be about to be reported as evicted.
unsafe extern "C" fn unlink(key: *mut raw::RedisModuleString, _value: *const c_void) {
    // SAFETY: the server passes the name of the key.
    guard::call("unlink", || unsafe { eviction::left(key) }, || ());
}

unsafe extern "C" fn free_effort<D: DataType>(_: *mut raw::RedisModuleString, value: *const c_void) -> usize {
    // SAFETY: the server passes a value of the type. 0 would mean "always on another thread".
    guard::call("free-effort", || (unsafe { read::<D>(value) }.allocated() / BYTES_PER_EFFORT).max(1), || 1)
}

/// Copies a value. Returns null if there is no memory for a second one. In that case, COPY fails, and the server keeps
/// running.
unsafe extern "C" fn copy<D: DataType>(
    _from: *mut raw::RedisModuleString,
    to: *mut raw::RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    // SAFETY: the server passes a value of the type.
    let copy = || unsafe { read::<D>(value) }.copy(&fork).ok();
    let copied = guard::call("copy", copy, || None);
    // SAFETY: the server passes the name of the new key.
    copied.map_or(ptr::null_mut(), |copy| give(copy, unsafe { bytes_of(to) }).0)
}
