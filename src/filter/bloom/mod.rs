//! A Bloom filter of any family, made of [`Layer`]s: one of fixed size, a [`Chain`] that grows, or a [`Window`] of
//! generations.

pub(crate) mod algebra;
pub mod batch;
mod chain;
mod from_list;
mod generations;
pub mod layer;
mod layers;
#[cfg(all(loom, test))]
mod model;
mod parameters;
pub mod probe;
mod reader;
mod rotation;
mod schedule;
mod std_traits;
mod window;

pub use chain::Chain;
pub use generations::Generation;
pub use layer::Layer;
pub use reader::Reader;
pub use schedule::{Due, Schedule, Standing};
pub use window::Window;

use super::change::{Added, Removed};
use super::dump_number;
use super::usage::{self, Usage};
use crate::bits::Hits;
use crate::error::Error;
use crate::hash::{Hashed, Hasher, Item, ItemHash};
use crate::parallel::{ParallelFor, alone};
use crate::params::{Family, LayoutChoice, Spec, limits};
use crate::sizing::Shape;
use layers::contains_many;
use parameters::Parameters;
use std::convert::Infallible;

/// What a filter is made of.
pub enum Body {
    /// One layer of bits or counters.
    Fixed(Layer),
    /// A chain that grows.
    Chain(Chain),
    /// Generations that rotate; boxed, because it is large and most filters are of other kinds.
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

    /// A body of the same kind with other layers.
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
/// Adds take `&mut self` because a chain may grow and a window may rotate. Readers in other threads work on a
/// [`Reader`], which shares the cells; several writers share one [`Layer`].
#[repr(C)]
pub struct Bloom {
    body: Body,
    /// Changes when the filter is emptied. It stays when cells are [exchanged](Bloom::exchange).
    dump_number: u16,
    /// Items that commands added, except those that the usage counters count.
    adds: u32,
    /// The last field, because its last word leaves bit patterns unused, in which `Filter` stores its variant. A cuckoo
    /// filter is in the words before it.
    parameters: Parameters,
}

/// A filter of our own has two blocks of memory, this one and its layer's, if the layer is small and has one shard.
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

    /// An empty filter that grows when it is full, with a random seed. The error rate holds for all of it, however far
    /// it grows.
    ///
    /// # Errors
    /// As [`fixed`](Bloom::fixed).
    pub fn scaling(capacity: u64, error_rate: f64) -> Result<Bloom, Error> {
        Bloom::new(Spec::scaling(capacity, error_rate).with_random_seed()?)
    }

    /// An empty filter with 4-bit counters, from which items can be deleted, with a random seed.
    ///
    /// # Errors
    /// As [`fixed`](Bloom::fixed).
    pub fn counting(capacity: u64, error_rate: f64) -> Result<Bloom, Error> {
        Bloom::new(Spec::counting(capacity, error_rate).with_random_seed()?)
    }

    /// An empty window of `generations` generations for `capacity` items each, with a random seed. Each
    /// [`rotate`](Bloom::rotate) drops the oldest.
    ///
    /// # Errors
    /// As [`fixed`](Bloom::fixed), and [`Error::Generations`].
    pub fn windowed(capacity: u64, error_rate: f64, generations: u16) -> Result<Bloom, Error> {
        Bloom::new(Spec::window(capacity, error_rate, generations).with_random_seed()?)
    }

    /// An empty filter of this spec. A window's first generation begins at Unix time 0. A static filter stays empty:
    /// use [`StaticBuilder`](crate::StaticBuilder).
    ///
    /// # Errors
    /// What [`Spec::validate`] refuses, [`Error::Unreachable`], [`Error::OutOfMemory`].
    pub fn new(spec: Spec) -> Result<Bloom, Error> {
        Bloom::new_since(spec, 0)
    }

    /// An empty filter whose window, if it is one, begins its generation 0 at Unix time `since_ms`, or at
    /// [`limits::MAX_TIME_MS`] if that is earlier.
    ///
    /// # Errors
    /// As [`new`](Bloom::new).
    pub fn new_since(spec: Spec, since_ms: u64) -> Result<Bloom, Error> {
        if spec.is_list() {
            return Err(Error::Exclusive("a static filter does not grow; StaticBuilder builds it"));
        }
        Bloom::new_admitted(spec, since_ms, |_| Ok(()))
    }

