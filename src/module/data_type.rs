//! The data type `bloomery1`: what the server calls to save, load, copy, measure and free a filter.
//!
//! A value is a `Box<Value>`. The callbacks may run in a forked child (save, rewrite) or on the lazy-free thread
//! (free); none takes a lock.

use super::api::server;
use super::commands::name_of;
use super::{guard, log};
use crate::command::{Namespace, each_piece, load_command};
use crate::filter::Value;
use crate::wire::{Decoder, Encoder, VERSION};
use redis_module::raw;
use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Nine characters of 64 that RDB files know the type by.
const NAME: &CStr = c"bloomery1";
const _: () = assert!(NAME.to_bytes().len() == 9);

/// The type's version in RDB files: that of the wire format.
const ENCODING: c_int = VERSION as c_int;

/// Bytes whose freeing the server counts as one unit of effort; from 64 units on it frees on another thread.
const BYTES_PER_EFFORT: usize = 4096;

static HANDLE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(ptr::null_mut());

/// The type as the server knows it. Relaxed: written once, before any command can run.
#[inline(always)]
pub(super) fn handle() -> *mut raw::RedisModuleType {
    HANDLE.load(Relaxed)
}

/// Registers the type; false if the server refuses.
///
/// # Safety
/// `ctx` is the context of a running `RedisModule_OnLoad`.
pub(super) unsafe fn register(ctx: *mut raw::RedisModuleCtx) -> bool {
    let mut methods = raw::RedisModuleTypeMethods {
        version: raw::REDISMODULE_TYPE_METHOD_VERSION.into(),
        rdb_load: Some(rdb_load),
        rdb_save: Some(rdb_save),
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
    // SAFETY: the server copies the methods.
    let handle = unsafe { server!(RedisModule_CreateDataType(ctx, NAME.as_ptr(), ENCODING, &mut methods)) };
    HANDLE.store(handle, Relaxed);
    !handle.is_null()
}

/// A string of the RDB stream, freed when dropped.
struct Piece {
    start: *mut c_char,
    len: usize,
}

impl Piece {
    /// # Safety
    /// `io` is the stream of a running `rdb_load`.
    unsafe fn load(io: *mut raw::RedisModuleIO) -> Option<Piece> {
        let mut len = 0;
        // SAFETY: the stream is valid; after an error the buffer must not be used, and is null.
        unsafe {
            let start = server!(RedisModule_LoadStringBuffer(io, &mut len));
            if start.is_null() || server!(RedisModule_IsIOError(io)) != 0 {
                None
            } else {
                Some(Piece { start, len })
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the buffer is ours, `len` bytes long.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // SAFETY: LoadStringBuffer gave it to us.
        unsafe { server!(RedisModule_Free(self.start.cast())) };
    }
}

/// Reads what [`rdb_save`] wrote. Null makes the server refuse the file or payload; nothing is left behind.
unsafe extern "C" fn rdb_load(io: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    let load = || {
        if encoding > ENCODING {
            return Err(format!("encoding version {encoding} is newer than {ENCODING}"));
        }
        let cut = || "the data ends early".to_owned();
        // SAFETY: `io` is the stream that the server passed in.
        let next = || unsafe { Piece::load(io) }.ok_or_else(cut);
        let mut decoder = Decoder::new(next()?.bytes()).map_err(|why| why.to_string())?;
        while !decoder.is_complete() {
            decoder.push(next()?.bytes()).map_err(|why| why.to_string())?;
        }
        decoder.finish().map_err(|why| why.to_string())
    };
    match guard::call(load, || Err("internal error".to_owned())) {
        Ok(value) => Box::into_raw(Box::new(value)).cast(),
        Err(why) => {
            log::warning(&format!("refused to load a filter: {why}"));
            ptr::null_mut()
        }
    }
}

/// What a pointer of the server's points at.
///
/// # Safety
/// `value` is one of ours and alive for `'a`.
unsafe fn read<'a>(value: *const c_void) -> &'a Value {
    // SAFETY: the caller's contract.
    unsafe { &*value.cast::<Value>() }
}

/// Writes one string per piece of the wire format.
unsafe extern "C" fn rdb_save(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    guard::call(
        || {
            // SAFETY: the server passes a value of ours.
            let value = unsafe { read(value) };
            Encoder::new(value).pieces(|piece| {
                // SAFETY: the stream is valid, and the server copies the bytes.
                unsafe { server!(RedisModule_SaveStringBuffer(io, piece.as_ptr().cast(), piece.len())) };
            });
        },
        || (),
    );
}

/// Writes the filter as LOADCHUNK commands.
unsafe extern "C" fn aof_rewrite(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    guard::call(
        || {
            // SAFETY: the server passes a value of ours.
            let value = unsafe { read(value) };
            let command = name_of(load_command(match value {
                Value::Bloom(_) => Namespace::Bloom,
                Value::Cuckoo(_) => Namespace::Cuckoo,
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
        || (),
    );
}

unsafe extern "C" fn mem_usage(value: *const c_void) -> usize {
    // SAFETY: the server passes a value of ours.
    guard::call(|| unsafe { read(value) }.allocated(), || 0)
}

/// Feeds the wire form, so that equal digests mean equal files.
unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    guard::call(
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
    // SAFETY: the server gives the value back, once.
    guard::call(|| drop(unsafe { Box::from_raw(value.cast::<Value>()) }), || ());
}

unsafe extern "C" fn free_effort(_key: *mut raw::RedisModuleString, value: *const c_void) -> usize {
    // SAFETY: the server passes a value of ours. 0 would mean "always on another thread".
    guard::call(|| (unsafe { read(value) }.allocated() / BYTES_PER_EFFORT).max(1), || 1)
}

/// Null where there is no memory for a second one: COPY then fails and the server lives.
unsafe extern "C" fn copy(
    _from: *mut raw::RedisModuleString,
    _to: *mut raw::RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    // SAFETY: the server passes a value of ours.
    let copy = || unsafe { read(value) }.snapshot().ok();
    guard::call(copy, || None).map_or(ptr::null_mut(), |value| Box::into_raw(Box::new(value)).cast())
}
