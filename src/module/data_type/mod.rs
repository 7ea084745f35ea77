//! The data types, with the functions that the server calls to save, load, copy, measure and free a filter.
//!
//! Filters from RedisBloom or valkey-bloom keep the type and the encoding that they had there, so that they can be
//! moved back. All others are of our own type `bloomery1`; see [`DataType`]. A value of any of the types is a
//! `Box<Filter>`. The callbacks may run in a forked child (save, rewrite) or on the lazy-free thread (free). The only
//! lock that they take is the one for the uploads. Only the main thread takes that lock, so a forked child finds it
//! free.

pub(super) mod stream;

use super::names::name_of;
use super::server::server;
use super::workers::fork;
use super::{guard, log, reclaim};
use crate::command::{Namespace, each_piece, upload_command};
use crate::filter::foreign::Scheme;
use crate::filter::{Contents, Filter, LiveRef, Origin};
use crate::metrics::{ACROSS, FILTERS, PAYLOADS_REFUSED, Sum};
use crate::params::{Family, Spec};
use crate::wire::{Encoder, VERSION, import, redisbloom, value};
use redis_module::raw;
use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use stream::Stream;

/// Number of bytes that count as one unit of effort to free. For UNLINK, the server frees a value of more than 64 units
/// on another thread.
const BYTES_PER_EFFORT: usize = 4096;

/// The flag that makes the server save a type's additional data after all keys.
#[allow(clippy::cast_possible_truncation, reason = "it is 2")]
const AUX_AFTER_RDB: c_int = raw::REDISMODULE_AUX_AFTER_RDB as c_int;

/// The data types. RDB files identify each by a name of nine characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataType {
    Native,
    RedisBloom,
    RedisBloomCuckoo,
    ValkeyBloom,
}

impl DataType {
    const ALL: [DataType; 4] =
        [DataType::Native, DataType::RedisBloom, DataType::RedisBloomCuckoo, DataType::ValkeyBloom];

    fn name(self) -> &'static CStr {
        match self {
            DataType::Native => c"bloomery1",
            DataType::RedisBloom => c"MBbloom--",
            DataType::RedisBloomCuckoo => c"MBbloomCF",
            DataType::ValkeyBloom => c"bloomfltr",
        }
    }

    /// The version of the encoding that is written, and the newest that is read.
    fn encoding(self) -> c_int {
        match self {
            DataType::Native => VERSION.into(),
            #[allow(clippy::cast_possible_wrap, reason = "it is 4")]
            DataType::RedisBloom | DataType::RedisBloomCuckoo => redisbloom::ENCODING as c_int,
            DataType::ValkeyBloom => 1,
        }
    }

    fn load(self) -> Load {
        match self {
            DataType::Native => load_native,
            DataType::RedisBloom => load_redisbloom,
            DataType::RedisBloomCuckoo => load_redisbloom_cuckoo,
            DataType::ValkeyBloom => load_valkey_bloom,
        }
    }

    fn save(self) -> Save {
        match self {
            DataType::Native => save_native,
            DataType::RedisBloom | DataType::RedisBloomCuckoo | DataType::ValkeyBloom => save_foreign,
        }
    }

    fn of(value: &Filter) -> DataType {
        // A filter that is being rebuilt is ours, wherever it came from: no other system's encoding can contain a
        // shadow.
        match value {
            Filter::Cuckoo(filter) if filter.spec().origin != Origin::Bloomery => DataType::RedisBloomCuckoo,
            Filter::Foreign(filter) => match filter.scheme() {
                Scheme::RedisBloom(_) => DataType::RedisBloom,
                Scheme::ValkeyBloom { .. } => DataType::ValkeyBloom,
                _ => DataType::Native,
            },
            _ => DataType::Native,
        }
    }
}

/// The callbacks that save and load data that isn't in a key.
pub(super) struct BesideKeys {
    pub(super) save: unsafe extern "C" fn(*mut raw::RedisModuleIO, c_int),
    pub(super) load: unsafe extern "C" fn(*mut raw::RedisModuleIO, c_int, c_int) -> c_int,
}

