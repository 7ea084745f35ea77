//! Union, intersection, equality and copies of layers.

use super::layer::{Census, Layer, TallyWriter};
use crate::bits::{Shared, Single, counter};
use crate::error::Error;
use crate::mem::Words;
use crate::parallel::{ParallelFor, all_pairs, alone};
use crate::params::Cell;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;

impl Layer {
    /// Turns this layer into its union with the other layer: OR of bits, saturating sum of counters. No item of either
    /// is lost. Tables need a single writer and are refused here.
    ///
    /// If one layer covers the other, the number of items becomes the larger of the two layers' numbers. Otherwise the
    /// overlap isn't known, and the number is estimated from the fill.
    ///
    /// # Errors
    /// [`Error::Mismatch`] unless both have the same geometry. The caller must make sure that both use the same
    /// hash and seed; [`Bloom::union`](crate::Bloom::union) does.
    pub fn union(&self, other: &Layer) -> Result<(), Error> {
        self.union_as::<Shared>(other, &alone).map(drop)
    }

    /// Like [`union`](Layer::union), for a single writer, on the threads of `parallel`. Also accepts tables of any
    /// sizes, and lets this one grow if it `grows`. Returns whether anything changed.
    ///
    /// # Errors
    /// Same as [`union`](Layer::union); [`Error::Full`] if a table has no room for all items, and
    /// [`Error::OutOfMemory`]. Then some of them have been added.
    pub fn union_single_writer(
        &self,
        other: &Layer,
        grows: bool,
        parallel: &ParallelFor<'_>,
    ) -> Result<bool, Error> {
        if self.has_table() && self.is_congruent(other) {
            return self.unite(other, 0, grows, parallel);
        }
        self.union_as::<Single>(other, parallel)
    }

    fn union_as<W: TallyWriter>(&self, other: &Layer, parallel: &ParallelFor<'_>) -> Result<bool, Error> {
        let (mine, theirs) = (self.items(), other.items());
        let ones = self.ones();
        let width = self.cell().bits();
        let changed = match self.cell() {
            Cell::Bit => self.combine::<W>(other, parallel, |a, b| a | b),
            _ => self.combine::<W>(other, parallel, |a, b| counter::saturating_sum(width, a, b)),
        }?;
        let (least, most) = (mine.max(theirs), mine.saturating_add(theirs));
        let one_covers = self.ones() == ones || self.ones() == other.ones();
        let items = if one_covers { least } else { self.estimate().clamp(least, most) };
        self.set_items(items);
        Ok(changed || items != mine)
    }

    /// Turns this layer into its intersection with the other: AND of bits, minimum of counters. Items that are in both
    /// layers stay. The error rate is at most the smaller of the two, but higher than in a filter built from the common
    /// items.
    ///
    /// If one layer covers the other, the number of items becomes the smaller of the two layers' numbers. Otherwise it
    /// is estimated by inclusion and exclusion: the sum of the two layers' items, minus the items of their union. The
    /// fill of the intersection alone would give too high a number, because different items also share cells. The
    /// estimate is never above the number of either layer.
    pub fn intersect(&self, other: &Layer) -> Result<(), Error> {
        self.intersect_as::<Shared>(other, &alone)
    }

    /// Like [`intersect`](Layer::intersect), for a single writer, on the threads of `parallel`. Also accepts tables.
    pub fn intersect_single_writer(&self, other: &Layer, parallel: &ParallelFor<'_>) -> Result<(), Error> {
        if self.has_table() && other.has_table() {
            return self.keep_common(other, parallel);
        }
        self.intersect_as::<Single>(other, parallel)
    }

    fn intersect_as<W: TallyWriter>(&self, other: &Layer, parallel: &ParallelFor<'_>) -> Result<(), Error> {
        let least = self.items().min(other.items());
        let (mine, theirs) = (self.ones(), other.ones());
        let width = self.cell().bits();
        match self.cell() {
            Cell::Bit => self.combine::<W>(other, parallel, |a, b| a & b),
            _ => self.combine::<W>(other, parallel, |a, b| counter::minimum(width, a, b)),
        }?;
        let common = self.ones();
        let one_covers = common == mine || common == theirs;
        let estimate = |ones: u64| self.shape().items_at(ones as f64 / self.cells() as f64);
        // Cells that are set in either layer: the sum of both numbers, minus the common cells.
        let either = mine.saturating_add(theirs).saturating_sub(common);
        let items = estimate(mine) + estimate(theirs) - estimate(either);
        self.set_items(if one_covers { least } else { (libm::round(items).max(0.0) as u64).min(least) });
        Ok(())
    }

    /// Replaces each word with the result of `combined` for that word and the other layer's word at the same index.
    /// Returns whether any word changed. Words that don't change aren't written, so their pages stay clean.
    fn combine<W: TallyWriter>(
        &self,
        other: &Layer,
        parallel: &ParallelFor<'_>,
        combined: impl Fn(u64, u64) -> u64 + Sync,
    ) -> Result<bool, Error> {
        if !self.is_congruent(other) || self.has_table() || self.is_static() {
            return Err(Error::Mismatch);
        }
        let changed = AtomicU64::new(0);
        self.recount_after(parallel, |range| {
            let mut any = false;
            for (mine, theirs) in self.words()[range.clone()].iter().zip(&other.words()[range]) {
                let theirs = theirs.load(Relaxed);
                let new = |word| Some(combined(word, theirs)).filter(|new| *new != word);
                any |= W::update(mine, new).1;
            }
            if any {
                changed.store(1, Relaxed);
            }
        });
        Ok(changed.into_inner() != 0)
    }

    /// Whether both layers have the same geometry and the same cells or, for tables, the same items.
    pub fn equal(&self, other: &Layer) -> bool {
        self.equal_in(other, &alone)
    }

    /// Like [`equal`](Layer::equal), on the threads of `parallel`.
    pub(crate) fn equal_in(&self, other: &Layer, parallel: &ParallelFor<'_>) -> bool {
        self.is_congruent(other)
            && match self.has_table() {
                true => self.has_same_items(other, [0, 0], parallel),
                false => all_pairs(self.words(), other.words(), parallel, |mine, theirs| mine == theirs),
            }
    }

    /// Whether the other layer has the same geometry, and every bit that is set there is also set in this layer.
    pub(crate) fn covers(&self, other: &Layer, parallel: &ParallelFor<'_>) -> bool {
        self.is_congruent(other)
            && all_pairs(self.words(), other.words(), parallel, |mine, theirs| theirs & !mine == 0)
    }

    /// A copy. If items are added concurrently, the copy is consistent word by word: it contains every item whose add
    /// had returned before copying began.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn snapshot(&self) -> Result<Layer, Error> {
        self.copy(&alone)
    }

    /// Like [`snapshot`](Layer::snapshot), on the threads of `parallel`.
    pub(crate) fn copy(&self, parallel: &ParallelFor<'_>) -> Result<Layer, Error> {
        // The shape is read from the table, too: with two locks at once, a writer may wait between them.
        let shape = self.shape();
        if let Some(table) = self.reading() {
            return Layer::with_table(&shape, table.copy()?);
        }
        let copy = Layer::new(shape)?;
        copy.recount_after(parallel, |range| Words::copy_range(copy.words(), self.words(), range));
        copy.take_counts(self);
        Ok(copy)
    }

    /// Copies the counts of a layer with the same cells.
    fn take_counts(&self, other: &Layer) {
        if self.is_static() {
            self.set_tallies(Census::of_set(other.ones()), other.items());
        } else {
            self.set_items(other.items());
        }
    }
}