    /// As [`new_since`](Bloom::new_since), if `admit` allows the bytes of its cells, before they are allocated.
    pub(crate) fn new_admitted<E: From<Error>>(
        spec: Spec,
        since_ms: u64,
        admit: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<Bloom, E> {
        let (shape, layers) = match Bloom::plan(&spec) {
            Ok(plan) => plan,
            // For a size above every limit, the refusal names the limit that applies here.
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

    /// The shape of each layer that a new filter of this spec has.
    fn plan(spec: &Spec) -> Result<(Shape, u64), Error> {
        spec.validate()?;
        let layers = match spec.family {
            Family::Window { generations, .. } if spec.layout != LayoutChoice::Fingerprint => {
                generations.into()
            }
            _ => 1,
        };
        Ok((spec.next_shape(&[])?, layers))
    }

    /// Bytes of cells that a new filter of this spec takes.
    ///
    /// # Errors
    /// What [`Spec::validate`] refuses, [`Error::Unreachable`].
    pub fn bytes_for(spec: &Spec) -> Result<u64, Error> {
        let (shape, layers) = Bloom::plan(spec)?;
        Ok(shape.bytes().saturating_mul(layers))
    }

    /// From parts that [`wire`](crate::wire) has validated.
    pub(crate) fn from_parts(spec: Spec, body: Body) -> Bloom {
        let parameters = Parameters::new(&spec, first_capacity(&body));
        Bloom { parameters, body, dump_number: dump_number::next(), adds: 0 }
    }

    /// The parameters.
    pub fn spec(&self) -> Spec {
        let every_ms = self.window().map_or(0, |window| window.schedule().every_ms);
        self.parameters.spec(first_capacity(&self.body), every_ms)
    }

    /// Replaces its layers. The parameters stay, even if the first layer changes.
    fn change_body<T>(&mut self, change: impl FnOnce(&mut Body) -> T) -> T {
        let Spec { capacity, .. } = self.spec();
        let changed = change(&mut self.body);
        self.parameters.set_capacity(capacity, first_capacity(&self.body));
        changed
    }

    /// Counts items that commands added without being refused, whether or not the filter already had them.
    #[inline(always)]
    pub(crate) fn added(&mut self, items: u64) {
        match u32::try_from(items).ok().and_then(|items| self.adds.checked_add(items)) {
            Some(adds) => self.adds = adds,
            None => self.usage().added(items),
        }
    }

    /// Items that commands added without being refused.
    pub(crate) fn adds(&self) -> u64 {
        self.usage_so_far().adds().saturating_add(self.adds.into())
    }

    /// Its usage counters, for reading.
    pub(crate) fn usage_so_far(&self) -> &Usage {
        self.parameters.usage_so_far().unwrap_or(&usage::NONE)
    }

    /// Its usage counters, for counting.
    #[inline(always)]
    pub(crate) fn usage(&self) -> &Usage {
        self.parameters.usage()
    }

    /// What it is made of.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// The window, if it is one.
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

    /// Hashes an item for this filter, and for filters with the same hash function and seed: an item that is asked
    /// several times need not be hashed each time.
    #[inline]
    pub fn hash(&self, item: impl AsRef<[u8]>) -> Hashed {
        Hashed::new(self.hasher(), item.as_ref())
    }

    /// The hash of an item, for this filter alone.
    #[inline]
    pub(crate) fn item_hash(&self, item: &[u8]) -> ItemHash {
        self.hasher().hash(item)
    }

    /// Fetches what a test or add of the item will touch first: its lines in the newest layer.
    #[inline]
    pub fn prefetch(&self, item: ItemHash) {
        self.newest_layer().prefetch(item);
    }

    /// The layer that gets the adds, and that a test visits first.
    #[inline]
    pub fn newest_layer(&self) -> &Layer {
        match &self.body {
            Body::Fixed(layer) => layer,
            Body::Chain(chain) => chain.newest(),
            Body::Window(window) => window.current(),
        }
    }

    /// Whether the item may be in the filter, in a window as of its newest generation.
    #[inline]
    pub fn contains(&self, item: impl Item) -> bool {
        self.contains_at(item, self.newest())
    }

    /// As [`contains`](Bloom::contains), in a window as of generation `current`
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

    /// Which of up to 64 items may be in the filter, in a window as of generation `current`.
    ///
    /// For items that were [prefetched](Bloom::prefetch).
    #[inline]
    pub fn contains_many(&self, items: &[ItemHash], current: u64) -> Hits {
        match &self.body {
            Body::Fixed(layer) => layer.contains_many(items, Hits::first(items.len())),
            Body::Chain(chain) => contains_many(chain.layers().iter().rev(), items),
            Body::Window(window) => window.generations().contains_many(items, current),
        }
    }

    /// Adds the item, and returns whether it was absent before. As [`add`](Bloom::add), which says more.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn insert(&mut self, item: impl Item) -> Result<bool, Error> {
        self.add(item).map(|done| done.added)
    }

    /// Adds the item, growing if need be. This is the only writer; readers may run alongside it.
    ///
    /// A window records the item in its newest generation whether or not an older one has it; counters always count.
    ///
    /// # Errors
    /// [`Error::Full`] for a new item where the filter may neither grow nor exceed its error rate, and what growing
    /// may run into. An item that is present is never refused.
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

    /// As [`add`](Bloom::add), but without growing: a scaling filter whose newest layer is full also refuses a new
    /// item.
    ///
    /// # Errors
    /// [`Error::Full`].
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

    /// Which of up to 64 items the filter, or the newest generation of a window, may already contain, so that adding
    /// them changes nothing. None if it counts, or if generations share the cells.
    #[inline]
    pub(crate) fn known(&self, items: &[ItemHash]) -> Hits {
        match &self.body {
            _ if self.can_delete() => Hits::default(),
            Body::Fixed(layer) => layer.contains_many(items, Hits::first(items.len())),
            Body::Chain(chain) => contains_many(chain.layers().iter().rev(), items),
            Body::Window(window) => window.current().contains_many(items, Hits::first(items.len())),
        }
    }

    /// As [`try_add`](Bloom::try_add), for an item that wasn't [known](Bloom::known) a moment ago, in a filter that
    /// hasn't grown since.
    ///
    /// # Errors
    /// [`Error::Full`].
    #[inline(always)]
    pub(crate) fn add_unknown(&mut self, item: ItemHash) -> Result<Added, Error> {
        self.add_to_newest(item, Layer::insert_absent_single_writer)
    }

    /// Adds to a window that doesn't make room by itself, as long as its table has room. The shadow of a rebuild gets
    /// all items of its live filter in one generation.
    ///
    /// # Errors
    /// [`Error::Full`], also if it isn't a window.
    pub fn add_to_any_share(&mut self, item: ItemHash) -> Result<Added, Error> {
        match &self.body {
            Body::Window(window) if window.has_room_for(item, false) => {
                window.add(item, Layer::insert_single_writer)
            }
            _ => Err(Error::Full),
        }
    }

    /// Like [`try_add`](Bloom::try_add), for an item that no older layer of a chain of bits contains.
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
                // Adding a present item doesn't change bits; counters count.
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

    /// Number of shards that can add `items` in parallel: the newest layer's shard count if all of them fit, else 1.
    pub(crate) fn shards_for(&self, items: u64) -> u32 {
        let layer = self.newest_layer();
        if layer.capacity().saturating_sub(layer.items()) >= items { layer.shards() } else { 1 }
    }

    /// Adds an item for which [`shards_for`](Bloom::shards_for) found room. This is the only thread that writes to the
    /// item's shard; others may write to other shards.
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
    /// [`Error::TooManyLayers`], [`Error::Unreachable`].
    pub fn next_shape(&self) -> Result<Option<Shape>, Error> {
        match &self.body {
            Body::Chain(chain) => chain.next_shape(&self.spec()).map(Some),
            _ => Ok(None),
        }
    }

    /// Makes room for items: adds the next layer of a scaling filter, or drops the oldest generation of a window that
    /// rotates when it is full. Returns false, and does nothing, for other filters.
    ///
    /// # Errors
    /// [`Error::TooManyLayers`], [`Error::Unreachable`], [`Error::OutOfMemory`].
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
    /// As [`add`](Bloom::add).
    #[inline]
    pub fn add_if_absent(&mut self, item: impl Item) -> Result<Added, Error> {
        let item = item.hash_by(self.hasher());
        if self.contains(item) { Ok(Added::default()) } else { self.add(item) }
    }

    /// Deletes one occurrence of the item; from a window, the item.
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

    /// How often the item was added, at most.
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

    /// Empties the filter; parameters, seed and schedule stay. Returns the dropped layers.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], and then nothing has changed.
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

    /// A copy that shares nothing. Under concurrent adds it is consistent word by word.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn snapshot(&self) -> Result<Bloom, Error> {
        self.copy(&alone)
    }

    /// As [`snapshot`](Bloom::snapshot), on the threads of `parallel`.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn copy(&self, parallel: &ParallelFor<'_>) -> Result<Bloom, Error> {
        self.copy_of(|_| true, parallel)
    }

