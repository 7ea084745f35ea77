//! RIBBON: a ribbon filter (Dillinger, Walzer, "Ribbon filter: practically smaller than Bloom and Xor", 2021), which is
//! a table of bits for a set of items that is known in advance. An item has some of 128 neighbouring rows and a
//! fingerprint, which is the XOR of these rows. The filter needs 5 to 7% more bits than the theoretical minimum for its
//! error rate. A binary fuse filter rounds the minimum up to a whole number of bits per item, and needs 12.5% more than
//! that. At an error rate of 1%, a test of a ribbon filter reads up to 168 neighbouring bytes, and needs more
//! instructions than a test of a fuse filter.
//!
//! The table is stored in blocks of 64 rows, and each block is stored by column. So a test handles 64 rows at a time
//! and can stop after a few columns.

mod build;
mod equation;
mod reader;
mod sizes;

use super::algorithm::Algorithm;
use super::built;
use super::layer::{Census, Layer, each};
use super::shape::{LayerSpec, Shape};
use crate::bits::Hits;
use crate::error::Error;
use crate::filter::change::Added;
use crate::hash::ItemHash;
use crate::mem::{Cells, Source, Words};
use crate::parallel::ParallelFor;
use crate::params::Layout;
use alloc::vec::Vec;
use reader::Reader;
use sizes::Sizes;

/// The layout RIBBON. The number of probes is the number of columns.
pub(super) struct Ribbon;

#[inline(always)]
fn reader(layer: &Layer) -> Reader<&Cells> {
    Reader::new(layer.words(), layer.probes())
}

fn sizes(shape: &Shape) -> Option<Sizes> {
    Sizes::of_cells(shape.cells, shape.error_rate)
}

impl Algorithm for Ribbon {
    const PLACE: &'static str = "across neighbouring rows";
    const BUILD_BYTES: u64 = build::BYTES;

    fn smallest(spec: &LayerSpec) -> Result<Shape, Error> {
        let sizes = Sizes::for_items(spec.capacity, spec.error_rate);
        let sizes = sizes.ok_or(Error::Unreachable { error_rate: spec.error_rate })?;
        built::shape(spec, Layout::Ribbon, (sizes.cells(), sizes.columns), |_| sizes.words())
    }

    fn check(shape: &Shape) -> Result<(), &'static str> {
        built::check(shape, sizes(shape).is_some_and(|sizes| sizes.columns == shape.probes))
    }

    fn words(shape: &Shape) -> u64 {
        sizes(shape).map_or(0, Sizes::words)
    }

    fn cell_bits(shape: &Shape) -> u32 {
        shape.probes
    }

    fn rate_at(shape: &Shape, items: f64) -> f64 {
        if items > 0.0 { sizes(shape).map_or(1.0, Sizes::rate) } else { 0.0 }
    }

    fn items_at(shape: &Shape, fill: f64) -> f64 {
        built::items_at(shape, fill)
    }

    /// The words that a test reads are contiguous, and may begin anywhere in a cache line.
    fn lines(shape: &Shape) -> u64 {
        (3 * u64::from(shape.probes) + 6) / 8 + 1
    }

    fn cells(layer: &Layer) -> u64 {
        Sizes::described(built::description(layer), layer.probes(), layer.words().len() as u64).0.cells()
    }

    fn description(shape: &Shape) -> Option<u64> {
        Some(sizes(shape).map_or(0, |sizes| sizes.describe(0)))
    }

    fn is_described_by(shape: &Shape, items: u64, word: u64) -> bool {
        Sizes::is_described_by(shape.cells, items, word)
    }

    fn admit(layer: &Layer, shape: &Shape, items: u64, _: Census) -> Option<(u64, Census)> {
        built::admitted(items, Ribbon::is_described_by(shape, items, built::description(layer)))
    }

    fn build(
        hashes: Vec<u64>,
        error_rate: f64,
        parallel: &ParallelFor<'_>,
    ) -> Result<((u64, Words), u64), Error> {
        build::build(hashes, error_rate, parallel)
    }

    #[inline(always)]
    fn contains(layer: &Layer, item: ItemHash) -> bool {
        reader(layer).contains(item.high)
    }

    fn contains_in(shape: &Shape, words: impl Source, item: ItemHash) -> bool {
        Reader::new(words, shape.probes).contains(item.high)
    }

    #[inline(always)]
    fn contains_many(layer: &Layer, items: &[ItemHash], asked: Hits) -> Hits {
        let reader = reader(layer);
        each(items, asked, |item| reader.contains(item.high))
    }

    #[inline(always)]
    fn prefetch(layer: &Layer, item: ItemHash) {
        reader(layer).prefetch(item.high);
    }

    #[inline(always)]
    fn insert(layer: &Layer, item: ItemHash) -> Result<Added, Error> {
        built::insert(Ribbon::contains(layer, item))
    }
}
