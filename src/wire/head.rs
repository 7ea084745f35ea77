//! The head: an envelope read by hand, then the header of the kind, plain structs of fixed-size integers through
//! bincode.
//!
//! ```text
//!  0  "BLMY"           magic
//!  4  u8               version, 1
//!  5  u8               kind: 1 fixed, 2 chain, 3 window, 4 cuckoo, 5 foreign, 6 rebuild
//!  6  u16              flags, 0
//!  8  u32              length of the header
//! 12  u64              length of the body: the bytes of all cells
//! 20  u32              CRC-32C of bytes 0..20 and the header
//! 24  header
//! ```

use super::decode::Filled;
use super::{DecodeError, MAGIC, VERSION, bloom, cuckoo, foreign, rebuild, take};
use crate::filter::{Filter, FilterRef};
use bincode::Options;
use serde::{Deserialize, Serialize};

/// Bytes before the header.
const ENVELOPE: usize = 24;

/// Bytes that one bincode struct may take; a bound against a hostile length, far above what the structs need.
const BINCODE_LIMIT: u64 = 4096;

/// bincode 1.3 with everything pinned: fixed-size integers, little-endian, limited. Trailing bytes are checked by the
/// caller, who reads several structs from one slice.
fn codec() -> impl Options {
    bincode::DefaultOptions::new()
        .with_fixint_encoding()
        .with_little_endian()
        .with_limit(BINCODE_LIMIT)
        .allow_trailing_bytes()
}

pub(super) fn write<T: Serialize>(to: &mut Vec<u8>, value: &T) {
    // Writing plain integers into a vector has no way to fail.
    let _ = codec().serialize_into(to, value);
}

pub(super) fn read<T: Serialize + for<'a> Deserialize<'a>>(from: &mut &[u8]) -> Result<T, DecodeError> {
    let wrong = DecodeError::Length("header");
    let value: T = codec().deserialize(from).map_err(|_| wrong)?;
    // Plain structs of fixed-size integers: as long written as read.
    let len = codec().serialized_size(&value).ok().and_then(|len| usize::try_from(len).ok()).ok_or(wrong)?;
    *from = from.get(len..).ok_or(wrong)?;
    Ok(value)
}

/// The header of a kind, written.
pub(super) struct Header {
    pub(super) kind: u8,
    pub(super) bytes: Vec<u8>,
    /// Identifies head and chunks of one dump: a checksum of what must not change while it is taken.
    pub(super) stamp: u32,
}

/// What a head says, validated: everything that is needed to build the value but its cells.
#[derive(Debug)]
pub(super) enum Description {
    Bloom(bloom::Description),
    Cuckoo(cuckoo::Description),
    Foreign(foreign::Description),
    Rebuild(Box<rebuild::Description>),
}

impl Description {
    /// Identifies head and chunks of one dump.
    pub(super) fn stamp(&self) -> u32 {
        match self {
            Description::Bloom(description) => description.stamp,
            Description::Cuckoo(description) => description.stamp,
            Description::Foreign(description) => description.stamp,
            Description::Rebuild(description) => description.stamp(),
        }
    }

    /// Bytes of each array of cells, in the order of the body.
    pub(super) fn arrays(&self) -> Vec<u64> {
        match self {
            Description::Bloom(description) => description.arrays().collect(),
            Description::Cuckoo(description) => description.arrays().collect(),
            Description::Foreign(description) => description.arrays().collect(),
            Description::Rebuild(description) => description.arrays(),
        }
    }

    /// The value, from all its arrays.
    pub(super) fn build(self, arrays: Vec<Filled>) -> Result<Filter, DecodeError> {
        match self {
            Description::Bloom(description) => description.build(arrays),
            Description::Cuckoo(description) => description.build(arrays),
            Description::Foreign(description) => description.build(arrays),
            Description::Rebuild(description) => description.build(arrays),
        }
    }
}

/// The header of a value.
pub(super) fn header(value: FilterRef<'_>) -> Header {
    match value {
        FilterRef::Bloom(filter) => bloom::encode(filter),
        FilterRef::Cuckoo(filter) => cuckoo::encode(filter),
        FilterRef::Foreign(filter) => foreign::encode(filter),
        FilterRef::Rebuild(rebuild) => rebuild::encode(rebuild),
    }
}

/// The head of a value, and its stamp.
pub(super) fn encode(value: FilterRef<'_>) -> (Vec<u8>, u32) {
    let Header { kind, bytes, stamp } = header(value);
    let mut head = Vec::new();
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&[VERSION, kind, 0, 0]);
    head.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    head.extend_from_slice(&value.bytes().to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head), &bytes);
    head.extend_from_slice(&crc.to_le_bytes());
    head.extend_from_slice(&bytes);
    (head, stamp)
}

/// Reads and validates a head: the one gate for whatever comes from outside.
pub(super) fn decode(bytes: &[u8]) -> Result<Description, DecodeError> {
    let short = DecodeError::Length("head");
    let mut rest = bytes;
    if take(&mut rest).ok_or(short)? != MAGIC {
        return Err(DecodeError::Magic);
    }
    let [version, kind] = take(&mut rest).ok_or(short)?;
    if version > VERSION {
        return Err(DecodeError::Version(version));
    }
    let flags = u16::from_le_bytes(take(&mut rest).ok_or(short)?);
    let header_len = u32::from_le_bytes(take(&mut rest).ok_or(short)?);
    let body_len = u64::from_le_bytes(take(&mut rest).ok_or(short)?);
    let crc = u32::from_le_bytes(take(&mut rest).ok_or(short)?);
    if usize::try_from(header_len) != Ok(rest.len()) {
        return Err(short);
    }
    let sealed = bytes.get(..ENVELOPE - 4).ok_or(short)?;
    if crc32c::crc32c_append(crc32c::crc32c(sealed), rest) != crc {
        return Err(DecodeError::Checksum("head"));
    }
    if version == 0 {
        return Err(DecodeError::Field("version"));
    }
    if flags != 0 {
        return Err(DecodeError::Field("flags"));
    }
    let description = describe(kind, rest)?;
    let sum = description.arrays().into_iter().try_fold(0u64, u64::checked_add);
    if sum != Some(body_len) {
        return Err(DecodeError::Length("body"));
    }
    Ok(description)
}

/// Reads and validates the header of a kind.
pub(super) fn describe(kind: u8, header: &[u8]) -> Result<Description, DecodeError> {
    Ok(match kind {
        1..=3 => Description::Bloom(bloom::decode(kind, header)?),
        4 => Description::Cuckoo(cuckoo::decode(header)?),
        5 => Description::Foreign(foreign::decode(header)?),
        rebuild::KIND => Description::Rebuild(Box::new(rebuild::decode(header)?)),
        _ => return Err(DecodeError::Field("kind")),
    })
}

/// Length of the head that `bytes` begin with.
pub(super) fn len(bytes: &[u8]) -> Result<usize, DecodeError> {
    let short = DecodeError::Length("head");
    if !bytes.starts_with(&MAGIC) {
        return Err(DecodeError::Magic);
    }
    let field = bytes.get(8..12).and_then(|field| field.first_chunk()).ok_or(short)?;
    usize::try_from(u32::from_le_bytes(*field)).ok().and_then(|len| len.checked_add(ENVELOPE)).ok_or(short)
}
