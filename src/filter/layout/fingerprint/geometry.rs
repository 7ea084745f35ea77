//! Which cells an item may be in. This is part of the format (docs/FORMAT.md, "Fingerprints").
//!
//! Two neighbouring cells form a window, so n cells have n − 1 windows. An item has two windows: its hash selects the
//! first, and its fingerprint determines the distance to the second. A cell says which of the two windows it is in, so
//! each window can be computed from the other. This works for any number of windows, whereas the XOR of a cuckoo filter
//! (Fan et al., 2014) needs a power of two. An item's two windows never share a cell. Otherwise, some items would have
//! only three cells, and one in 5000 small tables would be full too early.

use super::sizes::Sizes;
use crate::hash::{ItemHash, fast_range, mix};

/// Everything that a table knows about an item. Two items with the same identity can't be distinguished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) fingerprint: u64,
    /// The first and the second window.
    pub(super) windows: [u64; 2],
}

/// A possible place for an identity: a cell, and what the cell contains in addition to the payload if the identity is
/// in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) cell: u64,
    pub(super) key: u64,
}

impl Sizes {
    #[inline(always)]
    pub(super) fn identity(self, item: ItemHash) -> Identity {
        let fingerprint = fast_range(item.high, self.fingerprints()) + self.least_fingerprint();
        self.by_first(self.first(item), fingerprint)
    }

    /// The first window of an item.
    #[inline(always)]
    pub(super) fn first(self, item: ItemHash) -> u64 {
        fast_range(item.position(), self.windows())
    }

    #[inline(always)]
    fn by_first(self, first: u64, fingerprint: u64) -> Identity {
        let second = first + self.distance(fingerprint);
        let second = if second < self.windows() { second } else { second - self.windows() };
        Identity { fingerprint, windows: [first, second] }
    }

    #[inline(always)]
    fn by_second(self, second: u64, fingerprint: u64) -> Identity {
        let distance = self.distance(fingerprint);
        let first = if second < distance { second + self.windows() - distance } else { second - distance };
        Identity { fingerprint, windows: [first, second] }
    }

    /// The distance from the first window to the second, wrapping around at the end of the table. It is at least 2 and
    /// at most the number of windows minus 2.
    ///
    /// The fingerprint is mixed twice. If it were mixed only once, the distances would form an arithmetic progression,
    /// in which many differences are equal. Moves could then reach only a few windows, and tables with 7-bit
    /// fingerprints would be full at 92%.
    #[inline(always)]
    fn distance(self, fingerprint: u64) -> u64 {
        2 + fast_range(mix(mix(fingerprint)), self.windows() - 3)
    }

    /// The bits of a cell that identify its item. From the lowest bit: the fingerprint, which of the two windows the
    /// cell is in, and its place in that window. The payload follows. Places are numbered from 0 to 3 across both
    /// windows.
    #[inline(always)]
    pub(super) fn key_at(self, fingerprint: u64, number: usize) -> u64 {
        let (window, place) = (number as u64 / 2, number as u64 % 2);
        fingerprint | window << self.fingerprint | place << (self.fingerprint + 1)
    }

    /// Mask for the bits of a key.
    #[inline(always)]
    pub(super) fn key_mask(self) -> u64 {
        u64::MAX >> (u64::BITS - 2 - self.fingerprint)
    }

    /// Place `number` of an identity, from 0 to 3.
    #[inline(always)]
    pub(super) fn place(self, identity: Identity, number: usize) -> Place {
        Place {
            cell: identity.windows[number / 2] + number as u64 % 2,
            key: self.key_at(identity.fingerprint, number),
        }
    }

    /// An identity's four places.
    #[inline(always)]
    pub(super) fn places(self, identity: Identity) -> [Place; 4] {
        [0, 1, 2, 3].map(|number| self.place(identity, number))
    }

    /// The identity in a cell that is in use. `None` for a place outside the windows and for a fingerprint that no item
    /// can have. Only damaged cells contain those.
    #[inline(always)]
    pub(super) fn identity_in(self, cell: u64, content: u64) -> Option<Identity> {
        let fingerprint = content & ((1 << self.fingerprint) - 1);
        let place = content >> (self.fingerprint + 1) & 1;
        let window = cell.checked_sub(place).filter(|window| *window < self.windows())?;
        if fingerprint < self.least_fingerprint() {
            return None;
        }
        let is_first = content >> self.fingerprint & 1 == 0;
        Some(if is_first { self.by_first(window, fingerprint) } else { self.by_second(window, fingerprint) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_known_from_each_of_its_places() {
        for cells in [25, 26, 1000, 1 << 20, (1 << 33) + 7] {
            for (fingerprint, payload) in [(6, 0), (7, 4), (20, 16), (62, 0)] {
                let geometry = Sizes { cells, fingerprint, ..Sizes::of(payload, 0) };
                for i in 0..1000u64 {
                    let item = ItemHash { low: mix(i), high: mix(!i) };
                    let identity = geometry.identity(item);
                    let [first, second] = identity.windows;
                    assert!(first < cells - 1 && second < cells - 1 && first.abs_diff(second) >= 2);
                    assert!(payload > 0 || identity.fingerprint > 0, "a free cell is 0");
                    for place in geometry.places(identity) {
                        assert_eq!(geometry.identity_in(place.cell, place.key), Some(identity));
                    }
                }
            }
        }
    }

    /// These values come from a Python program that was written from docs/FORMAT.md alone. Changing them would make
    /// every saved table unreadable.
    #[test]
    fn pinned_windows() {
        let item = ItemHash { low: 0x0123_4567_89ab_cdef, high: 0xfedc_ba98_7654_3210 };
        let identity = Sizes { cells: 1000, fingerprint: 7, ..Sizes::default() }.identity(item);
        assert_eq!((identity.fingerprint, identity.windows), (127, [4, 107]));
    }

    #[test]
    fn a_place_outside_the_windows_is_nobodys() {
        let geometry = Sizes { cells: 30, fingerprint: 7, ..Sizes::default() };
        assert_eq!(geometry.identity_in(0, geometry.key_at(5, 1)), None);
        assert_eq!(geometry.identity_in(29, geometry.key_at(5, 2)), None);
        assert!(geometry.identity_in(29, geometry.key_at(5, 3)).is_some());
    }
}
