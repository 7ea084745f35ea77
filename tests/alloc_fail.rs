//! Memory that is refused, and memory that is not asked for.
//!
//! The cells of a filter come from `alloc_zeroed`, and for them the crate promises an error instead of an abort. This
//! binary's allocator refuses the Nth such request, for every N, in each operation that makes or grows a filter: the
//! answer must be an error, the filter unchanged, and nothing leaked. Lists, heads and pieces come from `alloc` and
//! `realloc` through `Vec` and `Box`, which abort; those are counted and bounded here instead.

// With the module the crate has an allocator of its own.
#![cfg(not(feature = "module"))]

mod battery;

use battery::{figures, kinds, wire};
use bloomery::wire::{DecodeError, Decoder, Encoder};
use bloomery::{Cell, Error, Filter, Spec};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell as Local;

/// The system's allocator with a book for each thread: tests run side by side.
struct Book;

thread_local! {
    /// Requests for zeroed memory still to be granted.
    static GRANTED: Local<u64> = const { Local::new(u64::MAX) };
    /// Whether one was refused.
    static REFUSED: Local<bool> = const { Local::new(false) };
    /// Requests of any kind.
    static REQUESTS: Local<u64> = const { Local::new(0) };
    /// Bytes allocated and not freed.
    static LIVE: Local<i64> = const { Local::new(0) };
    /// The largest request for which there is no error.
    static LARGEST_INFALLIBLE: Local<usize> = const { Local::new(0) };
}

fn note(bytes: i64) {
    LIVE.set(LIVE.get() + bytes);
    REQUESTS.set(REQUESTS.get() + u64::from(bytes > 0));
}

// SAFETY: every method hands on to the system's allocator, or refuses, which is allowed; the book is in thread-locals
// without destructors, so keeping it allocates nothing.
unsafe impl GlobalAlloc for Book {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as i64);
        LARGEST_INFALLIBLE.set(LARGEST_INFALLIBLE.get().max(layout.size()));
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
        note(layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size as i64);
        note(-(layout.size() as i64));
        LARGEST_INFALLIBLE.set(LARGEST_INFALLIBLE.get().max(size));
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

/// Runs `work` while only `granted` requests for zeroed memory are met, and says whether one was refused.
fn granting<T>(granted: u64, work: impl FnOnce() -> T) -> (T, bool) {
    REFUSED.set(false);
    GRANTED.set(granted);
    let result = work();
    GRANTED.set(u64::MAX);
    (result, REFUSED.get())
}

/// Runs `work` on a copy of the same state with the first, the second … request refused, until none is. It says whether
/// it was refused with an error; then nothing may have changed, and in no case may anything leak.
fn refuse_each(name: &str, make: impl Fn() -> Filter, work: impl Fn(&mut Filter) -> Result<(), Error>) {
    let mut refusals = 0;
    loop {
        let live = LIVE.get();
        let mut filter = make();
        let before = (wire::encode(&filter), format!("{:?}", figures(&filter)));
        let (result, refused) = granting(refusals, || work(&mut filter));
        if refused {
            assert!(matches!(result, Err(Error::OutOfMemory { .. })), "{name}: {result:?}");
            let after = (wire::encode(&filter), format!("{:?}", figures(&filter)));
            assert!(after == before, "{name}: changed by a refusal");
            // And it goes on as if nothing had been.
            assert_eq!(work(&mut filter), Ok(()), "{name}");
        } else {
            assert_eq!(result, Ok(()), "{name}");
        }
        drop((filter, before));
        assert_eq!(LIVE.get(), live, "{name}: leaked");
        if !refused {
            break;
        }
        refusals += 1;
    }
    assert!(refusals > 0, "{name} asked for no memory: the test proves nothing");
}

fn filled(spec: Spec) -> Filter {
    let mut filter = Filter::new(spec).unwrap();
    for i in 0..40u16 {
        filter.add(filter.hash(&i.to_le_bytes())).unwrap();
    }
    filter
}

#[test]
fn creating() {
    for (name, kind) in kinds::ALL {
        for granted in 0.. {
            let live = LIVE.get();
            let (result, refused) = granting(granted, || Filter::new(kind()));
            assert_eq!(result.is_err(), refused, "{name}");
            assert!(!refused || matches!(result, Err(Error::OutOfMemory { .. })), "{name}");
            drop(result);
            assert_eq!(LIVE.get(), live, "{name}: leaked");
            if !refused {
                assert!(granted > 0);
                break;
            }
        }
    }
}

#[test]
fn growing() {
    for (name, kind) in kinds::ALL.iter().filter(|(name, _)| name.starts_with("scaling")) {
        refuse_each(name, || filled(kind()), |filter| filter.grow().map(drop));
        // The add that finds the chain full.
        let full = || {
            let mut filter = filled(kind());
            let mut i = 0u32;
            while !filter.layers().last().unwrap().is_full() {
                i += 1;
                filter.add(filter.hash(&i.to_le_bytes())).unwrap();
            }
            filter
        };
        let stranger =
            |filter: &Filter| (0u64..).map(|i| filter.hash(&i.to_le_bytes())).find(|i| !filter.contains(*i));
        refuse_each(name, full, |filter| match stranger(filter) {
            Some(item) => filter.add(item).map(drop),
            None => unreachable!("no filter of bits has everything"),
        });
    }
}

