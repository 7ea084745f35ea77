//! A filter of fixed size, whose cells are divided among its shards. All kinds of Bloom filters consist of layers. Any
//! number of threads may read a layer. Any number may write to it, except with methods for a single writer or for a
//! thread with its own shard.
//!
//! Tests and adds are wait-free on bits; counters change by compare-and-swap. No method needs `&mut self`.

mod algebra;
mod cells;
mod census;
mod counts;
mod generations;
mod tally;

use crate::error::Error;
use crate::filter::fingerprint::Table;
use crate::mem::{Cells, Shared, Words};
use crate::params::{Cell, Layout, limits};
use crate::sizing::Shape;
use crate::sizing::fuse::Fuse;
use crate::sizing::ribbon::Ribbon;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;
pub(crate) use census::Census;
use tally::Tallies;

/// A filter of fixed size. A `Layer` value is one owner of its cells, and there can be others; see
/// [`share`](Layer::share).
pub struct Layer(Shared<Form, Rest, Tallies>);

/// What determines where an item's cells are, apart from the number of words. From the lowest bit up: 3 bits for the
/// layout, 2 for the kind of cell, 4 for log2 of the number of shards (a power of two up to 1024), and 7 for the number
/// of probes.
#[derive(Clone, Copy, PartialEq)]
struct Form(u16);

const _: () = assert!(limits::MAX_PROBES < 1 << 7 && limits::MAX_SHARDS < 1 << 16);

impl Form {
    fn new(layout: Layout, cell: u16, shards: u32, probes: u32) -> Form {
        Form((probes as u16) << 9 | (shards.trailing_zeros() as u16) << 5 | cell << 3 | layout as u16)
    }

    #[inline(always)]
    fn probes(self) -> u32 {
        (self.0 >> 9).into()
    }

    #[inline(always)]
    fn layout(self) -> Layout {
        match Layout::from_number((self.0 % 8) as u8) {
            Some(layout) => layout,
            None => unreachable!("a form has a layout"),
        }
    }

    #[inline(always)]
    fn log2_shards(self) -> u16 {
        self.0 >> 5 & 15
    }

    #[inline(always)]
    fn cell(self) -> Cell {
        match self.0 >> 3 & 3 {
            0 => Cell::Bit,
            1 => Cell::Counter4,
            2 => Cell::Counter8,
            _ => Cell::Counter16,
        }
    }
}

/// The values that are stored for every layer in addition to its [`Form`].
struct Rest {
    capacity: u64,
    error_rate: f64,
    /// Number of added items that were absent. Not used if there are [`Tallies::Padded`].
    items: AtomicU64,
}

/// A small filter's layer is one block of memory: 32 bytes, 24 of which are `Rest`, and the cells. In a default filter,
/// the cells need 136 bytes, so the block has 168 bytes, for which the allocator uses 192.
const _: () = assert!(cfg!(all(loom, test)) || size_of::<Rest>() == 24);

impl Layer {
    /// An empty layer. The allocator provides zeroed memory without touching it, so this takes microseconds at any
    /// size.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    ///
    /// # Panics
    /// In builds with debug assertions, if `shape` fails `Shape::check`. A shape is always computed by this library or
    /// taken from another layer.
    pub fn new(shape: Shape) -> Result<Layer, Error> {
        debug_assert_eq!(shape.check(), Ok(()));
        let (form, rest, tallies) = Layer::head(shape)?;
        let layer = Layer(Shared::zeroed(shape.words(), form, rest, tallies)?);
        layer.describe(shape);
        Ok(layer)
    }

    /// A layer with the cells in `words`, of which there must be `shape.words()`. `census` is the result of counting
    /// the cells. `items` is the number of items; for fingerprints, it is computed from the cells instead.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Foreign`] if the cells aren't valid for this shape.
    ///
    /// # Panics
    /// If `shape` fails `Shape::check`.
    pub(crate) fn from_words(shape: Shape, words: Words, items: u64, census: Census) -> Result<Layer, Error> {
        assert_eq!(shape.check(), Ok(()), "a shape is checked where it is read");
        let (form, rest, tallies) = Layer::head(shape)?;
        let layer = Layer(Shared::with_words(words, form, rest, tallies)?);
        // In a fingerprint table, an item is a cell in use whose generation hasn't expired.
        let (items, census) = match (layer.tags(), layer.table()) {
            (Some(tags), _) => (tags.all_items(), Census { set: tags.all_items(), ..census }),
            (None, Some(_)) => (census.set, census),
            (None, None) => (items, census),
        };
        let is_described = |word: &AtomicU64| shape.is_described_by(items, word.load(Relaxed));
        if census.is_damaged
            || layer.table().is_some_and(|table| !table.is_padded())
            || layer.descriptor().is_some_and(|word| !is_described(word))
        {
            return Err(Error::Foreign("cells"));
        }
        layer.set_tallies(if shape.is_static() { Census::of_set(items) } else { census }, items);
        Ok(layer)
    }

    /// The word that describes the cells of a static filter.
    fn descriptor(&self) -> Option<&AtomicU64> {
        self.words().last().filter(|_| self.form().layout().is_built())
    }

    /// Writes the word that describes the cells of an empty static filter.
    fn describe(&self, shape: Shape) {
        if let Some(word) = self.descriptor() {
            word.store(shape.description(), Relaxed);
        }
    }

