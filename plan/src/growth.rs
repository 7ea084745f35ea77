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

/// Computes how a scaling filter grows to `times` its capacity, one step per layer. Empty for other filters,
/// and for tables, which have no layers.
pub(crate) fn growth(wanted: &Wanted, times: u64) -> Vec<Growth> {
    let Wanted::Bloom(spec) = wanted else { return Vec::new() };
    if !matches!(spec.family, Family::Scaling { .. }) || spec.is_table() {
        return Vec::new();
    }
    let (mut capacities, mut steps) = (Vec::new(), Vec::new());
    let (mut capacity, mut memory_bytes, mut none_lies) = (0u64, 0u64, 1.0f64);
    let target = spec.capacity.saturating_mul(times);
    // At most 64 steps: with expansion 1, each layer adds little capacity, so more steps would add little information.
    while capacity < target && steps.len() < 64 {
        let Ok(shape) = spec.next_shape(&capacities) else { break };
        capacities.push(shape.capacity);
        capacity = capacity.saturating_add(shape.capacity);
        memory_bytes = memory_bytes.saturating_add(shape.bytes());
        none_lies *= 1.0 - shape.rate_at(shape.capacity as f64);
        let fixed = Spec { family: Family::Fixed(Overflow::Error), capacity, ..*spec };
        steps.push(Growth {
            layers: capacities.len() as u64,
            capacity,
            memory_bytes,
            bits_per_item: memory_bytes as f64 * 8.0 / capacity as f64,
            error_rate: 1.0 - none_lies,
            fixed_bytes: fixed.next_shape(&[]).map_or(0, |shape| shape.bytes()),
            redisbloom_bytes: redisbloom::growth(spec)
                .find(|(items, _)| *items >= capacity)
                .map(|(_, bytes)| bytes),
        });
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use bloomery::Bloom;

    #[test]
    fn growth_is_that_of_a_filter_that_grew() {
        let spec = Spec::scaling(1000, 0.01);
        let steps = growth(&Wanted::Bloom(spec), 10);
        let mut real = Bloom::new(spec).unwrap();
        for step in &steps {
            assert_eq!((step.capacity, step.memory_bytes), (real.capacity(), real.bytes()));
            assert!(step.error_rate <= 0.01);
            real.grow().unwrap();
        }
        assert!(steps.last().unwrap().capacity >= 10_000 && steps[steps.len() - 2].capacity < 10_000);
    }
}
