//! What a filter is asked, and how often its "yes" was false: the figures of one server since it has the filter in
//! memory. They are neither saved nor replicated. Tests are not, so each server knows its own alone, and whoever
//! checks answers reports to the server that gave them.
//!
//! A filter knows how often it said yes and no; only the application can find out which "yes" was false. From both
//! follows the error rate as it really is: false positives among all tests of absent items.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What was asked of one filter.
///
/// One thread writes, that of the server's commands: counting costs it a load and a store. Tests on other threads are
/// counted apart, see [`Usage::off_main_thread`].
#[derive(Debug, Default)]
pub(crate) struct Usage {
    yes: AtomicU64,
    no: AtomicU64,
    adds: AtomicU64,
    deletes: AtomicU64,
    /// Few filters need it: most are tested by the main thread, and nobody reports on them.
    shared: OnceLock<Arc<SharedUsage>>,
}

/// That of a filter that nobody has used: to look at one must not cost it memory.
pub(super) static NONE: Usage = Usage {
    yes: AtomicU64::new(0),
    no: AtomicU64::new(0),
    adds: AtomicU64::new(0),
    deletes: AtomicU64::new(0),
    shared: OnceLock::new(),
};

/// What is counted on other threads, and what was reported.
#[derive(Debug, Default)]
pub(crate) struct SharedUsage {
    yes: AtomicU64,
    no: AtomicU64,
    feedback: Mutex<Feedback>,
}

/// Answers that a filter gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tests {
    /// "May be in the filter".
    pub(crate) yes: u64,
    /// "Is not in the filter".
    pub(crate) no: u64,
}

impl Usage {
    /// Counts answers. To be called by one thread at a time.
    #[inline(always)]
    pub(crate) fn tested(&self, yes: u64, no: u64) {
        count(&self.yes, yes);
        count(&self.no, no);
    }

    /// Counts one answer, as [`tested`](Usage::tested) does.
    #[inline(always)]
    pub(crate) fn answered(&self, yes: bool) {
        count(if yes { &self.yes } else { &self.no }, 1);
    }

    /// Counts items that were to be added and were not refused, whether or not the filter had them. To be called by
    /// one thread at a time.
    #[inline(always)]
    pub(crate) fn added(&self, items: u64) {
        count(&self.adds, items);
    }

    /// Counts items that were deleted. To be called by one thread at a time.
    pub(crate) fn deleted(&self, items: u64) {
        count(&self.deletes, items);
    }

    /// Where a thread that reads the filter beside the server's counts its answers.
    pub(crate) fn off_main_thread(&self) -> Arc<SharedUsage> {
        Arc::clone(self.shared.get_or_init(Arc::default))
    }

    /// The answers so far.
    pub(crate) fn tests(&self) -> Tests {
        let more = self.shared.get();
        let sum = |own: &AtomicU64, more: Option<&AtomicU64>| {
            own.load(Relaxed).saturating_add(more.map_or(0, |more| more.load(Relaxed)))
        };
        Tests {
            yes: sum(&self.yes, more.map(|more| &more.yes)),
            no: sum(&self.no, more.map(|more| &more.no)),
        }
    }

    /// Items that were to be added and were not refused.
    pub(crate) fn adds(&self) -> u64 {
        self.adds.load(Relaxed)
    }

    /// Items that were deleted.
    pub(crate) fn deletes(&self) -> u64 {
        self.deletes.load(Relaxed)
    }

    /// Takes a report at Unix time `now_ms`: of `checked` answers "yes", `wrong` were false.
    pub(crate) fn report(&self, now_ms: u64, checked: u64, wrong: u64) {
        let tests = self.tests();
        self.shared.get_or_init(Arc::default).feedback().report(now_ms, tests, checked, wrong);
    }

    /// What the reports of the `span` before `now_ms` say.
    pub(crate) fn observed(&self, now_ms: u64, span: Span) -> Observed {
        self.shared.get().map_or(Observed::default(), |more| more.feedback().over(now_ms, span))
    }

