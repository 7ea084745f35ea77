//! The commands: arguments in, reply and effects out. There are no server types here, so every rule can be tested
//! without a server.
//!
//! A command sees the server through [`Call`]: its arguments, the keys it may open, the clock and the configuration.
//! Besides replying, it can replicate what it did, send a keyspace event, and have memory freed on another thread.
//!
//! Each family of commands is a folder: its values ([`Stored`]), their data types, and its commands. `list` names the
//! families. They share `transfer` (SCANDUMP and LOADCHUNK), `items` (how many, and pauses), `grow`, `blob` (many items
//! in one string), `rows` (the cells of sketches), `options`, `advice`, `uploads` (filters that arrive in chunks) and
//! `pieces` (commands with many items).

#![deny(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links, reason = "its documentation is for us, with private items")]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation
    )
)]

mod advice;
pub mod allocator_choice;
mod blob;
mod bloom;
mod call;
mod chunked;
mod cms;
pub mod config;
mod cuckoo;
mod error;
#[cfg(failpoints)]
pub mod failpoint;
mod grow;
pub mod info;
mod items;
mod list;
pub mod metrics;
mod number;
mod options;
mod partial;
mod pieces;
#[allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "numbers of threads and tasks are small"
)]
pub mod pool;
mod reply;
mod rows;
mod stored;
mod sync;
pub mod table;
mod tdigest;
pub mod tenants;
mod topk;
mod transfer;
mod uploads;

pub use call::{Access, Background, Call, Continuation, Data, Effect, Key, TwoStep, Unusable};
pub use chunked::Chunked;
pub use error::CommandError;
pub use list::{families, for_each, put_sent, run, table};
pub use pieces::{Pieces, Progress};
pub use reply::{Answer, Answers, Reply, double_text};
pub use stored::{DataType, Handle, Stored};
pub use table::{Command, Entry, Family, ForEach, Timing};
pub use uploads::{ABANDONED, END, Ended, MAX_UPLOADS, Uploads};
