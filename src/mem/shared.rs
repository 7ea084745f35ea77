//! Words with a head and several owners. If there are only a few words, they follow the head in the same block, unless
//! that would need more memory. A server may have a million small filters, so every byte counts.

#![allow(unsafe_code)]

use super::words::{ALIGNED_FROM, Cells, Words};
use crate::error::Error;
use crate::metrics::CELL_BYTES;
use crate::sync::Ordering::Relaxed;
use core::alloc::Layout;
use core::marker::PhantomData;
use core::ptr::NonNull;
// Not loom's type: the models don't cover which owner is the last.
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Release};

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
pub(crate) const fn size_class(bytes: usize) -> usize {
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
        if fits && size_class(head + len * 8) <= size_class(head + size_of::<Words>()) + size_class(len * 8) {
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
        let base = NonNull::new(unsafe { alloc::alloc::alloc_zeroed(layout) }).ok_or(refused)?;
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
            #[cfg(feature = "std")]
            std::process::abort();
            #[cfg(not(feature = "std"))]
            panic!("a filter has too many owners"); // without `std`, nobody catches it
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
                few => core::slice::from_raw_parts(behind.cast().as_ptr(), few.into()),
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
            alloc::alloc::dealloc(base.as_ptr(), Self::layout(few));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::LINE;
    use super::*;
    use alloc::sync::Arc;

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
            let cost = if few == 0 { size_class(48) + size_class(cells) } else { size_class(32 + cells) };
            assert!(cost <= size_class(32 + cells) && cost <= size_class(48) + size_class(cells), "{len}");
            alone += u64::from(few == 0);
        }
        assert!((1..200).contains(&alone), "{alone} of 1023");
        let sizes = [1, 8, 9, 64, 65, 128, 129, 168, 257, 1025];
        assert_eq!(sizes.map(size_class), [8, 8, 16, 64, 80, 128, 160, 192, 320, 1280]);
    }
}
