//! The rotating filter: a ring of generations, one layer each. Adds go to the current generation, a test looks at
//! all living ones, and a rotation drops the oldest. So an item stays for at least G−1 rotations after its last
//! add.
//!
//! The number of the current generation follows from the clock and from the rotations by hand, not from a timer:
//! `number(now) = base + (now − since) / every`. Reads ignore a generation that is too old by now, whether or not a
//! write has dropped it yet. So idle keys, restarts and replicas need no special case.

use super::Added;
use super::layer::Layer;
use crate::error::Error;
use crate::hash::ItemHash;
use crate::params::{Spec, limits};
use std::sync::Arc;

/// When generations change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Milliseconds between rotations by the clock; 0 if only rotated by hand.
    pub every_ms: u64,
    /// Unix time in milliseconds at which generation `rotations` began.
    pub since_ms: u64,
    /// Rotations by hand so far.
    pub rotations: u64,
}

impl Schedule {
    /// Number of the generation that is current at `now_ms`.
    #[inline]
    pub fn number_at(&self, now_ms: u64) -> u64 {
        // Without a period, only rotations by hand count.
        let elapsed = now_ms.saturating_sub(self.since_ms).checked_div(self.every_ms).unwrap_or(0);
        self.rotations.saturating_add(elapsed).min(limits::MAX_GENERATION)
    }

    /// Milliseconds from `now_ms` to the next rotation by the clock.
    pub fn next_in(&self, now_ms: u64) -> Option<u64> {
        let elapsed = now_ms.saturating_sub(self.since_ms);
        elapsed.checked_rem(self.every_ms).map(|into| {
            // Before `since_ms`, the first generation hasn't begun yet.
            self.since_ms.saturating_sub(now_ms) + self.every_ms - into
        })
    }
}

/// The ring: generation n is in slot n mod G, so the numbers of all slots follow from the newest number.
pub struct Window {
    ring: Box<[Arc<Layer>]>,
    newest: u64,
    schedule: Schedule,
}

impl Window {
    pub(crate) fn new(spec: &Spec, generations: u8, schedule: Schedule) -> Result<Window, Error> {
        let shape = spec.next_shape(&[])?;
        let ring = (0..generations).map(|_| Layer::new(shape).map(Arc::new)).collect::<Result<_, Error>>()?;
        Ok(Window { ring, newest: 0, schedule })
    }

    pub(crate) fn from_parts(ring: Box<[Arc<Layer>]>, newest: u64, schedule: Schedule) -> Window {
        assert!(!ring.is_empty(), "a window has generations");
        Window { ring, newest, schedule }
    }

    /// The layers in ring order.
    pub fn ring(&self) -> &[Arc<Layer>] {
        &self.ring
    }

    /// Number of the generation that receives the adds.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// When generations change.
    pub fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// Number of the generation that is current at `now_ms`. Never below the newest, even if the clock steps back.
    #[inline]
    pub fn number_at(&self, now_ms: u64) -> u64 {
        self.schedule.number_at(now_ms).max(self.newest)
    }

    #[inline]
    fn slot(&self, number: u64) -> usize {
        (number % self.ring.len() as u64) as usize
    }

    /// The generations that are alive when `current` is the current one, newest first, as (age, layer).
    #[inline]
    pub fn alive(&self, current: u64) -> impl Iterator<Item = (u64, &Arc<Layer>)> {
        alive(&self.ring, self.newest, current)
    }

    /// Whether some generation that is alive when `current` is the current one may contain the item.
    #[inline]
    pub fn contains(&self, item: ItemHash, current: u64) -> bool {
        self.alive(current).any(|(_, layer)| layer.contains(item))
    }

    /// Number of generations since the item was last added, 0 for the current one; `None` if it is absent.
    pub fn age(&self, item: ItemHash, current: u64) -> Option<u64> {
        self.alive(current).find(|(_, layer)| layer.contains(item)).map(|(age, _)| age)
    }

