//! The smallest size of a layer in which an item has probes.

use super::{LEAST_SHARD_BITS, Probes};
use crate::error::Error;
use crate::filter::layout::algorithm::Algorithm;
use crate::filter::layout::shape::{LayerSpec, Shape};
use crate::math;
use crate::params::limits;

/// An upper bound on the relative error of the first guess of a size, and of the error rate that is computed from it.
const ROUNDING: f64 = 1e-9;

/// The divisor that the number of cells must have.
pub(super) fn stride<P: Probes>(shape: &Shape) -> u64 {
    (P::unit(shape.probes) << shape.cell.log2_per_word()) * u64::from(shape.shards)
}

/// The smallest shape over all sensible numbers of probes. Each shard consists of whole words (CLASSIC), of whole
/// blocks (BLOCKED), or of slices of whole words (PARTITIONED). The ideal number of probes is log2(1/p), and the
/// best whole number is one of its neighbours. Blocks need fewer probes. So numbers are tried from the ideal one
/// downwards, until one needs no less memory. For slices, all numbers are tried: if slices have only a few words,
/// rounding decides which number is best.
pub(super) fn smallest<P: Probes>(spec: &LayerSpec) -> Result<Shape, Error> {
    let ideal = libm::ceil(-libm::log2(spec.error_rate)).clamp(1.0, limits::MAX_PROBES as f64) as u32;
    let ln_rate = libm::log(spec.error_rate);
    let shape = |cells: u64, probes: u32| spec.shaped(P::LAYOUT, cells, probes);
    let most = limits::MAX_BYTES * 8 / u64::from(spec.cell.bits());
    let mut best: Option<Shape> = None;
    for probes in (1..=ideal).rev() {
        let stride = stride::<P>(&shape(0, probes));
        let below = best.map_or(most / stride + 1, |best| best.cells.div_ceil(stride));
        match fewest_units::<P>(spec, below, stride, (probes, ln_rate), |units| shape(units * stride, probes))
        {
            Some(units) => best = Some(shape(units * stride, probes)),
            None if best.is_some() && !P::TRIES_ALL => break,
            None => {}
        }
    }
    let bits = if spec.shards > 1 { LEAST_SHARD_BITS * u64::from(spec.shards) } else { 0 };
    let least = |stride: u64| (bits / u64::from(spec.cell.bits())).next_multiple_of(stride);
    best.map(|best| Shape { cells: best.cells.max(least(stride::<P>(&best))), ..best }).ok_or_else(|| {
        let bytes = textbook_cells(spec) * f64::from(spec.cell.bits()) / 8.0;
        if bytes * 4.0 > limits::MAX_BYTES as f64 {
            Error::OutOfMemory { bytes: bytes as u64 }
        } else {
            Error::Unreachable { error_rate: spec.error_rate }
        }
    })
}

/// Cells of a classic filter without rounding: n·log2(1/p)/ln 2.
fn textbook_cells(spec: &LayerSpec) -> f64 {
    spec.capacity as f64 * -libm::log2(spec.error_rate) / math::LN_2
}

