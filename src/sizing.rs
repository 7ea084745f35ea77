//! From (capacity, error rate) to geometry and back.
//!
//! Sizing keeps its promise exactly. Whole probes and whole words, the block penalty and the imbalance of shards
//! (both through `mixture_rate`), and the sum over the layers of a chain or window are all included in the error
//! rate.
//!
//! The function from parameters to geometry is part of the format: a primary and its replica each derive the layers
//! of a growing filter. tests/library/sizing.rs pins it.

use crate::error::Error;
use crate::math::{self, mixture_rate};
use crate::params::{Cell, Family, LayoutChoice, Spec, limits};
use crate::spelling::spelling;
use std::cell::Cell as Slot;

/// Bits of a block: one cache line.
pub const BLOCK_BITS: u32 = 512;

/// AUTO chooses BLOCKED if it needs at most this factor of CLASSIC's memory.
const AUTO_PENALTY: f64 = 1.15;

/// The same for a layer of a chain. Late layers have low error rates, where blocks cost most, and contain most of
/// the memory. A chain grown from 100 to 10 million items needs 33.9 MB with 1.15, and 30.0 MB with this factor.
const AUTO_PENALTY_IN_CHAIN: f64 = 1.10;

/// Layers of a chain below this size share [`SMALL_SHARE`] of its error rate: they are cheap at any error rate.
const SMALL_BITS: f64 = (64 * 1024 * 8) as f64;

/// The share of the error rate for the layers below [`SMALL_BITS`].
const SMALL_SHARE: f64 = 0.1;

/// A layer of a chain has at least this part of the capacity of all layers before it, whatever the expansion. So the
/// number of layers grows with the logarithm of the items: from 1 item to a million 112 layers with expansion 1, and
/// 277 up to [`limits::MAX_CAPACITY`]. Expansion 2 and more never come below it.
const LEAST_PART: u64 = 8;

/// How many shapes are remembered.
const REMEMBERED: usize = 64;

thread_local! {
    /// Shapes that were solved for lately, by a hash of the question. Solving takes 15 to 600 µs, and the same questions
    /// come again and again: filters with default parameters, and a filter that may not grow.
    static SHAPES: [Slot<Option<Remembered>>; REMEMBERED] = const { [const { Slot::new(None) }; REMEMBERED] };
}

/// A question to [`LayerSpec::shape_within`], and its answer.
#[derive(Clone, Copy)]
struct Remembered {
    asked: LayerSpec,
    penalty: f64,
    answer: Result<Shape, Error>,
}

/// 6/π²: the shares 6/π²/(j+1)² sum to 1 (Basel problem).
const BASEL: f64 = 0.607_927_101_854_026_6;

/// Where the probes of one item fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Layout {
    /// Anywhere in the shard.
    Classic = 1,
    /// Inside one block of 512 bits.
    Blocked = 2,
}

spelling!(pub Layout { Classic = "CLASSIC", Blocked = "BLOCKED" });

/// The requirements for one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerSpec {
    /// Number of items at which the error rate is reached.
    pub capacity: u64,
    /// Error rate of this layer alone.
    pub error_rate: f64,
    /// The requested layout.
    pub layout: LayoutChoice,
    /// Bits or counters.
    pub cell: Cell,
    /// Number of independent arrays, a power of two.
    pub shards: u32,
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
    /// Probes per item: k.
    pub probes: u32,
    /// Number of independent arrays.
    pub shards: u32,
    /// Where the probes fall.
    pub layout: Layout,
    /// Bits or counters.
    pub cell: Cell,
}

impl LayerSpec {
    /// A single-shard layer of bits with the layout chosen by cost.
    #[cfg(any(test, feature = "internals"))]
    pub fn new(capacity: u64, error_rate: f64) -> LayerSpec {
        LayerSpec { capacity, error_rate, layout: LayoutChoice::Auto, cell: Cell::Bit, shards: 1 }
    }

