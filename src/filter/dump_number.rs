//! Numbers that show whether a filter was replaced during a dump. A dump is read in pieces, and between two pieces, the
//! key may be given another filter of the same shape. An item that is in both filters could then be missing from the
//! dump: the first filter had it beyond the point that the dump had reached, and the second has it before that point.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
#[cfg(feature = "std")]
use std::hash::{BuildHasher, Hasher, RandomState};
#[cfg(feature = "std")]
use std::sync::LazyLock;

/// The counter from which the numbers are taken. It begins at a random number, so that filters get different numbers
/// after a restart.
#[cfg(feature = "std")]
static NEXT: LazyLock<AtomicU64> =
    LazyLock::new(|| AtomicU64::new(RandomState::new().build_hasher().finish()));

/// Nothing survives a restart of a program without an operating system, so the numbers may begin at 0.
#[cfg(not(feature = "std"))]
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The number for a new filter. It isn't 0, and it differs from the numbers of the previous 65,534 filters.
pub(super) fn next() -> u16 {
    (NEXT.fetch_add(1, Relaxed) % u64::from(u16::MAX)) as u16 + 1
}
