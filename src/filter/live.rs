//! A Bloom filter that answers tests. It is either native or another system's.

use super::bloom::{Bloom, Window};
use super::foreign::Foreign;
use super::usage::Usage;
use crate::error::Error;
use crate::parallel::{ParallelFor, alone};
use alloc::boxed::Box;

/// Totals over the layers or links of a Bloom filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Number of layers or links.
    pub arrays: u64,
    /// Number of items.
    pub items: u64,
    /// Number of items that the arrays are sized for.
    pub capacity: u64,
}

impl Contents {
    /// Sums up arrays, each given as its number of items and its capacity.
    #[inline(always)]
    fn sum(arrays: impl Iterator<Item = (u64, u64)>) -> Contents {
        arrays.fold(Contents::default(), |Contents { arrays, items, capacity }, (more, room)| Contents {
            arrays: arrays.wrapping_add(1),
            items: items.wrapping_add(more),
            capacity: capacity.wrapping_add(room),
        })
    }
}

/// A Bloom filter, native or another system's.
pub enum Live {
    /// A native Bloom filter (fixed, scaling, static or window) with bits, counters or prefixes.
    Bloom(Bloom),
    /// Another system's filter.
    Foreign(Box<Foreign>),
}

/// A borrowed [`Live`].
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "they are those of Live")]
pub enum LiveRef<'a> {
    Bloom(&'a Bloom),
    Foreign(&'a Foreign),
}

/// A mutably borrowed [`Live`].
#[allow(missing_docs, reason = "they are those of Live")]
pub enum LiveMut<'a> {
    Bloom(&'a mut Bloom),
    Foreign(&'a mut Foreign),
}

impl Live {
    /// Borrows the filter.
    #[inline(always)]
    pub fn as_ref(&self) -> LiveRef<'_> {
        match self {
            Live::Bloom(filter) => LiveRef::Bloom(filter),
            Live::Foreign(filter) => LiveRef::Foreign(filter),
        }
    }

    /// Borrows the filter mutably.
    #[inline(always)]
    pub fn as_mut(&mut self) -> LiveMut<'_> {
        match self {
            Live::Bloom(filter) => LiveMut::Bloom(filter),
            Live::Foreign(filter) => LiveMut::Foreign(filter),
        }
    }

    /// Bytes of memory, including all overhead and usage counters.
    pub fn allocated(&self) -> usize {
        match self {
            Live::Bloom(filter) => filter.allocated() + filter.usage_allocated(),
            Live::Foreign(filter) => size_of::<Live>() + filter.allocated() + filter.usage().allocated(),
        }
    }
}

/// The same expression for a filter of either kind.
macro_rules! either {
    ($live:expr, $filter:ident => $value:expr) => {
        match $live {
            LiveRef::Bloom($filter) => $value,
            LiveRef::Foreign($filter) => $value,
        }
    };
}

impl<'a> LiveRef<'a> {
    /// The filter, if it is native.
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

