//! Filters of other systems: read, written and grown as their originals do it, and refused if they are damaged.

#[path = "../support/mod.rs"]
mod support;

#[cfg(not(feature = "module"))] // it counts allocations
mod hostile;
mod import;
mod redisbloom;
