//! The filters. [`Filter`] is what one key holds: a [`Bloom`] filter of any family, a [`Cuckoo`] filter, another
//! system's Bloom filter, or a [`Rebuild`] of a Bloom filter.

mod algebra;
mod atomic;
#[doc(hidden)]
pub mod bloom;
mod change;
pub mod cuckoo;
mod dump_number;
mod expiring;
pub mod foreign;
mod garbage;
mod grow;
mod incompatible;
#[doc(hidden)]
pub mod layout;
mod live;
mod outlook;
mod rebuild;
pub mod record;
mod static_builder;
mod summary;
pub(crate) mod usage;

pub use algebra::Union;
pub use atomic::AtomicBloom;
pub use bloom::{Bloom, Reader, Schedule, Standing, Window};
#[doc(hidden)]
pub use bloom::{Body, Chain, Due};
pub use change::{Added, Removed};
pub use cuckoo::{Cuckoo, CuckooItem, CuckooSpec, Origin};
#[doc(hidden)]
pub use cuckoo::{CuckooHash, prefetcher::Prefetcher};
pub(crate) use cuckoo::{fingerprints, slots_in_use};
pub use expiring::ExpiringBloom;
pub use foreign::Foreign;
#[doc(hidden)]
pub use garbage::Garbage;
pub use grow::Grow;
pub use incompatible::Incompatible;
pub(crate) use layout::Census;
#[doc(hidden)]
pub use layout::Layer;
pub use live::Contents;
pub use live::{Live, LiveMut, LiveRef};
#[doc(hidden)]
pub use outlook::{Step, layers_after};
pub use rebuild::Rebuild;
pub use static_builder::StaticBuilder;
pub use summary::{Feedback, LayerSummary, Observed, RebuildSummary, Refused, Summary};
#[doc(hidden)]
pub use usage::{Refusal, SharedUsage, Usage};

use crate::error::Error;
use crate::mem::{Cells, Words};
use crate::parallel::{ParallelFor, alone};
use alloc::boxed::Box;

/// A filter of any kind.
pub enum Filter {
    /// A native Bloom filter (fixed, scaling, static or window) with bits, counters or prefixes.
    Bloom(Bloom),
    /// Another system's Bloom filter.
    Foreign(Box<Foreign>),
    /// A cuckoo filter, native or RedisBloom's.
    Cuckoo(Cuckoo),
    /// A Bloom filter that is being rebuilt, together with its shadow.
    Rebuild(Box<Rebuild>),
}

/// A borrowed [`Filter`].
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "they are those of Filter")]
pub enum FilterRef<'a> {
    Bloom(&'a Bloom),
    Foreign(&'a Foreign),
    Cuckoo(&'a Cuckoo),
    Rebuild(&'a Rebuild),
}

/// The filter or filters to which an add goes.
pub enum Target<'a> {
    /// A filter that isn't being rebuilt.
    One(LiveMut<'a>),
    /// The live filter and its shadow.
    Both(&'a mut Rebuild),
}

impl Target<'_> {
    /// Counts items that commands have added. Refused items don't count. During a rebuild, the live filter counts the
    /// items.
    #[inline(always)]
    #[doc(hidden)]
    pub fn added(&mut self, items: u64) {
        match self {
            Target::One(live) => live.added(items),
            Target::Both(rebuild) => rebuild.both_mut().0.as_mut().added(items),
        }
    }

    /// Maximum number of cache lines that adding an item touches.
    #[doc(hidden)]
    pub fn lines(&self) -> usize {
        match self {
            Target::One(LiveMut::Bloom(filter)) => LiveRef::Bloom(filter).lines(),
            Target::One(LiveMut::Foreign(filter)) => LiveRef::Foreign(filter).lines(),
            Target::Both(rebuild) => rebuild.live().lines() + LiveRef::Bloom(rebuild.shadow()).lines(),
        }
    }
}

/// Cells of a filter.
#[derive(Clone, Copy)]
#[doc(hidden)]
pub enum Array<'a> {
    /// Words of fixed number.
    Cells(&'a Cells),
    /// A layer's table, which grows and shrinks.
    Table(&'a Layer),
}

impl<'a> Array<'a> {
    /// The length in a saved filter: the size in bytes or, for a table, the number of its positions.
    pub(crate) fn len(self) -> u64 {
        match self {
            Array::Cells(words) => Words::bytes_of(words),
            Array::Table(_) => layout::quotient::END,
        }
    }

    pub(crate) fn cells(self) -> Option<&'a Cells> {
        match self {
            Array::Cells(words) => Some(words),
            Array::Table(_) => None,
        }
    }

    pub(crate) fn table(self) -> Option<&'a Layer> {
        match self {
            Array::Cells(_) => None,
            Array::Table(layer) => Some(layer),
        }
    }

    /// Size in bytes.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Array::Cells(words) => Words::bytes_of(words),
            Array::Table(layer) => layer.bytes(),
        }
    }

    fn reserved_bytes(self) -> u64 {
        self.table().map_or_else(|| self.bytes(), Layer::reserved_bytes)
    }
}