    /// The window, if the filter is one.
    pub fn window(self) -> Option<&'a Window> {
        self.bloom().and_then(Bloom::window)
    }

    /// The filter's usage counters.
    #[doc(hidden)]
    pub fn usage(self) -> &'a Usage {
        either!(self, filter => filter.usage())
    }

    /// The filter's usage counters, for reading only. Unlike [`usage`](LiveRef::usage), this never allocates them.
    #[doc(hidden)]
    pub fn usage_so_far(self) -> &'a Usage {
        match self {
            LiveRef::Bloom(filter) => filter.usage_so_far(),
            LiveRef::Foreign(filter) => filter.usage(),
        }
    }

    /// Number of items that commands have added, including those that were already in the filter. Refused items aren't
    /// counted.
    pub(crate) fn adds(self) -> u64 {
        match self {
            LiveRef::Bloom(filter) => filter.adds(),
            LiveRef::Foreign(filter) => filter.usage().adds(),
        }
    }

    /// Number of items that the filter is sized for.
    pub fn capacity(self) -> u64 {
        either!(self, filter => filter.capacity())
    }

    /// Number of items added that were absent at the time, minus those deleted.
    pub fn items(self) -> u64 {
        either!(self, filter => filter.items())
    }

    /// Totals over the filter's layers or links.
    #[inline]
    #[doc(hidden)]
    pub fn contents(self) -> Contents {
        match self {
            LiveRef::Bloom(filter) => {
                let grows = filter.grows();
                let layers = filter.layers().iter();
                Contents::sum(layers.map(|layer| (layer.items_for_single_writer(), layer.room(grows))))
            }
            LiveRef::Foreign(filter) => {
                Contents::sum(filter.links().iter().map(|link| (link.items(), link.spec().capacity)))
            }
        }
    }

    /// Number of layers or links.
    pub fn arrays(self) -> usize {
        match self {
            LiveRef::Bloom(filter) => filter.layers().len(),
            LiveRef::Foreign(filter) => filter.links().len(),
        }
    }

    /// Number of probes per item in all layers or links together.
    pub fn probes(self) -> u64 {
        match self {
            LiveRef::Bloom(filter) => filter.layers().iter().map(|layer| u64::from(layer.probes())).sum(),
            LiveRef::Foreign(filter) => filter.links().iter().map(|link| u64::from(link.spec().probes)).sum(),
        }
    }

    /// Maximum number of cache lines that adding an item touches in the newest layer or link.
    pub fn lines(self) -> usize {
        match self {
            LiveRef::Bloom(filter) => filter.newest_layer().lines(),
            LiveRef::Foreign(filter) => filter.links().last().map_or(0, |link| link.spec().probes as usize),
        }
    }

    /// Factor by which the capacity grows from one layer or link to the next; `None` if the capacity is fixed.
    pub fn expansion(self) -> Option<u32> {
        match self {
            LiveRef::Bloom(filter) => filter.spec().expansion(),
            LiveRef::Foreign(filter) => filter.expansion(),
        }
    }

    /// Bytes of all cells.
    pub fn bytes(self) -> u64 {
        either!(self, filter => filter.bytes())
    }

    /// Bytes of all cells, including those that tables may still need for items up to their capacity.
    pub fn reserved_bytes(self) -> u64 {
        match self {
            LiveRef::Bloom(filter) => filter.reserved_bytes(),
            LiveRef::Foreign(filter) => filter.bytes(),
        }
    }

    /// Bytes of memory, including all overhead but not usage counters.
    pub fn allocated(self) -> usize {
        either!(self, filter => filter.allocated())
    }

    /// A copy that shares no memory with this filter.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn snapshot(self) -> Result<Live, Error> {
        self.copy(&alone)
    }

    /// Like [`snapshot`](LiveRef::snapshot), but made on the threads of `parallel`.
    pub fn copy(self, parallel: &ParallelFor<'_>) -> Result<Live, Error> {
        Ok(match self {
            LiveRef::Bloom(filter) => Live::Bloom(filter.copy(parallel)?),
            LiveRef::Foreign(filter) => Live::Foreign(Box::new(filter.copy(parallel)?)),
        })
    }

    /// A filter with the same cells in the same memory. Another thread can read it, even after this filter is dropped.
    pub fn share(self) -> Live {
        match self {
            LiveRef::Bloom(filter) => Live::Bloom(filter.share()),
            LiveRef::Foreign(filter) => Live::Foreign(Box::new(filter.share())),
        }
    }

    /// The address of the filter's first array of cells. Two filters have the same address if and only if they
    /// [share](LiveRef::share) the array.
    #[doc(hidden)]
    pub fn address(self) -> usize {
        match self {
            LiveRef::Bloom(filter) => filter.layers().first().map_or(0, |layer| layer.address()),
            LiveRef::Foreign(filter) => filter.links().first().map_or(0, |link| link.address()),
        }
    }

    /// Whether any of the filter's arrays of cells has more than `sharing` owners. Each filter that
    /// [shares](LiveRef::share) an array is one of its owners.
    #[doc(hidden)]
    pub fn is_owned_beside(self, sharing: usize) -> bool {
        match self {
            LiveRef::Bloom(filter) => filter.layers().iter().any(|layer| layer.owners() > sharing),
            LiveRef::Foreign(filter) => filter.links().iter().any(|link| link.owners() > sharing),
        }
    }

    /// Whether the other filter has the same cells in the same memory and, if it is a window, the same generations.
    pub fn is_shared_with(self, other: LiveRef<'_>) -> bool {
        match (self, other) {
            (LiveRef::Bloom(mine), LiveRef::Bloom(theirs)) => mine.is_shared_with(theirs),
            (LiveRef::Foreign(mine), LiveRef::Foreign(theirs)) => mine.is_shared_with(theirs),
            _ => false,
        }
    }
}

impl LiveMut<'_> {
    /// Counts items that commands have added. Refused items don't count.
    #[inline(always)]
    pub(crate) fn added(&mut self, items: u64) {
        match self {
            LiveMut::Bloom(filter) => filter.added(items),
            LiveMut::Foreign(filter) => filter.usage().added(items),
        }
    }

    /// Replaces this filter's cells with those of `made`, its [union](super::Union::apart) with other filters. Returns
    /// the old cells.
    pub fn exchange(self, made: Live) -> Live {
        match (self, made) {
            (LiveMut::Bloom(filter), Live::Bloom(mut made)) => {
                filter.exchange(&mut made);
                Live::Bloom(made)
            }
            (LiveMut::Foreign(filter), Live::Foreign(mut made)) => {
                filter.exchange(&mut made);
                Live::Foreign(made)
            }
            (_, made) => made,
        }
    }
}

/// Another system's filter is only a pointer here, so `Live` is no larger than a native filter.
const _: () = assert!(size_of::<Live>() == size_of::<Bloom>());
