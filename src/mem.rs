//! The words of a filter: zeroed, fallible, aligned to a cache line. One of the few files with `unsafe`.
//!
//! * Zeroed by `alloc_zeroed`, which is `calloc`: allocating 1 GiB takes microseconds and touches no page.
//! * Fallible: a request for too much memory is an error and never an abort.
//! * Aligned to 64 bytes here rather than by the allocator. The server's allocator guarantees only 16, and `std` clears
//!   over-aligned blocks itself, which would touch every page.
//! * Untouched: nothing is written into a new block, so a new filter touches no page. Writing the first word doubled
//!   the time of BF.RESERVE for 100,000 items: it caused a page fault, and the allocator had to clear the page when it
//!   reused the block.
//!
//! ```text
//! block                    start, a multiple of 64
//! │ 0..=64 bytes of padding │ len words …           │
//! ```
//! Blocks below `ALIGNED_FROM` have no padding, and neither do those that an allocator aligns by itself, as jemalloc
//! does. With padding, a block whose size is a power of two would need jemalloc's next size class, which is a quarter
//! larger.
//!
//! `Shared` words have several owners and a head. If there are only a few words, they follow the head in the same
//! block, unless that would need more memory. A server may have a million small filters, so every byte counts.

#![allow(unsafe_code)]

use crate::error::Error;
use crate::metrics::CELL_BYTES;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;
use std::alloc::Layout;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Release};
// Not loom's type: the models don't cover which owner is the last.
use std::sync::atomic::{AtomicBool, AtomicU32};

/// Bytes of a cache line.
const LINE: usize = 64;

/// Minimum number of words in an aligned block: 8 KiB. A smaller one is in the first-level cache while it is used, so
/// reading an item's 512 bits from two cache lines instead of one costs less than the padding would.
const ALIGNED_FROM: usize = 1024;

/// Whether the allocator has so far aligned all blocks of [`ALIGNED_FROM`] words or more. If not, all further blocks of
/// that size are requested with padding.
#[cfg(not(all(loom, test)))]
static ALIGNS: AtomicBool = AtomicBool::new(true);

/// Number of bits for the length of [`Words`]. No machine has 2^48 words.
const LEN_BITS: u32 = u32::BITS + u16::BITS;

/// Words, regardless of how they are owned.
pub type Cells = [AtomicU64];

/// Whether huge pages are requested for large blocks.
static HUGE_PAGES: AtomicBool = AtomicBool::new(false);

/// Sets whether huge pages are requested for large blocks that are allocated from now on. With huge pages, probes of a
/// large filter miss the TLB less often. But while a child process saves, the first write to a page copies 2 MiB
/// instead of 4 KiB.
pub fn use_huge_pages(wanted: bool) {
    HUGE_PAGES.store(wanted, Relaxed);
}

/// A fixed number of zero-initialised atomic words.
pub(crate) struct Words {
    start: NonNull<AtomicU64>,
    /// The lower bits of the number of words. The upper bits are in `len_high`.
    len_low: u32,
    len_high: u16,
    /// Whether the block has room for padding. A `bool` leaves bit patterns unused, in which an enum that owns words
    /// stores its variant.
    is_padded: bool,
    /// Words of padding before `start`: 1 to 8 if the block has room for them, otherwise 0.
    padding: u8,
}

// SAFETY: Words owns its block, and hands out only shared references to atomics.
unsafe impl Send for Words {}
// SAFETY: as above; AtomicU64 is Sync.
unsafe impl Sync for Words {}

impl Words {
    /// Allocates `len > 0` zero words.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    #[cfg(not(all(loom, test)))]
    pub(crate) fn zeroed(len: u64) -> Result<Words, Error> {
        let refused = Error::OutOfMemory { bytes: len.saturating_mul(8) };
        let len = usize::try_from(len).map_err(|_| refused)?;
        if len < ALIGNED_FROM {
            return Words::with_room(len, false).ok_or(refused);
        }
        let words = ALIGNS.load(Relaxed).then(|| Words::with_room(len, false).ok_or(refused)).transpose()?;
        let words = match words.filter(|words| words.start.addr().get().is_multiple_of(LINE)) {
            Some(words) => words,
            None => {
                ALIGNS.store(false, Relaxed);
                Words::with_room(len, true).ok_or(refused)?
            }
        };
        if HUGE_PAGES.load(Relaxed) {
            words.advise_huge_pages();
        }
        Ok(words)
    }

