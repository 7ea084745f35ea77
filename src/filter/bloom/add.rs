//! Adds items to filters, and deletes them.

use super::layers::contains_many;
use super::{Bloom, Body, Window};
use crate::bits::Hits;
use crate::error::Error;
use crate::filter::change::{Added, Removed};
use crate::filter::layout::{Layer, Shape};
use crate::hash::{Item, ItemHash};
use core::convert::Infallible;

impl Bloom {
    /// Adds the item, and returns whether it was absent before. [`add`](Bloom::add) returns more details.
    #[inline]
    pub fn insert(&mut self, item: impl Item) -> Result<bool, Error> {
        self.add(item).map(|done| done.added)
    }

    /// Adds the item. A full filter [grows](Bloom::grow) first, if it can. There must be no other writer; readers may
    /// run at the same time.
    ///
    /// A window records the item in its newest generation even if an older one has it. Counters count every add.
    ///
    /// # Errors
    /// [`Error::Full`] for a new item if the filter may neither grow nor exceed its error rate; [`Error::Static`] for a
    /// new item in a static filter; the errors of [`grow`](Bloom::grow). An item that is present is never refused, with
    /// one exception: if each generation of a window has its own layer, a full newest generation refuses items that
    /// only older ones contain.
    #[inline]
    pub fn add(&mut self, item: impl Item) -> Result<Added, Error> {
        let item = item.hash_by(self.hasher());
        loop {
            match self.try_add(item) {
                Err(Error::Full) if self.grow()? => {}
                result => return result,
            }
        }
    }

    /// Like [`add`](Bloom::add), but never [grows](Bloom::grow): a scaling filter whose newest layer is full refuses
    /// new items.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Static`].
    #[inline]
    pub fn try_add(&mut self, item: impl Item) -> Result<Added, Error> {
        let item = item.hash_by(self.hasher());
        match &self.body {
            Body::Chain(chain) if chain.older_contain(item) => Ok(Added::default()),
            _ => self.add_to_newest(item, Layer::insert_single_writer),
        }
    }

    /// Which of up to 64 items needn't be added, because the filter (in a window, the newest generation) may already
    /// contain them. Empty if the filter counts, or if generations share the cells.
    #[inline]
    #[doc(hidden)]
    pub fn known(&self, items: &[ItemHash]) -> Hits {
        match &self.body {
            _ if self.can_delete() => Hits::default(),
            Body::Fixed(layer) => layer.contains_many(items, Hits::first(items.len())),
            Body::Chain(chain) => contains_many(chain.layers().iter().rev(), items),
            Body::Window(window) => window.current().contains_many(items, Hits::first(items.len())),
        }
    }

    /// Like [`try_add`](Bloom::try_add), for an item that wasn't [known](Bloom::known) a moment ago, in a filter that
    /// hasn't grown since then.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Static`].
    #[inline(always)]
    #[doc(hidden)]
    pub fn add_unknown(&mut self, item: ItemHash) -> Result<Added, Error> {
        self.add_to_newest(item, Layer::insert_absent_single_writer)
    }

    /// Adds the item to a window's newest generation, no matter how many it has. Never begins a generation. Used for
    /// the shadow of a rebuild, which gets all items of its live filter in one generation.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no room, or if the filter isn't a window.
    pub fn add_to_newest_generation(&mut self, item: ItemHash) -> Result<Added, Error> {
        match &self.body {
            Body::Window(window) => self.add_to_window(window, item, Layer::insert_single_writer),
            _ => Err(Error::Full),
        }
    }

    #[inline(always)]
    fn add_to_window(
        &self,
        window: &Window,
        item: ItemHash,
        insert: impl Fn(&Layer, ItemHash) -> Result<Added, Error>,
    ) -> Result<Added, Error> {
        if !self.parameters.forget_when_full() {
            return window.add(item, insert, false);
        }
        let before = self.items();
        let done = window.add(item, insert, true)?;
        self.usage().forgot((before + u64::from(done.added)).saturating_sub(self.items()));
        Ok(done)
    }

    /// Like [`try_add`](Bloom::try_add), but adds the item to its layer with `insert`. In a chain, the item must not be
    /// in an older layer.
    #[inline(always)]
    fn add_to_newest(
        &mut self,
        item: ItemHash,
        insert: impl Fn(&Layer, ItemHash) -> Result<Added, Error>,
    ) -> Result<Added, Error> {
        match &self.body {
            Body::Chain(chain) => {
                let newest = chain.newest();
                if newest.is_full_for_single_writer() {
                    return if newest.contains(item) { Ok(Added::default()) } else { Err(Error::Full) };
                }
                insert(newest, item)
            }
            Body::Fixed(layer) => {
                // Adding an item that is present doesn't change bits, but increments counters.
                self.refuse_if_full(layer, item)?;
                insert(layer, item)
            }
            Body::Window(window) => {
                let forgets = self.parameters.forget_when_full();
                if self.parameters.refuse_when_full() && !window.has_room_for(item, forgets) {
                    return Err(Error::Full);
                }
                self.add_to_window(window, item, insert)
            }
        }
    }

