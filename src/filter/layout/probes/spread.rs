//! Layouts in which the probes of an item fall anywhere in its shard, or in slices of it: CLASSIC and PARTITIONED.

use super::Probes;
use super::schedule::{Slices, spread};
use crate::bits::{Hits, bit};
use crate::filter::layout::layer::{Layer, TallyWriter, each};
use crate::filter::layout::shape::Shape;
use crate::hash::ItemHash;
use crate::math;
use crate::mem::Words;
use crate::params::Layout;
use crate::sync::AtomicU64;
use core::ops::Range;

/// Layers of more than this many bytes have their cache lines prefetched. Smaller ones fit into the L2 cache.
const PREFETCHED_FROM: u64 = 1 << 20;

/// If cache lines are prefetched, those of the first `FETCHED_FIRST` probes are prefetched for all items. The lines of
/// the other probes among the first `FETCHED_NEXT` are prefetched only for items that the first probes don't exclude.
const FETCHED_FIRST: u32 = 2;
const FETCHED_NEXT: u32 = 6;

/// Which cells of a shard each probe may fall on. The code for CLASSIC doesn't contain what only PARTITIONED needs,
/// because that took 3% to 10% of the time of a test whose lines are cached.
pub(in crate::filter::layout) trait Spread {
    /// The layout.
    const LAYOUT: Layout;

    /// Where the cells of an item are, as the calculator says it.
    const PLACE: &'static str;

    /// Whether each probe has a slice of its own.
    const HAS_SLICES: bool;

    /// The slices of a shard of this many cells.
    fn slices(cells: u64, probes: u32) -> Slices;
}

/// The slices of the item's shard, which consists of these words.
#[inline(always)]
fn slices<S: Spread>(layer: &Layer, shard: &[AtomicU64], width: u32) -> Slices {
    S::slices(shard.len() as u64 * u64::from(u64::BITS / width), layer.probes())
}

/// Whether the item's bits are set in its shard. The first two probes exclude three quarters of the absent items or
/// more. They are evaluated together: with a branch on each of them, half of the branches would be mispredicted.
#[inline(always)]
fn has_all(shard: &[AtomicU64], item: ItemHash, slices: Slices, probes: u32) -> bool {
    let mut bits = spread(item, slices, probes);
    let two = bits.by_ref().take(2).fold(1, |all, index| all & bit::shifted(shard, index));
    two == 1 && bits.all(|index| bit::get(shard, index))
}

/// [`has_all`] for several items, whose lines may be far away. For all items that the first two probes don't exclude,
/// the lines of the next probes are fetched together. Otherwise a quarter of the absent items would wait for their
/// third probe, and half of those items for the next one.
#[inline(always)]
fn far_have_all<S: Spread>(layer: &Layer, items: &[ItemHash], asked: Hits) -> Hits {
    let (cells, probes) = (layer.words().len() as u64 * u64::from(u64::BITS), layer.probes());
    let slices = S::slices(cells >> layer.log2_shards(), probes);
    let likely = each(items, asked, |item| {
        let (shard, two) = (layer.shard(item), spread(item, slices, FETCHED_FIRST.min(probes)));
        two.fold(1, |all, index| all & bit::shifted(shard, index)) == 1
    });
    likely.for_each(|index| prefetch::<S>(layer, items[index], FETCHED_FIRST..FETCHED_NEXT));
    each(items, likely, |item| {
        let (shard, all) = (layer.shard(item), spread(item, slices, probes));
        all.skip(FETCHED_FIRST as usize).all(|index| bit::get(shard, index))
    })
}

#[inline(always)]
fn prefetch<S: Spread>(layer: &Layer, item: ItemHash, probes: Range<u32>) {
    if S::is_near(layer) {
        return;
    }
    let (start, len) = layer.shard_range(item);
    let (log2_per_word, most) = (layer.cell().log2_per_word(), probes.end.min(layer.probes()));
    let slices = S::slices((len as u64) << log2_per_word, layer.probes());
    for index in spread(item, slices, most).skip(probes.start as usize) {
        Words::prefetch(layer.words(), start + (index >> log2_per_word));
    }
}

impl<S: Spread> Probes for S {
    const LAYOUT: Layout = S::LAYOUT;
    const PLACE: &'static str = S::PLACE;

    /// If slices have only a few words, rounding decides which number of probes is best.
    const TRIES_ALL: bool = S::HAS_SLICES;

    fn unit(probes: u32) -> u64 {
        if S::HAS_SLICES { probes.into() } else { 1 }
    }

    fn spread(shape: &Shape) -> math::Spread {
        let slices = if S::HAS_SLICES { shape.probes } else { 1 };
        let cells = shape.cells / u64::from(shape.shards) / u64::from(slices);
        math::Spread {
            ranges: shape.shards.into(),
            slices,
            cells: cells as f64,
            probes: shape.probes / slices,
        }
    }

    fn lines(shape: &Shape) -> u64 {
        shape.probes.into()
    }

    #[inline(always)]
    fn lines_written(layer: &Layer) -> usize {
        layer.probes() as usize
    }

    #[inline(always)]
    fn is_near(layer: &Layer) -> bool {
        layer.bytes() <= PREFETCHED_FROM
    }

    #[inline(always)]
    fn prefetch(layer: &Layer, item: ItemHash) {
        prefetch::<S>(layer, item, 0..FETCHED_FIRST);
    }

    #[inline(always)]
    fn prefetch_all(layer: &Layer, item: ItemHash) {
        prefetch::<S>(layer, item, 0..layer.probes());
    }

    #[inline(always)]
    fn bits(shard: u64, probes: u32, item: ItemHash) -> impl Iterator<Item = usize> {
        spread(item, S::slices(shard, probes), probes)
    }

    #[inline(always)]
    fn has_bits(layer: &Layer, item: ItemHash) -> bool {
        let shard = layer.shard(item);
        has_all(shard, item, slices::<S>(layer, shard, 1), layer.probes())
    }

    #[inline(always)]
    fn have_bits(layer: &Layer, items: &[ItemHash], asked: Hits) -> Hits {
        if !S::is_near(layer) {
            return far_have_all::<S>(layer, items, asked);
        }
        if layer.log2_shards() > 0 {
            return each(items, asked, |item| S::has_bits(layer, item));
        }
        // Reads the layer's head once for all items. That saves 76 of 271 instructions for each absent item.
        let (words, probes) = (layer.words(), layer.probes());
        let slices = slices::<S>(layer, words, 1);
        each(items, asked, |item| has_all(words, item, slices, probes))
    }

    #[inline(always)]
    fn set_bits<W: TallyWriter>(layer: &Layer, item: ItemHash) -> i64 {
        let shard = layer.shard(item);
        let mut cells = spread(item, slices::<S>(layer, shard, 1), layer.probes());
        let Some(clear) = cells.find(|index| !bit::get(shard, *index)) else { return 0 };
        // Half of the other bits are set already, so a branch on each would often be mispredicted.
        let set = |index| i64::from(bit::set::<W>(shard, index));
        set(clear) + cells.map(set).sum::<i64>()
    }

    #[inline(always)]
    fn walk<const WIDTH: u32>(
        layer: &Layer,
        item: ItemHash,
        mut visit: impl FnMut(&[AtomicU64], usize) -> bool,
    ) -> bool {
        let shard = layer.shard(item);
        spread(item, slices::<S>(layer, shard, WIDTH), layer.probes()).all(|index| visit(shard, index))
    }
}