type Load = unsafe extern "C" fn(*mut raw::RedisModuleIO, c_int) -> *mut c_void;
type Save = unsafe extern "C" fn(*mut raw::RedisModuleIO, *mut c_void);

/// The server's handles for the types, in the order of [`DataType::ALL`]. Null for a type that another module has
/// registered. `Relaxed` is enough, because they are written once, before any command can run.
static HANDLES: [AtomicPtr<raw::RedisModuleType>; DataType::ALL.len()] =
    [const { AtomicPtr::new(ptr::null_mut()) }; DataType::ALL.len()];

/// Whether a type is one of ours.
#[inline(always)]
pub(super) fn is_ours(other: *mut raw::RedisModuleType) -> bool {
    // The first is by far the most common.
    !other.is_null() && HANDLES.iter().any(|handle| handle.load(Relaxed) == other)
}

/// The type for a key with this value. If another module has registered that type, `bloomery1` is used instead.
pub(super) fn handle_for(value: &Filter) -> *mut raw::RedisModuleType {
    let [native, ..] = &HANDLES;
    let own =
        HANDLES.get(DataType::of(value) as usize).map_or(ptr::null_mut(), |handle| handle.load(Relaxed));
    if own.is_null() { native.load(Relaxed) } else { own }
}

/// Registers the types. It is an error if the server refuses our own type. If another module has one of the other
/// types, that module keeps loading the type's data, and the log says so.
///
/// # Safety
/// `ctx` is the context of a running `RedisModule_OnLoad`.
pub(super) unsafe fn register(ctx: *mut raw::RedisModuleCtx, beside: &BesideKeys) -> Result<(), String> {
    for (data_type, handle) in DataType::ALL.into_iter().zip(&HANDLES) {
        let mut methods = raw::RedisModuleTypeMethods {
            version: raw::REDISMODULE_TYPE_METHOD_VERSION.into(),
            rdb_load: Some(data_type.load()),
            rdb_save: Some(data_type.save()),
            aof_rewrite: Some(aof_rewrite),
            mem_usage: Some(mem_usage),
            digest: Some(digest),
            free: Some(free),
            // A server that doesn't know `aux_save2` saves nothing besides the keys.
            aux_load: (data_type == DataType::Native).then_some(beside.load),
            aux_save: None,
            aux_save2: (data_type == DataType::Native).then_some(beside.save),
            aux_save_triggers: AUX_AFTER_RDB,
            free_effort: Some(free_effort),
            // Nothing outside the key refers to its value, so nothing else has to be done when the key is unlinked.
            unlink: None,
            copy: Some(copy),
            // No server that the tests can run has the allocator that defragmentation needs; see
            // docs/decisions/server.md.
            defrag: None,
            // These also get the key's name and database, which no filter needs.
            mem_usage2: None,
            free_effort2: None,
            unlink2: None,
            copy2: None,
        };
        let name = data_type.name();
        // SAFETY: the server copies the methods.
        let registered = unsafe {
            server!(RedisModule_CreateDataType(ctx, name.as_ptr(), data_type.encoding(), &mut methods))
        };
        handle.store(registered, Relaxed);
        let name = name.to_string_lossy();
        match (registered.is_null(), data_type) {
            (false, _) => {}
            (true, DataType::Native) => {
                return Err(format!("the data type {name} is taken: is Bloomery loaded twice?"));
            }
            (true, _) => log::notice(&format!(
                "another module has the data type {name}: keys of that type are its own, and RDB files with them are not \
                 read here"
            )),
        }
    }
    Ok(())
}

/// The metric that counts filters of this kind. A filter that is being rebuilt counts as its live filter.
fn gauge_of(filter: &Filter) -> &'static Sum {
    match filter.live() {
        None => &FILTERS.cuckoo,
        Some(LiveRef::Foreign(_)) => &FILTERS.foreign,
        Some(LiveRef::Bloom(filter)) => match filter.spec() {
            Spec { cell, .. } if cell.counts() => &FILTERS.counting,
            Spec { family: Family::Fixed(_), .. } => &FILTERS.fixed,
            Spec { family: Family::Scaling { .. }, .. } => &FILTERS.scaling,
            Spec { family: Family::Window { .. }, .. } => &FILTERS.window,
        },
    }
}

