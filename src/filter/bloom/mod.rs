//! A Bloom filter of any family, made of [`Layer`]s: a single layer of fixed size, a [`Chain`] that grows, or a
//! [`Window`] of generations.

mod add;
pub(crate) mod algebra;
pub mod batch;
mod chain;
mod create;
mod from_list;
mod generations;
mod layers;
#[cfg(all(loom, test))]
mod model;
mod parameters;
mod reader;
mod rotation;
mod schedule;
mod sizing;
mod std_traits;
mod window;

pub use chain::Chain;
pub use generations::Generation;
pub use reader::Reader;
pub use schedule::{Due, Schedule, Standing};
pub use window::Window;

use super::layout::Layer;
use super::usage::{self, Usage};
use crate::bits::Hits;
use crate::error::Error;
use crate::hash::{Hashed, Hasher, Item, ItemHash};
use crate::item::ItemBytes;
use crate::parallel::{ParallelFor, alone};
use crate::params::Spec;
use alloc::{boxed::Box, vec::Vec};
use core::convert::Infallible;
use layers::contains_many;
use parameters::Parameters;

/// What a filter is made of.
pub enum Body {
    /// One layer of fixed size.
    Fixed(Layer),
    /// A chain that grows.
    Chain(Chain),
    /// Generations that rotate. Boxed because a window is large and most filters aren't windows.
    Window(Box<Window>),
}

impl Body {
    fn layers(&self) -> &[Layer] {
        match self {
            Body::Fixed(layer) => core::slice::from_ref(layer),
            Body::Chain(chain) => chain.layers(),
            Body::Window(window) => window.layers(),
        }
    }

    /// A body of the same kind in which each layer is replaced by the result of `layer`.
    fn map<E>(&self, mut layer: impl FnMut(&Layer) -> Result<Layer, E>) -> Result<Body, E> {
        let layers = self.layers().iter();
        Ok(match self {
            Body::Fixed(old) => Body::Fixed(layer(old)?),
            Body::Chain(_) => Body::Chain(Chain::from_layers(layers.map(layer).collect::<Result<_, E>>()?)),
            Body::Window(window) => {
                let layers = layers.map(layer).collect::<Result<_, E>>()?;
                Body::Window(Box::new(Window::from_parts(layers, window.newest(), window.schedule())))
            }
        })
    }
}

fn first_capacity(body: &Body) -> u64 {
    body.layers().first().map_or(0, |layer| layer.capacity())
}

/// A Bloom filter with its parameters.
///
/// Adds need `&mut self` because a chain may grow and a window may rotate. To read in other threads, use a [`Reader`],
/// which shares the cells. To write from several threads, use an [`AtomicBloom`](crate::AtomicBloom).
#[repr(C)]
pub struct Bloom {
    body: Body,
    /// A number by which a dump notices that the filter was replaced. Changes when the filter is emptied, but not when
    /// cells are [exchanged](Bloom::exchange).
    dump_number: u16,
    /// Number of items that commands have added. Items that would make this number overflow are counted by the usage
    /// counters instead.
    adds: u32,
    /// This is the last field because its last word has unused bit patterns, in which `Filter` stores its variant. A
    /// cuckoo filter occupies the words before it.
    parameters: Parameters,
}

/// This size matters for small filters: one with a single small layer of one shard consists of this struct and one
/// memory block for the layer.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Bloom>() == 56);

impl Bloom {
    /// The parameters.
    pub fn spec(&self) -> Spec {
        let every_ms = self.window().map_or(0, |window| window.schedule().every_ms);
        self.parameters.spec(first_capacity(&self.body), every_ms)
    }

    /// Changes the filter's layers. The parameters stay the same, even if the first layer changes.
    fn change_body<T>(&mut self, change: impl FnOnce(&mut Body) -> T) -> T {
        let Spec { capacity, .. } = self.spec();
        let changed = change(&mut self.body);
        self.parameters.set_capacity(capacity, first_capacity(&self.body));
        changed
    }

