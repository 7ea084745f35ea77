//! Testing, counting, adding and deleting items.

use super::Cuckoo;
use super::body::{Body, More};
use super::hash::CuckooHash;
use super::spec::Origin;
use super::table::Table;
use crate::bits::Hits;
use crate::error::Error;
use crate::item::ItemBytes;

/// Maximum number of items that are tested together. Each has two buckets, and a core can have 10 to 16 cache misses in
/// flight.
pub const GROUP: usize = 32;

impl Cuckoo {
    /// Whether the item may be in the filter.
    pub fn contains(&self, item: impl CuckooItem) -> bool {
        let item = item.hash_for(self);
        self.tables().iter().rev().any(|table| table.view().contains(item))
    }

    /// Tests items in order, in groups of `group` (at most [`GROUP`]), and passes each group's answers and its number
    /// of items to `show`. The buckets of a group are fetched together if the items were hashed
    /// [ahead](Cuckoo::prefetcher) of the test.
    #[inline(always)]
    #[doc(hidden)]
    pub fn test_each(
        &self,
        mut items: impl Iterator<Item = CuckooHash>,
        group: usize,
        mut show: impl FnMut(Hits, usize),
    ) {
        let mut hashes = [CuckooHash::default(); GROUP];
        loop {
            let mut len = 0;
            for (slot, item) in hashes.iter_mut().take(group).zip(items.by_ref()) {
                *slot = item;
                len += 1;
            }
            if len > 0 {
                show(self.contains_many(&hashes[..len]), len);
            }
            if len < group {
                return;
            }
        }
    }

    /// Which of up to [`GROUP`] items may be in the filter. While one sub-filter is tested, the buckets of the next are
    /// prefetched.
    #[inline(always)]
    fn contains_many(&self, items: &[CuckooHash]) -> Hits {
        let Some((newest, older)) = self.tables().split_last() else { return Hits::default() };
        let all = Hits::first(items.len());
        let mut hits = Hits::default();
        let newest = newest.view();
        for (index, item) in items.iter().enumerate() {
            hits = hits.with(index, newest.contains(*item));
        }
        let mut next = older.iter().rev();
        if let Some(older) = next.next().and_then(Table::distant) {
            (all & !hits).for_each(|index| older.prefetch_both(items[index]));
        }
        for table in older.iter().rev() {
            let (table, next) = (table.view(), next.next().and_then(Table::distant));
            for index in all & !hits {
                hits = hits.with(index, table.contains(items[index]));
                if let Some(next) = next {
                    next.prefetch_both(items[index]);
                }
            }
        }
        hits
    }

    /// An upper bound on the number of occurrences of the item, provided that every deleted item had been added.
    pub fn count(&self, item: impl CuckooItem) -> u64 {
        let item = item.hash_for(self);
        self.tables().iter().map(|table| table.view().count(item)).sum()
    }

    /// Adds one occurrence of the item and grows if necessary.
    ///
    /// # Errors
    /// [`Error::Full`] if the filter isn't allowed to grow, or the error of [`grow`](Cuckoo::grow). Then nothing has
    /// changed.
    pub fn insert(&mut self, item: impl CuckooItem) -> Result<(), Error> {
        let item = item.hash_for(self);
        match self.try_insert(item) {
            Err(Error::Full) => {
                self.grow()?;
                self.try_insert(item)
            }
            done => done,
        }
    }

    /// Adds one occurrence of the item without growing. Uses a free slot, in the newest sub-filter that has one in the
    /// item's buckets. If there is none, moves other fingerprints of the newest sub-filter.
    ///
    /// # Errors
    /// [`Error::Full`]; then nothing has changed. See [`grow`](Cuckoo::grow).
    pub fn try_insert(&mut self, item: impl CuckooItem) -> Result<(), Error> {
        let item = item.hash_for(self);
        let is_in = match &mut self.body {
            Body::One(table) => table.insert(item),
            Body::More(more) => more.insert(item),
        };
        if !is_in {
            let moved = self.make_room(item).ok_or(Error::Full)?;
            self.body.more().moves += u64::from(moved);
        }
        Ok(())
    }

    /// Adds items in order for as long as each finds a free slot in the newest sub-filter without a search. Returns the
    /// number of items added. Use [`try_insert`](Cuckoo::try_insert) for the next one.
    #[inline(always)]
    #[doc(hidden)]
    pub fn insert_each(&mut self, items: &[CuckooHash]) -> usize {
        match &self.body {
            Body::One(table) => table.insert_each(items),
            Body::More(more) => more.tables.last().map_or(0, |newest| newest.insert_each(items)),
        }
    }

