//! RedisBloom's chains: their flags and the parameters of a new chain.

/// Flag: the number of bits isn't rounded up to a power of two.
pub const NO_ROUND: u32 = 1;
/// Flag: hashes have 64 bits.
pub const FORCE_64: u32 = 4;
/// Flag: the capacity is fixed.
pub const NO_SCALING: u32 = 8;

/// The parameters with which RedisBloom creates a chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChainSpec {
    /// Number of items that the first link is sized for, at least 1.
    pub capacity: u64,
    /// Error rate, above 0 and below 1.
    pub error_rate: f64,
    /// Ratio of the capacities of consecutive links. A chain with a fixed capacity stores this ratio but doesn't use
    /// it.
    pub growth: u32,
    /// Whether the chain grows.
    pub scales: bool,
}

impl ChainSpec {
    /// The chain's flags.
    pub(super) fn options(&self) -> u32 {
        NO_ROUND | FORCE_64 | if self.scales { 0 } else { NO_SCALING }
    }
}
