//! The least that a filter can do with an item: hash it, and access one cache line. Commands that do this cost more
//! than the floor because of the hash and the memory access. Bloomery's commands cost still more because of Bloomery's
//! own work.

use redis_module::raw;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Number of words in a cache line.
const LINE: usize = 8;

/// Number of items that are hashed, and whose lines are prefetched, before the first line is read, as in Bloomery.
pub const GROUP: usize = 64;

/// The memory of a key, as cache lines.
pub struct Lines {
    lines: Vec<[AtomicU64; LINE]>,
    /// Number of lines to read for each item, one after the other, like the layers of a window.
    each: u64,
}

impl Lines {
    /// As many lines as fit into `bytes`, but at least one. Every page is written to, because untouched pages would all
    /// share one physical page.
    pub fn new(bytes: usize, each: u64) -> Lines {
        let line = |index| [(); LINE].map(|()| AtomicU64::new(index));
        let count = (bytes / size_of::<[AtomicU64; LINE]>()).max(1) as u64;
        Lines { lines: (0..count).map(line).collect(), each: each.max(1) }
    }

    #[inline(always)]
    fn hash(item: &[u8]) -> u128 {
        xxh3_128_with_seed(item, 1)
    }

    /// The index of the line that an item touches in this turn.
    #[inline(always)]
    fn line(&self, hash: u128, turn: u64) -> usize {
        let position = (hash as u64).wrapping_mul(2 * turn + 1);
        ((u128::from(position) * self.lines.len() as u128) >> 64) as usize
    }

    /// Prefetches a line.
    #[inline(always)]
    fn ask(&self, hash: u128, turn: u64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch never faults, and the index is less than the number of lines.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.lines.as_ptr().add(self.line(hash, turn)).cast());
        }
    }

    /// Reads a bit of a line and returns it. If `write`, also sets it.
    #[inline(always)]
    fn touch(&self, hash: u128, turn: u64, write: bool) -> bool {
        let (word, bit) = (&self.lines[self.line(hash, turn)][0], 1 << (hash >> 64 & 63));
        let old = word.load(Relaxed);
        if write {
            word.store(old | bit, Relaxed);
        }
        old & bit != 0
    }

    /// Touches the lines of one item. Returns whether the item's bit was set in any of them.
    #[inline(always)]
    pub fn touch_one(&self, item: &[u8], write: bool) -> bool {
        let hash = Lines::hash(item);
        (0..self.each).fold(false, |found, turn| found | self.touch(hash, turn, write))
    }

    /// Touches the lines of all items, in groups. Calls `answer` for each item, in order.
    #[inline(always)]
    pub fn touch_all<'i>(
        &self,
        mut items: impl Iterator<Item = &'i [u8]>,
        write: bool,
        mut answer: impl FnMut(bool),
    ) {
        let mut group = [(0, false); GROUP];
        loop {
            let mut asked = 0;
            for (slot, item) in group.iter_mut().zip(items.by_ref()) {
                *slot = (Lines::hash(item), false);
                self.ask(slot.0, 0);
                asked += 1;
            }
            let group = &mut group[..asked];
            for turn in 0..self.each {
                if turn + 1 < self.each {
                    group.iter().for_each(|(hash, _)| self.ask(*hash, turn + 1));
                }
                group.iter_mut().for_each(|(hash, found)| *found |= self.touch(*hash, turn, write));
            }
            group.iter().for_each(|(_, found)| answer(*found));
            if asked < GROUP {
                return;
            }
        }
    }
}

/// The bytes of an argument.
///
/// # Safety
/// `item` is an argument of the running command, and the bytes are not used after the command ends.
#[inline(always)]
pub unsafe fn bytes<'a>(item: *mut raw::RedisModuleString) -> &'a [u8] {
    let mut length = 0;
    // SAFETY: the server returns the start and the length of a string that it holds.
    unsafe {
        let start = server!(RedisModule_StringPtrLen(item, &mut length));
        std::slice::from_raw_parts(start.cast(), length)
    }
}

/// Replies with yes or no.
///
/// # Safety
/// The context is that of the running command.
#[inline(always)]
pub unsafe fn reply(ctx: *mut raw::RedisModuleCtx, answer: bool) -> c_int {
    // SAFETY: the context is the caller's.
    unsafe { server!(RedisModule_ReplyWithBool(ctx, answer.into())) }
}
