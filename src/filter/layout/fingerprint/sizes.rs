//! Sizes of fingerprint tables, and their error rate.

use crate::params::limits;

/// Minimum number of bits per fingerprint. With 6 bits, there are 63 or 64 fingerprints, and no more distances than
/// that between an item's two windows. With 4 bits, one in 10,000 tables for 50 to 400 items becomes full early.
const LEAST_BITS: u32 = 6;

/// Additional cells in every table. Without them, a small table would be full if a few items happened to share their
/// windows.
const SPARE: u64 = 24;

/// Cells per sector. A write waits while a sector is cleaned, so sectors mustn't be large. One word per sector needs
/// 0.2% of the memory.
pub(super) const SECTOR: u64 = 2048;

/// Maximum number of bits per cell: one word.
const MOST_WIDTH: u32 = u64::BITS;

/// The sizes of a fingerprint table and its cells. The cells are followed by a word that is always 0 and is part of the
/// format. If cells belong to generations, that word is followed by one word for each sector, one for each generation,
/// and one for the oldest generation that wasn't dropped early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Number of cells. Two neighbouring cells form a window.
    pub cells: u64,
    /// Bits per fingerprint.
    pub fingerprint: u32,
    /// Bits per count or generation number; 0 if the table has neither.
    pub payload: u32,
    /// Number of generations that are alive at once; 0 if cells don't belong to generations.
    pub generations: u16,
}

impl Sizes {
    /// A table without cells. Its cells will have a count of `payload` bits, or belong to `generations` generations.
    pub(crate) fn of(payload: u32, generations: u16) -> Sizes {
        let payload = if generations == 0 { payload } else { bits_of_number(generations) };
        Sizes { payload, generations, ..Sizes::default() }
    }

    /// The smallest table of this kind for `capacity` items at this error rate. `None` if the fingerprints would need
    /// too many bits.
    pub(super) fn smallest(self, capacity: u64, error_rate: f64) -> Option<Sizes> {
        let Sizes { payload, .. } = self;
        // Spare cells let an add to a nearly full table find room. Tables with counts or generations have more of them,
        // because items come and go while these tables are full. With 6.25% spare cells, such an add moves four times
        // as many fingerprints as with 10%.
        let room = if payload == 0 { capacity.div_ceil(16) } else { capacity.div_ceil(10) };
        let least = capacity + room + SPARE;
        let identities = -1.0 / libm::expm1(libm::log1p(-error_rate) / capacity as f64);
        let mut best: Option<Sizes> = None;
        for fingerprint in LEAST_BITS..=MOST_WIDTH - 2 - payload {
            let windows = libm::ceil(identities / Sizes { fingerprint, ..self }.fingerprints() as f64);
            // Adds one more window, in case the logarithms are slightly off. The limit keeps the sizes that are
            // computed from the cells far from overflow.
            let cells = (windows.min((limits::MAX_CAPACITY * 64) as f64) as u64 + 2).max(least);
            let table = Sizes { cells, fingerprint, ..self }.filled();
            if table.rate_at(capacity as f64) <= error_rate
                && best.is_none_or(|best| table.words() < best.words())
            {
                best = Some(table);
            }
            if cells == least {
                break;
            }
        }
        best
    }

    /// This table with the maximum number of cells that fit into its words.
    pub fn filled(self) -> Sizes {
        let bits = u128::from(self.cell_words() - 1) * u128::from(u64::BITS);
        Sizes { cells: (bits / u128::from(self.width())) as u64, ..self }
    }

    /// Bits per cell: the fingerprint, a bit that says which of the item's two windows the cell is in, a bit for the
    /// place in that window, and the payload.
    #[inline(always)]
    pub fn width(self) -> u32 {
        self.fingerprint + 2 + self.payload
    }

    /// Number of words for the cells, including the one that follows them.
    pub fn cell_words(self) -> u64 {
        let bits = u128::from(self.cells) * u128::from(self.width());
        (bits.div_ceil(u64::BITS.into()) as u64).saturating_add(1)
    }

    /// Number of sectors; 0 if cells don't belong to generations.
    pub fn sectors(self) -> u64 {
        if self.generations == 0 { 0 } else { self.cells.div_ceil(SECTOR) }
    }

    /// Total number of words.
    pub fn words(self) -> u64 {
        let of_generations = if self.generations == 0 { 0 } else { u64::from(self.generations) + 1 };
        self.cell_words().saturating_add(self.sectors()).saturating_add(of_generations)
    }

