//! A filter that is rebuilt while it serves. Beside the *live* filter, which answers every test, stands its *shadow*:
//! the filter that is being built, and takes the live one's place when it is complete.
//!
//! Whoever adds, adds to both; so the shadow has every item since the rebuild began, and those that are backfilled.
//! Deletes go to the live filter alone: an item that is not in the shadow yet may test positive there by chance, and
//! deleting it would take cells away that others need. A rebuild loses no item, and keeps at most those that were
//! deleted meanwhile.

use super::{Bloom, Body, Filter, Window};
use crate::error::Error;
use crate::params::{Family, limits};

/// The live filter and its shadow.
pub struct Rebuild {
    /// Of ours, or another system's.
    live: Filter,
    shadow: Bloom,
    deletes_missed: u64,
}

/// Why the two cannot stand beside each other.
const SCHEDULES: Error = Error::Exclusive("a window and its shadow rotate together: they have one schedule");

impl Rebuild {
    /// Puts a shadow beside a filter.
    ///
    /// # Errors
    /// [`Error::Exclusive`] for a cuckoo filter, for a filter that is being rebuilt already, and for two windows that
    /// do not rotate together.
    pub fn new(live: Filter, shadow: Bloom, deletes_missed: u64) -> Result<Rebuild, Error> {
        check(&live, &shadow).map(|()| Rebuild { live, shadow, deletes_missed })
    }

    /// The filter that answers tests.
    pub fn live(&self) -> &Filter {
        &self.live
    }

    /// The same, to change. A filter of another kind must not be put there.
    pub(crate) fn live_mut(&mut self) -> &mut Filter {
        &mut self.live
    }

    /// The filter that is being built.
    pub fn shadow(&self) -> &Bloom {
        &self.shadow
    }

    /// The same, to change.
    pub(crate) fn shadow_mut(&mut self) -> &mut Bloom {
        &mut self.shadow
    }

    /// The window whose generations change during the rebuild: the live one, else the shadow. Two have one schedule.
    pub fn window(&self) -> Option<&Window> {
        window(&self.live).or(self.shadow.window())
    }

    /// Deletes that changed the live filter since the rebuild began.
    pub fn deletes_missed(&self) -> u64 {
        self.deletes_missed
    }

    /// Counts deletes that the shadow misses; 0 again after [`forget_deletes`](Rebuild::forget_deletes).
    pub fn count_deletes(&mut self, deletes: u64) {
        self.deletes_missed = self.deletes_missed.saturating_add(deletes).min(limits::MAX_DELETES_MISSED);
    }

    /// Both filters have been emptied.
    pub fn forget_deletes(&mut self) {
        self.deletes_missed = 0;
    }

    /// Bytes of memory, with all overhead.
    pub fn allocated(&self) -> usize {
        // The value that points here, and this; less the two filters, which count themselves.
        let own = size_of::<Filter>() + size_of::<Rebuild>() - size_of::<Filter>() - size_of::<Bloom>();
        own + self.live.allocated() + self.shadow.allocated()
    }

    /// A copy that shares nothing.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn snapshot(&self) -> Result<Rebuild, Error> {
        let Rebuild { live, shadow, deletes_missed } = self;
        Ok(Rebuild { live: live.snapshot()?, shadow: shadow.snapshot()?, deletes_missed: *deletes_missed })
    }
}

fn check(live: &Filter, shadow: &Bloom) -> Result<(), Error> {
    match live {
        Filter::Cuckoo(_) => Err(Error::Exclusive("a cuckoo filter has no shadow")),
        Filter::Rebuild(_) => Err(Error::Exclusive("a filter has one shadow at most")),
        Filter::Bloom(_) | Filter::Foreign(_) => {
            let times = |window: &Window| (window.schedule(), window.newest());
            match (window(live), shadow.window()) {
                (Some(live), Some(shadow)) if times(live) != times(shadow) => Err(SCHEDULES),
                _ => Ok(()),
            }
        }
    }
}

fn window(value: &Filter) -> Option<&Window> {
    match value {
        Filter::Bloom(filter) => filter.window(),
        _ => None,
    }
}

impl Bloom {
    /// Lets an empty window go on at the generation of another, by its schedule. Nothing happens to other filters, or
    /// where `live` is none.
    #[must_use]
    pub fn in_step_with(mut self, live: Option<&Window>) -> Bloom {
        if let (Body::Window(window), Some(live)) = (&mut self.body, live) {
            window.keep_step(live);
            if let Family::Window { every_ms, .. } = &mut self.spec.family {
                *every_ms = live.schedule().every_ms;
            }
        }
        self
    }
}

