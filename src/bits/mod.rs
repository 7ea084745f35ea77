//! Cells in atomic 64-bit words: single bits ([`bit`]) and packed saturating counters ([`counter`]).
//!
//! Both come in three forms, chosen by the [`Writer`]: [`Shared`] for any number of writers, [`Single`] for one thread
//! that writes while others read, and [`PerShard`] for threads that divide the shards among themselves.
//!
//! Every access is `Relaxed`. A word publishes nothing but itself, and "once set, seen as set" needs only the coherence
//! of one memory location. The channel or socket that passes an item from writer to reader supplies the happens-before
//! edge.

pub mod bit;
pub mod counter;
mod hits;
#[cfg(all(loom, test))]
mod model;

pub use hits::Hits;

use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;

/// A way to change words. Which one is right depends on how many threads write to them.
pub trait Writer {
    /// Sets the bits of `mask` and returns the word as it was.
    fn set(word: &AtomicU64, mask: u64) -> u64;

    /// Replaces the word `w` with `change(w)` unless that is `None`. Returns the word as it was, and whether it
    /// changed.
    fn update(word: &AtomicU64, change: impl Fn(u64) -> Option<u64>) -> (u64, bool);
}

/// Any number of writers: atomic read-modify-write. Setting bits is wait-free.
pub struct Shared;

impl Writer for Shared {
    #[inline(always)]
    fn set(word: &AtomicU64, mask: u64) -> u64 {
        // If the bits are already set, the word isn't written, so its cache line needn't be exclusive (RocksDB,
        // DynamicBloom::AddHashConcurrently).
        let old = word.load(Relaxed);
        if old & mask == mask { old } else { word.fetch_or(mask, Relaxed) }
    }

    #[inline(always)]
    fn update(word: &AtomicU64, change: impl Fn(u64) -> Option<u64>) -> (u64, bool) {
        match word.fetch_update(Relaxed, Relaxed, change) {
            Ok(old) => (old, true),
            Err(old) => (old, false),
        }
    }
}

/// One writer, any number of readers: plain load and store. A second concurrent writer would lose updates and so cause
/// false negatives, but nothing worse. That is why this is a documented contract and not `unsafe`.
pub struct Single;

impl Writer for Single {
    #[inline(always)]
    fn set(word: &AtomicU64, mask: u64) -> u64 {
        // Writes even if the bits are already set. In a full filter, half of them are, in no order that a branch
        // predictor could learn.
        let old = word.load(Relaxed);
        word.store(old | mask, Relaxed);
        old
    }

    #[inline(always)]
    fn update(word: &AtomicU64, change: impl Fn(u64) -> Option<u64>) -> (u64, bool) {
        let old = word.load(Relaxed);
        match change(old) {
            Some(new) => {
                word.store(new, Relaxed);
                (old, true)
            }
            None => (old, false),
        }
    }
}

/// Several writers, each with its own shards: only one thread writes to the cells of a shard.
pub struct PerShard;

impl Writer for PerShard {
    #[inline(always)]
    fn set(word: &AtomicU64, mask: u64) -> u64 {
        Single::set(word, mask)
    }

    #[inline(always)]
    fn update(word: &AtomicU64, change: impl Fn(u64) -> Option<u64>) -> (u64, bool) {
        Single::update(word, change)
    }
}