    /// Counts items that commands added, whether or not the filter already had them. Refused items don't count.
    #[inline(always)]
    #[doc(hidden)]
    pub fn added(&mut self, items: u64) {
        match u32::try_from(items).ok().and_then(|items| self.adds.checked_add(items)) {
            Some(adds) => self.adds = adds,
            None => self.usage().added(items),
        }
    }

    /// Number of items that commands have added, including those that were already in the filter. Refused items aren't
    /// counted.
    pub(crate) fn adds(&self) -> u64 {
        self.usage_so_far().adds().saturating_add(self.adds.into())
    }

    /// The filter's usage counters, for reading. Allocates nothing.
    pub(crate) fn usage_so_far(&self) -> &Usage {
        self.parameters.usage_so_far().unwrap_or(&usage::NONE)
    }

    /// The filter's usage counters, which are allocated on first use.
    #[inline(always)]
    #[doc(hidden)]
    pub fn usage(&self) -> &Usage {
        self.parameters.usage()
    }

    /// What the filter is made of.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// The window, if the filter is one.
    #[inline]
    pub fn window(&self) -> Option<&Window> {
        match &self.body {
            Body::Window(window) => Some(window),
            _ => None,
        }
    }

    /// The keyed hash function of this filter.
    #[inline(always)]
    pub fn hasher(&self) -> Hasher {
        self.parameters.hasher()
    }

    /// Hashes an item for this filter and for all filters with the same hash function and seed. An item that is looked
    /// up several times then needs to be hashed only once.
    #[inline]
    pub fn hash(&self, item: impl ItemBytes) -> Hashed {
        Hashed::new(self.hasher(), item.item_bytes().as_ref())
    }

    /// The hash of an item for this filter. Unlike a [`Hashed`], it doesn't record its hash function and seed, so its
    /// use with another filter isn't detected.
    #[inline]
    #[doc(hidden)]
    pub fn item_hash(&self, item: &[u8]) -> ItemHash {
        self.hasher().hash(item)
    }

    /// Prefetches what a test or add of the item will touch first: its first cache lines in the newest layer.
    #[inline]
    pub fn prefetch(&self, item: ItemHash) {
        self.newest_layer().prefetch(item);
    }

    /// The layer that receives new items, and that a test visits first.
    #[inline]
    pub fn newest_layer(&self) -> &Layer {
        match &self.body {
            Body::Fixed(layer) => layer,
            Body::Chain(chain) => chain.newest(),
            Body::Window(window) => window.current(),
        }
    }

    /// Whether one of the layers is a table.
    #[inline]
    #[doc(hidden)]
    pub fn has_table(&self) -> bool {
        self.table().is_some()
    }

    /// The layer that is a table, if there is one.
    #[doc(hidden)]
    pub fn table(&self) -> Option<&Layer> {
        self.layers().iter().find(|layer| layer.has_table())
    }

    /// Whether the item may be in the filter. A window answers as of its newest generation.
    #[inline]
    pub fn contains(&self, item: impl Item) -> bool {
        self.contains_as_of(item, self.newest())
    }

    /// Like [`contains`](Bloom::contains), but a window answers as of generation `current`
    /// (see [`generation_at`](Bloom::generation_at)). If that is newer than the one that received the last add, because
    /// nothing called [`catch_up`](Bloom::catch_up) before the add, even that item may be absent.
    #[inline]
    pub fn contains_as_of(&self, item: impl Item, current: u64) -> bool {
        let item = item.hash_by(self.hasher());
        match &self.body {
            Body::Fixed(layer) => layer.contains(item),
            Body::Chain(chain) => chain.contains(item),
            Body::Window(window) => window.contains(item, current),
        }
    }

