//! The library: what filters answer, what they promise, what they cost, and what they survive.

#[path = "../support/mod.rs"]
mod support;

#[cfg(not(feature = "module"))] // it counts allocations
mod alloc_fail;
mod concurrency;
mod cuckoo;
mod error_rate;
mod fingerprint;
mod laws;
mod memory;
mod miri;
mod options;
mod oracle;
mod pool;
mod sizing;
mod static_filter;
mod statistics;
