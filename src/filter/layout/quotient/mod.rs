//! QUOTIENT: a set of hash prefixes that grows and shrinks with its items. A cell can also contain a count, or the
//! number of a generation of a window.

mod algebra;
mod bits;
mod estimate;
mod generations;
#[cfg(test)]
mod laws;
mod leaf;
#[cfg(test)]
mod oracle;
mod pieces;
mod resize;
mod table;

pub(crate) use estimate::Estimate;
pub(crate) use generations::Generations;
pub(crate) use pieces::{END, Loading};
pub(crate) use table::Quotient;

use super::algorithm::Algorithm;
use super::layer::{Layer, TallyWriter};
use super::shape::{LayerSpec, Shape};
use crate::bits::{Hits, counter};
use crate::error::Error;
use crate::filter::change::{Added, Removed};
use crate::hash::ItemHash;
use crate::params::{Layout, limits};
use crate::sync::PoisonError;
use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use alloc::vec::Vec;
use table::Hash;

/// The layout QUOTIENT.
pub(super) struct Quotients;

/// A table that one thread may change while others read it.
pub(super) type Locked = RwLock<Quotient>;

fn hash(item: ItemHash) -> Hash {
    Hash::from(item.high) << 64 | Hash::from(item.low)
}

/// An empty table for a layer of this shape. It refuses more items than the capacity.
pub(super) fn empty(shape: &Shape) -> Result<Quotient, Error> {
    let mut table = Quotient::new(shape.error_rate, payload(shape), cells(shape), new_generations(shape)?)?;
    table.set_room(shape.capacity);
    Ok(table)
}

/// The generations of a new table of this shape.
fn new_generations(shape: &Shape) -> Result<Option<Generations>, Error> {
    (shape.generations > 0).then(|| Generations::new(shape.generations)).transpose()
}

/// Number of cells that a full table needs: those of its items, and in a window those of expired items.
fn cells(shape: &Shape) -> u64 {
    let span = u64::from(shape.generations);
    shape.capacity + shape.capacity.checked_div(span).map_or(0, |each| each * generations::slack(span))
}

/// Bits of a count or of a generation's number.
fn payload(shape: &Shape) -> u32 {
    if shape.generations > 0 { generations::payload(shape.generations) } else { shape.cell.payload() }
}

fn read(layer: &Layer) -> RwLockReadGuard<'_, Quotient> {
    let Some(table) = layer.table() else { unreachable!("this layout has a table") };
    table.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(layer: &Layer) -> RwLockWriteGuard<'_, Quotient> {
    let Some(table) = layer.table() else { unreachable!("this layout has a table") };
    table.write().unwrap_or_else(PoisonError::into_inner)
}

impl Algorithm for Quotients {
    const PLACE: &'static str = "in the cells of one quotient";

    fn smallest(spec: &LayerSpec) -> Result<Shape, Error> {
        let shape = spec.shaped(Layout::Quotient, spec.capacity, 1);
        if Self::words(&shape) > limits::MAX_BYTES / 8 {
            return Err(Error::OutOfMemory { bytes: Self::words(&shape).saturating_mul(8) });
        }
        Ok(shape)
    }

