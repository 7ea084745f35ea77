//! What the layouts with probes do.

use super::{LEAST_SHARD_BITS, Probes, sizes};
use crate::bits::{Hits, Single, bit, counter};
use crate::error::Error;
use crate::filter::change::{Added, Removed};
use crate::filter::layout::algorithm::Algorithm;
use crate::filter::layout::layer::{Change, Layer, TallyWriter};
use crate::filter::layout::shape::{LayerSpec, Shape};
use crate::hash::ItemHash;
use crate::math::{self, mixture_rate};
use crate::mem::Source;
use crate::params::{Cell, limits};

/// Evaluates an expression with the width of the layer's counters as the constant `WIDTH`, so that shifts and masks
/// are constants.
macro_rules! with_width {
    ($layer:expr, $WIDTH:ident => $value:expr) => {
        match $layer.cell() {
            Cell::Counter4 => {
                const $WIDTH: u32 = 4;
                $value
            }
            Cell::Counter8 => {
                const $WIDTH: u32 = 8;
                $value
            }
            Cell::Counter16 => {
                const $WIDTH: u32 = 16;
                $value
            }
            Cell::Bit => unreachable!("bits are no counters"),
        }
    };
}

impl<P: Probes> Algorithm for P {
    const PLACE: &'static str = P::PLACE;

    fn smallest(spec: &LayerSpec) -> Result<Shape, Error> {
        sizes::smallest::<P>(spec)
    }

    fn check(shape: &Shape) -> Result<(), &'static str> {
        let cells_in = |bits: u64| (bits / u64::from(u64::BITS)) << shape.cell.log2_per_word();
        if shape.shards > 1 && shape.cells < cells_in(LEAST_SHARD_BITS) * u64::from(shape.shards) {
            return Err("shards");
        }
        if shape.cells == 0
            || shape.cells > cells_in(limits::MAX_BYTES * 8)
            || !shape.cells.is_multiple_of(sizes::stride::<P>(shape))
        {
            return Err("cells");
        }
        Ok(())
    }

    #[inline(always)]
    fn words(shape: &Shape) -> u64 {
        shape.cells >> shape.cell.log2_per_word()
    }

    fn cell_bits(shape: &Shape) -> u32 {
        shape.cell.bits()
    }

    fn rate_at(shape: &Shape, items: f64) -> f64 {
        mixture_rate(P::spread(shape), items)
    }

    fn items_at(shape: &Shape, fill: f64) -> f64 {
        math::estimate_items(P::spread(shape), fill.min(1.0 - 1.0 / shape.cells as f64))
    }

    /// The estimate, plus and minus 8 standard deviations and one item.
    fn items_between(shape: &Shape, fill: f64) -> (u64, u64) {
        let estimate = P::items_at(shape, fill);
        let margin = 8.0 * math::estimate_deviation(P::spread(shape), estimate) + 1.0;
        ((estimate - margin).max(0.0) as u64, libm::ceil(estimate + margin) as u64)
    }

    fn lines(shape: &Shape) -> u64 {
        <P as Probes>::lines(shape)
    }

    fn cells(layer: &Layer) -> u64 {
        (layer.words().len() as u64) << layer.cell().log2_per_word()
    }

    #[inline(always)]
    fn contains(layer: &Layer, item: ItemHash) -> bool {
        match layer.cell() {
            Cell::Bit => P::has_bits(layer, item),
            _ => with_width!(layer, WIDTH => P::has_counts::<WIDTH>(layer, item)),
        }
    }

    fn contains_in(shape: &Shape, words: impl Source, item: ItemHash) -> bool {
        let len = words.len() / shape.shards as usize;
        let start = item.shard(shape.shards) as usize * len;
        P::bits(len as u64 * u64::from(u64::BITS), shape.probes, item)
            .all(|index| words.word(start + index / 64) >> (index % 64) & 1 == 1)
    }

    #[inline(always)]
    fn contains_many(layer: &Layer, items: &[ItemHash], asked: Hits) -> Hits {
        match layer.cell() {
            Cell::Bit => P::have_bits(layer, items, asked),
            _ => with_width!(layer, WIDTH => P::have_counts::<WIDTH>(layer, items, asked)),
        }
    }

    #[inline(always)]
    fn prefetch(layer: &Layer, item: ItemHash) {
        <P as Probes>::prefetch(layer, item);
    }

    #[inline(always)]
    fn prefetch_all(layer: &Layer, item: ItemHash) {
        <P as Probes>::prefetch_all(layer, item);
    }

    #[inline(always)]
    fn is_near(layer: &Layer) -> bool {
        <P as Probes>::is_near(layer)
    }

    #[inline(always)]
    fn lines_written(layer: &Layer) -> usize {
        <P as Probes>::lines_written(layer)
    }

    #[inline(always)]
    fn insert_as<W: TallyWriter>(layer: &Layer, item: ItemHash) -> Added {
        match layer.cell() {
            Cell::Bit => layer.tally_set::<W>(item, P::set_bits::<W>(layer, item)),
            _ => count_up::<P, W>(layer, item),
        }
    }

    #[inline(always)]
    fn insert(layer: &Layer, item: ItemHash) -> Result<Added, Error> {
        Ok(P::insert_as::<Single>(layer, item))
    }

    #[inline(always)]
    fn insert_absent(layer: &Layer, item: ItemHash) -> Result<Added, Error> {
        Ok(match layer.cell() {
            Cell::Bit => layer.tally_set::<Single>(item, P::set_absent_bits::<Single>(layer, item)),
            _ => count_up::<P, Single>(layer, item),
        })
    }

    fn remove_as<W: TallyWriter>(layer: &Layer, item: ItemHash) -> Removed {
        if !<P as Algorithm>::contains(layer, item) {
            return Removed::default();
        }
        let (mut change, mut changed) = (Change::default(), false);
        with_width!(layer, WIDTH => P::walk::<WIDTH>(layer, item, |words, index| {
            let step = counter::decrement::<W>(words, WIDTH, index);
            change.set -= i64::from(step.before != 0 && step.after == 0);
            change.sum -= (step.before - step.after) as i64;
            changed |= step.after != step.before;
            true
        }));
        // An item that tested present when it was added wasn't counted, but its delete may empty a cell. The number of
        // items must not go below 0.
        change.items = -i64::from(change.set != 0 && layer.items() > 0);
        layer.tally::<W>(item, change);
        if changed {
            correct_items::<P, W>(layer, item, change.set == 0);
        }
        Removed { present: true, changed }
    }

    fn count(layer: &Layer, item: ItemHash) -> u64 {
        if layer.cell() == Cell::Bit {
            return u64::from(P::walk::<1>(layer, item, bit::get));
        }
        let mut least = u64::MAX;
        with_width!(layer, WIDTH => P::walk::<WIDTH>(layer, item, |words, index| {
            least = least.min(counter::get(words, WIDTH, index));
            true
        }));
        least
    }
}

