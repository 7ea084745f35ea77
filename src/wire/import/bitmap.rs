//! Bitmaps that were filled with SETBIT: the string has no header, so everything else is said by whoever imports it. A
//! string is as long as its last set bit needs, so one that is short only has zeros missing.

use super::super::DecodeError;
use crate::filter::foreign::{BitOrder, Encoding, Foreign, Growth, Link, LinkSpec, Scheme};
use crate::params::limits;

/// Probes that go-zero has always made.
pub const GO_ZERO_PROBES: u32 = 14;

/// go-zero's filter of `bits` bits.
///
/// # Errors
/// [`DecodeError::Field`] for numbers that no such filter has, [`DecodeError::Length`] for a string that is too long.
pub fn go_zero(bits: u64, probes: u32, bitmap: &[u8]) -> Result<Foreign, DecodeError> {
    // The probe's number is one byte of what is hashed.
    if probes == 0 || probes > 256 {
        return Err(DecodeError::Field("MAPS"));
    }
    bitmap_filter(Scheme::GoZero, Encoding::Bytes, bits, probes, bitmap)
}

/// Redisson's filter of `size` bits.
///
/// # Errors
/// As [`go_zero`].
pub fn redisson(
    size: u64,
    iterations: u32,
    encoding: Encoding,
    bitmap: &[u8],
) -> Result<Foreign, DecodeError> {
    bitmap_filter(Scheme::Redisson, encoding, size, iterations, bitmap)
}

fn bitmap_filter(
    scheme: Scheme,
    encoding: Encoding,
    bits: u64,
    probes: u32,
    bitmap: &[u8],
) -> Result<Foreign, DecodeError> {
    if bits == 0 || bits.div_ceil(8) > limits::MAX_BYTES {
        return Err(DecodeError::Field("bits"));
    }
    let spec = LinkSpec::bitmap(bits, probes);
    if bitmap.len() as u64 > spec.bytes {
        return Err(DecodeError::Length("bitmap: it has more bits than the filter"));
    }
    let link = Link::with_bits(spec, None, BitOrder::Highest, bitmap)?;
    Ok(Foreign::new(scheme, encoding, Growth::Bitmap, vec![link])?)
}
