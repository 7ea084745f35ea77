//! Counts how a filter is used, and how often a "yes" was false. Each server counts from the moment it has the filter
//! in memory. The counters are neither saved nor replicated. Tests aren't replicated either, so each server counts only
//! the tests that it has answered. Clients that check answers must report to the server that gave the answers.
//!
//! A filter knows how often it said yes and no, but only the application can find out which "yes" was false. Combining
//! what both know gives the observed error rate: the share of false positives among all tests of absent items.

use super::summary::Refused;
use crate::sync::{Mutex, MutexGuard, PoisonError};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::{borrow::ToOwned, boxed::Box, string::String};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use once_cell::race::OnceBox;

/// The usage counters of one filter.
///
/// Only the server's main thread writes them, so counting costs one load and one store. Tests on other threads are
/// counted separately; see [`Usage::off_main_thread`].
#[derive(Debug, Default)]
pub struct Usage {
    yes: AtomicU64,
    no: AtomicU64,
    adds: AtomicU64,
    deletes: AtomicU64,
    /// Allocated on first use. Most filters don't need it, because only the main thread tests them and no client
    /// reports answers.
    shared: OnceBox<Arc<SharedUsage>>,
}

/// The counters of a filter that hasn't been used. This is a static, because reading counters must not allocate.
pub(super) static NONE: Usage = Usage {
    yes: AtomicU64::new(0),
    no: AtomicU64::new(0),
    adds: AtomicU64::new(0),
    deletes: AtomicU64::new(0),
    shared: OnceBox::new(),
};

/// The counts from threads other than the main thread, the reports from clients, the numbers of items that were
/// forgotten early or refused, and the reason why the last rebuild ended.
#[derive(Debug, Default)]
pub struct SharedUsage {
    yes: AtomicU64,
    no: AtomicU64,
    feedback: Mutex<Feedback>,
    /// How often a window has made room early, by beginning a generation or by dropping one.
    forgotten: AtomicU64,
    refused: Mutex<Refused>,
    /// Why the last rebuild ended, if it ended on its own. This is stored with the filter, so nothing has to be cleaned
    /// up when keys are deleted.
    rebuild_ended: Mutex<Option<Box<str>>>,
}

/// Why a filter refused an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has no room, and does not grow.
    Full,
    /// It has as many layers or sub-filters as it may have.
    Limit,
    /// Growing needs more memory than it may have.
    Memory,
}

/// Numbers of "yes" and "no" answers that a filter gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tests {
    /// "May be in the filter".
    pub(crate) yes: u64,
    /// "Is not in the filter".
    pub(crate) no: u64,
}

impl Usage {
    /// Counts answers. Must be called by one thread at a time.
    #[inline(always)]
    pub fn tested(&self, yes: u64, no: u64) {
        count(&self.yes, yes);
        count(&self.no, no);
    }

    /// Counts one answer, like [`tested`](Usage::tested).
    #[inline(always)]
    pub fn answered(&self, yes: bool) {
        count(if yes { &self.yes } else { &self.no }, 1);
    }

    /// Counts items that commands have added, whether or not the filter already had them. Refused items don't count.
    /// Must be called by one thread at a time.
    #[inline(always)]
    pub(crate) fn added(&self, items: u64) {
        count(&self.adds, items);
    }

    /// Counts items that were deleted. Must be called by one thread at a time.
    pub fn deleted(&self, items: u64) {
        count(&self.deletes, items);
    }

    /// Counts items that a full window has forgotten early.
    pub(crate) fn forgot(&self, items: u64) {
        if items > 0 {
            self.shared.get_or_init(Box::default).forgotten.fetch_add(items, Relaxed);
        }
    }

    /// Number of items that a full window has forgotten early.
    pub(crate) fn forgotten(&self) -> u64 {
        self.shared.get().map_or(0, |more| more.forgotten.load(Relaxed))
    }

    /// Counts an item that the filter refused.
    pub fn refuse(&self, why: Refusal) {
        self.shared.get_or_init(Box::default).refused().count(why);
    }

    /// Numbers of items that the filter refused.
    pub(crate) fn refused(&self) -> Refused {
        self.shared.get().map_or_else(Refused::default, |more| more.refused().clone())
    }

    /// The counters for threads that read the filter while the main thread works.
    pub fn off_main_thread(&self) -> Arc<SharedUsage> {
        Arc::clone(self.shared.get_or_init(Box::default))
    }

    /// The answers counted so far, on all threads.
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

