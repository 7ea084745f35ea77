//! Creates layers, and describes them.

use super::dispatch;
use super::layer::{Census, Layer};
use super::quotient;
use super::shape::Shape;
use crate::error::Error;
use crate::mem::Words;
use crate::parallel::ParallelFor;
use crate::params::Layout;
use crate::sync::Ordering::Relaxed;
use alloc::vec::Vec;

impl Layout {
    /// Bytes per item that building a static filter needs in addition to the list and the filter.
    pub(crate) fn build_bytes(self) -> u64 {
        dispatch!(self, A => A::BUILD_BYTES)
    }

    /// See [`Algorithm::build`](super::algorithm::Algorithm::build).
    pub(crate) fn build(
        self,
        hashes: Vec<u64>,
        error_rate: f64,
        parallel: &ParallelFor<'_>,
    ) -> Result<((u64, Words), u64), Error> {
        dispatch!(self, A => A::build(hashes, error_rate, parallel))
    }
}

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
        if shape.layout == Layout::Quotient {
            return Layer::with_table(&shape, quotient::empty(&shape)?);
        }
        let layer = Layer::zeroed(&shape, shape.words())?;
        layer.describe(&shape);
        Ok(layer)
    }

    /// A layer with the cells in `words`, of which there must be `shape.words()`. `census` is the result of counting
    /// the cells. `items` is the number of items.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Foreign`] if the cells aren't valid for this shape.
    ///
    /// # Panics
    /// If `shape` fails `Shape::check`.
    pub(crate) fn from_words(shape: Shape, words: Words, items: u64, census: Census) -> Result<Layer, Error> {
        assert_eq!(shape.check(), Ok(()), "a shape is checked where it is read");
        let layer = Layer::with_words(&shape, words)?;
        let admitted = dispatch!(shape.layout, A => A::admit(&layer, &shape, items, census));
        let (items, census) = admitted.ok_or(Error::Foreign("cells"))?;
        layer.set_tallies(census, items);
        Ok(layer)
    }

    /// Writes the word that describes the cells of an empty static filter.
    fn describe(&self, shape: &Shape) {
        let description = dispatch!(shape.layout, A => A::description(shape));
        if let (Some(description), Some(word)) = (description, self.words().last()) {
            word.store(description, Relaxed);
        }
    }

    /// The geometry.
    pub fn shape(&self) -> Shape {
        self.shaped(self.cells(), self.generations())
    }

    /// Whether every item has the same cells in both layers.
    pub fn is_congruent(&self, other: &Layer) -> bool {
        self.is_like(other) && self.generations() == other.generations()
    }

    /// Empties the layer. An add that runs at the same time may be partly lost.
    pub fn clear(&self) {
        let shape = self.shape();
        self.clear_table();
        self.words().iter().for_each(|word| word.store(0, Relaxed));
        self.describe(&shape);
        self.recount();
        self.set_items(0);
    }

    /// Number of cells: m. For bits this is the size in bits.
    pub fn cells(&self) -> u64 {
        dispatch!(self.layout(), A => A::cells(self))
    }

    /// Fraction of cells that are not 0.
    pub fn fill(&self) -> f64 {
        self.ones() as f64 / self.cells() as f64
    }

    /// Number of distinct items, estimated from the fill (Swamidass–Baldi).
    pub fn estimate(&self) -> u64 {
        libm::round(self.shape().items_at(self.fill())) as u64
    }

    /// The error rate at the present fill.
    pub fn rate_now(&self) -> f64 {
        if let Some(table) = self.reading() {
            return table.rate();
        }
        self.shape().rate_now(self.fill())
    }
}

impl core::fmt::Debug for Layer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Layer")
            .field("shape", &self.shape())
            .field("ones", &self.ones())
            .finish_non_exhaustive()
    }
}
