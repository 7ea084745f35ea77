//! Computes the geometry of a filter's layers from its parameters: how the layers of a chain or window share the error
//! rate, and how the capacity grows.

use super::Bloom;
use crate::error::Error;
use crate::filter::layout::{AUTO_PENALTY, AUTO_PENALTY_IN_CHAIN, LayerSpec, Shape};
use crate::math;
use crate::params::{Family, Layout, Spec, limits};

/// A layer of a chain has at least 1/8 of the capacity of all layers before it, whatever the expansion. So the number
/// of layers grows with the logarithm of the number of items: with expansion 1, a filter of capacity 1 has 112 layers
/// at a million items, and 277 at [`limits::MAX_CAPACITY`]. The rule never matters for expansion 2 or more.
const LEAST_PART: u64 = 8;

/// The share of layer j in a chain's error rate: 6/((3j+2)(3j+5)) = 2/(3j+2) − 2/(3j+5), so the shares of any number
/// of layers sum to less than 1.
fn inverse_square(index: usize) -> f64 {
    let rank = 3.0 * index as f64;
    6.0 / ((rank + 2.0) * (rank + 5.0))
}

/// The largest capacity that `fits`, if a larger one needs more, and no item needs less than one of `bits`.
fn largest(bits: u64, fits: impl Fn(u64) -> bool) -> Result<u64, Error> {
    let (mut fitting, mut too_many) = (0, bits.min(limits::MAX_CAPACITY).saturating_add(1));
    while fitting + 1 < too_many {
        let middle = fitting + (too_many - fitting) / 2;
        if fits(middle) {
            fitting = middle;
        } else {
            too_many = middle;
        }
    }
    if fitting == 0 { Err(Error::Capacity(0)) } else { Ok(fitting) }
}

impl Spec {
    /// The spec of a filter of at most `bits` bits in which an item has `probes` probes. Its error rate is 2^−probes,
    /// the rate for which that number of probes is best. Its capacity is the largest that keeps the error rate. This
    /// function is the inverse of sizing by capacity and error rate.
    ///
    /// # Errors
    /// [`Error::ErrorRate`] for 0 or more than 39 probes, [`Error::Capacity`] if not even one item fits.
    pub fn in_bits(bits: u64, probes: u32) -> Result<Spec, Error> {
        let error_rate = libm::exp2(-f64::from(probes));
        if probes == 0 || error_rate < limits::MIN_ERROR_RATE {
            return Err(Error::ErrorRate(error_rate));
        }
        let spec = |capacity| Spec { layout: Some(Layout::Classic), ..Spec::fixed(capacity, error_rate) };
        let fits = |capacity: u64| spec(capacity).next_shape(&[]).is_ok_and(|shape| shape.cells <= bits);
        largest(bits, fits).map(spec)
    }

    /// This spec with the largest capacity with which a full filter needs at most this much memory. For a table, whose
    /// memory depends on when its items came, the capacity is chosen so that it usually needs less.
    ///
    /// # Errors
    /// [`Error::Capacity`] if not even one item fits; the errors of [`validate`](Spec::validate).
    pub fn within(self, bytes: u64) -> Result<Spec, Error> {
        self.validate()?;
        let spec = |capacity| Spec { capacity, ..self };
        let fits = |capacity: u64| Bloom::bytes_for(&spec(capacity)).is_ok_and(|full| full <= bytes);
        largest(bytes.saturating_mul(8), fits).map(spec)
    }

    /// Shape of the next layer of a filter of this spec, after layers with the capacities `so_far`.
    ///
    /// # Errors
    /// Same as `LayerSpec::shape`.
    pub fn next_shape(&self, so_far: &[u64]) -> Result<Shape, Error> {
        let penalty = match self.family {
            Family::Scaling { .. } => AUTO_PENALTY_IN_CHAIN,
            _ => AUTO_PENALTY,
        };
        let layer = self.next_layer(so_far);
        layer.shape_within(penalty)
    }

    /// The requirements for the table of a filter that has grown. The first layer has its share of the error rate; the
    /// rest is for the table, however many items come.
    pub(crate) fn table_layer(&self) -> LayerSpec {
        LayerSpec {
            capacity: 1,
            error_rate: self.error_rate * (1.0 - inverse_square(0)),
            layout: Some(Layout::Quotient),
            cell: self.cell,
            shards: self.shards,
            generations: 0,
        }
    }

    /// The requirements for the next layer of a filter of this spec, after layers with the capacities `so_far`.
    ///
    /// A chain must stay within its error rate, no matter how far it grows. Most chains never grow, so by default the
    /// first layer gets 60% of the rate, and the table or the other layers get the rest.
    pub(crate) fn next_layer(&self, so_far: &[u64]) -> LayerSpec {
        let mut generations = 0;
        let layout = if self.is_list() { Some(Layout::List) } else { self.layout };
        let (capacity, error_rate) = match self.family {
            Family::Fixed(_) => (self.capacity, self.error_rate),
            Family::Window { generations: number, .. } if self.is_table() => {
                generations = number;
                (self.capacity.saturating_mul(number.into()), self.error_rate)
            }
            Family::Window { generations, .. } => (self.capacity, self.error_rate / f64::from(generations)),
            // A table grows by itself: the next layer stands for as many items as there are.
            Family::Scaling { .. } if self.is_table() => {
                let all = so_far.iter().fold(0u64, |sum, one| sum.saturating_add(*one));
                (all.max(self.capacity).min(limits::MAX_CAPACITY), self.error_rate)
            }
            Family::Scaling { .. } if self.adds_table() && !so_far.is_empty() => return self.table_layer(),
            Family::Scaling { expansion, tightening } => {
                let capacity = so_far.last().map_or(self.capacity, |last| {
                    let all = so_far.iter().fold(0u64, |sum, one| sum.saturating_add(*one));
                    last.saturating_mul(expansion.into()).max(all / LEAST_PART).min(limits::MAX_CAPACITY)
                });
                let share = match tightening.ratio() {
                    Some(ratio) => (1.0 - ratio) * math::power(ratio, so_far.len() as u32),
                    None => inverse_square(so_far.len()),
                };
                (capacity, (self.error_rate * share).max(limits::MIN_LAYER_ERROR_RATE))
            }
        };
        let Spec { cell, shards, .. } = *self;
        LayerSpec { capacity, error_rate, layout, cell, shards, generations }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Tightening;

    #[test]
    fn layers_are_few_whatever_the_expansion() {
        let layers = |first: u64, expansion: u32, items: u64| {
            let family = Family::Scaling { expansion, tightening: Tightening::INVERSE_SQUARE };
            let spec = Spec { family, layout: Some(Layout::Classic), ..Spec::scaling(first, 0.01) };
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

    #[test]
    fn a_chain_never_spends_more_than_its_error_rate() {
        for (capacity, expansion) in [(100, 2), (100, 1), (1, 4), (10_000_000, 2), (10_000_000, 1)] {
            for tightening in [Tightening::INVERSE_SQUARE, Tightening::geometric(0.5).unwrap()] {
                let family = Family::Scaling { expansion, tightening };
                let spec = Spec { family, layout: Some(Layout::Blocked), ..Spec::scaling(capacity, 0.01) };
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