    /// Bytes of memory beside those of the filter.
    pub(crate) fn allocated(&self) -> usize {
        self.shared.get().map_or(0, |more| {
            let feedback = more.feedback();
            let marks = feedback.minute.capacity() + feedback.hour.capacity();
            2 * size_of::<usize>() + size_of::<SharedUsage>() + marks * size_of::<Mark>()
        })
    }
}

impl SharedUsage {
    /// Counts answers, beside any other thread.
    pub(crate) fn tested(&self, yes: u64, no: u64) {
        self.yes.fetch_add(yes, Relaxed);
        self.no.fetch_add(no, Relaxed);
    }

    fn feedback(&self) -> MutexGuard<'_, Feedback> {
        self.feedback.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[inline(always)]
fn count(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(amount), Relaxed);
}

/// A time that reports are looked at over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// The last minute.
    Minute,
    /// The last hour.
    Hour,
    /// All the time that this server has had the filter.
    Life,
}

/// What reports say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Observed {
    /// Answers "yes" that were checked.
    pub(crate) checked: u64,
    /// Those of them that were false.
    pub(crate) wrong: u64,
    /// Tests that the reports are about: those since the report before the first of them.
    pub tests: Tests,
}

impl Observed {
    /// Share of false answers among those checked; `None` where none was.
    pub(crate) fn share_wrong(&self) -> Option<f64> {
        (self.checked > 0).then(|| self.wrong as f64 / self.checked as f64)
    }

    /// The error rate: tests of absent items that were answered "yes". Where only some answers were checked, the others
    /// are taken to be false as often. `None` where no answer was checked, or none of the tests was made here.
    pub(crate) fn error_rate(&self) -> Option<f64> {
        let false_positives = self.share_wrong()? * self.tests.yes as f64;
        let absent = false_positives + self.tests.no as f64;
        (self.tests.yes > 0 && absent > 0.0).then(|| false_positives / absent)
    }
}

/// All sums as they stood after a report.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    at_ms: u64,
    tests: Tests,
    checked: u64,
    wrong: u64,
}

/// Milliseconds of a second and of a minute: the steps in which an hour and a minute are kept.
const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
/// Steps of a minute, and of an hour.
const STEPS: u64 = 60;

/// The reports on a filter, and a mark for each second of the last minute, and each minute of the last hour, in which
/// there was one: 5 KiB at most.
#[derive(Debug, Default)]
struct Feedback {
    last: Mark,
    minute: VecDeque<Mark>,
    hour: VecDeque<Mark>,
}

impl Feedback {
    fn report(&mut self, now_ms: u64, tests: Tests, checked: u64, wrong: u64) {
        self.last = Mark {
            // A clock that is set back must not make the marks unordered.
            at_ms: now_ms.max(self.last.at_ms),
            tests,
            checked: self.last.checked.saturating_add(checked),
            wrong: self.last.wrong.saturating_add(wrong),
        };
        keep(&mut self.minute, SECOND, self.last);
        keep(&mut self.hour, MINUTE, self.last);
    }

    fn over(&self, now_ms: u64, span: Span) -> Observed {
        let (marks, length) = match span {
            Span::Minute => (&self.minute, STEPS * SECOND),
            Span::Hour => (&self.hour, STEPS * MINUTE),
            Span::Life => return since(Mark::default(), self.last),
        };
        // A report is about the tests before it, so what counts begins with the last one that is too old.
        let start = now_ms.saturating_sub(length);
        let before = marks.iter().rev().find(|mark| mark.at_ms <= start);
        since(before.copied().unwrap_or_default(), self.last)
    }
}

/// Puts a mark behind those that are there, in place of one of the same step, and forgets what no span needs any more:
/// of those that are too old the last is kept.
fn keep(marks: &mut VecDeque<Mark>, step: u64, mark: Mark) {
    if marks.back().is_some_and(|last| last.at_ms / step == mark.at_ms / step) {
        marks.pop_back();
    }
    marks.push_back(mark);
    let start = mark.at_ms.saturating_sub(STEPS * step);
    while marks.get(1).is_some_and(|second| second.at_ms <= start) {
        marks.pop_front();
    }
}

