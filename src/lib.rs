//! Bloom and cuckoo filters: cache-line blocked, sharded, counting, scaling and windowed. Several threads can read and
//! write a filter. Filters are saved in a versioned format that programs in other languages can read.
//!
//! The crate has two uses. As a library (`default-features = false`) it is plain Rust: no server, no libclang. With the
//! default feature `module` it also contains the module: the package `bloomery-module` links it as `libbloomery.so`,
//! which Redis and Valkey load with `MODULE LOAD`.
//!
//! ```
//! use bloomery::Bloom;
//!
//! // One million items at a false-positive rate of 1%. A full filter grows. Each filter has a random seed.
//! let mut seen = Bloom::scaling(1_000_000, 0.01)?;
//! assert!(seen.insert("ada")?, "she is new");
//! assert!(seen.contains("ada") && !seen.contains("barbara"));
//! seen.extend(["grace", "edsger"]);
//!
//! // Save and load the filter. Later versions and programs in other languages can also load these bytes.
//! let bytes = seen.to_bytes();
//! let loaded = Bloom::from_bytes(&bytes)?;
//! assert_eq!(loaded, seen);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | you want | use |
//! | --- | --- |
//! | a filter that grows, or one of fixed size | [`Bloom::scaling`], [`Bloom::fixed`] |
//! | to delete items | [`Bloom::counting`], or [`Cuckoo`] |
//! | to forget old items | [`Bloom::windowed`] |
//! | the least memory for items that are all known in advance | [`StaticBuilder`] |
//! | several threads that write | [`AtomicBloom`] |
//! | threads that read while one writes | [`Bloom::reader`] |
//! | a size in bits and a number of probes instead of capacity and rate | [`Spec::in_bits`] |
//! | another layout, hash, seed or policy | [`Spec`] with [`Bloom::new`] |
//! | files of bits-and-blooms or Guava, and other systems' filters | [`wire::import`], [`Foreign`] |
//! | `serde` | the feature `serde` |
//!
//! The folders are layers, and each uses only those that follow it here: `module` (the only one that knows a server) →
//! `command` (argv in, reply out) → `wire` (bytes in and out) → `filter` → `bits`. `scripts/layers` checks this.

#![deny(clippy::undocumented_unsafe_blocks)]
#![cfg_attr(
    not(any(feature = "module", feature = "internals")),
    allow(dead_code, unused_imports, reason = "only commands use it, which the plain library does not have")
)]

#[cfg(any(feature = "module", feature = "internals", test))]
#[allow(unreachable_pub, reason = "tests outside the crate reach it through `internals`")]
mod command;
#[cfg(any(feature = "module", feature = "internals", test))]
#[allow(unreachable_pub, reason = "tests outside the crate reach it through `internals`")]
mod config;
#[cfg(any(feature = "module", feature = "internals", test))]
#[allow(unreachable_pub, reason = "tests outside the crate reach it through `internals`")]
mod pool;

#[cfg(any(feature = "module", test))]
mod allocator_choice;
#[allow(unreachable_pub, reason = "tests outside the crate reach it through `internals`")]
mod bits;
mod error;
#[cfg(failpoints)]
mod failpoint;
pub mod filter;
mod hash;
#[doc(hidden)]
pub mod info;
#[allow(unreachable_pub, reason = "tests outside the crate reach it through `internals`")]
mod math;
#[allow(unreachable_pub, reason = "tests outside the crate reach it through `internals`")]
mod mem;
#[allow(unreachable_pub, reason = "tests outside the crate reach it through `internals`")]
mod metrics;
mod murmur;
pub mod options;
#[allow(unreachable_pub, reason = "tests outside the crate reach it through `internals`")]
mod parallel;
mod params;
mod spelling;
mod sync;
pub mod wire;

#[cfg(feature = "module")]
mod module;

/// Internals for the tests, the benchmarks and the fuzz targets of this repository. They may change at any time.
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals {
    pub use crate::parallel::{ParallelFor, Stop, alone};

    pub mod bits {
        pub use crate::bits::*;
    }
    pub mod command {
        pub use crate::command::*;
    }
    pub mod config {
        pub use crate::config::*;
    }
    pub mod math {
        pub use crate::math::*;
    }
    pub mod pool {
        pub use crate::pool::*;
    }
}

pub use bits::Hits;
pub use error::Error;
pub use filter::{
    Added, AtomicBloom, Bloom, Cuckoo, CuckooItem, CuckooSpec, Filter, Foreign, Reader, Removed, Schedule,
    StaticBuilder, Summary,
};
pub use hash::{HashKind, Hashed, Item, Seed};
pub use params::{Cell, Family, Layout, Overflow, Spec, Steps, Tightening, limits};
pub use spelling::UnknownChoice;

#[cfg(feature = "internals")]
#[doc(hidden)]
pub use {
    filter::layout::{Layer, LayerSpec, Shape},
    hash::{Hasher, ItemHash},
};
