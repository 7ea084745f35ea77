//! Flags of a RedisBloom chain.

/// The number of bits is not rounded up to a power of two.
pub const NO_ROUND: u32 = 1;
/// Hashes of 64 bits.
pub const FORCE_64: u32 = 4;
/// Fixed capacity.
pub const NO_SCALING: u32 = 8;