    /// Which of up to 64 items may be in the filter. A window answers as of generation `current`.
    ///
    /// The items should have been [prefetched](Bloom::prefetch).
    #[inline]
    pub fn contains_many(&self, items: &[ItemHash], current: u64) -> Hits {
        match &self.body {
            Body::Fixed(layer) => layer.contains_many(items, Hits::first(items.len())),
            Body::Chain(chain) => contains_many(chain.layers().iter().rev(), items),
            Body::Window(window) => window.generations().contains_many(items, current),
        }
    }

    /// See [`FilterRef::dump_number`](super::FilterRef::dump_number).
    pub(super) fn dump_number(&self) -> u16 {
        self.dump_number
    }

    /// A copy that shares no memory with this filter. For copies made while items are being added, see
    /// [`Layer::snapshot`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn snapshot(&self) -> Result<Bloom, Error> {
        self.copy(&alone)
    }

    /// Like [`snapshot`](Bloom::snapshot), on the threads of `parallel`.
    pub(crate) fn copy(&self, parallel: &ParallelFor<'_>) -> Result<Bloom, Error> {
        self.copy_of(|_| true, parallel)
    }

    /// A filter that shares its layers with this one. Only layers whose number satisfies `changed` are copied.
    pub(super) fn copy_of(
        &self,
        changed: impl Fn(usize) -> bool,
        parallel: &ParallelFor<'_>,
    ) -> Result<Bloom, Error> {
        let mut numbers = 0..;
        let body = self.body.map(|layer| match numbers.next().is_some_and(&changed) {
            true => layer.copy(parallel),
            false => Ok(layer.share()),
        })?;
        Ok(Bloom::from_parts(self.spec(), body))
    }

    /// A filter that shares this one's layers, for reading in another thread.
    pub(super) fn share(&self) -> Bloom {
        let Ok(body) = self.body.map(|layer| Ok::<_, Infallible>(layer.share()));
        Bloom::from_parts(self.spec(), body)
    }

    /// Whether the other filter has the same layers in the same memory and, if they are windows, the same newest
    /// generation and schedule.
    pub(super) fn is_shared_with(&self, other: &Bloom) -> bool {
        let (mine, theirs) = (self.layers(), other.layers());
        mine.len() == theirs.len()
            && mine.iter().zip(theirs).all(|(mine, theirs)| mine.is(theirs))
            && self.window().map(Window::standing) == other.window().map(Window::standing)
    }

    /// Exchanges cells with a filter that has the same spec. Each filter keeps its usage counters.
    pub(super) fn exchange(&mut self, other: &mut Bloom) {
        self.change_body(|mine| other.change_body(|theirs| core::mem::swap(mine, theirs)));
    }

    /// A handle for reading in another thread. It shares the cells, and sees later adds to the layers that exist now.
    pub fn reader(&self) -> Reader {
        Reader::new(
            self.hasher(),
            self.layers().iter().map(Layer::share).collect(),
            self.window().map(Window::newest),
        )
    }

    /// The layers: a single one, those of a chain from oldest to newest, or those of a window in ring order.
    pub fn layers(&self) -> &[Layer] {
        self.body.layers()
    }

    /// Number of added items that were absent at the time, minus the deleted ones. For a window, this is the sum over
    /// its layers, so an item that is in two of them counts twice.
    pub fn items(&self) -> u64 {
        self.layers().iter().map(|layer| layer.items()).sum()
    }

    /// Number of items that all layers together are sized for.
    pub fn capacity(&self) -> u64 {
        let grows = self.parameters.grows();
        self.layers().iter().fold(0, |sum, layer| sum.saturating_add(layer.room(grows)))
    }

    /// Whether the filter grows: by itself if it has a table, otherwise by a table or another layer.
    pub(crate) fn grows(&self) -> bool {
        self.parameters.grows()
    }

    /// Number of distinct items, estimated from the fill (Swamidass–Baldi), layer by layer.
    pub fn estimate(&self) -> u64 {
        self.layers().iter().fold(0, |sum, layer| sum.saturating_add(layer.estimate()))
    }

    /// The error rate that the filter has now, computed from its fill: 1 − Π(1 − rate of a layer).
    pub fn rate_now(&self) -> f64 {
        // Uses a sum of logarithms, because the product would lose rates below 1e-16.
        -libm::expm1(self.layers().iter().map(|layer| libm::log1p(-layer.rate_now())).sum())
    }

    /// Number of counters that have reached their maximum and no longer count.
    pub fn saturated(&self) -> u64 {
        self.layers().iter().map(|layer| layer.saturated()).sum()
    }

    /// Number of cells that are not 0. For a static filter, its number of items.
    pub fn ones(&self) -> u64 {
        self.layers().iter().map(|layer| layer.ones()).sum()
    }

    /// Whether no item is present, as far as the cells show.
    pub fn is_blank(&self) -> bool {
        self.layers().iter().all(|layer| layer.is_blank())
    }

    /// Number of cells.
    pub fn cells(&self) -> u64 {
        self.layers().iter().map(|layer| layer.cells()).sum()
    }

    /// Fraction of cells that are not 0.
    pub fn fill(&self) -> f64 {
        self.ones() as f64 / self.cells() as f64
    }

    /// Size of the cells in bytes.
    pub fn bytes(&self) -> u64 {
        self.layers().iter().map(|layer| layer.bytes()).sum()
    }

    /// Size of the cells in bytes, including those that tables may still need for items up to their capacity. They grow
    /// without asking the server whether there is memory.
    pub fn reserved_bytes(&self) -> u64 {
        self.layers().iter().map(|layer| layer.reserved_bytes()).sum()
    }

    /// Bytes of memory that the usage counters use; 0 until something is counted.
    pub(crate) fn usage_allocated(&self) -> usize {
        let (own, all) = self.parameters.allocated();
        all - own
    }

    /// Bytes of memory, including all overhead. The usage counters aren't included, so that equal filters have the same
    /// size.
    pub fn allocated(&self) -> usize {
        let lists = match &self.body {
            Body::Fixed(_) => 0,
            Body::Chain(chain) if chain.layers().len() == 1 => 0,
            Body::Chain(_) => size_of::<Vec<Layer>>() + size_of_val(self.layers()),
            Body::Window(window) => size_of_val(&**window) + size_of_val(self.layers()),
        };
        let layers = self.layers().iter().map(|layer| layer.allocated()).sum::<usize>();
        size_of::<Bloom>() + self.parameters.allocated().0 + lists + layers
    }
}

