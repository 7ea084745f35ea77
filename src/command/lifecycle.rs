//! BF.RESERVE and BF.CLEAR: commands that create or empty a filter.

use super::call::{Access, Call, Effect, Key};
use super::error::CommandError;
use super::options::bloom::{Reservation, reservation};
use super::options::{self, redisbloom};
use super::reply::Reply;
use super::table::Command;
use super::write::{create, create_chain, create_foreign, make, on_each};
use crate::filter::{Bloom, Target};
use crate::params::{Family, Spec};

/// `BF.RESERVE key error_rate capacity [option…]`.
pub(super) fn reserve<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    if let Some(spec) = redisbloom::sent_reservation(call) {
        reserve_as(call, &mut vacant(call)?, spec?, 0)?;
        return Ok(Reply::Ok);
    }
    if redisbloom::reserves(call) {
        let spec = redisbloom::chain(call)?;
        create_chain(call, &mut vacant(call)?, &spec)?;
        return Ok(Reply::Ok);
    }
    if let Some(reservation) = options::foreign::reservation(call)? {
        create_foreign(call, &mut vacant(call)?, reservation)?;
        return Ok(Reply::Ok);
    }
    let Reservation { spec, since_ms } = reservation(call)?;
    let mut key = vacant(call)?;
    // A window without a period doesn't use the time, so replicas don't get it.
    let timed = matches!(spec.family, Family::Window { every_ms: 1.., .. });
    let since_ms = if timed { since_ms.unwrap_or_else(|| call.now_ms()) } else { 0 };
    reserve_as(call, &mut key, spec, since_ms)?;
    Ok(Reply::Ok)
}

/// Creates a filter whose capacity is in argument 3. If its only other parameters are an error rate and an expansion,
/// replicas get these and the seed in one word, so the replicated command has four arguments instead of eight.
fn reserve_as<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key,
    spec: Spec,
    since_ms: u64,
) -> Result<(), CommandError> {
    if !options::bloom::is_plain(&spec) {
        return create(call, key, spec, since_ms);
    }
    make(call, key, spec, since_ms)?;
    let filter = || options::bloom::sent_before_capacity(&spec);
    call.replicate(Effect::Created(Command::Reserve, &filter, &[3]));
    Ok(())
}

/// Opens the key, which must be empty, to create a filter in it.
fn vacant<'a, C: Call<'a>>(call: &C) -> Result<C::Key, CommandError> {
    let key = call.open(1, Access::Write);
    if key.bloom()?.is_some() { Err(CommandError::Exists) } else { Ok(key) }
}

/// `BF.CLEAR key`.
pub(super) fn clear<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let mut key = call.open(1, Access::Write);
    let live = key.bloom()?.ok_or(CommandError::NotFound)?.bloom().ok_or(CommandError::NotNative)?;
    // The number of items can stay above 0 with all cells empty, if items were deleted that had never been added.
    let is_used = |filter: &Bloom| filter.ones() > 0 || filter.items() > 0;
    let rebuild = key.filter()?.and_then(|filter| filter.rebuild());
    let shadow_is_used =
        rebuild.is_some_and(|rebuild| is_used(rebuild.shadow()) || rebuild.deletes_missed() > 0);
    if is_used(live) || shadow_is_used {
        on_each(call, &mut key, Bloom::clear)?;
        if let Some(Target::Both(rebuild)) = key.target()? {
            rebuild.forget_deletes();
        }
        call.replicate(Effect::Verbatim);
        call.changed(c"bf.clear");
    }
    Ok(Reply::Ok)
}
