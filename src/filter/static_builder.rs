//! Static filters, from all their items.

use super::bloom::Bloom;
use crate::error::Error;
use crate::hash::Item;
use crate::parallel::{ParallelFor, alone};
use crate::params::{LayoutChoice, Spec};

/// Collects the items of a static filter, and builds it: the smallest filter for a set that doesn't change.
///
/// Until it is built, an item takes 8 bytes in a list that doubles when it is full, and 24 more while it is built, or
/// 30 in [`LayoutChoice::Ribbon`]. Items that come again count once. They are dropped from the list when they are more
/// than half of it, so a different item never takes more than 32 bytes there, however often it comes.
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
    /// Number of items, with repetitions.
    items: u64,
    /// The number at which the list is searched for repetitions: when it may have doubled.
    look_at: u64,
}

/// Items before the list is searched for the first time: half a MiB.
const FIRST_LOOK: u64 = 1 << 16;

impl StaticBuilder {
    /// For about this many items, with a random seed.
    ///
    /// # Errors
    /// [`Error::ErrorRate`], [`Error::Capacity`]; [`Error::Unreachable`] for an error rate below 2^-32;
    /// [`Error::OutOfMemory`], [`Error::NoRandomness`].
    pub fn new(capacity: u64, error_rate: f64) -> Result<StaticBuilder, Error> {
        let spec = Spec { layout: LayoutChoice::Fuse, ..Spec::fixed(capacity, error_rate) };
        StaticBuilder::with_spec(spec.with_random_seed()?)
    }

    /// For a filter of this spec, which has a static layout.
    ///
    /// # Errors
    /// As [`new`](StaticBuilder::new), and what [`Spec::validate`] refuses.
    pub fn with_spec(spec: Spec) -> Result<StaticBuilder, Error> {
        spec.validate()?;
        if !spec.layout.is_static() {
            return Err(Error::Exclusive("filters of this layout take adds; only static ones are built"));
        }
        // Reports its refusals before items come.
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

    /// Number of items that were added, with repetitions.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// The filter.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Exclusive`] for more than 3.8 billion items in
    /// [`LayoutChoice::Fuse`].
    pub fn build(&self) -> Result<Bloom, Error> {
        self.list.build(&alone)
    }

    /// The same, in part on several threads.
    ///
    /// # Errors
    /// As [`build`](StaticBuilder::build).
    #[doc(hidden)]
    pub fn build_in(&self, parallel: &ParallelFor<'_>) -> Result<Bloom, Error> {
        self.list.build(parallel)
    }

    /// The list, as the shadow of a rebuild.
    #[cfg(any(test, feature = "internals"))]
    #[doc(hidden)]
    pub fn into_list(self) -> Bloom {
        self.list
    }
}