/// A filter's share of the totals that INFO shows; all 0 for a cuckoo filter. A filter that is being rebuilt counts as
/// its live filter.
#[inline]
pub(super) fn contents(filter: &Filter) -> Contents {
    filter.live().map_or_else(Contents::default, LiveRef::contents)
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

/// Gives a value to the server, which calls [`free`] for it once. The value is counted in INFO until then. Returns the
/// value's pointer, and its share of the totals in INFO.
pub(super) fn give(value: Filter) -> (*mut c_void, Contents) {
    gauge_of(&value).change(0, 1);
    let contents = contents(&value);
    has_changed(Contents::default(), contents);
    (Box::into_raw(Box::new(value)).cast(), contents)
}

/// Takes a value back from the server, and stops counting it in INFO.
///
/// # Safety
/// `value` came from [`give`], and is taken back once.
pub(super) unsafe fn take(value: *mut c_void) -> Box<Filter> {
    // SAFETY: the caller's contract.
    let value = unsafe { Box::from_raw(value.cast::<Filter>()) };
    gauge_of(&value).sub(1);
    let Contents { arrays, items, capacity } = contents(&value);
    ACROSS.arrays.sub(arrays);
    ACROSS.items.sub(items);
    ACROSS.capacity.sub(capacity);
    value
}

/// Changes a value that the server owns. If this turns the filter into one of another kind, it is counted as that kind
/// from then on.
pub(super) fn change<R>(value: &mut Filter, change: impl FnOnce(&mut Filter) -> R) -> R {
    let before = gauge_of(value);
    let result = change(value);
    before.change(1, 0);
    gauge_of(value).change(0, 1);
    result
}

/// Loads a filter with `work`, and gives it to the server. If that fails, keeps nothing in memory and returns null, so
/// that the server refuses the file or payload.
fn load(work: impl FnOnce() -> Result<Filter, String>) -> *mut c_void {
    match guard::call("load", work, || Err("internal error".to_owned())) {
        Ok(value) => give(value).0,
        Err(why) => {
            PAYLOADS_REFUSED.add(1);
            log::warning(&format!("refused to load a filter: {why}"));
            ptr::null_mut()
        }
    }
}

/// Reads what [`save_native`] wrote.
unsafe extern "C" fn load_native(io: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    // SAFETY: `io` is the stream that the server passed in.
    let mut stream = unsafe { Stream::new(io) };
    load(|| value::decode(&mut stream, encoding.unsigned_abs()).map_err(|why| why.to_string()))
}

unsafe extern "C" fn load_redisbloom(io: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    // SAFETY: `io` is the stream that the server passed in.
    let mut stream = unsafe { Stream::new(io) };
    load(|| redisbloom::load_bloom(&mut stream, encoding.unsigned_abs()).map_err(|why| why.to_string()))
}

unsafe extern "C" fn load_redisbloom_cuckoo(io: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    // SAFETY: as above.
    let mut stream = unsafe { Stream::new(io) };
    load(|| redisbloom::load_cuckoo(&mut stream, encoding.unsigned_abs()).map_err(|why| why.to_string()))
}

unsafe extern "C" fn load_valkey_bloom(io: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    // SAFETY: as above.
    let mut stream = unsafe { Stream::new(io) };
    load(|| {
        let filter = import::load_valkey_bloom(&mut stream, encoding.unsigned_abs());
        filter.map(|filter| Filter::Foreign(Box::new(filter))).map_err(|why| why.to_string())
    })
}

/// The filter that a pointer from the server points to.
///
/// # Safety
/// `value` is one of ours and alive for `'a`.
unsafe fn read<'a>(value: *const c_void) -> &'a Filter {
    // SAFETY: the caller's contract.
    unsafe { &*value.cast::<Filter>() }
}

/// Ends this process if it is a forked child. Called when saving has panicked, because a value that was written only in
/// part can't be read. As when a child finds the disk full, the server reports the failure and keeps the last good
/// file.
pub(super) fn give_up_saving() {
    // SAFETY: plain calls. Without a context the server returns the flags of the process. A child must end with
    // `_exit`.
    unsafe {
        let flags = server!(RedisModule_GetContextFlags(ptr::null_mut())).unsigned_abs();
        if flags & raw::REDISMODULE_CTX_FLAGS_IS_CHILD != 0 {
            libc::_exit(1);
        }
    }
}

/// Writes a filter in our own wire format.
unsafe extern "C" fn save_native(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    guard::call(
        "save",
        || {
            // SAFETY: the server passes its stream and a value of ours.
            let (mut stream, value) = unsafe { (Stream::new(io), read(value)) };
            value::save(&mut stream, value);
        },
        give_up_saving,
    );
}

/// Writes a filter in the format of the system that it comes from.
unsafe extern "C" fn save_foreign(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    guard::call(
        "save",
        || {
            // SAFETY: as above.
            let (mut stream, value) = unsafe { (Stream::new(io), read(value)) };
            match value {
                Filter::Foreign(filter) if matches!(filter.scheme(), Scheme::ValkeyBloom { .. }) => {
                    import::save_valkey_bloom(&mut stream, filter);
                }
                Filter::Foreign(filter) => redisbloom::save_bloom(&mut stream, filter),
                Filter::Cuckoo(filter) => redisbloom::save_cuckoo(&mut stream, filter),
                // `DataType::of` gives these our own type.
                Filter::Bloom(_) | Filter::Rebuild(_) => {}
            }
        },
        give_up_saving,
    );
}

/// Writes the filter as LOADCHUNK commands.
unsafe extern "C" fn aof_rewrite(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    guard::call(
        "rewrite",
        || {
            // SAFETY: the server passes a value of ours.
            let value = unsafe { read(value) };
            let command = name_of(upload_command(Namespace::of(value)));
            each_piece(&Encoder::new(value), |iterator, piece| {
                let iterator = iterator as c_longlong;
                // SAFETY: format "slb" takes a string, a long long, and bytes with their length.
                unsafe {
                    let bytes: *const c_char = piece.as_ptr().cast();
                    server!(RedisModule_EmitAOF(
                        io,
                        command.as_ptr(),
                        c"slb".as_ptr(),
                        key,
                        iterator,
                        bytes,
                        piece.len()
                    ));
                }
            });
        },
        give_up_saving,
    );
}

unsafe extern "C" fn mem_usage(value: *const c_void) -> usize {
    // SAFETY: the server passes a value of ours.
    guard::call("mem-usage", || unsafe { read(value) }.allocated(), || 0)
}

/// Computes the digest of a filter's bytes in the wire format, so equal digests mean equal bytes.
unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    guard::call(
        "digest",
        || {
            // SAFETY: the server passes a value of ours.
            let value = unsafe { read(value) };
            Encoder::new(value).pieces(|piece| {
                // SAFETY: the digest is valid, and the bytes are only read.
                unsafe {
                    server!(RedisModule_DigestAddStringBuffer(digest, piece.as_ptr().cast(), piece.len()))
                };
            });
            // SAFETY: the digest is valid.
            unsafe { server!(RedisModule_DigestEndSequence(digest)) };
        },
        || (),
    );
}

/// Frees a value. The server may call this on any thread.
unsafe extern "C" fn free(value: *mut c_void) {
    let free = || {
        // SAFETY: the server gives the value back, once.
        let value = unsafe { take(value) };
        let bytes = value.bytes();
        reclaim::free(value, bytes);
    };
    guard::call("free", free, || ());
}

unsafe extern "C" fn free_effort(_key: *mut raw::RedisModuleString, value: *const c_void) -> usize {
    // SAFETY: the server passes a value of ours. 0 would mean "always on another thread".
    guard::call("free-effort", || (unsafe { read(value) }.allocated() / BYTES_PER_EFFORT).max(1), || 1)
}

/// Copies a filter. Returns null if there is no memory for a second one. In that case, COPY fails, and the server keeps
/// running.
unsafe extern "C" fn copy(
    _from: *mut raw::RedisModuleString,
    _to: *mut raw::RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    // SAFETY: the server passes a value of ours.
    let copy = || unsafe { read(value) }.copy(&fork).ok();
    guard::call("copy", copy, || None).map_or(ptr::null_mut(), |copy| give(copy).0)
}
