//! Computes the geometry of a layer from its requirements.
//!
//! Sizing keeps the promised error rate exactly. It takes into account rounding to whole probes and whole words, the
//! penalty of blocks and the imbalance of shards.
//!
//! The function from parameters to geometry is part of the format, because a primary and its replica each derive the
//! layers of a growing filter. tests/library/sizing.rs pins its results.

use super::dispatch;
use super::shape::{LayerSpec, Shape};
use crate::error::Error;
use crate::params::{Layout, limits};

/// AUTO chooses BLOCKED if it needs at most this many times the memory of CLASSIC.
pub(crate) const AUTO_PENALTY: f64 = 1.15;

/// AUTO chooses BLOCKED for a layer of a chain if it needs at most this many times the memory of CLASSIC. The layers
/// of a chain have lower error rates, for which blocks cost more.
pub(crate) const AUTO_PENALTY_IN_CHAIN: f64 = 1.10;

/// AUTO chooses CLASSIC for layers up to this size, which fit into the second-level cache of a server's core. In the
/// cache, the lines of several probes cost little more than one line, so blocks aren't worth their memory.
const CACHED_BYTES: u64 = 512 << 10;

#[cfg(feature = "std")]
std::thread_local! {
    /// The requirements, the penalty and the shape that this thread computed last. Most filters are created like the
    /// one before them, and a full chain that can't grow requests the same layer with every add. Computing takes half
    /// a microsecond or more.
    static LAST: core::cell::Cell<Option<(LayerSpec, f64, Shape)>> = const { core::cell::Cell::new(None) };
}

impl LayerSpec {
    /// The smallest shape that keeps the promise.
    ///
    /// # Errors
    /// An error that names the parameter that is out of range. If no size up to [`limits::MAX_BYTES`] keeps the
    /// promise, the error is [`Error::OutOfMemory`] for too many items, or [`Error::Unreachable`] if the layout is the
    /// reason.
    pub fn shape(&self) -> Result<Shape, Error> {
        self.shape_within(AUTO_PENALTY)
    }

    /// Like [`shape`](LayerSpec::shape), but with this penalty instead of [`AUTO_PENALTY`].
    pub(crate) fn shape_within(&self, penalty: f64) -> Result<Shape, Error> {
        #[cfg(feature = "std")]
        if let Some((spec, within, shape)) = LAST.get()
            && spec == *self
            && within == penalty
        {
            return Ok(shape);
        }
        let shape = self.solve(penalty)?;
        #[cfg(feature = "std")]
        LAST.set(Some((*self, penalty, shape)));
        Ok(shape)
    }

    fn solve(&self, penalty: f64) -> Result<Shape, Error> {
        if !(limits::MIN_LAYER_ERROR_RATE..1.0).contains(&self.error_rate) {
            return Err(Error::ErrorRate(self.error_rate));
        }
        if !(1..=limits::MAX_CAPACITY).contains(&self.capacity) {
            return Err(Error::Capacity(self.capacity));
        }
        if !self.shards.is_power_of_two() || self.shards > limits::MAX_SHARDS {
            return Err(Error::Shards(self.shards.into()));
        }
        if let Some(layout) = self.layout {
            return self.smallest(layout);
        }
        let classic = self.smallest(Layout::Classic)?;
        if classic.bytes() <= CACHED_BYTES {
            return Ok(classic);
        }
        match self.smallest(Layout::Blocked) {
            Ok(blocked) if blocked.cells as f64 <= penalty * classic.cells as f64 => Ok(blocked),
            _ => Ok(classic),
        }
    }

    fn smallest(&self, layout: Layout) -> Result<Shape, Error> {
        dispatch!(layout, A => A::smallest(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params;

    #[test]
    fn what_no_size_holds_is_an_error() {
        // CLASSIC keeps this promise. BLOCKED can't at any size up to the limit: a block has only 32 counters of 16
        // bits.
        let layer = LayerSpec { cell: params::Cell::Counter16, ..LayerSpec::new(1 << 36, 1e-12) };
        assert!(layer.shape().is_ok());
        let blocked = LayerSpec { layout: Some(Layout::Blocked), ..layer };
        assert_eq!(blocked.shape(), Err(Error::Unreachable { error_rate: 1e-12 }));
        let many = LayerSpec::new(1 << 47, 0.01);
        assert!(matches!(many.shape(), Err(Error::OutOfMemory { bytes }) if bytes > 1 << 47));
    }
}
