//! A chunk: a run of one array's cells, and its offset.
//!
//! ```text
//!  0  u64   offset in the body, a multiple of 8
//!  8  u32   length of the data, a multiple of 8
//! 12  u32   stamp of the head to which it belongs
//! 16  u32   CRC-32C of bytes 0..16 and the data
//! 20  data  words of cells, little-endian
//! ```

use super::codec::take;
use super::error::DecodeError;
use super::format::{CHUNK, MAX_CHUNK};
use crate::mem::{crc32c, crc32c_append};
use alloc::vec::Vec;

/// Number of bytes before the data.
pub(super) const PREFIX: usize = 20;

/// Number of words that a chunk with leaves of a table has at least, unless it is the last. Writing them takes less
/// than a millisecond.
pub(super) const TABLE_WORDS: usize = CHUNK / 32;

/// Appends words to a chunk.
pub(super) fn put_words(piece: &mut Vec<u8>, words: &[u64]) {
    piece.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

/// Length in bytes of the longest chunk that is written.
pub const LONGEST: usize = PREFIX + CHUNK;

/// Fills in the prefix of a chunk: the first [`PREFIX`] bytes of `piece`. The rest of `piece` already contains the
/// data.
pub(super) fn seal(piece: &mut [u8], offset: u64, stamp: u32) {
    let Some((prefix, data)) = piece.split_first_chunk_mut::<PREFIX>() else { return };
    prefix[..16].copy_from_slice(&place(offset, data.len(), stamp));
    let crc = crc32c_append(crc32c(&prefix[..16]), data);
    prefix[16..20].copy_from_slice(&crc.to_le_bytes());
}

/// The prefix of a chunk with this many bytes of data, without the checksum.
fn place(offset: u64, len: usize, stamp: u32) -> [u8; 16] {
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    (u128::from(offset) | u128::from(len) << 64 | u128::from(stamp) << 96).to_le_bytes()
}

/// Whether this chunk's prefix is right for its length, this offset and this stamp. Its data isn't read.
pub(super) fn is_at(piece: &[u8], offset: u64, stamp: u32) -> bool {
    piece.starts_with(&place(offset, piece.len().saturating_sub(PREFIX), stamp))
}

/// Reads the prefix, and checks the length and the checksum. Returns the offset, the stamp and the data.
pub(super) fn open(piece: &[u8]) -> Result<(u64, u32, &[u8]), DecodeError> {
    let wrong = DecodeError::Length("chunk");
    let mut data = piece;
    let offset = u64::from_le_bytes(take(&mut data).ok_or(wrong)?);
    let len = u32::from_le_bytes(take(&mut data).ok_or(wrong)?);
    let stamp = u32::from_le_bytes(take(&mut data).ok_or(wrong)?);
    let crc = u32::from_le_bytes(take(&mut data).ok_or(wrong)?);
    if usize::try_from(len) != Ok(data.len())
        || data.is_empty()
        || data.len() > MAX_CHUNK
        || !data.len().is_multiple_of(8)
    {
        return Err(wrong);
    }
    let sealed = piece.get(..PREFIX - 4).ok_or(wrong)?;
    if crc32c_append(crc32c(sealed), data) != crc {
        return Err(DecodeError::Checksum("chunk"));
    }
    Ok((offset, stamp, data))
}

/// Length of the chunk at the start of `bytes`.
pub(super) fn len(bytes: &[u8]) -> Result<usize, DecodeError> {
    let wrong = DecodeError::Length("chunk");
    let field = bytes.get(8..12).and_then(|field| field.first_chunk()).ok_or(wrong)?;
    usize::try_from(u32::from_le_bytes(*field)).ok().and_then(|len| len.checked_add(PREFIX)).ok_or(wrong)
}
