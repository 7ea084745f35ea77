//! The buckets of a sub-filter from which no free slot can be reached. If they are known, refusing an add to a full
//! filter is as fast as a test. Otherwise, a search for room visits 2048 slots before it gives up.
//!
//! A set of buckets is closed if each of them is full, and the other bucket of each of its fingerprints is in the set.
//! A search that begins in such a set never leaves it, so there is no need to begin it. No add ever changes a bucket of
//! the set, so a closed set stays closed until something is deleted.
//!
//! To find the largest closed set, start with all buckets and remove those with a way out until no bucket has one. This
//! needs several passes over the table. Each failed search does a small part of the work.

use super::table::Table;

/// Minimum number of slots that are visited after each failed search to find the closed set. This takes 4 µs. Most
/// failed searches visit about the same number of slots. The number isn't higher, because the work can be in vain:
/// there is no closed set as long as the last free slots can be reached from nearly everywhere, even if only by chains
/// that are too long for a search.
const SWEPT: u64 = 1 << 11;

/// Bits of a word.
const BITS: u64 = u64::BITS as u64;

/// The search for a sub-filter's closed set, and what it has found so far.
pub(super) struct Closed {
    /// A closed set.
    known: Box<[u64]>,
    /// The largest closed set, plus other buckets that haven't been ruled out yet.
    candidates: Box<[u64]>,
    /// The next bucket to look at.
    next: u64,
    /// Whether a candidate was removed or changed since the current pass began.
    changed: bool,
}

impl Closed {
    /// Starts the search for a table's closed set, with nothing known yet. Returns `None` if memory runs out.
    pub(super) fn new(table: &Table) -> Option<Closed> {
        let words = table.buckets().div_ceil(BITS) as usize;
        let filled = |word| {
            let mut bits = Vec::new();
            bits.try_reserve_exact(words).ok()?;
            bits.resize(words, word);
            Some(bits.into_boxed_slice())
        };
        Some(Closed { known: filled(0)?, candidates: filled(u64::MAX)?, next: 0, changed: false })
    }

    /// Whether a search that begins in these two buckets is known to fail.
    #[inline]
    pub(super) fn has_all(&self, buckets: [u64; 2]) -> bool {
        buckets.into_iter().all(|bucket| has(&self.known, bucket))
    }

    /// Whether the bucket is still a candidate. Changes to buckets that aren't candidates don't matter. Buckets with a
    /// way out soon stop being candidates, so adds that succeed between refusals don't prevent the set from being
    /// found.
    #[inline]
    pub(super) fn is_candidate(&self, bucket: u64) -> bool {
        has(&self.candidates, bucket)
    }

    /// Must be called after an add has changed a candidate. The current pass then can't be the last.
    #[inline]
    pub(super) fn has_changed(&mut self) {
        self.changed = true;
    }

    /// Continues the search for the largest closed set, but not beyond the end of the current pass. Visits about
    /// `searched` slots, the number that the failed search visited, but at least [`SWEPT`]. Returns this number, even
    /// if fewer slots were visited.
    pub(super) fn sweep(&mut self, table: &Table, searched: u64) -> u64 {
        let swept = searched.max(SWEPT);
        let mut left = swept / u64::from(table.bucket_size()) + 1;
        while left > 0 && self.next < table.buckets() {
            let bucket = self.next;
            // Words without candidates are skipped.
            if self.candidates[(bucket / BITS) as usize] == 0 {
                self.next = (bucket / BITS + 1) * BITS;
            } else {
                self.next += 1;
            }
            left -= 1;
            if has(&self.candidates, bucket) && table.leads_out(bucket, |other| !has(&self.candidates, other))
            {
                self.candidates[(bucket / BITS) as usize] &= !(1 << (bucket % BITS));
                self.changed = true;
            }
        }
        if self.next >= table.buckets() {
            if !self.changed {
                std::mem::swap(&mut self.known, &mut self.candidates);
                self.candidates.fill(u64::MAX);
            }
            (self.next, self.changed) = (0, false);
        }
        swept
    }

    /// Bytes of memory in addition to the struct itself.
    pub(super) fn allocated(&self) -> usize {
        size_of_val(&*self.known) + size_of_val(&*self.candidates)
    }
}

#[inline]
fn has(bits: &[u64], bucket: u64) -> bool {
    bits[(bucket / BITS) as usize] >> (bucket % BITS) & 1 == 1
}
