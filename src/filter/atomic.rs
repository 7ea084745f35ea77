//! A Bloom filter that several threads can write to.

use super::bloom::{Bloom, Body};
use super::change::{Added, Removed};
use super::layout::{Layer, LayerSpec};
use crate::error::Error;
use crate::hash::{Hashed, Hasher, Item};
use crate::item::ItemBytes;
use crate::params::{Family, Overflow, Spec};

/// A Bloom filter of fixed size, with bits or counters. Any number of threads can add, test and delete items at the
/// same time, and the caller needs no lock. It never refuses an item; beyond its capacity, the false-positive rate
/// rises.
///
/// With [`Spec::shards`] above 1, threads keep their counts in different cache lines, so that two threads add items 2.0
/// times as fast as one (docs/PERFORMANCE.md).
///
/// ```
/// use bloomery::{AtomicBloom, Bloom};
///
/// let seen = AtomicBloom::fixed(100_000, 0.01)?;
/// std::thread::scope(|scope| {
///     for thread in 0..2 {
///         let seen = &seen;
///         scope.spawn(move || (0..1000).for_each(|i| _ = seen.insert(format!("{thread}:{i}"))));
///     }
/// });
/// assert!(seen.contains("0:0") && seen.contains("1:999"));
///
/// // Convert it for saving, or for a single owner.
/// let filter: Bloom = seen.into();
/// assert!(filter.contains("1:999"));
/// # Ok::<(), bloomery::Error>(())
/// ```
#[derive(Debug)]
pub struct AtomicBloom {
    spec: Spec,
    layer: Layer,
}

impl AtomicBloom {
    /// An empty filter for `capacity` items with a random seed.
    ///
    /// # Errors
    /// The same as [`Bloom::fixed`].
    pub fn fixed(capacity: u64, error_rate: f64) -> Result<AtomicBloom, Error> {
        AtomicBloom::new(Spec::fixed(capacity, error_rate).with_random_seed()?)
    }

    /// An empty filter with 4-bit counters and a random seed. Items can be deleted from it.
    ///
    /// # Errors
    /// The same as [`Bloom::counting`].
    pub fn counting(capacity: u64, error_rate: f64) -> Result<AtomicBloom, Error> {
        AtomicBloom::new(Spec::counting(capacity, error_rate).with_random_seed()?)
    }

    /// An empty filter with this spec.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::OutOfMemory`], and the errors of [`Spec::validate`]. [`Error::Exclusive`] for
    /// scaling filters and windows, because they change their layers, which requires a single owner; for
    /// [`Layout::Quotient`](crate::Layout::Quotient), which has one writer; and for static layouts.
    pub fn new(spec: Spec) -> Result<AtomicBloom, Error> {
        spec.validate()?;
        let spec = AtomicBloom::for_writers(spec)?;
        let Spec { capacity, error_rate, layout, cell, shards, .. } = spec;
        let shape = LayerSpec { capacity, error_rate, layout, cell, shards, generations: 0 }.shape()?;
        let layer = Layer::for_writers(&shape)?;
        Ok(AtomicBloom { spec: Spec { seed: spec.seed.narrow(spec.hash), ..spec }, layer })
    }

    /// The spec of a filter with several writers, which otherwise is as this one.
    fn for_writers(spec: Spec) -> Result<Spec, Error> {
        if !matches!(spec.family, Family::Fixed(_)) {
            return Err(Error::Exclusive("a filter with several writers has a fixed size"));
        }
        if spec.is_table() || spec.is_static() {
            return Err(Error::Exclusive("this layout has one writer; use another one"));
        }
        Ok(Spec { family: Family::Fixed(Overflow::Saturate), ..spec })
    }

    /// The parameters.
    pub fn spec(&self) -> Spec {
        self.spec
    }

    fn hasher(&self) -> Hasher {
        self.spec.hash.hasher(self.spec.seed)
    }

    /// Hashes an item for this filter and for all filters with the same hash function and seed.
    #[inline]
    pub fn hash(&self, item: impl ItemBytes) -> Hashed {
        Hashed::new(self.hasher(), item.item_bytes().as_ref())
    }

    /// Adds the item and returns whether it was absent before. If two threads add the same new item at the same time,
    /// both may get `true`.
    #[inline]
    pub fn insert(&self, item: impl Item) -> bool {
        self.add(item).added
    }

    /// Like [`insert`](AtomicBloom::insert), but also returns whether the filter changed.
    #[inline]
    pub fn add(&self, item: impl Item) -> Added {
        self.layer.insert(item.hash_by(self.hasher()))
    }

    /// Whether the item may be in the filter. `false` is certain.
    #[inline]
    pub fn contains(&self, item: impl Item) -> bool {
        self.layer.contains(item.hash_by(self.hasher()))
    }

    /// Deletes one occurrence of the item.
    ///
    /// # Errors
    /// [`Error::NotCounting`].
    pub fn remove(&self, item: impl Item) -> Result<Removed, Error> {
        self.layer.remove(item.hash_by(self.hasher()))
    }

    /// An upper bound on the number of occurrences of the item, unless its counters are saturated. In a filter of bits,
    /// 1 if the item may be present, otherwise 0.
    pub fn count(&self, item: impl Item) -> u64 {
        self.layer.count(item.hash_by(self.hasher()))
    }

    /// Empties the filter. An add that runs at the same time may be partly lost.
    pub fn clear(&self) {
        self.layer.clear();
    }

    /// Number of items added that were absent at the time, minus those deleted.
    pub fn items(&self) -> u64 {
        self.layer.items()
    }