    /// The hashes of a LIST layer; none for other layouts.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = u64> {
        let items = if self.form().layout() == Layout::List { self.items() as usize } else { 0 };
        self.words().iter().take(items).map(|word| word.load(Relaxed))
    }

    fn head(shape: Shape) -> Result<(Form, Rest, Option<Tallies>), Error> {
        let cell = match shape.cell {
            Cell::Bit => 0,
            Cell::Counter4 => 1,
            Cell::Counter8 => 2,
            Cell::Counter16 => 3,
        };
        let form = Form::new(shape.layout, cell, shape.shards, shape.probes);
        let items = AtomicU64::new(0);
        let rest = Rest { capacity: shape.capacity, error_rate: shape.error_rate, items };
        Ok((form, rest, Tallies::new(shape)?))
    }

    /// Another owner of the same layer. A change made through one owner is visible to all.
    pub fn share(&self) -> Layer {
        Layer(self.0.share())
    }

    /// Whether both are owners of the same layer.
    pub(crate) fn is(&self, other: &Layer) -> bool {
        self.address() == other.address()
    }

    /// The layer's number of owners.
    #[cfg(feature = "module")]
    pub(crate) fn owners(&self) -> usize {
        self.0.owners()
    }

    /// The layer's address, which is the same for all its owners and for no other layer.
    pub(crate) fn address(&self) -> usize {
        self.0.address()
    }

    #[inline(always)]
    fn form(&self) -> Form {
        self.0.brief()
    }

    #[inline(always)]
    fn tallies(&self) -> Option<&Tallies> {
        self.0.extra()
    }

    /// The layer's cells as a table, if they are fingerprints.
    #[inline(always)]
    fn table(&self) -> Option<Table<'_>> {
        match self.tallies() {
            Some(Tallies::Padded { shards, .. }) if self.form().layout() == Layout::Fingerprint => {
                Some(Table::new(self.words(), &shards[0].table))
            }
            _ => None,
        }
    }

    /// The geometry.
    pub fn shape(&self) -> Shape {
        Shape {
            capacity: self.capacity(),
            error_rate: self.error_rate(),
            cells: self.cells(),
            probes: self.probes(),
            shards: self.shards(),
            layout: self.form().layout(),
            cell: self.cell(),
            generations: self.generations(),
        }
    }

    /// A number of words that contains only whole cells: the array can be divided after every multiple of it. It is 1
    /// except for fingerprints, which can cross word boundaries.
    pub(crate) fn words_of_whole_cells(&self) -> u64 {
        self.table().map_or(1, |table| table.state.geometry().width().into())
    }

    /// Whether every item has the same cells in both layers.
    pub fn is_congruent(&self, other: &Layer) -> bool {
        (self.words().len(), self.form(), self.generations())
            == (other.words().len(), other.form(), other.generations())
    }

    /// Empties the layer. An add that runs at the same time may be partly lost.
    pub fn clear(&self) {
        let shape = self.shape();
        self.words().iter().for_each(|word| word.store(0, Relaxed));
        self.describe(shape);
        self.recount();
        self.set_items(0);
    }

    /// Number of items that the layer is sized for.
    #[inline]
    pub fn capacity(&self) -> u64 {
        self.0.rest().capacity
    }

    /// Error rate that the layer is sized for.
    pub fn error_rate(&self) -> f64 {
        self.0.rest().error_rate
    }

    /// Number of cells: m. For bits this is the size in bits.
    pub fn cells(&self) -> u64 {
        match (self.descriptor(), self.table()) {
            (Some(word), _) if self.form().layout() == Layout::Ribbon => {
                Ribbon::described(word.load(Relaxed), self.probes(), self.words().len() as u64).0.cells()
            }
            (Some(word), _) => Fuse::described(word.load(Relaxed), self.probes()).0.cells(),
            _ if self.form().layout() == Layout::List => self.words().len() as u64,
            (_, Some(table)) => table.state.geometry().cells,
            (_, None) => (self.words().len() as u64) << self.cell().log2_per_word(),
        }
    }

    /// Number of shards.
    #[inline]
    pub fn shards(&self) -> u32 {
        1 << self.form().log2_shards()
    }

    /// Probes per item: k. For fingerprints, including those of FUSE and RIBBON, the number of bits per fingerprint.
    #[inline(always)]
    pub fn probes(&self) -> u32 {
        self.form().probes()
    }

    /// Whether the layer's cells are bits or counters.
    #[inline]
    pub fn cell(&self) -> Cell {
        self.form().cell()
    }

    /// Size of the cells in bytes.
    pub fn bytes(&self) -> u64 {
        self.words().len() as u64 * 8
    }

    /// Bytes of memory, including all overhead.
    pub fn allocated(&self) -> usize {
        self.0.allocated() + self.tallies().map_or(0, Tallies::allocated)
    }

    /// Fraction of cells that are not 0.
    pub fn fill(&self) -> f64 {
        self.ones() as f64 / self.cells() as f64
    }

    /// Number of distinct items, estimated from the fill (Swamidass–Baldi).
    pub fn estimate(&self) -> u64 {
        self.shape().items_at(self.fill()) as u64
    }

    /// The [`estimate`](Layer::estimate), but rounded to the nearest integer. It becomes the number of items of a
    /// union, in which rounding down would be visible.
    fn nearest_estimate(&self) -> u64 {
        self.shape().items_at(self.fill()).round() as u64
    }

    /// The error rate at the present fill.
    pub fn rate_now(&self) -> f64 {
        self.shape().rate_now(self.fill())
    }

    /// Whether the layer is a static filter or a list for building one.
    pub(crate) fn is_static(&self) -> bool {
        self.form().layout().is_static()
    }

    /// Whether the layer has at least the number of items that it is sized for.
    pub fn is_full(&self) -> bool {
        self.items() >= self.capacity()
    }

    /// The cells.
    #[inline(always)]
    pub(crate) fn words(&self) -> &Cells {
        self.0.words()
    }
}

impl std::fmt::Debug for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layer")
            .field("shape", &self.shape())
            .field("ones", &self.ones())
            .finish_non_exhaustive()
    }
}
