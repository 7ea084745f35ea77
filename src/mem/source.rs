//! Words that can be read, wherever they are.

use super::words::Cells;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;

/// Words of a filter in memory, or in the bytes of a saved one.
pub(crate) trait Source: Copy {
    /// Some of the words. They are borrowed or copied.
    type Run: AsRef<[AtomicU64]>;

    /// Number of words.
    fn len(self) -> usize;

    /// The word at this index.
    fn word(self, index: usize) -> u64;

    /// Consecutive words.
    fn run(self, first: usize, len: usize) -> Self::Run;
}

impl<'a> Source for &'a Cells {
    type Run = &'a Cells;

    #[inline(always)]
    fn len(self) -> usize {
        <[AtomicU64]>::len(self)
    }

    #[inline(always)]
    fn word(self, index: usize) -> u64 {
        self[index].load(Relaxed)
    }

    #[inline(always)]
    fn run(self, first: usize, len: usize) -> &'a Cells {
        &self[first..first + len]
    }
}
