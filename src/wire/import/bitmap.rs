//! Reads go-zero's and Redisson's filters: bitmaps that were filled with SETBIT. A bitmap has no header, so the caller
//! passes all parameters. It ends with the byte that contains its last set bit. Missing bytes count as zeros.

use crate::filter::foreign::{self, BitOrder, Encoding, Foreign, Growth, Link, LinkSpec, Scheme};
use crate::parallel::ParallelFor;
use crate::params::limits;
use crate::wire::error::DecodeError;

/// The number of probes in every release of go-zero.
pub const GO_ZERO_PROBES: u32 = foreign::GO_ZERO_PROBES;

/// Reads a go-zero filter of `bits` bits.
///
/// # Errors
/// [`DecodeError::Field`] for parameters that no such filter can have, or [`DecodeError::Length`] for a string that is
/// too long.
pub fn go_zero(
    bits: u64,
    probes: u32,
    bitmap: &[u8],
    parallel: &ParallelFor<'_>,
) -> Result<Foreign, DecodeError> {
    // The hashed bytes end with the index of the probe, as one byte.
    if probes == 0 || probes > 256 {
        return Err(DecodeError::Field("MAPS"));
    }
    bitmap_filter(Scheme::GoZero, Encoding::Bytes, bits, probes, bitmap, parallel)
}

/// Reads a Redisson filter of `size` bits.
pub fn redisson(
    size: u64,
    iterations: u32,
    encoding: Encoding,
    bitmap: &[u8],
    parallel: &ParallelFor<'_>,
) -> Result<Foreign, DecodeError> {
    bitmap_filter(Scheme::Redisson, encoding, size, iterations, bitmap, parallel)
}

fn bitmap_filter(
    scheme: Scheme,
    encoding: Encoding,
    bits: u64,
    probes: u32,
    bitmap: &[u8],
    parallel: &ParallelFor<'_>,
) -> Result<Foreign, DecodeError> {
    if bits == 0 || bits.div_ceil(8) > limits::MAX_BYTES {
        return Err(DecodeError::Field("bits"));
    }
    let spec = LinkSpec::bitmap(bits, probes);
    if bitmap.len() as u64 > spec.bytes {
        return Err(DecodeError::Length("bitmap: it has more bits than the filter"));
    }
    let link = Link::with_bits(spec, None, BitOrder::Highest, bitmap, parallel)?;
    Ok(Foreign::new(scheme, encoding, Growth::Bitmap, vec![link])?)
}
