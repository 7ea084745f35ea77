//! The simplest possible filter: a map of numbers per layer, without packing, atomics or tallies. It follows the
//! published format, uses none of the crate's code except for the hash and the shapes, and computes every answer
//! exactly. It has no tables: see src/filter/layout/quotient/oracle.rs, and [`super::wire::prefixes`].

use bloomery::{Added, Bloom, Cell, Family, ItemHash, Layout, Overflow, Shape, Spec};
use std::collections::BTreeMap;

/// One layer.
#[derive(Clone)]
pub(crate) struct NaiveLayer {
    shape: Shape,
    /// Cells that aren't 0.
    cells: BTreeMap<u64, u64>,
    items: i64,
}

/// 2^64 / golden ratio.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

pub(crate) fn mix(x: u64) -> u64 {
    (x ^ (x >> 32)).wrapping_mul(GOLDEN)
}

/// Scales 64 random bits to a number below `n`: the high half of the product of the two.
pub(crate) fn scale(random: u64, n: u64) -> u64 {
    (u128::from(random) * u128::from(n) / (1 << 64)) as u64
}

/// Indices of the item's cells in a layer with this shape, in the order of the probes.
pub(crate) fn cells_of(shape: &Shape, item: ItemHash) -> Vec<u64> {
    let per_shard = shape.cells / u64::from(shape.shards);
    let shard = item.low % u64::from(shape.shards);
    let position = item.low / 1024 * 1024;
    let width = u64::from(shape.cell.bits());
    let in_shard = |probe: u64| match shape.layout {
        Layout::Classic => {
            let point = position.wrapping_add(probe.wrapping_mul(item.high | 1));
            scale(mix(point), per_shard)
        }
        Layout::Partitioned => {
            let per_slice = per_shard / u64::from(shape.probes);
            let point = position.wrapping_add(probe.wrapping_mul(item.high | 1));
            probe * per_slice + scale(mix(point), per_slice)
        }
        Layout::Blocked => {
            let per_block = 512 / width;
            let mut source = item.high;
            for _ in 0..probe / 7 {
                source = mix(source);
            }
            let field = source / (1 << (probe % 7 * 9)) % 512;
            scale(position, per_shard / per_block) * per_block + field % per_block
        }
        _ => unreachable!("it has no probes"),
    };
    (0..shape.probes.into()).map(|probe| shard * per_shard + in_shard(probe)).collect()
}

impl NaiveLayer {
    fn new(shape: Shape) -> NaiveLayer {
        NaiveLayer { shape, cells: BTreeMap::new(), items: 0 }
    }

    fn max(&self) -> u64 {
        (1 << self.shape.cell.bits()) - 1
    }

    fn cell(&self, cell: u64) -> u64 {
        self.cells.get(&cell).copied().unwrap_or(0)
    }

    pub(crate) fn count(&self, item: ItemHash) -> u64 {
        cells_of(&self.shape, item).into_iter().map(|cell| self.cell(cell)).min().unwrap_or(0)
    }

    pub(crate) fn contains(&self, item: ItemHash) -> bool {
        self.count(item) > 0
    }

    fn insert(&mut self, item: ItemHash) -> Added {
        let (mut added, mut changed) = (false, false);
        for cell in cells_of(&self.shape, item) {
            let count = self.cell(cell);
            added |= count == 0;
            changed |= count < self.max();
            self.cells.insert(cell, (count + 1).min(self.max()));
        }
        self.items += i64::from(added);
        Added { added, changed }
    }

    /// Deletes an item. Returns whether it was present, and whether a cell has changed.
    fn remove(&mut self, item: ItemHash) -> (bool, bool) {
        if !self.contains(item) {
            return (false, false);
        }
        let (mut emptied, mut changed) = (false, false);
        for cell in cells_of(&self.shape, item) {
            match self.cell(cell) {
                count if count == 0 || count == self.max() => continue,
                1 => {
                    emptied = true;
                    self.cells.remove(&cell);
                }
                count => _ = self.cells.insert(cell, count - 1),
            }
            changed = true;
        }
        self.items = (self.items - i64::from(emptied)).max(0);
        if changed {
            self.correct_items(!emptied);
        }
        (true, changed)
    }

    /// Moves the number of items into the range that the cells allow.
    fn correct_items(&mut self, is_uncertain: bool) {
        if is_uncertain {
            let (least, most) = self.shape.items_between(self.cells.len() as f64 / self.shape.cells as f64);
            self.items = self.items.clamp(least as i64, most as i64);
        }
        if self.cells.values().all(|cell| *cell < self.max()) {
            let held = self.cells.values().sum::<u64>() / u64::from(self.shape.probes);
            self.items = self.items.min(held as i64);
        }
        self.items = self.items.max(i64::from(!self.cells.is_empty()));
    }

    fn is_full(&self) -> bool {
        self.items >= self.shape.capacity as i64
    }
}

/// A filter.
#[derive(Clone)]
pub(crate) struct Naive {
    spec: Spec,
    layers: Vec<NaiveLayer>,
    newest: u64,
}

