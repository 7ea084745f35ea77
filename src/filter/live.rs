//! A Bloom filter that answers tests: ours, or another system's.

use super::bloom::{Bloom, Window};
use super::foreign::Foreign;
use super::usage::Usage;
use crate::error::Error;
use crate::parallel::{ParallelFor, alone};

/// A Bloom filter, ours or another system's.
pub enum Live {
    /// Fixed, scaling or a window; of bits or counters.
    Bloom(Bloom),
    /// Another system's.
    Foreign(Box<Foreign>),
}

/// A borrowed [`Live`].
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "they are those of Live")]
pub enum LiveRef<'a> {
    Bloom(&'a Bloom),
    Foreign(&'a Foreign),
}

/// A [`Live`] to change.
#[allow(missing_docs, reason = "they are those of Live")]
pub enum LiveMut<'a> {
    Bloom(&'a mut Bloom),
    Foreign(&'a mut Foreign),
}

impl Live {
    /// The same, borrowed.
    #[inline(always)]
    pub fn as_ref(&self) -> LiveRef<'_> {
        match self {
            Live::Bloom(filter) => LiveRef::Bloom(filter),
            Live::Foreign(filter) => LiveRef::Foreign(filter),
        }
    }

    /// The same, to change.
    #[inline(always)]
    pub fn as_mut(&mut self) -> LiveMut<'_> {
        match self {
            Live::Bloom(filter) => LiveMut::Bloom(filter),
            Live::Foreign(filter) => LiveMut::Foreign(filter),
        }
    }

    /// Bytes of memory, with all overhead and its usage counters.
    pub fn allocated(&self) -> usize {
        match self {
            Live::Bloom(filter) => filter.allocated() + filter.usage_allocated(),
            Live::Foreign(filter) => size_of::<Live>() + filter.allocated() + filter.usage().allocated(),
        }
    }
}

impl<'a> LiveRef<'a> {
    /// The filter, if it is one of ours.
    pub fn bloom(self) -> Option<&'a Bloom> {
        match self {
            LiveRef::Bloom(filter) => Some(filter),
            LiveRef::Foreign(_) => None,
        }
    }

    /// The filter, if it is another system's.
    pub fn foreign(self) -> Option<&'a Foreign> {
        match self {
            LiveRef::Bloom(_) => None,
            LiveRef::Foreign(filter) => Some(filter),
        }
    }

    /// The window, if it is one.
    pub fn window(self) -> Option<&'a Window> {
        self.bloom().and_then(Bloom::window)
    }

    /// Its usage counters.
    pub(crate) fn usage(self) -> &'a Usage {
        match self {
            LiveRef::Bloom(filter) => filter.usage(),
            LiveRef::Foreign(filter) => filter.usage(),
        }
    }

    /// Its usage counters, to look at: doing so makes none.
    pub(crate) fn usage_so_far(self) -> &'a Usage {
        match self {
            LiveRef::Bloom(filter) => filter.usage_so_far(),
            LiveRef::Foreign(filter) => filter.usage(),
        }
    }

    /// Items that it is sized for.
    pub fn capacity(self) -> u64 {
        match self {
            LiveRef::Bloom(filter) => filter.capacity(),
            LiveRef::Foreign(filter) => filter.capacity(),
        }
    }

    /// Items in it, as its own `items` counts them.
    pub fn items(self) -> u64 {
        match self {
            LiveRef::Bloom(filter) => filter.items(),
            LiveRef::Foreign(filter) => filter.items(),
        }
    }

    /// Number of layers or links.
    pub fn arrays(self) -> usize {
        match self {
            LiveRef::Bloom(filter) => filter.layers().len(),
            LiveRef::Foreign(filter) => filter.links().len(),
        }
    }

    /// By what the capacity grows from one layer or link to the next; `None` if the capacity is fixed.
    pub fn expansion(self) -> Option<u32> {
        match self {
            LiveRef::Bloom(filter) => filter.spec().expansion(),
            LiveRef::Foreign(filter) => filter.expansion(),
        }
    }

    /// Bytes of all cells.
    pub fn bytes(self) -> u64 {
        match self {
            LiveRef::Bloom(filter) => filter.bytes(),
            LiveRef::Foreign(filter) => filter.bytes(),
        }
    }

    /// Bytes of memory, with all overhead, without its usage counters.
    pub fn allocated(self) -> usize {
        match self {
            LiveRef::Bloom(filter) => filter.allocated(),
            LiveRef::Foreign(filter) => filter.allocated(),
        }
    }

    /// A copy that shares nothing.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn snapshot(self) -> Result<Live, Error> {
        self.copy(&alone)
    }

    /// As [`snapshot`](LiveRef::snapshot), on the threads of `parallel`.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn copy(self, parallel: &ParallelFor<'_>) -> Result<Live, Error> {
        Ok(match self {
            LiveRef::Bloom(filter) => Live::Bloom(filter.copy(parallel)?),
            LiveRef::Foreign(filter) => Live::Foreign(Box::new(filter.snapshot()?)),
        })
    }
}

/// A filter of another system takes no more than a pointer, so it adds nothing to ours.
const _: () = assert!(size_of::<Live>() == size_of::<Bloom>());
