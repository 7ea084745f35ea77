//! The items that a Top-K sketch holds, as a heap with the smallest count first. The order of the entries is
//! RedisBloom's. It decides which item leaves among equals, and the order of the list.

use bloomery::Error;
use std::cmp::Reverse;

/// An item. `None` in an entry that was never used.
pub(super) type Item = Option<Box<[u8]>>;

/// A fingerprint and a count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) fingerprint: u32,
    pub(super) count: u32,
}

/// The heap. All entries exist from the beginning, with count 0.
pub(super) struct Heap {
    fingerprints: Vec<u32>,
    counts: Vec<u32>,
    items: Vec<Item>,
    /// Bytes of the items.
    bytes: usize,
}

impl Heap {
    /// A heap with empty entries.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn new(k: usize) -> Result<Heap, Error> {
        Ok(Heap { fingerprints: list(k, &0)?, counts: list(k, &0)?, items: list(k, &None)?, bytes: 0 })
    }

    /// A copy.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn copy(&self) -> Result<Heap, Error> {
        let mut copy = Heap::new(self.len())?;
        for (index, (counted, item)) in self.entries().enumerate() {
            copy.set(index, counted, item.map(Box::from));
        }
        Ok(copy)
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Bytes of the items.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The entries, in their order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Counted, Option<&[u8]>)> {
        let counted = self.fingerprints.iter().zip(&self.counts);
        let counted =
            counted.map(|(fingerprint, count)| Counted { fingerprint: *fingerprint, count: *count });
        counted.zip(self.items.iter().map(Option::as_deref))
    }

    /// Replaces an entry, without putting it where its count belongs. Returns the item that was there.
    pub(super) fn set(&mut self, index: usize, counted: Counted, item: Item) -> Item {
        let len = |item: &Item| item.as_ref().map_or(0, |item| item.len());
        *self.fingerprints.get_mut(index)? = counted.fingerprint;
        *self.counts.get_mut(index)? = counted.count;
        let old = std::mem::replace(self.items.get_mut(index)?, item);
        self.bytes =
            self.bytes.saturating_sub(len(&old)).saturating_add(self.items.get(index).map_or(0, len));
        old
    }

    /// The smallest count.
    #[inline]
    pub(super) fn least(&self) -> u32 {
        self.count(0)
    }

    #[inline]
    fn count(&self, index: usize) -> u32 {
        self.counts.get(index).copied().unwrap_or(0)
    }

    /// The entry that holds an item. RedisBloom looks for it from the end.
    pub(super) fn find(&self, fingerprint: u32, item: &[u8]) -> Option<usize> {
        /// Number of fingerprints that are compared at a time, with a few instructions.
        const AT_A_TIME: usize = 32;
        let mut end = self.fingerprints.len();
        for chunk in self.fingerprints.rchunks(AT_A_TIME) {
            end = end.saturating_sub(chunk.len());
            if !chunk.iter().fold(false, |found, held| found | (*held == fingerprint)) {
                continue;
            }
            let mut found = chunk.iter().enumerate().rev().filter(|(_, held)| **held == fingerprint);
            let holds =
                |index: usize| self.items.get(index).is_some_and(|held| held.as_deref() == Some(item));
            let found =
                found.find_map(|(index, _)| Some(end.saturating_add(index)).filter(|index| holds(*index)));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Records that an item has this count. If the heap doesn't hold it, it takes the place of the first entry, whose
    /// item is returned.
    pub(super) fn put(&mut self, item: &[u8], counted: Counted) -> Item {
        match self.find(counted.fingerprint, item) {
            Some(index) => {
                if let Some(count) = self.counts.get_mut(index) {
                    *count = counted.count;
                }
                self.sift_down(index);
                None
            }
            None => {
                let expelled = self.set(0, counted, Some(item.into()));
                self.sift_down(0);
                expelled
            }
        }
    }

    /// Moves an entry down until both children have larger counts. In the first step, it also changes places with a
    /// child of the same count, as in RedisBloom.
    fn sift_down(&mut self, mut index: usize) {
        let own = self.count(index);
        let mut most = own;
        loop {
            let left = index.saturating_mul(2).saturating_add(1);
            let right = left.saturating_add(1);
            if left >= self.len() {
                return;
            }
            let child = if right < self.len() && self.count(left) > self.count(right) { right } else { left };
            if self.count(child) > most {
                return;
            }
            self.fingerprints.swap(index, child);
            self.counts.swap(index, child);
            self.items.swap(index, child);
            index = child;
            let Some(below) = own.checked_sub(1) else { return };
            most = below;
        }
    }

    /// The items and their counts, largest first, without those of count 0. Items with equal counts stay in the order
    /// of the entries.
    pub(super) fn list(&self) -> Vec<(&[u8], u32)> {
        let entries = self.entries().filter(|(counted, _)| counted.count > 0);
        let mut list: Vec<_> =
            entries.map(|(counted, item)| (item.unwrap_or_default(), counted.count)).collect();
        list.sort_by_key(|(_, count)| Reverse(*count));
        list
    }
}

/// A list of equal values.
fn list<T: Clone>(len: usize, value: &T) -> Result<Vec<T>, Error> {
    let mut list = Vec::new();
    let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
    list.try_reserve_exact(len).map_err(|_| Error::OutOfMemory { bytes })?;
    list.resize(len, value.clone());
    Ok(list)
}
