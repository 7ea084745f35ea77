//! Implements traits of the standard library for copying and comparing filters and for filling them from iterators.

use super::Bloom;
use super::batch::{Work, for_each_hashed_group};
use crate::hash::Item;
use crate::params::Spec;
use core::ops::ControlFlow;

/// Makes a copy that shares no memory with the original.
///
/// # Panics
/// If memory runs out; [`Bloom::snapshot`] returns an error instead.
impl Clone for Bloom {
    fn clone(&self) -> Bloom {
        self.snapshot().unwrap_or_else(|why| panic!("a copy of a filter: {why}"))
    }
}

/// Equal filters have the same hash, seed and shape, and the same cells, or are tables with the same items. They give
/// the same answer for every item.
impl PartialEq for Bloom {
    fn eq(&self, other: &Bloom) -> bool {
        self.equal(other)
    }
}

/// Adds every item. The cache misses of up to 64 items overlap, so in a large filter this is several times as fast as
/// adding them one by one.
///
/// # Panics
/// If the filter refuses an item, for example because it is full or because there is no memory for growing.
/// [`Bloom::insert`] returns an error instead.
impl<I: Item> Extend<I> for Bloom {
    fn extend<T: IntoIterator<Item = I>>(&mut self, items: T) {
        let hasher = self.hasher();
        let hashes = items.into_iter().map(|item| item.hash_by(hasher));
        for_each_hashed_group(&mut { self }, Work::Write, hashes, |filter, group| {
            for item in group {
                filter.insert(*item).unwrap_or_else(|why| panic!("an item of an iterator: {why}"));
            }
            ControlFlow::Continue(())
        });
    }
}

/// Makes a scaling filter with an error rate of 1% and a random seed. Its capacity is the lower bound of the iterator's
/// size hint, but at least 100.
///
/// # Panics
/// If memory runs out or no randomness is available.
impl<I: Item> FromIterator<I> for Bloom {
    fn from_iter<T: IntoIterator<Item = I>>(items: T) -> Bloom {
        let items = items.into_iter();
        let capacity = (items.size_hint().0 as u64).max(100);
        let spec = Spec::scaling(capacity, 0.01).with_random_seed();
        let mut filter =
            spec.and_then(Bloom::new).unwrap_or_else(|why| panic!("a filter for an iterator: {why}"));
        filter.extend(items);
        filter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterators_make_and_extend_filters() {
        let mut filter: Bloom = ["ada", "grace"].into_iter().collect();
        filter.extend([b"edsger"]);
        assert!(["ada", "grace", "edsger"].iter().all(|item| filter.contains(item)));
        assert_eq!((filter.items(), filter.capacity(), filter.spec().kind()), (3, 100, "scaling"));
        assert_ne!(filter, Bloom::from_iter(["ada", "grace", "edsger"]), "each has a seed of its own");
    }

    #[test]
    #[should_panic(expected = "another hash function or seed")]
    fn a_hashed_item_of_another_filter_is_refused() {
        let (one, other): (Bloom, Bloom) = (Bloom::from_iter(["ada"]), Bloom::from_iter(["ada"]));
        one.contains(other.hash("ada"));
    }
}