impl core::fmt::Debug for Bloom {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Bloom")
            .field("spec", &self.spec())
            .field("items", &self.items())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capacity_stays_when_another_layer_is_the_first() {
        let mut filter = Bloom::new(Spec::scaling(100, 0.01)).unwrap();
        let spec = filter.spec();
        let other = Layer::new(Spec::fixed(7, 0.01).next_shape(&[]).unwrap()).unwrap();
        filter.change_body(|body| {
            let Body::Chain(chain) = body else { unreachable!("it scales") };
            chain.insert_before_newest(vec![other]);
        });
        assert_eq!((filter.spec(), filter.layers()[0].capacity()), (spec, 7));
        assert_eq!(filter.snapshot().unwrap().spec(), spec);
        let mut empty = Bloom::new(spec).unwrap();
        filter.exchange(&mut empty);
        assert_eq!((filter.spec(), empty.spec(), empty.layers().len()), (spec, spec, 2));
        empty.clear().unwrap();
        assert_eq!((empty.spec(), empty.layers().len()), (spec, 1));
    }

    #[test]
    fn adds_are_counted_beyond_32_bits() {
        let mut filter = Bloom::new(Spec::scaling(100, 0.01)).unwrap();
        let (mut sum, most) = (0, u64::from(u32::MAX));
        for items in [1, most - 1, 5, 1, most + 1, 1 << 40] {
            filter.added(items);
            sum += items;
            assert_eq!(filter.adds(), sum);
        }
    }
}