    /// Number of shards that can receive `items` new items in parallel: all shards of the newest layer if it has room
    /// for all items, else 1.
    #[doc(hidden)]
    pub fn shards_for(&self, items: u64) -> u32 {
        let layer = self.newest_layer();
        if layer.capacity().saturating_sub(layer.items()) >= items { layer.shards() } else { 1 }
    }

    /// Adds an item for which [`shards_for`](Bloom::shards_for) found room. Only the calling thread may write to the
    /// item's shard; other threads may write to other shards.
    #[inline]
    #[doc(hidden)]
    pub fn add_in_own_shard(&self, item: ItemHash) -> Added {
        match &self.body {
            Body::Fixed(layer) => layer.insert_in_own_shard(item),
            Body::Chain(chain) if chain.older_contain(item) => Added::default(),
            Body::Chain(chain) => chain.newest().insert_in_own_shard(item),
            Body::Window(window) => {
                let Ok(added) = window
                    .add_to_ring(item, |layer, item| Ok::<_, Infallible>(layer.insert_in_own_shard(item)));
                added
            }
        }
    }

    #[inline]
    fn refuse_if_full(&self, layer: &Layer, item: ItemHash) -> Result<(), Error> {
        if self.parameters.refuse_when_full() && layer.is_full_for_single_writer() && !layer.contains(item) {
            Err(if layer.is_static() { Error::Static } else { Error::Full })
        } else {
            Ok(())
        }
    }

    /// Bytes that [`grow`](Bloom::grow) adds: those of the next layer or, for a table, those that it needs for the
    /// items that it then takes. `None` for filters that don't grow.
    ///
    /// # Errors
    /// Same as [`next_shape`](Bloom::next_shape).
    pub(crate) fn next_bytes(&self) -> Result<Option<u64>, Error> {
        if let Some(table) = self.table() {
            return Ok(self.parameters.grows().then(|| table.next_table_bytes()));
        }
        Ok(self.next_shape()?.map(|shape| shape.bytes()))
    }

    /// Shape of the layer that a scaling filter adds next; `None` for the other families, which don't grow.
    ///
    /// # Errors
    /// [`Error::TooManyLayers`], [`Error::Unreachable`], [`Error::OutOfMemory`].
    pub fn next_shape(&self) -> Result<Option<Shape>, Error> {
        match &self.body {
            Body::Chain(chain) => chain.next_shape(&self.spec()).map(Some),
            _ => Ok(None),
        }
    }

    /// Makes room for items: lets a table grow, adds the next layer to a scaling filter, or begins a
    /// generation in a window that forgets items when it is full. For other filters, does nothing and returns false.
    ///
    /// # Errors
    /// [`Error::TooManyLayers`], [`Error::LastGeneration`], [`Error::Unreachable`], [`Error::OutOfMemory`].
    pub fn grow(&mut self) -> Result<bool, Error> {
        let spec = self.spec();
        if self.parameters.grows() && self.newest_layer().has_table() {
            return Ok(self.newest_layer().grow_full_table());
        }
        match &mut self.body {
            Body::Chain(chain) => chain.grow(&spec).map(|()| true),
            Body::Window(window) if self.parameters.forget_when_full() => window.begin_early().map(|()| true),
            _ => Ok(false),
        }
    }

    /// Adds the item only if it is absent.
    #[inline]
    pub fn add_if_absent(&mut self, item: impl Item) -> Result<Added, Error> {
        let item = item.hash_by(self.hasher());
        if self.contains(item) { Ok(Added::default()) } else { self.add(item) }
    }

    /// Deletes one occurrence of the item. In a window, deletes the item from all generations.
    ///
    /// # Errors
    /// [`Error::NotCounting`].
    pub fn remove(&mut self, item: impl Item) -> Result<Removed, Error> {
        let item = item.hash_by(self.hasher());
        match &self.body {
            Body::Window(window) => window.remove(item),
            _ => self.counters()?.remove_single_writer(item),
        }
    }

    /// Whether items can be deleted.
    #[doc(hidden)]
    pub fn can_delete(&self) -> bool {
        self.parameters.counts() || self.newest_layer().generations() > 0
    }

    /// The item's count: the number of its adds minus its deletes, or more if other items share its cells. A saturated
    /// counter no longer counts.
    ///
    /// # Errors
    /// [`Error::NotCounting`].
    pub fn count(&self, item: impl Item) -> Result<u64, Error> {
        let item = item.hash_by(self.hasher());
        Ok(self.counters()?.count(item))
    }

    /// The layer in which items are counted.
    fn counters(&self) -> Result<&Layer, Error> {
        match &self.body {
            Body::Fixed(layer) if self.parameters.counts() => Ok(layer),
            Body::Chain(chain) if self.parameters.counts() => Ok(chain.newest()),
            _ => Err(Error::NotCounting),
        }
    }
}
