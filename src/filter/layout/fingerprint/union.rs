//! The union of two tables with the same geometry.

use super::table::{Step, Table};
use crate::bits::Hits;
use crate::error::Error;
use smallvec::SmallVec;
use std::ops::Range;

impl Table<'_> {
    /// Adds the fingerprints in these cells of another table with the same geometry, including their counts. `taken` is
    /// called with each fingerprint's count before and after.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no room for one of the fingerprints, and any error that `taken` returns. Earlier
    /// fingerprints have been added by then.
    pub(crate) fn take_in(
        &self,
        other: &Table<'_>,
        cells: Range<u64>,
        mut taken: impl FnMut(Step) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let geometry = self.geometry;
        let identity_in = |cell| {
            let content = other.get(cell);
            let identity = if content == 0 { None } else { geometry.identity_in(cell, content) };
            identity.map(|identity| (identity, other.count_in(content)))
        };
        for first in cells.clone().step_by(Hits::MAX) {
            let group: SmallVec<[_; Hits::MAX]> =
                (first..cells.end.min(first + Hits::MAX as u64)).filter_map(identity_in).collect();
            group.iter().for_each(|(identity, _)| self.prefetch(*identity));
            for (identity, count) in group {
                taken(self.count_up(identity, count)?)?;
            }
        }
        Ok(())
    }
}
