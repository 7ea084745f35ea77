//! What all filters that accept items have in common: they add an item if there is room, and they may be able to grow.

use super::bloom::Bloom;
use super::change::Added;
use super::cuckoo::{Cuckoo, CuckooHash};
use super::foreign::Foreign;
use crate::error::Error;
use crate::hash::ItemHash;

/// A filter that can grow by adding an array of cells: a layer, a link or a sub-filter. Adding items and growing are
/// separate steps, so that a server can check its memory in between.
pub trait Grow {
    /// The form in which the filter accepts an item.
    type Item<'i>: Copy;

    /// Adds the item to the existing arrays.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no room. In this case, nothing has changed, and [`grow`](Grow::grow) may make room.
    /// Other errors depend on the filter.
    fn try_add(&mut self, item: Self::Item<'_>) -> Result<Added, Error>;

    /// Bytes of the array that [`grow`](Grow::grow) would add, or 0 if `grow` makes room in another way. `None` if the
    /// filter has a fixed capacity.
    ///
    /// # Errors
    /// [`Error::TooManyLayers`], [`Error::Unreachable`].
    fn next_bytes(&self) -> Result<Option<u64>, Error>;

    /// Adds the next array and returns true. A window that rotates when it is full begins or drops a generation
    /// instead. If the filter has a fixed capacity, nothing changes: a Bloom filter returns false, and a cuckoo filter
    /// returns [`Error::Full`].
    ///
    /// # Errors
    /// The errors of [`next_bytes`](Grow::next_bytes), [`Error::LastGeneration`], and [`Error::OutOfMemory`].
    fn grow(&mut self) -> Result<bool, Error>;

    /// Bytes of all cells.
    fn bytes(&self) -> u64;
}

impl Grow for Bloom {
    type Item<'i> = ItemHash;

    #[inline(always)]
    fn try_add(&mut self, item: ItemHash) -> Result<Added, Error> {
        Bloom::try_add(self, item)
    }

    fn next_bytes(&self) -> Result<Option<u64>, Error> {
        let forgets = self.forgets_when_full().then_some(0);
        Ok(Bloom::next_bytes(self)?.or(forgets))
    }

    fn grow(&mut self) -> Result<bool, Error> {
        Bloom::grow(self)
    }

    fn bytes(&self) -> u64 {
        Bloom::bytes(self)
    }
}

impl Grow for Foreign {
    type Item<'i> = &'i [u8];

    fn try_add(&mut self, item: &[u8]) -> Result<Added, Error> {
        Foreign::try_add(self, item)
    }

    fn next_bytes(&self) -> Result<Option<u64>, Error> {
        Ok(self.next_link()?.map(|link| link.bytes))
    }

    fn grow(&mut self) -> Result<bool, Error> {
        Foreign::grow(self)
    }

    fn bytes(&self) -> u64 {
        Foreign::bytes(self)
    }
}

impl Grow for Cuckoo {
    type Item<'i> = CuckooHash;

    #[inline(always)]
    fn try_add(&mut self, item: CuckooHash) -> Result<Added, Error> {
        self.try_insert(item).map(|()| Added { added: true, changed: true })
    }

    fn next_bytes(&self) -> Result<Option<u64>, Error> {
        if self.spec().expansion == 0 {
            return Ok(None);
        }
        Cuckoo::next_bytes(self).ok_or(Error::TooManyLayers).map(Some)
    }

    fn grow(&mut self) -> Result<bool, Error> {
        Cuckoo::grow(self).map(|()| true)
    }

    fn bytes(&self) -> u64 {
        Cuckoo::bytes(self)
    }
}
