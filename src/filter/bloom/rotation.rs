//! Methods for filters that are windows. On other filters they have no effect, and some return an error.

use super::{Bloom, Body, Due, Layer, Schedule, Window};
use crate::error::Error;
use crate::hash::Item;
use alloc::vec::Vec;

impl Bloom {
    /// Number of the generation that is current at `now_ms`; 0 if the filter isn't a window.
    #[inline]
    pub fn generation_at(&self, now_ms: u64) -> u64 {
        self.window().map_or(0, |window| window.number_at(now_ms))
    }

    /// Number of a window's newest generation; 0 if the filter isn't a window.
    #[inline]
    pub(super) fn newest(&self) -> u64 {
        self.window().map_or(0, Window::newest)
    }

    /// Number of generations since the item was last added to a window, as of generation `current`: 0 if it was last
    /// added in `current`. `None` if it is absent.
    ///
    /// # Errors
    /// [`Error::NotWindow`].
    pub fn age(&self, item: impl Item, current: u64) -> Result<Option<u64>, Error> {
        let window = self.window().ok_or(Error::NotWindow)?;
        Ok(window.age(item.hash_by(self.hasher()), current))
    }

    /// Opens generation `number` of a window and drops the generations that are then too old. Returns the dropped
    /// layers, which may be large, so the caller chooses the thread that frees them.
    ///
    /// # Errors
    /// [`Error::NotWindow`], [`Error::LastGeneration`], [`Error::OutOfMemory`]. In all cases, nothing has changed.
    pub fn advance(&mut self, number: u64) -> Result<Vec<Layer>, Error> {
        match &mut self.body {
            Body::Window(window) => window.advance(number),
            _ => Err(Error::NotWindow),
        }
    }

    /// Does what the clock requires before a write at `now_ms`: a window with a period opens the current generation, so
    /// that an item that is then added is alive as of [`generation_at`](Bloom::generation_at) this time. Returns the
    /// dropped layers. Does nothing to other filters. [`ExpiringBloom`](crate::ExpiringBloom) does this by itself.
    ///
    /// # Errors
    /// [`Error::LastGeneration`], [`Error::OutOfMemory`]. In both cases, nothing has changed.
    pub fn catch_up(&mut self, now_ms: u64) -> Result<Vec<Layer>, Error> {
        match self.window().and_then(|window| window.due(now_ms)) {
            Some(Due::Rotation(number)) => return self.advance(number),
            Some(Due::Schedule(schedule)) => self.set_schedule(schedule),
            None => {}
        }
        Ok(Vec::new())
    }

    /// Begins generation `number` manually: like [`advance`](Bloom::advance), but also shifts the schedule.
    pub fn rotate(&mut self, number: u64) -> Result<Vec<Layer>, Error> {
        let retired = self.advance(number)?;
        if let Body::Window(window) = &mut self.body {
            window.shift_schedule();
        }
        Ok(retired)
    }

    /// Makes a window continue on another schedule. Does nothing to other filters.
    #[doc(hidden)]
    pub fn set_schedule(&mut self, schedule: Schedule) {
        if let Body::Window(window) = &mut self.body {
            window.set_schedule(schedule);
        }
    }

    /// Makes a window follow `leader`, which has just begun a generation early: it gets the leader's newest generation
    /// and schedule. Returns the dropped layers. Does nothing to other filters.
    ///
    /// # Errors
    /// [`Error::LastGeneration`], [`Error::OutOfMemory`]. In both cases, nothing has changed.
    #[doc(hidden)]
    pub fn follow(&mut self, leader: &Window) -> Result<Vec<Layer>, Error> {
        match &mut self.body {
            Body::Window(window) => {
                let dropped = window.advance(leader.newest())?;
                window.set_schedule(leader.schedule());
                Ok(dropped)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Makes an empty window continue with the newest generation and the schedule of `live`. Does nothing if the filter
    /// isn't a window or if `live` is `None`.
    #[must_use]
    pub fn in_step_with(mut self, live: Option<&Window>) -> Bloom {
        if let (Body::Window(window), Some(live)) = (&mut self.body, live) {
            window.keep_step(live);
        }
        self
    }

    /// Whether the filter is a window that forgets its oldest items when it is full.
    #[doc(hidden)]
    pub fn forgets_when_full(&self) -> bool {
        self.parameters.forget_when_full()
    }
}
