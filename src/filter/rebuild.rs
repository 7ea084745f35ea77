//! A filter that is rebuilt while it is in use. The *live* filter answers every test. Its *shadow* is the filter being
//! built, which replaces the live one when it is complete.
//!
//! Adds go to both filters, so the shadow contains every item added since the rebuild began, as well as the items that
//! are backfilled. Deletes go only to the live filter, because an item that isn't in the shadow yet could test positive
//! in the shadow by chance. Deleting that item from the shadow would clear cells that other items need. A rebuild never
//! loses an item, but it may keep items that were deleted in the meantime.

use super::bloom::{Bloom, Window};
use super::live::{Live, LiveRef};
use crate::error::Error;
use crate::parallel::ParallelFor;
use crate::params::limits;

/// The live filter and its shadow.
pub struct Rebuild {
    live: Live,
    shadow: Bloom,
    deletes_missed: u64,
}

impl Rebuild {
    /// Combines a live filter with a shadow.
    pub fn new(live: Live, shadow: Bloom, deletes_missed: u64) -> Result<Rebuild, Error> {
        Rebuild::check(live.as_ref(), &shadow)?;
        Ok(Rebuild { live, shadow, deletes_missed })
    }

    /// Checks whether these filters can be combined in a rebuild.
    ///
    /// # Errors
    /// [`Error::Exclusive`] for two windows with different schedules or newest generations.
    pub fn check(live: LiveRef<'_>, shadow: &Bloom) -> Result<(), Error> {
        let times = |window: &Window| (window.schedule(), window.newest());
        match (live.window(), shadow.window()) {
            (Some(live), Some(shadow)) if times(live) != times(shadow) => {
                Err(Error::Exclusive("a window and its shadow rotate together: they have one schedule"))
            }
            _ => Ok(()),
        }
    }

    /// The filter that answers tests.
    pub fn live(&self) -> LiveRef<'_> {
        self.live.as_ref()
    }

    /// The filter that is being built.
    pub fn shadow(&self) -> &Bloom {
        &self.shadow
    }

    /// Both filters, mutably borrowed.
    #[doc(hidden)]
    pub fn both_mut(&mut self) -> (&mut Live, &mut Bloom) {
        (&mut self.live, &mut self.shadow)
    }

    /// Both filters, moved out.
    pub(super) fn into_parts(self) -> (Live, Bloom) {
        (self.live, self.shadow)
    }

    /// The live filter's window or, if the live filter isn't a window, the shadow's. If both filters are windows, they
    /// have the same schedule and newest generation.
    pub fn window(&self) -> Option<&Window> {
        self.live().window().or(self.shadow.window())
    }

    /// Number of deletes that have changed the live filter since the rebuild began or both filters were last emptied.
    pub fn deletes_missed(&self) -> u64 {
        self.deletes_missed
    }

    /// Counts deletes that the shadow doesn't get. [`forget_deletes`](Rebuild::forget_deletes) resets the count to 0.
    pub fn count_deletes(&mut self, deletes: u64) {
        self.deletes_missed = self.deletes_missed.saturating_add(deletes).min(limits::MAX_DELETES_MISSED);
    }

    /// Resets the number of missed deletes after both filters have been emptied.
    pub fn forget_deletes(&mut self) {
        self.deletes_missed = 0;
    }

    /// Bytes of all cells.
    pub fn bytes(&self) -> u64 {
        self.live().bytes().saturating_add(self.shadow.bytes())
    }

    /// Bytes of memory, including all overhead.
    pub fn allocated(&self) -> usize {
        // This struct and the `Filter` that points to it, minus the structs of the two filters, which their own
        // `allocated` includes. `Filter`, `Live` and `Bloom` have the same size, so the sum is one `Rebuild` minus one
        // `Bloom`.
        let own = size_of::<Rebuild>() - size_of::<Bloom>();
        own + self.live.allocated() + self.shadow.allocated()
    }

    /// A copy that shares no memory with this rebuild, made on the threads of `parallel`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn copy(&self, parallel: &ParallelFor<'_>) -> Result<Rebuild, Error> {
        let Rebuild { live, shadow, deletes_missed } = self;
        let (live, shadow) = (live.as_ref().copy(parallel)?, shadow.copy(parallel)?);
        Ok(Rebuild { live, shadow, deletes_missed: *deletes_missed })
    }
}

impl core::fmt::Debug for Rebuild {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Rebuild")
            .field("live", &self.live())
            .field("shadow", &self.shadow)
            .field("deletes_missed", &self.deletes_missed)
            .finish()
    }
}
