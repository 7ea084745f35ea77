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
    /// Makes this the union: OR of bits, saturating sum of counters. No item of either is lost.
    ///
    /// The number of items afterwards is the estimate from the fill, since the overlap is not known.
    ///
    /// # Errors
    /// [`Error::Mismatch`] unless both have the same geometry. That both use the same hash and seed is the caller's
    /// duty; [`Bloom::union`](crate::Bloom::union) sees to it.
    pub fn union(&self, other: &Layer) -> Result<(), Error> {
        self.union_as::<Shared>(other, &alone).map(drop)
    }

    /// As [`union`](Layer::union) for the only thread that writes, which has the threads of `parallel` help. Says whether
    /// anything changed.
    ///
    /// # Errors
    /// As [`union`](Layer::union).
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

    /// Makes this the intersection: AND of bits, minimum of counters. Items of both stay; the error rate is at most
    /// the larger of the two, but above that of a filter built from the common items.
    ///
    /// # Errors
    /// As [`union`](Layer::union).
    pub fn intersect(&self, other: &Layer) -> Result<(), Error> {
        self.intersect_as::<Shared>(other, &alone)
    }

    /// As [`intersect`](Layer::intersect) for the only thread that writes, which has the threads of `parallel` help.
    ///
    /// # Errors
    /// As [`union`](Layer::union).
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

    /// Replaces each word by what `combined` makes of it and the other's. Says whether one changed; those that do not
    /// are not written, so that their pages stay clean.
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

    /// As [`equal`](Layer::equal), on the threads of `parallel`.
    pub(crate) fn equal_in(&self, other: &Layer, parallel: &ParallelFor<'_>) -> bool {
        self.is_congruent(other)
            && all_pairs(&self.words, &other.words, parallel, |mine, theirs| mine == theirs)
    }

    /// Whether the other one has the same geometry, and of bits none that this has not.
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

    /// As [`snapshot`](Layer::snapshot), on the threads of `parallel`.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn copy(&self, parallel: &ParallelFor<'_>) -> Result<Layer, Error> {
        let copy = Layer::new(self.shape())?;
        copy.recount_after(parallel, |range| copy.words.copy_range(&self.words, range));
        copy.set_items(self.items());
        Ok(copy)
    }
}
