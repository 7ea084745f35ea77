#![doc = include_str!("../docs/RUST.md")]
//!
//! ## Which filter
//!
//! | you want | use |
//! | --- | --- |
//! | a filter that needs no capacity | [`Bloom::growing`] |
//! | a cache line per test, for a number of items that is known | [`Bloom::fixed`]; [`Bloom::scaling`] can grow |
//! | to delete items | [`Bloom::counting`], or [`Cuckoo`] |
//! | to forget items after a time | [`ExpiringBloom`]; [`Bloom::windowed`] forgets when you say so |
//! | the least memory for items that are all known in advance | [`StaticBuilder`] |
//! | several threads that write | [`AtomicBloom`] |
//! | threads that read while one writes | [`Bloom::reader`] |
//! | speed with many items at once, in large filters | [`Bloom::contains_each`] and `extend`, whose cache misses overlap |
//! | integers, addresses, tuples or a type of your own as items | [`ItemBytes`] |
//! | a size in bits and a number of probes instead of capacity and rate | [`Spec::in_bits`] |
//! | another layout, hash, seed or policy | [`Spec`] with [`Bloom::new`] |
//! | files of bits-and-blooms or Guava, and other systems' filters | [`wire::import`], [`Foreign`] |
//! | to save a filter, or load it | [`Bloom::write_to`], [`Bloom::read_from`]; the feature `serde` |
//! | to test items in a saved filter, without loading it | [`View`] |
//!
//! ## Features
//!
//! | feature | adds |
//! | --- | --- |
//! | `std` (default) | [random seeds](Seed::random), and locks and checksums of the system |
//! | `serde` | `Serialize` and `Deserialize` for filters, as bytes of the format; `Serialize` for [`Summary`] |
//! | `bincode` | bincode for the headers of the format, as in the module. The bytes are the same |
//!
//! Without `std`, the library needs an allocator and 64-bit atomics, as on aarch64-unknown-none. Locks spin, and a
//! constructor that draws a seed fails with [`Error::NoRandomness`]: use [`Bloom::new`] and a [`Spec`] with your own
//! seed. The answers and the bytes are the same. The library also compiles for wasm32-unknown-unknown, where [random
//! seeds](Seed::random) aren't random.
//!
//! ## The code
//!
//! The commands of the server module are in the package `bloomery-commands`, and the module that Redis and Valkey load
//! is in `bloomery-module`.
//!
//! The folders are layers, and each uses only those that follow it here: `wire` (bytes in and out) → `filter` → `bits`.

#![deny(unsafe_code)]
#![warn(unnameable_types)]
#![cfg_attr(not(any(feature = "std", test)), no_std)]

#[macro_use]
extern crate alloc;

#[cfg(not(target_has_atomic = "64"))]
compile_error!("bloomery keeps cells in 64-bit atomics, which this target lacks");

mod error;
pub mod filter;
mod item;
mod math;
pub mod options;
mod sync;
pub mod wire;

// For the other packages of this repository. They may change at any time.
#[doc(hidden)]
pub mod bits;
#[doc(hidden)]
pub mod hash;
#[doc(hidden)]
pub mod mem;
#[doc(hidden)]
pub mod metrics;
#[doc(hidden)]
pub mod murmur;
#[doc(hidden)]
pub mod parallel;
#[doc(hidden)]
pub mod params;
#[doc(hidden)]
pub mod spelling;

pub use bits::Hits;
pub use error::Error;
pub use filter::{
    Added, AtomicBloom, Bloom, Cuckoo, CuckooItem, CuckooSpec, ExpiringBloom, Filter, Foreign, Reader,
    Removed, Schedule, StaticBuilder, Summary,
};
pub use hash::{HashKind, Hashed, Item, Seed};
pub use item::{ItemBytes, StdHash};
pub use parallel::{ParallelFor, alone};
pub use params::{Cell, Family, Layout, Overflow, Spec, Steps, Tightening, limits};
pub use spelling::UnknownChoice;
pub use wire::View;
#[doc(hidden)]
pub use {
    filter::layout::{Layer, LayerSpec, Shape},
    hash::{Hasher, ItemHash},
    math::power,
};