    /// Allocates `len > 0` zero words, which are aligned to a cache line if there is room for padding.
    #[cfg(not(all(loom, test)))]
    fn with_room(len: usize, for_padding: bool) -> Option<Words> {
        let layout = Words::layout(len, for_padding)?;
        // SAFETY: the layout's size isn't 0 because `len` isn't.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        CELL_BYTES.add(len as u64 * 8);
        let padding = if for_padding { LINE - base.addr().get() % LINE } else { 0 };
        // SAFETY: the padding is a multiple of 8 up to `LINE`, for which the layout has room.
        let start = unsafe { base.add(padding) }.cast();
        Some(Words::at(start, len, for_padding, (padding / 8) as u8))
    }

    fn at(start: NonNull<AtomicU64>, len: usize, is_padded: bool, padding: u8) -> Words {
        let (len_low, len_high) = (len as u32, (len as u64 >> u32::BITS) as u16);
        Words { start, len_low, len_high, is_padded, padding }
    }

    /// loom's atomics are larger than a word, and are created one by one.
    #[cfg(all(loom, test))]
    pub(crate) fn zeroed(len: u64) -> Result<Words, Error> {
        let words: Box<[AtomicU64]> = (0..len).map(|_| AtomicU64::new(0)).collect();
        Ok(Words::at(NonNull::from(Box::leak(words)).cast(), len as usize, false, 0))
    }

    /// Asks the kernel to use huge pages for the part of the block that consists of whole, aligned huge pages. This is
    /// a hint, which the kernel may ignore.
    #[cfg(not(all(loom, test)))]
    fn advise_huge_pages(&self) {
        #[cfg(target_os = "linux")]
        {
            const PAGE: usize = 2 << 20;
            let address = self.start.addr().get();
            let first = address.next_multiple_of(PAGE) - address;
            let len = (self.len() * 8).saturating_sub(first) / PAGE * PAGE;
            if len > 0 {
                // SAFETY: the range is whole pages inside the block, and the advice doesn't change their contents.
                unsafe {
                    let start = self.start.as_ptr().cast::<u8>().add(first);
                    libc::madvise(start.cast(), len, libc::MADV_HUGEPAGE);
                }
            }
        }
    }

    /// Layout of the whole block for `len` words, with room for padding or without.
    fn layout(len: usize, for_padding: bool) -> Option<Layout> {
        let padding = if for_padding { LINE } else { 0 };
        let size = len.checked_mul(8)?.checked_add(padding)?;
        if len == 0 || len as u64 >> LEN_BITS > 0 { None } else { Layout::from_size_align(size, 8).ok() }
    }

    /// Size of the whole block in bytes.
    pub(crate) fn allocated(&self) -> usize {
        Words::layout(self.len(), self.is_padded).map_or(0, |layout| layout.size())
    }

