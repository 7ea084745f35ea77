//! The data types: what the server calls to save, load, copy, measure and free a filter.
//!
//! `bloomery1` holds whatever has no other home. A filter that came from RedisBloom or valkey-bloom stays of their
//! type, in their encoding, so that it can go back; see [`Home`]. A value is a `Box<Filter>` in all of them. The
//! callbacks may run in a forked child (save, rewrite) or on the lazy-free thread (free); none takes a lock.

mod stream;

use super::api::server;
use super::commands::name_of;
use super::info::{PAYLOADS_REFUSED, filters_like};
use super::{guard, log, reclaim};
use crate::command::{Namespace, each_piece, load_command};
use crate::filter::foreign::Scheme;
use crate::filter::{Filter, Origin};
use crate::wire::{Decoder, Encoder, Sink, Source, VERSION, import, redisbloom};
use redis_module::raw;
use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use stream::Stream;

/// Bytes whose freeing the server counts as one unit of effort; from 64 units on it frees on another thread.
const BYTES_PER_EFFORT: usize = 4096;

/// The data types, each known in RDB files by nine characters of 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    Native,
    RedisBloom,
    RedisBloomCuckoo,
    ValkeyBloom,
}

impl Home {
    const ALL: [Home; 4] = [Home::Native, Home::RedisBloom, Home::RedisBloomCuckoo, Home::ValkeyBloom];

    fn name(self) -> &'static CStr {
        match self {
            Home::Native => c"bloomery1",
            Home::RedisBloom => c"MBbloom--",
            Home::RedisBloomCuckoo => c"MBbloomCF",
            Home::ValkeyBloom => c"bloomfltr",
        }
    }

    /// The encoding that is written, and the newest that is read.
    fn encoding(self) -> c_int {
        match self {
            Home::Native => VERSION.into(),
            #[allow(clippy::cast_possible_wrap, reason = "it is 4")]
            Home::RedisBloom | Home::RedisBloomCuckoo => redisbloom::ENCODING as c_int,
            Home::ValkeyBloom => 1,
        }
    }

    fn load(self) -> Load {
        match self {
            Home::Native => load_native,
            Home::RedisBloom => load_redisbloom,
            Home::RedisBloomCuckoo => load_redisbloom_cuckoo,
            Home::ValkeyBloom => load_valkey_bloom,
        }
    }

    fn save(self) -> Save {
        match self {
            Home::Native => save_native,
            Home::RedisBloom | Home::RedisBloomCuckoo | Home::ValkeyBloom => save_foreign,
        }
    }

    fn of(value: &Filter) -> Home {
        // One that is being rebuilt is ours, wherever it came from: no other system's encoding has room for a shadow.
        match value {
            Filter::Cuckoo(filter) if filter.spec().origin != Origin::Bloomery => Home::RedisBloomCuckoo,
            Filter::Foreign(filter) => match filter.scheme() {
                Scheme::RedisBloom(_) => Home::RedisBloom,
                Scheme::ValkeyBloom { .. } => Home::ValkeyBloom,
                _ => Home::Native,
            },
            _ => Home::Native,
        }
    }
}

type Load = unsafe extern "C" fn(*mut raw::RedisModuleIO, c_int) -> *mut c_void;
type Save = unsafe extern "C" fn(*mut raw::RedisModuleIO, *mut c_void);

/// The types as the server knows them, in the order of [`Home::ALL`]; null for one that another module has. Relaxed:
/// written once, before any command can run.
static HANDLES: [AtomicPtr<raw::RedisModuleType>; Home::ALL.len()] =
    [const { AtomicPtr::new(ptr::null_mut()) }; Home::ALL.len()];

/// Whether a type is one of ours.
#[inline(always)]
pub(super) fn is_ours(other: *mut raw::RedisModuleType) -> bool {
    // The first is by far the most frequent.
    !other.is_null() && HANDLES.iter().any(|handle| handle.load(Relaxed) == other)
}

/// The type of a key for this value. What has lost its home to another module lives with ours.
pub(super) fn handle_for(value: &Filter) -> *mut raw::RedisModuleType {
    let [native, ..] = &HANDLES;
    let home = HANDLES.get(Home::of(value) as usize).map_or(ptr::null_mut(), |handle| handle.load(Relaxed));
    if home.is_null() { native.load(Relaxed) } else { home }
}

