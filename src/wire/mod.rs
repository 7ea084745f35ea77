//! Filters as bytes: the versioned wire format that RDB, DUMP, AOF rewrite, BF.SCANDUMP and files share.
//!
//! docs/FORMAT.md describes it byte by byte, and tests/kit/wire_format.py answers membership questions from it without a
//! line of this code. A filter is written as *pieces*: one head, then chunks of its cells. Every piece carries its own
//! checksum. Each way of storing them keeps the pieces apart in its own manner; a file simply concatenates them.
//!
//! Reading goes through one gate: [`Decoder::new`] validates the head as a whole before any cell is allocated, and
//! geometry follows from validated parameters alone. The checksum detects accidents; safety comes from validation.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation
)]

mod bloom;
mod chunk;
mod cuckoo;
mod decode;
mod encode;
mod foreign;
mod head;
pub mod import;
mod rebuild;
pub mod redisbloom;

pub use decode::Decoder;
pub use encode::Encoder;

use crate::error::Error;
use std::fmt;

/// First bytes of every head.
pub const MAGIC: [u8; 4] = *b"BLMY";

/// Version of the format that is written, and the newest that is read.
pub const VERSION: u8 = 1;

/// Bytes of cells in one chunk, at most; readers accept up to [`MAX_CHUNK`].
pub const CHUNK: usize = 1 << 20;

/// Bytes of cells in one chunk that a reader accepts, at most.
pub const MAX_CHUNK: usize = 16 << 20;

/// Why bytes are not a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end before the named part does, or go on behind it.
    Length(&'static str),
    /// Not the magic bytes of this format.
    Magic,
    /// Written by a newer version.
    Version(u8),
    /// The checksum of the named part is wrong.
    Checksum(&'static str),
    /// The named field holds a value that no filter has.
    Field(&'static str),
    /// The chunk belongs to another head, or the filter changed its shape while it was dumped.
    Stranger,
    /// The chunk is not the one that comes next.
    Order {
        /// Offset of the chunk that comes next.
        expected: u64,
        /// Offset of the chunk that came.
        found: u64,
    },
    /// A filter of the other kind: Bloom instead of cuckoo, or the other way round.
    OtherKind,
    /// There is nothing left to load.
    Complete,
    /// No memory for the cells.
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            DecodeError::Length(part) => write!(f, "wrong length of the {part}"),
            DecodeError::Magic => f.write_str("not a Bloomery filter"),
            DecodeError::Version(version) => {
                write!(
                    f,
                    "format version {version} is newer than {VERSION}, the newest that this module reads"
                )
            }
            DecodeError::Checksum(part) => write!(f, "wrong checksum of the {part}"),
            DecodeError::Field(field) => write!(f, "impossible value of the field {field}"),
            DecodeError::Stranger => f.write_str("the chunk does not belong to the header that was loaded"),
            DecodeError::Order { expected, found } => {
                write!(f, "the chunk at offset {found} is not the next one, which is at offset {expected}")
            }
            DecodeError::OtherKind => {
                f.write_str("BF.LOADCHUNK takes Bloom filters and CF.LOADCHUNK takes cuckoo filters")
            }
            DecodeError::Complete => f.write_str("the filter is complete already"),
            DecodeError::OutOfMemory { bytes } => write!(f, "no memory for {bytes} bytes"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// What building a filter of validated parameters can still run into.
impl From<Error> for DecodeError {
    fn from(error: Error) -> DecodeError {
        match error {
            Error::OutOfMemory { bytes } => DecodeError::OutOfMemory { bytes },
            Error::Cuckoo(field) | Error::Foreign(field) => DecodeError::Field(field),
            _ => DecodeError::Field("parameters"),
        }
    }
}

/// Takes `N` bytes off the front of `bytes`.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}
