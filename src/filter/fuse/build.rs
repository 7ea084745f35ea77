//! How a binary fuse filter is built.
//!
//! Each item gets one of its cells for itself, so its other cells may have any content. An item that is alone in a cell
//! gets that cell and leaves its others, in which another item may then be alone (peeling). In the reverse order, each
//! item's own cell is set so that the three cells together are its fingerprint.
//!
//! The hashes are sorted first. Equal ones come together, and neighbours have neighbouring cells, so that the cells of the
//! items that are looked at one after the other are in the caches.

use super::places::{Places, mix};
use crate::error::Error;
use crate::filter::fingerprint::cells;
use crate::hash::fast_range;
use crate::mem::Words;
use crate::parallel::{ParallelFor, is_wanted};
use crate::sizing::fuse::{Fuse, MOST_ROUNDS};
use crate::sync::Mutex;
use crate::sync::Ordering::Relaxed;
use std::sync::PoisonError;

/// Approximate number of hashes in a bucket that is sorted in one step: 8 KiB.
const BUCKET: usize = 1024;

/// Most hashes of a bucket that are sorted [by position](sort_part).
const MOST_NEAR: usize = 4 * BUCKET;

/// Maximum number of buckets: this is the number of cache lines that are written to in turn.
const MOST_BUCKETS: usize = 1 << 13;

/// Why there are not more.
const TOO_MANY: &str = "a static filter holds at most 3.8 billion items; use several";

/// Items or cells between two turns of other jobs: a millisecond, if each needs 60 ns.
const TURN: usize = if cfg!(small_steps) { 1 } else { 1 << 14 };

/// Gives other jobs their turn.
///
/// # Errors
/// [`Error::Unbuilt`] if the filter is no longer needed.
fn turn(parallel: &ParallelFor<'_>) -> Result<(), Error> {
    if is_wanted(parallel) { Ok(()) } else { Err(Error::Unbuilt) }
}

/// Makes a list of this many zeros.
fn fill<T: Copy + Default>(list: &mut Vec<T>, len: usize, parallel: &ParallelFor<'_>) -> Result<(), Error> {
    list.clear();
    let refused = Error::OutOfMemory { bytes: (len as u64).saturating_mul(size_of::<T>() as u64) };
    list.try_reserve_exact(len).map_err(|_| refused)?;
    while list.len() < len {
        turn(parallel)?;
        list.resize(len.min(list.len() + 16 * TURN), T::default());
    }
    Ok(())
}

/// The filter of the items with these hashes, and their number without repetitions. It depends on the set of hashes alone.
///
/// Including each item's own cell and the hashes, building takes 24 bytes an item.
///
/// # Errors
/// [`Error::OutOfMemory`]; [`Error::Exclusive`] for more than 3.8 billion items; [`Error::Unbuilt`] if `parallel` runs no more
/// tasks.
pub(crate) fn build(
    mut hashes: Vec<u64>,
    width: u32,
    parallel: &ParallelFor<'_>,
) -> Result<(Fuse, Words, u64), Error> {
    let mut spare = Vec::new();
    for rounds in 1..=MOST_ROUNDS {
        for part in hashes.chunks_mut(16 * TURN) {
            turn(parallel)?;
            part.iter_mut().for_each(|hash| *hash = mix(*hash));
        }
        fill(&mut spare, hashes.len(), parallel)?;
        sort(&mut hashes, &mut spare, parallel)?;
        let sizes = Fuse::for_items(hashes.len() as u64, width);
        let cells = u32::try_from(sizes.cells()).map_err(|_| Error::Exclusive(TOO_MANY))? as usize;
        fill(&mut spare, cells, parallel)?;
        let mut counts = Vec::new();
        fill(&mut counts, cells, parallel)?;
        let mut held = Held { places: Places::new(sizes), hashes: spare, counts };
        if let Some(order) = held.peel(&hashes, parallel)? {
            let rounds = if order.is_empty() { 0 } else { rounds };
            let words = held.assign(&order, sizes, rounds, parallel)?;
            return Ok((sizes, words, hashes.len() as u64));
        }
        spare = held.hashes;
    }
    Err(Error::Unbuilt)
}

