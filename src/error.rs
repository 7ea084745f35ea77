//! What can go wrong in the core. There are no server types and no reply texts here: `command::error` chooses the
//! texts.

use core::fmt;

/// All the ways in which the core refuses a request. A refused request leaves the filter unchanged.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// The error rate is not a number in `(0, 1)`, or is below
    /// [`limits::MIN_ERROR_RATE`](crate::limits::MIN_ERROR_RATE).
    ErrorRate(f64),
    /// The capacity is 0 or above [`limits::MAX_CAPACITY`](crate::limits::MAX_CAPACITY).
    Capacity(u64),
    /// The number of shards is not a power of two in `1..=1024`.
    Shards(u64),
    /// The expansion is not in `1..=32768`.
    Expansion(u64),
    /// The tightening ratio is not in `(0, 1)`.
    Tightening(f64),
    /// The number of generations is not in `2..=64` (with [`Layout::Quotient`](crate::Layout::Quotient), `2..=1000`).
    Generations(u64),
    /// The rotation period in milliseconds does not fit in 63 bits.
    Period(u64),
    /// A parameter of a cuckoo filter is out of range; the text says which.
    Cuckoo(&'static str),
    /// A field of another system's filter has a value that it cannot have; the text names the field.
    Foreign(&'static str),
    /// Two properties exclude each other; the text says which and why.
    Exclusive(&'static str),
    /// No geometry of reasonable size keeps this error rate in this layout.
    Unreachable {
        /// The error rate of a single layer.
        error_rate: f64,
    },
    /// The allocator could not provide the memory.
    OutOfMemory {
        /// The bytes that were requested.
        bytes: u64,
    },
    /// There is no room for another item: the filter can't grow, and must not exceed its error rate.
    Full,
    /// A static filter accepts no adds: its cells are computed from all its items at once.
    Static,
    /// No hash function was found with which the static filter can be built, or its build was stopped. Building again
    /// with another seed tries other hash functions.
    Unbuilt,
    /// The filter has the maximum number of layers, sub-filters or links, or another one would be too large.
    TooManyLayers,
    /// A window has reached [`limits::MAX_GENERATION`](crate::limits::MAX_GENERATION).
    LastGeneration,
    /// Two filters differ in shape, hash or seed, so their cells cannot be combined.
    Mismatch,
    /// Without the feature `std`, there is no source of randomness for a seed.
    NoRandomness,
    /// The filter has no counters.
    NotCounting,
    /// The filter has no generations.
    NotWindow,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Error::ErrorRate(p) => write!(f, "error rate {p} is not in [1e-12, 1)"),
            Error::Capacity(n) => write!(f, "capacity {n} is not in [1, 2^48]"),
            Error::Shards(n) => write!(f, "shards must be a power of two from 1 to 1024, not {n}"),
            Error::Expansion(n) => write!(f, "expansion {n} is not in [1, 32768]"),
            Error::Tightening(r) => write!(f, "tightening ratio {r} is not in (0, 1)"),
            Error::Generations(n) => {
                write!(f, "generations {n} is not in [2, 64], with LAYOUT QUOTIENT [2, 1000]")
            }
            Error::Period(ms) => write!(f, "a rotation period of {ms} ms cannot be scheduled"),
            Error::Cuckoo(why) | Error::Exclusive(why) => f.write_str(why),
            Error::Foreign(field) => write!(f, "invalid {field}"),
            Error::Unreachable { error_rate } => {
                write!(f, "no filter of reasonable size has an error rate of {error_rate} in this layout")
            }
            Error::OutOfMemory { bytes } => write!(f, "no memory for {bytes} bytes"),
            Error::Full => f.write_str("the filter is full"),
            Error::Static => f.write_str("a static filter accepts no adds"),
            Error::Unbuilt => f.write_str(
                "the static filter could not be built with this seed; build it with a different one",
            ),
            Error::TooManyLayers => f.write_str("the filter has grown as often as it may"),
            Error::LastGeneration => {
                f.write_str("the window has reached the last number of a generation, 2^62")
            }
            Error::Mismatch => f.write_str("the filters differ in shape, hash or seed"),
            Error::NoRandomness => f.write_str("no random seeds without the feature std: use Spec::seed"),
            Error::NotCounting => f.write_str("the filter has no counters"),
            Error::NotWindow => f.write_str("the filter has no generations"),
        }
    }
}

impl core::error::Error for Error {}
