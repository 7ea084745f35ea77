//! Servers: connections to them, the keys that hold filters, and what a server knows of a filter.

pub(crate) mod connection;
pub(crate) mod info;
pub(crate) mod key;
mod reply;
pub(crate) mod scan;
