//! The one door to atomics, so that a model checker can stand in for `std` under a `cfg`.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
