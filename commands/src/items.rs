//! The items of a command: their number, and where a command with many of them pauses.

use super::call::{Call, Continuation};
use super::error::CommandError;
use crate::config::MIN_ITEMS_LIMIT;
use bloomery::filter::LiveRef;
use bloomery::filter::bloom::batch::group_for;

/// Whether an add tests the item first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Always records the item.
    Add,
    /// Records only absent items.
    AddIfAbsent,
}

/// Refuses a command with more items than one command may have. The limit matters in a transaction or a script, where
/// the server serves no other client while the command runs.
#[inline(always)]
pub(super) fn limit_items<'a, C: Call<'a>>(call: &C, items: usize) -> Result<(), CommandError> {
    if items as u64 > MIN_ITEMS_LIMIT.unsigned_abs() { limit_many(call, items as u64) } else { Ok(()) }
}

/// Maximum number of sources in a command that combines filters. Opening and checking one takes 1.8 µs, however small
/// it is, and this can't be done in the background.
const MOST_SOURCES: usize = 2048;

/// Refuses a command that combines too many filters.
pub(super) fn limit_sources<'a, C: Call<'a>>(
    call: &C,
    sources: usize,
    how: &'static str,
) -> Result<(), CommandError> {
    if sources > MOST_SOURCES && !call.is_from_primary() {
        return Err(CommandError::TooManySources { sources, most: MOST_SOURCES, how });
    }
    Ok(())
}

#[cold]
fn limit_many<'a, C: Call<'a>>(call: &C, items: u64) -> Result<(), CommandError> {
    match most_items(call) {
        Some(most) if items > most => Err(CommandError::TooManyItems { items, most }),
        _ => Ok(()),
    }
}

/// Maximum number of items in one command, if there is a limit.
pub(super) fn most_items<'a, C: Call<'a>>(call: &C) -> Option<u64> {
    let most = call.settings().max_items_per_command;
    (most > 0 && !call.is_from_primary()).then_some(most)
}

/// Number of Bloom filter items between two readings of the clock. A reading takes 25 ns, and processing the items
/// takes up to 600 µs.
pub(super) const BLOOM_STEP: usize = if cfg!(small_steps) { 1 } else { 32 };

/// Number of items between two readings of the clock if adding an item touches this many cache lines.
pub(super) fn step_for(lines: usize) -> usize {
    group_for(lines).min(BLOOM_STEP)
}

/// Whether a command should end before its item number `done`, and continue later. The clock is read only before every
/// `step`th item.
#[inline(always)]
pub(super) fn should_pause<'a, C: Call<'a>>(call: &C, done: usize, step: usize) -> bool {
    done.is_multiple_of(step) && call.should_pause(done)
}

/// The number of probes per item at which a few dozen items may take a millisecond.
const MANY_PROBES: u64 = 512;

/// Times a command that tests or adds a few items, if that may take long in this filter.
#[inline(always)]
pub(super) fn time_probes<'a, C: Call<'a>>(call: &C, filter: LiveRef<'_>) {
    if filter.probes() > MANY_PROBES {
        call.may_be_long();
    }
}

/// Number of bytes of items between two readings of the clock. Hashing them takes up to 250 µs with the slowest codec.
pub(super) const STEP_BYTES: usize = 1 << 16;

/// Iterates over the items of a command, which are the arguments starting at index `first`, until the command should
/// pause.
#[inline(always)]
pub(super) fn items<'a, C: Call<'a>>(call: &C, first: usize, step: usize) -> impl Iterator<Item = &'a [u8]> {
    let (mut next, mut left, mut bytes) = (first, 0usize, 0usize);
    std::iter::from_fn(move || {
        if next >= call.argc() {
            return None;
        }
        if left == 0 || bytes >= STEP_BYTES {
            (left, bytes) = (step, 0);
            if pauses(call, first, next.saturating_sub(first), step) {
                return None;
            }
        }
        let item = call.arg(next);
        bytes = bytes.saturating_add(item.len());
        next = next.saturating_add(1);
        left = left.saturating_sub(1);
        Some(item)
    })
}

/// Whether a command should end after `done` of its items, which are the arguments starting at index `first`. If so,
/// also makes the command continue later.
///
/// Not inlined: it is called only once per group of items, but if it were inlined, its values would occupy registers
/// while the items are processed.
#[inline(never)]
pub(super) fn pauses<'a, C: Call<'a>>(call: &C, first: usize, done: usize, step: usize) -> bool {
    let of = call.argc().saturating_sub(first);
    let has_many = done > 0 || of > step.min(BLOOM_STEP);
    let pauses = has_many && call.should_pause(done);
    if pauses {
        call.go_on_later(Continuation { first, done, of: Some(of), within: None });
    }
    pauses
}