    /// The smallest shape that keeps the promise.
    ///
    /// # Errors
    /// Names the parameter that is out of range. If no size up to [`limits::MAX_BYTES`] keeps the promise:
    /// [`Error::OutOfMemory`] if there are too many items, [`Error::Unreachable`] if the layout is the reason.
    pub fn shape(&self) -> Result<Shape, Error> {
        self.shape_within(AUTO_PENALTY)
    }

    /// As [`solve`](LayerSpec::solve), which it remembers.
    fn shape_within(&self, penalty: f64) -> Result<Shape, Error> {
        // Multipliers of Knuth and of SplitMix64: an index needs only be different for most questions.
        let mixed = self.capacity.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ self.error_rate.to_bits().wrapping_mul(0xbf58_476d_1ce4_e5b9)
            ^ u64::from(self.shards).wrapping_mul(0x94d0_49bb_1331_11eb);
        let index = (mixed >> 32) as usize % REMEMBERED;
        SHAPES.with(|shapes| {
            let slot = &shapes[index];
            match slot.get() {
                Some(known) if known.asked == *self && known.penalty == penalty => known.answer,
                _ => {
                    let answer = self.solve(penalty);
                    slot.set(Some(Remembered { asked: *self, penalty, answer }));
                    answer
                }
            }
        })
    }

    fn solve(&self, penalty: f64) -> Result<Shape, Error> {
        #[cfg(test)]
        tests::SOLVED.with(|solved| solved.set(solved.get() + 1));
        if !(limits::MIN_LAYER_ERROR_RATE..1.0).contains(&self.error_rate) {
            return Err(Error::ErrorRate(self.error_rate));
        }
        if !(1..=limits::MAX_CAPACITY).contains(&self.capacity) {
            return Err(Error::Capacity(self.capacity));
        }
        if !self.shards.is_power_of_two() || self.shards > limits::MAX_SHARDS {
            return Err(Error::Shards(self.shards.into()));
        }
        match self.layout {
            LayoutChoice::Classic => self.smallest(Layout::Classic),
            LayoutChoice::Blocked => self.smallest(Layout::Blocked),
            LayoutChoice::Auto => {
                let classic = self.smallest(Layout::Classic)?;
                match self.smallest(Layout::Blocked) {
                    Ok(blocked) if blocked.cells as f64 <= penalty * classic.cells as f64 => Ok(blocked),
                    _ => Ok(classic),
                }
            }
        }
    }

    /// Tries every sensible number of probes, from the ideal log2(1/p) downwards (blocks need fewer).
    fn smallest(&self, layout: Layout) -> Result<Shape, Error> {
        let ideal = libm::ceil(-libm::log2(self.error_rate)).clamp(1.0, limits::MAX_PROBES as f64) as u32;
        let mut best: Option<Shape> = None;
        for probes in (1..=ideal).rev() {
            match (self.smallest_with(layout, probes), best) {
                (Some(shape), Some(smaller)) if shape.cells >= smaller.cells => break,
                (Some(shape), _) => best = Some(shape),
                (None, Some(_)) => break,
                (None, None) => {}
            }
        }
        best.ok_or_else(|| {
            let bytes = self.textbook_cells() * f64::from(self.cell.bits()) / 8.0;
            if bytes * 4.0 > limits::MAX_BYTES as f64 {
                Error::OutOfMemory { bytes: bytes as u64 }
            } else {
                Error::Unreachable { error_rate: self.error_rate }
            }
        })
    }

    /// Cells of a classic filter without rounding: n·log2(1/p)/ln 2.
    fn textbook_cells(&self) -> f64 {
        self.capacity as f64 * -libm::log2(self.error_rate) / math::LN_2
    }

