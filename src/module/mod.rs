//! The server module: the only place that knows Redis and Valkey. It is thin on purpose: whatever can be wrong belongs
//! in a layer below, where it is tested without a server.
//!
//! `unsafe` is confined to the files that call the server or are called by it: `again`, `alloc`, `apart`, `api`,
//! `commands` (registration), `config` (registration), `data_type`, `info`, `load`, `log`, `offload`.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation
)]

mod again;
mod alloc;
mod apart;
mod api;
mod call;
mod commands;
mod config;
mod data_type;
mod guard;
mod heard;
mod held;
mod info;
mod key;
mod load;
mod loads;
mod log;
mod memory;
mod names;
mod offload;
mod pieces;
mod reclaim;
mod reply;
mod resume;
mod server;
mod settings;
mod workers;
