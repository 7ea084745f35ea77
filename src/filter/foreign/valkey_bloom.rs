//! valkey-bloom's chains: the parameters of a new chain.

use super::LinkSpec;

/// The seed of all filters that valkey-bloom creates with `bloom-use-random-seed no`.
pub const FIXED_SEED: [u8; 32] = [
    0x59, 0x0f, 0xf5, 0x22, 0xea, 0x78, 0x11, 0xda, 0xa7, 0x14, 0xd8, 0x09, 0x3b, 0x3e, 0x7b, 0xd9, 0x1d,
    0x89, 0x8a, 0x73, 0x3e, 0x98, 0x88, 0x87, 0x30, 0x7f, 0x97, 0xcd, 0x28, 0x07, 0x33, 0x83,
];

/// The default ratio of the error rates of consecutive links.
pub const TIGHTENING: f64 = 0.5;

/// The parameters with which valkey-bloom creates a chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValkeySpec {
    /// Number of items that the first link is sized for, at least 1.
    pub capacity: u64,
    /// Error rate of the first link, above 0 and below 1.
    pub error_rate: f64,
    /// Ratio of the capacities of consecutive links; 0 for a chain with a fixed capacity.
    pub expansion: u32,
    /// Ratio of the error rates of consecutive links, above 0 and below 1.
    pub tightening: f64,
    /// The keys of the chain's two hashes.
    pub seed: [u8; 32],
}

impl ValkeySpec {
    /// The first link; `None` if valkey-bloom would refuse these parameters.
    pub fn first_link(&self) -> Option<LinkSpec> {
        LinkSpec::valkey_bloom(self.capacity, self.error_rate)
    }
}
