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

#![allow(unsafe_code)]

use crate::error::Error;
use crate::metrics::CELL_BYTES;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;
use alloc::{boxed::Box, vec::Vec};
use core::alloc::Layout;
use core::ops::{Deref, Range};
use core::ptr::NonNull;
use core::sync::atomic::AtomicBool;

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// Minimum number of words in an aligned block: 8 KiB. A smaller one is in the first-level cache while it is used, so
/// reading an item's 512 bits from two cache lines instead of one costs less than the padding would.
pub(super) const ALIGNED_FROM: usize = 1024;

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
pub struct Words {
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

/// A list of `len` zeros.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub(crate) fn zeros(len: usize) -> Result<Box<[u64]>, Error> {
    let mut list = Vec::new();
    list.try_reserve_exact(len).map_err(|_| Error::OutOfMemory { bytes: (len as u64).saturating_mul(8) })?;
    list.resize(len, 0);
    Ok(list.into_boxed_slice())
}

impl Words {
    /// Allocates `len > 0` zero words.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    #[cfg(not(all(loom, test)))]
    pub fn zeroed(len: u64) -> Result<Words, Error> {
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
        let base = NonNull::new(unsafe { alloc::alloc::alloc_zeroed(layout) })?;
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
    pub fn zeroed(len: u64) -> Result<Words, Error> {
        let words: Box<[AtomicU64]> = (0..len).map(|_| AtomicU64::new(0)).collect();
        Ok(Words::at(NonNull::from(Box::leak(words)).cast(), len as usize, false, 0))
    }

    /// Asks the kernel to use huge pages for the part of the block that consists of whole, aligned huge pages. This is
    /// a hint, which the kernel may ignore.
    #[cfg(not(all(loom, test)))]
    fn advise_huge_pages(&self) {
        #[cfg(all(feature = "std", target_os = "linux"))]
        {
            const PAGE: usize = 2 << 20;
            let address = self.start.addr().get();
            let first = address.next_multiple_of(PAGE) - address;
            let len = (self.len() * 8).saturating_sub(first) / PAGE * PAGE;
            if len > 0 {
                // The C library's function, which `std` links.
                unsafe extern "C" {
                    fn madvise(
                        start: *mut core::ffi::c_void,
                        len: usize,
                        advice: core::ffi::c_int,
                    ) -> core::ffi::c_int;
                }
                const MADV_HUGEPAGE: core::ffi::c_int = 14;
                // SAFETY: the range is whole pages inside the block, and the advice doesn't change their contents.
                unsafe {
                    let start = self.start.as_ptr().cast::<u8>().add(first);
                    madvise(start.cast(), len, MADV_HUGEPAGE);
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
    pub fn allocated(&self) -> usize {
        Words::layout(self.len(), self.is_padded).map_or(0, |layout| layout.size())
    }

    /// Number of ones in these words. With the `popcnt` instruction, this processes 8 billion bytes per second; without
    /// it, a third as many. The instruction isn't part of the x86-64 baseline.
    pub(crate) fn ones(words: &Cells) -> u64 {
        #[inline(always)]
        fn count(words: &Cells) -> u64 {
            words.iter().map(|word| u64::from(word.load(Relaxed).count_ones())).sum()
        }
        #[cfg(all(feature = "std", target_arch = "x86_64"))]
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
    pub fn bytes(&self) -> u64 {
        Words::bytes_of(self)
    }

    /// Size of these words in bytes.
    pub(crate) fn bytes_of(words: &Cells) -> u64 {
        words.len() as u64 * 8
    }

    /// Copies a range of words to the same place in other words, which must be 0. A page of zeros stays untouched, so
    /// the copy of a sparse filter needs no more memory than the filter.
    pub fn copy_range(to: &Cells, from: &Cells, range: Range<usize>) {
        for (to, from) in to[range.clone()].iter().zip(&from[range]) {
            let word = from.load(Relaxed);
            if word != 0 {
                to.store(word, Relaxed);
            }
        }
    }

    /// Asks the processor to fetch the cache line of word `index`. A hint that never faults.
    #[inline(always)]
    pub fn prefetch(words: &Cells, index: usize) {
        prefetch(words, index);
    }
}

/// Asks the processor to fetch the cache line of `items[index]`. A hint that never faults.
#[inline(always)]
pub(crate) fn prefetch<T>(items: &[T], index: usize) {
    debug_assert!(index < items.len());
    let address = items.as_ptr().wrapping_add(index);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is allowed, and SSE is part of x86-64.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast())
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: PRFM of any address is a hint that neither faults nor writes.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly))
    };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

impl core::fmt::Debug for Words {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Words").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline(always)]
    fn deref(&self) -> &Cells {
        let len = u64::from(self.len_high) << u32::BITS | u64::from(self.len_low);
        // SAFETY: `start` points at `len` initialised words that live as long as self. Zero is a valid AtomicU64.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), len as usize) }
    }
}

#[cfg(all(loom, test))]
impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: `zeroed` leaked a box of these words, and nothing refers to them any more.
        drop(unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len())) });
    }
}

#[cfg(not(all(loom, test)))]
impl Drop for Words {
    fn drop(&mut self) {
        let Some(layout) = Words::layout(self.len(), self.is_padded) else { return };
        // SAFETY: `with_room` allocated the block with this layout by alloc_zeroed, and the block begins `padding`
        // words before `start`.
        unsafe { alloc::alloc::dealloc(self.start.sub(self.padding.into()).cast().as_ptr(), layout) };
        CELL_BYTES.sub(self.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
