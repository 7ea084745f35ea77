//! The union of filters, wherever they come from: at once, or what a worker has prepared.

use super::generations::catch_up;
use super::shadow::rebuild_in;
use crate::call::{BloomKey, Call, Effect, Key};
use crate::error::CommandError;
use crate::grow::admit_reserved;
use crate::reply::Reply;
use bloomery::Error;
use bloomery::filter::{Filter, Incompatible, Live, LiveRef, Target, Union};
use bloomery::parallel::ParallelFor;

/// The current time, or `None` on a server that follows another server's decisions.
pub(super) fn clock<'a, C: Call<'a>>(call: &C) -> Option<u64> {
    (!call.is_from_primary()).then(|| call.now_ms())
}

/// Refuses a destination that is being rebuilt, because its shadow would miss the items.
pub(super) fn refuse_rebuild(key: &impl Key<Filter>) -> Result<(), CommandError> {
    rebuild_in(key).map_or(Ok(()), |_| Err(CommandError::Rebuilding))
}

/// Carries out the planned union with these filters immediately.
pub(super) fn unite<'a, 'f, C: Call<'a>>(
    call: &C,
    mut key: C::Key<Filter>,
    filters: &[LiveRef<'f>],
    mut union: Union<'f>,
    refusal: impl Fn(Refused) -> CommandError,
) -> Result<Reply, CommandError> {
    let parallel: &ParallelFor<'_> = &|tasks, task| call.parallel(tasks, task);
    let existing = key.bloom()?;
    let Some(base) = existing.or(filters.first().copied()) else { return Err(CommandError::NotFound) };
    union.join(base, parallel).map_err(|why| refusal(why.into()))?;
    let grows = union.bytes();
    if existing.is_none() {
        admit_reserved(call, base.reserved_bytes())?;
    }
    if !call.is_from_primary() {
        let total = base.bytes().saturating_add(grows);
        let more = if existing.is_none() { total } else { grows };
        // `spare` is temporary memory, which is freed when this command ends, before the server evicts any keys. So
        // only this check limits it.
        let spare = existing.map_or(0, |destination| union.spare_bytes(destination));
        if more > 0 || spare > 0 {
            call.admit(total, more.saturating_add(spare))?;
        }
    }
    let no_room = no_room(base);
    let changed = if existing.is_none() {
        let made = union.begun(base, parallel).map_err(no_room)?;
        key.create(made.into());
        true
    } else {
        catch_up(call, &mut key)?;
        match key.target()? {
            Some(Target::One(destination)) => union.apply(destination, parallel).map_err(no_room)?,
            Some(Target::Both(_)) => return Err(CommandError::Rebuilding),
            None => return Err(CommandError::NotFound),
        }
    };
    if changed {
        call.replicate(Effect::Verbatim);
        call.changed(c"bf.merge");
    }
    Ok(Reply::Ok)
}

/// A union of filters that was computed in the background.
pub(super) struct Merged {
    filter: Live,
    /// Whether the union differs from the destination.
    changed: bool,
}

/// Why filters can't be merged.
pub(super) enum Refused {
    /// This source can't be combined with the first filter.
    Source(usize, Incompatible),
    Other(CommandError),
}

impl From<(usize, Incompatible)> for Refused {
    fn from((source, why): (usize, Incompatible)) -> Refused {
        Refused::Source(source, why)
    }
}

impl Refused {
    /// The error, with the source's name.
    pub(super) fn told(self, name: impl Fn(usize) -> String) -> CommandError {
        match self {
            Refused::Source(source, why) => refused(name(source), why),
            Refused::Other(why) => why,
        }
    }
}

/// The error for a source that can't be combined with the others.
pub(super) fn refused(source: String, why: Incompatible) -> CommandError {
    match why {
        Incompatible::Differs(what) => CommandError::Incompatible { source, what },
        Incompatible::ClockBehind => CommandError::ClockBehind { source },
        Incompatible::ErrorRate => CommandError::TooCoarse { source },
        Incompatible::Layouts => CommandError::OtherLayouts { source },
        Incompatible::Layers => CommandError::SeveralLayers { source },
        Incompatible::TooManyLayers => CommandError::Core(Error::TooManyLayers),
        Incompatible::TooManyPairs => CommandError::TooManyPairs,
    }
}