    fn check(shape: &Shape) -> Result<(), &'static str> {
        if shape.shards == 1 { Ok(()) } else { Err("shards") }
    }

    /// An estimate: what the items need if all of them came at once.
    fn words(shape: &Shape) -> u64 {
        // A remainder of log2(1/p) + log2(820/1024) bits, rounded up; a 1 for each cell and 1024 zeros for 820 cells;
        // and a tenth of a block is free on average.
        let bits = (-libm::log2(shape.error_rate) + f64::from(payload(shape)) + 2.6) * 1.1;
        1 + (cells(shape) as f64 * bits / 64.0) as u64
    }

    fn cell_bits(shape: &Shape) -> u32 {
        libm::ceil(-libm::log2(shape.error_rate)) as u32 + payload(shape)
    }

    fn rate_at(shape: &Shape, items: f64) -> f64 {
        shape.error_rate * (items / shape.capacity as f64).min(1.0)
    }

    fn items_at(shape: &Shape, fill: f64) -> f64 {
        fill * shape.cells as f64
    }

    fn lines(_: &Shape) -> u64 {
        3
    }

    fn cells(layer: &Layer) -> u64 {
        layer.room(true)
    }

    #[inline(always)]
    fn contains(layer: &Layer, item: ItemHash) -> bool {
        read(layer).find(hash(item)).is_some()
    }

    fn contains_many(layer: &Layer, items: &[ItemHash], asked: Hits) -> Hits {
        let mut found = Hits::default();
        read(layer).find_many(
            asked,
            |index| hash(items[index]),
            |index, _, _| found = found.with(index, true),
        );
        found
    }

    /// [`contains_many`](Algorithm::contains_many) fetches the cache lines itself, because all of them depend on each
    /// other.
    #[inline(always)]
    fn prefetch(_: &Layer, _: ItemHash) {}

    #[inline(always)]
    fn prefetch_all(layer: &Layer, item: ItemHash) {
        read(layer).prefetch(hash(item));
    }

    #[inline(always)]
    fn lines_written(_: &Layer) -> usize {
        8
    }

    fn insert(layer: &Layer, item: ItemHash) -> Result<Added, Error> {
        let most = if layer.cell().counts() { counter::maximum(layer.cell().bits()) } else { 0 };
        let mut table = write(layer);
        let changed = table.change(hash(item), |_, before| {
            Some(most.min(before.map_or(1, |count| count.saturating_add(1))))
        })?;
        layer.set_items(table.items);
        let (Some(before), after) = (changed.0.or(Some(0)), changed.1.unwrap_or(0)) else {
            return Ok(Added::default());
        };
        let added = changed.0.is_none();
        if most > 0 && before < after && after == most {
            table.saturated += 1;
        }
        Ok(Added { added, changed: added || before != after })
    }

    fn remove_as<W: TallyWriter>(layer: &Layer, item: ItemHash) -> Removed {
        let most = counter::maximum(layer.cell().bits());
        let mut table = write(layer);
        let removed = table.change(hash(item), |_, before| match before {
            Some(count) if count == most => Some(count),
            count => count.map(|count| count.saturating_sub(1)).filter(|count| *count > 0),
        });
        let (before, after) = removed.unwrap_or_default();
        layer.set_items(table.items);
        layer.lower_room(&mut table);
        Removed { present: before.is_some(), changed: before != after }
    }

    fn count(layer: &Layer, item: ItemHash) -> u64 {
        let most = if layer.cell().counts() { u64::MAX } else { 1 };
        read(layer).find(hash(item)).map_or(0, |(_, count)| count.clamp(1, most))
    }
}

/// What only layers with a table have.
impl Layer {
    /// Whether the layer has a table, which refuses items by itself.
    #[inline(always)]
    pub(crate) fn has_table(&self) -> bool {
        self.layout() == Layout::Quotient
    }

    /// A layer with a table that came from elsewhere, and which may grow if it `grows`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn from_table(shape: &Shape, table: Quotient, grows: bool) -> Result<Layer, Error> {
        let layer = Layer::with_table(shape, table)?;
        if grows {
            layer.grow_table();
        }
        Ok(layer)
    }

    /// Whether this is a table with a single leaf, which is written as one piece.
    pub(crate) fn has_one_leaf(&self) -> bool {
        self.leaves_and_quotients().is_some_and(|(leaves, _)| leaves == 1)
    }

    /// For a table, the number of its leaves, and log2 of the number of quotients in each.
    pub(crate) fn leaves_and_quotients(&self) -> Option<(u64, u32)> {
        self.reading().map(|table| (table.leaves(), table.form.log2_quotients))
    }

    /// Number of items that a table with this many may have before the server must ask whether it may grow: an eighth
    /// more.
    fn room_for(&self, items: u64) -> u64 {
        (items + (items / 8).max(64)).max(self.capacity())
    }

    /// Takes back room for items that a table of this layer no longer has. The server may have given it to others.
    fn lower_room(&self, table: &mut Quotient) {
        table.set_room(self.room_for(table.items).min(table.room()));
    }

    /// Bytes that the table needs for the items that [`grow_table`](Layer::grow_table) lets in, at most.
    pub(crate) fn next_table_bytes(&self) -> u64 {
        let (items, bytes) = (self.items().max(1), self.bytes());
        let more = self.room_for(self.items()).saturating_sub(self.items());
        // A cell of a growing table needs at most 27 bits at 1%, and more at lower rates.
        let fresh = more.saturating_mul(u64::from(self.shape().cell_bits()) + 20) / 8;
        (u128::from(bytes) * u128::from(more) / u128::from(items)).min(fresh.into()).max(8) as u64
    }

    /// Lets the table grow by an eighth.
    pub(crate) fn grow_table(&self) {
        write(self).set_room(self.room_for(self.items()));
    }

    /// Lets the table grow if it is full. If it refuses an item for another reason, returns false.
    pub(crate) fn grow_full_table(&self) -> bool {
        let is_full = self.reading().is_some_and(|table| table.items >= table.room);
        if is_full {
            self.grow_table();
        }
        is_full
    }

    /// Number of items that the layer is sized for: the capacity, or more if it is a table that `grows` and has grown.
    pub(crate) fn room(&self, grows: bool) -> u64 {
        let has_grown = grows && self.items() > self.capacity();
        self.reading()
            .filter(|_| has_grown)
            .map_or(self.capacity(), |table| table.sized_for().max(table.items()))
    }

    /// An empty layer like this one. A table keeps its newest generation.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn emptied(&self) -> Result<Layer, Error> {
        match self.empty_table() {
            Some(table) => Layer::with_table(&self.shape(), table?),
            None => Layer::new(self.shape()),
        }
    }

    /// An empty table like this layer's, if it has one.
    fn empty_table(&self) -> Option<Result<Quotient, Error>> {
        let mut empty = self.reading()?.emptied();
        empty.iter_mut().for_each(|table| self.lower_room(table));
        Some(empty)
    }

    /// Empties the table, if there is one.
    pub(super) fn clear_table(&self) {
        if let Some(Ok(empty)) = self.empty_table() {
            *write(self) = empty;
        }
    }

    /// The table, for reading.
    pub(crate) fn reading(&self) -> Option<RwLockReadGuard<'_, Quotient>> {
        self.table().map(|_| read(self))
    }

    /// The layer's cells, if generations share them.
    #[inline(always)]
    pub(crate) fn tags(&self) -> Option<Tags<'_>> {
        (self.generations() > 0).then_some(Tags(self))
    }

    /// Number of generations that share the layer; 0 if it isn't shared.
    pub(crate) fn generations(&self) -> u16 {
        let table = self.reading();
        let span = table.and_then(|table| table.generations.as_ref().map(|generations| generations.span()));
        span.unwrap_or(0) as u16
    }

    /// Sets the layer's number of items to the table's.
    fn count_table(&self) {
        self.set_items(read(self).items);
    }
}