    /// A filter that shares the layers with this one, except those for whose number `changed` returns true: these are
    /// copied.
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

    /// A filter with the same layers, for reading in another thread.
    pub(super) fn share(&self) -> Bloom {
        let Ok(body) = self.body.map(|layer| Ok::<_, Infallible>(layer.share()));
        Bloom::from_parts(self.spec(), body)
    }

    /// Whether the other has the same layers in the same memory, and the same generations.
    pub(super) fn is_shared_with(&self, other: &Bloom) -> bool {
        let (mine, theirs) = (self.layers(), other.layers());
        mine.len() == theirs.len()
            && mine.iter().zip(theirs).all(|(mine, theirs)| mine.is(theirs))
            && self.window().map(Window::standing) == other.window().map(Window::standing)
    }

    /// Exchanges the cells with those of a filter of the same spec. Each keeps its usage counters.
    pub(super) fn exchange(&mut self, other: &mut Bloom) {
        self.change_body(|mine| other.change_body(|theirs| std::mem::swap(mine, theirs)));
    }

    /// A handle for reading in another thread: it shares the cells, and sees adds to the layers that exist now.
    pub fn reader(&self) -> Reader {
        Reader::new(
            self.hasher(),
            self.layers().iter().map(Layer::share).collect(),
            self.window().map(Window::newest),
        )
    }

