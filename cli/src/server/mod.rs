//! Servers: connections to them, the keys that hold filters, and what a server knows about a filter.

mod cluster;
pub(crate) mod connection;
pub(crate) mod family;
pub(crate) mod info;
pub(crate) mod key;
mod options;
pub(crate) mod prefix;
pub(crate) mod reply;
mod resp;
pub(crate) mod scan;
mod slots;
pub(crate) mod spread;
mod stream;
mod tls;
