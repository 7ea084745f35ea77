//! What follows from the geometry of a layer: its size, its error rates, and the number of items estimated from its
//! fill.

use super::dispatch;
use super::shape::Shape;
use crate::params::{Layout, limits};

impl Layout {
    /// Where the cells of an item are, in words.
    pub fn place(self) -> &'static str {
        dispatch!(self, A => A::PLACE)
    }
}

impl Shape {
    /// Number of words in all shards.
    #[inline]
    pub fn words(&self) -> u64 {
        dispatch!(self.layout, A => A::words(self))
    }

    /// Size of the cells in bytes.
    pub fn bytes(&self) -> u64 {
        self.words() * 8
    }

    /// Bits per cell.
    pub fn cell_bits(&self) -> u32 {
        dispatch!(self.layout, A => A::cell_bits(self))
    }

    /// Whether this is the shape of a static filter, or of the list from which one is built.
    pub fn is_static(&self) -> bool {
        self.layout.is_static()
    }

    /// Number of cache lines that a test of a present item reads.
    pub fn lines(&self) -> u64 {
        dispatch!(self.layout, A => A::lines(self))
    }

    /// Error rate when the layer contains `items` distinct items.
    pub fn rate_at(&self, items: f64) -> f64 {
        dispatch!(self.layout, A => A::rate_at(self, items))
    }

    /// Number of distinct items that would set a fraction `fill` of the cells (Swamidass–Baldi). If all cells are set,
    /// there is no upper bound, so the result is the number of items at which one unset cell is expected.
    pub fn items_at(&self, fill: f64) -> f64 {
        dispatch!(self.layout, A => A::items_at(self, fill))
    }

    /// Bounds for the number of distinct items that set a fraction `fill` of the cells: the
    /// [estimate](Shape::items_at), plus and minus 8 standard deviations and one item.
    pub fn items_between(&self, fill: f64) -> (u64, u64) {
        dispatch!(self.layout, A => A::items_between(self, fill))
    }

    /// Error rate if a fraction `fill` of the cells is set: the rate that the filter has *now*.
    pub fn rate_now(&self, fill: f64) -> f64 {
        if fill >= 1.0 && self.layout.has_probes() { 1.0 } else { self.rate_at(self.items_at(fill)) }
    }

    /// Checks that the values are consistent. Every shape that wasn't computed by a layout must pass this check.
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
        dispatch!(self.layout, A => A::check(self))
    }
}
