//! The format of bits-and-blooms/bloom, v2 and v3: three numbers, then the words of a bitset.
//!
//! ```text
//!  0  u64 BE   bits m
//!  8  u64 BE   probes k
//! 16  u64      length L of the bitset in bits, usually m
//! 24  u64 …    words, bit p in word p/64 from the lowest up
//! ```
//! The length and the words are big-endian, unless the program that wrote them called `bitset.LittleEndian()`.

use crate::filter::foreign::{BitOrder, Encoding, Foreign, Growth, Link, LinkSpec, Scheme};
use crate::parallel::ParallelFor;
use crate::params::limits;
use crate::wire::codec::take;
use crate::wire::error::DecodeError;
use alloc::vec::Vec;

/// The bytes before the words in a file. If the bitset is longer than the filter by a word or more, its length is
/// rounded up to whole words.
pub(in crate::wire) fn bloom_v3_fields(spec: &LinkSpec) -> Vec<u8> {
    let bits = spec.bytes.saturating_mul(8);
    let length = if bits.saturating_sub(spec.modulus) < 64 { spec.modulus } else { bits };
    [spec.modulus, spec.probes.into(), length].map(u64::to_be_bytes).concat()
}

/// Reads what `WriteTo` and `MarshalBinary` write.
pub fn bloom_v3(blob: &[u8], parallel: &ParallelFor<'_>) -> Result<Foreign, DecodeError> {
    let short = DecodeError::Length("bloom filter");
    let mut rest = blob;
    let bits = u64::from_be_bytes(take(&mut rest).ok_or(short)?);
    let probes = u64::from_be_bytes(take(&mut rest).ok_or(short)?);
    let length: [u8; 8] = take(&mut rest).ok_or(short)?;
    let is_length = |length: &u64| length.div_ceil(64).checked_mul(8) == Some(rest.len() as u64);
    let (length, order) = match u64::from_be_bytes(length) {
        length if is_length(&length) => (length, BitOrder::BigEndianWords),
        _ => (u64::from_le_bytes(length), BitOrder::Lowest),
    };
    if !is_length(&length) {
        return Err(DecodeError::Length("bitset"));
    }
    let probes = u32::try_from(probes).ok().filter(|k| (1..=limits::MAX_FOREIGN_PROBES).contains(k));
    let probes = probes.ok_or(DecodeError::Field("k"))?;
    // Bits past the end of the bitset count as not set, so the length may be less than m. If it is far too short, the
    // bytes aren't a filter.
    if bits == 0 || bits > length.saturating_add(64).saturating_mul(2) {
        return Err(DecodeError::Field("m"));
    }
    let held = bits.max(length).div_ceil(64).saturating_mul(8);
    let spec = LinkSpec { bytes: held, ..LinkSpec::bitmap(bits, probes) };
    let link = Link::with_bits(spec, None, order, rest, parallel)?;
    Ok(Foreign::new(Scheme::BloomV3, Encoding::Bytes, Growth::Bitmap, vec![link])?)
}