/// A `Filter` must not be larger than a `Bloom`, because a server may have a million small filters.
#[cfg(all(target_pointer_width = "64", not(all(loom, test))))]
const _: () = assert!(size_of::<Filter>() == size_of::<Bloom>());

impl Filter {
    /// The Bloom filter that answers tests; during a rebuild, the live filter. `None` for a cuckoo filter.
    #[inline(always)]
    pub fn live(&self) -> Option<LiveRef<'_>> {
        match self {
            Filter::Bloom(filter) => Some(LiveRef::Bloom(filter)),
            Filter::Foreign(filter) => Some(LiveRef::Foreign(filter)),
            Filter::Rebuild(rebuild) => Some(rebuild.live()),
            Filter::Cuckoo(_) => None,
        }
    }

    /// The filters that an add goes to; `None` for a cuckoo filter.
    #[inline(always)]
    pub fn target(&mut self) -> Option<Target<'_>> {
        match self {
            Filter::Bloom(filter) => Some(Target::One(LiveMut::Bloom(filter))),
            Filter::Foreign(filter) => Some(Target::One(LiveMut::Foreign(filter))),
            Filter::Rebuild(rebuild) => Some(Target::Both(rebuild)),
            Filter::Cuckoo(_) => None,
        }
    }

    /// The cuckoo filter, if it is one.
    #[inline(always)]
    pub fn cuckoo(&self) -> Option<&Cuckoo> {
        match self {
            Filter::Cuckoo(filter) => Some(filter),
            _ => None,
        }
    }

    /// The rebuild, if one is running.
    pub fn rebuild(&self) -> Option<&Rebuild> {
        match self {
            Filter::Rebuild(rebuild) => Some(rebuild),
            _ => None,
        }
    }

    /// The Bloom filter, if it is native and isn't being rebuilt.
    pub fn into_bloom(self) -> Option<Bloom> {
        match self {
            Filter::Bloom(filter) => Some(filter),
            _ => None,
        }
    }

    /// The Bloom filter, if it is another system's and isn't being rebuilt.
    pub fn into_foreign(self) -> Option<Foreign> {
        match self {
            Filter::Foreign(filter) => Some(*filter),
            _ => None,
        }
    }

    /// The cuckoo filter, if it is one.
    pub fn into_cuckoo(self) -> Option<Cuckoo> {
        self.try_into().ok()
    }

    /// The Bloom filter, native or another system's, if it isn't being rebuilt.
    pub(crate) fn into_live(self) -> Option<Live> {
        match self {
            Filter::Bloom(filter) => Some(Live::Bloom(filter)),
            Filter::Foreign(filter) => Some(Live::Foreign(filter)),
            Filter::Cuckoo(_) | Filter::Rebuild(_) => None,
        }
    }

    /// Bytes of all cells.
    pub fn bytes(&self) -> u64 {
        FilterRef::from(self).bytes()
    }

    /// Bytes of all cells, including those that tables may still need for items up to their capacity.
    pub fn reserved_bytes(&self) -> u64 {
        FilterRef::from(self).arrays().map(Array::reserved_bytes).sum()
    }

    /// Bytes of memory, including all overhead and usage counters.
    pub fn allocated(&self) -> usize {
        match self {
            Filter::Bloom(filter) => filter.allocated() + filter.usage_allocated(),
            Filter::Foreign(filter) => size_of::<Filter>() + filter.allocated() + filter.usage().allocated(),
            Filter::Cuckoo(filter) => size_of::<Filter>() - size_of::<Cuckoo>() + filter.allocated(),
            Filter::Rebuild(rebuild) => rebuild.allocated(),
        }
    }

    /// A copy that shares no memory with this filter.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn snapshot(&self) -> Result<Filter, Error> {
        self.copy(&alone)
    }

    /// Like [`snapshot`](Filter::snapshot), but made on the threads of `parallel`.
    pub fn copy(&self, parallel: &ParallelFor<'_>) -> Result<Filter, Error> {
        Ok(match self {
            Filter::Bloom(filter) => Filter::Bloom(filter.copy(parallel)?),
            Filter::Foreign(filter) => Filter::Foreign(Box::new(filter.copy(parallel)?)),
            Filter::Cuckoo(filter) => Filter::Cuckoo(filter.copy(parallel)?),
            Filter::Rebuild(rebuild) => Filter::Rebuild(Box::new(rebuild.copy(parallel)?)),
        })
    }

    /// Begins a rebuild with this shadow.
    ///
    /// # Errors
    /// Same as [`Rebuild::check`]; also [`Error::Exclusive`] for a cuckoo filter and for a filter that is already being
    /// rebuilt. In these cases, nothing has changed.
    pub fn begin_rebuild(&mut self, shadow: Bloom) -> Result<(), Error> {
        match self {
            Filter::Bloom(filter) => Rebuild::check(LiveRef::Bloom(filter), &shadow)?,
            Filter::Foreign(filter) => Rebuild::check(LiveRef::Foreign(filter), &shadow)?,
            Filter::Cuckoo(_) => return Err(Error::Exclusive("a cuckoo filter has no shadow")),
            Filter::Rebuild(_) => return Err(Error::Exclusive("the filter is already being rebuilt")),
        }
        if let Some(live) = self.take().into_live() {
            *self = Filter::Rebuild(Box::new(Rebuild::new(live, shadow, 0)?));
        }
        Ok(())
    }

    /// Ends a rebuild: the shadow replaces the live filter, which is returned. Does nothing and returns `None` if no
    /// rebuild is running, or if the shadow is a static filter's list of items, which can't answer tests.
    pub fn commit_rebuild(&mut self) -> Option<Live> {
        if self.rebuild()?.shadow().spec().is_list() {
            return None;
        }
        let (live, shadow) = self.take_rebuild()?.into_parts();
        *self = Filter::Bloom(shadow);
        Some(live)
    }

    /// Ends a rebuild whose shadow is a list: `built`, the filter that was built from it, replaces the live filter.
    /// Returns the live filter and the list. Does nothing and returns `None` if no rebuild is running.
    #[doc(hidden)]
    pub fn commit_built(&mut self, built: Bloom) -> Option<(Live, Bloom)> {
        let parts = self.take_rebuild()?.into_parts();
        *self = Filter::Bloom(built);
        Some(parts)
    }

    /// Ends a rebuild: the live filter stays, and the shadow is returned. Does nothing and returns `None` if no rebuild
    /// is running.
    pub fn abort_rebuild(&mut self) -> Option<Bloom> {
        let (live, shadow) = self.take_rebuild()?.into_parts();
        *self = live.into();
        Some(shadow)
    }

    /// Moves the rebuild, if there is one, out of `self`, which the caller must then fill again.
    fn take_rebuild(&mut self) -> Option<Rebuild> {
        match self.take() {
            Filter::Rebuild(rebuild) => Some(*rebuild),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Moves the filter out of `self`, which the caller must then fill again. The placeholder left there has no bits
    /// and no items.
    #[doc(hidden)]
    pub fn take(&mut self) -> Filter {
        core::mem::replace(self, Filter::Foreign(Box::new(Foreign::nothing())))
    }
}

impl<'a> FilterRef<'a> {
    /// The filter's arrays of cells: layers, links or sub-filters. During a rebuild, the live filter's arrays come
    /// first, then the shadow's.
    #[doc(hidden)]
    pub fn arrays(self) -> impl Iterator<Item = Array<'a>> {
        let (layers, links, tables, shadow) = match self {
            FilterRef::Bloom(filter) => (filter.layers(), &[][..], &[][..], &[][..]),
            FilterRef::Foreign(filter) => (&[][..], filter.links(), &[][..], &[][..]),
            FilterRef::Cuckoo(filter) => (&[][..], &[][..], filter.tables(), &[][..]),
            FilterRef::Rebuild(rebuild) => match rebuild.live() {
                LiveRef::Bloom(filter) => (filter.layers(), &[][..], &[][..], rebuild.shadow().layers()),
                LiveRef::Foreign(filter) => (&[][..], filter.links(), &[][..], rebuild.shadow().layers()),
            },
        };
        let words = |layers: &'a [Layer]| {
            layers.iter().map(|layer| match layer.has_table() {
                true => Array::Table(layer),
                false => Array::Cells(layer.words()),
            })
        };
        let links = links.iter().map(|link| Array::Cells(link.words()));
        let tables = tables.iter().map(|table| Array::Cells(table.words()));
        words(layers).chain(links).chain(tables).chain(words(shadow))
    }

    /// The number by which a dump notices that its key was given another filter of the same shape. During a rebuild, it
    /// is the shadow's number.
    pub(crate) fn dump_number(self) -> u16 {
        match self {
            FilterRef::Bloom(filter) => filter.dump_number(),
            FilterRef::Foreign(filter) => filter.dump_number(),
            FilterRef::Cuckoo(filter) => filter.dump_number(),
            FilterRef::Rebuild(rebuild) => rebuild.shadow().dump_number(),
        }
    }

    /// Bytes of all cells.
    pub fn bytes(self) -> u64 {
        self.arrays().map(Array::bytes).sum()
    }
}

