//! Assembles an array of cells that arrives in parts.

use crate::error::Error;
use crate::filter::Census;
use crate::mem::{Cells, Words};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// How bytes are written into words from a byte offset onwards, and what they add to the cell count.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// Cells that don't cross word boundaries. The function places and counts them.
    By(fn(&Words, u64, &[u8]) -> Census),
    /// Bits or slots. A part may arrive more than once; its latest bytes win. The function counts how many bits or
    /// slots are set in a range of words.
    Over(fn(&Cells) -> u64),
}

impl Place {
    /// Places a part among cells that have already been counted, and returns the new count.
    pub(super) fn place(self, words: &Words, offset: u64, bytes: &[u8], before: Census) -> Census {
        match self {
            Place::By(place) => before.and(place(words, offset, bytes)),
            Place::Over(count) => {
                let around = Words::around(words, offset, bytes.len());
                let others = before.set.saturating_sub(count(around));
                Words::set_bytes(words, offset, bytes);
                Census::of_set(others.saturating_add(count(around)))
            }
        }
    }
}

/// Maximum size of a waiting part in bytes: one page. A page of zeros can be dropped instead of kept, because an
/// untouched page of the words is 0 and needs no memory.
const BLOCK: usize = 4096;

/// Approximate memory overhead of a map entry in bytes, excluding the bytes that it refers to.
pub(super) const ENTRY: u64 = 64;

/// When the words of an array are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allocation {
    /// When the first part arrives. For bytes that are all available, such as a file's.
    AtOnce,
    /// When half of the array has arrived. Until then its parts wait unchanged, so a client that sends little more than
    /// a head uses little memory. After that, each part that arrives also moves at least as many waiting bytes into the
    /// words as it contains itself. So no bytes are left waiting when the last part has arrived, and no call does more
    /// than a few times the work of placing its own bytes.
    InProportion,
}

/// An array of cells, and the parts of it that have arrived.
#[derive(Debug)]
pub(super) struct Arrival {
    /// Length of the array in bytes.
    len: u64,
    allocation: Allocation,
    place: Place,
    words: Option<Words>,
    /// Parts that aren't in the words yet, by offset. They don't overlap.
    waiting: BTreeMap<u64, Vec<u8>>,
    /// Total bytes of the waiting parts.
    waiting_bytes: u64,
    /// What has arrived: disjoint ranges as start → end, with gaps between them.
    covered: BTreeMap<u64, u64>,
    /// Total bytes of the ranges in `covered`.
    arrived: u64,
    census: Census,
}

/// A complete array.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) words: Words,
    /// The cell count, computed part by part while each part is in the cache. Counting at the end would read everything
    /// again, at a cost of one millisecond per MiB of counters.
    pub(super) census: Census,
}

impl Arrival {
    pub(super) fn new(len: u64, allocation: Allocation, place: Place) -> Arrival {
        Arrival {
            len,
            allocation,
            place,
            words: None,
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            covered: BTreeMap::new(),
            arrived: 0,
            census: Census::default(),
        }
    }