impl Naive {
    pub(crate) fn new(spec: Spec) -> Naive {
        let first = NaiveLayer::new(spec.next_shape(&[]).expect("the filter itself could be made"));
        let layers = match spec.family {
            Family::Window { generations, .. } => vec![first; generations.into()],
            _ => vec![first],
        };
        Naive { spec, layers, newest: 0 }
    }

    fn slot(&self, number: u64) -> usize {
        (number % self.layers.len() as u64) as usize
    }

    fn is_window(&self) -> bool {
        matches!(self.spec.family, Family::Window { .. })
    }

    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// The layer that gets the adds.
    fn open(&mut self) -> &mut NaiveLayer {
        let slot = if self.is_window() { self.slot(self.newest) } else { self.layers.len() - 1 };
        &mut self.layers[slot]
    }

    pub(crate) fn contains(&self, item: ItemHash) -> bool {
        self.layers.iter().any(|layer| layer.contains(item))
    }

    /// Age of the newest generation that has the item, among those alive as of `current`.
    pub(crate) fn age(&self, item: ItemHash, current: u64) -> Option<u64> {
        let span = self.layers.len() as u64;
        let oldest = (current + 1).saturating_sub(span);
        let held =
            |number: &u64| self.newest - number < span && self.layers[self.slot(*number)].contains(item);
        (oldest..=self.newest).rev().find(held).map(|number| current - number)
    }

    /// Adds an item. Returns `None` if the filter is full.
    pub(crate) fn add(&mut self, item: ItemHash) -> Option<Added> {
        let present = self.contains(item);
        let overflow = match self.spec.family {
            Family::Scaling { .. } if present => return Some(Added::default()),
            Family::Scaling { .. } => {
                if self.open().is_full() {
                    let capacities: Vec<_> = self.layers.iter().map(|layer| layer.shape.capacity).collect();
                    let shape = self.spec.next_shape(&capacities).expect("the filter itself could grow");
                    self.layers.push(NaiveLayer::new(shape));
                }
                Overflow::Saturate
            }
            Family::Fixed(overflow) | Family::Window { overflow, .. } => overflow,
        };
        if overflow == Overflow::Error && self.open().is_full() && !self.open().contains(item) {
            return None;
        }
        let done = self.open().insert(item);
        // All bits of a present item are set already; only a counter may change.
        let changed = if self.spec.cell == Cell::Bit { done.added } else { done.changed };
        Some(Added { added: done.added && !(present && self.is_window()), changed })
    }

    pub(crate) fn count(&self, item: ItemHash) -> u64 {
        self.layers.iter().map(|layer| layer.count(item)).find(|count| *count > 0).unwrap_or(0)
    }

    /// Deletes an item. Returns whether it was present, and whether the filter has changed.
    pub(crate) fn remove(&mut self, item: ItemHash) -> (bool, bool) {
        self.layers[0].remove(item)
    }

    pub(crate) fn clear(&mut self) {
        if matches!(self.spec.family, Family::Scaling { .. }) {
            self.layers.truncate(1);
        }
        self.layers.iter_mut().for_each(|layer| *layer = NaiveLayer::new(layer.shape));
    }

    pub(crate) fn advance(&mut self, number: u64) {
        // Skip the generations that would be dropped again.
        self.newest = self.newest.max(number.saturating_sub(self.layers.len() as u64));
        while self.newest < number {
            self.newest += 1;
            let slot = self.slot(self.newest);
            self.layers[slot] = NaiveLayer::new(self.layers[slot].shape);
        }
    }

    /// Describes how the filter differs from this one, in everything that can be queried without an item.
    pub(crate) fn differs(&self, filter: &Bloom) -> Option<String> {
        let layers = filter.layers();
        if layers.len() != self.layers.len() {
            return Some(format!("{} layers, not {}", layers.len(), self.layers.len()));
        }
        let newest = filter.window().map_or(0, |window| window.newest());
        if newest != self.newest {
            return Some(format!("newest generation {newest}, not {}", self.newest));
        }
        for (i, (layer, naive)) in layers.iter().zip(&self.layers).enumerate() {
            let ones = naive.cells.len() as u64;
            let pinned = naive.cells.values().filter(|cell| **cell == naive.max()).count() as u64;
            // A bit at its maximum doesn't count as a saturated counter.
            let saturated = if naive.shape.cell == Cell::Bit { 0 } else { pinned };
            let expected = (ones, saturated, naive.items.max(0) as u64);
            let found = (layer.ones(), layer.saturated(), layer.items());
            if found != expected {
                return Some(format!("layer {i}: (ones, saturated, items) are {found:?}, not {expected:?}"));
            }
        }
        None
    }

    /// All cells that aren't 0, in the order of the format: layers, shards, cells. Each comes with its layer, its index
    /// and its value.
    pub(crate) fn cells(&self) -> Vec<(usize, u64, u64)> {
        let layers = self.layers.iter().enumerate();
        layers
            .flat_map(|(i, layer)| layer.cells.iter().map(move |(cell, count)| (i, *cell, *count)))
            .collect()
    }
}
