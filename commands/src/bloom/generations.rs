//! Windows: catching up with the clock, and beginning generations.

use super::shadow::give_up;
use crate::call::{BloomKey, Call, Effect, Key};
use crate::error::CommandError;
use bloomery::Error;
use bloomery::filter::{Bloom, Due, Filter, Garbage, Live, LiveMut, Schedule, Target};

/// Before a write, carries out what is [`due`] in the windows of a key, and replicates it.
#[inline(always)]
pub(super) fn catch_up<'a, C: Call<'a>>(call: &C, key: &mut C::Key<Filter>) -> Result<(), CommandError> {
    match key.value()?.and_then(|filter| due(call, filter)) {
        None => Ok(()),
        Some(due) => catch_up_to(call, key, due),
    }
}

/// What the windows in a filter have to do before a write, according to the clock. A replica and a server that is
/// loading an AOF ignore the clock: commands in the stream or in the file tell them what to do.
#[inline(always)]
pub(super) fn due<'a, C: Call<'a>>(call: &C, filter: &Filter) -> Option<Due> {
    let window = match filter {
        Filter::Bloom(filter) => filter.window(),
        Filter::Rebuild(rebuild) => rebuild.window(),
        Filter::Foreign(_) | Filter::Cuckoo(_) => None,
    }?;
    if window.schedule().every_ms == 0 || call.is_from_primary() {
        return None;
    }
    window.due(call.now_ms())
}

/// Carries out what is [`due`], and replicates it.
#[cold]
pub(super) fn catch_up_to<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key<Filter>,
    due: Due,
) -> Result<(), CommandError> {
    let (words, event) = match due {
        Due::Rotation(number) => {
            open_generation(call, key, number, false)?;
            (vec![b"AT".to_vec(), number.to_string().into_bytes()], c"bf.rotate")
        }
        Due::Schedule(schedule) => {
            set_schedule(call, key, schedule)?;
            let numbers =
                [schedule.since_ms, schedule.rotations].map(|number| number.to_string().into_bytes());
            ([vec![b"SCHEDULE".to_vec()], numbers.to_vec()].concat(), c"bf.schedule")
        }
    };
    call.replicate(Effect::Arguments("bf.rotate", words));
    call.changed(event);
    Ok(())
}

/// Makes the windows in a key continue on another schedule.
pub(super) fn set_schedule<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key<Filter>,
    schedule: Schedule,
) -> Result<(), CommandError> {
    on_each(call, key, |filter| {
        filter.set_schedule(schedule);
        Ok(Garbage::Layers(Vec::new()))
    })
}

/// Begins generation `number` in the filter of a key and in its shadow, if they are windows.
pub(super) fn open_generation<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key<Filter>,
    number: u64,
    by_hand: bool,
) -> Result<(), CommandError> {
    on_each(call, key, |filter| match filter.window() {
        None => Ok(Vec::new()),
        Some(_) if by_hand => filter.rotate(number),
        Some(_) => filter.advance(number),
    })
}

/// Applies `work` to the native filter in a key and then to its shadow, and frees what they drop. If the filter
/// refuses, nothing changes. If the shadow cannot follow, the rebuild ends.
pub(super) fn on_each<'a, C: Call<'a>, G: Into<Garbage>>(
    call: &C,
    key: &mut C::Key<Filter>,
    mut work: impl FnMut(&mut Bloom) -> Result<G, Error>,
) -> Result<(), CommandError> {
    let mut run = |filter: &mut Bloom| work(filter).map(|dropped| call.discard(dropped.into()));
    let lost = match key.target()? {
        Some(Target::One(LiveMut::Bloom(filter))) => {
            run(filter)?;
            None
        }
        Some(Target::Both(rebuild)) => {
            let (live, shadow) = rebuild.both_mut();
            if let Live::Bloom(filter) = live {
                run(filter)?;
            }
            run(shadow).err()
        }
        Some(Target::One(LiveMut::Foreign(_))) | None => None,
    };
    if let Some(why) = lost {
        give_up(call, key, &why.into());
    }
    Ok(())
}