/// A table whose cells belong to generations.
#[derive(Clone, Copy)]
pub(crate) struct Tags<'l>(&'l Layer);

impl Tags<'_> {
    /// What `get` returns for the generations.
    fn of<T: Default>(&self, get: impl FnOnce(&Generations) -> T) -> T {
        read(self.0).generations.as_ref().map(|generations| get(generations)).unwrap_or_default()
    }

    /// Number of generations that are alive at once.
    pub(crate) fn span(&self) -> u64 {
        self.of(Generations::span)
    }

    /// Number of items in a generation that is alive.
    pub(crate) fn items(&self, generation: u64) -> u64 {
        self.of(|generations| generations.items(generation))
    }

    /// The number of items in each generation as it is saved: not more than cells, which can only be if they came from
    /// elsewhere. Generation n is at n mod their number.
    pub(crate) fn saved_items(&self) -> Vec<u64> {
        let table = read(self.0);
        table.generations.as_ref().map_or_else(Vec::new, |generations| generations.within(table.cells))
    }

    /// Whether the item may be in the table when `current` is the newest generation.
    #[inline(always)]
    pub(crate) fn contains(&self, item: ItemHash, current: u64) -> bool {
        self.age(item, current).is_some()
    }

    /// Number of generations since the item was last added; `None` if it is absent.
    #[inline(always)]
    pub(crate) fn age(&self, item: ItemHash, current: u64) -> Option<u64> {
        read(self.0).age(hash(item), current)
    }

    /// Which of up to 64 items may be in the table.
    pub(crate) fn contains_many(&self, items: &[ItemHash], current: u64) -> Hits {
        let (table, mut found) = (read(self.0), Hits::default());
        table.find_many(
            Hits::first(items.len()),
            |index| hash(items[index]),
            |index, leaf, payload| {
                found = found.with(index, table.age_of(leaf, payload, current).is_some());
            },
        );
        found
    }

    /// Puts the item into the newest generation. If a full table `forgets`, a new item takes the place of an old one.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no room; then nothing has changed.
    pub(crate) fn insert(&self, item: ItemHash, forgets: bool) -> Result<Added, Error> {
        let mut table = write(self.0);
        let before = table.refresh(hash(item), forgets)?;
        self.0.set_items(table.items);
        Ok(Added { added: before.is_none(), changed: before != Some(0) })
    }

    /// Deletes the item from all generations.
    pub(crate) fn remove(&self, item: ItemHash) -> Removed {
        let mut table = write(self.0);
        let present = table.expire(hash(item));
        self.0.set_items(table.items);
        self.0.lower_room(&mut table);
        Removed { present, changed: present }
    }

    /// Makes `newest` the newest generation. Items of expired generations are then gone.
    pub(crate) fn open(&self, newest: u64) {
        // The table keeps its room, because it keeps the cells of expired items for others.
        write(self.0).open(newest);
        self.0.count_table();
    }

    /// Renumbers all generations, so that each one that can be alive has a number. Returns how much larger the numbers
    /// are.
    pub(crate) fn renumber(&self) -> u64 {
        write(self.0).renumber()
    }

    /// Makes an empty table continue with this generation.
    pub(crate) fn set_newest(&self, newest: u64) {
        write(self.0).set_newest(newest);
    }
}
