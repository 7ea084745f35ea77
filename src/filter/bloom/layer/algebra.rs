//! Union, intersection, equality and copies of layers.

use super::Layer;
use super::tally::TallyWriter;
use crate::bits::{Shared, Single, counter};
use crate::error::Error;
use crate::parallel::{ParallelFor, all_pairs, alone};
use crate::params::Cell;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;

impl Layer {
    /// Turns this layer into the union: OR of bits, saturating sum of counters. No item of either is lost.
    ///
    /// The number of items is then the estimate from the fill, since the overlap isn't known.
    ///
    /// # Errors
    /// [`Error::Mismatch`] unless both have the same geometry. The caller must make sure that both use the same
    /// hash and seed; [`Bloom::union`](crate::Bloom::union) does.
    pub fn union(&self, other: &Layer) -> Result<(), Error> {
        self.union_as::<Shared>(other, &alone).map(drop)
    }

    /// Like [`union`](Layer::union), for a single writer, on the threads of `parallel`. Returns whether anything
    /// changed.
    ///
    /// # Errors
    /// Same as [`union`](Layer::union).
    pub fn union_single_writer(&self, other: &Layer, parallel: &ParallelFor<'_>) -> Result<bool, Error> {
        self.union_as::<Single>(other, parallel)
    }

    fn union_as<W: TallyWriter>(&self, other: &Layer, parallel: &ParallelFor<'_>) -> Result<bool, Error> {
        let (mine, theirs) = (self.items(), other.items());
        let width = self.cell.bits();
        let changed = match self.cell {
            Cell::Bit => self.combine::<W>(other, parallel, |a, b| a | b),
            _ => self.combine::<W>(other, parallel, |a, b| counter::saturating_sum(width, a, b)),
        }?;
        let (least, most) = (mine.max(theirs), mine.saturating_add(theirs));
        let items = if changed { self.nearest_estimate().clamp(least, most) } else { least };
        self.set_items(items);
        Ok(changed || items != mine)
    }

    /// Turns this layer into the intersection: AND of bits, minimum of counters. Items of both stay. The error rate
    /// is at most the larger of the two, but higher than in a filter built from the common items.
    ///
    /// # Errors
    /// Same as [`union`](Layer::union).
    pub fn intersect(&self, other: &Layer) -> Result<(), Error> {
        self.intersect_as::<Shared>(other, &alone)
    }

    /// Like [`intersect`](Layer::intersect), for a single writer, on the threads of `parallel`.
    ///
    /// # Errors
    /// Same as [`union`](Layer::union).
    pub fn intersect_single_writer(&self, other: &Layer, parallel: &ParallelFor<'_>) -> Result<(), Error> {
        self.intersect_as::<Single>(other, parallel)
    }

    fn intersect_as<W: TallyWriter>(&self, other: &Layer, parallel: &ParallelFor<'_>) -> Result<(), Error> {
        let width = self.cell.bits();
        match self.cell {
            Cell::Bit => self.combine::<W>(other, parallel, |a, b| a & b),
            _ => self.combine::<W>(other, parallel, |a, b| counter::minimum(width, a, b)),
        }?;
        self.set_items(self.nearest_estimate().min(self.items()).min(other.items()));
        Ok(())
    }

    /// Replaces each word by `combined` of it and the other layer's word. Returns whether any word changed. Words
    /// that don't change aren't written, so their pages stay clean.
    fn combine<W: TallyWriter>(
        &self,
        other: &Layer,
        parallel: &ParallelFor<'_>,
        combined: impl Fn(u64, u64) -> u64 + Sync,
    ) -> Result<bool, Error> {
        if !self.is_congruent(other) {
            return Err(Error::Mismatch);
        }
        let changed = AtomicU64::new(0);
        self.recount_after(parallel, |range| {
            let mut any = false;
            for (mine, theirs) in self.words[range.clone()].iter().zip(&other.words[range]) {
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

    /// Whether both have the same geometry and the same cells.
    pub fn equal(&self, other: &Layer) -> bool {
        self.equal_in(other, &alone)
    }

    /// Like [`equal`](Layer::equal), on the threads of `parallel`.
    pub(crate) fn equal_in(&self, other: &Layer, parallel: &ParallelFor<'_>) -> bool {
        self.is_congruent(other)
            && all_pairs(&self.words, &other.words, parallel, |mine, theirs| mine == theirs)
    }

    /// Whether the other layer has the same geometry, and every bit that is set there is set here.
    pub(crate) fn covers(&self, other: &Layer, parallel: &ParallelFor<'_>) -> bool {
        self.is_congruent(other)
            && all_pairs(&self.words, &other.words, parallel, |mine, theirs| theirs & !mine == 0)
    }

    /// A copy. Under concurrent adds it is consistent word by word: it holds every item whose add had returned.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn snapshot(&self) -> Result<Layer, Error> {
        self.copy(&alone)
    }

    /// Like [`snapshot`](Layer::snapshot), on the threads of `parallel`.
    ///
    /// # Errors
    /// Same as [`snapshot`](Layer::snapshot).
    pub(crate) fn copy(&self, parallel: &ParallelFor<'_>) -> Result<Layer, Error> {
        let copy = Layer::new(self.shape())?;
        copy.recount_after(parallel, |range| copy.words.copy_range(&self.words, range));
        copy.set_items(self.items());
        Ok(copy)
    }
}
