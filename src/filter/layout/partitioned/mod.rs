//! PARTITIONED: each probe has a slice of the shard to itself, so two probes of an item never fall on one cell.

use super::probes::Spread;
use super::probes::schedule::Slices;
use crate::params::Layout;

/// The layout PARTITIONED.
pub(super) struct Partitioned;

impl Spread for Partitioned {
    const LAYOUT: Layout = Layout::Partitioned;
    const PLACE: &'static str = "each in a slice of its own";
    const HAS_SLICES: bool = true;

    #[inline(always)]
    fn slices(cells: u64, probes: u32) -> Slices {
        Slices::apart(cells, probes)
    }
}
