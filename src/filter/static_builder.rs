//! Builds static filters from all their items.

use super::bloom::Bloom;
use crate::error::Error;
use crate::hash::Item;
use crate::parallel::{ParallelFor, alone};
use crate::params::{Layout, Spec};

/// Collects the items of a static filter and builds the filter. A static filter is the smallest filter for a set that
/// doesn't change.
///
/// Until the filter is built, an item needs 8 bytes in a list that doubles when it is full. Building needs another 24
/// bytes per item, or 30 for [`Layout::Ribbon`]. Repeated items count once. Repetitions are dropped when they
/// make up more than about half of the list. So in a list of more than 1 MiB, a distinct item needs no more than about
/// 32 bytes, no matter how often it is added.
///
/// ```
/// use bloomery::StaticBuilder;
///
/// let mut builder = StaticBuilder::new(1_000_000, 0.004)?;
/// for i in 0..1_000_000u32 {
///     builder.insert(i.to_le_bytes())?;
/// }
/// let filter = builder.build()?;
/// assert!(filter.contains(7u32.to_le_bytes()));
/// assert!(filter.bytes() * 8 < 9_100_000, "9.1 bits an item");
/// # Ok::<(), bloomery::Error>(())
/// ```
pub struct StaticBuilder {
    list: Bloom,
    /// Number of items, including repetitions.
    items: u64,
    /// The number of items at which the list is next searched for repetitions. By then, the list has at least doubled
    /// in length since the last search.
    look_at: u64,
}

/// Number of items at which the list is first searched for repetitions. At that point, the list takes up half a MiB.
const FIRST_LOOK: u64 = 1 << 16;

impl StaticBuilder {
    /// A builder for about `capacity` items, with a random seed.
    ///
    /// # Errors
    /// [`Error::ErrorRate`], [`Error::Capacity`]; [`Error::Unreachable`] for an error rate below 2^-32;
    /// [`Error::OutOfMemory`], [`Error::NoRandomness`].
    pub fn new(capacity: u64, error_rate: f64) -> Result<StaticBuilder, Error> {
        let spec = Spec { layout: Some(Layout::Fuse), ..Spec::fixed(capacity, error_rate) };
        StaticBuilder::with_spec(spec.with_random_seed()?)
    }

    /// A builder for a filter with this spec, which must have a static layout.
    ///
    /// # Errors
    /// The errors of [`new`](StaticBuilder::new) and [`Spec::validate`].
    pub fn with_spec(spec: Spec) -> Result<StaticBuilder, Error> {
        spec.validate()?;
        if !spec.is_static() {
            return Err(Error::Exclusive(
                "filters of this layout accept adds; StaticBuilder is for static ones",
            ));
        }
        // Fails now if the parameters are impossible, not after all items have been added.
        spec.next_shape(&[])?;
        let list = Bloom::new_admitted(spec.list(), 0, |_| Ok(()))?;
        Ok(StaticBuilder { list, items: 0, look_at: FIRST_LOOK })
    }

    /// Adds an item.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    #[inline]
    pub fn insert(&mut self, item: impl Item) -> Result<(), Error> {
        self.list.add(item)?;
        self.items += 1;
        if self.items == self.look_at { self.look() } else { Ok(()) }
    }

    #[cold]
    fn look(&mut self) -> Result<(), Error> {
        if let Some(list) = self.list.shortened()? {
            self.list = list;
        }
        self.look_at = self.items + self.list.items().max(FIRST_LOOK);
        Ok(())
    }

    /// Number of items that were added, including repetitions.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Builds the filter.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Exclusive`] for more than 3.8 billion items in [`Layout::Fuse`];
    /// [`Error::Unbuilt`].
    pub fn build(&self) -> Result<Bloom, Error> {
        self.list.build(&alone)
    }

    /// Like [`build`](StaticBuilder::build), but partly on several threads.
    ///
    /// # Errors
    /// The same as [`build`](StaticBuilder::build).
    #[doc(hidden)]
    pub fn build_in(&self, parallel: &ParallelFor<'_>) -> Result<Bloom, Error> {
        self.list.build(parallel)
    }

    /// The list, for use as the shadow of a rebuild.
    #[doc(hidden)]
    pub fn into_list(self) -> Bloom {
        self.list
    }
}