    /// Words with these bytes, little-endian. The last word is padded with zeros.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Words, Error> {
        let words = Words::zeroed(bytes.len().div_ceil(8) as u64)?;
        words.or_bytes(0, bytes);
        Ok(words)
    }

    /// Returns the first `len` bytes of the words, little-endian.
    pub(crate) fn to_bytes(words: &Cells, len: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        Words::append_bytes(words, len, &mut bytes);
        bytes
    }

    /// Appends the first `len` bytes of the words, little-endian.
    pub(crate) fn append_bytes(words: &Cells, len: u64, to: &mut Vec<u8>) {
        let first = to.len();
        to.resize(first + words.len() * 8, 0);
        Words::read_bytes(words, 0, &mut to[first..]);
        to.truncate(first + len as usize);
    }

    /// Sets the bits that are set in `bytes`, beginning at byte `offset`. Only one thread may write.
    pub(crate) fn or_bytes(&self, offset: u64, bytes: &[u8]) {
        Words::merge_bytes(self, offset, bytes, |word, _, bits| {
            // A page of zeros stays untouched.
            if bits != 0 {
                word.store(word.load(Relaxed) | bits, Relaxed);
            }
        });
    }

    /// Overwrites bytes with `bytes`, beginning at byte `offset`. Only one thread may write.
    pub(crate) fn set_bytes(words: &Cells, offset: u64, bytes: &[u8]) {
        Words::merge_bytes(words, offset, bytes, |word, mask, bits| {
            let old = word.load(Relaxed);
            let new = old & !mask | bits;
            if new != old {
                word.store(new, Relaxed);
            }
        });
    }

    /// Calls `merge` for each word that `bytes` cover, in whole or in part, if they begin at byte `offset`. `merge`
    /// receives the word, a mask of its covered bits, and the values of these bits.
    #[inline(always)]
    fn merge_bytes(words: &Cells, offset: u64, bytes: &[u8], merge: impl Fn(&AtomicU64, u64, u64)) {
        // First the bytes up to the next word, then the rest word by word.
        let (first, skipped) = ((offset / 8) as usize, (offset % 8) as usize);
        let (head, body) = bytes.split_at(if skipped == 0 { 0 } else { (8 - skipped).min(bytes.len()) });
        let mut padded = [0; 8];
        let mask = |from: usize, len: usize| (u64::MAX >> (64 - 8 * len)) << (8 * from);
        if !head.is_empty() {
            padded[skipped..skipped + head.len()].copy_from_slice(head);
            merge(&words[first], mask(skipped, head.len()), u64::from_le_bytes(padded));
        }
        for (word, chunk) in words[first + usize::from(skipped > 0)..].iter().zip(body.chunks(8)) {
            padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            merge(word, mask(0, chunk.len()), u64::from_le_bytes(padded));
        }
    }

    /// The words that contain `len > 0` bytes, beginning at byte `offset`.
    pub(crate) fn around(words: &Cells, offset: u64, len: usize) -> &Cells {
        let first = offset as usize;
        &words[first / 8..(first + len).div_ceil(8)]
    }

    /// Number of ones in these words. With the `popcnt` instruction, this processes 8 billion bytes per second; without
    /// it, a third as many. The instruction isn't part of the x86-64 baseline.
    pub(crate) fn ones(words: &Cells) -> u64 {
        #[inline(always)]
        fn count(words: &Cells) -> u64 {
            words.iter().map(|word| u64::from(word.load(Relaxed).count_ones())).sum()
        }
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "popcnt")]
            fn count_by_instruction(words: &Cells) -> u64 {
                count(words)
            }
            if std::arch::is_x86_feature_detected!("popcnt") {
                // SAFETY: the processor has the instruction.
                return unsafe { count_by_instruction(words) };
            }
        }
        count(words)
    }

    /// Size of the words in bytes, without padding.
    pub(crate) fn bytes(&self) -> u64 {
        Words::bytes_of(self)
    }

    /// Size of these words in bytes.
    pub(crate) fn bytes_of(words: &Cells) -> u64 {
        words.len() as u64 * 8
    }

    /// Copies words into `bytes`, little-endian, beginning at word `first`. The length of `bytes` is a multiple of 8.
    pub(crate) fn read_bytes(words: &Cells, first: usize, bytes: &mut [u8]) {
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(&words[first..]) {
            chunk.copy_from_slice(&word.load(Relaxed).to_le_bytes());
        }
    }

    /// The inverse of [`read_bytes`](Words::read_bytes): copies `bytes` into words that are 0, beginning at byte
    /// `offset`, a multiple of 8.
    pub(crate) fn write_bytes(&self, offset: u64, bytes: &[u8]) {
        #[inline(always)]
        fn write(words: &Cells, bytes: &[u8]) {
            // A page of zeros stays untouched.
            if bytes.iter().fold(0, |all, byte| all | byte) != 0 {
                for (word, bytes) in words.iter().zip(bytes.as_chunks().0) {
                    word.store(u64::from_le_bytes(*bytes), Relaxed);
                }
            }
        }
        let first = (offset / 8) as usize;
        let (lines, rest) = bytes.as_chunks::<LINE>();
        let (words, last) = self[first..first + bytes.len() / 8].split_at(lines.len() * (LINE / 8));
        for (words, line) in words.chunks_exact(LINE / 8).zip(lines) {
            write(words, line);
        }
        write(last, rest);
    }

    /// Copies a range of words to the same place in other words, which must be 0. A page of zeros stays untouched, so
    /// the copy of a sparse filter needs no more memory than the filter.
    pub(crate) fn copy_range(to: &Cells, from: &Cells, range: Range<usize>) {
        for (to, from) in to[range.clone()].iter().zip(&from[range]) {
            let word = from.load(Relaxed);
            if word != 0 {
                to.store(word, Relaxed);
            }
        }
    }

    /// Asks the processor to fetch the cache line of word `index`. A hint that never faults.
    #[inline(always)]
    pub(crate) fn prefetch(words: &Cells, index: usize) {
        debug_assert!(index < words.len());
        let address = words.as_ptr().wrapping_add(index);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch of any address is allowed, and SSE is part of x86-64.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast())
        };
        #[cfg(target_arch = "aarch64")]
        // SAFETY: PRFM of any address is a hint that neither faults nor writes.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly))
        };
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = address;
    }
}

