//! Reads and writes fields of the RDB stream in a running load or save.

#![allow(unsafe_code)]

use crate::server::server;
use bloomery::mem::Cells;
use bloomery::wire::{Sink, Source};
use redis_module::raw;
use std::ffi::c_char;
use std::ptr;

/// The stream that the server passed to a callback.
pub(crate) struct Stream {
    io: *mut raw::RedisModuleIO,
}

impl Stream {
    /// # Safety
    /// `io` is the stream of the running callback, and the `Stream` doesn't outlive that callback.
    pub(crate) unsafe fn new(io: *mut raw::RedisModuleIO) -> Stream {
        Stream { io }
    }

    /// Returns `value`, which was just read. `None` if the stream has ended, or if the field has another type.
    fn checked<T>(&self, value: T) -> Option<T> {
        // SAFETY: the stream is valid.
        (unsafe { server!(RedisModule_IsIOError(self.io)) } == 0).then_some(value)
    }
}

impl Source for Stream {
    fn unsigned(&mut self) -> Option<u64> {
        // SAFETY: the stream is valid. After an error it returns 0.
        let value = unsafe { server!(RedisModule_LoadUnsigned(self.io)) };
        self.checked(value)
    }

    fn double(&mut self) -> Option<f64> {
        // SAFETY: as above.
        let value = unsafe { server!(RedisModule_LoadDouble(self.io)) };
        self.checked(value)
    }

    fn string<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let mut len = 0;
        // SAFETY: the stream is valid. After an error the buffer is null.
        let start = unsafe { server!(RedisModule_LoadStringBuffer(self.io, &mut len)) };
        let string = Loaded { start, len };
        self.checked(())?;
        Some(read(string.bytes()?))
    }
}

impl Sink for Stream {
    fn unsigned(&mut self, value: u64) {
        // SAFETY: the stream is valid.
        unsafe { server!(RedisModule_SaveUnsigned(self.io, value)) };
    }

    fn double(&mut self, value: f64) {
        // SAFETY: the stream is valid.
        unsafe { server!(RedisModule_SaveDouble(self.io, value)) };
    }

    fn string(&mut self, bytes: &[u8]) {
        // SAFETY: the stream is valid, and the server copies the bytes.
        unsafe { server!(RedisModule_SaveStringBuffer(self.io, bytes.as_ptr().cast(), bytes.len())) };
    }

    /// Writes the words without copying them. A copy would add the size of the largest filter to the memory of a child
    /// that saves.
    #[cfg(target_endian = "little")]
    fn words(&mut self, words: &Cells, len: u64) {
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(size_of_val(words));
        // SAFETY: the stream is valid. The server reads `len` bytes, and `words` has at least that many. Nobody writes
        // to them meanwhile: only the main thread and workers for which it waits write to the cells of a key, and a
        // child has no other threads.
        unsafe { server!(RedisModule_SaveStringBuffer(self.io, words.as_ptr().cast(), len)) };
    }
}

/// A string from the stream, freed when dropped.
struct Loaded {
    start: *mut c_char,
    len: usize,
}

impl Loaded {
    fn bytes(&self) -> Option<&[u8]> {
        if self.start.is_null() {
            return None;
        }
        // SAFETY: the buffer is ours, `len` bytes long.
        Some(unsafe { std::slice::from_raw_parts(self.start.cast(), self.len) })
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if !ptr::eq(self.start, ptr::null()) {
            // SAFETY: LoadStringBuffer gave it to us.
            unsafe { server!(RedisModule_Free(self.start.cast())) };
        }
    }
}

/// The digest that DEBUG DIGEST-VALUE computes of what is saved.
pub(super) struct Digest(pub(super) *mut raw::RedisModuleDigest);

impl Sink for Digest {
    fn unsigned(&mut self, value: u64) {
        self.string(&value.to_le_bytes());
    }

    fn double(&mut self, value: f64) {
        self.string(&value.to_le_bytes());
    }

    fn string(&mut self, bytes: &[u8]) {
        // SAFETY: the digest is that of the running callback, and the bytes are only read.
        unsafe { server!(RedisModule_DigestAddStringBuffer(self.0, bytes.as_ptr().cast(), bytes.len())) };
    }
}