    /// Number of items that commands have added, including those that were already in the filter. Refused items aren't
    /// counted.
    pub(crate) fn adds(&self) -> u64 {
        self.adds.load(Relaxed)
    }

    /// Number of items that were deleted.
    pub(crate) fn deletes(&self) -> u64 {
        self.deletes.load(Relaxed)
    }

    /// Records a report at Unix time `now_ms`: of `checked` "yes" answers, `wrong` were false.
    pub fn report(&self, now_ms: u64, checked: u64, wrong: u64) {
        let tests = self.tests();
        let more = self.shared.get_or_init(Box::default);
        let mut feedback = more.feedback();
        feedback.follow_back(now_ms);
        feedback.report(now_ms, tests, checked, wrong);
    }

    /// Sum of the reports in the `span` before `now_ms`.
    pub(crate) fn observed(&self, now_ms: u64, span: Span) -> Observed {
        self.shared.get().map_or(Observed::default(), |more| {
            let mut feedback = more.feedback();
            feedback.follow_back(now_ms);
            feedback.over(now_ms, span)
        })
    }

    /// Records why a rebuild of the filter ended on its own.
    pub fn rebuild_ended(&self, why: &str) {
        *self.shared.get_or_init(Box::default).rebuild_ended() = Some(why.into());
    }

    /// Forgets why the last rebuild ended, because another one is starting.
    pub fn rebuild_begins(&self) {
        if let Some(more) = self.shared.get() {
            *more.rebuild_ended() = None;
        }
    }

    /// Why the last rebuild ended, if it ended on its own.
    pub fn why_rebuild_ended(&self) -> Option<String> {
        self.shared.get()?.rebuild_ended().as_deref().map(str::to_owned)
    }

    /// Bytes of memory in addition to this struct.
    pub(crate) fn allocated(&self) -> usize {
        self.shared.get().map_or(0, |more| {
            let feedback = more.feedback();
            let marks = feedback.minute.capacity() + feedback.hour.capacity();
            let text = more.rebuild_ended().as_ref().map_or(0, |text| text.len());
            size_of::<Arc<SharedUsage>>()
                + 2 * size_of::<usize>()
                + size_of::<SharedUsage>()
                + marks * size_of::<Mark>()
                + text
        })
    }
}

impl SharedUsage {
    /// Counts answers. Any number of threads may call this at once.
    pub fn tested(&self, yes: u64, no: u64) {
        self.yes.fetch_add(yes, Relaxed);
        self.no.fetch_add(no, Relaxed);
    }

    fn feedback(&self) -> MutexGuard<'_, Feedback> {
        self.feedback.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self) -> MutexGuard<'_, Refused> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rebuild_ended(&self) -> MutexGuard<'_, Option<Box<str>>> {
        self.rebuild_ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[inline(always)]
fn count(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(amount), Relaxed);
}

/// A time span over which reports are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// The last minute.
    Minute,
    /// The last hour.
    Hour,
    /// The whole time for which this server has had the filter.
    Life,
}

/// The sum of the reports in a time span.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Observed {
    /// Number of "yes" answers that were checked.
    pub(crate) checked: u64,
    /// Number of checked answers that were false.
    pub(crate) wrong: u64,
    /// The tests that these reports cover: all tests between the last report before the span and the last report in it.
    pub tests: Tests,
}

impl Observed {
    /// Share of false answers among those checked; `None` if none was checked.
    pub(crate) fn share_wrong(&self) -> Option<f64> {
        (self.checked > 0).then(|| self.wrong as f64 / self.checked as f64)
    }

    /// The error rate: the share of tests of absent items that were answered "yes". If only some answers were checked,
    /// the others are assumed to be false at the same rate. `None` if no answer was checked, if this server gave no
    /// "yes", or if no absent item was tested.
    pub(crate) fn error_rate(&self) -> Option<f64> {
        let false_positives = self.share_wrong()? * self.tests.yes as f64;
        let absent = false_positives + self.tests.no as f64;
        (self.tests.yes > 0 && absent > 0.0).then(|| false_positives / absent)
    }
}

/// The running totals after a report.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// Unix time in milliseconds. It can be negative if the clock was set back.
    at_ms: i64,
    tests: Tests,
    checked: u64,
    wrong: u64,
}

/// A second and a minute in milliseconds. The reports of the last minute are kept in steps of one second, and those of
/// the last hour in steps of one minute.
const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
/// Number of steps in a minute and in an hour.
const STEPS: i64 = 60;

