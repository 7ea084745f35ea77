//! Flags of a RedisBloom chain.

/// The number of bits isn't rounded up to a power of two.
pub const NO_ROUND: u32 = 1;
/// Hashes have 64 bits.
pub const FORCE_64: u32 = 4;
/// The capacity is fixed.
pub const NO_SCALING: u32 = 8;
