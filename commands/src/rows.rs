//! The cells of a count-min or Top-K sketch: rows of equal width, in each of which an item has one cell. RedisBloom
//! finds the cell with MurmurHash2, seeded with the number of the row.

use crate::call::Call;
use crate::items::STEP_BYTES;
use bloomery::Error;
use bloomery::mem::{Cells, Words};
use bloomery::murmur::murmur2_each;
use bloomery::parallel::{ParallelFor, in_parts};
use std::num::{NonZeroU32, NonZeroU64};

/// Maximum number of rows, so that an item of 1 MB takes 190 ms and not hours: it is hashed for each row. With 150
/// rows, an estimate is wrong with the smallest probability that CMS.INITBYPROB reads.
const MOST_ROWS: u64 = 256;

/// Number of cells that are found and prefetched before the first of them is used.
#[allow(clippy::cast_possible_truncation, reason = "a small number")]
const GROUP: usize = MOST_ROWS as usize;

/// Maximum number of items in a group.
const MOST_ITEMS: usize = if cfg!(small_steps) { 1 } else { 32 };

/// Number of hashes that are computed at a time.
const LANES: usize = 8;

/// The shape of a sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) width: NonZeroU64,
    pub(super) depth: NonZeroU64,
}

impl Rows {
    /// A shape, if it has cells, their number is below 2^64, and there are at most 256 rows.
    pub(super) fn new(width: u64, depth: u64) -> Option<Rows> {
        width.checked_mul(depth).filter(|_| depth <= MOST_ROWS)?;
        Some(Rows { width: NonZeroU64::new(width)?, depth: NonZeroU64::new(depth)? })
    }

    /// Number of cells.
    pub(super) fn cells(self) -> u64 {
        self.width.get().wrapping_mul(self.depth.get())
    }

    /// The items of the next group of a command: the arguments from index `first` on, of which every `stride`th is an
    /// item. A group is short if its items are long, or have many cells.
    pub(super) fn group<'a, C: Call<'a>>(self, call: &C, first: usize, stride: usize) -> Vec<&'a [u8]> {
        let depth = self.depth();
        let most = GROUP.checked_div(depth).unwrap_or(1).clamp(1, MOST_ITEMS);
        let (mut items, mut bytes) = (Vec::with_capacity(most), 0usize);
        for index in (first..call.argc()).step_by(stride).take(most) {
            let item = call.arg(index);
            items.push(item);
            bytes = bytes.saturating_add(item.len().saturating_mul(depth.div_ceil(LANES)));
            if bytes >= STEP_BYTES {
                break;
            }
        }
        items
    }

    /// Computes a number for each item of a [group](Rows::group), and appends it to `results`. `step` gets the index of
    /// an item in the group, `start`, and the item's cells. `IN_A_WORD` is the number of cells in a word of `cells`.
    #[allow(clippy::arithmetic_side_effects, reason = "a word has cells")]
    pub(super) fn fold<const IN_A_WORD: usize>(
        self,
        cells: &Cells,
        items: &[&[u8]],
        (start, results): (u32, &mut Vec<u32>),
        mut step: impl FnMut(usize, u32, &[usize]) -> u32,
    ) {
        let mut found = [0; GROUP];
        for (item, found) in items.iter().zip(found.chunks_exact_mut(self.depth())) {
            self.find(item, found);
            for cell in found {
                Words::prefetch(cells, *cell / IN_A_WORD);
            }
        }
        let cells = found.chunks_exact(self.depth()).take(items.len()).enumerate();
        results.extend(cells.map(|(index, cells)| step(index, start, cells)));
    }

    #[allow(clippy::cast_possible_truncation, reason = "it is at most `MOST_ROWS`")]
    fn depth(self) -> usize {
        self.depth.get() as usize
    }

    /// Finds an item's cells.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "seeds have 32 bits, and there are fewer than 2^64 cells, all of them in memory"
    )]
    fn find(self, item: &[u8], found: &mut [usize]) {
        let mut start = 0;
        // Hashes have 32 bits, and dividing those is faster.
        let width = NonZeroU32::try_from(self.width).ok();
        for (rows, found) in (0u64..).step_by(LANES).zip(found.chunks_mut(LANES)) {
            let seeds = std::array::from_fn::<_, LANES, _>(|lane| (rows + lane as u64) as u32);
            for (cell, hash) in found.iter_mut().zip(murmur2_each(item, seeds)) {
                *cell = start + width.map_or(hash, |width| hash % width) as usize;
                start += self.width.get() as usize;
            }
        }
    }
}

/// A copy of words.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub(super) fn copied(words: &Words, parallel: &ParallelFor<'_>) -> Result<Words, Error> {
    let copy = Words::zeroed(words.len() as u64)?;
    in_parts(copy.len(), parallel, |part| Words::copy_range(&copy, words, part));
    Ok(copy)
}