fn since(before: Mark, last: Mark) -> Observed {
    Observed {
        checked: last.checked - before.checked,
        wrong: last.wrong - before.wrong,
        tests: Tests {
            yes: last.tests.yes.saturating_sub(before.tests.yes),
            no: last.tests.no.saturating_sub(before.tests.no),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_on_all_threads() {
        let usage = Usage::default();
        usage.answered(true);
        usage.answered(false);
        usage.tested(10, 20);
        let elsewhere = usage.off_main_thread();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..1000).for_each(|_| elsewhere.tested(1, 2)));
            }
        });
        assert_eq!(usage.tests(), Tests { yes: 2011, no: 4021 });
    }

    #[test]
    fn the_rate_is_that_of_absent_items() {
        let usage = Usage::default();
        // 1000 present items, 100,000 absent ones of which 1000 got a "yes"; a tenth of these answers was checked.
        usage.tested(2_000, 99_000);
        usage.report(0, 200, 100);
        let life = usage.observed(0, Span::Life);
        assert_eq!(life.share_wrong(), Some(0.5));
        assert!((life.error_rate().unwrap() - 0.01).abs() < 1e-12);
    }

    #[test]
    fn without_checks_or_tests_there_is_no_rate() {
        let usage = Usage::default();
        assert_eq!(usage.observed(0, Span::Life), Observed::default());
        usage.tested(1, 1);
        usage.report(0, 0, 0);
        assert_eq!(usage.observed(0, Span::Life).error_rate(), None);
        let untested = Usage::default();
        untested.report(0, 10, 1);
        assert_eq!(untested.observed(0, Span::Life).share_wrong(), Some(0.1));
        assert_eq!(untested.observed(0, Span::Life).error_rate(), None);
    }

    #[test]
    fn old_reports_leave_the_minute_and_the_hour() {
        let usage = Usage::default();
        let start = 1_000_000 * MINUTE;
        // Every 10 seconds for three hours: 100 tests of absent items, of which 2 get a "yes", and 1 in the last hour.
        let hours_3 = 3 * 60 * MINUTE;
        for at in (0..hours_3).step_by(10_000) {
            let wrong = if at < hours_3 - 60 * MINUTE { 2 } else { 1 };
            usage.tested(wrong, 100 - wrong);
            usage.report(start + at, wrong, wrong);
        }
        let now = start + hours_3 - 10_000;
        let rate = |span| (usage.observed(now, span).error_rate().unwrap() * 1e4).round();
        assert_eq!(usage.observed(now, Span::Minute).checked, 6);
        assert_eq!(rate(Span::Minute), 100.0);
        assert_eq!(rate(Span::Hour), 100.0);
        assert_eq!(rate(Span::Life), (5.0 / 3.0 * 100.0_f64).round());
        assert!(usage.allocated() < 6 * 1024, "{}", usage.allocated());
        // Nobody reports any more.
        assert_eq!(usage.observed(now + MINUTE, Span::Minute).checked, 0);
        assert_eq!(usage.observed(now + 61 * MINUTE, Span::Hour).checked, 0);
        assert!(usage.observed(now + 100 * hours_3, Span::Life).checked > 0);
    }

    #[test]
    fn a_report_is_about_the_tests_since_the_one_before() {
        let usage = Usage::default();
        usage.tested(10, 90);
        usage.report(5 * MINUTE, 10, 10);
        // Two minutes without a report, then one on all of them.
        usage.tested(5, 95);
        usage.report(7 * MINUTE, 5, 5);
        let minute = usage.observed(7 * MINUTE, Span::Minute);
        assert_eq!(minute.tests, Tests { yes: 5, no: 95 });
        assert_eq!(minute.error_rate(), Some(0.05));
    }

    #[test]
    fn a_clock_set_back_does_no_harm() {
        let usage = Usage::default();
        for at in [50 * MINUTE, 10 * MINUTE, 51 * MINUTE] {
            usage.tested(1, 9);
            usage.report(at, 1, 1);
        }
        assert_eq!(usage.observed(51 * MINUTE, Span::Hour).checked, 3);
        assert_eq!(usage.observed(0, Span::Minute).tests, Tests { yes: 3, no: 27 });
    }
}
