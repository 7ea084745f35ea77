//! FINGERPRINT: an item has a fingerprint in one cell, which is in one of two pairs of neighbouring cells. A cell can
//! also contain a count, or the number of a generation of a window.

mod geometry;
#[cfg(all(loom, test))]
mod model;
mod room;
mod sizes;
mod table;
mod tags;
mod union;

pub(crate) use sizes::Sizes;
pub(crate) use table::{State, Step, Table, census};
pub(crate) use tags::Tags;

use super::algorithm::Algorithm;
use super::layer::{Census, Change, Layer, TallyWriter};
use super::shape::{LayerSpec, Shape};
use crate::bits::{Hits, Single, counter};
use crate::error::Error;
use crate::filter::change::{Added, Removed};
use crate::hash::ItemHash;
use crate::params::{Layout, limits};
use std::ops::RangeInclusive;

/// The layout FINGERPRINT. The number of probes is the number of bits per fingerprint.
pub(super) struct Fingerprint;

fn sizes(shape: &Shape) -> Sizes {
    let like = Sizes::of(shape.cell.payload(), shape.generations);
    Sizes { cells: shape.cells, fingerprint: shape.probes, ..like }
}

#[inline(always)]
fn table(layer: &Layer) -> Table<'_> {
    let Some(table) = layer.table() else { unreachable!("this layout has a table") };
    table
}

impl Algorithm for Fingerprint {
    const PLACE: &'static str = "in one of two pairs of cells";

    fn smallest(spec: &LayerSpec) -> Result<Shape, Error> {
        let sizes = Sizes::of(spec.cell.payload(), spec.generations)
            .smallest(spec.capacity, spec.error_rate)
            .ok_or(Error::Unreachable { error_rate: spec.error_rate })?;
        if sizes.words() > limits::MAX_BYTES / 8 {
            return Err(Error::OutOfMemory { bytes: sizes.words().saturating_mul(8) });
        }
        Ok(spec.shaped(Layout::Fingerprint, sizes.cells, sizes.fingerprint))
    }

    fn check(shape: &Shape) -> Result<(), &'static str> {
        if shape.shards == 1 && sizes(shape).is_valid() { Ok(()) } else { Err("cells") }
    }

    fn words(shape: &Shape) -> u64 {
        sizes(shape).words()
    }

    fn cell_bits(shape: &Shape) -> u32 {
        sizes(shape).width()
    }

    fn rate_at(shape: &Shape, items: f64) -> f64 {
        sizes(shape).rate_at(items)
    }

    fn items_at(shape: &Shape, fill: f64) -> f64 {
        sizes(shape).items_at(fill * shape.cells as f64)
    }

    fn lines(_: &Shape) -> u64 {
        2
    }

    fn cells(layer: &Layer) -> u64 {
        table(layer).state.geometry().cells
    }

    /// An item is a cell in use whose generation hasn't expired.
    fn admit(layer: &Layer, _: &Shape, _: u64, census: Census) -> Option<(u64, Census)> {
        if census.is_damaged || !table(layer).is_padded() {
            return None;
        }
        let set = layer.tags().map_or(census.set, |tags| tags.all_items());
        Some((set, Census { set, ..census }))
    }

    #[inline(always)]
    fn contains(layer: &Layer, item: ItemHash) -> bool {
        table(layer).contains(item)
    }

    #[inline(always)]
    fn contains_many(layer: &Layer, items: &[ItemHash], asked: Hits) -> Hits {
        table(layer).contains_many(items, asked)
    }

    #[inline(always)]
    fn prefetch(layer: &Layer, item: ItemHash) {
        table(layer).prefetch_first(item);
    }

    #[inline(always)]
    fn prefetch_all(layer: &Layer, item: ItemHash) {
        table(layer).prefetch_item(item);
    }

    #[inline(always)]
    fn insert(layer: &Layer, item: ItemHash) -> Result<Added, Error> {
        let Step { before, after } = table(layer).insert(item)?;
        layer.tally_fingerprint(item, Step { before, after });
        Ok(Added { added: before == 0, changed: before != after })
    }

    fn remove_as<W: TallyWriter>(layer: &Layer, item: ItemHash) -> Removed {
        let Step { before, after } = table(layer).remove(item);
        layer.tally_fingerprint(item, Step { before, after });
        Removed { present: before > 0, changed: before != after }
    }

    fn count(layer: &Layer, item: ItemHash) -> u64 {
        table(layer).count(item)
    }
}

