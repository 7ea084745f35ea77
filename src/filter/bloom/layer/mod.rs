//! One fixed-size filter: shards × cells. Any number of readers is allowed, and, with the methods that aren't
//! `_single_writer`, any number of writers. All kinds of Bloom filters consist of layers.
//!
//! Tests and adds are wait-free on bits; counters change by compare-and-swap. No method needs `&mut self`.

mod algebra;
mod cells;
mod counts;
mod tally;

use crate::error::Error;
use crate::mem::Words;
use crate::params::Cell;
use crate::sizing::{Layout, Shape};
use crate::sync::Ordering::Relaxed;
use tally::Tallies;

/// One fixed-size Bloom filter of bits or counters.
pub struct Layer {
    capacity: u64,
    error_rate: f64,
    words: Words,
    tallies: Tallies,
    shards: u16,
    probes: u8,
    layout: Layout,
    cell: Cell,
}

impl Layer {
    /// An empty layer. The allocator zeroes the memory without touching it, so this takes microseconds at any size.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    ///
    /// # Panics
    /// If `shape` fails `Shape::check`.
    pub fn new(shape: Shape) -> Result<Layer, Error> {
        Layer::with_words(shape, Words::zeroed(shape.words())?)
    }

    /// A layer with these `shape.words()` words of cells, of which `ones` cells are not 0. It holds `items` items.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn from_words(shape: Shape, words: Words, items: u64, ones: u64) -> Result<Layer, Error> {
        let layer = Layer::with_words(shape, words)?;
        layer.set_tallies(ones, items);
        Ok(layer)
    }

    fn with_words(shape: Shape, words: Words) -> Result<Layer, Error> {
        assert_eq!(shape.check(), Ok(()), "a shape is checked where it is read");
        Ok(Layer {
            capacity: shape.capacity,
            error_rate: shape.error_rate,
            words,
            tallies: Tallies::new(shape)?,
            shards: shape.shards as u16,
            probes: shape.probes as u8,
            layout: shape.layout,
            cell: shape.cell,
        })
    }

    /// The geometry.
    pub fn shape(&self) -> Shape {
        Shape {
            capacity: self.capacity,
            error_rate: self.error_rate,
            cells: self.cells(),
            probes: self.probes.into(),
            shards: self.shards.into(),
            layout: self.layout,
            cell: self.cell,
        }
    }

    /// Whether an item has the same cells in both.
    pub fn is_congruent(&self, other: &Layer) -> bool {
        (self.words.len(), self.shards, self.probes, self.layout, self.cell)
            == (other.words.len(), other.shards, other.probes, other.layout, other.cell)
    }

    /// Empties the layer. A concurrent add may be partly lost.
    pub fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, Relaxed));
        self.recount();
        self.set_items(0);
    }

    /// Number of items that it is sized for.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Error rate that it is sized for.
    pub fn error_rate(&self) -> f64 {
        self.error_rate
    }

    /// Number of cells: m. For bits this is the size in bits.
    pub fn cells(&self) -> u64 {
        self.words.len() as u64 * u64::from(u64::BITS / self.cell.bits())
    }

    /// Number of shards.
    pub fn shards(&self) -> u32 {
        self.shards.into()
    }

    /// Probes per item: k.
    pub fn probes(&self) -> u32 {
        self.probes.into()
    }

    /// Whether its cells are bits or counters.
    pub fn cell(&self) -> Cell {
        self.cell
    }

    /// Bytes of the cells.
    pub fn bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    /// Bytes of memory, including all overhead.
    pub fn allocated(&self) -> usize {
        size_of::<Layer>() + self.words.allocated() + self.tallies.allocated()
    }

    /// Fraction of cells that are not 0.
    pub fn fill(&self) -> f64 {
        self.ones() as f64 / self.cells() as f64
    }

    /// Number of distinct items, estimated from the fill (Swamidass–Baldi).
    pub fn estimate(&self) -> u64 {
        self.shape().items_at(self.fill()) as u64
    }

    /// The [`estimate`](Layer::estimate), rounded to nearest: it becomes the number of items, where truncation
    /// would be visible.
    fn nearest_estimate(&self) -> u64 {
        self.shape().items_at(self.fill()).round() as u64
    }

    /// The error rate at the present fill.
    pub fn rate_now(&self) -> f64 {
        self.shape().rate_now(self.fill())
    }

    /// Whether it holds as many items as it is sized for.
    pub fn is_full(&self) -> bool {
        self.items() >= self.capacity
    }

    /// The cells, for writing them out.
    pub(crate) fn words(&self) -> &Words {
        &self.words
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
