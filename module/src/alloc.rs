//! The allocator of the module: the server's, so that `maxmemory` and `MEMORY USAGE` see every byte.
//!
//! The crate is also a library and a test binary, which have no server. The first allocation or [`bind`], whichever
//! comes first, decides which allocator is used. This decision never changes, so memory always returns to where it came
//! from. When the server loads the module, `bind` comes first, because nothing runs before `RedisModule_OnLoad`.
//!
//! The allocator of redis-module isn't used: it fakes alignment, aborts without a server, and clears zeroed memory
//! itself, which touches every page of a 1 GiB filter (480 ms instead of 50 µs).

#![allow(unsafe_code)]

use bloomery_commands::allocator_choice::AllocatorChoice;
use redis_module::raw;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

/// The module's global allocator.
pub(crate) struct ModuleAllocator;

#[global_allocator]
static GLOBAL: ModuleAllocator = ModuleAllocator;

/// Which allocator is used.
static SOURCE: AllocatorChoice = AllocatorChoice::new();

/// Alignment that the server's allocator promises.
const PROMISED: usize = 16;

/// Before Redis 7.4, the server's calls that allocate zeroed memory or resize a block end the process on failure. On
/// such servers, a block of at least this many bytes is first requested with a call that returns null on failure.
const PROBED_FROM: usize = 1 << 20;

/// Uses the server's allocator from now on.
///
/// # Errors
/// If memory was allocated before, see [`AllocatorChoice::bind`]. In this case, the module must not load.
pub(crate) fn bind() -> Result<(), &'static str> {
    SOURCE.bind()
}

/// Size of a block that has room for `layout` at any base address, and for a note of that address.
fn padded(layout: Layout) -> Option<usize> {
    layout.size().checked_add(layout.align())
}

#[allow(clippy::arithmetic_side_effects, reason = "a remainder is below its divisor, which is not 0")]
/// Places an over-aligned block inside the block at `base`, and writes `base` into the word before it.
///
/// # Safety
/// `base` is null or points at `padded(layout)` bytes, aligned to [`PROMISED`].
unsafe fn align(base: *mut u8, layout: Layout) -> *mut u8 {
    if base.is_null() {
        return base;
    }
    // SAFETY: the alignment is above PROMISED, so the distance is at least 16 and at most the alignment.
    unsafe {
        let start = base.add(layout.align() - base.addr() % layout.align());
        start.cast::<*mut u8>().sub(1).write(base);
        start
    }
}

// SAFETY: every block goes back to the allocator that it came from, with the layout that it was made with, as SOURCE
// never changes once decided. Blocks are at least as large as requested. Null is returned if there is no memory.
unsafe impl GlobalAlloc for ModuleAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !SOURCE.server_serves() {
            // SAFETY: the caller's contract is System's.
            return unsafe { System.alloc(layout) };
        }
        // SAFETY: the server's allocator is bound. By the caller's contract, the size is not 0.
        unsafe {
            if layout.align() <= PROMISED {
                return try_alloc(layout.size());
            }
            padded(layout).map_or(ptr::null_mut(), |size| align(try_alloc(size), layout))
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !SOURCE.server_serves() {
            // SAFETY: the caller's contract is System's.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: the server's allocator is bound. By the caller's contract, the size is not 0.
        unsafe {
            if layout.align() <= PROMISED {
                return try_calloc(layout.size());
            }
            padded(layout).map_or(ptr::null_mut(), |size| align(try_calloc(size), layout))
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !SOURCE.server_serves() {
            // SAFETY: the block is System's, because SOURCE never changes.
            return unsafe { System.dealloc(block, layout) };
        }
        // SAFETY: the block is the server's. An over-aligned one has its base in the word before it.
        unsafe {
            let base = if layout.align() <= PROMISED { block } else { block.cast::<*mut u8>().sub(1).read() };
            if let Some(free) = raw::RedisModule_Free {
                free(base.cast());
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !SOURCE.server_serves() {
            // SAFETY: the block is System's.
            return unsafe { System.realloc(block, layout, size) };
        }
        // SAFETY: the block is the server's. Its layout and the size are the caller's contract.
        unsafe {
            if layout.align() <= PROMISED {
                match (raw::RedisModule_TryRealloc, raw::RedisModule_Realloc) {
                    (Some(realloc), _) => return realloc(block.cast(), size).cast(),
                    (None, Some(realloc)) if size < PROBED_FROM => return realloc(block.cast(), size).cast(),
                    _ => {}
                }
            }
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                ptr::copy_nonoverlapping(block, new, layout.size().min(size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

/// # Safety
/// The server's allocator is bound, and `size` is not 0.
unsafe fn try_alloc(size: usize) -> *mut u8 {
    // SAFETY: plain calls.
    unsafe { raw::RedisModule_TryAlloc.map_or(ptr::null_mut(), |alloc| alloc(size).cast()) }
}

/// # Safety
/// Same as for [`try_alloc`].
unsafe fn try_calloc(size: usize) -> *mut u8 {
    // SAFETY: plain calls. The trial block goes back untouched to where it came from.
    unsafe {
        if let Some(calloc) = raw::RedisModule_TryCalloc {
            return calloc(1, size).cast();
        }
        if size >= PROBED_FROM {
            let probe = try_alloc(size);
            match raw::RedisModule_Free {
                Some(free) if !probe.is_null() => free(probe.cast()),
                _ => return ptr::null_mut(),
            }
        }
        raw::RedisModule_Calloc.map_or(ptr::null_mut(), |calloc| calloc(1, size).cast())
    }
}