impl Shape {
    /// The fingerprint table, if the cells are fingerprints.
    pub fn table(&self) -> Option<Sizes> {
        (self.layout == Layout::Fingerprint).then(|| sizes(self))
    }
}

/// What only layers of fingerprints have.
impl Layer {
    /// The layer's cells as a table, if they are fingerprints.
    #[inline(always)]
    pub(crate) fn table(&self) -> Option<Table<'_>> {
        let state = self.first_tally().filter(|_| self.layout() == Layout::Fingerprint)?;
        Some(Table::new(self.words(), &state.table))
    }

    /// The layer's cells, if generations share them.
    #[inline(always)]
    pub(crate) fn tags(&self) -> Option<Tags<'_>> {
        self.table().and_then(Tags::of)
    }

    /// Number of generations that share the layer; 0 if it isn't shared.
    pub(crate) fn generations(&self) -> u16 {
        self.table().map_or(0, |table| table.state.geometry().generations)
    }

    /// A number of words that contains only whole cells: the array can be divided after every multiple of it. It is 1
    /// except for fingerprints, which can cross word boundaries.
    pub(crate) fn words_of_whole_cells(&self) -> u64 {
        self.table().map_or(1, |table| table.state.geometry().width().into())
    }

    /// How often fingerprints were moved to make room, cells were freed, or generations were dropped early, modulo
    /// 2^32. While this number stays the same, items stay where they are.
    pub(crate) fn moves(&self) -> u32 {
        self.table().map_or(0, |table| table.state.moves())
    }

    /// Makes a layer of fingerprints continue counting its moves from this number.
    pub(crate) fn set_moves(&self, moves: u32) {
        if let Some(table) = self.table() {
            table.state.set_moves(moves);
        }
    }

    /// Updates the tally after a fingerprint's count has changed.
    #[inline(always)]
    pub(super) fn tally_fingerprint(&self, item: ItemHash, Step { before, after }: Step) {
        let items = i64::from(before == 0) - i64::from(after == 0);
        let is_saturated =
            self.cell().counts() && before < after && after == counter::maximum(self.cell().bits());
        if before != after {
            let saturated = i64::from(is_saturated);
            self.tally::<Single>(item, Change { set: items, items, saturated, ..Change::default() });
        }
    }

    /// Puts the item into the newest generation.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no room; then nothing has changed.
    #[inline]
    pub(crate) fn insert_into(&self, tags: Tags<'_>, item: ItemHash, newest: u64) -> Result<Added, Error> {
        let before = tags.insert(item, newest)?;
        if before.is_none() {
            self.count_items(1);
        }
        Ok(Added { added: before.is_none(), changed: before != Some(0) })
    }

    /// Deletes the item from all generations.
    pub(crate) fn remove_from(&self, tags: Tags<'_>, item: ItemHash, newest: u64) -> Removed {
        let present = tags.remove(item, newest);
        if present {
            self.count_items(-1);
        }
        Removed { present, changed: present }
    }

    /// Begins these generations. The last one becomes the newest. Items of expired generations are then gone.
    pub(crate) fn open(&self, tags: Tags<'_>, opened: RangeInclusive<u64>) {
        tags.open(opened);
        self.recount_generations(tags);
    }

    /// Drops all generations before `floor`, which must not be after `newest`.
    pub(crate) fn drop_before(&self, tags: Tags<'_>, floor: u64, newest: u64) {
        tags.drop_before(floor, newest);
        self.recount_generations(tags);
    }

    fn recount_generations(&self, tags: Tags<'_>) {
        self.count_items(tags.all_items().wrapping_sub(self.items()) as i64);
    }

    /// Adds `items` to the number of items and to the number of cells in use, which are the same.
    fn count_items(&self, items: i64) {
        self.tally::<Single>(ItemHash::default(), Change { set: items, items, ..Change::default() });
    }
}
