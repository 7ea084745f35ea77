//! Numbers that distinguish filters that replace each other during a dump. A dump is read in pieces, and between two of
//! them its key may get another filter of the same shape. An item that is in both may be missing in the mixture: in the
//! first filter it was in a part that is dumped later, in the second in a part that would have been dumped earlier.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Begins at a random number, so that filters have other numbers after a restart.
static NEXT: LazyLock<AtomicU64> =
    LazyLock::new(|| AtomicU64::new(RandomState::new().build_hasher().finish()));

/// The number of a new filter: not 0, and different from the 65,534 filters before it.
pub(super) fn next() -> u16 {
    (NEXT.fetch_add(1, Relaxed) % u64::from(u16::MAX)) as u16 + 1
}
