//! The sizes that other systems choose for an empty filter with a given error rate and capacity, by their own formulas.

use super::link::LinkSpec;
use super::logarithm::ln;
use super::scheme::Scheme;
use crate::params::limits;
use core::f64::consts::LN_2;

/// Number of probes per item in every release of go-zero.
pub(crate) const GO_ZERO_PROBES: u32 = 14;

/// Size in bytes of the largest filter that Parquet creates, no matter how large the capacity is.
const SBBF_MOST: u64 = 128 << 20;

/// Number of bits in Redisson's largest filter.
const REDISSON_MOST: f64 = 4_294_967_294.0;

impl LinkSpec {
    /// The link of the filter that the scheme's system creates for `capacity` items at `error_rate`. `None` if the
    /// system would refuse these parameters, and for schemes that aren't sized here: RedisBloom, valkey-bloom and
    /// Guava's MITZ_32.
    pub fn reserved(scheme: &Scheme, error_rate: f64, capacity: u64) -> Option<LinkSpec> {
        let items = capacity as f64;
        let bits = -items * ln(error_rate) / (LN_2 * LN_2);
        // The number of bits for a given number of probes per item, if each probe finds its bit set with the same
        // probability.
        let spread = |probes: u32| {
            let root = libm::exp(ln(error_rate) / f64::from(probes));
            -f64::from(probes) * items / ln(1.0 - root)
        };
        let (bits, probes) = match scheme {
            Scheme::Sbbf => {
                let bytes = (spread(8) / 8.0).clamp(32.0, SBBF_MOST as f64) as u64;
                return LinkSpec::split_block(bytes.next_power_of_two());
            }
            // In go-zero, the user chooses the number of bits. Its authors recommend the number that this formula gives
            // for an error rate of 0.000067.
            Scheme::GoZero => (libm::ceil(spread(GO_ZERO_PROBES)), f64::from(GO_ZERO_PROBES)),
            Scheme::BloomV3 => {
                let bits = libm::ceil(bits);
                (bits, libm::ceil(LN_2 * bits / items))
            }
            Scheme::GuavaMitz64 => {
                let words = libm::ceil(libm::trunc(bits) / 64.0);
                if words > f64::from(i32::MAX) {
                    return None;
                }
                (words * 64.0, libm::round(-ln(error_rate) / LN_2))
            }
            Scheme::Redisson => {
                let bits = libm::trunc(bits);
                if !(1.0..=REDISSON_MOST).contains(&bits) {
                    return None;
                }
                (bits, libm::round(bits / items * LN_2))
            }
            Scheme::RedisBloom(_) | Scheme::ValkeyBloom { .. } | Scheme::GuavaMitz32 => return None,
        };
        let fits = bits >= 1.0 && bits <= limits::MAX_BYTES as f64 * 8.0;
        fits.then(|| match scheme {
            // The bitset of bits-and-blooms has whole words.
            Scheme::BloomV3 => {
                let bitmap = LinkSpec::bitmap(bits as u64, probes.max(1.0) as u32);
                LinkSpec { bytes: bitmap.bytes.next_multiple_of(8), ..bitmap }
            }
            _ => LinkSpec::bitmap(bits as u64, probes.max(1.0) as u32),
        })
    }
}
