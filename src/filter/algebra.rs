//! Set algebra on whole filters: union, intersection, equality. It goes word by word, and so on as many threads as
//! there are. An operation is checked as a whole before it changes anything.

use super::{Bloom, Body, Filter, Layer, Window};
use crate::error::Error;
use crate::params::limits;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;
use std::ops::Range;
use std::sync::Arc;

/// Runs tasks 0 to n − 1, each once, on as many threads as there are, and returns when all are done.
pub type Fork<'f> = dyn Fn(usize, &(dyn Fn(usize) + Sync)) + 'f;

/// The [`Fork`] of one thread.
pub fn alone(tasks: usize, task: &(dyn Fn(usize) + Sync)) {
    (0..tasks).for_each(task);
}

/// Words of one task: 8 MiB, which take about a millisecond. Fewer are not worth another thread.
/// One in a model, whose layers have a few words.
const PART: usize = if cfg!(all(loom, test)) { 1 } else { 1 << 20 };

/// Visits ranges of `words` words, each word once, on the threads of `fork`.
pub(super) fn in_parts(words: usize, fork: &Fork<'_>, visit: impl Fn(Range<usize>) + Sync) {
    fork(words.div_ceil(PART), &|part| visit(part * PART..words.min((part + 1) * PART)));
}

/// Whether `holds` does for every pair of words; no thread begins another part when it is known that it does not.
pub(super) fn all(
    a: &[AtomicU64],
    b: &[AtomicU64],
    fork: &Fork<'_>,
    holds: impl Fn(u64, u64) -> bool + Sync,
) -> bool {
    let failed = AtomicU64::new(0);
    in_parts(a.len(), fork, |part| {
        let mut pairs = a[part.clone()].iter().zip(&b[part]);
        if failed.load(Relaxed) == 0 && !pairs.all(|(a, b)| holds(a.load(Relaxed), b.load(Relaxed))) {
            failed.store(1, Relaxed);
        }
    });
    failed.into_inner() == 0
}

/// Why two filters cannot be combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlike {
    /// They differ in what the text names, so that an item has other cells in the one than in the other.
    Differs(&'static str),
    /// The source is a window at a generation that the destination has not come to.
    Ahead,
    /// An intersection of more than one layer: an item may lie in different layers of the two, and would be lost.
    Layers,
    /// The chain would have more layers than [`limits::MAX_LAYERS`].
    TooManyLayers,
}

impl Bloom {
    /// What the two differ in that decides which cells an item has within a layer.
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

    /// What the two differ in that decides which cells an item has; of windows, also which generation. `None` if
    /// nothing.
    pub fn difference(&self, other: &Bloom) -> Option<&'static str> {
        // Without a period the numbers mean rotations by hand, whenever the window began.
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

    /// Makes this the union with a filter of the same hash, seed and shape. No item of either is lost.
    ///
    /// # Errors
    /// [`Error::Mismatch`], and then nothing has changed.
    pub fn union(&mut self, other: &Bloom) -> Result<(), Error> {
        if !self.is_congruent(other) {
            return Err(Error::Mismatch);
        }
        self.layers().iter().zip(other.layers()).try_for_each(|(mine, theirs)| mine.union(theirs))
    }

    /// Makes this the intersection with a filter of the same hash, seed and shape. Items of both stay.
    ///
    /// # Errors
    /// [`Error::Mismatch`], and then nothing has changed. Filters of several layers, windows and grown chains, are
    /// refused too: an item may lie in different layers of the two, and would be lost.
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

    /// Whether both give every item the same answer and always will, given the same adds: the same hash, seed, shape
    /// and cells. Windows are taken as of these generations, in which one that has not been opened yet is empty.
    pub fn equal_at(&self, other: &Bloom, generations: [u64; 2], fork: &Fork<'_>) -> bool {
        if self.difference(other).is_some() {
            return false;
        }
        let (Some(a), Some(b)) = (self.window(), other.window()) else {
            return self.layers().iter().zip(other.layers()).all(|(a, b)| a.equal_in(b, fork));
        };
        let [number, other_number] = generations;
        let of_age = |window, age| Window::alive(window, number).find(|(other, _)| *other == age);
        number == other_number
            && (0..self.layers().len() as u64).all(|age| match (of_age(a, age), of_age(b, age)) {
                (Some((_, a)), Some((_, b))) => a.equal_in(b, fork),
                (some, none) => some.or(none).is_none_or(|(_, layer)| layer.ones() == 0),
            })
    }

    /// The layers that go together: all in order, or of windows the generations alive in this one, by number.
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
    pub fn check_intersection(&self, other: &Bloom) -> Result<(), Unlike> {
        let has_one_layer =
            |filter: &Bloom| filter.layers().len() == 1 && !matches!(filter.body, Body::Window(_));
        if !has_one_layer(self) || !has_one_layer(other) {
            return Err(Unlike::Layers);
        }
        self.difference(other).map_or(Ok(()), |what| Err(Unlike::Differs(what)))
    }

