//! Numbers that tell filters apart which take each other's place during a dump. A dump is read in pieces, and between two
//! of them its key may get another filter of the same shape. An item that is in both may be missing in the mixture: in the
//! one it was in a part that came later, in the other in one that came before.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Begins at random, so that filters of a server that has been restarted have other numbers than before.
static NEXT: LazyLock<AtomicU64> =
    LazyLock::new(|| AtomicU64::new(RandomState::new().build_hasher().finish()));

/// The number of a new filter: not 0, and another one than that of the 65,534 filters before it.
pub(super) fn next() -> u16 {
    (NEXT.fetch_add(1, Relaxed) % u64::from(u16::MAX)) as u16 + 1
}
