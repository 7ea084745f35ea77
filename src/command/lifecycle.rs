//! BF.RESERVE and BF.CLEAR: commands that create or empty a filter.

use super::call::{Access, Call, Effect, Key};
use super::error::CommandError;
use super::options::bloom::{Reservation, reservation};
use super::options::{self, redisbloom};
use super::reply::Reply;
use super::write::{create, create_chain, create_foreign, on_each};
use crate::filter::{Bloom, Target};

/// `BF.RESERVE key error_rate capacity [option…]`.
pub(super) fn reserve<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
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
    create(call, &mut vacant(call)?, spec, since_ms)?;
    Ok(Reply::Ok)
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