    /// The smallest shape, by bisection over the words (CLASSIC) or blocks (BLOCKED) per shard: more of them lower
    /// the rate.
    fn smallest_with(&self, layout: Layout, probes: u32) -> Option<Shape> {
        let unit = match layout {
            Layout::Classic => u64::from(u64::BITS / self.cell.bits()),
            Layout::Blocked => u64::from(BLOCK_BITS / self.cell.bits()),
        };
        let stride = unit * u64::from(self.shards);
        let shape = |units: u64| Shape {
            capacity: self.capacity,
            error_rate: self.error_rate,
            cells: units * stride,
            probes,
            shards: self.shards,
            layout,
            cell: self.cell,
        };
        let holds = |units: u64| shape(units).rate_at(self.capacity as f64) <= self.error_rate;
        let most = limits::MAX_BYTES * 8 / u64::from(self.cell.bits()) / stride;
        let (mut low, mut high) = (0, ((self.textbook_cells() / stride as f64) as u64).clamp(1, most));
        while !holds(high) {
            if high == most {
                return None;
            }
            low = high;
            high = (high + high / 16 + 1).min(most);
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if holds(middle) { high = middle } else { low = middle }
        }
        Some(shape(high))
    }
}

impl Shape {
    /// Cells of one shard.
    pub fn cells_per_shard(&self) -> u64 {
        self.cells / u64::from(self.shards)
    }

    /// Words in all shards.
    pub fn words(&self) -> u64 {
        self.cells / u64::from(u64::BITS / self.cell.bits())
    }

    /// Bytes of the cells.
    pub fn bytes(&self) -> u64 {
        self.words() * 8
    }

    /// The ranges of [`math`]: their number, and the cells of each.
    fn ranges(&self) -> (f64, f64) {
        match self.layout {
            Layout::Classic => (f64::from(self.shards), self.cells_per_shard() as f64),
            Layout::Blocked => {
                let block = u64::from(BLOCK_BITS / self.cell.bits());
                ((self.cells / block) as f64, block as f64)
            }
        }
    }

    /// Error rate when it contains `items` distinct items.
    pub fn rate_at(&self, items: f64) -> f64 {
        let (ranges, cells) = self.ranges();
        mixture_rate(ranges, cells, self.probes, items)
    }

    /// Distinct items that would set a fraction `fill` of the cells (Swamidass–Baldi). If all are set, there may be
    /// any number above this: those after which one cell is expected to be left.
    pub fn items_at(&self, fill: f64) -> f64 {
        let (ranges, cells) = self.ranges();
        math::estimate_items(ranges, cells, self.probes, fill.min(1.0 - 1.0 / self.cells as f64))
    }

    /// Bounds of the number of distinct items that set a fraction `fill` of the cells: 8 standard deviations of the
    /// [estimate](Shape::items_at) on either side, and one item.
    ///
    /// n items leave Poisson noise in the number of set cells: at a load of λ = k·n/m probes a cell its variance is
    /// m·e^−λ·(1 − (1 + λ)·e^−λ), and a cell is worth e^λ/k items.
    pub fn items_between(&self, fill: f64) -> (u64, u64) {
        let cells = self.cells as f64;
        let load = -libm::log1p(-fill.min(1.0 - 1.0 / cells));
        let deviation = libm::sqrt(cells * (libm::expm1(load) - load)) / f64::from(self.probes);
        let (estimate, margin) = (self.items_at(fill), 8.0 * deviation + 1.0);
        ((estimate - margin).max(0.0) as u64, libm::ceil(estimate + margin) as u64)
    }

    /// Error rate at a fraction `fill` of set cells: the rate that the filter has *now*.
    pub fn rate_now(&self, fill: f64) -> f64 {
        if fill >= 1.0 { 1.0 } else { self.rate_at(self.items_at(fill)) }
    }

    /// Whether the values are consistent. Everything that was not computed here has to pass this check.
    ///
    /// # Errors
    /// The name of the first field that doesn't fit.
    pub fn check(&self) -> Result<(), &'static str> {
        let unit = match self.layout {
            Layout::Classic => u64::from(u64::BITS / self.cell.bits()),
            Layout::Blocked => u64::from(BLOCK_BITS / self.cell.bits()),
        };
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
        let most = limits::MAX_BYTES * 8 / u64::from(self.cell.bits());
        if self.cells == 0 || self.cells > most || !self.cells.is_multiple_of(unit * u64::from(self.shards)) {
            return Err("cells");
        }
        Ok(())
    }
}

