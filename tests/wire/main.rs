//! The wire format: files that every version must read and write unchanged, and bytes that it must refuse.

#[path = "../support/mod.rs"]
mod support;

#[cfg(not(feature = "module"))] // it counts allocations
mod corrupt;
mod cuckoo;
mod fingerprint;
mod golden;
#[cfg(not(feature = "module"))] // it counts allocations
mod packed;
#[cfg(not(feature = "module"))] // it counts allocations
mod proportion;
