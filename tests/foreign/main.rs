//! Filters of other systems. They are read, written and grown as in the original systems, and refused if damaged.

#[path = "../support/mod.rs"]
mod support;

mod bits_and_blooms;
mod every_system;
mod export;
mod go_zero;
mod guava;
mod hostile;
mod recorded;
mod redisbloom;
mod redisbloom_cuckoo;
mod redisbloom_recorded;
mod redisson;
mod reserved;
mod sbbf;
mod valkey_bloom;
