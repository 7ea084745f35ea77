//! RedisBloom's chains: their flags, and the parameters of a new one.

/// The number of bits isn't rounded up to a power of two.
pub const NO_ROUND: u32 = 1;
/// Hashes have 64 bits.
pub const FORCE_64: u32 = 4;
/// The capacity is fixed.
pub const NO_SCALING: u32 = 8;

/// The parameters of a chain when RedisBloom creates one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChainSpec {
    /// Items of the first link, at least 1.
    pub capacity: u64,
    /// Error rate, above 0 and below 1.
    pub error_rate: f64,
    /// Ratio of the capacities of consecutive links. A chain of fixed capacity stores one but does not use it.
    pub growth: u32,
    /// Whether the chain grows.
    pub scales: bool,
}

impl ChainSpec {
    /// Its flags.
    pub(super) fn options(&self) -> u32 {
        NO_ROUND | FORCE_64 | if self.scales { 0 } else { NO_SCALING }
    }
}
