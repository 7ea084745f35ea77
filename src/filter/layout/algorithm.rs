//! The interface of a layout.

use super::layer::{Census, Layer, TallyWriter};
use super::shape::{LayerSpec, Shape};
use crate::bits::Hits;
use crate::error::Error;
use crate::filter::change::{Added, Removed};
use crate::hash::ItemHash;
use crate::mem::{Source, Words};
use crate::parallel::ParallelFor;
use alloc::vec::Vec;

/// What a layout does. The dispatch over the layouts is once per operation or per group of items, and everything behind
/// it is compiled for each layout by itself.
pub(super) trait Algorithm {
    /// Where the cells of an item are, as the calculator says it.
    const PLACE: &'static str;

    /// Bytes per item that building a static filter needs in addition to the list and the filter.
    const BUILD_BYTES: u64 = 0;

    // ---- geometry -------------------------------------------------------------------------------------------------

    /// The smallest shape that keeps the promise.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::OutOfMemory`].
    fn smallest(spec: &LayerSpec) -> Result<Shape, Error>;

    /// Checks the number of cells, and what must fit it. The other fields have been checked.
    ///
    /// # Errors
    /// The name of the first field that doesn't fit.
    fn check(shape: &Shape) -> Result<(), &'static str>;

    /// Number of words in all shards.
    fn words(shape: &Shape) -> u64;

    /// Bits per cell.
    fn cell_bits(shape: &Shape) -> u32;

    /// Error rate when the layer contains `items` distinct items.
    fn rate_at(shape: &Shape, items: f64) -> f64;

    /// Number of distinct items that would make a fraction `fill` of the cells not 0.
    fn items_at(shape: &Shape, fill: f64) -> f64;

    /// Bounds for the number of distinct items that make a fraction `fill` of the cells not 0.
    fn items_between(shape: &Shape, fill: f64) -> (u64, u64) {
        let items = Self::items_at(shape, fill);
        (items as u64, libm::ceil(items) as u64)
    }

    /// Number of cache lines that a test of a present item reads.
    fn lines(shape: &Shape) -> u64;

    // ---- a layer --------------------------------------------------------------------------------------------------

    /// Number of cells.
    fn cells(layer: &Layer) -> u64;

    /// The last word of an empty static filter, which describes its cells. `None` in other layouts.
    fn description(_shape: &Shape) -> Option<u64> {
        None
    }

    /// Whether the last word of a static filter describes the cells of such a filter. True in other layouts.
    fn is_described_by(_shape: &Shape, _items: u64, _word: u64) -> bool {
        true
    }

    /// The number of items, and the census, of a layer whose cells came from elsewhere. `None` if the cells aren't
    /// valid for the shape.
    fn admit(_layer: &Layer, _shape: &Shape, items: u64, census: Census) -> Option<(u64, Census)> {
        (!census.is_damaged).then_some((items, census))
    }

    /// Builds a static filter for the items with these hashes: its number of cells, its words, and the number of
    /// distinct items.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Exclusive`], [`Error::Unreachable`]; [`Error::Unbuilt`] if `parallel` no longer
    /// runs tasks, or if no round succeeds.
    fn build(
        _hashes: Vec<u64>,
        _error_rate: f64,
        _parallel: &ParallelFor<'_>,
    ) -> Result<((u64, Words), u64), Error> {
        unreachable!("this layout accepts adds")
    }

    // ---- items ----------------------------------------------------------------------------------------------------

    /// See [`Layer::contains`].
    fn contains(layer: &Layer, item: ItemHash) -> bool;

    /// See [`Shape::contains_in`].
    fn contains_in(_shape: &Shape, _words: impl Source, _item: ItemHash) -> bool {
        unreachable!("this layout has no cells that can be tested where they are")
    }

    /// See [`Layer::contains_many`].
    fn contains_many(layer: &Layer, items: &[ItemHash], asked: Hits) -> Hits;

    /// See [`Layer::prefetch`].
    fn prefetch(layer: &Layer, item: ItemHash);

    /// See [`Layer::prefetch_all`].
    #[inline(always)]
    fn prefetch_all(layer: &Layer, item: ItemHash) {
        Self::prefetch(layer, item);
    }

    /// See [`Layer::is_near`].
    #[inline(always)]
    fn is_near(_layer: &Layer) -> bool {
        false
    }

    /// Maximum number of cache lines that adding or deleting an item touches.
    #[inline(always)]
    fn lines_written(_layer: &Layer) -> usize {
        3
    }

    /// See [`Layer::insert`]. Only in layouts that can have several writers.
    #[inline(always)]
    fn insert_as<W: TallyWriter>(_layer: &Layer, _item: ItemHash) -> Added {
        unreachable!("this layout has a single writer, and no shards")
    }

    /// See [`Layer::insert_single_writer`].
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Static`].
    fn insert(layer: &Layer, item: ItemHash) -> Result<Added, Error>;

    /// See [`Layer::insert_absent_single_writer`].
    #[inline(always)]
    fn insert_absent(layer: &Layer, item: ItemHash) -> Result<Added, Error> {
        Self::insert(layer, item)
    }

    /// Deletes one occurrence of the item from a layer that counts.
    fn remove_as<W: TallyWriter>(_layer: &Layer, _item: ItemHash) -> Removed {
        unreachable!("this layout doesn't count")
    }

    /// See [`Layer::count`].
    fn count(layer: &Layer, item: ItemHash) -> u64 {
        u64::from(Self::contains(layer, item))
    }
}
