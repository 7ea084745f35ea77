//! An allocator that counts what it allocates, and that can refuse zeroed memory. It does both for each thread
//! separately, because tests run in parallel.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct AllocCounter;

#[global_allocator]
static ALLOCATOR: AllocCounter = AllocCounter;

thread_local! {
    /// Bytes allocated and not freed.
    static LIVE: Cell<i64> = const { Cell::new(0) };
    /// The maximum of `LIVE` since the start, or since a measurement began.
    static MOST: Cell<i64> = const { Cell::new(0) };
    static REQUESTS: Cell<u64> = const { Cell::new(0) };
    static LARGEST_INFALLIBLE: Cell<usize> = const { Cell::new(0) };
    /// Requests for zeroed memory that will still be granted.
    static GRANTED: Cell<u64> = const { Cell::new(u64::MAX) };
    static REFUSED: Cell<bool> = const { Cell::new(false) };
}

fn change(bytes: i64) {
    LIVE.set(LIVE.get() + bytes);
    MOST.set(MOST.get().max(LIVE.get()));
}

fn request(bytes: i64) {
    REQUESTS.set(REQUESTS.get() + 1);
    change(bytes);
}

fn infallible(size: usize) {
    LARGEST_INFALLIBLE.set(LARGEST_INFALLIBLE.get().max(size));
}

// SAFETY: every method calls the system's allocator, or refuses, which is allowed. The counts are thread-locals without
// destructors, so counting allocates nothing.
unsafe impl GlobalAlloc for AllocCounter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        request(layout.size() as i64);
        infallible(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(left) = GRANTED.get().checked_sub(1) else {
            REFUSED.set(true);
            return std::ptr::null_mut();
        };
        if GRANTED.get() != u64::MAX {
            GRANTED.set(left);
        }
        request(layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        request(size as i64 - layout.size() as i64);
        infallible(size);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        change(-(layout.size() as i64));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Bytes that this thread has allocated and not freed.
pub(crate) fn live() -> i64 {
    LIVE.get()
}

/// Allocations and reallocations of this thread so far.
pub(crate) fn requests() -> u64 {
    REQUESTS.get()
}

/// Runs `work`. Returns its result, and the largest number of bytes that it held at any time.
pub(crate) fn weighed<T>(work: impl FnOnce() -> T) -> (T, i64) {
    let before = LIVE.get();
    MOST.set(before);
    let result = work();
    (result, MOST.get() - before)
}

/// Runs `work` while only `granted` requests for zeroed memory succeed. Returns its result, and whether a request was
/// refused.
pub(crate) fn granting<T>(granted: u64, work: impl FnOnce() -> T) -> (T, bool) {
    REFUSED.set(false);
    GRANTED.set(granted);
    let result = work();
    GRANTED.set(u64::MAX);
    (result, REFUSED.get())
}

/// Resets [`largest_infallible`].
pub(crate) fn forget_largest_infallible() {
    LARGEST_INFALLIBLE.set(0);
}

/// The largest request that would have aborted the process if it had failed: one that wasn't for zeroed memory.
pub(crate) fn largest_infallible() -> usize {
    LARGEST_INFALLIBLE.get()
}
