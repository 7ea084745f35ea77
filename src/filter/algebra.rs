//! Union and equality of Bloom filters, ours or another system's.

use super::bloom::Layer;
use super::bloom::algebra::Inclusion;
use super::incompatible::Incompatible;
use super::live::{LiveMut, LiveRef};
use crate::error::Error;
use crate::parallel::ParallelFor;
use std::sync::Arc;

impl LiveRef<'_> {
    /// Whether both give every item the same answer and always will, given the same adds. Windows are compared as
    /// of these generations.
    pub(crate) fn equal_at(
        self,
        other: LiveRef<'_>,
        generations: [u64; 2],
        parallel: &ParallelFor<'_>,
    ) -> bool {
        match (self, other) {
            (LiveRef::Bloom(a), LiveRef::Bloom(b)) => a.equal_at(b, generations, parallel),
            (LiveRef::Foreign(a), LiveRef::Foreign(b)) => a.equal_in(b, parallel),
            _ => false,
        }
    }
}

/// A union that was found possible: the work to be done on the destination.
#[derive(Default)]
pub struct Union<'s> {
    /// Sources of the same shape. Their cells are combined with the destination's.
    alike: Vec<LiveRef<'s>>,
    /// Layers of other sources. Copies of them go into the destination's chain.
    layers: Vec<&'s Layer>,
}

impl<'s> Union<'s> {
    /// Plans the union of `base` with all sources. If `base` is a window, it is taken to be at generation `number`.
    ///
    /// # Errors
    /// The first source that doesn't go together with it, and why.
    pub fn plan(
        base: LiveRef<'_>,
        number: u64,
        sources: &[LiveRef<'s>],
        parallel: &ParallelFor<'_>,
    ) -> Result<Union<'s>, (usize, Incompatible)> {
        let mut union = Union::default();
        for (index, source) in sources.iter().enumerate() {
            union.include(base, number, *source, parallel).map_err(|why| (index, why))?;
        }
        Ok(union)
    }

    fn include(
        &mut self,
        base: LiveRef<'_>,
        number: u64,
        source: LiveRef<'s>,
        parallel: &ParallelFor<'_>,
    ) -> Result<(), Incompatible> {
        match (base, source) {
            (LiveRef::Bloom(base), LiveRef::Bloom(filter)) => {
                match base.inclusion(number, filter, &self.layers, parallel)? {
                    Inclusion::Cells => self.alike.push(source),
                    Inclusion::Layers(layers) => self.layers.extend(layers),
                }
            }
            (LiveRef::Foreign(base), LiveRef::Foreign(filter)) => match base.difference(filter) {
                None => self.alike.push(source),
                Some(what) => return Err(Incompatible::Differs(what)),
            },
            _ => return Err(Incompatible::Differs("origin")),
        }
        Ok(())
    }

    /// Bytes of cells by which the destination will grow.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.bytes()).sum()
    }

    /// Applies the union to the filter it was planned for, or to a copy. Returns whether anything changed.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], and then nothing has changed.
    pub fn apply(&self, destination: LiveMut<'_>, parallel: &ParallelFor<'_>) -> Result<bool, Error> {
        let copies = self.layers.iter().map(|layer| layer.copy(parallel).map(Arc::new));
        let copies = copies.collect::<Result<Vec<_>, Error>>()?;
        let mut changed = !copies.is_empty();
        match destination {
            LiveMut::Bloom(filter) => {
                for source in self.alike.iter().filter_map(|source| source.bloom()) {
                    changed |= filter.take_in_cells(source, parallel)?;
                }
                filter.take_in_layers(copies);
            }
            LiveMut::Foreign(filter) => {
                for source in self.alike.iter().filter_map(|source| source.foreign()) {
                    changed |= filter.union(source, parallel);
                }
            }
        }
        Ok(changed)
    }
}
