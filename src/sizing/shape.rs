//! The geometry of a layer, and what follows from it: its error rates, and the number of items estimated from its fill.

use super::fingerprint::Table;
use super::fuse::Fuse;
use super::ribbon::Ribbon;
use crate::math::{self, Spread, mixture_rate};
use crate::params::{Cell, Layout, limits};

/// Bits per block: one cache line.
pub const BLOCK_BITS: u32 = 512;

/// Minimum number of bits per shard if there are several shards, even if the items would need fewer. A shard's tally
/// needs 128 bytes, half of this minimum. With shards of one word, the tallies would need 16 times the memory of the
/// cells. In the loom models a shard can be one word, so that loom can try all its values.
pub(super) const LEAST_SHARD_BITS: u64 = if cfg!(all(loom, test)) { 64 } else { 2048 };

/// The geometry of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Number of items that the layer is sized for.
    pub capacity: u64,
    /// Error rate that the layer is sized for.
    pub error_rate: f64,
    /// Number of cells in all shards: m.
    pub cells: u64,
    /// Probes per item: k. For FINGERPRINT, FUSE and RIBBON, the number of bits per fingerprint; each bit halves the
    /// error rate, as a probe does. For a list, 1.
    pub probes: u32,
    /// Number of independent arrays.
    pub shards: u32,
    /// Where the probes fall.
    pub layout: Layout,
    /// Bits or counters.
    pub cell: Cell,
    /// Number of generations that share the cells, if these are fingerprints; 0 if they aren't shared.
    pub generations: u16,
}

impl Shape {
    /// Number of cells per shard.
    pub fn cells_per_shard(&self) -> u64 {
        self.cells / u64::from(self.shards)
    }

    /// Number of words in all shards.
    #[inline]
    pub fn words(&self) -> u64 {
        // These layouts are by far the most common, and creating a filter needs the number several times.
        if self.layout.has_probes() {
            return self.cells >> self.cell.log2_per_word();
        }
        match (self.layout, self.table()) {
            (Layout::Fuse, _) => Fuse::words(self.cells, self.probes),
            (Layout::Ribbon, _) => self.ribbon().map_or(0, Ribbon::words),
            (Layout::List, _) => self.cells,
            (_, Some(table)) => table.words(),
            (_, None) => self.cells >> self.cell.log2_per_word(),
        }
    }

    /// Bits per cell.
    pub fn cell_bits(&self) -> u32 {
        match self.layout {
            Layout::Fuse | Layout::Ribbon => self.probes,
            Layout::List => u64::BITS,
            _ => self.table().map_or(self.cell.bits(), Table::width),
        }
    }

    /// Whether this is the shape of a static filter, or of the list from which one is built.
    pub fn is_static(&self) -> bool {
        self.layout.is_static()
    }

    /// The table of a ribbon filter. `None` if no ribbon filter can have this number of cells.
    pub(super) fn ribbon(&self) -> Option<Ribbon> {
        Ribbon::of_cells(self.cells, self.error_rate)
    }

    /// The last word of an empty static filter, which describes its cells. 0 in other layouts.
    pub(crate) fn description(&self) -> u64 {
        match self.layout {
            Layout::Fuse => Fuse::empty(self.cells, self.probes).describe(0),
            Layout::Ribbon => self.ribbon().map_or(0, |ribbon| ribbon.describe(0)),
            _ => 0,
        }
    }

    /// Whether `word`, the last word of a static filter, describes these cells with `items` items.
    pub(crate) fn is_described_by(&self, items: u64, word: u64) -> bool {
        match self.layout {
            Layout::Ribbon => Ribbon::is_described_by(self.cells, items, word),
            _ => Fuse::is_described_by(self.cells, self.probes, items, word),
        }
    }

    /// The fingerprint table, if the cells are fingerprints.
    pub fn table(&self) -> Option<Table> {
        let like = || Table::of(self.cell.payload(), self.generations);
        (self.layout == Layout::Fingerprint).then(|| Table {
            cells: self.cells,
            fingerprint: self.probes,
            ..like()
        })
    }

    /// Size of the cells in bytes.
    pub fn bytes(&self) -> u64 {
        self.words() * 8
    }

    /// The cells that the probes of an item are spread over.
    pub(super) fn spread(&self) -> Spread {
        let (ranges, slices) = match self.layout {
            Layout::Classic | Layout::Fingerprint | Layout::Fuse | Layout::List | Layout::Ribbon => {
                (self.shards.into(), 1)
            }
            Layout::Partitioned => (self.shards.into(), self.probes),
            Layout::Blocked => (self.cells / u64::from(BLOCK_BITS / self.cell.bits()), 1),
        };
        let (cells, probes) = (self.cells / ranges / u64::from(slices), self.probes / slices);
        Spread { ranges: ranges as f64, slices, cells: cells as f64, probes }
    }