    /// Number of distinct items, estimated from the fill (Swamidass–Baldi).
    pub fn estimate(&self) -> u64 {
        self.layer.estimate()
    }

    /// The current false-positive rate, calculated from the fill.
    pub fn rate_now(&self) -> f64 {
        self.layer.rate_now()
    }

    /// Fraction of cells that are not 0.
    pub fn fill(&self) -> f64 {
        self.layer.fill()
    }

    /// Number of probes per item: k.
    pub fn probes(&self) -> u32 {
        self.layer.probes()
    }

    /// Size of the cells in bytes.
    pub fn bytes(&self) -> u64 {
        self.layer.bytes()
    }

    /// Adds everything that the other filter has. Other threads may use both filters at the same time.
    ///
    /// # Errors
    /// [`Error::Mismatch`] unless both filters have the same hash, seed and shape; then nothing has changed.
    pub fn union(&self, other: &AtomicBloom) -> Result<(), Error> {
        if self.hasher() != other.hasher() {
            return Err(Error::Mismatch);
        }
        self.layer.union(&other.layer)
    }

    /// A filter that shares the cells, for writing them out.
    pub(crate) fn share(&self) -> Bloom {
        Bloom::from_parts(self.spec, Body::Fixed(self.layer.share()))
    }

    /// A copy with a single owner. If other threads add items at the same time, the copy contains every item whose add
    /// returned before the call.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn snapshot(&self) -> Result<Bloom, Error> {
        let layer = self.layer.snapshot()?;
        Ok(Bloom::from_parts(self.spec, Body::Fixed(layer)))
    }
}

impl From<AtomicBloom> for Bloom {
    fn from(filter: AtomicBloom) -> Bloom {
        Bloom::from_parts(filter.spec, Body::Fixed(filter.layer))
    }
}

/// The same cells, for several writers. The filter no longer refuses items when it is full.
///
/// # Errors
/// [`Error::Exclusive`] for filters that [`AtomicBloom::new`] wouldn't make.
impl TryFrom<Bloom> for AtomicBloom {
    type Error = Error;

    fn try_from(filter: Bloom) -> Result<AtomicBloom, Error> {
        Ok(AtomicBloom {
            spec: AtomicBloom::for_writers(filter.spec())?,
            layer: filter.newest_layer().share(),
        })
    }
}

/// Makes a copy that shares no memory with the original. It contains every item whose add returned before the call.
///
/// # Panics
/// If memory runs out; [`AtomicBloom::snapshot`] returns an error instead.
impl Clone for AtomicBloom {
    fn clone(&self) -> AtomicBloom {
        let layer = self.layer.snapshot().unwrap_or_else(|why| panic!("a copy of a filter: {why}"));
        AtomicBloom { spec: self.spec, layer }
    }
}

impl<I: Item> Extend<I> for AtomicBloom {
    fn extend<T: IntoIterator<Item = I>>(&mut self, items: T) {
        (&*self).extend(items);
    }
}

/// Adds every item, while other threads may do the same.
impl<I: Item> Extend<I> for &AtomicBloom {
    fn extend<T: IntoIterator<Item = I>>(&mut self, items: T) {
        items.into_iter().for_each(|item| _ = self.insert(item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_becomes_the_filter_that_one_owner_would_have_made() {
        let spec = Spec { family: Family::Fixed(Overflow::Saturate), ..Spec::counting(1000, 0.01) };
        let (atomic, mut owned) = (AtomicBloom::new(spec).unwrap(), Bloom::new(spec).unwrap());
        for i in 0..500u32 {
            let item = i.to_le_bytes();
            assert_eq!(atomic.add(item), owned.add(item).unwrap());
        }
        assert!(atomic.remove(7u32.to_le_bytes()).unwrap().present);
        owned.remove(7u32.to_le_bytes()).unwrap();
        assert!(atomic.snapshot().unwrap() == owned && Bloom::from(atomic) == owned);
    }

    #[test]
    fn it_is_copied_saved_and_united() {
        let mut one = AtomicBloom::fixed(1000, 0.01).unwrap();
        let mut other = one.clone();
        one.extend(0..300);
        (&other).extend(["ada", "grace"]);
        assert!(!other.contains(7) && !one.contains("ada"), "a copy has its own cells");
        let loaded = AtomicBloom::from_bytes(&one.to_bytes()).unwrap();
        other.union(&loaded).unwrap();
        assert!((0..300).all(|item| other.contains(item)) && other.contains("ada") && one.items() <= 300);
        assert_eq!((loaded.fill(), loaded.probes()), (one.fill(), one.probes()));
        let mut owned = Bloom::from(other);
        owned.insert("edsger").unwrap();
        other = owned.try_into().unwrap();
        assert!(other.contains("edsger") && other.contains(7));
        let stranger = AtomicBloom::fixed(1000, 0.01).unwrap();
        assert_eq!(other.union(&stranger), Err(Error::Mismatch), "another seed");
        for filter in [Bloom::growing(0.01), Bloom::scaling(9, 0.01), Bloom::counting(9, 0.01)] {
            let filter = filter.unwrap();
            let bytes = filter.to_bytes();
            let is_fixed = matches!(filter.spec().family, Family::Fixed(_));
            assert_eq!(AtomicBloom::try_from(filter).is_ok(), is_fixed);
            assert_eq!(AtomicBloom::from_bytes(&bytes).is_ok(), is_fixed);
        }
    }

    #[test]
    fn only_fixed_sizes_have_several_writers() {
        for spec in [Spec::scaling(100, 0.01), Spec::window(100, 0.01, 3)] {
            assert!(matches!(AtomicBloom::new(spec), Err(Error::Exclusive(_))));
        }
    }
}
