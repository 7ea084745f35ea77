//! Why bytes aren't a filter.

use super::format::VERSION;
use crate::error::Error;
use crate::params::SIZES;
use core::fmt;

/// Why bytes aren't a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end before the end of the named part, or continue after it.
    Length(&'static str),
    /// The bytes don't begin with this format's magic bytes.
    Magic,
    /// The bytes were written by a newer version.
    Version(u8),
    /// A filter whose size was computed by formulas with another number than [`SIZES`].
    Sizes(u16),
    /// The checksum of the named part is wrong.
    Checksum(&'static str),
    /// The named field has a value that it can't have in any filter.
    Field(&'static str),
    /// The chunk belongs to another head, or the filter changed during the dump in a way that changes its stamp, for
    /// example by growing.
    StampMismatch,
    /// A chunk in our format after a head in RedisBloom's format.
    OwnChunk,
    /// A chunk in our format that is longer than any chunk that we write.
    LongChunk,
    /// A chunk with which the load would need too much memory, because the load's chunks are short and scattered.
    Scattered,
    /// The chunk isn't the one that comes next.
    Order {
        /// Offset of the chunk that comes next.
        expected: u64,
        /// Offset of the chunk that arrived.
        found: u64,
    },
    /// A DUMP payload of a different data type.
    OtherType,
    /// A cuckoo filter where a Bloom filter was expected, or vice versa.
    OtherKind,
    /// A filter of another kind than the type that was to be read.
    Kind,
    /// Every chunk has been loaded already.
    Complete,
    /// No memory for the cells.
    OutOfMemory {
        /// Number of bytes requested.
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
            DecodeError::Sizes(sizes) => {
                write!(
                    f,
                    "another version, with SIZES {sizes} instead of {SIZES}, computed the filter's size; use that version, \
                     or rebuild the filter"
                )
            }
            DecodeError::Checksum(part) => write!(f, "wrong checksum of the {part}"),
            DecodeError::Field(field) => write!(f, "invalid {field}"),
            DecodeError::StampMismatch => {
                f.write_str("the chunk does not belong to the header that was loaded")
            }
            DecodeError::OwnChunk => f.write_str(
                "the chunk has the format of Bloomery, the header that of RedisBloom; load one filter into a key at a time",
            ),
            DecodeError::LongChunk => {
                f.write_str("the chunk has more than 1 MiB of cells; load the pieces as SCANDUMP cuts them")
            }
            DecodeError::Scattered => f.write_str(
                "the chunks are so short and scattered that they need more memory than the filter; load it from the beginning, in order",
            ),
            DecodeError::Order { expected, found } => {
                write!(f, "the chunk at offset {found} is not the next one, which is at offset {expected}")
            }
            DecodeError::OtherType => f.write_str(
                "a DUMP payload of a type other than bloomery1. Other systems' filters come in files: bloomery pull",
            ),
            DecodeError::OtherKind => {
                f.write_str("BF.LOADCHUNK is for Bloom filters, and CF.LOADCHUNK for cuckoo filters")
            }
            DecodeError::Kind => f.write_str("a filter of another kind"),
            DecodeError::Complete => f.write_str("the filter is complete already"),
            DecodeError::OutOfMemory { bytes } => write!(f, "no memory for {bytes} bytes"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Converts the reason why a filter could not be built from validated parameters.
impl From<Error> for DecodeError {
    fn from(error: Error) -> DecodeError {
        match error {
            Error::OutOfMemory { bytes } => DecodeError::OutOfMemory { bytes },
            Error::Cuckoo(field) | Error::Foreign(field) => DecodeError::Field(field),
            _ => DecodeError::Field("parameters"),
        }
    }
}