    /// The divisor that the number of cells must have: each shard consists of whole words (CLASSIC), of whole blocks
    /// (BLOCKED), or of slices of whole words (PARTITIONED).
    pub(super) fn stride(&self) -> u64 {
        let words = match self.layout {
            Layout::Blocked => u64::from(BLOCK_BITS / u64::BITS),
            Layout::Partitioned => self.probes.into(),
            _ => 1,
        };
        (words << self.cell.log2_per_word()) * u64::from(self.shards)
    }

    /// Error rate when the layer contains `items` distinct items.
    pub fn rate_at(&self, items: f64) -> f64 {
        if let Some(table) = self.table() {
            return table.rate_at(items);
        }
        match self.layout {
            Layout::Fuse if items > 0.0 => return libm::exp2(-f64::from(self.probes)),
            Layout::Ribbon if items > 0.0 => return self.ribbon().map_or(1.0, Ribbon::rate),
            Layout::Fuse | Layout::Ribbon | Layout::List => return 0.0,
            _ => {}
        }
        mixture_rate(self.spread(), items)
    }

    /// Number of distinct items that would set a fraction `fill` of the cells (Swamidass–Baldi). If all cells are set,
    /// there is no upper bound, so the result is the number of items at which one unset cell is expected.
    pub fn items_at(&self, fill: f64) -> f64 {
        if let Some(table) = self.table() {
            return table.items_at(fill * self.cells as f64);
        }
        if self.is_static() {
            return libm::round(fill * self.cells as f64);
        }
        math::estimate_items(self.spread(), fill.min(1.0 - 1.0 / self.cells as f64))
    }

    /// Bounds for the number of distinct items that set a fraction `fill` of the cells: the
    /// [estimate](Shape::items_at), plus and minus 8 standard deviations and one item.
    pub fn items_between(&self, fill: f64) -> (u64, u64) {
        let estimate = self.items_at(fill);
        let margin = 8.0 * math::estimate_deviation(self.spread(), estimate) + 1.0;
        ((estimate - margin).max(0.0) as u64, libm::ceil(estimate + margin) as u64)
    }

    /// Error rate if a fraction `fill` of the cells is set: the rate that the filter has *now*.
    pub fn rate_now(&self, fill: f64) -> f64 {
        if fill >= 1.0 && self.layout.has_probes() { 1.0 } else { self.rate_at(self.items_at(fill)) }
    }

    /// Checks that the values are consistent. Every shape that was not computed by this module must pass this check.
    ///
    /// # Errors
    /// The name of the first field that doesn't fit.
    pub fn check(&self) -> Result<(), &'static str> {
        if !self.shards.is_power_of_two() || self.shards > limits::MAX_SHARDS {
            return Err("shards");
        }
        if !(1..=limits::MAX_CAPACITY).contains(&self.capacity) {
            return Err("capacity");
        }
        if !(self.error_rate > 0.0 && self.error_rate < 1.0) {
            return Err("error rate");
        }
        if !(1..=limits::MAX_PROBES).contains(&self.probes) {
            return Err("probes");
        }
        if let Some(table) = self.table() {
            return if self.shards == 1 && table.is_valid() { Ok(()) } else { Err("cells") };
        }
        if self.is_static() {
            let is_valid = match self.layout {
                Layout::Fuse => Fuse::is_valid(self.cells, self.probes),
                Layout::Ribbon => self.ribbon().is_some_and(|ribbon| ribbon.columns == self.probes),
                _ => self.cells == self.capacity && self.probes == 1 && self.cells <= limits::MAX_BYTES / 8,
            };
            return if is_valid && self.shards == 1 && self.cell == Cell::Bit {
                Ok(())
            } else {
                Err("cells")
            };
        }
        let cells_in = |bits: u64| (bits / u64::from(u64::BITS)) << self.cell.log2_per_word();
        if self.shards > 1 && self.cells < cells_in(LEAST_SHARD_BITS) * u64::from(self.shards) {
            return Err("shards");
        }
        if self.cells == 0
            || self.cells > cells_in(limits::MAX_BYTES * 8)
            || !self.cells.is_multiple_of(self.stride())
        {
            return Err("cells");
        }
        Ok(())
    }
}