    /// The layers: one, or a chain's from oldest to newest, or a window's in ring order.
    pub fn layers(&self) -> &[Layer] {
        self.body.layers()
    }

    /// Items added that were absent at the time, less those deleted. A window counts all its generations, so an item
    /// recorded in two counts twice.
    pub fn items(&self) -> u64 {
        self.layers().iter().map(|layer| layer.items()).sum()
    }

    /// Items that all layers together are sized for.
    pub fn capacity(&self) -> u64 {
        self.layers().iter().fold(0, |sum, layer| sum.saturating_add(layer.capacity()))
    }

    /// Number of distinct items, estimated from the fill (Swamidass–Baldi), layer by layer.
    pub fn estimate(&self) -> u64 {
        self.layers().iter().fold(0, |sum, layer| sum.saturating_add(layer.estimate()))
    }

    /// The error rate that the filter has now, from its fill: 1 − Π(1 − rate of a layer).
    pub fn rate_now(&self) -> f64 {
        // As a sum of logarithms: the product would lose rates below 1e-16.
        -libm::expm1(self.layers().iter().map(|layer| libm::log1p(-layer.rate_now())).sum())
    }

    /// Counters that have reached their maximum and no longer count.
    pub fn saturated(&self) -> u64 {
        self.layers().iter().map(|layer| layer.saturated()).sum()
    }

    /// Cells that are not 0.
    pub fn ones(&self) -> u64 {
        self.layers().iter().map(|layer| layer.ones()).sum()
    }

    /// Cells.
    pub fn cells(&self) -> u64 {
        self.layers().iter().map(|layer| layer.cells()).sum()
    }

    /// Fraction of cells that are not 0.
    pub fn fill(&self) -> f64 {
        self.ones() as f64 / self.cells() as f64
    }

    /// Bytes of the cells.
    pub fn bytes(&self) -> u64 {
        self.layers().iter().map(|layer| layer.bytes()).sum()
    }

    /// Bytes of memory of its usage counters: none until something is counted.
    pub(crate) fn usage_allocated(&self) -> usize {
        let (own, all) = self.parameters.allocated();
        all - own
    }

    /// Bytes of memory, with all overhead, but without its usage counters, so that equal filters have the same size.
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