/// Whether a layer of this capacity counts as large in a chain with the promise `error_rate`.
fn is_large(capacity: u64, error_rate: f64) -> bool {
    capacity as f64 * -libm::log2(error_rate) / math::LN_2 >= SMALL_BITS
}

/// 6/π²/(j+1)².
fn inverse_square(index: usize) -> f64 {
    let rank = (index + 1) as f64;
    BASEL / (rank * rank)
}

impl Spec {
    /// A filter of at most `bits` bits in which an item has `probes` probes: for as many items as those keep the error
    /// rate that `probes` is right for, about 2^−probes. The inverse of sizing by capacity and error rate.
    ///
    /// # Errors
    /// [`Error::ErrorRate`] for 0 or more than 39 probes, [`Error::Capacity`] if not one item fits.
    pub fn in_bits(bits: u64, probes: u32) -> Result<Spec, Error> {
        let error_rate = libm::exp2(-f64::from(probes));
        if probes == 0 || error_rate < limits::MIN_ERROR_RATE {
            return Err(Error::ErrorRate(error_rate));
        }
        let spec = |capacity| Spec { layout: LayoutChoice::Classic, ..Spec::fixed(capacity, error_rate) };
        let fits = |capacity: u64| spec(capacity).next_shape(&[]).is_ok_and(|shape| shape.cells <= bits);
        // The shape grows with the capacity, and no item takes less than a bit.
        let (mut fitting, mut too_many) = (0, bits.min(limits::MAX_CAPACITY).saturating_add(1));
        while fitting + 1 < too_many {
            let middle = fitting + (too_many - fitting) / 2;
            if fits(middle) {
                fitting = middle;
            } else {
                too_many = middle;
            }
        }
        if fitting == 0 { Err(Error::Capacity(0)) } else { Ok(spec(fitting)) }
    }

    /// Shape of the next layer of a filter of this spec, after layers of the capacities `so_far`.
    ///
    /// # Errors
    /// Same as `LayerSpec::shape`.
    pub fn next_shape(&self, so_far: &[u64]) -> Result<Shape, Error> {
        let penalty = match self.family {
            Family::Scaling { .. } => AUTO_PENALTY_IN_CHAIN,
            _ => AUTO_PENALTY,
        };
        self.next_layer(so_far).shape_within(penalty)
    }