    /// A new filter with this one's parameters and the items that are in all, which were
    /// [checked](Bloom::check_intersection).
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Mismatch`].
    pub fn intersection(&self, others: &[&Bloom], fork: &Fork<'_>) -> Result<Bloom, Error> {
        let result = self.copy(fork)?;
        for other in others {
            for (mine, theirs) in result.pairs(other) {
                mine.intersect_single_writer(theirs, fork)?;
            }
        }
        Ok(result)
    }
}

impl Filter {
    /// Whether both give every item the same answer, as [`Bloom::equal_at`] says. Cuckoo filters have no equals: where
    /// a fingerprint lies depends on the order of adds.
    pub fn equal_at(&self, other: &Filter, generations: [u64; 2], fork: &Fork<'_>) -> bool {
        match (self, other) {
            (Filter::Bloom(a), Filter::Bloom(b)) => a.equal_at(b, generations, fork),
            (Filter::Foreign(a), Filter::Foreign(b)) => a.equal_in(b, fork),
            _ => false,
        }
    }

    /// A copy that shares nothing, made on the threads of `fork`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn copy(&self, fork: &Fork<'_>) -> Result<Filter, Error> {
        match self {
            Filter::Bloom(filter) => Ok(Filter::Bloom(filter.copy(fork)?)),
            other => other.snapshot(),
        }
    }
}

/// A union that was found possible: what is to be done to the destination.
#[derive(Default)]
pub struct Union<'s> {
    /// Sources of the same shape, whose cells are added to those of the destination.
    alike: Vec<&'s Filter>,
    /// Layers of other sources, copies of which go into the destination's chain.
    layers: Vec<&'s Layer>,
}

impl<'s> Union<'s> {
    /// Plans the union of `base`, which is at generation `number` if it is a window, with all of the sources.
    ///
    /// # Errors
    /// The first source that does not go together with it, and why.
    pub fn plan(
        base: &Filter,
        number: u64,
        sources: &[&'s Filter],
        fork: &Fork<'_>,
    ) -> Result<Union<'s>, (usize, Unlike)> {
        let mut union = Union::default();
        for (index, source) in sources.iter().enumerate() {
            union.include(base, number, source, fork).map_err(|why| (index, why))?;
        }
        Ok(union)
    }

    /// Not inlined: the compiler would ask once for all sources whether the layers of the base's chain are on the heap,
    /// also of a base that has no chain. That does no harm, but valgrind cannot know.
    #[inline(never)]
    fn include(
        &mut self,
        base: &Filter,
        number: u64,
        source: &'s Filter,
        fork: &Fork<'_>,
    ) -> Result<(), Unlike> {
        let (base, filter) = match (base, source) {
            (Filter::Bloom(base), Filter::Bloom(filter)) => (base, filter),
            (Filter::Foreign(base), Filter::Foreign(filter)) => {
                self.alike.push(source);
                return base.difference(filter).map_or(Ok(()), |what| Err(Unlike::Differs(what)));
            }
            _ => return Err(Unlike::Differs("origin")),
        };
        let Some(what) = base.difference(filter) else {
            if filter.window().is_some_and(|window| window.newest() > number) {
                return Err(Unlike::Ahead);
            }
            self.alike.push(source);
            return Ok(());
        };
        // A chain may have layers of any shape.
        let (Body::Chain(chain), Body::Chain(_) | Body::Fixed(_), None) =
            (&base.body, &filter.body, base.difference_of_cells(filter))
        else {
            return Err(Unlike::Differs(what));
        };
        for layer in filter.layers() {
            // A merge that is repeated, as clients do whose answer got lost, must not add the layers once more.
            let here = chain.layers().iter().map(|layer| &**layer).chain(self.layers.iter().copied());
            if layer.ones() > 0 && !here.into_iter().any(|held| held.covers(layer, fork)) {
                self.layers.push(layer);
            }
        }
        if chain.layers().len() + self.layers.len() > limits::MAX_LAYERS {
            return Err(Unlike::TooManyLayers);
        }
        Ok(())
    }

    /// Bytes of cells by which the destination will grow.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.bytes()).sum()
    }

    /// Carries it out on what it was planned for, or a copy of that. Says whether anything changed.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], and then nothing has changed.
    pub fn apply(&self, destination: &mut Filter, fork: &Fork<'_>) -> Result<bool, Error> {
        let copies = self.layers.iter().map(|layer| layer.copy(fork).map(Arc::new));
        let copies = copies.collect::<Result<Vec<_>, Error>>()?;
        let mut changed = !copies.is_empty();
        for source in &self.alike {
            match (&mut *destination, source) {
                (Filter::Bloom(mine), Filter::Bloom(theirs)) => {
                    for (mine, theirs) in mine.pairs(theirs) {
                        changed |= theirs.ones() > 0 && mine.union_single_writer(theirs, fork)?;
                    }
                }
                (Filter::Foreign(mine), Filter::Foreign(theirs)) => changed |= mine.union(theirs, fork),
                _ => return Err(Error::Mismatch),
            }
        }
        if let Filter::Bloom(Bloom { body: Body::Chain(chain), .. }) = destination {
            chain.insert_before_newest(copies);
        }
        Ok(changed)
    }
}
