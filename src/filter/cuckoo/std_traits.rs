//! Implements traits of the standard library for copying and comparing filters and for filling them from iterators.

use super::{Cuckoo, CuckooItem};
use crate::sync::Ordering::Relaxed;
use alloc::vec::Vec;

/// Makes a copy that shares no memory with the original.
///
/// # Panics
/// If memory runs out. [`Cuckoo::snapshot`] returns an error instead.
impl Clone for Cuckoo {
    fn clone(&self) -> Cuckoo {
        self.snapshot().unwrap_or_else(|why| panic!("a copy of a filter: {why}"))
    }
}

/// Equal filters have the same parameters and the same fingerprints in the same slots. Filters to which the same items
/// were added in a different order may differ.
impl PartialEq for Cuckoo {
    fn eq(&self, other: &Cuckoo) -> bool {
        let words = |filter: &Cuckoo| {
            let tables = filter.tables().iter();
            tables.map(|table| table.words().iter().map(|word| word.load(Relaxed)).collect()).collect()
        };
        let (mine, theirs): (Vec<Vec<u64>>, Vec<Vec<u64>>) = (words(self), words(other));
        self.spec() == other.spec() && mine == theirs
    }
}

/// Adds every item.
///
/// # Panics
/// If the filter refuses an item because it isn't allowed to grow or memory runs out. [`Cuckoo::insert`] returns an
/// error instead.
impl<I: CuckooItem> Extend<I> for Cuckoo {
    fn extend<T: IntoIterator<Item = I>>(&mut self, items: T) {
        for item in items {
            self.insert(item).unwrap_or_else(|why| panic!("an item of an iterator: {why}"));
        }
    }
}

/// A filter with a random seed and the default parameters, sized for the lower bound of the iterator's size hint, but
/// for at least 1024 items.
///
/// # Panics
/// If memory runs out or no randomness is available.
impl<I: CuckooItem> FromIterator<I> for Cuckoo {
    fn from_iter<T: IntoIterator<Item = I>>(items: T) -> Cuckoo {
        let items = items.into_iter();
        let capacity = (items.size_hint().0 as u64).max(1024);
        let filter = Cuckoo::with_capacity(capacity);
        let mut filter = filter.unwrap_or_else(|why| panic!("a filter for an iterator: {why}"));
        filter.extend(items);
        filter
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::CuckooSpec;

    #[test]
    fn iterators_make_filters_and_clones_are_equal() {
        let mut filter: Cuckoo = (0..5000u32).map(u32::to_le_bytes).collect();
        let copy = filter.clone();
        assert!(filter == copy && filter.items() == 5000 && filter.contains(4999u32.to_le_bytes()));
        assert!(filter.remove(0u32.to_le_bytes()) && filter != copy);
        let mut filter = Cuckoo::new(CuckooSpec::new(1000)).unwrap();
        filter.extend(["ada"]);
        assert_eq!(filter.count("ada"), 1);
    }
}
