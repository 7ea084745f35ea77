//! Filters: what is known about a filter, and filter files.

pub(crate) mod describe;
pub(crate) mod file;
pub(crate) mod lines;
pub(crate) mod parts;
