//! What BF.* do with a filter that is being rebuilt: adds go to the live filter and to its shadow, deletes to the live
//! one alone, rotations and BF.CLEAR to both. Replies are the live filter's, and what the shadow runs into is no client's
//! business: if it cannot follow, the rebuild ends.

use super::error::{Bare, CommandError};
use super::foreign;
use super::items::{Adds, Indices, Mode, add_each, add_item, arguments};
use super::options::printable;
use super::reply::Reply;
use super::{Call, Command, Effect, Key};
use crate::error::Error;
use crate::filter::{Added, Bloom, Filter, Layer, Rebuild};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Argument of the item of BF.ADD and BF.ADDNX.
const ITEM: usize = 2;

fn rebuild_in<K: Key>(key: &mut K) -> Result<&mut Rebuild, CommandError> {
    key.rebuild_mut().ok_or(CommandError::NotRebuilding(None))
}

/// `BF.ADD key item`, `BF.ADDNX key item`.
#[cold]
pub(super) fn add<'a, C: Call<'a>>(call: &C, key: &mut C::Key, mode: Mode) -> Result<Reply, CommandError> {
    catch_up(call, key)?;
    let rebuild = rebuild_in(key)?;
    let item = call.arg(ITEM);
    // A filter refuses before it changes, and what it refuses the shadow never sees.
    let live = match rebuild.live_mut() {
        Filter::Bloom(filter) => add_to(call, filter, item, mode, 0)?,
        Filter::Foreign(filter) => foreign::add_item(call, filter, item)?,
        Filter::Cuckoo(_) | Filter::Rebuild(_) => return Err(CommandError::WrongType),
    };
    count_adds(rebuild, 1);
    let beside = rebuild.live().bytes();
    let shadow = add_to(call, rebuild.shadow_mut(), item, mode, beside).unwrap_or_else(|why| {
        give_up(call, key, &why);
        Added::default()
    });
    if live.changed || shadow.changed {
        // An ADDNX stays one: what the live filter has, the shadow may lack.
        call.replicate(Effect::Verbatim);
        call.changed(c"bf.add");
    }
    Ok(Reply::Bool(live.added))
}

fn add_to<'a, C: Call<'a>>(
    call: &C,
    filter: &mut Bloom,
    item: &[u8],
    mode: Mode,
    beside: u64,
) -> Result<Added, CommandError> {
    let item = filter.hash(item);
    if mode == Mode::AddIfAbsent && filter.contains(item) {
        return Ok(Added::default());
    }
    add_item(call, filter, item, beside)
}

/// Adds the arguments from `first` on, as `items::add_items` does.
#[cold]
pub(super) fn add_items<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key,
    first: usize,
) -> Result<Reply, CommandError> {
    catch_up(call, key)?;
    let rebuild = rebuild_in(key)?;
    let mut adds = Adds::new(call, first);
    match rebuild.live_mut() {
        Filter::Bloom(filter) => {
            add_each(call, filter, arguments(call, first), 0, |result| adds.note(result));
        }
        Filter::Foreign(filter) => {
            let mut items = arguments(call, first);
            let _ = items.try_for_each(|item| adds.note(foreign::add_item(call, filter, item)));
        }
        Filter::Cuckoo(_) | Filter::Rebuild(_) => return Err(CommandError::WrongType),
    }
    count_adds(rebuild, adds.accepted());
    let backfill = add_to_shadow(call, rebuild, &adds.accepted_arguments());
    match backfill.refused {
        None => adds.also_changed(&backfill.changed),
        Some(why) => give_up(call, key, &why),
    }
    Ok(adds.finish(call))
}

/// Counts adds that the live filter accepted; the shadow counts none until it takes its place.
fn count_adds(rebuild: &Rebuild, items: u64) {
    if let Some(usage) = rebuild.live().usage() {
        usage.added(items);
    }
}

/// What became of arguments that went to the shadow.
#[derive(Default)]
pub(super) struct ToShadow {
    /// Those that changed it.
    pub(super) changed: Indices,
    /// How many went in.
    pub(super) done: usize,
    /// Why the one behind those was refused.
    pub(super) refused: Option<CommandError>,
}

