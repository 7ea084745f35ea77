//! The head: an envelope that is parsed manually, then the header of the filter's kind. Headers are plain structs of
//! fixed-size integers that bincode reads and writes.
//!
//! ```text
//!  0  "BLMY"           magic
//!  4  u8               version, 1
//!  5  u8               kind, see `codec::Kind`
//!  6  u16              number of the filter in a dump over several commands, else 0
//!  8  u32              length of the header
//! 12  u64              length of the body: the bytes of all cells, 2^51 for a table
//! 20  u32              CRC-32C of bytes 0..20 and the header
//! 24  header
//! ```

use super::codec::{Kind, take};
use super::error::DecodeError;
use super::format::{MAGIC, VERSION};
use super::kind::{self, Head};
use crate::filter::FilterRef;
use crate::mem::{crc32c, crc32c_append};
use alloc::vec::Vec;

/// Number of bytes before the header.
pub(super) const ENVELOPE: usize = 24;

/// Writes the head of a filter with this dump number.
pub(super) fn encode(filter: FilterRef<'_>, dump_number: u16) -> Vec<u8> {
    // Most headers describe a filter with one layer, and fit into this capacity.
    let mut head = Vec::with_capacity(160);
    head.resize(ENVELOPE, 0);
    let kind = kind::encode(filter, &mut head);
    let Some((envelope, header)) = head.split_first_chunk_mut::<ENVELOPE>() else { return head };
    envelope[0..4].copy_from_slice(&MAGIC);
    envelope[4..6].copy_from_slice(&[VERSION, kind as u8]);
    envelope[6..8].copy_from_slice(&dump_number.to_le_bytes());
    envelope[8..12].copy_from_slice(&u32::try_from(header.len()).unwrap_or(u32::MAX).to_le_bytes());
    let body_len = filter.arrays().fold(0, |sum, array| array.len().saturating_add(sum));
    envelope[12..20].copy_from_slice(&body_len.to_le_bytes());
    let crc = crc32c_append(crc32c(&envelope[..20]), header);
    envelope[20..24].copy_from_slice(&crc.to_le_bytes());
    head
}

/// The stamp of a filter's chunks in a dump with this number.
pub(super) fn stamp(filter: FilterRef<'_>, dump_number: u16) -> u32 {
    kind::stamp(filter) ^ u32::from(dump_number)
}

/// Reads and validates a head. Also returns the stamp of the chunks that belong to it.
pub(super) fn decode(bytes: &[u8]) -> Result<(Head, u32), DecodeError> {
    let short = DecodeError::Length("head");
    let mut rest = bytes;
    if take(&mut rest).ok_or(short)? != MAGIC {
        return Err(DecodeError::Magic);
    }
    let [version, kind] = take(&mut rest).ok_or(short)?;
    if version > VERSION {
        return Err(DecodeError::Version(version));
    }
    let dump_number = u16::from_le_bytes(take(&mut rest).ok_or(short)?);
    let header_len = u32::from_le_bytes(take(&mut rest).ok_or(short)?);
    let body_len = u64::from_le_bytes(take(&mut rest).ok_or(short)?);
    let crc = u32::from_le_bytes(take(&mut rest).ok_or(short)?);
    if usize::try_from(header_len) != Ok(rest.len()) {
        return Err(short);
    }
    let sealed = bytes.get(..ENVELOPE - 4).ok_or(short)?;
    if crc32c_append(crc32c(sealed), rest) != crc {
        return Err(DecodeError::Checksum("head"));
    }
    if version == 0 {
        return Err(DecodeError::Field("version"));
    }
    let kind = Kind::from_number(kind).ok_or(DecodeError::Field("kind"))?;
    let head = kind::decode(kind, rest)?;
    if head.body_len() != Some(body_len) {
        return Err(DecodeError::Length("body"));
    }
    let stamp = head.stamp() ^ u32::from(dump_number);
    Ok((head, stamp))
}

/// Length of the head at the start of `bytes`.
pub(super) fn len(bytes: &[u8]) -> Result<usize, DecodeError> {
    let short = DecodeError::Length("head");
    if !bytes.starts_with(&MAGIC) {
        return Err(DecodeError::Magic);
    }
    let field = bytes.get(8..12).and_then(|field| field.first_chunk()).ok_or(short)?;
    usize::try_from(u32::from_le_bytes(*field)).ok().and_then(|len| len.checked_add(ENVELOPE)).ok_or(short)
}
