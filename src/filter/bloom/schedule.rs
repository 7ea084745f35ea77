//! When the generations of a window change.
//!
//! There is no timer: before a write, [`Bloom::catch_up`](super::Bloom::catch_up) opens the current generation. Its
//! number is computed from the clock and from the number of manual and early rotations: `number(now) = rotations +
//! (now − since) / every`. Reads ignore a generation that is too old by now, even if no write has dropped it yet. Idle
//! keys, restarts and replicas therefore need no special case.
//!
//! While the clock is ahead, generations are opened too early. If the clock is then set back by more than a period, the
//! next write also moves the schedule back; see [`Standing::due`]. Otherwise nothing would rotate until the clock had
//! caught up again.

use crate::params::limits;

/// When generations change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Milliseconds between rotations by the clock; 0 if the window is only rotated manually.
    pub every_ms: u64,
    /// Unix time in milliseconds at which generation `rotations` begins.
    pub since_ms: u64,
    /// Number of the generation that begins at `since_ms`. This is the number of manual and early rotations so far,
    /// unless a merge renumbered the generations or the clock was set back.
    pub rotations: u64,
}

impl Schedule {
    /// Number of the generation that is current at `now_ms`.
    #[inline]
    pub fn number_at(&self, now_ms: u64) -> u64 {
        // Without a period, only manual and early rotations count.
        let elapsed = now_ms.saturating_sub(self.since_ms).checked_div(self.every_ms).unwrap_or(0);
        self.rotations.saturating_add(elapsed).min(limits::MAX_GENERATION)
    }

    /// Unix time in milliseconds at which the clock opens generation `number`; `None` without a period.
    fn opens(&self, number: u64) -> Option<u64> {
        let periods = number.saturating_sub(self.rotations);
        (self.every_ms > 0).then(|| self.since_ms.saturating_add(periods.saturating_mul(self.every_ms)))
    }

    /// The clock rotates the window this many milliseconds after each multiple of `every_ms` since 1970. 0 without a
    /// period.
    pub(super) fn phase(&self) -> u64 {
        self.since_ms.checked_rem(self.every_ms).unwrap_or(0)
    }

    /// A schedule with the same rotation times, in which generation `newest` begins at the first rotation at or after
    /// `now_ms`.
    fn moved_back(&self, newest: u64, now_ms: u64) -> Schedule {
        let into = now_ms.checked_rem(self.every_ms).unwrap_or(0);
        let until = match self.phase().checked_sub(into) {
            Some(until) => until,
            None => self.every_ms - (into - self.phase()),
        };
        Schedule { since_ms: now_ms.saturating_add(until), rotations: newest, ..*self }
    }
}

/// A window's newest generation and its schedule: everything that determines what a generation number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Number of the generation that receives the adds.
    pub newest: u64,
    /// When generations change.
    pub schedule: Schedule,
}

impl Standing {
    /// Number of the generation that is current at `now_ms`. Never below the newest generation's number, even if the
    /// clock steps back.
    #[inline]
    pub fn number_at(&self, now_ms: u64) -> u64 {
        self.schedule.number_at(now_ms).max(self.newest)
    }

    /// Milliseconds from `now_ms` to the next rotation by the clock; `None` without a period. This is more than one
    /// period if the clock was ahead when the newest generation was opened.
    pub fn next_in(&self, now_ms: u64) -> Option<u64> {
        let next = self.schedule.opens(self.number_at(now_ms).saturating_add(1))?;
        Some(next.saturating_sub(now_ms))
    }

    /// Milliseconds since the generation with this age at `now_ms` began, assuming that all generations since then have
    /// lasted for a full period; `None` without a period.
    pub fn lasts_ms(&self, age: u64, now_ms: u64) -> Option<u64> {
        let every_ms = self.schedule.every_ms;
        let into = every_ms.saturating_sub(self.next_in(now_ms)?);
        Some(age.saturating_mul(every_ms).saturating_add(into))
    }

    /// How many milliseconds before the beginning of the newest generation this time is.
    pub(crate) fn is_behind_by(&self, now_ms: u64) -> u64 {
        self.schedule.opens(self.newest).unwrap_or(0).saturating_sub(now_ms)
    }

    /// What a write at `now_ms` must do first; `None` if nothing is due. Without a period, nothing is ever due.
    ///
    /// If the clock is behind by at most a period, the window waits for it: the newest generation lasts until the
    /// rotation after the next. If it ended one rotation earlier, a clock that wavers around the time of a rotation
    /// would rotate the window each time it crosses that point, and items would be dropped within milliseconds.
    #[inline]
    pub(super) fn due(&self, now_ms: u64) -> Option<Due> {
        let number = self.schedule.number_at(now_ms);
        if number == self.newest && now_ms >= self.schedule.since_ms {
            return None;
        }
        if number > self.newest {
            Some(Due::Rotation(number))
        } else {
            self.correction(now_ms).map(Due::Schedule)
        }
    }

