//! Parquet's split-block Bloom filter: the bitset alone, or Parquet's header and the bitset. Arrow and Impala write the
//! same bitset.
//!
//! ```text
//! 0   u32 LE …  words, eight per block, bit p in word p/32 from the lowest up
//! ```
//!
//! The header is the struct BloomFilterHeader in Thrift's compact protocol: the number of bytes as a zigzag varint,
//! between 0x15 and [`REST`]. Only one algorithm, one hash and one compression are defined.

use crate::filter::foreign::{BitOrder, Encoding, Foreign, Growth, Link, LinkSpec, Scheme};
use crate::parallel::ParallelFor;
use crate::wire::codec::take;
use crate::wire::error::DecodeError;
use alloc::vec::Vec;

/// The byte that begins field 1, an i32.
const NUM_BYTES: u8 = 0x15;

/// Fields 2 to 4 (BLOCK, XXHASH and UNCOMPRESSED), each a union whose first field is an empty struct, then the end
/// marker.
const REST: [u8; 13] = [0x1c, 0x1c, 0, 0, 0x1c, 0x1c, 0, 0, 0x1c, 0x1c, 0, 0, 0];

/// The header of a file with this filter.
pub(in crate::wire) fn sbbf_fields(spec: &LinkSpec) -> Vec<u8> {
    let mut header = vec![NUM_BYTES];
    let mut zigzag = spec.bytes.saturating_mul(2);
    while zigzag > 0x7f {
        let [low, ..] = zigzag.to_le_bytes();
        header.push(low | 0x80);
        zigzag >>= 7;
    }
    let [last, ..] = zigzag.to_le_bytes();
    header.push(last);
    header.extend(REST);
    header
}

/// Reads a bitset, or a header and a bitset. The bytes don't say how items were encoded, so the caller passes the
/// `encoding`.
pub fn sbbf(blob: &[u8], encoding: Encoding, parallel: &ParallelFor<'_>) -> Result<Foreign, DecodeError> {
    // A header has 15 to 19 bytes, so with a header, the length isn't a whole number of blocks.
    let bitset = if blob.len().is_multiple_of(32) { blob } else { behind_header(blob)? };
    let spec = LinkSpec::split_block(bitset.len() as u64).ok_or(DecodeError::Length("bitset"))?;
    let link = Link::with_bits(spec, None, BitOrder::Lowest, bitset, parallel)?;
    Ok(Foreign::new(Scheme::Sbbf, encoding, Growth::Bitmap, vec![link])?)
}

/// The bitset after Parquet's header.
fn behind_header(blob: &[u8]) -> Result<&[u8], DecodeError> {
    let short = DecodeError::Length("bloom filter");
    let mut rest = blob;
    if take(&mut rest).ok_or(short)? != [NUM_BYTES] {
        return Err(DecodeError::Field(
            "header: neither whole blocks of 32 bytes nor Parquet's BloomFilterHeader",
        ));
    }
    let mut zigzag = 0u64;
    for shift in [0, 7, 14, 21, 28] {
        let [byte] = take(&mut rest).ok_or(short)?;
        zigzag |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    if take(&mut rest).ok_or(short)? != REST {
        return Err(DecodeError::Field("header: algorithm, hash or compression"));
    }
    // In zigzag encoding, odd numbers stand for negative values.
    if zigzag % 2 == 1 || zigzag / 2 != rest.len() as u64 {
        return Err(DecodeError::Length("bitset"));
    }
    Ok(rest)
}
