//! The memory of a layer: its cells, what is known about them, and its owners. Nothing here depends on where an item's
//! cells are; that is the layout's business.
//!
//! Any number of threads may read a layer. Any number may write to it, except with methods for a single writer or for a
//! thread with its own shard. Tests and adds are wait-free on bits; counters change by compare-and-swap. No method
//! needs
//! `&mut self`.

mod census;
mod counts;
mod tally;

use alloc::boxed::Box;
pub(crate) use census::Census;
use tally::Tallies;
pub(in crate::filter::layout) use tally::{Change, TallyWriter};

use super::quotient::{Locked, Quotient};
use super::shape::Shape;
use crate::bits::Hits;
use crate::error::Error;
use crate::hash::ItemHash;
use crate::mem::{Cells, Shared, Words};
use crate::params::{Cell, Layout, limits};
use crate::sync::AtomicU64;

/// A filter of fixed size, whose cells are divided among its shards. All kinds of Bloom filters consist of layers. A
/// `Layer` value is one owner of its cells, and there can be others; see [`share`](Layer::share).
pub struct Layer(Shared<Form, Rest, Tallies>);

/// What determines where an item's cells are, apart from the number of words. From the lowest bit up: 3 bits for the
/// layout's number minus 1, 2 for the kind of cell, 4 for log2 of the number of shards (a power of two up to 1024), and
/// 7 for the number of probes.
#[derive(Clone, Copy, PartialEq)]
struct Form(u16);

const _: () = assert!(limits::MAX_PROBES < 1 << 7 && limits::MAX_SHARDS < 1 << 16);

impl Form {
    fn of(shape: &Shape) -> Form {
        let cell = match shape.cell {
            Cell::Bit => 0,
            Cell::Counter4 => 1,
            Cell::Counter8 => 2,
            Cell::Counter16 => 3,
        };
        let log2_shards = shape.shards.trailing_zeros() as u16;
        Form((shape.probes as u16) << 9 | log2_shards << 5 | cell << 3 | u16::from(shape.layout.number() - 1))
    }

    #[inline(always)]
    fn probes(self) -> u32 {
        (self.0 >> 9).into()
    }

    #[inline(always)]
    fn layout(self) -> Layout {
        // The default is never used. Without it, each use would check the number.
        Layout::from_number((self.0 % 8) as u8 + 1).unwrap_or(Layout::Partitioned)
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

impl Rest {
    fn of(shape: &Shape) -> Rest {
        Rest { capacity: shape.capacity, error_rate: shape.error_rate, items: AtomicU64::new(0) }
    }
}

/// A small filter's layer is one block of memory: 32 bytes, 24 of which are `Rest`, and the cells. In a default filter,
/// the cells need 136 bytes, so the block has 168 bytes, for which the allocator uses 192.
const _: () = assert!(cfg!(all(loom, test)) || size_of::<Rest>() == 24);

impl Layer {
    /// A layer whose cells are all 0.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn zeroed(shape: &Shape, words: u64) -> Result<Layer, Error> {
        let tallies = Tallies::new(shape, words)?;
        Ok(Layer(Shared::zeroed(words, Form::of(shape), Rest::of(shape), tallies)?))
    }

    /// An empty layer with probes to which several threads will write.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn for_writers(shape: &Shape) -> Result<Layer, Error> {
        let tallies = Some(Tallies::for_writers(shape)?);
        Ok(Layer(Shared::zeroed(shape.words(), Form::of(shape), Rest::of(shape), tallies)?))
    }

    /// A layer with this table.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn with_table(shape: &Shape, table: Quotient) -> Result<Layer, Error> {
        let items = table.items();
        let table = Some(Tallies::Table(Box::new(Locked::new(table))));
        let layer = Layer(Shared::zeroed(1, Form::of(shape), Rest::of(shape), table)?);
        layer.set_items(items);
        Ok(layer)
    }

    /// A layer with the cells in `words`. It has no items yet.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn with_words(shape: &Shape, words: Words) -> Result<Layer, Error> {
        let tallies = Tallies::new(shape, words.len() as u64)?;
        Ok(Layer(Shared::with_words(words, Form::of(shape), Rest::of(shape), tallies)?))
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

    /// The layout.
    #[inline(always)]
    pub(super) fn layout(&self) -> Layout {
        self.form().layout()
    }

    /// Binary logarithm of the number of shards.
    #[inline(always)]
    pub(super) fn log2_shards(&self) -> u16 {
        self.form().log2_shards()
    }

    /// The geometry, for a layer with this many cells that this many generations share.
    pub(super) fn shaped(&self, cells: u64, generations: u16) -> Shape {
        Shape {
            capacity: self.capacity(),
            error_rate: self.error_rate(),
            cells,
            probes: self.probes(),
            shards: self.shards(),
            layout: self.layout(),
            cell: self.cell(),
            generations,
        }
    }

    /// Whether the cells are of the same kind in both layers, and there are as many of them.
    pub(super) fn is_like(&self, other: &Layer) -> bool {
        (self.words().len(), self.form()) == (other.words().len(), other.form())
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

    /// Number of shards.
    #[inline]
    pub fn shards(&self) -> u32 {
        1 << self.form().log2_shards()
    }

    /// Probes per item: k. For FUSE and RIBBON, the number of bits per fingerprint; for a table, 1.
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
        let table = self.reading().map(|table| table.bytes());
        table.unwrap_or(self.words().len() as u64 * 8)
    }

    /// Size of the cells in bytes, for a table at least that of the cells for its capacity.
    pub fn reserved_bytes(&self) -> u64 {
        if self.has_table() { self.bytes().max(self.shape().bytes()) } else { self.bytes() }
    }

    /// Bytes of memory, including all overhead.
    pub fn allocated(&self) -> usize {
        self.0.allocated() + self.tallies().map_or(0, Tallies::allocated)
    }

    /// Whether the layer is a static filter or a list for building one.
    pub(crate) fn is_static(&self) -> bool {
        self.layout().is_static()
    }

    /// The cells. A layer with a table has none here, but a word.
    #[inline(always)]
    pub(crate) fn words(&self) -> &Cells {
        self.0.words()
    }

    /// Index of the first word of the item's shard, and the shard's number of words.
    #[inline(always)]
    pub(super) fn shard_range(&self, item: ItemHash) -> (usize, usize) {
        if self.form().log2_shards() == 0 {
            return (0, self.words().len());
        }
        let len = self.words().len() >> self.form().log2_shards();
        (item.shard(self.shards()) as usize * len, len)
    }

    /// The words of the item's shard.
    #[inline(always)]
    pub(super) fn shard(&self, item: ItemHash) -> &[AtomicU64] {
        let (start, len) = self.shard_range(item);
        &self.words()[start..start + len]
    }
}

/// The items for which `test` holds. Only the items in `asked` are tested.
#[inline(always)]
pub(super) fn each(items: &[ItemHash], asked: Hits, test: impl Fn(ItemHash) -> bool) -> Hits {
    asked.fold(Hits::default(), |found, index| found.with(index, test(items[index])))
}