impl Filter {
    /// The filter that answers tests: of one that is being rebuilt the live one, else the filter itself.
    #[inline]
    pub fn live(&self) -> &Filter {
        match self {
            Filter::Rebuild(rebuild) => &rebuild.live,
            other => other,
        }
    }

    /// The rebuild, if one is running.
    pub fn rebuild(&self) -> Option<&Rebuild> {
        match self {
            Filter::Rebuild(rebuild) => Some(rebuild),
            _ => None,
        }
    }

    /// Begins a rebuild: puts this shadow beside the filter.
    ///
    /// # Errors
    /// As [`Rebuild::new`], and then nothing has changed.
    pub fn begin_rebuild(&mut self, shadow: Bloom) -> Result<(), Error> {
        check(self, &shadow)?;
        *self = Filter::Rebuild(Box::new(Rebuild { live: self.take(), shadow, deletes_missed: 0 }));
        Ok(())
    }

    /// Ends a rebuild, with the shadow in the place of the live filter. Gives that back; `None`, and nothing happens,
    /// if no rebuild is running.
    pub fn commit_rebuild(&mut self) -> Option<Filter> {
        let (live, shadow) = self.take_apart()?;
        *self = shadow;
        Some(live)
    }

    /// Ends a rebuild, with the live filter as it is. Gives the shadow back; `None`, and nothing happens, if no rebuild
    /// is running.
    pub fn abort_rebuild(&mut self) -> Option<Filter> {
        let (live, shadow) = self.take_apart()?;
        *self = live;
        Some(shadow)
    }

    /// The live filter and the shadow; what is left must be replaced.
    fn take_apart(&mut self) -> Option<(Filter, Filter)> {
        let Filter::Rebuild(rebuild) = self else { return None };
        let live = rebuild.live.take();
        let Filter::Rebuild(rebuild) = self.take() else { return None };
        Some((live, Filter::Bloom(rebuild.shadow)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{Overflow, Spec};

    fn filter(items: &[&str]) -> Bloom {
        let mut filter = Bloom::new(Spec::fixed(100, 0.01)).unwrap();
        for item in items {
            filter.add(filter.hash(item.as_bytes())).unwrap();
        }
        filter
    }

    fn has(value: &Filter, item: &str) -> bool {
        let Filter::Bloom(filter) = value.live() else { panic!("a filter of ours") };
        filter.contains(filter.hash(item.as_bytes()))
    }

    #[test]
    fn a_commit_swaps_and_an_abort_restores() {
        for commit in [true, false] {
            let mut value = Filter::Bloom(filter(&["old"]));
            let alone = value.allocated();
            assert!(value.commit_rebuild().is_none() && value.abort_rebuild().is_none());
            value.begin_rebuild(filter(&["new"])).unwrap();
            assert!(value.allocated() > 2 * alone && value.bytes() == 2 * value.live().bytes());
            assert!(has(&value, "old") && !has(&value, "new") && value.rebuild().is_some());
            // A second one would hide the first.
            assert!(matches!(value.begin_rebuild(filter(&[])), Err(Error::Exclusive(_))));
            let copy = value.snapshot().unwrap();
            let dropped = if commit { value.commit_rebuild() } else { value.abort_rebuild() }.unwrap();
            let (kept, gone) = if commit { ("new", "old") } else { ("old", "new") };
            assert!(has(&value, kept) && !has(&value, gone) && has(&dropped, gone));
            assert!(value.rebuild().is_none() && value.allocated() == alone);
            assert!(has(&copy, "old") && copy.rebuild().is_some(), "it shares nothing");
        }
    }

    #[test]
    fn windows_keep_step() {
        let spec = |generations, every_ms| Spec {
            family: Family::Window { generations, overflow: Overflow::Saturate, every_ms },
            ..Spec::fixed(10, 0.01)
        };
        let mut live = Bloom::new_since(spec(3, 1000), 500).unwrap();
        live.rotate(7).unwrap();
        let other = Bloom::new_since(spec(5, 1000), 500).unwrap();
        let mut value = Filter::Bloom(live.snapshot().unwrap());
        assert!(value.begin_rebuild(other.snapshot().unwrap()).is_err());
        let shadow = other.in_step_with(live.window());
        let window = shadow.window().unwrap();
        assert_eq!((window.newest(), window.ring().len()), (7, 5));
        assert_eq!(window.schedule(), live.window().unwrap().schedule());
        value.begin_rebuild(shadow).unwrap();
    }
}
