//! A Bloom filter that forgets items after a time.

use super::bloom::Bloom;
use crate::error::Error;
use crate::hash::Item;
use crate::params::{Family, Overflow, Spec, Steps};
use core::time::Duration;
#[cfg(feature = "std")]
use std::time::SystemTime;

/// A Bloom filter that forgets each item after a time to live. An item tests present for the whole time to live after
/// its last insert, and is gone a 31st of that time later, rounded up to milliseconds.
///
/// The filter grows with the items that are alive, and its false-positive rate stays below the one that was requested.
///
/// ```
/// use std::time::Duration;
///
/// let mut seen = bloomery::ExpiringBloom::new(0.01, Duration::from_secs(3600))?;
/// assert!(seen.insert("ada")?, "she is new");
/// assert!(seen.contains("ada"));
/// # Ok::<(), bloomery::Error>(())
/// ```
///
/// Methods whose names end in `at` are given the time as Unix time in milliseconds, for example from a message or from
/// another machine's clock. Times can come in any order: an earlier one counts as the latest, so nothing is forgotten
/// early. So don't pass on times that are far ahead: until they have come, nothing is forgotten at all. The other
/// methods use the system's clock, and follow it if it is set back.
///
/// ```
/// use std::time::Duration;
///
/// let mut seen = bloomery::ExpiringBloom::new(0.01, Duration::from_millis(31_000))?;
/// let now = 1_700_000_000_000;
/// seen.insert_at("ada", now)?;
/// assert!(seen.contains_at("ada", now) && seen.contains_at("ada", now + 31_000));
/// assert!(!seen.contains_at("ada", now + 32_000), "one of 31 steps later");
/// # Ok::<(), bloomery::Error>(())
/// ```
///
/// [`into_inner`](ExpiringBloom::into_inner) and `try_from` convert it to and from a [`Bloom`] filter, which rotates
/// only when it is told to.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpiringBloom(Bloom);

impl ExpiringBloom {
    /// An empty filter that needs no capacity, with a random seed.
    ///
    /// # Errors
    /// The errors of [`Bloom::growing`]; [`Error::Period`] if the time to live is 0.
    pub fn new(error_rate: f64, ttl: Duration) -> Result<ExpiringBloom, Error> {
        let spec = ExpiringBloom::spec(error_rate, ttl)?;
        Bloom::new(spec.with_random_seed()?).map(ExpiringBloom)
    }

    /// A table that grows and that all generations share.
    fn spec(error_rate: f64, ttl: Duration) -> Result<Spec, Error> {
        // Rounded up, so that no item leaves early.
        let ttl_ms = u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        if ttl_ms == 0 {
            return Err(Error::Period(0));
        }
        let steps = Steps::default().within(ttl_ms);
        let (generations, every_ms) = (steps.generations(), steps.every_ms(ttl_ms));
        let family = Family::Window { generations, overflow: Overflow::Saturate, every_ms };
        Ok(Spec { family, ..Spec::growing(error_rate) })
    }

    /// Adds the item at this time, and returns whether it was absent. If it was present, its time to live begins again.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::LastGeneration`] after 292 million years; [`Error::Full`] in a filter made from
    /// a [`Bloom`] filter that refuses items.
    pub fn insert_at(&mut self, item: impl Item, now_ms: u64) -> Result<bool, Error> {
        // Otherwise, messages of two sources would move the schedule back and forth, and rotate the window each time.
        let late = self.0.window().map_or(0, |window| window.standing().is_behind_by(now_ms));
        self.0.catch_up(now_ms.saturating_add(late))?;
        self.0.insert(item)
    }

    /// Whether the item may have been added in the time to live before this time. `false` is certain.
    pub fn contains_at(&self, item: impl Item, now_ms: u64) -> bool {
        self.0.contains_as_of(item, self.0.generation_at(now_ms))
    }

    /// Deletes the item, if it is present, and returns whether it was.
    ///
    /// # Errors
    /// [`Error::NotCounting`] in a filter made from a [`Bloom`] filter whose layout isn't
    /// [`Quotient`](crate::Layout::Quotient).
    pub fn remove(&mut self, item: impl Item) -> Result<bool, Error> {
        self.0.remove(item).map(|done| done.present)
    }

    /// The window that holds the items, with its statistics. It answers as of the time of the last insert.
    pub fn get_ref(&self) -> &Bloom {
        &self.0
    }

    /// The window that holds the items.
    pub fn into_inner(self) -> Bloom {
        self.0
    }
}

/// With the system's clock.
#[cfg(feature = "std")]
impl ExpiringBloom {
    /// Adds the item now, and returns whether it was absent. If it was present, its time to live begins again.
    ///
    /// # Errors
    /// The same as [`insert_at`](ExpiringBloom::insert_at).
    pub fn insert(&mut self, item: impl Item) -> Result<bool, Error> {
        self.0.catch_up(system_now_ms())?;
        self.0.insert(item)
    }

