//! CLASSIC: the probes of an item fall anywhere in its shard, as in a textbook Bloom filter.

use super::probes::Spread;
use super::probes::schedule::Slices;
use crate::params::Layout;

/// The layout CLASSIC.
pub(super) struct Classic;

impl Spread for Classic {
    const LAYOUT: Layout = Layout::Classic;
    const PLACE: &'static str = "across the layer";
    const HAS_SLICES: bool = false;

    #[inline(always)]
    fn slices(cells: u64, _: u32) -> Slices {
        Slices::whole(cells)
    }
}