/// Adds the item to a layer of counters. Not inlined, because the code exists once for every combination of layout,
/// width and number of probes.
#[inline(never)]
fn count_up<P: Probes, W: TallyWriter>(layer: &Layer, item: ItemHash) -> Added {
    let (mut change, mut changed) = (Change::default(), false);
    with_width!(layer, WIDTH => P::walk::<WIDTH>(layer, item, |words, index| {
        let max = counter::maximum(WIDTH);
        let step = counter::increment::<W>(words, WIDTH, index);
        change.set += i64::from(step.before == 0);
        change.sum += (step.after - step.before) as i64;
        change.saturated += i64::from(step.after == max && step.before != max);
        changed |= step.after != step.before;
        true
    }));
    change.items = i64::from(change.set != 0);
    layer.tally::<W>(item, change);
    Added { added: change.items != 0, changed }
}

/// Corrects the number of items in a counting layer after a delete. If `is_uncertain`, the item still tests present;
/// otherwise it tests absent.
///
/// An add that finds its item present by chance isn't counted, and neither is a delete after which the item still tests
/// present. The errors cancel on average, but their sum grows with the square root of the number of deletes: in a
/// filter for 100 items that always contained 90, the number was wrong by 10 after 9,000 deletes. The cells therefore
/// limit the number in three ways. It isn't above adds minus deletes, which is exact. It is 0 only if all cells are 0.
/// It stays within the noise of the estimate from the fill. A delete that left the item absent can't have made the
/// number too large, so the third limit is skipped, and with it a logarithm.
fn correct_items<P: Probes, W: TallyWriter>(layer: &Layer, item: ItemHash, is_uncertain: bool) {
    let items = layer.items();
    let mut correct = items;
    if is_uncertain {
        let shape = layer.shaped(<P as Algorithm>::cells(layer), 0);
        let (least, most) = P::items_between(&shape, layer.ones() as f64 / shape.cells as f64);
        correct = correct.clamp(least, most);
    }
    // If a cell isn't 0, there is at least one item.
    correct = correct.min(layer.held().unwrap_or(u64::MAX)).max(u64::from(layer.ones() > 0));
    if correct != items {
        let items = correct.wrapping_sub(items) as i64;
        layer.tally::<W>(item, Change { items, ..Change::default() });
    }
}