impl std::fmt::Debug for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Words").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline(always)]
    fn deref(&self) -> &Cells {
        let len = u64::from(self.len_high) << u32::BITS | u64::from(self.len_low);
        // SAFETY: `start` points at `len` initialised words that live as long as self. Zero is a valid AtomicU64.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), len as usize) }
    }
}

#[cfg(all(loom, test))]
impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: `zeroed` leaked a box of these words, and nothing refers to them any more.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len())) });
    }
}

#[cfg(not(all(loom, test)))]
impl Drop for Words {
    fn drop(&mut self) {
        let Some(layout) = Words::layout(self.len(), self.is_padded) else { return };
        // SAFETY: `with_room` allocated the block with this layout by alloc_zeroed, and the block begins `padding`
        // words before `start`.
        unsafe { std::alloc::dealloc(self.start.sub(self.padding.into()).cast().as_ptr(), layout) };
        CELL_BYTES.sub(self.bytes());
    }
}

/// Words with a head, shared by owners in any thread. The head consists of a brief part of 2 bytes and the rest. Some
/// heads also have an extra part, which is in front of both. If there are only a few words, they follow the head in the
/// same block, unless that would need more memory.
///
/// ```text
/// [extra │] owners  brief  few │ rest │ few words, or a `Words`
/// ```
pub(crate) struct Shared<B, H, X = ()> {
    block: NonNull<Block<B, H>>,
    /// The extra part is in front of the block, if `few` contains [`HAS_EXTRA`].
    extra: PhantomData<X>,
}

#[repr(C)]
struct Block<B, H> {
    owners: AtomicU32,
    brief: B,
    /// Number of words that follow the head, or 0 if a `Words` follows it. If there is an extra part, [`HAS_EXTRA`] is
    /// added, which is greater than any such number.
    few: u16,
    rest: H,
}

const HAS_EXTRA: u16 = 1 << 15;

/// Bytes that jemalloc, the servers' allocator, uses for an allocation of `bytes` bytes: it has four size classes for
/// each doubling, at least 8 bytes apart.
const fn taken(bytes: usize) -> usize {
    let step = bytes.next_power_of_two() / 8;
    // Rounds up to a multiple of `step`, a power of two, without dividing.
    let below = if step < 8 { 7 } else { step - 1 };
    (bytes + below) & !below
}

// SAFETY: the last owner may drop the head in any thread, so the head must be Send. All owners share the head, so it
// must be Sync. The words are atomics.
unsafe impl<B: Send + Sync, H: Send + Sync, X: Send + Sync> Send for Shared<B, H, X> {}
// SAFETY: as above.
unsafe impl<B: Send + Sync, H: Send + Sync, X: Send + Sync> Sync for Shared<B, H, X> {}

impl<B, H, X> Shared<B, H, X> {
    /// Number of bytes in front of the block.
    fn in_front(has_extra: bool) -> usize {
        if has_extra { size_of::<X>() } else { 0 }
    }

    /// Number of words that follow their head in the same block: all `len` words, or 0. loom's atomics are larger than
    /// a word, and have a block of their own.
    fn few(len: usize, has_extra: bool) -> u16 {
        let head = Self::in_front(has_extra) + size_of::<Block<B, H>>();
        let fits = cfg!(not(all(loom, test))) && len < ALIGNED_FROM;
        if fits && taken(head + len * 8) <= taken(head + size_of::<Words>()) + taken(len * 8) {
            len as u16
        } else {
            0
        }
    }

