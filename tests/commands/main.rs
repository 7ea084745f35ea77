//! Runs commands without a server, and checks their replies and refusals, what they replicate, and whether a replica
//! ends up with the same keys.

#[path = "../support/mod.rs"]
mod support;

mod aging;
mod algebra;
mod background;
mod bloom;
mod bulk;
mod compaction;
mod cuckoo;
mod doubling;
mod feedback;
mod foreign;
mod held;
mod hot_path;
mod limits;
mod merge_blobs;
mod pair;
mod pieces;
mod pool;
mod rebuild;
mod redisbloom;
mod refusals;
mod sketches;
mod static_filter;
mod tables;
mod tdigest;
mod uploads;
mod valkey_bloom;
mod windows;