    /// Maximum number of fingerprints that a search for room moves before it has found a free slot. 0 for our own
    /// search, which moves nothing until it has found one.
    #[doc(hidden)]
    pub fn longest_walk(&self) -> u16 {
        if self.origin == Origin::RedisBloom { self.max_iterations } else { 0 }
    }

    /// Adds an item to the newest sub-filter by moving other fingerprints. Returns the number of moves, or `None` if
    /// there is no room.
    fn make_room(&mut self, item: CuckooHash) -> Option<u16> {
        self.tables().last().filter(|newest| !newest.is_full())?;
        let (origin, most) = (self.origin, self.max_iterations);
        let More { tables, searched, .. } = self.body.more();
        let newest = tables.last()?;
        match origin {
            Origin::RedisBloom => newest.insert_by_kicking(item, most, searched),
            Origin::Bloomery | Origin::RedisBloom1 => newest.insert_by_moving(item, most, searched),
        }
    }

    /// Deletes one occurrence of the item. Returns false if the item is certainly absent.
    pub fn remove(&mut self, item: impl CuckooItem) -> bool {
        let item = item.hash_for(self);
        let removed = self.tables().iter().rev().any(|table| table.remove(item));
        if removed {
            self.body.more().deletes += 1;
        }
        removed
    }
}

/// An item that a cuckoo filter accepts: what has [bytes](ItemBytes).
pub trait CuckooItem {
    /// The item's hash for this filter.
    #[doc(hidden)]
    fn hash_for(&self, filter: &Cuckoo) -> CuckooHash;
}

impl<T: ItemBytes> CuckooItem for T {
    #[inline(always)]
    fn hash_for(&self, filter: &Cuckoo) -> CuckooHash {
        filter.hash(self.item_bytes().as_ref())
    }
}

/// Lets commands pass an item that they have already hashed for the filter.
impl CuckooItem for CuckooHash {
    #[inline(always)]
    fn hash_for(&self, _: &Cuckoo) -> CuckooHash {
        *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::cuckoo::CuckooSpec;
    use crate::hash::{HashKind, Seed};

    fn spec(capacity: u64, bucket_size: u8, expansion: u16) -> CuckooSpec {
        let (hash, seed) = (HashKind::Xxh3, Seed::from(7));
        CuckooSpec {
            capacity,
            bucket_size,
            max_iterations: 20,
            expansion,
            origin: Origin::Bloomery,
            hash,
            seed,
        }
    }

    /// RedisBloom's walk, forward and back: a failed add leaves every fingerprint in its slot. A copy that another
    /// thread has made meanwhile may lack one, so the filter isn't the one that was shared.
    #[test]
    fn a_walk_that_fails_is_undone() {
        for (bucket_size, max_iterations) in [(1, 1), (1, 500), (2, 20), (3, 7), (4, 65_535)] {
            let origin = Origin::RedisBloom;
            let fixed = CuckooSpec { origin, max_iterations, ..spec(64, bucket_size, 0) };
            let mut filter = Cuckoo::new(fixed).unwrap();
            let (mut refused, mut moved) = (0, 0);
            for item in 0..400u32 {
                let before: Vec<_> = filter.tables()[0].occupied().collect();
                let (moves, shared) = (filter.moves(), filter.share());
                match filter.try_insert(item.to_le_bytes()) {
                    Ok(()) => moved += filter.moves() - moves,
                    Err(why) => {
                        refused += 1;
                        assert_eq!(filter.is_shared_with(&shared), filter.tables()[0].is_full());
                        assert_eq!((why, filter.moves()), (Error::Full, moves));
                        assert!(filter.tables()[0].occupied().eq(before), "{bucket_size} {item}");
                    }
                }
                assert_eq!(filter.tables()[0].occupied().count() as u64, filter.items());
            }
            assert!(refused > 100 && moved > 0, "{bucket_size} {max_iterations}: {refused} {moved}");
        }
    }

    /// Tests groups of different lengths, in filters with one sub-filter and with several.
    #[test]
    fn a_group_is_answered_as_its_items_are() {
        let mut filter = Cuckoo::new(CuckooSpec::new(64)).unwrap();
        for sub_filters in [1, 2, 3, 7] {
            for item in 0u64.. {
                if filter.tables().len() > sub_filters {
                    break;
                }
                filter.insert(item.to_le_bytes()).unwrap();
            }
            for group in [1, 4, 31, GROUP] {
                let items = || (0..700u64).map(|item| filter.hash(&item.to_le_bytes()));
                let mut answers = Vec::new();
                filter.test_each(items(), group, |hits, len| {
                    answers.extend((0..len).map(|index| hits.has(index)))
                });
                assert!(
                    answers.into_iter().eq(items().map(|item| filter.contains(item))),
                    "{sub_filters} {group}"
                );
            }
        }
    }
}
