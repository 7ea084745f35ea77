//! The options of the module: names, defaults, ranges. The server holds the values; this says what they mean.

use crate::params::{Family, Overflow, Tightening};

/// The values in force.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Error rate of a filter that an add creates, in (0, 1).
    pub error_rate: f64,
    /// Capacity of a filter that an add creates.
    pub initial_size: u64,
    /// Expansion of a filter that is created without one, 0 for a filter that does not scale.
    pub expansion: u32,
    /// Bytes of cells that one filter may have; 0 for as many as the machine has memory.
    pub max_filter_bytes: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { error_rate: 0.01, initial_size: 100, expansion: 2, max_filter_bytes: 0 }
    }
}

impl Settings {
    /// The family that an expansion means: 0 does not scale, as in RedisBloom.
    pub fn family_for(expansion: u32) -> Family {
        match expansion {
            0 => Family::Fixed(Overflow::Error),
            expansion => Family::Scaling { expansion, tightening: Tightening::INVERSE_SQUARE },
        }
    }
}
