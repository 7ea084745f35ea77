//! What a piece of code allocates, for tests that bound it. The binary that includes this has its allocator.

#![allow(unreachable_pub, reason = "each test uses its part")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator with a book for each thread: what is allocated, and the most that ever was.
struct Book;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(0) };
}

fn note(bytes: i64) {
    LIVE.set(LIVE.get() + bytes);
    MOST.set(MOST.get().max(LIVE.get()));
}

// SAFETY: every method hands on to the system's allocator; the book is in thread-locals without destructors, so keeping
// it allocates nothing.
unsafe impl GlobalAlloc for Book {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(-(layout.size() as i64));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static BOOK: Book = Book;

/// Runs `work`; its result, and the most bytes that it held at once.
pub fn weighed<T>(work: impl FnOnce() -> T) -> (T, i64) {
    let before = LIVE.get();
    MOST.set(before);
    let result = work();
    (result, MOST.get() - before)
}
