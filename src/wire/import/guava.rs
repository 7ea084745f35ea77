//! Guava's format, as written by `BloomFilter.writeTo`.
//!
//! ```text
//! 0  u8       strategy: 0 MURMUR128_MITZ_32, 1 MURMUR128_MITZ_64
//! 1  u8       probes
//! 2  u32 BE   number of words
//! 6  u64 BE … words, bit p in word p/64 from the lowest up
//! ```

use crate::filter::foreign::{BitOrder, Encoding, Foreign, Growth, Link, LinkSpec, Scheme};
use crate::parallel::ParallelFor;
use crate::wire::codec::take;
use crate::wire::error::DecodeError;
use alloc::vec::Vec;

/// The bytes before the words in a file.
pub(in crate::wire) fn guava_fields(strategy: u8, spec: &LinkSpec) -> Vec<u8> {
    let (probes, words) = (u8::try_from(spec.probes), u32::try_from(spec.bytes.div_ceil(8)));
    let mut fields = vec![strategy, probes.unwrap_or(u8::MAX)];
    fields.extend(words.unwrap_or(u32::MAX).to_be_bytes());
    fields
}

/// Reads what `writeTo` writes. The file doesn't say which funnel was used, so the caller passes the `encoding`.
pub fn guava(blob: &[u8], encoding: Encoding, parallel: &ParallelFor<'_>) -> Result<Foreign, DecodeError> {
    let short = DecodeError::Length("bloom filter");
    // The first bytes that a java.io.ObjectOutputStream writes.
    if blob.starts_with(&[0xac, 0xed, 0, 5]) {
        return Err(DecodeError::Field(
            "strategy: this is Java's serialization; BloomFilter.writeTo is wanted",
        ));
    }
    let mut rest = blob;
    let [strategy, probes] = take(&mut rest).ok_or(short)?;
    let words = u32::from_be_bytes(take(&mut rest).ok_or(short)?);
    let scheme = match strategy {
        0 => Scheme::GuavaMitz32,
        1 => Scheme::GuavaMitz64,
        _ => return Err(DecodeError::Field("strategy")),
    };
    if words == 0 || u64::from(words).saturating_mul(8) != rest.len() as u64 {
        return Err(DecodeError::Length("words"));
    }
    if probes == 0 {
        return Err(DecodeError::Field("number of hashes"));
    }
    let spec = LinkSpec::bitmap(u64::from(words).saturating_mul(64), probes.into());
    let link = Link::with_bits(spec, None, BitOrder::BigEndianWords, rest, parallel)?;
    Ok(Foreign::new(scheme, encoding, Growth::Bitmap, vec![link])?)
}
