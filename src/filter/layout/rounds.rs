//! Rounds of mixing, which all static filters have in common: the hashes of the items are mixed repeatedly until a
//! filter can be built from them.
//!
//! After each round, the hashes are sorted. Equal hashes are then next to each other. Consecutive hashes belong to
//! neighbouring cells, so most of the cells that a build visits are in the caches.

use crate::error::Error;
use crate::hash::fast_range;
use crate::parallel::{ParallelFor, is_wanted};
use crate::sync::Mutex;
use crate::sync::PoisonError;
use alloc::vec::Vec;

/// Maximum number of mixing rounds for an item's hash. A build that fails is repeated with one more round. Of 240,000
/// builds with 2 to 3,000,000 items, at least 94% at each size needed only one round, and none needed more than 5.
pub(super) const MOST_ROUNDS: u64 = 64;

/// Approximate number of hashes in a bucket (8 KiB). Each bucket is sorted in one step.
const BUCKET: usize = 1024;

/// Maximum number of hashes in a bucket that is sorted [by position](sort_part).
const MOST_NEAR: usize = 4 * BUCKET;

/// Maximum number of buckets. While the hashes are distributed, one cache line of each bucket is being written to: up
/// to 512 KiB in all.
const MOST_BUCKETS: usize = 1 << 13;

/// Number of items, cells or rows that are processed between two turns of other jobs. This takes a millisecond if each
/// needs 60 ns.
pub(super) const TURN: usize = if cfg!(small_steps) { 1 } else { 1 << 14 };

/// Gives other jobs a turn.
///
/// # Errors
/// [`Error::Unbuilt`] if the filter is no longer needed.
pub(super) fn turn(parallel: &ParallelFor<'_>) -> Result<(), Error> {
    if is_wanted(parallel) { Ok(()) } else { Err(Error::Unbuilt) }
}

/// Replaces the contents of `list` with `len` zeros.
pub(super) fn fill<T: Copy + Default>(
    list: &mut Vec<T>,
    len: usize,
    parallel: &ParallelFor<'_>,
) -> Result<(), Error> {
    list.clear();
    let refused = Error::OutOfMemory { bytes: (len as u64).saturating_mul(size_of::<T>() as u64) };
    list.try_reserve_exact(len).map_err(|_| refused)?;
    while list.len() < len {
        turn(parallel)?;
        list.resize(len.min(list.len() + 16 * TURN), T::default());
    }
    Ok(())
}

/// The second multiplier of MurmurHash3's finalizer.
pub(super) use crate::hash::GOLDEN;
pub(super) const MURMUR: u64 = 0xC4CE_B9FE_1A85_EC53;

/// One round of mixing: MurmurHash3's finalizer, which maps different hashes to different values.
#[inline(always)]
pub(super) fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash = (hash ^ hash >> 33).wrapping_mul(MURMUR);
    hash ^ hash >> 33
}

/// The hash after this many rounds of mixing.
#[inline(always)]
pub(super) fn mixed(hash: u64, rounds: u64) -> u64 {
    (0..rounds).fold(hash, |hash, _| mix(hash))
}

/// Calls `attempt` until it returns something other than `None`. Before each call, mixes all hashes once more.
/// `attempt` receives the distinct mixed hashes in ascending order, and the number of rounds so far, or 0 if there are
/// no hashes. Returns what `attempt` built and the number of distinct hashes.
///
/// # Errors
/// [`Error::OutOfMemory`]; any error that `attempt` returns; [`Error::Unbuilt`] if `parallel` no longer runs tasks or
/// no attempt succeeds.
pub(super) fn until_built<T>(
    mut hashes: Vec<u64>,
    parallel: &ParallelFor<'_>,
    mut attempt: impl FnMut(&[u64], u64) -> Result<Option<T>, Error>,
) -> Result<(T, u64), Error> {
    for rounds in 1..=MOST_ROUNDS {
        for part in hashes.chunks_mut(16 * TURN) {
            turn(parallel)?;
            part.iter_mut().for_each(|hash| *hash = mix(*hash));
        }
        sort(&mut hashes, parallel)?;
        let rounds = if hashes.is_empty() { 0 } else { rounds };
        if let Some(built) = attempt(&hashes, rounds)? {
            return Ok((built, hashes.len() as u64));
        }
    }
    Err(Error::Unbuilt)
}

/// Sorts the hashes and drops repetitions. First distributes them among buckets by their upper bits, then sorts each
/// bucket.
fn sort(hashes: &mut Vec<u64>, parallel: &ParallelFor<'_>) -> Result<(), Error> {
    let mut spare = Vec::new();
    fill(&mut spare, hashes.len(), parallel)?;
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
        sum += core::mem::replace(start, sum);
    }
    for part in hashes.chunks(TURN) {
        turn(parallel)?;
        for hash in part {
            let place = &mut next[bucket(*hash)];
            spare[*place] = *hash;
            *place += 1;
        }
    }
    let mut rest = &mut *spare;
    let parts: Vec<_> = lens.iter().filter_map(|len| rest.split_off_mut(..*len)).map(Mutex::new).collect();
    parallel(parts.len(), &|part| {
        sort_part(&mut parts[part].lock().unwrap_or_else(PoisonError::into_inner), buckets.trailing_zeros());
    });
    drop(parts);
    hashes.clear();
    for part in spare.chunks(16 * TURN) {
        turn(parallel)?;
        for hash in part {
            if hashes.last() != Some(hash) {
                hashes.push(*hash);
            }
        }
    }
    Ok(())
}

/// Sorts hashes whose upper `known` bits are equal. Distributing them by the next bits puts most of them close to their
/// final places; an insertion sort does the rest.
fn sort_part(hashes: &mut [u64], known: u32) {
    let next_bits = |hash: u64| (hash << known >> (u64::BITS - 8)) as usize;
    let mut ends = [0; 256];
    hashes.iter().for_each(|hash| ends[next_bits(*hash)] += 1);
    // Falls back to the standard library's sort if an item was repeated many times, or if there are so many hashes that
    // buckets exceed `MOST_NEAR`.
    if hashes.len() > MOST_NEAR || ends.iter().any(|len| *len > 64) {
        return hashes.sort_unstable();
    }
    let mut sum = 0;
    for end in &mut ends {
        sum += core::mem::replace(end, sum);
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