/// Adds these arguments to the shadow, up to the first that it refuses.
pub(super) fn add_to_shadow<'a, C: Call<'a>>(call: &C, rebuild: &mut Rebuild, indices: &[usize]) -> ToShadow {
    let mut outcome = ToShadow::default();
    let beside = rebuild.live().bytes();
    let items = indices.iter().map(|index| call.arg(*index));
    add_each(call, rebuild.shadow_mut(), items, beside, |result| match result {
        Ok(added) => {
            outcome.changed.extend(indices.get(outcome.done).copied().filter(|_| added.changed));
            outcome.done = outcome.done.saturating_add(1);
            ControlFlow::Continue(())
        }
        Err(why) => {
            outcome.refused = Some(why);
            ControlFlow::Break(())
        }
    });
    outcome
}

/// Counts deletes that changed the live filter, if the filter is being rebuilt.
pub(super) fn count_deletes(key: &mut impl Key, deletes: usize) {
    if let Some(rebuild) = key.rebuild_mut() {
        rebuild.count_deletes(deletes as u64);
    }
}

/// Brings both filters up to the clock before a write, as `super::catch_up` does one.
pub(super) fn catch_up<'a, C: Call<'a>>(call: &C, key: &mut C::Key) -> Result<(), CommandError> {
    let Some(window) = key.rebuild().and_then(Rebuild::window) else { return Ok(()) };
    if window.schedule().every_ms == 0 || call.obeys() {
        return Ok(());
    }
    let number = window.number_at(call.now_ms());
    if number > window.newest() {
        open_generation(call, key, number, false)?;
        let words = vec![b"AT".to_vec(), number.to_string().into_bytes()];
        call.replicate(Effect::Arguments(Command::Rotate, words));
        call.changed(c"bf.rotate");
    }
    Ok(())
}

/// Opens generation `number` of both filters, as far as they are windows.
pub(super) fn open_generation<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key,
    number: u64,
    by_hand: bool,
) -> Result<(), CommandError> {
    let open = |filter: &mut Bloom| -> Result<Vec<Arc<Layer>>, Error> {
        match filter.window() {
            None => Ok(Vec::new()),
            Some(_) if by_hand => filter.rotate(number),
            Some(_) => filter.advance(number),
        }
    };
    let rebuild = rebuild_in(key)?;
    if let Filter::Bloom(filter) = rebuild.live_mut() {
        call.retire(open(filter)?.into());
    }
    match open(rebuild.shadow_mut()) {
        Ok(dropped) => call.retire(dropped.into()),
        Err(why) => give_up(call, key, &why.into()),
    }
    Ok(())
}

/// `BF.CLEAR key`.
pub(super) fn clear<'a, C: Call<'a>>(call: &C, key: &mut C::Key) -> Result<Reply, CommandError> {
    let rebuild = rebuild_in(key)?;
    let is_used = |filter: &Bloom| filter.ones() > 0 || filter.items() > 0;
    let live = match rebuild.live_mut() {
        Filter::Bloom(filter) => filter,
        Filter::Foreign(_) => return Err(CommandError::NotNative),
        Filter::Cuckoo(_) | Filter::Rebuild(_) => return Err(CommandError::WrongType),
    };
    let live_is_used = is_used(live);
    if !live_is_used && !is_used(rebuild.shadow()) && rebuild.deletes_missed() == 0 {
        return Ok(Reply::Ok);
    }
    if let Filter::Bloom(filter) = rebuild.live_mut() {
        call.retire(filter.clear()?.into());
    }
    rebuild.forget_deletes();
    match rebuild.shadow_mut().clear() {
        Ok(dropped) => call.retire(dropped.into()),
        Err(why) => give_up(call, key, &why.into()),
    }
    call.replicate(Effect::Verbatim);
    call.changed(c"bf.clear");
    Ok(Reply::Ok)
}

/// Ends a rebuild whose shadow cannot follow, and says so: to replicas before the effect of the command that it could
/// not follow, to listeners, in the log, and to whoever asks for it later.
#[cold]
pub(super) fn give_up<'a, C: Call<'a>>(call: &C, key: &mut C::Key, why: &CommandError) {
    let why = Bare(why).to_string();
    if let Some(shadow) = key.convert(Filter::abort_rebuild).flatten() {
        call.retire(shadow.into());
    }
    call.replicate(Effect::Arguments(Command::Rebuild, vec![b"ABORT".to_vec()]));
    call.changed(c"bf.rebuild.abort");
    let name = printable(call.arg(1));
    call.log(&format!("the rebuild of the filter in '{name}' has ended: its shadow took no more: {why}"));
    call.with_ended(|ended, database| ended.note(database, call.arg(1), why));
}
