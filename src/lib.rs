//! Bloom filters that live in a server: cache-line blocked, sharded, counting, scaling and windowed, readable from
//! several threads, saved through a versioned format that other languages can read.
//!
//! The crate is two things. As a library (`default-features = false`) it is plain Rust: no server, no libclang. With
//! the default feature `module` it is also `libbloomery.so`, which Redis and Valkey load with `MODULE LOAD`.
//!
//! ```
//! use bloomery::{Bloom, Spec};
//!
//! // One million items at an error rate of 1 %, growing when it is full.
//! let mut seen = Bloom::new(Spec::scaling(1_000_000, 0.01))?;
//! let ada = seen.hash(b"ada");
//! assert!(seen.add(ada)?.added);
//! assert!(seen.contains(ada));
//! # Ok::<(), bloomery::Error>(())
//! ```
//!
//! Several threads may write to one [`Layer`] without a lock:
//!
//! ```
//! use bloomery::{HashKind, Layer, LayerSpec, Seed};
//!
//! let hasher = HashKind::Xxh3.hasher(Seed::from(7));
//! let layer = Layer::new(LayerSpec { shards: 4, ..LayerSpec::new(100_000, 0.01) }.shape()?)?;
//! std::thread::scope(|scope| {
//!     for thread in 0..2u32 {
//!         let (layer, hasher) = (&layer, &hasher);
//!         scope.spawn(move || {
//!             for i in 0..1000u32 {
//!                 layer.insert(hasher.hash(&[thread.to_le_bytes(), i.to_le_bytes()].concat()));
//!             }
//!         });
//!     }
//! });
//! assert!(layer.contains(hasher.hash(&[0; 8])));
//! # Ok::<(), bloomery::Error>(())
//! ```
//!
//! The folders are layers, and each names only those below it: `module` (the only place that knows a server) →
//! `command` (argv in, reply out) → `wire` (bytes in and out) → `filter` → `bits`. `scripts/layers` checks it.

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

#[allow(unreachable_pub, reason = "tests outside the crate reach it through `internals`")]
mod bits;
mod error;
#[cfg(failpoints)]
mod failpoint;
pub mod filter;
mod hash;
#[cfg(any(feature = "module", test))]
mod latch;
#[allow(unreachable_pub, reason = "tests outside the crate reach it through `internals`")]
mod math;
#[allow(unreachable_pub, reason = "tests outside the crate reach it through `internals`")]
mod mem;
mod metrics;
mod murmur;
#[allow(unreachable_pub, reason = "tests outside the crate reach it through `internals`")]
mod parallel;
mod params;
pub mod sizing;
mod spelling;
mod sync;
pub mod wire;

#[cfg(feature = "module")]
mod module;

/// What the tests, the benchmarks and the fuzz targets of this repository look at. It has no stability at all.
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals {
    pub use crate::parallel::{ParallelFor, alone};

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
pub use filter::{Added, Bloom, Cuckoo, CuckooSpec, Filter, Layer, Removed};
pub use hash::{HashKind, Hasher, ItemHash, Seed};
pub use params::{Cell, Family, LayoutChoice, Overflow, Spec, Tightening, limits};
pub use sizing::{LayerSpec, Layout, Shape};
pub use spelling::UnknownChoice;
