//! How scaling filters grow.

use crate::redisbloom;
use crate::wanted::Wanted;
use bloomery::{Family, Overflow, Spec};
use serde::Serialize;

/// A scaling filter that has grown to `layers` layers.
#[derive(Debug, Serialize)]
pub struct Growth {
    pub(crate) layers: u64,
    pub(crate) capacity: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) bits_per_item: f64,
    /// Error rate over all layers, at capacity.
    pub(crate) error_rate: f64,
    /// Memory of a fixed filter of this capacity.
    pub(crate) fixed_bytes: u64,
    /// Memory of RedisBloom's filter when it has grown to this capacity; `None` if it can't.
    pub(crate) redisbloom_bytes: Option<u64>,
}

/// The size of a filter that has grown.
struct Size {
    layers: usize,
    capacity: u64,
    memory_bytes: u64,
    /// Chance that no layer gives a false positive, at capacity.
    none_lies: f64,
}

/// Computes how a scaling filter grows to `times` its capacity: one step per layer or, with a table, per doubling.
/// Empty for other filters, and for tables alone, which have no capacity.
pub(crate) fn growth(wanted: &Wanted, times: u64) -> Vec<Growth> {
    let Wanted::Bloom(spec) = wanted else { return Vec::new() };
    if !matches!(spec.family, Family::Scaling { .. }) || spec.is_table() {
        return Vec::new();
    }
    let target = spec.capacity.saturating_mul(times);
    let sizes = if spec.adds_table() { with_a_table(spec, target) } else { by_layers(spec, target) };
    let growth = |Size { layers, capacity, memory_bytes, none_lies }: Size| {
        let fixed = Spec { family: Family::Fixed(Overflow::Error), capacity, ..*spec };
        Growth {
            layers: layers as u64,
            capacity,
            memory_bytes,
            bits_per_item: memory_bytes as f64 * 8.0 / capacity as f64,
            error_rate: 1.0 - none_lies,
            fixed_bytes: fixed.next_shape(&[]).map_or(0, |shape| shape.bytes()),
            redisbloom_bytes: redisbloom::growth(spec)
                .find(|(items, _)| *items >= capacity)
                .map(|(_, bytes)| bytes),
        }
    };
    sizes.into_iter().map(growth).collect()
}

fn by_layers(spec: &Spec, target: u64) -> Vec<Size> {
    let (mut capacities, mut sizes) = (Vec::new(), Vec::new());
    let (mut capacity, mut memory_bytes, mut none_lies) = (0u64, 0u64, 1.0f64);
    // At most 64 steps: with expansion 1, each layer adds little capacity, so more steps would add little information.
    while capacity < target && sizes.len() < 64 {
        let Ok(shape) = spec.next_shape(&capacities) else { break };
        capacities.push(shape.capacity);
        capacity = capacity.saturating_add(shape.capacity);
        memory_bytes = memory_bytes.saturating_add(shape.bytes());
        none_lies *= 1.0 - shape.rate_at(shape.capacity as f64);
        sizes.push(Size { layers: capacities.len(), capacity, memory_bytes, none_lies });
    }
    sizes
}

fn with_a_table(spec: &Spec, target: u64) -> Vec<Size> {
    let Ok(bits) = spec.next_shape(&[]) else { return Vec::new() };
    let Ok(table) = spec.next_shape(&[bits.capacity]) else { return Vec::new() };
    let none_lies = 1.0 - bits.rate_at(bits.capacity as f64);
    let first = Size { layers: 1, capacity: bits.capacity, memory_bytes: bits.bytes(), none_lies };
    let capacities = std::iter::successors(Some(bits.capacity), |capacity| capacity.checked_mul(2));
    let grown =
        capacities.skip(1).take_while(|capacity| *capacity < target.saturating_mul(2)).map(|capacity| {
            let capacity = capacity.min(target);
            let (bits_per_item, rate) = grown_table(table.error_rate, capacity - bits.capacity);
            let memory_bytes = (bits_per_item * (capacity - bits.capacity) as f64 / 8.0) as u64;
            Size {
                layers: 2,
                capacity,
                memory_bytes: bits.bytes().saturating_add(memory_bytes),
                none_lies: none_lies * (1.0 - rate),
            }
        });
    std::iter::once(first).chain(grown).collect()
}

/// An estimate of the bits per item and the error rate of a table that grew from nothing to this many items. The first
/// leaf of 820 items and each doubling use an eighth of the rate that is left. Besides the prefix's bits beyond the
/// address, a cell has about 5 bits: the mark, its part of the unary code, and what is unused.
fn grown_table(error_rate: f64, items: u64) -> (f64, f64) {
    let doublings = (items as f64 / 820.0).log2().max(0.0);
    let left = error_rate * 0.875f64.powf(doublings);
    ((8.0 / left).log2() + 5.0, error_rate - 0.875 * left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bloomery::{Bloom, Layout};

    #[test]
    fn growth_is_that_of_a_filter_that_grew() {
        let spec = Spec { layout: Some(Layout::Blocked), ..Spec::scaling(1000, 0.01) };
        let steps = growth(&Wanted::Bloom(spec), 10);
        let mut real = Bloom::new(spec).unwrap();
        for step in &steps {
            assert_eq!((step.capacity, step.memory_bytes), (real.capacity(), real.bytes()));
            assert!(step.error_rate <= 0.01);
            real.grow().unwrap();
        }
        assert!(steps.last().unwrap().capacity >= 10_000 && steps[steps.len() - 2].capacity < 10_000);
    }

    #[test]
    fn growth_with_a_table_is_estimated() {
        for error_rate in [0.01, 0.001] {
            let spec = Spec::scaling(1000, error_rate);
            let steps = growth(&Wanted::Bloom(spec), 300);
            let (mut real, mut items) = (Bloom::new(spec).unwrap(), 0u64..);
            for step in &steps {
                while real.items() < step.capacity {
                    real.insert(items.next().unwrap().to_le_bytes()).unwrap();
                }
                let (memory, rate) =
                    (step.memory_bytes as f64 / real.bytes() as f64, step.error_rate / real.rate_now());
                println!("{} items: {memory:.2} of the memory, {rate:.2} of the rate", step.capacity);
                assert!((0.85..1.2).contains(&memory), "{step:?}: {memory}");
                assert!(step.error_rate <= error_rate && (0.8..1.5).contains(&rate), "{step:?}: {rate}");
            }
            assert_eq!(steps.last().unwrap().capacity, 300_000);
        }
    }
}
