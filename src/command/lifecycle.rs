//! Commands on whole Bloom filters.

use super::error::CommandError;
use super::options;
use super::options::bloom::{Insertion, Reservation, insertion, reservation, with_random_seed};
use super::reply::Reply;
use super::{Access, Call, Command, Effect, Key, catch_up, create, double, foreign, items, limit_items};
use crate::params::{Family, limits};

/// `BF.RESERVE key error_rate capacity [option…]`.
pub(super) fn reserve<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let Reservation { spec, since_ms } = reservation(call)?;
    let mut key = call.open(1, Access::Write);
    match key.filter() {
        Ok(None) => {}
        Ok(Some(_)) | Err(CommandError::NotNative) => return Err(CommandError::Exists),
        Err(error) => return Err(error),
    }
    // A window without a period has no use for a time, and its replica should not get one.
    let timed = matches!(spec.family, Family::Window { every_ms: 1.., .. });
    let since_ms = if timed { since_ms.unwrap_or_else(|| call.now_ms()) } else { 0 };
    create(call, &mut key, spec, since_ms)?;
    Ok(Reply::Ok)
}

/// `BF.INSERT key [option…] ITEMS item…`.
pub(super) fn insert<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let Insertion { spec, create: may_create, first_item } = insertion(call)?;
    limit_items(call, call.argc().saturating_sub(first_item))?;
    let mut key = call.open(1, Access::Write);
    if key.rebuild().is_some() {
        return double::add_items(call, &mut key, first_item);
    }
    if key.foreign().is_some() {
        return foreign::add_items(call, &mut key, first_item);
    }
    if key.filter()?.is_none() {
        if !may_create {
            return Err(CommandError::NotFound);
        }
        create(call, &mut key, with_random_seed(spec)?, 0)?;
    }
    let filter = key.filter_mut()?.ok_or(CommandError::NotFound)?;
    catch_up(call, filter)?;
    Ok(items::add_items(call, filter, first_item))
}

/// `BF.ROTATE key`, and from a primary or an AOF `BF.ROTATE key AT number [MANUAL]`.
///
/// Without AT it opens the generation after the current one, by the clock if the window has one, and the schedule
/// moves along. With AT it opens that very generation; MANUAL says that it was a rotation by hand.
pub(super) fn rotate<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let mut key = call.open(1, Access::Write);
    let window = match key.rebuild() {
        // The shadow of what is no window may be one, and follows the primary's clock.
        Some(rebuild) if call.obeys() => rebuild.window(),
        _ => key.filter()?.ok_or(CommandError::NotFound)?.window(),
    };
    let window = window.ok_or(CommandError::NotWindow)?;
    let newest = window.newest();
    if call.argc() > 2 {
        let (number, by_hand) = replicated_rotation(call)?;
        if number > newest {
            open_generation(call, &mut key, number, by_hand)?;
            call.replicate(Effect::Verbatim);
            call.changed(c"bf.rotate");
        }
        return Ok(Reply::Ok);
    }
    let current = if call.obeys() { newest } else { window.number_at(call.now_ms()) };
    let number = current.saturating_add(1);
    open_generation(call, &mut key, number, true)?;
    let words = [&b"AT"[..], number.to_string().as_bytes(), b"MANUAL"].map(<[u8]>::to_vec);
    call.replicate(Effect::Arguments(Command::Rotate, words.to_vec()));
    call.changed(c"bf.rotate");
    Ok(Reply::Ok)
}

fn open_generation<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key,
    number: u64,
    by_hand: bool,
) -> Result<(), CommandError> {
    if key.rebuild().is_some() {
        return double::open_generation(call, key, number, by_hand);
    }
    let filter = key.filter_mut()?.ok_or(CommandError::NotFound)?;
    let retired = if by_hand { filter.rotate(number)? } else { filter.advance(number)? };
    call.retire(retired.into());
    Ok(())
}

/// Parses `AT number [MANUAL]`.
fn replicated_rotation<'a, C: Call<'a>>(call: &C) -> Result<(u64, bool), CommandError> {
    if !call.arg(2).eq_ignore_ascii_case(b"AT") || call.argc() > 5 {
        return Err(CommandError::Arity);
    }
    if !call.obeys() {
        return Err(CommandError::NotForClients);
    }
    let takes =
        CommandError::BadOption { option: "AT", takes: "the number of a generation, and MANUAL or nothing" };
    if call.argc() == 3 || (call.argc() == 5 && !call.arg(4).eq_ignore_ascii_case(b"MANUAL")) {
        return Err(takes);
    }
    let number =
        options::unsigned(call.arg(3)).filter(|number| *number <= limits::MAX_GENERATION).ok_or(takes)?;
    Ok((number, call.argc() == 5))
}

/// `BF.CLEAR key`.
pub(super) fn clear<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let mut key = call.open(1, Access::Write);
    if key.rebuild().is_some() {
        return double::clear(call, &mut key);
    }
    let filter = key.filter_mut()?.ok_or(CommandError::NotFound)?;
    // A count may outlive its cells where items were deleted that had never been added.
    if filter.ones() > 0 || filter.items() > 0 {
        call.retire(filter.clear()?.into());
        call.replicate(Effect::Verbatim);
        call.changed(c"bf.clear");
    }
    Ok(Reply::Ok)
}
