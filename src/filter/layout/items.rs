//! What tests, adds and deletes do to the cells of an item. Each method asks once for the layer's layout.

use super::dispatch;
use super::layer::{Layer, TallyWriter};
use super::shape::Shape;
use crate::bits::{Hits, PerShard, Shared, Single};
use crate::error::Error;
use crate::filter::change::{Added, Removed};
use crate::hash::ItemHash;
use crate::mem::Source;

impl Shape {
    /// Whether the item may be in a layer of bits, or in a static filter, that has this shape and these words. The
    /// layer of a table, or of counters, isn't tested this way.
    pub(crate) fn contains_in(&self, words: impl Source, item: ItemHash) -> bool {
        dispatch!(self.layout, A => A::contains_in(self, words, item))
    }

    /// Whether a layer with this number of items can have this last word. Otherwise a test might read words that the
    /// layer doesn't have.
    pub(crate) fn is_described_by(&self, items: u64, word: u64) -> bool {
        dispatch!(self.layout, A => A::is_described_by(self, items, word))
    }
}

impl Layer {
    /// Whether the item may be in the layer. False is certain. For an absent item, the answer is true with the
    /// probability [`rate_now`](Layer::rate_now).
    #[inline]
    pub fn contains(&self, item: ItemHash) -> bool {
        dispatch!(self.layout(), A => A::contains(self, item))
    }

    /// Which of up to 64 items may be in the layer. Only the items in `asked` are tested.
    ///
    /// The items' cache lines should have been [prefetched](Layer::prefetch).
    #[inline]
    pub fn contains_many(&self, items: &[ItemHash], asked: Hits) -> Hits {
        let asked = asked & Hits::first(items.len());
        dispatch!(self.layout(), A => A::contains_many(self, items, asked))
    }

    /// Whether the layer's cells are expected to be in the CPU caches. If so, prefetching does nothing.
    #[inline]
    pub fn is_near(&self) -> bool {
        dispatch!(self.layout(), A => A::is_near(self))
    }

    /// Maximum number of cache lines that adding or deleting an item touches.
    #[inline]
    pub fn lines(&self) -> usize {
        dispatch!(self.layout(), A => A::lines_written(self))
    }

    /// Prefetches the cache lines that a test of this item will touch first. In a layer without blocks, these are the
    /// lines of two probes, which exclude most absent items. Call this a few items ahead of the test. In a layer of 1
    /// GiB, a test of an absent item takes 41 ns with two lines fetched, 66 ns with four, and 133 ns with all seven. A
    /// test of a present item takes 140 ns in each case.
    #[inline]
    pub fn prefetch(&self, item: ItemHash) {
        dispatch!(self.layout(), A => A::prefetch(self, item));
    }

    /// Prefetches all cache lines that adding or deleting this item will touch.
    #[inline]
    pub fn prefetch_all(&self, item: ItemHash) {
        dispatch!(self.layout(), A => A::prefetch_all(self, item));
    }

    /// Adds the item. Any number of threads may add items at the same time. Counters count every add.
    ///
    /// If two threads add the same new item at the same time, both may be told that they added it, because each cell is
    /// updated separately.
    #[inline]
    pub fn insert(&self, item: ItemHash) -> Added {
        self.insert_as::<Shared>(item)
    }

    /// Like [`insert`](Layer::insert), for a single writer: uses no locked instructions. Readers may run at the same
    /// time; a second writer would lose updates.
    ///
    /// # Errors
    /// [`Error::Full`] if a table or a list has no room, [`Error::Static`] for an item that a static filter
    /// doesn't contain. In both cases, nothing has changed.
    #[inline]
    pub fn insert_single_writer(&self, item: ItemHash) -> Result<Added, Error> {
        dispatch!(self.layout(), A => A::insert(self, item))
    }

    /// Like [`insert_single_writer`](Layer::insert_single_writer), for an item that was absent a moment ago, and most
    /// likely still is. In blocks of bits, it isn't tested again.
    #[inline(always)]
    pub(crate) fn insert_absent_single_writer(&self, item: ItemHash) -> Result<Added, Error> {
        dispatch!(self.layout(), A => A::insert_absent(self, item))
    }

    /// Like [`insert_single_writer`](Layer::insert_single_writer), for the only thread that writes to the item's
    /// shard. Other threads may write to other shards.
    #[inline]
    pub fn insert_in_own_shard(&self, item: ItemHash) -> Added {
        self.insert_as::<PerShard>(item)
    }

    #[inline(always)]
    fn insert_as<W: TallyWriter>(&self, item: ItemHash) -> Added {
        dispatch!(self.layout(), A => A::insert_as::<W>(self, item))
    }

    /// Deletes one occurrence of the item. Any number of threads may delete items at the same time. Deletes in the same
    /// shard take turns. Otherwise, after one thread has found an item, another could delete it before the first
    /// decrements its counters, and counters that other items share would be decremented twice.
    ///
    /// If the item is certainly absent, nothing changes. Deleting an item that was never added, but tests positive,
    /// decrements counters that other items need. This is the only way to cause a false negative.
    ///
    /// # Errors
    /// [`Error::NotCounting`] for a layer without counters.
    pub fn remove(&self, item: ItemHash) -> Result<Removed, Error> {
        let _turn = self.turn_to_delete(item);
        self.remove_as::<Shared>(item)
    }

    /// Like [`remove`](Layer::remove), for a single writer.
    ///
    /// # Errors
    /// [`Error::NotCounting`] for a layer without counters.
    pub fn remove_single_writer(&self, item: ItemHash) -> Result<Removed, Error> {
        self.remove_as::<Single>(item)
    }

    fn remove_as<W: TallyWriter>(&self, item: ItemHash) -> Result<Removed, Error> {
        if !self.cell().counts() {
            return Err(Error::NotCounting);
        }
        Ok(dispatch!(self.layout(), A => A::remove_as::<W>(self, item)))
    }

    /// The item's count: the minimum of its counters, or its prefix's count. This is the number of its adds minus
    /// its deletes, or more if other items share its cells. A saturated counter no longer counts. 0 or 1 for bits.
    pub fn count(&self, item: ItemHash) -> u64 {
        dispatch!(self.layout(), A => A::count(self, item))
    }
}