    /// Layout of the whole allocation. All its parts are aligned to 8 bytes.
    fn layout(few: u16) -> Layout {
        const {
            let sizes_fit = size_of::<Block<B, H>>().is_multiple_of(8) && size_of::<X>().is_multiple_of(8);
            assert!(size_of::<B>() == 2 && sizes_fit && align_of::<H>() <= 8 && align_of::<X>() <= 8);
        }
        let words = match few & !HAS_EXTRA {
            0 => size_of::<Words>(),
            few => usize::from(few) * 8,
        };
        let size = Self::in_front(few & HAS_EXTRA != 0) + size_of::<Block<B, H>>() + words;
        let Ok(layout) = Layout::from_size_align(size, 8) else { unreachable!("it is small") };
        layout
    }
}

impl<B: Copy, H, X> Shared<B, H, X> {
    /// Allocates `len > 0` zero words with this head.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn zeroed(len: u64, brief: B, rest: H, extra: Option<X>) -> Result<Shared<B, H, X>, Error> {
        match Self::few(usize::try_from(len).unwrap_or(usize::MAX), extra.is_some()) {
            0 => Self::with_block(0, Some(Words::zeroed(len)?), brief, rest, extra),
            few => Self::with_block(few, None, brief, rest, extra),
        }
    }

    /// These words with this head.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn with_words(
        words: Words,
        brief: B,
        rest: H,
        extra: Option<X>,
    ) -> Result<Shared<B, H, X>, Error> {
        let few = Self::few(words.len(), extra.is_some());
        if few == 0 {
            return Self::with_block(0, Some(words), brief, rest, extra);
        }
        let shared = Self::with_block(few, None, brief, rest, extra)?;
        Words::copy_range(shared.words(), &words, 0..words.len());
        Ok(shared)
    }

    /// Allocates a block that contains either `few` zero words or the `Words` in `many`.
    fn with_block(
        few: u16,
        many: Option<Words>,
        brief: B,
        rest: H,
        extra: Option<X>,
    ) -> Result<Shared<B, H, X>, Error> {
        let in_front = Self::in_front(extra.is_some());
        let few = few | if extra.is_some() { HAS_EXTRA } else { 0 };
        let layout = Self::layout(few);
        let refused = Error::OutOfMemory { bytes: layout.size() as u64 };
        // SAFETY: the layout's size isn't 0: it has room for the head.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or(refused)?;
        // SAFETY: the layout has room for `extra`, if there is one, then for the block, and for what follows it.
        unsafe {
            if let Some(extra) = extra {
                base.cast().write(extra);
            }
            let block: NonNull<Block<B, H>> = base.add(in_front).cast();
            block.write(Block { owners: AtomicU32::new(1), brief, few, rest });
            match many {
                Some(words) => block.add(1).cast().write(words),
                None => CELL_BYTES.add(u64::from(few & !HAS_EXTRA) * 8),
            }
            Ok(Shared { block, extra: PhantomData })
        }
    }

    /// Another owner of the same words.
    pub(crate) fn share(&self) -> Shared<B, H, X> {
        // There can be more than 2^31 owners only if some were leaked. If the count overflowed, the block would be
        // freed too early.
        if self.block().owners.fetch_add(1, Relaxed) > u32::MAX / 2 {
            std::process::abort();
        }
        Shared { block: self.block, extra: PhantomData }
    }

    /// The number of owners.
    pub(crate) fn owners(&self) -> usize {
        self.block().owners.load(Relaxed) as usize
    }

    /// The address of the block. It is the same for all owners, and no other block has it while they exist.
    pub(crate) fn address(&self) -> usize {
        self.block.addr().get()
    }

    #[inline(always)]
    fn block(&self) -> &Block<B, H> {
        // SAFETY: `with_block` has written the block, which isn't freed while it has an owner.
        unsafe { self.block.as_ref() }
    }

    /// The brief part of the head.
    #[inline(always)]
    pub(crate) fn brief(&self) -> B {
        self.block().brief
    }

    /// The rest of the head.
    #[inline(always)]
    pub(crate) fn rest(&self) -> &H {
        &self.block().rest
    }

    /// The extra part of the head, if there is one.
    #[inline(always)]
    pub(crate) fn extra(&self) -> Option<&X> {
        // SAFETY: `with_block` has written the extra part in front of the block. Neither is freed while the block has
        // an owner.
        (self.block().few & HAS_EXTRA != 0).then(|| unsafe { self.block.cast::<X>().sub(1).as_ref() })
    }

    /// The words.
    #[inline(always)]
    pub(crate) fn words(&self) -> &Cells {
        // SAFETY: `few` words follow the head, or a `Words` if `few` is 0. Zero is a valid AtomicU64, and only shared
        // references are handed out.
        unsafe {
            let behind = self.block.add(1);
            match self.block().few & !HAS_EXTRA {
                0 => behind.cast::<Words>().as_ref(),
                few => std::slice::from_raw_parts(behind.cast().as_ptr(), few.into()),
            }
        }
    }

    /// Bytes of the block, and of the words' own block if they have one.
    pub(crate) fn allocated(&self) -> usize {
        let few = self.block().few;
        // SAFETY: if no words follow the head, a `Words` does.
        let words = (few & !HAS_EXTRA == 0).then(|| unsafe { self.block.add(1).cast::<Words>().as_ref() });
        Self::layout(few).size() + words.map_or(0, Words::allocated)
    }
}

