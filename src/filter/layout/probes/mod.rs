//! What BLOCKED, CLASSIC and PARTITIONED have in common: Bloom filters, in which each probe of an item falls on a bit
//! or a counter that other items may also use. The three only differ in where the probes may fall.

mod algorithm;
pub mod schedule;
mod sizes;
mod spread;

pub(super) use spread::Spread;

use super::layer::{Layer, TallyWriter, each};
use super::shape::Shape;
use crate::bits::{Hits, counter};
use crate::hash::ItemHash;
use crate::math;
use crate::params::Layout;
use crate::sync::AtomicU64;

/// Minimum number of bits per shard if there are several shards, even if the items would need fewer. A shard's tally
/// needs 128 bytes, half of this minimum. With shards of one word, the tallies would need 16 times the memory of the
/// cells. In the loom models a shard can be one word, so that loom can try all its values.
const LEAST_SHARD_BITS: u64 = if cfg!(all(loom, test)) { 64 } else { 2048 };

/// Where the probes of an item fall, and what follows for the cells. The methods whose names end in `bits` or `bit` are
/// for layers of bits, the others for layers of counters.
pub(super) trait Probes {
    /// The layout.
    const LAYOUT: Layout;

    /// See [`Algorithm::PLACE`](super::algorithm::Algorithm::PLACE).
    const PLACE: &'static str;

    /// Whether every number of probes must be tried to find the smallest size. Otherwise, sizes become larger when the
    /// number of probes moves away from the best one.
    const TRIES_ALL: bool = false;

    /// A shard consists of a whole number of units of this many words.
    fn unit(probes: u32) -> u64;

    /// The cells that the probes of an item are spread over.
    fn spread(shape: &Shape) -> math::Spread;

    /// See [`Algorithm::lines`](super::algorithm::Algorithm::lines).
    fn lines(shape: &Shape) -> u64;

    /// See [`Algorithm::lines_written`](super::algorithm::Algorithm::lines_written).
    fn lines_written(layer: &Layer) -> usize;

    /// See [`Algorithm::prefetch`](super::algorithm::Algorithm::prefetch).
    fn prefetch(layer: &Layer, item: ItemHash);

    /// See [`Algorithm::prefetch_all`](super::algorithm::Algorithm::prefetch_all).
    fn prefetch_all(layer: &Layer, item: ItemHash);

    /// See [`Algorithm::is_near`](super::algorithm::Algorithm::is_near).
    fn is_near(layer: &Layer) -> bool;

    /// The item's bits in a shard of this many bits.
    fn bits(shard: u64, probes: u32, item: ItemHash) -> impl Iterator<Item = usize>;

    /// Whether the item's bits are set.
    fn has_bits(layer: &Layer, item: ItemHash) -> bool;

    /// For which of these items all bits are set.
    fn have_bits(layer: &Layer, items: &[ItemHash], asked: Hits) -> Hits;

    /// Sets the item's bits, and returns how many were not set before. If all were set, the cache lines stay clean.
    fn set_bits<W: TallyWriter>(layer: &Layer, item: ItemHash) -> i64;

    /// Like [`set_bits`](Probes::set_bits), for an item that isn't present.
    #[inline(always)]
    fn set_absent_bits<W: TallyWriter>(layer: &Layer, item: ItemHash) -> i64 {
        Self::set_bits::<W>(layer, item)
    }

    /// Calls `visit` with each of the item's cells, as (words, index of the cell), until `visit` returns false. Returns
    /// true if `visit` never returned false.
    fn walk<const WIDTH: u32>(
        layer: &Layer,
        item: ItemHash,
        visit: impl FnMut(&[AtomicU64], usize) -> bool,
    ) -> bool;

    /// Whether none of the item's counters is 0.
    #[inline(always)]
    fn has_counts<const WIDTH: u32>(layer: &Layer, item: ItemHash) -> bool {
        Self::walk::<WIDTH>(layer, item, |words, index| counter::get(words, WIDTH, index) != 0)
    }

    /// For which of these items no counter is 0.
    #[inline(always)]
    fn have_counts<const WIDTH: u32>(layer: &Layer, items: &[ItemHash], asked: Hits) -> Hits {
        each(items, asked, |item| Self::has_counts::<WIDTH>(layer, item))
    }
}