    /// Length of the array in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Whether the whole array has arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.arrived == self.len
    }

    /// Bytes that have arrived.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Approximate memory in use, in bytes.
    pub(super) fn held(&self) -> u64 {
        let entries = self.waiting.len().saturating_add(self.covered.len()) as u64;
        let words = self.words.as_ref().map_or(0, Words::bytes);
        words.saturating_add(self.waiting_bytes).saturating_add(entries.saturating_mul(ENTRY))
    }

    /// Size in bytes of the words if accepting a part of `len` bytes at `start` would allocate them, otherwise 0.
    pub(super) fn would_allocate(&self, start: u64, len: u64) -> u64 {
        if self.words.is_some() {
            return 0;
        }
        let is_time = self.allocation == Allocation::AtOnce || {
            let then = self.arrived.saturating_add(self.missing(start, start.saturating_add(len)));
            then.saturating_mul(2) >= self.len
        };
        if is_time { self.len } else { 0 }
    }

    /// Approximate upper bound, in bytes, on the memory in use after accepting a part of `len` bytes at `start`.
    pub(super) fn most_held_with(&self, start: u64, len: u64) -> u64 {
        let words = self.would_allocate(start, len);
        let waits = self.words.is_none() && words == 0;
        let (part, blocks) = if waits { (len, len.div_ceil(BLOCK as u64)) } else { (0, 0) };
        let entries = blocks.saturating_add(2).saturating_mul(ENTRY);
        self.held().saturating_add(words).saturating_add(part).saturating_add(entries)
    }

    /// Number of bytes in a range that haven't arrived.
    fn missing(&self, start: u64, end: u64) -> u64 {
        let mut missing = end.saturating_sub(start);
        for (from, to) in self.covered.range(..end).rev() {
            if *to <= start {
                break;
            }
            missing = missing.saturating_sub(end.min(*to).saturating_sub(start.max(*from)));
        }
        missing
    }

    /// Accepts bytes that begin at `start` and lie within the array.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], which leaves the array unchanged.
    pub(super) fn take(&mut self, start: u64, bytes: &[u8]) -> Result<(), Error> {
        let len = bytes.len() as u64;
        if self.would_allocate(start, len) > 0 {
            self.words = Some(Words::zeroed(self.len.div_ceil(8))?);
        }
        if self.words.is_some() {
            self.place_under(start, start.saturating_add(len));
            self.place(start, bytes);
            self.place_waiting(len);
        } else {
            self.keep(start, bytes);
        }
        self.cover(start, start.saturating_add(len));
        Ok(())
    }

    /// Fills `bytes` with what has arrived, beginning at `start`, which is a multiple of 8. Bytes that haven't arrived
    /// are 0.
    pub(super) fn read(&self, start: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        if let Some(words) = &self.words {
            Words::read_bytes(words, usize::try_from(start / 8).unwrap_or(usize::MAX), bytes);
        }
        let end = start.saturating_add(bytes.len() as u64);
        for (first, part) in self.waiting.range(..end).rev() {
            let skipped = usize::try_from(start.saturating_sub(*first)).unwrap_or(usize::MAX);
            let Some(part) = part.get(skipped..).filter(|part| !part.is_empty()) else { break };
            let inside = usize::try_from(first.saturating_sub(start)).unwrap_or(usize::MAX);
            let to = bytes.get_mut(inside..).unwrap_or_default();
            to.iter_mut().zip(part).for_each(|(to, from)| *to |= from);
        }
    }

    /// Moves at least `least` waiting bytes into the words, or all if there are fewer.
    fn place_waiting(&mut self, least: u64) {
        let mut moved = 0u64;
        while moved < least {
            let Some((start, part)) = self.waiting.pop_first() else { break };
            self.place(start, &part);
            moved = moved.saturating_add(part.len() as u64);
        }
        self.waiting_bytes = self.waiting_bytes.saturating_sub(moved);
    }

    /// Places the waiting parts that overlap this range, so that the range's newer bytes, which the caller places next,
    /// overwrite theirs.
    fn place_under(&mut self, start: u64, end: u64) {
        while let Some(first) = self.last_from(start, end) {
            let Some(part) = self.waiting.remove(&first) else { break };
            self.place(first, &part);
            self.waiting_bytes = self.waiting_bytes.saturating_sub(part.len() as u64);
        }
    }

    /// The offset of the last waiting part that overlaps this range.
    fn last_from(&self, start: u64, end: u64) -> Option<u64> {
        let (first, part) = self.waiting.range(..end).next_back()?;
        (first.saturating_add(part.len() as u64) > start).then_some(*first)
    }

    /// Places a part in the words, and counts what it adds.
    fn place(&mut self, start: u64, part: &[u8]) {
        let Some(words) = &self.words else { return };
        self.census = self.place.place(words, start, part, self.census);
    }

    /// Whether there is a waiting part that ends at this offset and can still be extended.
    fn continues(&self, at: u64) -> bool {
        let before = self.waiting.range(..at).next_back();
        before
            .is_some_and(|(first, part)| part.len() < BLOCK && first.saturating_add(part.len() as u64) == at)
    }

    /// Keeps bytes for which there are no words yet. Drops blocks of zeros, unless they overlap a waiting part or
    /// extend a short one. Because zeros extend short parts, pieces that arrive in order leave one part per block,
    /// whatever their length.
    fn keep(&mut self, mut start: u64, bytes: &[u8]) {
        for block in bytes.chunks(BLOCK) {
            let end = start.saturating_add(block.len() as u64);
            if block.iter().any(|byte| *byte != 0)
                || self.continues(start)
                || self.last_from(start, end).is_some()
            {
                self.keep_block(start, block);
            }
            start = end;
        }
    }

    /// Keeps bytes, overwriting any that already wait at the same offsets. If the bytes continue a short part, appends
    /// them to that part, because one entry per 8-byte piece would need 16 times the memory of the bytes.
    fn keep_block(&mut self, start: u64, mut bytes: &[u8]) {
        let mut at = start;
        while !bytes.is_empty() {
            let next = self.waiting.range(at..).next().map(|(next, _)| next.saturating_sub(at));
            let gap = next.filter(|gap| *gap > 0).and_then(|gap| usize::try_from(gap).ok());
            let free = bytes.get(..gap.unwrap_or(usize::MAX)).unwrap_or(bytes);
            let before = self
                .waiting
                .range_mut(..=at)
                .next_back()
                .and_then(|(first, part)| Some((usize::try_from(at.saturating_sub(*first)).ok()?, part)));
            let len = match before {
                Some((skipped, part)) if skipped < part.len() => {
                    let there = part.get_mut(skipped..).unwrap_or_default();
                    there.iter_mut().zip(bytes).for_each(|(old, new)| *old = *new);
                    there.len().min(bytes.len())
                }
                Some((end, part)) if end == part.len() && end < BLOCK => {
                    let more = free.get(..BLOCK.saturating_sub(end)).unwrap_or(free);
                    // Allocates no more than is needed. Thanks to the allocator's size classes, not every call moves
                    // the part.
                    part.reserve_exact(more.len());
                    part.extend_from_slice(more);
                    self.waiting_bytes = self.waiting_bytes.saturating_add(more.len() as u64);
                    more.len()
                }
                _ => {
                    self.waiting.insert(at, free.to_vec());
                    self.waiting_bytes = self.waiting_bytes.saturating_add(free.len() as u64);
                    free.len()
                }
            };
            at = at.saturating_add(len as u64);
            bytes = bytes.get(len..).unwrap_or_default();
        }
    }

    /// Records a range, merged with the ranges that it touches or overlaps.
    fn cover(&mut self, mut start: u64, mut end: u64) {
        while let Some((first, last)) = self.covered.range(..=end).next_back().map(|(from, to)| (*from, *to))
        {
            if last < start {
                break;
            }
            self.covered.remove(&first);
            self.arrived = self.arrived.saturating_sub(last.saturating_sub(first));
            (start, end) = (start.min(first), end.max(last));
        }
        self.covered.insert(start, end);
        self.arrived = self.arrived.saturating_add(end.saturating_sub(start));
    }

    /// Takes the array out, if all of it has arrived.
    pub(super) fn finish(&mut self) -> Option<Filled> {
        if !self.is_complete() {
            return None;
        }
        self.place_waiting(u64::MAX);
        Some(Filled { words: self.words.take()?, census: self.census })
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "a test may panic"
)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    /// Sends parts of any length at any offset. Parts repeat, overlap, change bytes, or are all zeros. Whatever the
    /// order, the array contains the most recent bytes. Its memory stays in proportion to the bytes that have arrived,
    /// and the words are allocated only when `would_allocate` has announced it.
    #[test]
    fn parts_in_any_order_become_the_array() {
        for seed in 0..if cfg!(miri) { 5 } else { 300 } {
            let mut random = SmallRng::seed_from_u64(seed);
            let len = random.random_range(1..=if cfg!(miri) { 100 } else { 3000 });
            let mut arrival = Arrival::new(len, Allocation::InProportion, Place::Over(Words::ones));
            let (mut expected, mut seen) = (vec![0u8; len as usize], vec![false; len as usize]);
            let in_order = seed % 3 == 0;
            let mut next = 0;
            while !arrival.is_complete() {
                let start = if in_order { next } else { random.random_range(0..len) };
                let end = random.random_range(start + 1..=len.min(start + 1 + len / 4));
                next = end;
                let range = start as usize..end as usize;
                let is_zero = random.random_ratio(1, 4);
                let part: Vec<u8> =
                    range.clone().map(|_| if is_zero { 0 } else { random.random() }).collect();
                expected[range.clone()].copy_from_slice(&part);
                seen[range].fill(true);

                let (before, allocates) =
                    (arrival.words.is_some(), arrival.would_allocate(start, end - start));
                arrival.take(start, &part).unwrap();
                assert_eq!(allocates > 0, !before && arrival.words.is_some());
                let came = seen.iter().filter(|seen| **seen).count() as u64;
                assert_eq!(arrival.arrived(), came);
                assert_eq!(
                    arrival.waiting.values().map(|part| part.len() as u64).sum::<u64>(),
                    arrival.waiting_bytes
                );
                let entries = (arrival.waiting.len() + arrival.covered.len()) as u64 * ENTRY;
                let first = random.random_range(0..len) / 8 * 8;
                let mut read = vec![255; random.random_range(0..=(len - first) as usize / 8) * 8];
                arrival.read(first, &mut read);
                let there = first as usize..first as usize + read.len();
                assert_eq!(read, expected[there], "what has come can be read again");
                // The words are allocated for the whole array. At most half of it waits in addition.
                assert!(
                    arrival.held() <= 3 * came + 8 + entries && arrival.held() <= len + len / 2 + 8 + entries
                );
            }
            assert_eq!((arrival.waiting.len(), arrival.covered.len()), (0, 1), "nothing is left for the end");
            let Filled { words, census } = arrival.finish().unwrap();
            assert_eq!(Words::to_bytes(&words, len), expected);
            assert_eq!(census.set, expected.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>());
        }
    }

    #[test]
    fn with_all_bytes_at_hand_it_is_allocated_at_once() {
        let mut arrival = Arrival::new(1 << 16, Allocation::AtOnce, Place::Over(Words::ones));
        arrival.take(0, &[1]).unwrap();
        assert!(arrival.words.is_some() && arrival.waiting.is_empty());
        assert!(arrival.finish().is_none(), "most of it is missing");
    }
}
