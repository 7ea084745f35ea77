//! The geometry of a layer, and what follows from it: its error rates, and the number of items by what is set.

use super::fingerprint::Table;
use super::fuse::Fuse;
use super::ribbon::Ribbon;
use crate::math::{self, Spread, mixture_rate};
use crate::params::{Cell, limits};
use crate::spelling::spelling;

/// Bits of a block: one cache line.
pub const BLOCK_BITS: u32 = 512;

/// Minimum bits of a shard if there are several, even if a few items would need less. The tally of a shard takes 128
/// bytes, half of this minimum. In shards of a word, the tallies would take 16 times the memory of the cells. loom's
/// models have words that it can try all values of.
pub(super) const LEAST_SHARD_BITS: u64 = if cfg!(all(loom, test)) { 64 } else { 2048 };

/// Where the probes of one item fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Layout {
    /// Anywhere in the shard.
    Classic = 1,
    /// Inside one block of 512 bits.
    Blocked = 2,
    /// One cell with a fingerprint of the item, in one of two pairs of neighbouring cells.
    Fingerprint = 3,
    /// Three cells, which together are a fingerprint of the item.
    Fuse = 4,
    /// No probes: the hashes of items one after the other, from which a static filter is built.
    List = 5,
    /// Some of 128 neighbouring rows, which together are a fingerprint of the item.
    Ribbon = 6,
    /// Each in its own slice of the shard.
    Partitioned = 7,
}

spelling!(pub Layout {
    Classic = "CLASSIC", Blocked = "BLOCKED", Fingerprint = "FINGERPRINT", Fuse = "FUSE", List = "LIST",
    Partitioned = "PARTITIONED", Ribbon = "RIBBON",
});

impl Layout {
    /// Whether the cells are computed from all items at once.
    #[inline]
    pub(crate) fn is_built(self) -> bool {
        matches!(self, Layout::Fuse | Layout::Ribbon)
    }

    /// Whether it is the layout of a static filter, or of the list from which one is built.
    #[inline]
    pub(crate) fn is_static(self) -> bool {
        self.is_built() || self == Layout::List
    }

    /// Whether an item's probes set cells, which any other item may set, too.
    #[inline]
    pub fn has_probes(self) -> bool {
        matches!(self, Layout::Classic | Layout::Blocked | Layout::Partitioned)
    }
}

/// The geometry of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Number of items that it is sized for.
    pub capacity: u64,
    /// Error rate that it is sized for.
    pub error_rate: f64,
    /// Cells in all shards: m.
    pub cells: u64,
    /// Probes per item: k. For FINGERPRINT, FUSE and RIBBON: the bits of a fingerprint, each of which halves the error
    /// rate as a probe does. For a list: 1.
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
    /// Cells of one shard.
    pub fn cells_per_shard(&self) -> u64 {
        self.cells / u64::from(self.shards)
    }

    /// Words in all shards.
    #[inline]
    pub fn words(&self) -> u64 {
        // Most by far, and asked for several times by each creation.
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

    /// Bits of a cell.
    pub fn cell_bits(&self) -> u32 {
        match self.layout {
            Layout::Fuse | Layout::Ribbon => self.probes,
            Layout::List => u64::BITS,
            _ => self.table().map_or(self.cell.bits(), Table::width),
        }
    }

    /// Whether a cell in use stands for one item: in FUSE, RIBBON, and a list.
    pub fn is_static(&self) -> bool {
        self.layout.is_static()
    }

    /// The table of a ribbon filter. `None` if it can't have these cells.
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

    /// Whether that word describes these cells, with `items` items.
    pub(crate) fn is_described_by(&self, items: u64, word: u64) -> bool {
        match self.layout {
            Layout::Ribbon => Ribbon::is_described_by(self.cells, items, word),
            _ => Fuse::is_described_by(self.cells, self.probes, items, word),
        }
    }

    /// The table, if its cells are fingerprints.
    pub fn table(&self) -> Option<Table> {
        let like = || Table::of(self.cell.payload(), self.generations);
        (self.layout == Layout::Fingerprint).then(|| Table {
            cells: self.cells,
            fingerprint: self.probes,
            ..like()
        })
    }

    /// Bytes of the cells.
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

    /// The number of cells is a multiple of this: whole words in each shard (CLASSIC), blocks or slices of whole words.
    pub(super) fn stride(&self) -> u64 {
        let words = match self.layout {
            Layout::Blocked => u64::from(BLOCK_BITS / u64::BITS),
            Layout::Partitioned => self.probes.into(),
            _ => 1,
        };
        (words << self.cell.log2_per_word()) * u64::from(self.shards)
    }

    /// Error rate when it contains `items` distinct items.
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

    /// Distinct items that would set a fraction `fill` of the cells (Swamidass–Baldi). If all are set, any larger
    /// number is possible; this returns the number after which one unset cell is expected.
    pub fn items_at(&self, fill: f64) -> f64 {
        if let Some(table) = self.table() {
            return table.items_at(fill * self.cells as f64);
        }
        if self.is_static() {
            return libm::round(fill * self.cells as f64);
        }
        math::estimate_items(self.spread(), fill.min(1.0 - 1.0 / self.cells as f64))
    }

    /// Bounds of the number of distinct items that set a fraction `fill` of the cells: 8 standard deviations of the
    /// [estimate](Shape::items_at) on either side, and one item.
    pub fn items_between(&self, fill: f64) -> (u64, u64) {
        let estimate = self.items_at(fill);
        let margin = 8.0 * math::estimate_deviation(self.spread(), estimate) + 1.0;
        ((estimate - margin).max(0.0) as u64, libm::ceil(estimate + margin) as u64)
    }

    /// Error rate at a fraction `fill` of set cells: the rate that the filter has *now*.
    pub fn rate_now(&self, fill: f64) -> f64 {
        if fill >= 1.0 && self.layout.has_probes() { 1.0 } else { self.rate_at(self.items_at(fill)) }
    }

    /// Whether the values are consistent. Everything that was not computed here has to pass this check.
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
