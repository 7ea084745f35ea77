//! BLOCKED: all probes of an item fall in one block of 512 bits, which is one cache line.

use super::layer::{Layer, TallyWriter, each};
use super::probes::Probes;
use super::probes::schedule::{self, BLOCK_BITS, BLOCK_WORDS};
use super::shape::Shape;
use crate::bits::{Hits, bit, counter};
use crate::hash::ItemHash;
use crate::math::Spread;
use crate::mem::Words;
use crate::params::Layout;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;

/// The layout BLOCKED.
pub(super) struct Blocked;

/// Evaluates an expression with the layer's number of probes as the constant `K`, or with `K` = 0 if that number isn't
/// between 4 and 7. Error rates down to 0.5% need up to seven probes, which fit into one word of the hash. If the
/// number is constant, the loop disappears, and a test takes half the time.
macro_rules! with_probes {
    ($number:literal, $K:ident => $value:expr) => {{
        const $K: usize = $number;
        $value
    }};
    ($layer:expr, $K:ident => $value:expr) => {
        match $layer.probes() {
            4 => with_probes!(4, $K => $value),
            5 => with_probes!(5, $K => $value),
            6 => with_probes!(6, $K => $value),
            7 => with_probes!(7, $K => $value),
            _ => with_probes!(0, $K => $value),
        }
    };
}

/// Index of the first word of the item's block.
#[inline(always)]
fn block_start(layer: &Layer, item: ItemHash) -> usize {
    let (start, len) = layer.shard_range(item);
    start + schedule::block(item, len / BLOCK_WORDS) * BLOCK_WORDS
}

/// The item's block.
#[inline(always)]
fn block(layer: &Layer, item: ItemHash) -> &[AtomicU64; BLOCK_WORDS] {
    let Some(block) = layer.words()[block_start(layer, item)..].first_chunk() else {
        unreachable!("a blocked shard is a whole number of blocks");
    };
    block
}

/// Whether all of these bits are set.
#[inline(always)]
fn all_set<const K: usize>(block: &[AtomicU64; BLOCK_WORDS], probes: [usize; K]) -> bool {
    // Uses the lowest bit of a word. With booleans, the compiler would generate a branch for each, and half of the
    // branches would be mispredicted.
    let mut all = 1;
    for index in probes {
        all &= block[index / 64].load(Relaxed) >> (index % 64);
    }
    all == 1
}

/// Whether the item's bits are set, without branching on the bits: a misprediction costs more than all probes in a
/// cached line.
#[inline(always)]
fn has_bits<const K: usize>(layer: &Layer, item: ItemHash) -> bool {
    let block = block(layer, item);
    if K != 0 {
        return all_set(block, schedule::first_in_block::<K>(item, 1));
    }
    // The first four of many probes exclude most absent items, and in most layers nearly all items are absent.
    if layer.probes() > 4 && !all_set(block, schedule::first_in_block::<4>(item, 1)) {
        return false;
    }
    let mut all = true;
    for index in schedule::in_block(item, 1, layer.probes()) {
        all &= bit::get(block, index);
    }
    all
}

/// Sets the bits of an item that isn't present: always writes the cache line.
///
/// Not inlined: otherwise the compiler would keep the values that this function and [`has_bits`] both compute, and run
/// out of registers.
#[inline(never)]
fn set_bits<W: TallyWriter, const K: usize>(layer: &Layer, item: ItemHash) -> i64 {
    let block = block(layer, item);
    let set = |index| i64::from(bit::set::<W>(block, index));
    if K == 0 {
        return schedule::in_block(item, 1, layer.probes()).map(set).sum();
    }
    let mut new = 0;
    for index in schedule::first_in_block::<K>(item, 1) {
        new += set(index);
    }
    new
}

/// Whether none of the item's counters is 0.
#[inline(always)]
fn has_counts<const WIDTH: u32, const K: usize>(layer: &Layer, item: ItemHash) -> bool {
    let block = block(layer, item);
    if K == 0 {
        return schedule::in_block(item, WIDTH, layer.probes())
            .all(|index| counter::get(block, WIDTH, index) != 0);
    }
    let mut all = true;
    for index in schedule::first_in_block::<K>(item, WIDTH) {
        all &= counter::get(block, WIDTH, index) != 0;
    }
    all
}

impl Probes for Blocked {
    const LAYOUT: Layout = Layout::Blocked;
    const PLACE: &'static str = "in one block of 512 bits";

    fn unit(_: u32) -> u64 {
        BLOCK_WORDS as u64
    }

    fn spread(shape: &Shape) -> Spread {
        let blocks = shape.cells / u64::from(BLOCK_BITS / shape.cell.bits());
        Spread {
            ranges: blocks as f64,
            slices: 1,
            cells: (shape.cells / blocks) as f64,
            probes: shape.probes,
        }
    }

    fn lines(_: &Shape) -> u64 {
        1
    }

    #[inline(always)]
    fn lines_written(_: &Layer) -> usize {
        3
    }

    #[inline(always)]
    fn is_near(_: &Layer) -> bool {
        false
    }

    #[inline(always)]
    fn prefetch(layer: &Layer, item: ItemHash) {
        Words::prefetch(layer.words(), block_start(layer, item));
    }

    #[inline(always)]
    fn prefetch_all(layer: &Layer, item: ItemHash) {
        Words::prefetch(layer.words(), block_start(layer, item));
    }

    #[inline(always)]
    fn bits(shard: u64, probes: u32, item: ItemHash) -> impl Iterator<Item = usize> {
        let block = schedule::block(item, (shard / u64::from(BLOCK_BITS)) as usize);
        schedule::in_block(item, 1, probes).map(move |index| block * BLOCK_BITS as usize + index)
    }

    #[inline(always)]
    fn has_bits(layer: &Layer, item: ItemHash) -> bool {
        with_probes!(layer, K => has_bits::<K>(layer, item))
    }

    #[inline(always)]
    fn have_bits(layer: &Layer, items: &[ItemHash], asked: Hits) -> Hits {
        with_probes!(layer, K => each(items, asked, |item| has_bits::<K>(layer, item)))
    }

    #[inline(always)]
    fn set_bits<W: TallyWriter>(layer: &Layer, item: ItemHash) -> i64 {
        with_probes!(layer, K => {
            if has_bits::<K>(layer, item) { 0 } else { set_bits::<W, K>(layer, item) }
        })
    }

    #[inline(always)]
    fn set_absent_bits<W: TallyWriter>(layer: &Layer, item: ItemHash) -> i64 {
        with_probes!(layer, K => set_bits::<W, K>(layer, item))
    }

    #[inline(always)]
    fn has_counts<const WIDTH: u32>(layer: &Layer, item: ItemHash) -> bool {
        with_probes!(layer, K => has_counts::<WIDTH, K>(layer, item))
    }

    #[inline(always)]
    fn have_counts<const WIDTH: u32>(layer: &Layer, items: &[ItemHash], asked: Hits) -> Hits {
        with_probes!(layer, K => each(items, asked, |item| has_counts::<WIDTH, K>(layer, item)))
    }

    #[inline(always)]
    fn walk<const WIDTH: u32>(
        layer: &Layer,
        item: ItemHash,
        mut visit: impl FnMut(&[AtomicU64], usize) -> bool,
    ) -> bool {
        let block = block(layer, item);
        with_probes!(layer, K => if K == 0 {
            schedule::in_block(item, WIDTH, layer.probes()).all(|index| visit(block, index))
        } else {
            schedule::first_in_block::<K>(item, WIDTH).into_iter().all(|index| visit(block, index))
        })
    }
}
