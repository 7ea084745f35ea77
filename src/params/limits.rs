//! The bounds of every parameter. Nothing outside them can be created or loaded.

/// Maximum number of items in one layer: 2^48. Up to this number, sizing in `f64` is exact to the item.
pub const MAX_CAPACITY: u64 = 1 << 48;
/// The smallest error rate that can be promised. Below it, the probes would need more bits than the hash has.
pub const MIN_ERROR_RATE: f64 = 1e-12;
/// The smallest error rate of one layer, which needs 66 or 67 probes. Layers of a chain whose share would be
/// smaller get this rate.
pub const MIN_LAYER_ERROR_RATE: f64 = 1e-20;
/// Maximum number of probes of one item in one layer.
pub const MAX_PROBES: u32 = 72;
/// Maximum number of shards of one layer.
pub const MAX_SHARDS: u32 = 1024;
/// Maximum number of layers of a scaling filter that is loaded or merged: testing an item in all of them takes 0.3
/// ms. A filter grows to at most 277 layers, see `sizing`.
pub const MAX_LAYERS: usize = 4096;
/// Maximum number of pairs of layers that a merge compares, which takes up to 5 ms for small layers.
pub const MAX_PAIRS: usize = 1 << 16;
/// Maximum number of sub-filters of a cuckoo filter: the highest value that RedisBloom's configuration allows.
pub const MAX_TABLES: usize = 65_536;
/// Maximum number of slots of a cuckoo filter that a test of one item visits: two buckets in every sub-filter. With
/// up to 8 slots per bucket, this allows the maximum number of sub-filters. A test of all these slots takes 2 ms.
pub const MAX_SLOTS_ASKED: u64 = 1 << 20;
/// Maximum growth per layer of a scaling filter, as in RedisBloom.
pub const MAX_EXPANSION: u32 = 32_768;
/// Possible numbers of generations of a window. Each generation is a layer that a test visits.
pub const GENERATIONS: core::ops::RangeInclusive<u32> = 2..=64;
/// Possible numbers of generations of a window of [`Layout::Quotient`](super::Layout::Quotient). All generations
/// share one table.
pub const GENERATIONS_IN_TABLE: core::ops::RangeInclusive<u32> = 2..=1000;
/// Latest Unix time in milliseconds: no correct clock gets near it, and the sum of two such times doesn't
/// overflow.
pub const MAX_TIME_MS: u64 = 1 << 62;
/// The highest number that a generation can have.
pub const MAX_GENERATION: u64 = 1 << 62;
/// Largest number of deletes that a rebuild counts.
pub const MAX_DELETES_MISSED: u64 = 1 << 62;
/// Maximum number of probes of an item in another system's filter. bits-and-blooms has no bound of its own.
pub const MAX_FOREIGN_PROBES: u32 = 10_000;
/// Maximum number of links of another system's filter. RedisBloom creates at most 1074, see [`MAX_FOREIGN_WORK`].
/// Commands that describe a filter visit all links: with a million, BF.DEBUG took 0.6 s.
pub const MAX_FOREIGN_LINKS: usize = MAX_LAYERS;
/// Maximum number of probes of an item in all links together. With crafted links, a test can need all these probes,
/// which takes 10 ms. RedisBloom cannot create more: it halves the error rate with each link, so the rate reaches 0
/// after 1074 links, with 578,348 probes.
pub const MAX_FOREIGN_WORK: u64 = 9 << 16;
/// Maximum for counts of other events, such as deletes and moves. No server runs long enough to reach it.
pub const MAX_COUNT: u64 = 1 << 62;
/// Maximum size of one filter's cells in bytes: 2^46, half of what a 64-bit process can address.
pub const MAX_BYTES: u64 = 1 << 46;