    /// Number of generations by which the cleaning of a sector may lag: the possible generation numbers, minus those of
    /// the generations that are alive.
    #[inline(always)]
    pub fn slack(self) -> u64 {
        (1 << self.payload) - u64::from(self.generations)
    }

    /// Number of windows.
    #[inline(always)]
    pub fn windows(self) -> u64 {
        self.cells - 1
    }

    /// Number of different fingerprints. A free cell is 0, so if the table has no counts, no fingerprint is 0.
    #[inline(always)]
    pub fn fingerprints(self) -> u64 {
        (1 << self.fingerprint) - self.least_fingerprint()
    }

    /// The smallest fingerprint.
    #[inline(always)]
    pub fn least_fingerprint(self) -> u64 {
        u64::from(self.payload == 0 || self.generations > 0)
    }

    /// Number of items that the table can distinguish. An item is identified by its first window and its fingerprint.
    fn identities(self) -> f64 {
        self.windows() as f64 * self.fingerprints() as f64
    }

    /// Error rate when the table contains `items` distinct items: the chance that one of them has the same identity as
    /// an absent item.
    pub(super) fn rate_at(self, items: f64) -> f64 {
        -libm::expm1(items * libm::log1p(-1.0 / self.identities()))
    }

    /// Number of distinct items that would fill `used` cells.
    pub(super) fn items_at(self, used: f64) -> f64 {
        libm::log1p(-used / self.identities()) / libm::log1p(-1.0 / self.identities())
    }

    /// Whether a table with these sizes could have been created.
    pub(super) fn is_valid(self) -> bool {
        (LEAST_BITS..=MOST_WIDTH - 2 - self.payload).contains(&self.fingerprint)
            && self.cells > SPARE
            && (self.generations == 0 || self.payload == bits_of_number(self.generations))
            && self.words() <= limits::MAX_BYTES / 8
            && self == self.filled()
    }
}

/// Bits for generation numbers, which are stored modulo a power of two. At least a sixteenth of the numbers, and at
/// least one, stays unused, so that with many generations a sector is cleaned only once in several rotations.
fn bits_of_number(generations: u16) -> u32 {
    let fits = |bits: &u32| (1 << bits) - u32::from(generations) >= ((1 << bits) / 16).max(1);
    (1..u16::BITS).find(|bits| 1 << bits > u32::from(generations) && fits(bits)).unwrap_or(u16::BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_an_item() {
        let bits = |error_rate, payload| {
            let table = Sizes::of(payload, 0).smallest(1_000_000, error_rate).unwrap();
            assert!(table.is_valid() && table.rate_at(1e6) <= error_rate);
            (table.fingerprint, (table.words() * 64) as f64 / 1e6)
        };
        for (error_rate, payload, fingerprint, most) in [
            (0.1, 0, 6, 8.51),
            (0.01, 0, 7, 9.6),
            (0.001, 0, 10, 12.8),
            (1e-4, 0, 14, 17.01),
            (1e-6, 0, 20, 23.5),
            (1e-9, 0, 30, 34.1),
            (0.01, 4, 7, 14.4),
            (0.001, 4, 10, 17.7),
            (0.01, 8, 7, 18.8),
            (0.01, 16, 7, 27.6),
        ] {
            let (found, bits) = bits(error_rate, payload);
            assert!(found == fingerprint && bits <= most, "{error_rate} {payload}: {found} {bits}");
        }
    }

    #[test]
    fn every_promise_is_kept_or_refused() {
        for capacity in [1, 2, 7, 100, 12_345, 1 << 33, 1 << 48] {
            for error_rate in [0.9, 0.5, 0.03, 0.01, 1e-5, 1e-9, 1e-12, 1e-18, 1e-20] {
                for payload in [0, 4, 8, 16] {
                    let table = Sizes::of(payload, 0).smallest(capacity, error_rate);
                    assert!(table.is_some() || error_rate < 1e-13, "{capacity} {error_rate} {payload}");
                    if let Some(table) = table {
                        assert!(table.rate_at(capacity as f64) <= error_rate && table.cells > capacity);
                        assert_eq!(table, table.filled());
                    }
                }
            }
        }
    }

    #[test]
    fn items_are_estimated_from_the_cells_in_use() {
        let table = Sizes::default().smallest(1000, 0.1).unwrap();
        // If n new items are added, the number of colliding items is the sum of the chances that a test is wrong.
        let used = |items: u32| (0..items).fold(0.0, |used, _| used + 1.0 - used / table.identities());
        for items in [0, 1, 10, 500, 1000] {
            assert!((table.items_at(used(items)) - f64::from(items)).abs() < 1e-6);
        }
    }
}
