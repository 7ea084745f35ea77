//! The wire format: files that every version must read and write unchanged, and bytes that it must refuse.

#[path = "../support/mod.rs"]
mod support;

mod corrupt;
mod cuckoo;
mod golden;
mod packed;
mod proportion;
mod quotient;
mod streams;
mod view;
