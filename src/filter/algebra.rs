//! Union and equality of Bloom filters, native or from another system.

use super::bloom::algebra::{Inclusion, Joined};
use super::bloom::{Bloom, Standing, Window};
use super::incompatible::Incompatible;
use super::layout::quotient::Estimate;
use super::live::{Live, LiveMut, LiveRef};
use crate::error::Error;
use crate::parallel::ParallelFor;
use crate::params::limits;
use alloc::vec::Vec;

impl LiveRef<'_> {
    /// Whether both filters give the same answer for every item. If they are windows, the answers depend on their
    /// current generations, whose numbers are in `generations`.
    #[doc(hidden)]
    pub fn equal_at(self, other: LiveRef<'_>, generations: [u64; 2], parallel: &ParallelFor<'_>) -> bool {
        match (self, other) {
            (LiveRef::Bloom(a), LiveRef::Bloom(b)) => a.equal_at(b, generations, parallel),
            (LiveRef::Foreign(a), LiveRef::Foreign(b)) => a.equal_in(b, parallel),
            _ => false,
        }
    }
}

/// The plan for merging sources into a destination.
#[derive(Default)]
pub struct Union<'s> {
    /// The newest generation and the schedule of the union, if it is a window.
    standing: Option<Standing>,
    /// Sources with the destination's shape, whose cells are combined with the destination's. All sources come with
    /// their indices.
    alike: Vec<(usize, LiveRef<'s>)>,
    /// Sources whose layers go into the destination's chain.
    others: Vec<(usize, &'s Bloom)>,
    /// The planned chain: the destination's layers and those of `others`. Empty before [`join`](Union::join), or if
    /// `others` is empty.
    chain: Vec<Joined<'s>>,
    /// About the number of bytes by which the destination's table grows.
    table_bytes: u64,
}

impl<'s> Union<'s> {
    /// Plans the union of `destination` with all sources. Without a destination, the union is a new filter that begins
    /// as a copy of the first source.
    ///
    /// `now_ms` is the server's clock in Unix milliseconds. It is `None` on a server that follows another server's
    /// decisions, such as a replica. The result then depends only on the sources and the destination.
    ///
    /// Planning doesn't look at any cells. [`join`](Union::join), which must be called next, does.
    ///
    /// # Errors
    /// The index of the first incompatible source, and the reason. [`Incompatible::ClockBehind`] is only returned if
    /// `now_ms` is given.
    pub fn plan(
        destination: Option<LiveRef<'_>>,
        sources: &[LiveRef<'s>],
        now_ms: Option<u64>,
    ) -> Result<Union<'s>, (usize, Incompatible)> {
        let Some(base) = destination.or(sources.first().copied()) else { return Ok(Union::default()) };
        let mut union = Union::default();
        for (index, source) in sources.iter().enumerate().skip(usize::from(destination.is_none())) {
            union.include(base, *source, index).map_err(|why| (index, why))?;
        }
        // A server that follows another one's decisions must not refuse what the other has done.
        if let (Some(index), Some(_)) = (union.estimate(base), now_ms) {
            return Err((index, Incompatible::ErrorRate));
        }
        let standings = sources.iter().filter_map(|source| source.window().map(Window::standing));
        union.standing = base.window().map(Window::standing).map(|standing| match (destination, now_ms) {
            (Some(_), Some(now_ms)) => standing.at(now_ms),
            (Some(_), None) => standing,
            // A new filter begins at the newest generation of all sources, so no clock is needed.
            (None, _) => standings.fold(standing, Standing::advanced_to),
        });
        if let (Some(standing), Some(now_ms)) = (union.standing, now_ms) {
            let loses = |window: &Window| Window::loses(standing, window, window.number_at(now_ms));
            if let Some(index) = sources.iter().position(|source| source.window().is_some_and(loses)) {
                return Err((index, Incompatible::ClockBehind));
            }
        }
        Ok(union)
    }

    fn include(&mut self, base: LiveRef<'_>, source: LiveRef<'s>, index: usize) -> Result<(), Incompatible> {
        match (base, source) {
            (LiveRef::Bloom(base), LiveRef::Bloom(filter)) => match base.inclusion(filter)? {
                Inclusion::Cells => self.alike.push((index, source)),
                Inclusion::Layers => self.others.push((index, filter)),
            },
            (LiveRef::Foreign(base), LiveRef::Foreign(filter)) => match base.difference(filter) {
                None => self.alike.push((index, source)),
                Some(what) => return Err(Incompatible::Differs(what)),
            },
            _ => return Err(Incompatible::Differs("origin")),
        }
        Ok(())
    }

    /// Decides where the sources' layers go in the chain of `base`, which is the destination or, if there is none, the
    /// first source.
    ///
    /// # Errors
    /// [`Incompatible::TooManyLayers`] with the index of the source that exceeds the limit;
    /// [`Incompatible::TooManyPairs`] with the index of the last source whose layers go into the chain.
    pub fn join(
        &mut self,
        base: LiveRef<'_>,
        parallel: &ParallelFor<'_>,
    ) -> Result<(), (usize, Incompatible)> {
        let LiveRef::Bloom(base) = base else { return Ok(()) };
        let new =
            self.others.iter().fold(0usize, |sum, (_, source)| sum.saturating_add(source.layers().len()));
        if let Some((index, _)) = self.others.last()
            && new.saturating_mul(base.layers().len().saturating_add(new)) > limits::MAX_PAIRS
        {
            return Err((*index, Incompatible::TooManyPairs));
        }
        for (index, source) in &self.others {
            base.join_layers(source, &mut self.chain, parallel).map_err(|why| (*index, why))?;
        }
        Ok(())
    }

    /// The generation to which a window must be advanced before the union is applied. `None` if the union isn't a
    /// window.
    pub fn generation(&self) -> Option<u64> {
        self.standing.map(|standing| standing.newest)
    }

    /// Estimates how many bytes the destination's table grows by. Returns the index of the first source of which it
    /// would get too many cells.
    fn estimate(&mut self, base: LiveRef<'_>) -> Option<usize> {
        let mut estimate = base.bloom().and_then(Bloom::table).map(Estimate::of);
        let (others, mut refused) = (self.others.iter().copied(), None);
        for (index, source) in self.alike().chain(others) {
            let Some(table) = source.table() else { continue };
            if !estimate.get_or_insert_with(|| Estimate::new(table)).add(table) {
                refused = refused.or(Some(index));
            }
        }
        self.table_bytes = estimate.map_or(0, |estimate| estimate.more_bytes());
        refused
    }

    /// About the number of bytes by which the destination's table grows, or of the table that it gets.
    pub fn table_bytes(&self) -> u64 {
        self.table_bytes
    }

    /// About the number of bytes of cells by which the destination will grow.
    pub fn bytes(&self) -> u64 {
        let new = self.chain.iter().filter(|joined| joined.held.is_none());
        let new = new.filter_map(|joined| joined.parts.first()).filter(|first| !first.has_table());
        new.map(|first| first.bytes()).fold(self.table_bytes, u64::saturating_add)
    }

    /// The native filters with the destination's shape.
    fn alike(&self) -> impl Iterator<Item = (usize, &Bloom)> {
        self.alike.iter().filter_map(|(index, source)| Some((*index, source.bloom()?)))
    }

    /// About the maximum number of bytes of cells that [`apart`](Union::apart) will need for a union with `base`.
    pub fn most_bytes(&self, base: LiveRef<'_>) -> u64 {
        let most = base.bytes().saturating_add(self.table_bytes);
        self.others.iter().fold(most, |sum, (_, source)| sum.saturating_add(source.bytes()))
    }

    /// The union of the sources, as a new filter. It begins as a copy of `first`, the first source.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Full`].
    pub fn begun(&self, first: LiveRef<'_>, parallel: &ParallelFor<'_>) -> Result<Live, Error> {
        let mut made = first.copy(parallel)?;
        if let (Live::Bloom(filter), Some(number)) = (&mut made, self.generation()) {
            filter.advance(number)?;
        }
        self.change(made.as_mut(), parallel)?;
        Ok(made)
    }

    /// The union with `base`, which isn't changed. The result and `base` may share cells that the union doesn't change.
    /// Also returns whether the union differs from `base`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Full`] if a table has no room.
    pub fn apart(&self, base: LiveRef<'_>, parallel: &ParallelFor<'_>) -> Result<(Live, bool), Error> {
        let mut made = match base {
            LiveRef::Bloom(filter) if self.alike.is_empty() => {
                let changed = |number| {
                    self.chain.iter().any(|joined| joined.held == Some(number) && !joined.parts.is_empty())
                };
                Live::Bloom(filter.copy_of(changed, parallel)?)
            }
            base => base.copy(parallel)?,
        };
        let changed = self.change(made.as_mut(), parallel)?;
        Ok((made, changed))
    }

    /// Bytes of cells that [`apply`](Union::apply) needs temporarily. A table is changed in a copy, because it may not
    /// have room for all items.
    pub fn spare_bytes(&self, destination: LiveRef<'_>) -> u64 {
        destination.bloom().filter(|filter| filter.has_table()).map_or(0, Bloom::bytes)
    }

    /// Applies the union to the filter that it was planned for. Returns whether anything changed.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Full`] if a table has no room. In both cases, nothing has
    /// changed.
    pub fn apply(&self, destination: LiveMut<'_>, parallel: &ParallelFor<'_>) -> Result<bool, Error> {
        match destination {
            LiveMut::Bloom(filter) if filter.has_table() => {
                let (made, changed) = self.apart(LiveRef::Bloom(filter), parallel)?;
                if changed {
                    LiveMut::Bloom(filter).exchange(made);
                }
                Ok(changed)
            }
            destination => self.change(destination, parallel),
        }
    }

    /// Merges the sources into `destination`, which is a filter or a copy of one. A table is only changed in a copy.
    /// Returns whether anything changed.
    fn change(&self, destination: LiveMut<'_>, parallel: &ParallelFor<'_>) -> Result<bool, Error> {
        let mut changed = false;
        match destination {
            LiveMut::Bloom(filter) => {
                let new = Joined::copies(&self.chain, &filter.spec(), parallel)?;
                for (_, source) in self.alike() {
                    changed |= filter.take_in_cells(source, parallel)?;
                }
                changed |= filter.take_in_layers(&self.chain, new, parallel)?;
            }
            LiveMut::Foreign(filter) => {
                for source in self.alike.iter().filter_map(|(_, source)| source.foreign()) {
                    changed |= filter.union(source, parallel);
                }
            }
        }
        Ok(changed)
    }
}
