//! Set algebra on Bloom filters: union, intersection, equality. Works word by word, so it parallelises over all
//! worker threads. Every operation is fully checked before it changes anything.

use super::layer::Layer;
use super::{Bloom, Body, Window};
use crate::error::Error;
use crate::filter::incompatible::Incompatible;
use crate::parallel::ParallelFor;
use crate::params::limits;
use std::sync::Arc;

/// How a filter is included in another.
pub(crate) enum Inclusion<'s> {
    /// Cell by cell.
    Cells,
    /// As copies of these layers, which go into the chain.
    Layers(Vec<&'s Layer>),
}

impl Bloom {
    /// The first property by which an item's cells within a layer would differ between the two filters.
    fn difference_of_cells(&self, other: &Bloom) -> Option<&'static str> {
        let (a, b) = (&self.spec, &other.spec);
        [
            ("hash", a.hash != b.hash),
            ("seed", a.seed != b.seed),
            ("cell width", a.cell != b.cell),
            ("number of shards", a.shards != b.shards),
        ]
        .into_iter()
        .find_map(|(what, differs)| differs.then_some(what))
    }

    /// The first property by which an item's cells, or in windows its generation, would differ between the two
    /// filters. `None` if there is none.
    pub fn difference(&self, other: &Bloom) -> Option<&'static str> {
        // Without a period, generation numbers count rotations by hand, no matter when the window began.
        let schedule = |filter: &Bloom| {
            let schedule = filter.window().map(Window::schedule).filter(|schedule| schedule.every_ms > 0);
            schedule.map_or((0, 0), |schedule| (schedule.every_ms, schedule.since_ms))
        };
        self.difference_of_cells(other).or_else(|| {
            let layers = || self.layers().iter().zip(other.layers());
            if std::mem::discriminant(&self.body) != std::mem::discriminant(&other.body) {
                Some("kind")
            } else if schedule(self) != schedule(other) {
                Some("schedule")
            } else if self.layers().len() != other.layers().len() || layers().any(|(a, b)| !a.is_congruent(b))
            {
                Some("shape")
            } else {
                None
            }
        })
    }

    /// Whether items have the same cells in both, layer by layer.
    pub fn is_congruent(&self, other: &Bloom) -> bool {
        self.difference(other).is_none()
            && self.window().map(Window::newest) == other.window().map(Window::newest)
    }

    /// Turns this filter into the union with a filter of the same hash, seed and shape. No item of either is lost.
    ///
    /// # Errors
    /// [`Error::Mismatch`], and then nothing has changed.
    pub fn union(&mut self, other: &Bloom) -> Result<(), Error> {
        if !self.is_congruent(other) {
            return Err(Error::Mismatch);
        }
        self.layers().iter().zip(other.layers()).try_for_each(|(mine, theirs)| mine.union(theirs))
    }

    /// Turns this filter into the intersection with a filter of the same hash, seed and shape. Items of both stay.
    ///
    /// # Errors
    /// [`Error::Mismatch`], and then nothing has changed. Filters of several layers (windows, grown chains) are
    /// also refused: an item may be in different layers of the two, and would be lost.
    pub fn intersect(&mut self, other: &Bloom) -> Result<(), Error> {
        if !self.is_congruent(other) || (self.layers().len() > 1) {
            return Err(Error::Mismatch);
        }
        self.layers().iter().zip(other.layers()).try_for_each(|(mine, theirs)| mine.intersect(theirs))
    }

    /// Whether both have the same hash, seed, shape and cells.
    pub fn equal(&self, other: &Bloom) -> bool {
        self.is_congruent(other) && self.layers().iter().zip(other.layers()).all(|(a, b)| a.equal(b))
    }

    /// Whether both give every item the same answer and always will, given the same adds: the same hash, seed,
    /// shape and cells. Windows are compared as of these generations; a generation that hasn't been opened yet is
    /// empty.
    pub fn equal_at(&self, other: &Bloom, generations: [u64; 2], parallel: &ParallelFor<'_>) -> bool {
        if self.difference(other).is_some() {
            return false;
        }
        let (Some(a), Some(b)) = (self.window(), other.window()) else {
            return self.layers().iter().zip(other.layers()).all(|(a, b)| a.equal_in(b, parallel));
        };
        let [number, other_number] = generations;
        let of_age = |window, age| Window::alive(window, number).find(|(other, _)| *other == age);
        number == other_number
            && (0..self.layers().len() as u64).all(|age| match (of_age(a, age), of_age(b, age)) {
                (Some((_, a)), Some((_, b))) => a.equal_in(b, parallel),
                (some, none) => some.or(none).is_none_or(|(_, layer)| layer.ones() == 0),
            })
    }

    /// The layers to combine: of windows, those of the generations alive in this one, by number; otherwise all, in
    /// order.
    fn pairs<'f>(&'f self, other: &'f Bloom) -> Vec<(&'f Layer, &'f Layer)> {
        match (self.window(), other.window()) {
            (Some(mine), Some(theirs)) => {
                let alive: Vec<_> = mine.alive(mine.newest()).map(|(_, layer)| &**layer).collect();
                let pair = |(age, layer): (u64, &'f Arc<Layer>)| Some((*alive.get(age as usize)?, &**layer));
                theirs.alive(mine.newest()).filter_map(pair).collect()
            }
            _ => self.layers().iter().zip(other.layers()).map(|(a, b)| (&**a, &**b)).collect(),
        }
    }

    /// Whether an [`intersection`](Bloom::intersection) with the other loses no common item.
    ///
    /// # Errors
    /// Why it would.
    pub fn check_intersection(&self, other: &Bloom) -> Result<(), Incompatible> {
        let has_one_layer =
            |filter: &Bloom| filter.layers().len() == 1 && !matches!(filter.body, Body::Window(_));
        if !has_one_layer(self) || !has_one_layer(other) {
            return Err(Incompatible::Layers);
        }
        self.difference(other).map_or(Ok(()), |what| Err(Incompatible::Differs(what)))
    }

    /// A new filter with this one's parameters and the items that are in all filters. These must have been
    /// [checked](Bloom::check_intersection).
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Mismatch`].
    pub fn intersection(&self, others: &[&Bloom], parallel: &ParallelFor<'_>) -> Result<Bloom, Error> {
        let result = self.copy(parallel)?;
        for other in others {
            for (mine, theirs) in result.pairs(other) {
                mine.intersect_single_writer(theirs, parallel)?;
            }
        }
        Ok(result)
    }

    /// How the source goes into this filter, which is at generation `number` if it is a window. `taken` are the
    /// layers of earlier sources, which will be in its chain by then.
    ///
    /// Not inlined: otherwise the compiler checks once, before the loop over the sources, whether the chain's
    /// layers are on the heap, even for a filter that has no chain. That is harmless, but valgrind can't know it
    /// and reports an error.
    ///
    /// # Errors
    /// Why the two don't go together.
    #[inline(never)]
    pub(crate) fn inclusion<'s>(
        &self,
        number: u64,
        source: &'s Bloom,
        taken: &[&Layer],
        parallel: &ParallelFor<'_>,
    ) -> Result<Inclusion<'s>, Incompatible> {
        let Some(what) = self.difference(source) else {
            return match source.window() {
                Some(window) if window.newest() > number => Err(Incompatible::Ahead),
                _ => Ok(Inclusion::Cells),
            };
        };
        // Layers in a chain may have any shape.
        let (Body::Chain(chain), Body::Chain(_) | Body::Fixed(_), None) =
            (&self.body, &source.body, self.difference_of_cells(source))
        else {
            return Err(Incompatible::Differs(what));
        };
        let mut layers: Vec<&Layer> = Vec::new();
        for layer in source.layers() {
            // Clients repeat a merge if its reply got lost. That must not add the layers a second time.
            let here = chain.layers().iter().map(|layer| &**layer);
            let mut here = here.chain(taken.iter().copied()).chain(layers.iter().copied());
            if layer.ones() > 0 && !here.any(|held| held.covers(layer, parallel)) {
                layers.push(layer);
            }
        }
        if chain.layers().len() + taken.len() + layers.len() > limits::MAX_LAYERS {
            return Err(Incompatible::TooManyLayers);
        }
        Ok(Inclusion::Layers(layers))
    }

    /// Combines with the cells of a source for which [`inclusion`](Bloom::inclusion) returned [`Inclusion::Cells`].
    /// Returns whether anything changed.
    ///
    /// # Errors
    /// [`Error::Mismatch`].
    pub(crate) fn take_in_cells(
        &mut self,
        source: &Bloom,
        parallel: &ParallelFor<'_>,
    ) -> Result<bool, Error> {
        self.pairs(source).into_iter().try_fold(false, |changed, (mine, theirs)| {
            Ok(theirs.ones() > 0 && mine.union_single_writer(theirs, parallel)? || changed)
        })
    }

    /// Adds layers to its chain.
    pub(crate) fn take_in_layers(&mut self, layers: Vec<Arc<Layer>>) {
        if let Body::Chain(chain) = &mut self.body {
            chain.insert_before_newest(layers);
        }
    }
}
