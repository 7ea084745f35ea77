//! The geometry of one layer, and the requirements that it is computed from. Both are plain data: each layout has the
//! formulas that connect them.

use crate::params::{Cell, Layout};

/// The requirements for one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerSpec {
    /// Number of items at which the error rate is reached.
    pub capacity: u64,
    /// Error rate of this layer alone.
    pub error_rate: f64,
    /// The requested layout; `None` is AUTO.
    pub layout: Option<Layout>,
    /// Bits or counters.
    pub cell: Cell,
    /// Number of independent arrays, a power of two.
    pub shards: u32,
    /// Number of generations that share the layer; 0 if it isn't shared.
    pub generations: u16,
}

impl LayerSpec {
    /// The requirements for a layer of bits with one shard and the layout AUTO.
    pub fn new(capacity: u64, error_rate: f64) -> LayerSpec {
        LayerSpec { capacity, error_rate, layout: None, cell: Cell::Bit, shards: 1, generations: 0 }
    }

    /// The shape of a layer of this layout, with this number of cells and probes.
    pub(super) fn shaped(&self, layout: Layout, cells: u64, probes: u32) -> Shape {
        let LayerSpec { capacity, error_rate, cell, shards, generations, .. } = *self;
        Shape { capacity, error_rate, cells, probes, shards, layout, cell, generations }
    }
}

/// The geometry of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Number of items that the layer is sized for.
    pub capacity: u64,
    /// Error rate that the layer is sized for.
    pub error_rate: f64,
    /// Number of cells in all shards: m.
    pub cells: u64,
    /// Probes per item: k. For FUSE and RIBBON, the number of bits per fingerprint; each bit halves the error rate, as
    /// a probe does. For a table or a list, 1.
    pub probes: u32,
    /// Number of independent arrays.
    pub shards: u32,
    /// Where an item's cells are.
    pub layout: Layout,
    /// Bits or counters.
    pub cell: Cell,
    /// Number of generations that share the table; 0 if there is none, or if it isn't shared.
    pub generations: u16,
}
