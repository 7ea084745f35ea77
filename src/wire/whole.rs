//! Reads a whole filter from one string: a file, or a DUMP payload.
//!
//! ```text
//! u8       7, a module's value
//! length   name of the type, 9 characters of 6 bits, and the encoding, 10 bits
//!          for each string of the value:
//! length     5, a string follows
//! length     its length; for a compressed string, 0xC3, its compressed length, and its length
//!            the string
//! u8       0, the end
//! u16      version of the RDB format, little-endian
//! u64      CRC-64 of everything before it, little-endian
//! ```
//!
//! The version isn't checked. A module's value is the same in all RDB versions, so filters can come from a server of
//! another version or another product.

use super::codec::take;
use super::decode::Decoder;
use super::error::DecodeError;
use super::format::{MAGIC, MOST_PACKED};
use super::stream::Source;
use super::{head, lzf, value};
use crate::filter::Filter;
use crate::mem::crc64;

/// The first byte of a payload that holds a module's value.
pub(super) const MODULE: u8 = 7;

/// Types of the fields in a module's value.
pub(super) const STRING: u64 = 5;
const END: u8 = 0;

/// The byte before the two lengths of a compressed string.
const PACKED: u8 = 0xC3;

/// The names of our types, `bloomery1` and `bloomeryC`, in 6 bits per character: A to Z, a to z, 0 to 9, - and _ stand
/// for 0 to 63.
const NAMES: [u64; 2] = [0x1b_968a_267a_bcb5, 0x1b_968a_267a_bc82];

const CUT: DecodeError = DecodeError::Length("payload");

/// Reads a filter, and verifies all checksums.
pub fn read(bytes: &[u8]) -> Result<Filter, DecodeError> {
    if bytes.starts_with(&MAGIC) {
        return Decoder::read(bytes);
    }
    let (mut fields, encoding) = Fields::open(bytes)?;
    let (sealed, crc) = bytes.split_last_chunk().ok_or(CUT)?;
    if crc64(sealed) != u64::from_le_bytes(*crc) {
        return Err(DecodeError::Checksum("payload"));
    }
    let filter = value::decode(&mut fields, encoding).map_err(|why| fields.refused.unwrap_or(why))?;
    if fields.rest == [END] { Ok(filter) } else { Err(CUT) }
}

/// What the head of a filter declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Number of cell bytes. For a small filter in a payload, this is the maximum for such filters.
    pub cells: u64,
    /// Whether the filter is a cuckoo filter. For a small filter in a payload, this is always false, because the kind
    /// is known only after the whole filter has been read.
    pub is_cuckoo: bool,
}

/// Reads and verifies only the head.
///
/// # Errors
/// What is wrong with the head. [`DecodeError::Length`] if these bytes can't contain as many cells as the head
/// declares.
pub fn declared(bytes: &[u8]) -> Result<Declared, DecodeError> {
    let of_head = |head: &[u8]| {
        let declared =
            |decoder: &Decoder| Declared { cells: decoder.body_len(), is_cuckoo: decoder.is_cuckoo() };
        Decoder::new(head).map(|decoder| (declared(&decoder), decoder.has_table()))
    };
    let packed = (Declared { cells: MOST_PACKED as u64, is_cuckoo: false }, false);
    let ((declared, has_table), most) = if bytes.starts_with(&MAGIC) {
        let (head, rest) = bytes.split_at_checked(head::len(bytes)?).ok_or(DecodeError::Length("head"))?;
        (of_head(head)?, rest.len() as u64)
    } else {
        let (mut fields, _) = Fields::open(bytes)?;
        let first =
            fields.string(|first| if first.starts_with(&MAGIC) { of_head(first) } else { Ok(packed) });
        let declared = first.ok_or_else(|| fields.refused.unwrap_or(CUT))??;
        (declared, lzf::MOST_UNPACKED.saturating_mul(fields.rest.len() as u64).max(MOST_PACKED as u64))
    };
    // How large a table is, is only known when its leaves have been read.
    let declared =
        if has_table { Declared { cells: declared.cells.min(most), ..declared } } else { declared };
    if declared.cells <= most { Ok(declared) } else { Err(DecodeError::Length("body")) }
}

/// The fields of the value in a payload.
struct Fields<'b> {
    rest: &'b [u8],
    /// Why a string wasn't read. `None` if there was simply no further string.
    refused: Option<DecodeError>,
}

impl<'b> Fields<'b> {
    /// Finds the value in a payload. Also returns its encoding.
    fn open(payload: &'b [u8]) -> Result<(Fields<'b>, u32), DecodeError> {
        if payload.first() != Some(&MODULE) {
            return Err(DecodeError::Magic);
        }
        let (rest, _) = payload.split_last_chunk::<{ size_of::<u16>() + size_of::<u64>() }>().ok_or(CUT)?;
        let mut fields = Fields { rest: rest.get(1..).ok_or(CUT)?, refused: None };
        let id = fields.number().ok_or(CUT)?;
        if !NAMES.contains(&(id >> 10)) {
            return Err(DecodeError::OtherType);
        }
        Ok((fields, (id & 1023) as u32))
    }

    /// Reads a number, in the encoding that RDB files use for lengths and types.
    fn number(&mut self) -> Option<u64> {
        let [first] = take(&mut self.rest)?;
        let low = first & 63;
        match first {
            0x80 => take(&mut self.rest).map(u32::from_be_bytes).map(u64::from),
            0x81 => take(&mut self.rest).map(u64::from_be_bytes),
            _ if first < 0x40 => Some(low.into()),
            _ if first < 0x80 => {
                take(&mut self.rest).map(|[second]| u16::from_be_bytes([low, second]).into())
            }
            _ => None,
        }
    }

    fn bytes(&mut self, len: u64) -> Option<&'b [u8]> {
        self.rest.split_off(..usize::try_from(len).ok()?)
    }
}

impl Source for Fields<'_> {
    /// Always `None`, because our type contains only strings.
    fn unsigned(&mut self) -> Option<u64> {
        None
    }

    fn double(&mut self) -> Option<f64> {
        None
    }

    fn string<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        if self.number()? != STRING {
            return None;
        }
        if self.rest.first() != Some(&PACKED) {
            let len = self.number()?;
            return self.bytes(len).map(read);
        }
        self.bytes(1)?;
        let (packed, len) = (self.number()?, self.number()?);
        match lzf::unpack(self.bytes(packed)?, len) {
            Ok(bytes) => Some(read(&bytes)),
            Err(why) => {
                self.refused = Some(why);
                None
            }
        }
    }
}
