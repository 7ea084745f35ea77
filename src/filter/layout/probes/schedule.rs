//! Computes which cells an item's probes fall on. The computation is part of the format (docs/FORMAT.md, "Probes").
//!
//! Plain double hashing (Kirsch, Mitzenmacher, "Less Hashing, Same Performance", 2006) isn't used. In a filter of a
//! thousand cells, an item whose stride is near a half or a third of 2^64 would hit only two or three different cells.
//! That would more than double an error rate of 1e-4. Every probe therefore goes through one more multiplication.

use crate::hash::{ItemHash, fast_range, mix};

/// Bits per block: one cache line.
pub const BLOCK_BITS: u32 = 512;

/// Words per block.
pub const BLOCK_WORDS: usize = (BLOCK_BITS / u64::BITS) as usize;

/// Hash bits for one probe inside a block. They select one of the block's 512 bits, or one of its counters, of which
/// there are fewer.
const FIELD: u32 = 9;

/// Number of probes that 64 hash bits provide. For further probes, the bits are mixed.
const FIELDS: u32 = u64::BITS / FIELD;

/// Index of the item's block among `blocks` blocks of its shard.
#[inline(always)]
pub fn block(item: ItemHash, blocks: usize) -> usize {
    fast_range(item.position(), blocks as u64) as usize
}

/// The item's cells inside its block of 512 / `width` cells: successive 9-bit fields of `high`, lowest first. `high` is
/// mixed after every seven fields.
#[inline(always)]
pub fn in_block(item: ItemHash, width: u32, probes: u32) -> impl Iterator<Item = usize> {
    let mask = u64::from(BLOCK_BITS / width) - 1;
    let mut source = item.high;
    let (mut fields, mut left) = (source, FIELDS);
    (0..probes).map(move |_| {
        // Counts down, because dividing by seven for each probe took a third of a test's time.
        if left == 0 {
            source = mix(source);
            (fields, left) = (source, FIELDS);
        }
        let index = fields & mask;
        fields >>= FIELD;
        left -= 1;
        index as usize
    })
}

/// The first `K` cells of [`in_block`]: at most seven, which need no mixing.
#[inline(always)]
pub fn first_in_block<const K: usize>(item: ItemHash, width: u32) -> [usize; K] {
    const { assert!(K <= FIELDS as usize) };
    let mask = u64::from(BLOCK_BITS / width) - 1;
    core::array::from_fn(|i| (item.high >> (FIELD * i as u32) & mask) as usize)
}

/// The cells of a shard that a probe may fall on: `cells` of them, starting at `probe × step`.
#[derive(Clone, Copy)]
pub struct Slices {
    cells: u64,
    step: u64,
}

impl Slices {
    /// CLASSIC: every probe may fall on any of the shard's cells.
    #[inline(always)]
    pub fn whole(cells: u64) -> Slices {
        Slices { cells, step: 0 }
    }

    /// PARTITIONED: each probe has a slice of its own.
    #[inline(always)]
    pub fn apart(cells: u64, probes: u32) -> Slices {
        let cells = cells / u64::from(probes);
        Slices { cells, step: cells }
    }
}

/// The item's cells in its shard, in a layout without blocks. The cell of probe i is `mix(position + i·(high | 1))`,
/// scaled to the range of cells that the probe may fall on.
#[inline(always)]
pub fn spread(item: ItemHash, slices: Slices, probes: u32) -> impl Iterator<Item = usize> {
    let stride = item.high | 1;
    let (mut state, mut first) = (item.position(), 0);
    (0..probes).map(move |_| {
        let index = first + fast_range(mix(state), slices.cells);
        state = state.wrapping_add(stride);
        first += slices.step;
        index as usize
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEM: ItemHash = ItemHash { low: 0x0123_4567_89ab_cdef, high: 0xfedc_ba98_7654_3210 };

    /// These values come from a Python program that was written from docs/FORMAT.md alone. If they changed, the items
    /// of saved filters would no longer be found.
    #[test]
    fn pinned_schedules() {
        assert_eq!(block(ITEM, 1000), 4);
        let blocked: Vec<_> = in_block(ITEM, 1, 9).collect();
        assert_eq!(blocked, [16, 25, 405, 270, 425, 229, 507, 296, 137]);
        assert_eq!(in_block(ITEM, 4, 3).collect::<Vec<_>>(), [16, 25, 21]);
        assert_eq!(
            (&first_in_block::<7>(ITEM, 1)[..], first_in_block(ITEM, 4)),
            (&blocked[..7], [16, 25, 21])
        );
        let spread = |slices| spread(ITEM, slices, 3).collect::<Vec<_>>();
        assert_eq!(spread(Slices::whole(1_000_000)), [894_195, 811_560, 236_397]);
        assert_eq!(spread(Slices::apart(999_936, 3)), [298_046, 603_814, 745_418]);
    }

    #[test]
    fn every_cell_is_reached_and_none_beyond() {
        for (low, high) in [(0, 0), (u64::MAX, u64::MAX), (u64::MAX, 0), (0, u64::MAX)] {
            let item = ItemHash { low, high };
            for width in [1, 4, 8, 16] {
                assert!(in_block(item, width, 72).all(|index| index < 512 / width as usize));
            }
            assert!(spread(item, Slices::whole(65), 72).all(|index| index < 65));
            let apart = spread(item, Slices::apart(72 * 64, 72), 72);
            assert!(apart.enumerate().all(|(probe, index)| index / 64 == probe));
        }
    }
}