/// Returns the union of `inputs`. The first of them is the destination, unless the destination `is_new`.
pub(super) fn merged(
    inputs: &[LiveRef<'_>],
    is_new: bool,
    now_ms: Option<u64>,
    parallel: &ParallelFor<'_>,
) -> Result<Merged, Refused> {
    let Some((base, sources)) = inputs.split_first() else {
        return Err(Refused::Other(CommandError::NotFound));
    };
    let mut union = match is_new {
        true => Union::plan(None, inputs, now_ms),
        false => Union::plan(Some(*base), sources, now_ms),
    }?;
    union.join(*base, parallel)?;
    let made = match is_new {
        true => union.begun(*base, parallel).map(|filter| (filter, true)),
        false => union.apart(*base, parallel),
    };
    let (filter, changed) = made.map_err(|why| Refused::Other(no_room(*base)(why)))?;
    Ok(Merged { filter, changed })
}

/// Converts an error from computing a union. If the items don't fit, the new error gives the capacity of `base`.
fn no_room(base: LiveRef<'_>) -> impl Fn(Error) -> CommandError + Copy + use<> {
    let (capacity, grows) = (base.capacity(), base.bloom().is_some_and(|base| base.spec().grows()));
    move |why| match why {
        Error::Full if grows => CommandError::Saturated,
        Error::Full => CommandError::UnionFull { capacity },
        why => why.into(),
    }
}

/// Checks whether a filter that was computed may be stored. What was asked for was an estimate, and others may have
/// reached the limits meanwhile.
pub(super) fn admit_made<'a, C: Call<'a>>(call: &C, bytes: u64) -> Result<(), CommandError> {
    admit_reserved(call, bytes)?;
    let has_no_memory = !call.is_from_primary() && call.is_out_of_memory() && !call.evicts();
    if has_no_memory { Err(CommandError::OutOfMemory) } else { Ok(()) }
}

/// Stores in its key a union that was computed in the background.
pub(super) fn put_merged<'a, C: Call<'a>>(
    call: &C,
    mut key: C::Key<Filter>,
    merged: Merged,
) -> Result<Reply, CommandError> {
    let Merged { filter, changed } = merged;
    let made = filter.as_ref();
    let bytes = if key.bloom()?.is_some() { made.bytes() } else { made.reserved_bytes() };
    let admitted = admit_made(call, bytes);
    if admitted.is_err() || !changed {
        call.discard(filter.into());
        return admitted.map(|()| Reply::Ok);
    }
    match key.target()? {
        None => key.create(filter.into()),
        Some(Target::One(destination)) => call.discard(destination.exchange(filter).into()),
        Some(Target::Both(_)) => return Err(CommandError::Rebuilding),
    }
    call.replicate(Effect::Verbatim);
    call.changed(c"bf.merge");
    Ok(Reply::Ok)
}

/// Processing a byte of a table takes as long as processing this many bytes of bits or counters, because each prefix is
/// looked up in another table, and may be added to it: 150 ns for 2 bytes.
const TABLE: u64 = 128;

/// How long the union of these filters takes, in the same unit as [`work`].
pub(super) fn union_work<'f>(union: &Union<'_>, filters: impl Iterator<Item = LiveRef<'f>>) -> u64 {
    let each = filters.map(work).fold(0, u64::saturating_add);
    each.max(union.table_bytes().saturating_mul(TABLE))
}

/// How long it takes to combine or compare this filter, expressed as the number of bytes of bits or counters that would
/// take as long.
pub(super) fn work(filter: LiveRef<'_>) -> u64 {
    let table = filter.bloom().and_then(|filter| filter.table()).map_or(0, |table| table.bytes());
    filter.bytes().saturating_add(table.saturating_mul(TABLE - 1))
}