    /// The layer that receives the adds.
    #[inline]
    pub fn current(&self) -> &Arc<Layer> {
        &self.ring[self.slot(self.newest)]
    }

    /// Records the item in the newest generation. `added` says that no generation contained it, `changed` that the
    /// newest one didn't.
    #[inline]
    pub(crate) fn add(&self, item: ItemHash, insert: impl Fn(&Layer, ItemHash) -> Added) -> Added {
        let elsewhere = self.contains(item, self.newest);
        let Added { added, changed } = insert(self.current(), item);
        Added { added: added && !elsewhere, changed }
    }

    /// Makes `number` the newest generation and returns the layers that were dropped. Every generation opened on
    /// the way gets an empty layer. Does nothing unless `number` is newer.
    pub(crate) fn advance(&mut self, number: u64) -> Result<Vec<Arc<Layer>>, Error> {
        // A window that cannot be loaded again must not come into being.
        if number > limits::MAX_GENERATION {
            return Err(Error::LastGeneration);
        }
        let span = self.ring.len() as u64;
        let opened = number.saturating_sub(self.newest).min(span);
        let first = number - opened.saturating_sub(1);
        // Allocates everything first, so that a rotation that runs out of memory changes nothing.
        let fresh = (0..opened)
            .map(|i| {
                let old = &self.ring[self.slot(first + i)];
                // An empty layer is reused: with 64 idle generations that saves 64 allocations.
                if old.ones() == 0 {
                    Ok(None)
                } else {
                    Layer::new(old.shape()).map(|new| Some(Arc::new(new)))
                }
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let mut retired = Vec::new();
        for (number, layer) in (first..).zip(fresh) {
            if let Some(layer) = layer {
                retired.push(std::mem::replace(&mut self.ring[self.slot(number)], layer));
            }
        }
        self.newest = self.newest.max(number);
        Ok(retired)
    }

    /// For an empty window: continues at the generation of another, on its schedule.
    pub(super) fn keep_step(&mut self, other: &Window) {
        (self.newest, self.schedule) = (other.newest, other.schedule);
    }

    /// Counts a rotation by hand, which shifts the schedule by one generation.
    pub(crate) fn shift_schedule(&mut self) {
        self.schedule.rotations = (self.schedule.rotations + 1).min(limits::MAX_GENERATION);
    }
}

/// The layers of `ring` that are alive when `current` is the current generation: newest first, as (age, layer).
/// `newest` is the newest generation of the ring.
#[inline]
pub(crate) fn alive(
    ring: &[Arc<Layer>],
    newest: u64,
    current: u64,
) -> impl Iterator<Item = (u64, &Arc<Layer>)> {
    let span = ring.len() as u64;
    let behind = current.saturating_sub(newest);
    // The generations opened so far, minus those that are too old by now.
    let count = span.min(newest.saturating_add(1)).min(span.saturating_sub(behind));
    let (younger, older) = ring.split_at((newest % span) as usize + 1);
    younger
        .iter()
        .rev()
        .chain(older.iter().rev())
        .take(count as usize)
        .zip(behind..)
        .map(|(layer, age)| (age, layer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_clock_and_rotations_by_hand() {
        let mut schedule = Schedule { every_ms: 1000, since_ms: 5000, rotations: 0 };
        assert_eq!([0, 5000, 5999, 6000, 15_000].map(|now| schedule.number_at(now)), [0, 0, 0, 1, 10]);
        assert_eq!([4000, 5000, 5999, 6250].map(|now| schedule.next_in(now)), [2000, 1000, 1, 750].map(Some));
        schedule.rotations = 3;
        assert_eq!(schedule.number_at(6000), 4);
        let by_hand = Schedule { every_ms: 0, ..schedule };
        assert_eq!((by_hand.number_at(u64::MAX), by_hand.next_in(1)), (3, None));
    }
}