impl<B, H, X> Drop for Shared<B, H, X> {
    fn drop(&mut self) {
        // SAFETY: the block is still allocated, because this is an owner. The last owner has exclusive access:
        // everything that the other owners did happens before this, by Release and Acquire. `few` hasn't changed since
        // the block was written, so it says what is in front of the head and after it, and the layout is the one that
        // was allocated.
        unsafe {
            let Block { owners, few, .. } = self.block.as_ref();
            // Nobody else can become an owner, so the only owner needs no locked instruction to give up the words.
            if owners.load(Acquire) != 1 {
                if owners.fetch_sub(1, Release) != 1 {
                    return;
                }
                // A load instead of a fence, because ThreadSanitizer doesn't support fences.
                owners.load(Acquire);
            }
            let few = *few;
            match few & !HAS_EXTRA {
                0 => self.block.add(1).cast::<Words>().drop_in_place(),
                few => CELL_BYTES.sub(u64::from(few) * 8),
            }
            self.block.drop_in_place();
            let has_extra = few & HAS_EXTRA != 0;
            if has_extra {
                self.block.cast::<X>().sub(1).drop_in_place();
            }
            let base = self.block.cast::<u8>().sub(Self::in_front(has_extra));
            std::alloc::dealloc(base.as_ptr(), Self::layout(few));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn copy(words: &Words) -> Words {
        let copy = Words::zeroed(words.len() as u64).unwrap();
        Words::copy_range(&copy, words, 0..words.len());
        copy
    }

    #[test]
    fn zeroed_aligned_and_whole() {
        let large = if cfg!(miri) { 5000 } else { 1 << 20 };
        for len in (1..200).chain([1023, 1024, 4095, 4096, 4097, large]) {
            let words = Words::zeroed(len).unwrap();
            assert_eq!(words.len() as u64, len);
            assert!(words.iter().all(|word| word.load(Relaxed) == 0));
            words.iter().for_each(|word| word.store(u64::MAX, Relaxed));
            Words::prefetch(&words, len as usize - 1);
            let start = words.as_ptr().addr();
            assert_eq!(start % if words.len() < ALIGNED_FROM { 8 } else { LINE }, 0);
            assert!(words.allocated() - words.len() * 8 <= LINE);
        }
    }

    /// However many words there are, all owners see the same words and head, and the last one drops the head, once.
    #[test]
    fn shared_words_live_as_long_as_an_owner() {
        for len in [1, 17, 127, ALIGNED_FROM - 1, ALIGNED_FROM, 3 * ALIGNED_FROM] {
            for has_extra in [false, true] {
                let head = Arc::new(7u64);
                let words = Words::zeroed(len as u64).unwrap();
                words[len - 1].store(5, Relaxed);
                let extra = has_extra.then(|| Arc::clone(&head));
                let shared = Shared::with_words(words, [3u8; 2], Arc::clone(&head), extra).unwrap();
                assert_eq!((shared.brief(), **shared.rest(), shared.words().len()), ([3; 2], 7, len));
                assert_eq!(shared.extra().map(|extra| **extra), has_extra.then_some(7));
                let overhead = shared.allocated() - len * 8;
                assert!(overhead <= 16 + 8 + 16 + if len < ALIGNED_FROM { 0 } else { LINE }, "{overhead}");
                let other = shared.share();
                assert_eq!(other.address(), shared.address());
                std::thread::scope(|scope| {
                    scope.spawn(move || {
                        shared.words()[0].fetch_add(1, Relaxed);
                    });
                });
                assert_eq!(other.words()[len - 1].load(Relaxed), if len == 1 { 6 } else { 5 });
                assert_eq!(other.words()[0].load(Relaxed), if len == 1 { 6 } else { 1 });
                assert_eq!(Arc::strong_count(&head), 2 + usize::from(has_extra));
                drop(other);
                assert_eq!(Arc::strong_count(&head), 1);
                let zeroed: Shared<_, _> = Shared::zeroed(len as u64, [0u8; 2], head, None).unwrap();
                assert!(
                    zeroed.words().len() == len && zeroed.words().iter().all(|word| word.load(Relaxed) == 0)
                );
            }
        }
        assert!(Shared::<[u8; 2], u64>::zeroed(0, [0; 2], 0, None).is_err());
    }

    /// Words share a block with their head, unless two blocks need less memory: sometimes the shared block would just
    /// exceed one of the allocator's size classes.
    #[test]
    #[cfg(not(all(loom, test)))]
    fn few_words_are_where_they_cost_least() {
        type Head = Shared<[u8; 2], [u64; 3]>;
        let mut alone = 0;
        for len in 1..ALIGNED_FROM as u64 {
            let shared = Head::zeroed(len, [0; 2], [0; 3], None).unwrap();
            let (few, cells) = (usize::from(shared.block().few), len as usize * 8);
            let cost = if few == 0 { taken(48) + taken(cells) } else { taken(32 + cells) };
            assert!(cost <= taken(32 + cells) && cost <= taken(48) + taken(cells), "{len}");
            alone += u64::from(few == 0);
        }
        assert!((1..200).contains(&alone), "{alone} of 1023");
        let sizes = [1, 8, 9, 64, 65, 128, 129, 168, 257, 1025];
        assert_eq!(sizes.map(taken), [8, 8, 16, 64, 80, 128, 160, 192, 320, 1280]);
    }

    #[test]
    fn a_copy_has_the_same_words() {
        for len in [1, 63, 64, 5000] {
            let words = Words::zeroed(len).unwrap();
            for (index, word) in words.iter().enumerate().step_by(3) {
                word.store(index as u64 + 1, Relaxed);
            }
            let values = |words: &Words| words.iter().map(|word| word.load(Relaxed)).collect::<Vec<_>>();
            assert_eq!(values(&copy(&words)), values(&words));
        }
    }

    /// A block of 64 MiB, 16,384 pages, with one word set. Copying it may touch one huge page, which is 512 pages.
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn the_copy_of_sparse_words_is_sparse() {
        const PAGE: usize = 4096;
        let words = Words::zeroed(8 << 20).unwrap();
        words[12_345].store(1, Relaxed);
        let copy = copy(&words);
        let start = copy.as_ptr().addr().next_multiple_of(PAGE);
        let mut pages = vec![0u8; (copy.len() * 8 - PAGE) / PAGE];
        // SAFETY: the range is whole pages inside the block, and `pages` has one byte for each of them.
        let status = unsafe {
            libc::mincore(
                copy.as_ptr().with_addr(start).cast_mut().cast(),
                pages.len() * PAGE,
                pages.as_mut_ptr(),
            )
        };
        assert_eq!(status, 0);
        let touched = pages.iter().filter(|page| **page & 1 == 1).count();
        assert!(touched <= 512, "{touched} pages");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri aborts where an allocator would return null")]
    fn a_request_beyond_memory_is_an_error() {
        for len in [1 << 50, 1 << 60, 1 << 61, u64::MAX] {
            assert!(matches!(Words::zeroed(len), Err(Error::OutOfMemory { .. })));
        }
        assert!(Words::zeroed(0).is_err());
    }
}
