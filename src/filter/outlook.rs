//! How far filters can grow: the arrays of cells that they would add, in order.

use super::foreign::LinkSpec;
use super::live::LiveRef;
use crate::params::{Family, Layout, Spec, limits};
use alloc::{boxed::Box, vec::Vec};

/// An array of cells that a filter adds when it grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Number of items that the array is sized for.
    pub capacity: u64,
    /// Size of its cells in bytes.
    pub bytes: u64,
}

impl From<LinkSpec> for Step {
    fn from(link: LinkSpec) -> Step {
        Step { capacity: link.capacity, bytes: link.bytes }
    }
}

/// The layers that a filter with this spec adds after layers with the capacities in `so_far`. For a table, each step
/// doubles the filter.
pub fn layers_after(mut spec: Spec, mut so_far: Vec<u64>) -> impl Iterator<Item = Step> {
    core::iter::from_fn(move || {
        if so_far.len() >= limits::MAX_LAYERS {
            return None;
        }
        if spec.adds_table() && !so_far.is_empty() {
            let error_rate = spec.next_layer(&so_far).error_rate;
            spec = Spec { layout: Some(Layout::Quotient), error_rate, ..spec };
        }
        let shape = spec.next_shape(&so_far).ok()?;
        so_far.push(shape.capacity);
        Some(Step { capacity: shape.capacity, bytes: shape.bytes() })
    })
}

impl<'a> LiveRef<'a> {
    /// The arrays of cells that the filter would add if it continued to grow. There are none if its capacity is fixed.
    pub fn outlook(self) -> Box<dyn Iterator<Item = Step> + 'a> {
        match self {
            LiveRef::Bloom(filter) if matches!(filter.spec().family, Family::Scaling { .. }) => {
                let capacities = filter.layers().iter().map(|layer| layer.room(true)).collect();
                Box::new(layers_after(filter.spec(), capacities))
            }
            LiveRef::Bloom(_) => Box::new(core::iter::empty()),
            LiveRef::Foreign(filter) => Box::new(filter.next_links().map(Step::from)),
        }
    }
}
