//! FUSE: a binary fuse filter (Graf, Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters", 2022), which is
//! a small filter for a set of items that is known in advance. An item has three cells, in three consecutive segments,
//! and a fingerprint, which is the XOR of the cells. A test reads three cache lines. Items can't be added later,
//! because each cell belongs to several items.

mod build;
mod places;
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

/// The layout FUSE. The number of probes is the number of bits per cell.
pub(super) struct Fuse;

#[inline(always)]
fn reader(layer: &Layer) -> Reader<&Cells> {
    Reader::new(layer.words(), layer.probes())
}

impl Algorithm for Fuse {
    const PLACE: &'static str = "across three cells";
    const BUILD_BYTES: u64 = build::BYTES;

    fn smallest(spec: &LayerSpec) -> Result<Shape, Error> {
        let width =
            Sizes::width_for(spec.error_rate).ok_or(Error::Unreachable { error_rate: spec.error_rate })?;
        built::shape(spec, Layout::Fuse, (Sizes::for_items(spec.capacity, width).cells(), width), Fuse::words)
    }

    fn check(shape: &Shape) -> Result<(), &'static str> {
        built::check(shape, Sizes::is_valid(shape.cells, shape.probes))
    }

    fn words(shape: &Shape) -> u64 {
        Sizes::words(shape.cells, shape.probes)
    }

    fn cell_bits(shape: &Shape) -> u32 {
        shape.probes
    }

    fn rate_at(shape: &Shape, items: f64) -> f64 {
        if items > 0.0 { libm::exp2(-f64::from(shape.probes)) } else { 0.0 }
    }

    fn items_at(shape: &Shape, fill: f64) -> f64 {
        built::items_at(shape, fill)
    }

    fn lines(_: &Shape) -> u64 {
        sizes::ARITY
    }

    fn cells(layer: &Layer) -> u64 {
        Sizes::described(built::description(layer), layer.probes()).0.cells()
    }

    fn description(shape: &Shape) -> Option<u64> {
        Some(Sizes::empty(shape.cells, shape.probes).describe(0))
    }

    fn is_described_by(shape: &Shape, items: u64, word: u64) -> bool {
        Sizes::is_described_by(shape.cells, shape.probes, items, word)
    }

    fn admit(layer: &Layer, shape: &Shape, items: u64, _: Census) -> Option<(u64, Census)> {
        built::admitted(items, Fuse::is_described_by(shape, items, built::description(layer)))
    }

    fn build(
        hashes: Vec<u64>,
        error_rate: f64,
        parallel: &ParallelFor<'_>,
    ) -> Result<((u64, Words), u64), Error> {
        let width = Sizes::width_for(error_rate).ok_or(Error::Unreachable { error_rate })?;
        build::build(hashes, width, parallel)
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
        built::insert(Fuse::contains(layer, item))
    }
}