    /// Whether the item may have been added in the time to live before now. `false` is certain.
    pub fn contains(&self, item: impl Item) -> bool {
        self.contains_at(item, system_now_ms())
    }
}

#[cfg(feature = "std")]
fn system_now_ms() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// The same window, which now follows the time.
///
/// # Errors
/// [`Error::NotWindow`] if the filter isn't a window, or isn't rotated by the clock.
impl TryFrom<Bloom> for ExpiringBloom {
    type Error = Error;

    fn try_from(filter: Bloom) -> Result<ExpiringBloom, Error> {
        match filter.window() {
            Some(window) if window.schedule().every_ms > 0 => Ok(ExpiringBloom(filter)),
            _ => Err(Error::NotWindow),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: u64 = 62_000;

    /// With the same seed each time.
    fn filter(spec: Result<Spec, Error>) -> ExpiringBloom {
        Bloom::new(spec.unwrap()).unwrap().try_into().unwrap()
    }

    /// Windows of either kind, with steps of 2 seconds.
    fn windows() -> [ExpiringBloom; 2] {
        let table = ExpiringBloom::spec(1e-6, Duration::from_millis(TTL));
        let ring = table.map(|Spec { family, .. }| Spec { family, ..Spec::window(100, 1e-6, 32) });
        [filter(table), filter(ring)]
    }

    #[test]
    fn an_item_stays_for_its_time_to_live_and_then_leaves() {
        let step = TTL / 31;
        for mut seen in windows() {
            for at in [0, 200_000, 400_001, 601_999, 1_700_000_000_000, 1_700_000_999_999] {
                let item = format!("item {at}");
                assert!(!seen.contains_at(&item, at) && seen.insert_at(&item, at).unwrap());
                for later in [0, 1, step, TTL - 1, TTL] {
                    assert!(seen.contains_at(&item, at + later), "{at} + {later}");
                }
                assert!(!seen.contains_at(&item, at + TTL + step));
                assert!(!seen.insert_at(&item, at + TTL).unwrap(), "present, and now for longer");
                assert!(seen.contains_at(&item, at + 2 * TTL) && seen.contains_at(&item, 0));
            }
            assert!(seen.insert_at("item 0", 1_700_003_600_000).unwrap(), "forgotten");
        }
    }

    #[test]
    fn times_in_any_order_forget_nothing_early() {
        let now = 1_700_000_000_000;
        for mut seen in windows() {
            for (number, lag) in (0..).zip([500, 5000, 10_000, TTL - 2000, 1, 2 * TTL, now].repeat(200)) {
                let at = now + number * 10;
                assert!(
                    seen.insert_at(number, at).is_ok()
                        && seen.insert_at(-1 - number as i64, at - lag).is_ok()
                );
                assert!(
                    (number.saturating_sub(300)..=number)
                        .step_by(7)
                        .all(|item| seen.contains_at(item, at) && seen.contains_at(-1 - item as i64, at))
                );
            }
        }
    }

    #[test]
    fn the_system_clock_is_used_without_a_time() {
        let mut seen = ExpiringBloom::new(0.01, Duration::MAX).unwrap();
        assert!(seen.insert(7).unwrap() && seen.contains(7) && !seen.insert(7).unwrap());
        assert!(seen.remove(7).unwrap() && !seen.contains(7) && !seen.remove(7).unwrap());
        assert_eq!(seen.clone().into_inner().items(), seen.get_ref().items());
    }

    #[test]
    fn it_grows_and_keeps_its_rate() {
        let mut seen = filter(ExpiringBloom::spec(0.01, Duration::from_secs(31)));
        (0..50_000u32).for_each(|item| assert!(seen.insert_at(item, 5000 + u64::from(item)).is_ok()));
        assert!((20_000..50_000).all(|item| seen.contains_at(item, 55_000)));
        assert!(seen.get_ref().rate_now() < 0.01);
        let false_positives = (1_000_000..1_100_000).filter(|item| seen.contains_at(*item, 55_000)).count();
        assert!(false_positives < 1200, "{false_positives} of 100,000");
    }

    #[test]
    fn only_windows_with_a_period_expire() {
        for spec in [Spec::fixed(9, 0.1), Spec::window(9, 0.1, 2)] {
            assert_eq!(ExpiringBloom::try_from(Bloom::new(spec).unwrap()), Err(Error::NotWindow));
        }
        assert_eq!(ExpiringBloom::new(0.1, Duration::ZERO), Err(Error::Period(0)));
        assert!(ExpiringBloom::new(0.1, Duration::from_nanos(1)).is_ok());
    }
}
