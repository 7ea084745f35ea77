//! A Bloom filter of any family, made of [`Layer`]s: a single layer of fixed size, a [`Chain`] that grows, or a
//! [`Window`] of generations.

pub(crate) mod algebra;
pub mod batch;
mod chain;
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

use super::change::{Added, Removed};
use super::dump_number;
use super::layout::{Layer, Shape};
use super::usage::{self, Usage};
use crate::bits::Hits;
use crate::error::Error;
use crate::hash::{Hashed, Hasher, Item, ItemHash};
use crate::parallel::{ParallelFor, alone};
use crate::params::{Family, Layout, Spec, limits};
use layers::contains_many;
use parameters::Parameters;
use std::convert::Infallible;

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
            Body::Fixed(layer) => std::slice::from_ref(layer),
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
    /// An empty filter for `capacity` items, with a random seed. When it is full, it refuses new items.
    ///
    /// # Errors
    /// [`Error::ErrorRate`], [`Error::Capacity`], [`Error::Unreachable`], [`Error::OutOfMemory`],
    /// [`Error::NoRandomness`].
    pub fn fixed(capacity: u64, error_rate: f64) -> Result<Bloom, Error> {
        Bloom::new(Spec::fixed(capacity, error_rate).with_random_seed()?)
    }

    /// An empty filter that grows when it is full, with a random seed. The error rate holds for the whole filter,
    /// however large it grows.
    ///
    /// # Errors
    /// Same as [`fixed`](Bloom::fixed).
    pub fn scaling(capacity: u64, error_rate: f64) -> Result<Bloom, Error> {
        Bloom::new(Spec::scaling(capacity, error_rate).with_random_seed()?)
    }

    /// An empty filter with 4-bit counters and a random seed. Items can be deleted from it.
    ///
    /// # Errors
    /// Same as [`fixed`](Bloom::fixed).
    pub fn counting(capacity: u64, error_rate: f64) -> Result<Bloom, Error> {
        Bloom::new(Spec::counting(capacity, error_rate).with_random_seed()?)
    }

    /// An empty window of `generations` generations for `capacity` items each, with a random seed. Each
    /// [`rotate`](Bloom::rotate) drops the oldest generation.
    ///
    /// # Errors
    /// Same as [`fixed`](Bloom::fixed), and [`Error::Generations`].
    pub fn windowed(capacity: u64, error_rate: f64, generations: u16) -> Result<Bloom, Error> {
        Bloom::new(Spec::window(capacity, error_rate, generations).with_random_seed()?)
    }

    /// An empty filter with this spec. A window's first generation begins at Unix time 0. A static filter created this
    /// way stays empty; use [`StaticBuilder`](crate::StaticBuilder) to build one.
    ///
    /// # Errors
    /// The errors of [`Spec::validate`]; [`Error::Exclusive`] for a static filter that grows; [`Error::Unreachable`],
    /// [`Error::OutOfMemory`].
    pub fn new(spec: Spec) -> Result<Bloom, Error> {
        Bloom::new_since(spec, 0)
    }

    /// An empty filter. If it is a window, its generation 0 begins at Unix time `since_ms` in milliseconds, or at
    /// [`limits::MAX_TIME_MS`] if that is earlier.
    ///
    /// # Errors
    /// Same as [`new`](Bloom::new).
    pub fn new_since(spec: Spec, since_ms: u64) -> Result<Bloom, Error> {
        if spec.is_list() {
            return Err(Error::Exclusive("a static filter does not grow; StaticBuilder builds it"));
        }
        Bloom::new_admitted(spec, since_ms, |_| Ok(()))
    }

    /// Like [`new_since`](Bloom::new_since), but also creates lists. First calls `admit` with the number of bytes that
    /// the cells need. If `admit` refuses, returns its error.
    pub(crate) fn new_admitted<E: From<Error>>(
        spec: Spec,
        since_ms: u64,
        admit: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<Bloom, E> {
        let (shape, layers) = match Bloom::plan(&spec) {
            Ok(plan) => plan,
            // No filter can have this size. `admit` is asked all the same, because its error names the caller's limit.
            Err(Error::OutOfMemory { bytes }) => {
                admit(bytes)?;
                return Err(Error::OutOfMemory { bytes }.into());
            }
            Err(error) => return Err(error.into()),
        };
        admit(shape.bytes().saturating_mul(layers))?;
        let since_ms = since_ms.min(limits::MAX_TIME_MS);
        let spec = Spec { seed: spec.seed.narrow(spec.hash), ..spec };
        let body = match spec.family {
            Family::Fixed(_) => Body::Fixed(Layer::new(shape)?),
            Family::Scaling { .. } => Body::Chain(Chain::new(shape)?),
            Family::Window { every_ms, .. } => {
                let schedule = Schedule { every_ms, since_ms, rotations: 0 };
                Body::Window(Box::new(Window::new(shape, layers, schedule)?))
            }
        };
        Ok(Bloom::from_parts(spec, body))
    }

    /// The shape and the number of layers of a new filter with this spec.
    fn plan(spec: &Spec) -> Result<(Shape, u64), Error> {
        spec.validate()?;
        let layers = match spec.family {
            Family::Window { generations, .. } if spec.layout != Some(Layout::Fingerprint) => {
                generations.into()
            }
            _ => 1,
        };
        Ok((spec.next_shape(&[])?, layers))
    }

    /// Number of bytes that the cells of a new filter with this spec need.
    ///
    /// # Errors
    /// The errors of [`Spec::validate`]; [`Error::Unreachable`]; [`Error::OutOfMemory`] above [`limits::MAX_BYTES`].
    pub fn bytes_for(spec: &Spec) -> Result<u64, Error> {
        let (shape, layers) = Bloom::plan(spec)?;
        Ok(shape.bytes().saturating_mul(layers))
    }

    /// A filter made of these parts, which must be valid: [`wire`](crate::wire) validates what it reads.
    pub(crate) fn from_parts(spec: Spec, body: Body) -> Bloom {
        let parameters = Parameters::new(&spec, first_capacity(&body));
        Bloom { parameters, body, dump_number: dump_number::next(), adds: 0 }
    }

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
    pub(crate) fn added(&mut self, items: u64) {
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
    pub(crate) fn usage(&self) -> &Usage {
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
    pub fn hash(&self, item: impl AsRef<[u8]>) -> Hashed {
        Hashed::new(self.hasher(), item.as_ref())
    }

    /// The hash of an item for this filter. Unlike a [`Hashed`], it doesn't record its hash function and seed, so its
    /// use with another filter isn't detected.
    #[inline]
    pub(crate) fn item_hash(&self, item: &[u8]) -> ItemHash {
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

    /// Whether the item may be in the filter. A window answers as of its newest generation.
    #[inline]
    pub fn contains(&self, item: impl Item) -> bool {
        self.contains_at(item, self.newest())
    }

    /// Like [`contains`](Bloom::contains), but a window answers as of generation `current`
    /// (see [`generation_at`](Bloom::generation_at)).
    #[inline]
    pub fn contains_at(&self, item: impl Item, current: u64) -> bool {
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

    /// Adds the item, and returns whether it was absent before. [`add`](Bloom::add) returns more details.
    ///
    /// # Errors
    /// Same as [`add`](Bloom::add).
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
            Body::Chain(chain) if !self.parameters.counts() && chain.older_contain(item) => {
                Ok(Added::default())
            }
            _ => self.add_to_newest(item, Layer::insert_single_writer),
        }
    }

    /// Which of up to 64 items needn't be added, because the filter (in a window, the newest generation) may already
    /// contain them. Empty if the filter counts, or if generations share the cells.
    #[inline]
    pub(crate) fn known(&self, items: &[ItemHash]) -> Hits {
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
    pub(crate) fn add_unknown(&mut self, item: ItemHash) -> Result<Added, Error> {
        self.add_to_newest(item, Layer::insert_absent_single_writer)
    }

    /// Adds the item to a window's newest generation if there is room, no matter how much of a shared table this
    /// generation already occupies. Never makes room. Used for the shadow of a rebuild, which gets all items of its
    /// live filter in one generation.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no room, or if the filter isn't a window.
    pub fn add_to_any_share(&mut self, item: ItemHash) -> Result<Added, Error> {
        match &self.body {
            Body::Window(window) if window.has_room_for(item, false) => {
                window.add(item, Layer::insert_single_writer)
            }
            _ => Err(Error::Full),
        }
    }

    /// Like [`try_add`](Bloom::try_add), but adds the item to its layer with `insert`. In a chain that doesn't count,
    /// the item must not be in an older layer.
    #[inline(always)]
    fn add_to_newest(
        &mut self,
        item: ItemHash,
        insert: impl Fn(&Layer, ItemHash) -> Result<Added, Error>,
    ) -> Result<Added, Error> {
        match &self.body {
            Body::Chain(chain) if self.parameters.counts() => {
                let layer = chain.counting_layer(item);
                self.refuse_if_full(layer, item)?;
                insert(layer, item)
            }
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
                let rotates = self.parameters.rotate_when_full();
                if self.parameters.refuse_when_full() && !window.has_room_for(item, rotates) {
                    return Err(Error::Full);
                }
                window.add(item, insert)
            }
        }
    }

    /// Number of shards that can receive `items` new items in parallel: all shards of the newest layer if it has room
    /// for all items, else 1.
    pub(crate) fn shards_for(&self, items: u64) -> u32 {
        let layer = self.newest_layer();
        if layer.capacity().saturating_sub(layer.items()) >= items { layer.shards() } else { 1 }
    }

    /// Adds an item for which [`shards_for`](Bloom::shards_for) found room. Only the calling thread may write to the
    /// item's shard; other threads may write to other shards.
    #[inline]
    pub(crate) fn add_in_own_shard(&self, item: ItemHash) -> Added {
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

    /// Makes room for items: adds the next layer to a scaling filter, or begins or drops a generation in a window that
    /// rotates when it is full. For other filters, does nothing and returns false.
    ///
    /// # Errors
    /// [`Error::TooManyLayers`], [`Error::LastGeneration`], [`Error::Unreachable`], [`Error::OutOfMemory`].
    pub fn grow(&mut self) -> Result<bool, Error> {
        let spec = self.spec();
        match &mut self.body {
            Body::Chain(chain) => chain.grow(&spec).map(|()| true),
            Body::Window(window) if self.parameters.rotate_when_full() => {
                window.make_room()?;
                self.usage().rotated_early();
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Adds the item only if it is absent.
    ///
    /// # Errors
    /// Same as [`add`](Bloom::add).
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
            _ => self.counters(item)?.remove_single_writer(item),
        }
    }

    /// Whether items can be deleted.
    pub(crate) fn can_delete(&self) -> bool {
        self.parameters.counts() || self.newest_layer().generations() > 0
    }

    /// The item's count: the number of its adds minus its deletes, or more if other items share its cells. A saturated
    /// counter no longer counts.
    ///
    /// # Errors
    /// [`Error::NotCounting`].
    pub fn count(&self, item: impl Item) -> Result<u64, Error> {
        let item = item.hash_by(self.hasher());
        Ok(self.counters(item)?.count(item))
    }

    /// The layer in which the item is counted.
    fn counters(&self, item: ItemHash) -> Result<&Layer, Error> {
        match &self.body {
            Body::Fixed(layer) if self.parameters.counts() => Ok(layer),
            Body::Chain(chain) if self.parameters.counts() => Ok(chain.counting_layer(item)),
            _ => Err(Error::NotCounting),
        }
    }

    /// Empties the filter, but keeps its parameters, seed and schedule. Returns the dropped layers.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; then nothing has changed.
    pub fn clear(&mut self) -> Result<Vec<Layer>, Error> {
        let body = match &self.body {
            Body::Chain(_) => Body::Chain(Chain::new(self.spec().next_shape(&[])?)?),
            body => body.map(|layer| Layer::new(layer.shape()))?,
        };
        self.dump_number = dump_number::next();
        let dropped = self.change_body(|old| std::mem::replace(old, body));
        Ok(dropped.layers().iter().map(Layer::share).collect())
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
    ///
    /// # Errors
    /// Same as [`snapshot`](Bloom::snapshot).
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
        self.change_body(|mine| other.change_body(|theirs| std::mem::swap(mine, theirs)));
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
        self.layers().iter().fold(0, |sum, layer| sum.saturating_add(layer.capacity()))
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

impl std::fmt::Debug for Bloom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