#[test]
fn rotating() {
    for (name, kind) in kinds::ALL.iter().filter(|(name, _)| name.starts_with("window")) {
        let full = || {
            let mut filter = filled(kind());
            for number in 1..6 {
                filter.advance(number).unwrap();
                (0..20u64).for_each(|i| {
                    assert!(filter.add(filter.hash(&(number * 100 + i).to_le_bytes())).is_ok())
                });
            }
            filter
        };
        for number in [6, 7, 8, 100] {
            refuse_each(name, full, |filter| filter.advance(number).map(drop));
            refuse_each(name, full, |filter| filter.rotate(number).map(drop));
        }
    }
}

#[test]
fn clearing_and_copying() {
    for (name, kind) in kinds::ALL {
        refuse_each(name, || filled(kind()), |filter| filter.clear().map(drop));
        refuse_each(name, || filled(kind()), |filter| filter.snapshot().map(drop));
    }
}

#[test]
fn decoding() {
    for (name, kind) in kinds::ALL {
        let bytes = wire::encode(&filled(kind()));
        for granted in 0.. {
            let live = LIVE.get();
            let (result, refused) = granting(granted, || wire::decode(&bytes));
            match &result {
                Ok(filter) => assert!(!refused && wire::encode(filter) == bytes, "{name}"),
                Err(why) => {
                    assert!(refused && matches!(why, DecodeError::OutOfMemory { .. }), "{name}: {why}")
                }
            }
            drop(result);
            assert_eq!(LIVE.get(), live, "{name}: leaked");
            if !refused {
                assert!(granted > 0);
                break;
            }
        }
    }
}

/// A chunk for which there is no memory can be pushed again: the decoder is as it was.
#[test]
fn a_chunk_that_found_no_memory_can_come_again() {
    let filter = filled(kinds::scaling_classic());
    let bytes = wire::encode(&filter);
    let pieces: Vec<_> = wire::pieces(&bytes).into_iter().map(|at| &bytes[at]).collect();
    let mut decoder = Decoder::new(pieces[0]).unwrap();
    for piece in &pieces[1..] {
        let offset = decoder.offset();
        let (result, refused) = granting(0, || decoder.push(piece));
        assert!(refused && matches!(result, Err(DecodeError::OutOfMemory { .. })));
        assert_eq!(decoder.offset(), offset);
        decoder.push(piece).unwrap();
    }
    assert!(decoder.finish().unwrap().into_bloom().unwrap().equal(&filter));
}

/// A head that asks for the largest filter there can be takes no more than itself.
#[test]
fn a_head_alone_allocates_nothing() {
    let mut head = Encoder::new(&Filter::new(Spec::fixed(100, 0.01)).unwrap()).head().to_vec();
    let cells = 1u64 << 49; // 2^46 bytes
    head[136..144].copy_from_slice(&cells.to_le_bytes());
    head[12..20].copy_from_slice(&(cells / 8).to_le_bytes());
    wire::seal_head(&mut head);
    let live = LIVE.get();
    LARGEST_INFALLIBLE.set(0);
    let decoder = Decoder::new(&head).unwrap();
    assert_eq!(decoder.body_len(), 1 << 46);
    assert!(LIVE.get() - live < 1024, "{} bytes", LIVE.get() - live);
    assert!(LARGEST_INFALLIBLE.get() < 1024, "{} bytes", LARGEST_INFALLIBLE.get());
}

/// One item costs no allocation, whatever the kind: adding what is there or new, asking, counting, deleting.
#[test]
fn items_allocate_nothing() {
    for (name, kind) in kinds::ALL {
        let mut filter = filled(Spec { capacity: 10_000, ..kind() });
        let reader = filter.reader();
        let before = REQUESTS.get();
        for i in 0..200u16 {
            let item = filter.hash(&i.to_le_bytes());
            filter.prefetch(item);
            let present = filter.contains(item);
            filter.add(item).unwrap();
            filter.add_if_absent(item).unwrap();
            assert!(filter.contains_at(item, filter.generation_at(0)) && reader.contains(item));
            if filter.spec().cell != Cell::Bit {
                assert!(filter.count(item).unwrap() > u64::from(present));
                filter.remove(item).unwrap();
            }
            if let Some(window) = filter.window() {
                assert_eq!(window.age(item, window.newest()), Some(0));
            }
            let _ = (filter.items(), filter.ones(), filter.fill(), filter.estimate(), filter.rate_now());
            let _ = (filter.bytes(), filter.allocated(), filter.capacity());
        }
        assert_eq!(REQUESTS.get() - before, 0, "{name}");
    }
}

/// What may abort is small: lists of layers, tallies of shards. Cells are not among it, however large the filter.
#[test]
fn what_cannot_fail_is_small() {
    let specs = [
        (Spec { shards: 16, ..Spec::counting(1_000_000, 0.001) }, 16 * 128 + 256),
        (Spec::fixed(10_000_000, 0.01), 512),
        (Spec::window(1_000_000, 0.01, 64), 64 * 24),
    ];
    for (spec, most) in specs {
        LARGEST_INFALLIBLE.set(0);
        let mut filter = Filter::new(spec).unwrap();
        filter.clear().unwrap();
        let copy = filter.snapshot().unwrap();
        assert!(LARGEST_INFALLIBLE.get() <= most, "{spec:?}: {} bytes", LARGEST_INFALLIBLE.get());
        drop((filter, copy));
    }
}
