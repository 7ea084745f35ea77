//! LIST: the hashes of the items from which a static filter is built, one per word. Users can't request it.

use super::algorithm::Algorithm;
use super::built;
use super::layer::{Census, Layer};
use super::shape::{LayerSpec, Shape};
use crate::bits::{Hits, Single};
use crate::error::Error;
use crate::filter::change::Added;
use crate::hash::ItemHash;
use crate::params::{Layout, limits};
use crate::sync::Ordering::Relaxed;

/// The layout LIST.
pub(super) struct List;

impl Algorithm for List {
    const PLACE: &'static str = "in no cells";

    fn smallest(spec: &LayerSpec) -> Result<Shape, Error> {
        built::shape(spec, Layout::List, (spec.capacity, 1), List::words)
    }

    fn check(shape: &Shape) -> Result<(), &'static str> {
        let fits = shape.cells == shape.capacity && shape.cells <= limits::MAX_BYTES / 8;
        built::check(shape, fits && shape.probes == 1)
    }

    fn words(shape: &Shape) -> u64 {
        shape.cells
    }

    fn cell_bits(_: &Shape) -> u32 {
        u64::BITS
    }

    fn rate_at(_: &Shape, _: f64) -> f64 {
        0.0
    }

    fn items_at(shape: &Shape, fill: f64) -> f64 {
        built::items_at(shape, fill)
    }

    fn lines(_: &Shape) -> u64 {
        0
    }

    fn cells(layer: &Layer) -> u64 {
        layer.words().len() as u64
    }

    fn admit(_: &Layer, _: &Shape, items: u64, census: Census) -> Option<(u64, Census)> {
        built::admitted(items, !census.is_damaged)
    }

    /// A list isn't tested: it is only for building a filter. A test would have to compare all hashes.
    fn contains(_: &Layer, _: ItemHash) -> bool {
        false
    }

    fn contains_many(_: &Layer, _: &[ItemHash], _: Hits) -> Hits {
        Hits::default()
    }

    #[inline(always)]
    fn prefetch(_: &Layer, _: ItemHash) {}

    #[inline(always)]
    fn insert(layer: &Layer, item: ItemHash) -> Result<Added, Error> {
        let next = layer.words().get(layer.items() as usize).ok_or(Error::Full)?;
        next.store(item.high, Relaxed);
        Ok(layer.tally_set::<Single>(item, 1))
    }
}

impl Layer {
    /// The hashes of a LIST layer; none for other layouts.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = u64> {
        let items = if self.layout() == Layout::List { self.items() as usize } else { 0 };
        self.words().iter().take(items).map(|word| word.load(Relaxed))
    }
}