    /// The schedule to continue with if the next rotation is more than two periods away.
    #[cold]
    fn correction(&self, now_ms: u64) -> Option<Schedule> {
        let longest = self.schedule.every_ms.saturating_mul(2);
        let moved = self.schedule.moved_back(self.newest, now_ms);
        (self.next_in(now_ms)? > longest && moved.since_ms <= limits::MAX_TIME_MS).then_some(moved)
    }

    /// The state after a write at `now_ms` has done what is [due](Standing::due).
    pub(crate) fn at(self, now_ms: u64) -> Standing {
        match self.due(now_ms) {
            None => self,
            Some(Due::Rotation(newest)) => Standing { newest, ..self },
            Some(Due::Schedule(schedule)) => Standing { schedule, ..self },
        }
    }

    /// The number of the period that the newest generation belongs to according to the schedule, counted from 1970. If
    /// two windows have the same period length and phase, generations with the same period number are dropped at the
    /// same time. Without a period, a window isn't tied to a clock, and the number is 0.
    pub(super) fn period(&self) -> i128 {
        match self.schedule {
            Schedule { every_ms: 0, .. } => 0,
            Schedule { every_ms, since_ms, rotations } => {
                i128::from(since_ms / every_ms) + i128::from(self.newest) - i128::from(rotations)
            }
        }
    }

    /// This state, advanced to the other's period if that is newer.
    pub(crate) fn advanced_to(self, other: Standing) -> Standing {
        let more = u64::try_from(other.period() - self.period()).unwrap_or(0);
        Standing { newest: self.newest.saturating_add(more), ..self }
    }

    /// The number of generations by which items of `source` are older in this window than in `source`. In each window,
    /// ages are counted from the newest generation.
    ///
    /// For a source whose schedule is ahead, this is −1, no matter how far ahead the schedule is. The reason is that
    /// the source's clock was ahead, so its newest generation will last for up to two periods from now; see
    /// [`due`](Standing::due).
    pub(super) fn ages_by(&self, source: Standing) -> i128 {
        (self.period() - source.period()).max(-1)
    }
}

/// What the clock requires a write to do before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Open this generation.
    Rotation(u64),
    /// Continue with this schedule, because the clock has been set back by more than a period since the newest
    /// generation was opened.
    Schedule(Schedule),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_clock_and_rotations_by_hand() {
        let mut schedule = Schedule { every_ms: 1000, since_ms: 5000, rotations: 0 };
        assert_eq!([0, 5000, 5999, 6000, 15_000].map(|now| schedule.number_at(now)), [0, 0, 0, 1, 10]);
        let next_in = |schedule, newest, now| Standing { newest, schedule }.next_in(now);
        let times = [4000, 5000, 5999, 6250];
        assert_eq!(times.map(|now| next_in(schedule, 0, now)), [2000, 1000, 1, 750].map(Some));
        assert_eq!(times.map(|now| next_in(schedule, 7, now)), [9000, 8000, 7001, 6750].map(Some));
        schedule.rotations = 3;
        assert_eq!(schedule.number_at(6000), 4);
        let by_hand = Schedule { every_ms: 0, ..schedule };
        assert_eq!((by_hand.number_at(u64::MAX), next_in(by_hand, 3, 1)), (3, None));
    }

    #[test]
    fn a_clock_that_was_ahead_is_waited_for_or_followed_back() {
        let schedule = Schedule { every_ms: 1000, since_ms: 500, rotations: 2 };
        let due = |newest, now| Standing { newest, schedule }.due(now);
        // Generation 9 begins at 7500. If the clock is behind by up to a period, the window waits for it.
        assert_eq!(due(9, 8500), Some(Due::Rotation(10)));
        assert_eq!([8499, 7500, 7499, 6500].map(|now| due(9, now)), [None; 4]);
        // If the clock is further behind, generation 9 is assumed to begin at the next rotation.
        for (now, since_ms) in [(6499, 6500), (5501, 6500), (5500, 5500), (501, 1500), (0, 500)] {
            let expected = Schedule { since_ms, rotations: 9, ..schedule };
            assert_eq!(due(9, now), Some(Due::Schedule(expected)), "{now}");
            let after = Standing { newest: 9, schedule: expected };
            assert_eq!((after.at(now), after.number_at(now)), (after, 9));
            assert!((1000..=2000).contains(&after.next_in(now).unwrap()));
        }
        // A first generation in the future keeps its start time if that is at most a period away.
        let fresh =
            |since_ms| Standing { newest: 0, schedule: Schedule { rotations: 0, since_ms, ..schedule } };
        assert_eq!(fresh(8000).due(7000), None);
        assert_eq!(fresh(8001).at(7000), fresh(7001));
    }
}