/// Registers the types; the error names our own if the server refuses it. That another module has one of the others is
/// said in the log: its data then goes there.
///
/// # Safety
/// `ctx` is the context of a running `RedisModule_OnLoad`.
pub(super) unsafe fn register(ctx: *mut raw::RedisModuleCtx) -> Result<(), String> {
    for (home, handle) in Home::ALL.into_iter().zip(&HANDLES) {
        let mut methods = raw::RedisModuleTypeMethods {
            version: raw::REDISMODULE_TYPE_METHOD_VERSION.into(),
            rdb_load: Some(home.load()),
            rdb_save: Some(home.save()),
            aof_rewrite: Some(aof_rewrite),
            mem_usage: Some(mem_usage),
            digest: Some(digest),
            free: Some(free),
            aux_load: None,
            aux_save: None,
            aux_save_triggers: 0,
            free_effort: Some(free_effort),
            unlink: None,
            copy: Some(copy),
            defrag: None,
            mem_usage2: None,
            free_effort2: None,
            unlink2: None,
            copy2: None,
            aux_save2: None,
        };
        let name = home.name();
        // SAFETY: the server copies the methods.
        let registered =
            unsafe { server!(RedisModule_CreateDataType(ctx, name.as_ptr(), home.encoding(), &mut methods)) };
        handle.store(registered, Relaxed);
        let name = name.to_string_lossy();
        match (registered.is_null(), home) {
            (false, _) => {}
            (true, Home::Native) => {
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

/// Gives a value to the server, which calls [`free`] for it once. Meanwhile it is counted.
pub(super) fn give(value: Filter) -> *mut c_void {
    filters_like(&value).add(1);
    Box::into_raw(Box::new(value)).cast()
}

/// Takes a value back.
///
/// # Safety
/// It came from [`give`], and is taken back once.
pub(super) unsafe fn take(value: *mut c_void) -> Box<Filter> {
    // SAFETY: the caller's contract.
    let value = unsafe { Box::from_raw(value.cast::<Filter>()) };
    filters_like(&value).sub(1);
    value
}

/// Changes a value that the server has, which may be of another kind from then on, and is counted as such.
pub(super) fn change<R>(value: &mut Filter, change: impl FnOnce(&mut Filter) -> R) -> R {
    let before = filters_like(value);
    let result = change(value);
    before.sub(1);
    filters_like(value).add(1);
    result
}

/// Runs a load. Null makes the server refuse the file or payload; nothing is left behind.
fn load(work: impl FnOnce() -> Result<Filter, String>) -> *mut c_void {
    match guard::call("load", work, || Err("internal error".to_owned())) {
        Ok(value) => give(value),
        Err(why) => {
            PAYLOADS_REFUSED.add(1);
            log::warning(&format!("refused to load a filter: {why}"));
            ptr::null_mut()
        }
    }
}

/// Reads what [`save_native`] wrote.
unsafe extern "C" fn load_native(io: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    load(|| {
        if encoding > Home::Native.encoding() {
            return Err(format!("encoding version {encoding} is newer than {VERSION}"));
        }
        // SAFETY: `io` is the stream that the server passed in.
        let mut stream = unsafe { Stream::new(io) };
        let cut = || "the data ends early".to_owned();
        let mut decoder =
            Source::string(&mut stream, Decoder::new).ok_or_else(cut)?.map_err(|why| why.to_string())?;
        while !decoder.is_complete() {
            Source::string(&mut stream, |piece| decoder.push(piece))
                .ok_or_else(cut)?
                .map_err(|why| why.to_string())?;
        }
        decoder.finish().map_err(|why| why.to_string())
    })
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

/// What a pointer of the server's points at.
///
/// # Safety
/// `value` is one of ours and alive for `'a`.
unsafe fn read<'a>(value: *const c_void) -> &'a Filter {
    // SAFETY: the caller's contract.
    unsafe { &*value.cast::<Filter>() }
}

/// What has been written of a value cannot be read. A child that writes a file ends here, as one that found the disk
/// full: the server says so, and keeps the last good file.
fn give_up_saving() {
    // SAFETY: plain calls; without a context the server gives the flags of the process. A child ends by _exit.
    unsafe {
        let flags = server!(RedisModule_GetContextFlags(ptr::null_mut())).unsigned_abs();
        if flags & raw::REDISMODULE_CTX_FLAGS_IS_CHILD != 0 {
            libc::_exit(1);
        }
    }
}

/// Writes one string per piece of the wire format.
unsafe extern "C" fn save_native(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    guard::call(
        "save",
        || {
            // SAFETY: the server passes its stream and a value of ours.
            let (mut stream, value) = unsafe { (Stream::new(io), read(value)) };
            Encoder::native(value).pieces(|piece| Sink::string(&mut stream, piece));
        },
        give_up_saving,
    );
}

/// Writes the fields of the original's type.
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
                // No filter of ours is of such a type, and none that is being rebuilt.
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
            let command = name_of(load_command(match value {
                Filter::Bloom(_) | Filter::Foreign(_) | Filter::Rebuild(_) => Namespace::Bloom,
                Filter::Cuckoo(_) => Namespace::Cuckoo,
            }));
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

/// Feeds the wire form, so that equal digests mean equal files.
unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    guard::call(
        "digest",
        || {
            // SAFETY: the server passes a value of ours.
            let value = unsafe { read(value) };
            Encoder::new(value).pieces(|piece| {
                // SAFETY: the digest is valid; the bytes are only read.
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

/// May run on any thread.
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

/// Null where there is no memory for a second one: COPY then fails and the server lives.
unsafe extern "C" fn copy(
    _from: *mut raw::RedisModuleString,
    _to: *mut raw::RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    // SAFETY: the server passes a value of ours.
    let copy = || unsafe { read(value) }.snapshot().ok();
    guard::call("copy", copy, || None).map_or(ptr::null_mut(), give)
}