impl From<Live> for Filter {
    fn from(live: Live) -> Filter {
        match live {
            Live::Bloom(filter) => Filter::Bloom(filter),
            Live::Foreign(filter) => Filter::Foreign(filter),
        }
    }
}

impl TryFrom<Filter> for Cuckoo {
    type Error = Filter;

    fn try_from(filter: Filter) -> Result<Cuckoo, Filter> {
        match filter {
            Filter::Cuckoo(filter) => Ok(filter),
            other => Err(other),
        }
    }
}

/// Conversions from a filter of one kind, owned or borrowed.
macro_rules! from_kinds {
    ($($kind:ident: $boxed:expr,)*) => {$(
        impl From<$kind> for Filter {
            fn from(filter: $kind) -> Filter {
                Filter::$kind($boxed(filter))
            }
        }

        impl<'a> From<&'a $kind> for FilterRef<'a> {
            fn from(filter: &'a $kind) -> FilterRef<'a> {
                FilterRef::$kind(filter)
            }
        }
    )*};
}
from_kinds! { Bloom: core::convert::identity, Foreign: Box::new, Cuckoo: core::convert::identity, }

impl<'a> From<LiveRef<'a>> for FilterRef<'a> {
    fn from(filter: LiveRef<'a>) -> FilterRef<'a> {
        match filter {
            LiveRef::Bloom(filter) => FilterRef::Bloom(filter),
            LiveRef::Foreign(filter) => FilterRef::Foreign(filter),
        }
    }
}

impl<'a> From<&'a Filter> for FilterRef<'a> {
    fn from(filter: &'a Filter) -> FilterRef<'a> {
        match filter {
            Filter::Bloom(filter) => FilterRef::Bloom(filter),
            Filter::Foreign(filter) => FilterRef::Foreign(filter),
            Filter::Cuckoo(filter) => FilterRef::Cuckoo(filter),
            Filter::Rebuild(rebuild) => FilterRef::Rebuild(rebuild),
        }
    }
}

impl core::fmt::Debug for Filter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Filter::Bloom(filter) => filter.fmt(f),
            Filter::Foreign(filter) => filter.fmt(f),
            Filter::Cuckoo(filter) => filter.fmt(f),
            Filter::Rebuild(rebuild) => rebuild.fmt(f),
        }
    }
}
