//! BF.MERGE, BF.INTERSECT, BF.EQUAL: commands on several filters. They check all filters before they change any.

use super::call::{Access, Call, Effect, Key};
use super::error::CommandError;
use super::options::printable;
use super::reply::Reply;
use super::test::current_generation;
use super::write::{catch_up, rebuild_in};
use crate::error::Error;
use crate::filter::{Bloom, Incompatible, Live, LiveRef, Target, Union};
use crate::parallel::ParallelFor;

/// Argument of the first source.
const FIRST_SOURCE: usize = 2;

/// The sources of a command, each key once.
struct Sources<K> {
    /// Number of the argument that names each source, and the opened key; the destination isn't among them.
    keys: Vec<(usize, K)>,
    /// Whether the destination is also a source.
    has_destination: bool,
    /// Whether some key is named twice, counting the destination.
    repeated: bool,
}

impl<K: Key> Sources<K> {
    fn open<'a, C: Call<'a, Key = K>>(call: &C) -> Sources<K> {
        let mut sources = Sources { keys: Vec::new(), has_destination: false, repeated: false };
        for index in FIRST_SOURCE..call.argc() {
            let name = call.arg(index);
            let is_destination = name == call.arg(1);
            let is_new = !is_destination && sources.keys.iter().all(|(other, _)| call.arg(*other) != name);
            sources.has_destination |= is_destination;
            sources.repeated |= !is_new;
            if is_new {
                sources.keys.push((index, call.open(index, Access::Read)));
            }
        }
        sources
    }

    /// The filters in the keys, all of which must exist.
    fn filters(&self) -> Result<Vec<LiveRef<'_>>, CommandError> {
        self.keys.iter().map(|(_, key)| key.bloom()?.ok_or(CommandError::NotFound)).collect()
    }
}

/// Refuses a destination that is being rebuilt: its shadow would miss the items.
fn refuse_rebuild(key: &impl Key) -> Result<(), CommandError> {
    rebuild_in(key).map_or(Ok(()), |_| Err(CommandError::Rebuilding))
}

/// The error for the filter that argument `index` names.
fn refused<'a, C: Call<'a>>(call: &C, index: usize, why: Incompatible) -> CommandError {
    let source = printable(call.arg(index));
    match why {
        Incompatible::Differs(what) => CommandError::Incompatible { source, what },
        Incompatible::ClockBehind => CommandError::ClockBehind { source },
        Incompatible::Layers => CommandError::SeveralLayers { source },
        Incompatible::TooManyLayers => CommandError::Core(Error::TooManyLayers),
    }
}

fn counts(filter: LiveRef<'_>) -> bool {
    filter.bloom().is_some_and(|filter| filter.spec().cell.counts())
}

/// `BF.MERGE destination source [source…]`: the destination becomes the union.
///
/// The result depends on the filters alone, so the command itself is replicated.
pub(super) fn merge<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let parallel: &ParallelFor<'_> = &|tasks, task| call.parallel(tasks, task);
    let mut key = call.open(1, Access::Write);
    refuse_rebuild(&key)?;
    let sources = Sources::open(call);
    let filters = sources.filters()?;
    let existing = key.bloom()?;
    if existing.is_none() && sources.has_destination {
        return Err(CommandError::NotFound);
    }
    // A missing destination starts as a copy of the first source.
    let Some(base) = existing.or(filters.first().copied()) else { return Err(CommandError::NotFound) };
    if sources.repeated && counts(base) {
        return Err(CommandError::CountedTwice);
    }
    let now_ms = (!call.obeys()).then(|| call.now_ms());
    let union = Union::plan(existing, &filters, now_ms, parallel).map_err(|(source, why)| {
        let argument = sources.keys.get(source).map_or(1, |(index, _)| *index);
        refused(call, argument, why)
    })?;
    let grows = union.bytes();
    if !call.obeys() {
        let total = base.bytes().saturating_add(grows);
        let more = if existing.is_none() { total } else { grows };
        if more > 0 {
            call.admit(total, more)?;
        }
    }
    let changed = if existing.is_none() {
        let mut made = base.copy(parallel)?;
        if let (Live::Bloom(filter), Some(number)) = (&mut made, union.generation()) {
            call.discard(filter.advance(number)?.into());
        }
        union.apply(made.as_mut(), parallel)?;
        key.create(made.into());
        true
    } else {
        catch_up(call, &mut key)?;
        match key.target()? {
            Some(Target::One(destination)) => union.apply(destination, parallel)?,
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

/// `BF.INTERSECT destination source source…`: replaces the destination, like SINTERSTORE.
pub(super) fn intersect<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let parallel: &ParallelFor<'_> = &|tasks, task| call.parallel(tasks, task);
    let mut key = call.open(1, Access::Write);
    key.bloom()?;
    refuse_rebuild(&key)?;
    let sources = Sources::open(call);
    let mut filters: Vec<(usize, &Bloom)> = Vec::new();
    for (index, source) in &sources.keys {
        filters.push((*index, native(source)?));
    }
    if sources.has_destination {
        filters.push((1, native(&key)?));
        // The parameters come from the source that is named first.
        if call.arg(FIRST_SOURCE) == call.arg(1) {
            filters.rotate_right(1);
        }
    }
    let Some(((first_index, first), others)) = filters.split_first() else {
        return Err(CommandError::NotFound);
    };
    first.check_intersection(first).map_err(|why| refused(call, *first_index, why))?;
    for (index, other) in others {
        first.check_intersection(other).map_err(|why| refused(call, *index, why))?;
    }
    if !call.obeys() {
        call.admit(first.bytes(), first.bytes())?;
    }
    let others: Vec<&Bloom> = others.iter().map(|(_, filter)| *filter).collect();
    let result = first.intersection(&others, parallel)?;
    key.create(result.into());
    call.replicate(Effect::Verbatim);
    call.changed(c"bf.intersect");
    Ok(Reply::Ok)
}

/// The native filter in a key.
fn native(key: &impl Key) -> Result<&Bloom, CommandError> {
    key.bloom()?.ok_or(CommandError::NotFound)?.bloom().ok_or(CommandError::NotNative)
}

/// `BF.EQUAL key other`.
pub(super) fn equal<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let (key, other) = (call.open(1, Access::Read), call.open(FIRST_SOURCE, Access::Read));
    let (Some(a), Some(b)) = (key.bloom()?, other.bloom()?) else { return Err(CommandError::NotFound) };
    let generation = |filter: LiveRef<'_>| match filter.bloom() {
        Some(filter) => current_generation(call, filter),
        None => 0,
    };
    let parallel: &ParallelFor<'_> = &|tasks, task| call.parallel(tasks, task);
    Ok(Reply::Bool(a.equal_at(b, [generation(a), generation(b)], parallel)))
}
