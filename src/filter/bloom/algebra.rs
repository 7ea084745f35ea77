//! Set algebra on Bloom filters: union, intersection and equality. Except for tables, it works word by word, so
//! that all worker threads can share the work. Whether filters can be combined is checked before anything changes.

use super::{Bloom, Body, Standing, Window};
use crate::error::Error;
use crate::filter::incompatible::Incompatible;
use crate::filter::layout::Layer;
use crate::filter::layout::quotient::Estimate;
use crate::parallel::{ParallelFor, alone};
use crate::params::{Layout, Spec, limits};
use alloc::vec::Vec;
use smallvec::SmallVec;

/// A layer of the chain that a union builds.
pub(crate) struct Joined<'s> {
    /// The layer's number in the destination's chain; `None` for a new layer, which starts as a copy of the first of
    /// `parts`.
    pub(crate) held: Option<usize>,
    /// The source layers that are merged into this layer.
    pub(crate) parts: Vec<&'s Layer>,
}

impl Bloom {
    /// The name of the first difference between the filters that affects an item's cells within a layer; `None` if
    /// there is none.
    fn difference_of_cells(&self, other: &Bloom) -> Option<&'static str> {
        let (a, b) = (self.spec(), other.spec());
        [
            ("hash", a.hash != b.hash),
            ("seed", a.seed != b.seed),
            ("cell width", a.cell != b.cell),
            ("number of shards", a.shards != b.shards),
        ]
        .into_iter()
        .find_map(|(what, differs)| differs.then_some(what))
    }

    /// Whether the filter stores prefixes or hashes, which can't be combined word by word.
    fn has_no_probes(&self) -> bool {
        self.parameters.layout().is_some_and(|layout| !layout.has_probes())
    }

    /// Whether the filter is nothing but a table, which can be combined with others of any size.
    #[doc(hidden)]
    pub fn is_table(&self) -> bool {
        self.parameters.layout() == Some(Layout::Quotient)
    }

    /// The name of the first difference between two tables that affects an item's prefix or its generation.
    fn difference_of_tables(&self, other: &Bloom) -> Option<&'static str> {
        let schedule = |filter: &Bloom| {
            filter.window().map(Window::schedule).map(|schedule| (schedule.every_ms, schedule.phase()))
        };
        self.difference_of_cells(other).or_else(|| {
            if schedule(self) != schedule(other) {
                Some("schedule")
            } else {
                (self.newest_layer().generations() != other.newest_layer().generations()).then_some("kind")
            }
        })
    }

    /// The name of the first difference between the filters that affects an item's cells or, in windows, its
    /// generation; `None` if there is none.
    pub fn difference(&self, other: &Bloom) -> Option<&'static str> {
        // A window's start time and its manual rotations determine the numbers of its generations, but not when they
        // end. So only the period and the phase are compared.
        let schedule = |filter: &Bloom| {
            filter.window().map(Window::schedule).map(|schedule| (schedule.every_ms, schedule.phase()))
        };
        if self.is_table() && other.is_table() {
            return self.difference_of_tables(other);
        }
        self.difference_of_cells(other).or_else(|| {
            let layers = || self.layers().iter().zip(other.layers());
            if core::mem::discriminant(&self.body) != core::mem::discriminant(&other.body) {
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

    /// Whether every item has the same cells in both filters, layer by layer. For windows, also whether their newest
    /// generations have the same number and belong to the same period.
    pub fn is_congruent(&self, other: &Bloom) -> bool {
        let place = |window: &Window| (window.newest(), window.standing().period());
        self.difference(other).is_none() && self.window().map(place) == other.window().map(place)
    }

    /// Turns this filter into its union with a filter that has the same hash, seed and shape. No item of either filter
    /// is lost.
    ///
    /// # Errors
    /// [`Error::Mismatch`]; for tables also [`Error::OutOfMemory`], and [`Error::Full`] if a table that doesn't grow
    /// has no room for all items. In all cases, nothing has changed.
    pub fn union(&mut self, other: &Bloom) -> Result<(), Error> {
        if !self.is_congruent(other) {
            return Err(Error::Mismatch);
        }
        if self.has_table() {
            let mut made = self.copy(&alone)?;
            made.take_in_cells(other, &alone)?;
            self.exchange(&mut made);
            return Ok(());
        }
        self.layers().iter().zip(other.layers()).try_for_each(|(mine, theirs)| mine.union(theirs))
    }

    /// Turns this filter into its intersection with a filter that has the same hash, seed and shape. Items that are in
    /// both filters stay.
    ///
    /// # Errors
    /// [`Error::Mismatch`]; then nothing has changed. Filters with several layers (windows, grown chains) are also
    /// refused: an item may be in different layers of the two filters, and would be lost.
    pub fn intersect(&mut self, other: &Bloom) -> Result<(), Error> {
        if !self.is_congruent(other) || self.layers().len() > 1 || self.window().is_some() {
            return Err(Error::Mismatch);
        }
        if self.is_table() {
            let mut made = self.intersection(&[other], &alone)?;
            self.exchange(&mut made);
            return Ok(());
        }
        self.layers().iter().zip(other.layers()).try_for_each(|(mine, theirs)| mine.intersect(theirs))
    }

    /// Whether both filters are equal, as [`equal_at`](Bloom::equal_at) defines it. Windows must also have the same
    /// newest generation in the same period.
    pub fn equal(&self, other: &Bloom) -> bool {
        self.is_congruent(other) && self.equal_at(other, [self, other].map(Bloom::newest), &alone)
    }

    /// Whether both filters have the same hash, seed and shape, and the same cells or, for tables, the same items. Such
    /// filters give the same answer for every item, and continue to do so if they get the same adds and rotations.
    /// Windows are compared by the ages of their items. `generations` has the number of each window's current
    /// generation. If that generation hasn't been opened yet, it counts as empty.
    pub fn equal_at(&self, other: &Bloom, generations: [u64; 2], parallel: &ParallelFor<'_>) -> bool {
        if self.difference(other).is_some() {
            return false;
        }
        let (Some(a), Some(b)) = (self.window(), other.window()) else {
            return self.layers().iter().zip(other.layers()).all(|(a, b)| a.equal_in(b, parallel));
        };
        let [current, other_current] = generations;
        let period = |window: &Window, newest| Standing { newest, ..window.standing() }.period();
        period(a, current) == period(b, other_current) && a.has_equal_generations(b, generations, parallel)
    }

    /// Checks that an [`intersection`](Bloom::intersection) with the other filter loses no common item.
    ///
    /// # Errors
    /// The reason why the filters can't be intersected.
    pub fn check_intersection(&self, other: &Bloom) -> Result<(), Incompatible> {
        let has_one_layer =
            |filter: &Bloom| filter.layers().len() == 1 && !matches!(filter.body, Body::Window(_));
        if (self.has_no_probes() || other.has_no_probes()) && !(self.is_table() && other.is_table()) {
            return Err(Incompatible::Layouts);
        }
        if !has_one_layer(self) || !has_one_layer(other) {
            return Err(Incompatible::Layers);
        }
        self.difference(other).map_or(Ok(()), |what| Err(Incompatible::Differs(what)))
    }

    /// A new filter with this one's parameters and the items that are in all filters. The other filters must have been
    /// [checked](Bloom::check_intersection).
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Mismatch`].
    pub fn intersection(&self, others: &[&Bloom], parallel: &ParallelFor<'_>) -> Result<Bloom, Error> {
        let result = self.copy(parallel)?;
        for other in others {
            for (mine, theirs) in result.layers().iter().zip(other.layers()) {
                mine.intersect_single_writer(theirs, parallel)?;
            }
        }
        Ok(result)
    }

    /// About the number of bytes of cells that the [`intersection`](Bloom::intersection) needs: of tables, a copy and
    /// the common items with the first of the others.
    pub fn intersection_bytes(&self, others: &[&Bloom]) -> u64 {
        let common = match (self.table(), others.first().and_then(|other| other.table())) {
            (Some(mine), Some(theirs)) => Estimate::of_common(mine, theirs),
            _ => 0,
        };
        self.bytes().saturating_add(common)
    }

    /// How the source is merged into this filter: cell by cell, or layer by layer into its chain.
    ///
    /// Not inlined: otherwise the compiled code checks, before the loop over the sources, whether the chain's layers
    /// are on the heap, even if the filter has no chain. That is harmless, but valgrind can't know this and reports an
    /// error.
    ///
    /// # Errors
    /// Why the two filters can't be merged.
    #[inline(never)]
    pub(crate) fn inclusion(&self, source: &Bloom) -> Result<Inclusion, Incompatible> {
        if self.is_table() && source.is_table() {
            return self
                .difference_of_tables(source)
                .map_or(Ok(Inclusion::Cells), |what| Err(Incompatible::Differs(what)));
        }
        if self.has_no_probes() || source.has_no_probes() {
            return Err(Incompatible::Layouts);
        }
        // Layers in a chain may have any shape. The bits of filters that have added a table are full, so their union
        // would exceed the error rate.
        match (self.difference(source), &self.body, &source.body, self.difference_of_cells(source)) {
            (None, ..) if !self.has_table() => Ok(Inclusion::Cells),
            (_, Body::Chain(_), Body::Chain(_) | Body::Fixed(_), None) => Ok(Inclusion::Layers),
            (what, ..) => Err(Incompatible::Differs(what.unwrap_or("kind"))),
        }
    }

    /// Puts a source's layers, except empty ones, into `chain`, which is part of the plan of a union.
    /// [`inclusion`](Bloom::inclusion) must have returned [`Inclusion::Layers`] for the source. `chain` is either
    /// empty, or contains this filter's layers followed by the layers of earlier sources.
    ///
    /// If the source was merged before and items have been added to it since, this filter has older copies of the
    /// source's layers. Each layer is merged into its older copy, so that repeated merges don't lengthen the chain, and
    /// items count once.
    ///
    /// # Errors
    /// [`Incompatible::TooManyLayers`].
    pub(crate) fn join_layers<'s>(
        &self,
        source: &'s Bloom,
        chain: &mut Vec<Joined<'s>>,
        parallel: &ParallelFor<'_>,
    ) -> Result<(), Incompatible> {
        if chain.is_empty() {
            let held = |number| Joined { held: Some(number), parts: Vec::new() };
            chain.extend((0..self.layers().len()).map(held));
        }
        let layers = source.layers().iter().filter(|layer| !layer.is_blank());
        layers.for_each(|layer| self.join(layer, chain, parallel));
        if chain.len() > limits::MAX_LAYERS { Err(Incompatible::TooManyLayers) } else { Ok(()) }
    }

    /// Puts one layer of a source into the chain: into its older copy if there is one, otherwise at the end. Does
    /// nothing if the chain already contains the layer's cells. Tables of any size become one table.
    fn join<'s>(&self, layer: &'s Layer, chain: &mut Vec<Joined<'s>>, parallel: &ParallelFor<'_>) {
        let parts = |joined: &Joined<'s>| {
            let held = joined.held.map(|number| &self.layers()[number]);
            held.into_iter().chain(joined.parts.iter().copied()).collect::<SmallVec<[&Layer; 2]>>()
        };
        if layer.has_table() {
            match chain.iter_mut().find(|joined| parts(joined)[0].has_table()) {
                Some(joined) => joined.parts.push(layer),
                None => chain.push(Joined { held: None, parts: vec![layer] }),
            }
            return;
        }
        // Clients repeat a merge if its reply was lost. The repetition must change nothing.
        if chain.iter().any(|joined| parts(joined).iter().any(|part| part.covers(layer, parallel))) {
            return;
        }
        // An empty layer is not an older copy; it is only waiting for adds.
        let is_older_copy = |part: &&Layer| !part.is_blank() && layer.covers(part, parallel);
        let is_older = |joined: &Joined<'s>| parts(joined).iter().all(is_older_copy);
        let place = chain.iter().position(is_older);
        match place.map(|place| &mut chain[place]) {
            Some(joined) => joined.parts.push(layer),
            None => chain.push(Joined { held: None, parts: vec![layer] }),
        }
    }

    /// Merges in the cells of a source for which [`inclusion`](Bloom::inclusion) returned [`Inclusion::Cells`]. Returns
    /// whether anything changed.
    ///
    /// # Errors
    /// [`Error::Mismatch`]; [`Error::Full`] if a table has no room for all items, in which case some of them have been
    /// added.
    pub(crate) fn take_in_cells(
        &mut self,
        source: &Bloom,
        parallel: &ParallelFor<'_>,
    ) -> Result<bool, Error> {
        let (mut changed, grows) = (false, self.parameters.grows());
        if self.is_table() {
            let mut ages_by = 0;
            if let (Body::Window(window), Some(source)) = (&mut self.body, source.window()) {
                ages_by = window.standing().ages_by(source.standing());
                let oldest = Window::taken_from(window.standing(), source).map(|theirs| theirs.age).max();
                changed = oldest.is_some_and(|age| window.renumber_for(age));
            }
            let (mine, theirs) = (self.newest_layer(), source.newest_layer());
            return Ok(mine.unite(theirs, ages_by, grows, parallel)? || changed);
        }
        match (&mut self.body, source.window()) {
            (Body::Window(window), Some(source)) => {
                for theirs in Window::taken_from(window.standing(), source) {
                    changed |=
                        window.of_age(theirs.age).union_single_writer(theirs.layer, false, parallel)?;
                }
            }
            _ => {
                for (mine, theirs) in self.layers().iter().zip(source.layers()) {
                    changed |= theirs.ones() > 0 && mine.union_single_writer(theirs, grows, parallel)?;
                }
            }
        }
        Ok(changed)
    }

    /// Merges the planned parts (`joined`) into the layers of the filter's chain, and inserts the `new` layers, which
    /// [`Joined::copies`] has built. Returns whether anything changed.
    ///
    /// # Errors
    /// [`Error::Mismatch`].
    pub(crate) fn take_in_layers(
        &mut self,
        joined: &[Joined<'_>],
        new: Vec<Layer>,
        parallel: &ParallelFor<'_>,
    ) -> Result<bool, Error> {
        let mut changed = !new.is_empty();
        for (number, parts) in joined.iter().filter_map(|joined| Some((joined.held?, &joined.parts))) {
            for part in parts {
                changed |= self.layers()[number].union_single_writer(part, true, parallel)?;
            }
        }
        if !new.is_empty() {
            self.change_body(|body| {
                if let Body::Chain(chain) = body {
                    chain.insert_before_newest(new);
                }
            });
        }
        Ok(changed)
    }
}

impl Joined<'_> {
    /// Builds the new layers of a planned chain, for a filter of this spec.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn copies(
        joined: &[Joined<'_>],
        spec: &Spec,
        parallel: &ParallelFor<'_>,
    ) -> Result<Vec<Layer>, Error> {
        let new = joined.iter().filter(|joined| joined.held.is_none());
        let copy = |parts: &[&Layer]| {
            let [first, more @ ..] = parts else { return Ok(None) };
            // Later items go to the table, so it must promise this filter's error rate.
            let (copy, more) = match first.has_table() {
                true => (Layer::new(spec.table_layer().shape()?)?, parts),
                false => (first.copy(parallel)?, more),
            };
            more.iter().try_for_each(|part| copy.union_single_writer(part, true, parallel).map(drop))?;
            Ok(Some(copy))
        };
        new.filter_map(|joined| copy(&joined.parts).transpose()).collect()
    }
}

/// How a filter is merged into another.
pub(crate) enum Inclusion {
    /// Cell by cell.
    Cells,
    /// Layer by layer, into the chain.
    Layers,
}