/// Who is in each cell.
struct Held {
    places: Places,
    /// XOR of the hashes of a cell's items.
    hashes: Vec<u64>,
    /// Number of its items.
    counts: Vec<u8>,
}

impl Held {
    /// Each item's own cell, in the order in which they were found; the hash of the item is in its cell. `None` if some
    /// item has no cell of its own.
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
        // Holds found cells from the front, and cells still to visit from the back. Each cell is recorded once: when
        // its number of items becomes 1. A branch on that would be mispredicted for every third cell.
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

    /// The words of the filter, from the items' own cells, in the order in which they were found.
    fn assign(
        &self,
        order: &[u32],
        sizes: Fuse,
        rounds: u64,
        parallel: &ParallelFor<'_>,
    ) -> Result<Words, Error> {
        let words = Words::zeroed(Fuse::words(sizes.cells(), sizes.width))?;
        for part in order.rchunks(TURN) {
            turn(parallel)?;
            for cell in part.iter().rev() {
                let hash = self.hashes[*cell as usize];
                let others = self.places.of(hash).map(|cell| cells::get(&words, sizes.width, cell));
                let content = others.into_iter().fold(self.places.fingerprint(hash), |all, cell| all ^ cell);
                cells::set(&words, sizes.width, (*cell).into(), content);
            }
        }
        words[words.len() - 1].store(sizes.describe(rounds), Relaxed);
        Ok(words)
    }
}

/// Sorts the hashes, and drops repetitions: into buckets by their upper bits first, then within each. `spare` has room for
/// as many.
fn sort(hashes: &mut Vec<u64>, spare: &mut [u64], parallel: &ParallelFor<'_>) -> Result<(), Error> {
    let buckets = (hashes.len() / BUCKET).clamp(1, MOST_BUCKETS).next_power_of_two();
    let bucket = |hash: u64| fast_range(hash, buckets as u64) as usize;
    let mut next = vec![0; buckets];
    for part in hashes.chunks(16 * TURN) {
        turn(parallel)?;
        part.iter().for_each(|hash| next[bucket(*hash)] += 1);
    }
    let lens = next.clone();
    let mut sum = 0;
    for start in &mut next {
        sum += std::mem::replace(start, sum);
    }
    for part in hashes.chunks(TURN) {
        turn(parallel)?;
        for hash in part {
            let place = &mut next[bucket(*hash)];
            spare[*place] = *hash;
            *place += 1;
        }
    }
    let sorted = &mut spare[..hashes.len()];
    let mut rest = &mut *sorted;
    let parts: Vec<_> = lens.iter().filter_map(|len| rest.split_off_mut(..*len)).map(Mutex::new).collect();
    parallel(parts.len(), &|part| {
        sort_part(&mut parts[part].lock().unwrap_or_else(PoisonError::into_inner), buckets.trailing_zeros());
    });
    drop(parts);
    hashes.clear();
    for part in sorted.chunks(16 * TURN) {
        turn(parallel)?;
        for hash in part {
            if hashes.last() != Some(hash) {
                hashes.push(*hash);
            }
        }
    }
    Ok(())
}

/// Sorts hashes whose first `known` bits are equal: by the next bits first, after which most are near their places.
fn sort_part(hashes: &mut [u64], known: u32) {
    let next_bits = |hash: u64| (hash << known >> (u64::BITS - 8)) as usize;
    let mut ends = [0; 256];
    hashes.iter().for_each(|hash| ends[next_bits(*hash)] += 1);
    // A bucket is this large only if one item was repeated many times.
    if hashes.len() > MOST_NEAR || ends.iter().any(|len| *len > 64) {
        return hashes.sort_unstable();
    }
    let mut sum = 0;
    for end in &mut ends {
        sum += std::mem::replace(end, sum);
    }
    let mut near = [0; MOST_NEAR];
    let near = &mut near[..hashes.len()];
    for hash in hashes.iter() {
        let place = &mut ends[next_bits(*hash)];
        near[*place] = *hash;
        *place += 1;
    }
    for index in 1..near.len() {
        let (hash, mut place) = (near[index], index);
        while place > 0 && near[place - 1] > hash {
            near[place] = near[place - 1];
            place -= 1;
        }
        near[place] = hash;
    }
    hashes.copy_from_slice(near);
}