    /// The requirements for that layer.
    ///
    /// A chain spends its error rate on the layers that need most of the memory. Layers below 64 KiB share a tenth
    /// of it, and large layers share the rest. Within each group, layer j gets 6/π²/(j+1)². A chain whose first
    /// layer is large gives everything to the large ones.
    fn next_layer(&self, so_far: &[u64]) -> LayerSpec {
        let (capacity, error_rate) = match self.family {
            Family::Fixed(_) => (self.capacity, self.error_rate),
            Family::Window { generations, .. } => (self.capacity, self.error_rate / f64::from(generations)),
            Family::Scaling { expansion, tightening } => {
                let capacity = so_far.last().map_or(self.capacity, |last| {
                    let all = so_far.iter().fold(0u64, |sum, one| sum.saturating_add(*one));
                    last.saturating_mul(expansion.into()).max(all / LEAST_PART).min(limits::MAX_CAPACITY)
                });
                let share = match tightening.ratio() {
                    Some(ratio) => (1.0 - ratio) * math::power(ratio, so_far.len() as u32),
                    None => {
                        let large = so_far.iter().filter(|c| is_large(**c, self.error_rate)).count();
                        match (is_large(capacity, self.error_rate), is_large(self.capacity, self.error_rate))
                        {
                            (true, true) => inverse_square(large),
                            (true, false) => (1.0 - SMALL_SHARE) * inverse_square(large),
                            (false, _) => SMALL_SHARE * inverse_square(so_far.len()),
                        }
                    }
                };
                (capacity, (self.error_rate * share).max(limits::MIN_LAYER_ERROR_RATE))
            }
        };
        LayerSpec { capacity, error_rate, layout: self.layout, cell: self.cell, shards: self.shards }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Tightening;

    thread_local! {
        /// How often a shape was solved for.
        pub(super) static SOLVED: Slot<u64> = const { Slot::new(0) };
    }

    #[test]
    fn what_was_solved_lately_is_remembered() {
        let unreachable = LayerSpec {
            layout: LayoutChoice::Blocked,
            cell: Cell::Counter16,
            ..LayerSpec::new(1 << 36, 1e-12)
        };
        for spec in [LayerSpec::new(100, 0.001), LayerSpec::new(1_000_000, 1e-6), unreachable] {
            let first = spec.shape();
            let before = SOLVED.get();
            assert_eq!(spec.shape(), first);
            assert_eq!(SOLVED.get(), before, "{spec:?}");
        }
        // Questions that share a place don't share an answer, nor do those that differ in one thing.
        for capacity in 1..400 {
            let specs = [
                LayerSpec::new(capacity, 0.01),
                LayerSpec { shards: 8, ..LayerSpec::new(capacity, 0.01) },
                LayerSpec { cell: Cell::Counter4, ..LayerSpec::new(capacity, 0.01) },
                LayerSpec { layout: LayoutChoice::Classic, ..LayerSpec::new(capacity, 0.01) },
            ];
            for penalty in [AUTO_PENALTY, AUTO_PENALTY_IN_CHAIN] {
                for spec in specs {
                    assert_eq!(spec.shape_within(penalty), spec.solve(penalty));
                }
            }
            for penalty in [AUTO_PENALTY, AUTO_PENALTY_IN_CHAIN] {
                assert_eq!(specs[0].shape_within(penalty), specs[0].solve(penalty));
            }
        }
    }

    #[test]
    fn layers_are_few_whatever_the_expansion() {
        let layers = |first: u64, expansion: u32, items: u64| {
            let family = Family::Scaling { expansion, tightening: Tightening::INVERSE_SQUARE };
            let spec = Spec { family, ..Spec::scaling(first, 0.01) };
            let mut so_far: Vec<u64> = Vec::new();
            while so_far.iter().fold(0u64, |sum, one| sum.saturating_add(*one)) < items {
                so_far.push(spec.next_layer(&so_far).capacity);
                assert!(so_far.len() < 300, "{first} {expansion}");
            }
            so_far.len()
        };
        assert_eq!(layers(1, 1, 1_000_000), 112);
        assert_eq!(layers(1, 1, limits::MAX_CAPACITY), 277);
        assert_eq!(layers(1000, 1, 8000), 8, "of one size, as long as they are few");
        for first in [1, 7, 100, 12_345] {
            for expansion in [1, 2, 3] {
                assert!(layers(first, expansion, limits::MAX_CAPACITY) <= 277, "{first} {expansion}");
            }
        }
        assert_eq!(layers(1, 2, limits::MAX_CAPACITY), 49, "a doubling is not changed");
    }

    fn bits_per_item(layout: LayoutChoice, error_rate: f64) -> f64 {
        let shape = LayerSpec { layout, ..LayerSpec::new(10_000_000, error_rate) }.shape().unwrap();
        shape.bytes() as f64 * 8.0 / 1e7
    }

    #[test]
    fn memory_meets_the_published_figures() {
        assert!(bits_per_item(LayoutChoice::Blocked, 0.01) <= 9.95);
        assert!(bits_per_item(LayoutChoice::Blocked, 0.001) <= 15.6);
        assert!(bits_per_item(LayoutChoice::Classic, 0.01) <= 9.62);
        assert!(bits_per_item(LayoutChoice::Classic, 0.001) <= 14.42);
    }

    #[test]
    fn one_word_or_block_less_would_break_the_promise() {
        for cell in [Cell::Bit, Cell::Counter4, Cell::Counter16] {
            for layout in [LayoutChoice::Classic, LayoutChoice::Blocked] {
                for shards in [1, 8] {
                    let spec = LayerSpec { capacity: 50_000, error_rate: 0.003, layout, cell, shards };
                    let shape = spec.shape().unwrap();
                    assert!(shape.check().is_ok());
                    assert!(shape.rate_at(50_000.0) <= 0.003);
                    let unit =
                        if shape.layout == Layout::Classic { 64 } else { 512 } / u64::from(cell.bits());
                    let less = Shape { cells: shape.cells - unit * u64::from(shards), ..shape };
                    assert!(less.rate_at(50_000.0) > 0.003, "{spec:?}");
                }
            }
        }
    }

    #[test]
    fn the_rate_now_follows_from_the_fill() {
        for layout in [LayoutChoice::Classic, LayoutChoice::Blocked] {
            let shape = LayerSpec { layout, shards: 4, ..LayerSpec::new(100_000, 0.01) }.shape().unwrap();
            let (ranges, cells) = shape.ranges();
            let fill = math::expected_fill(ranges, cells, shape.probes, 100_000.0);
            assert!((shape.items_at(fill) / 100_000.0 - 1.0).abs() < 1e-6);
            assert!((shape.rate_now(fill) / 0.01 - 1.0).abs() < 0.01);
            assert_eq!(shape.rate_now(1.0), 1.0);
        }
    }

    #[test]
    fn a_chain_never_spends_more_than_its_error_rate() {
        for (capacity, expansion) in [(100, 2), (100, 1), (1, 4), (10_000_000, 2), (10_000_000, 1)] {
            for tightening in [Tightening::INVERSE_SQUARE, Tightening::geometric(0.5).unwrap()] {
                let family = Family::Scaling { expansion, tightening };
                let spec = Spec { family, ..Spec::scaling(capacity, 0.01) };
                let (mut so_far, mut sum) = (Vec::new(), 0.0);
                for _ in 0..300 {
                    let layer = spec.next_layer(&so_far);
                    sum += layer.error_rate;
                    so_far.push(layer.capacity);
                }
                assert!(sum <= 0.01 + 1e-17, "{capacity} {expansion} {sum}");
            }
        }
    }

    #[test]
    fn growing_from_the_default_costs_little_more_than_half_of_redisbloom() {
        let spec = Spec::scaling(100, 0.01);
        let (mut so_far, mut bytes) = (Vec::new(), 0);
        while so_far.iter().sum::<u64>() < 10_000_000 {
            let layer = spec.next_layer(&so_far);
            bytes += spec.next_shape(&so_far).unwrap().bytes();
            so_far.push(layer.capacity);
        }
        // RedisBloom halves the rate per layer and ends at 53.5 MB.
        println!("{} layers, {bytes} bytes", so_far.len());
        assert!((bytes as f64) < 0.6 * 53.5e6, "{bytes}");
    }

    #[test]
    fn what_no_size_holds_is_an_error() {
        // CLASSIC keeps this promise. BLOCKED can't at any size up to the limit: a block has only 32 counters of 16
        // bits.
        let layer = LayerSpec { cell: Cell::Counter16, ..LayerSpec::new(1 << 36, 1e-12) };
        assert!(layer.shape().is_ok());
        let blocked = LayerSpec { layout: LayoutChoice::Blocked, ..layer };
        assert_eq!(blocked.shape(), Err(Error::Unreachable { error_rate: 1e-12 }));
        let many = LayerSpec::new(1 << 47, 0.01);
        assert!(matches!(many.shape(), Err(Error::OutOfMemory { bytes }) if bytes > 1 << 47));
    }

    #[test]
    fn a_size_and_a_number_of_probes_are_a_spec() {
        for (bits, probes) in [(64, 1), (1000, 7), (1 << 20, 10), (9_592_955, 7), (1 << 33, 20)] {
            let spec = Spec::in_bits(bits, probes).unwrap();
            let shape = spec.next_shape(&[]).unwrap();
            assert_eq!(shape.probes, probes, "{bits}");
            assert!(shape.cells <= bits && shape.cells + 64 > bits, "{bits}: {}", shape.cells);
            let more = Spec { capacity: spec.capacity + 1, ..spec };
            assert!(more.next_shape(&[]).unwrap().cells > bits);
        }
        assert!(Spec::in_bits(1000, 0).is_err() && Spec::in_bits(1000, 40).is_err());
        assert_eq!(Spec::in_bits(10, 7), Err(Error::Capacity(0)), "no word");
    }
}
