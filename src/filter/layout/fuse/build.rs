//! Builds a binary fuse filter.
//!
//! Each item gets one of its cells to itself, so its other cells may have any content. An item that is alone in a cell
//! gets that cell and is removed from its other cells, in which another item may then be alone (peeling). In reverse
//! order, each item's own cell is then set so that the XOR of its three cells is its fingerprint.

use super::places::Places;
use super::sizes::Sizes;
use crate::error::Error;
use crate::filter::layout::packed;
use crate::filter::layout::rounds::{TURN, fill, turn, until_built};
use crate::mem::Words;
use crate::parallel::ParallelFor;
use crate::sync::Ordering::Relaxed;
use alloc::vec::Vec;

/// The error if there are more items than a filter can hold.
const TOO_MANY: &str = "a static filter holds at most 3.8 billion items; use several";

/// Bytes per item that building a filter needs in addition to the list and the filter: the hashes, and the list of the
/// items' own cells.
pub(super) const BYTES: u64 = 24;

/// See [`Algorithm::build`](super::super::algorithm::Algorithm::build). The result depends only on the set of hashes
/// and the width. [`Error::Exclusive`] is for more than 3.8 billion items.
pub(super) fn build(
    hashes: Vec<u64>,
    width: u32,
    parallel: &ParallelFor<'_>,
) -> Result<((u64, Words), u64), Error> {
    until_built(hashes, parallel, |hashes, rounds| {
        let sizes = Sizes::for_items(hashes.len() as u64, width);
        let cells = u32::try_from(sizes.cells()).map_err(|_| Error::Exclusive(TOO_MANY))? as usize;
        let mut held = Held { places: Places::new(sizes), hashes: Vec::new(), counts: Vec::new() };
        fill(&mut held.hashes, cells, parallel)?;
        fill(&mut held.counts, cells, parallel)?;
        match held.peel(hashes, parallel)? {
            Some(order) => Ok(Some((sizes.cells(), held.assign(&order, sizes, rounds, parallel)?))),
            None => Ok(None),
        }
    })
}

/// Which items are in each cell.
struct Held {
    places: Places,
    /// XOR of the hashes of a cell's items.
    hashes: Vec<u64>,
    /// Number of items in each cell.
    counts: Vec<u8>,
}

impl Held {
    /// Returns each item's own cell, in the order in which the cells were found. `self.hashes` then has each item's
    /// hash at the item's own cell. `None` if some item gets no cell of its own, or if more than 255 items share a
    /// cell.
    fn peel(&mut self, hashes: &[u64], parallel: &ParallelFor<'_>) -> Result<Option<Vec<u32>>, Error> {
        for part in hashes.chunks(TURN) {
            turn(parallel)?;
            for hash in part {
                for cell in self.places.of(*hash) {
                    self.hashes[cell as usize] ^= hash;
                    match self.counts[cell as usize].checked_add(1) {
                        Some(count) => self.counts[cell as usize] = count,
                        None => return Ok(None),
                    }
                }
            }
        }
        // `cells` has the found cells at the front, and the cells still to be visited at the back. Each cell is
        // recorded once, when its number of items becomes 1. There is no branch on this condition, because it would be
        // mispredicted for every third cell.
        let (mut cells, mut found, mut open) = (Vec::new(), 0, self.counts.len());
        fill::<u32>(&mut cells, self.counts.len() + 1, parallel)?;
        for cell in 0..self.counts.len() {
            if cell.is_multiple_of(16 * TURN) {
                turn(parallel)?;
            }
            cells[open] = cell as u32;
            open -= usize::from(self.counts[cell] == 1);
        }
        let mut looked_at = 0usize;
        while open < self.counts.len() {
            if looked_at.is_multiple_of(TURN) {
                turn(parallel)?;
            }
            looked_at += 1;
            open += 1;
            let cell = cells[open];
            if self.counts[cell as usize] != 1 {
                continue;
            }
            cells[found] = cell;
            found += 1;
            let hash = self.hashes[cell as usize];
            for other in self.places.of(hash) {
                let count = &mut self.counts[other as usize];
                *count -= 1;
                cells[open] = other as u32;
                open -= usize::from(*count == 1);
                self.hashes[other as usize] ^= if other == u64::from(cell) { 0 } else { hash };
            }
        }
        cells.truncate(found);
        Ok((found == hashes.len()).then_some(cells))
    }

    /// Computes the filter's words. `order` has the items' own cells in the order in which they were found, and they
    /// are set in reverse order.
    fn assign(
        &self,
        order: &[u32],
        sizes: Sizes,
        rounds: u64,
        parallel: &ParallelFor<'_>,
    ) -> Result<Words, Error> {
        let words = Words::zeroed(Sizes::words(sizes.cells(), sizes.width))?;
        for part in order.rchunks(TURN) {
            turn(parallel)?;
            for cell in part.iter().rev() {
                let hash = self.hashes[*cell as usize];
                let others = self.places.of(hash).map(|cell| packed::get(&*words, sizes.width, cell));
                let content = others.into_iter().fold(self.places.fingerprint(hash), |all, cell| all ^ cell);
                packed::set(&words, sizes.width, (*cell).into(), content);
            }
        }
        words[words.len() - 1].store(sizes.describe(rounds), Relaxed);
        Ok(words)
    }
}
