//! The library: what filters answer, what they promise, what they cost, and what they survive.

#[path = "../support/mod.rs"]
mod support;

mod alloc_fail;
mod concurrency;
mod cuckoo;
mod error_rate;
mod laws;
mod memory;
mod miri;
mod options;
mod oracle;
mod quotient;
mod sizing;
mod static_filter;
mod statistics;