/// The reports on a filter: one mark for each second of the last minute and for each minute of the last hour, if there
/// was a report in it. The marks need 5 KiB at most.
#[derive(Debug, Default)]
struct Feedback {
    last: Mark,
    minute: VecDeque<Mark>,
    hour: VecDeque<Mark>,
}

impl Feedback {
    /// If the clock was set back since the last report, moves that report to the present, and the earlier ones by the
    /// same amount. Without this, the spans would cover all reports until the clock catches up.
    fn follow_back(&mut self, now_ms: u64) {
        let by = self.last.at_ms.saturating_sub(signed(now_ms)).max(0);
        if by > 0 {
            let marks = self.minute.iter_mut().chain(&mut self.hour).chain([&mut self.last]);
            marks.for_each(|mark| mark.at_ms = mark.at_ms.saturating_sub(by));
        }
    }

    fn report(&mut self, now_ms: u64, tests: Tests, checked: u64, wrong: u64) {
        self.last = Mark {
            at_ms: signed(now_ms),
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
        // A report covers the tests before it, so the span is counted from the newest mark that is too old to be in it.
        let start = signed(now_ms).saturating_sub(length);
        let before = marks.iter().rev().find(|mark| mark.at_ms <= start);
        since(before.copied().unwrap_or_default(), self.last)
    }
}

/// Appends a mark. If the last mark is in the same step, replaces it. Drops marks that no span needs any more: of the
/// marks that are too old, only the newest is kept.
fn keep(marks: &mut VecDeque<Mark>, step: i64, mark: Mark) {
    if marks.back().is_some_and(|last| last.at_ms.div_euclid(step) == mark.at_ms.div_euclid(step)) {
        marks.pop_back();
    }
    marks.push_back(mark);
    let start = mark.at_ms.saturating_sub(STEPS * step);
    while marks.get(1).is_some_and(|second| second.at_ms <= start) {
        marks.pop_front();
    }
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
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

    /// In milliseconds, unsigned like `now_ms`.
    const SECOND: u64 = 1_000;
    const MINUTE: u64 = 60 * SECOND;

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
    fn old_reports_leave_the_minute_and_the_hour() {
        let usage = Usage::default();
        let start = 1_000_000 * MINUTE;
        // 100 tests of absent items every 10 seconds for three hours. 2 of them get a "yes"; in the last hour, only 1
        // does.
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
        // The reports have stopped.
        assert_eq!(usage.observed(now + MINUTE, Span::Minute).checked, 0);
        assert_eq!(usage.observed(now + 61 * MINUTE, Span::Hour).checked, 0);
        assert!(usage.observed(now + 100 * hours_3, Span::Life).checked > 0);
    }

    #[test]
    fn a_report_is_about_the_tests_since_the_one_before() {
        let usage = Usage::default();
        usage.tested(10, 90);
        usage.report(5 * MINUTE, 10, 10);
        // Two minutes without a report, then a report that covers all tests in that time.
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
        // The second report is 41 minutes old, no matter what the clock shows.
        assert_eq!(usage.observed(0, Span::Minute).tests, Tests { yes: 1, no: 9 });
        assert_eq!(usage.observed(0, Span::Hour).tests, Tests { yes: 3, no: 27 });
    }

    #[test]
    fn a_clock_that_jumped_ahead_and_back_leaves_the_spans_as_they_are() {
        for ahead in [1, SECOND, MINUTE, 90 * MINUTE, 365 * 24 * 60 * MINUTE] {
            let usage = Usage::default();
            let start = 1_000_000 * MINUTE;
            let report = |at| {
                usage.tested(1, 9);
                usage.report(at, 1, 1);
            };
            (0..3).for_each(|minute| report(start + minute * MINUTE));
            report(start + 3 * MINUTE + ahead);
            (4..200).for_each(|minute| report(start + minute * MINUTE));
            let now = start + 199 * MINUTE;
            assert_eq!(usage.observed(now, Span::Minute).checked, 1, "{ahead}");
            assert_eq!(usage.observed(now, Span::Hour).checked, 60, "{ahead}");
            assert_eq!(usage.observed(now, Span::Life).checked, 200, "{ahead}");
            // Reading the numbers is enough to correct the times: afterwards, the last report isn't later than now.
            report(now + ahead);
            assert_eq!(usage.observed(now, Span::Minute).tests.yes, if ahead < MINUTE { 2 } else { 1 });
            assert_eq!(usage.observed(now + MINUTE, Span::Minute).checked, 0, "{ahead}");
        }
    }
}
