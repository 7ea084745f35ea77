//! The server module: the only place that knows Redis and Valkey. It is thin on purpose: anything that can go wrong
//! belongs in a layer below, where it is tested without a server.
//!
//! `unsafe` is confined to the files that call the server or are called by it: `alloc`, `api`, `commands`, `config`,
//! `data_type`, `duplicate_load`, `info`, `key`, `log`, `snapshots`, `startup`, `uploads`, and four in `waiting`.

#![deny(
    unsafe_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation
)]

mod alloc;
mod api;
mod call;
mod commands;
mod config;
mod data_type;
mod duplicate_load;
mod eviction;
mod guard;
mod info;
mod key;
mod log;
mod memory;
mod names;
mod reclaim;
mod replication_sinks;
mod reply;
mod server;
mod settings;
mod snapshots;
mod startup;
mod tenants;
mod uploads;
mod waiting;
mod workers;
