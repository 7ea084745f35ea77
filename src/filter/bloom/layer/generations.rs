//! A layer of fingerprints that all generations of a window share.

use super::Layer;
use super::tally::Change;
use crate::bits::Single;
use crate::error::Error;
use crate::filter::change::{Added, Removed};
use crate::filter::fingerprint::Tags;
use crate::hash::ItemHash;

impl Layer {
    /// The layer's cells, if generations share them.
    #[inline(always)]
    pub(crate) fn tags(&self) -> Option<Tags<'_>> {
        self.table().and_then(Tags::of)
    }

    /// Number of generations that share the layer; 0 if it isn't shared.
    pub(crate) fn generations(&self) -> u16 {
        self.table().map_or(0, |table| table.state.geometry().generations)
    }

    /// Puts the item into the newest generation.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no room; then nothing has changed.
    #[inline]
    pub(crate) fn insert_into(&self, tags: Tags<'_>, item: ItemHash, newest: u64) -> Result<Added, Error> {
        let before = tags.insert(item, newest)?;
        if before.is_none() {
            self.count_items(1);
        }
        Ok(Added { added: before.is_none(), changed: before != Some(0) })
    }

    /// Deletes the item from all generations.
    pub(crate) fn remove_from(&self, tags: Tags<'_>, item: ItemHash, newest: u64) -> Removed {
        let present = tags.remove(item, newest);
        if present {
            self.count_items(-1);
        }
        Removed { present, changed: present }
    }

    /// Begins these generations. The last one becomes the newest. Items of expired generations are then gone.
    pub(crate) fn open(&self, tags: Tags<'_>, opened: std::ops::RangeInclusive<u64>) {
        tags.open(opened);
        self.recount_generations(tags);
    }

    /// Drops all generations before `floor`, which must not be after `newest`.
    pub(crate) fn drop_before(&self, tags: Tags<'_>, floor: u64, newest: u64) {
        tags.drop_before(floor, newest);
        self.recount_generations(tags);
    }

    fn recount_generations(&self, tags: Tags<'_>) {
        self.count_items(tags.all_items().wrapping_sub(self.items()) as i64);
    }

    /// Adds `items` to the number of items and to the number of cells in use, which are the same.
    fn count_items(&self, items: i64) {
        self.tally::<Single>(ItemHash::default(), Change { set: items, items, ..Change::default() });
    }
}
