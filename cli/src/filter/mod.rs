//! Filters: what is known of one, and the file that holds one.

pub(crate) mod describe;
pub(crate) mod file;
pub(crate) mod info;
pub(crate) mod lines;
pub(crate) mod parts;
