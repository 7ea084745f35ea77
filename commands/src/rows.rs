//! The cells of a count-min or Top-K sketch: rows of equal width, in each of which an item has one cell. RedisBloom
//! finds the cell with MurmurHash2, seeded with the number of the row.

use crate::call::Call;
use crate::error::CommandError;
use crate::items::STEP_BYTES;
use bloomery::Error;
use bloomery::mem::{Cells, Words};
use bloomery::murmur::murmur2_each;
use bloomery::parallel::{ParallelFor, in_parts};
use std::num::{NonZeroU32, NonZeroU64};

/// Number of cells that are found and prefetched before the first of them is used.
const GROUP: usize = 256;

/// Maximum number of items in a group.
const MOST_ITEMS: usize = if cfg!(small_steps) { 1 } else { 32 };

/// Number of hashes that are computed at a time.
const LANES: usize = 8;

/// Maximum number of bytes that are hashed for one item of a client, which takes 0.1 s: the item once for each row. A
/// sketch with 20,000 rows needs 80 kB, and hashing a megabyte for each of them would take 8 s. Two such items can
/// block the server in a row: the second is the next piece of the command.
const MOST_HASHED: u64 = 1 << 27;

/// Finding a cell and fetching it takes about as long as hashing this many bytes.
const CELL: u64 = 64;

/// Maximum number of bytes that the server zeroes when a cell is used for the first time: a page. Zeroing one takes
/// about as long as hashing as many bytes.
const PAGE: u64 = 4096;

/// A draw takes about as long as hashing this many bytes.
const DRAW: u64 = 12;

/// The shape of a sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) width: NonZeroU64,
    pub(super) depth: NonZeroU64,
}

impl Rows {
    /// A shape, if it has cells, and their number is below 2^64.
    pub(super) fn new(width: u64, depth: u64) -> Option<Rows> {
        width.checked_mul(depth)?;
        Some(Rows { width: NonZeroU64::new(width)?, depth: NonZeroU64::new(depth)? })
    }

    /// Number of cells.
    pub(super) fn cells(self) -> u64 {
        self.width.get().wrapping_mul(self.depth.get())
    }

    /// Refuses a client's new sketch in which any item would take too long.
    pub(super) fn limit<'a, C: Call<'a>>(self, call: &C) -> Result<(), CommandError> {
        self.limit_work(call, (call.argc(), 1), 0)
    }

    /// Refuses a client's command with an item that would take too long. The items are the arguments from index `first`
    /// on, every `stride`th. Each row makes up to `draws` draws.
    pub(super) fn limit_work<'a, C: Call<'a>>(
        self,
        call: &C,
        (first, stride): (usize, usize),
        draws: u32,
    ) -> Result<(), CommandError> {
        if call.is_from_primary() {
            return Ok(());
        }
        let (rows, zeroed) = (self.depth.get(), self.width.get().saturating_mul(8).min(PAGE));
        let most =
            MOST_HASHED.checked_div(rows).and_then(|most| most.checked_sub(CELL.saturating_add(zeroed)));
        let most = most.ok_or(CommandError::SketchTooDeep { rows })?;
        let items = (first..call.argc()).step_by(stride).map(|index| call.arg(index).len() as u64);
        let longest = items.max().unwrap_or(0).saturating_add(DRAW.saturating_mul(draws.into()));
        if longest > most { Err(CommandError::SketchItemTooLong { rows, most }) } else { Ok(()) }
    }

    /// The items of the next group of a command: the arguments from index `first` on, of which every `stride`th is an
    /// item. A group is short if its items are long, or have many cells.
    pub(super) fn group<'a, C: Call<'a>>(self, call: &C, first: usize, stride: usize) -> Vec<&'a [u8]> {
        let depth = usize::try_from(self.depth.get()).unwrap_or(GROUP);
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
    /// an item in the group, the item's number so far, which begins as `start`, and the item's cells, or some of them.
    /// `IN_A_WORD` is the number of cells in a word of `cells`.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "`len` is at most `GROUP`, and a word has cells"
    )]
    pub(super) fn fold<const IN_A_WORD: usize>(
        self,
        cells: &Cells,
        items: &[&[u8]],
        (start, results): (u32, &mut Vec<u32>),
        mut step: impl FnMut(usize, u32, &[usize]) -> u32,
    ) {
        let begin = results.len();
        results.resize(begin.saturating_add(items.len()), start);
        let mut found = [0; GROUP];
        // More than one round only if an item has more cells than a group, and so is alone in it.
        for first in (0..self.depth.get()).step_by(GROUP) {
            let len = self.depth.get().saturating_sub(first).min(GROUP as u64) as usize;
            for (item, found) in items.iter().zip(found.chunks_exact_mut(len)) {
                self.find(item, first, found);
                for cell in found {
                    Words::prefetch(cells, *cell / IN_A_WORD);
                }
            }
            let results = results.iter_mut().skip(begin).enumerate();
            for ((index, result), cells) in results.zip(found.chunks_exact(len)) {
                *result = step(index, *result, cells);
            }
        }
    }

    /// Finds an item's cells, beginning with the one in the row `first`.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "seeds have 32 bits, and there are fewer than 2^64 cells, all of them in memory"
    )]
    fn find(self, item: &[u8], first: u64, found: &mut [usize]) {
        let mut start = (first * self.width.get()) as usize;
        // Hashes have 32 bits, and dividing those is faster.
        let width = NonZeroU32::try_from(self.width).ok();
        for (rows, found) in (first..).step_by(LANES).zip(found.chunks_mut(LANES)) {
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