/// The smallest number of units below `below` that keeps the rate. The first guess is the number of cells that
/// would be enough if all ranges had the same number of items, −k·n / ln(1 − p^(1/k)). It is never too large.
/// Secants of the logarithms of rate and size lead from there to the answer. One range needs one or two
/// evaluations, and bits in blocks at most eight. One unit less than the answer is either less than the first
/// guess, or was evaluated, so the answer is exact, no matter how good the other guesses are.
fn fewest_units<P: Probes>(
    spec: &LayerSpec,
    below: u64,
    stride: u64,
    (probes, ln_rate): (u32, f64),
    mut shape: impl FnMut(u64) -> Shape,
) -> Option<u64> {
    let (k, items) = (f64::from(probes), spec.capacity as f64);
    let fill = libm::exp(ln_rate / k);
    let load = -libm::log1p(-fill);
    // The derivative of ln((1 − e^−load)^k) with respect to ln m.
    let mut slope = -k * load * (1.0 - fill) / fill;
    let exact = k * items / load / stride as f64;
    let mut units = libm::ceil(exact) as u64;
    // Everything that the guess leaves out raises the rate, so fewer units can't be enough.
    if units >= below {
        return None;
    }
    let (mut low, mut high) = (0, below);
    // If a unit is one word, there is one range. Its computed rate is so exact that fewer units needn't be tried,
    // unless the guess was so close to a whole number that rounding errors mattered. The rate of several ranges is
    // a sum, which is less exact.
    if stride == 1 << spec.cell.log2_per_word() {
        low = (libm::ceil(exact * (1.0 - ROUNDING)) as u64).saturating_sub(1);
    }
    let mut last: Option<(f64, f64)> = None;
    for evaluations in (0..).take_while(|_| below > 1) {
        // Secants become slow where hardly any size keeps the rate; halving always ends.
        units = if evaluations < 10 { units.clamp(low + 1, high - 1) } else { low + (high - low) / 2 };
        let rate = P::rate_at(&shape(units), items);
        if rate <= spec.error_rate {
            high = units
        } else {
            low = units
        }
        if high - low <= 1 {
            break;
        }
        let (size, excess) = (libm::log(units as f64), libm::log(rate / spec.error_rate));
        if let Some((before, then)) = last {
            let secant = (excess - then) / (size - before);
            if secant < 0.0 && secant.is_finite() {
                slope = secant;
            }
        }
        last = Some((size, excess));
        units = libm::ceil(units as f64 * libm::exp(-excess / slope)) as u64;
    }
    (high < below).then_some(high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::layout::blocked::Blocked;
    use crate::filter::layout::classic::Classic;
    use crate::filter::layout::partitioned::Partitioned;
    use crate::filter::layout::probes::schedule::BLOCK_BITS;
    use crate::params::{Cell, Layout};

    const LAYOUTS: [Layout; 3] = [Layout::Classic, Layout::Blocked, Layout::Partitioned];

    /// Requirements for layers of all sizes, rates, cells and numbers of shards.
    fn questions() -> impl Iterator<Item = LayerSpec> {
        let capacities = [1, 2, 7, 10, 99, 100, 1000, 12_345, 1_000_000, 77_777_777, 1 << 33];
        let rates = [0.9, 0.5, 0.1, 0.03, 0.01, 0.006, 0.001, 1e-4, 1e-7, 1e-12, 1e-20];
        let cells =
            [(Cell::Bit, 1), (Cell::Bit, 16), (Cell::Counter4, 1), (Cell::Counter8, 4), (Cell::Bit, 1024)];
        capacities.into_iter().flat_map(move |capacity| {
            rates.into_iter().flat_map(move |error_rate| {
                cells.into_iter().flat_map(move |(cell, shards)| {
                    LAYOUTS.map(|layout| LayerSpec {
                        capacity,
                        error_rate,
                        layout: Some(layout),
                        cell,
                        shards,
                        generations: 0,
                    })
                })
            })
        })
    }

    fn stride_of(shape: &Shape) -> u64 {
        let unit = match shape.layout {
            Layout::Classic => u64::BITS,
            Layout::Partitioned => u64::BITS * shape.probes,
            _ => BLOCK_BITS,
        };
        u64::from(unit / shape.cell.bits() * shape.shards)
    }

    /// No smaller size keeps the promise with the shape's number of probes, with more, or with one fewer. For slices,
    /// no smaller size keeps it with any number of probes.
    #[test]
    fn one_word_or_block_less_would_break_the_promise() {
        let mut asked = 0;
        for spec in questions() {
            let Ok(shape) = spec.shape() else { continue };
            asked += 1;
            assert!(shape.check().is_ok());
            let holds = |cells, probes| {
                cells > 0 && Shape { cells, probes, ..shape }.rate_at(spec.capacity as f64) <= spec.error_rate
            };
            assert!(holds(shape.cells, shape.probes), "{spec:?}");
            let ideal = libm::ceil(-libm::log2(spec.error_rate)).clamp(1.0, 72.0) as u32;
            let least = (LEAST_SHARD_BITS / u64::from(shape.cell.bits()) * u64::from(shape.shards))
                .next_multiple_of(stride_of(&shape));
            if shape.shards > 1 && shape.cells <= least {
                continue;
            }
            let fewest = if shape.layout == Layout::Partitioned { 1 } else { shape.probes.max(2) - 1 };
            for probes in fewest..=ideal {
                let stride = stride_of(&Shape { probes, ..shape });
                let fewer = (shape.cells - 1) / stride * stride;
                assert!(!holds(fewer, probes), "{spec:?} with {probes} probes");
            }
        }
        assert!(asked > 1000, "{asked}");
    }

    /// Sizing must be fast, because many filters are small, and each is sized when it is created.
    #[test]
    fn sizes_are_found_in_few_evaluations() {
        let mut most = [0; 3];
        for spec in questions() {
            let Ok(shape) = spec.shape() else { continue };
            let stride = stride_of(&shape);
            let mut evaluations = 0;
            let limit = limits::MAX_BYTES * 8 / stride;
            let probes = (shape.probes, libm::log(spec.error_rate));
            let mut count = |units| {
                evaluations += 1;
                Shape { cells: units * stride, ..shape }
            };
            let found = match shape.layout {
                Layout::Blocked => fewest_units::<Blocked>(&spec, limit, stride, probes, &mut count),
                Layout::Classic => fewest_units::<Classic>(&spec, limit, stride, probes, &mut count),
                _ => fewest_units::<Partitioned>(&spec, limit, stride, probes, &mut count),
            };
            let least = if shape.shards > 1 { u64::from(shape.shards) * LEAST_SHARD_BITS } else { 0 };
            let least = (least / u64::from(shape.cell.bits())).next_multiple_of(stride);
            let cells = found.map(|units| (units * stride).max(least));
            assert_eq!(cells, Some(shape.cells), "{spec:?}");
            let kind = match (shape.layout, shape.shards, shape.cell) {
                (Layout::Classic | Layout::Partitioned, 1, _) => 0,
                (Layout::Blocked, _, Cell::Bit) | (Layout::Classic | Layout::Partitioned, ..) => 1,
                // With only a few counters per block, the lowest rates need absurd sizes.
                (Layout::Blocked, ..) => 2,
                _ => unreachable!("it isn't asked for"),
            };
            most[kind] = evaluations.max(most[kind]);
        }
        println!("at most {most:?} evaluations");
        assert!(most[0] <= 2 && most[1] <= 8 && most[2] <= 60, "{most:?}");
    }
}
