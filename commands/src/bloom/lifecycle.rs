//! BF.RESERVE and BF.CLEAR: commands that create or empty a filter.

use super::create::{create, create_chain, create_foreign};
use super::generations::on_each;
use crate::call::{Access, BloomKey, Call, Effect, Key};
use crate::error::CommandError;
use crate::options::bloom::{Reservation, reservation};
use crate::options::{self, redisbloom};
use crate::reply::Reply;
use crate::table::{Entry, KeyUse, MoreKeys, Timing, bloom::RESERVE, command};
use bloomery::filter::{Bloom, Filter, Target};

command!(
    Reserve,
    |call| reserve(call),
    Entry {
        name: "bf.reserve",
        arity: -4,
        key: KeyUse::Insert,
        flags: "deny-oom",
        categories: "fast",
        summary: "Creates an empty Bloom filter",
        since: "1.0.0",
        arguments: RESERVE,
        more_keys: &[MoreKeys::Behind { word: c"LIKE", from: 4, only: false, count: 1 }],
        timing: Timing::IfLong,
        ..Entry::PLAIN
    }
);

/// `BF.RESERVE key error_rate capacity [option…]`.
fn reserve<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
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
fn vacant<'a, C: Call<'a>>(call: &C) -> Result<C::Key<Filter>, CommandError> {
    let key = call.open::<Filter>(1, Access::Write);
    if key.bloom()?.is_some() { Err(CommandError::Exists) } else { Ok(key) }
}

command!(
    Clear,
    |call| clear(call),
    Entry {
        name: "bf.clear",
        key: KeyUse::Delete,
        summary: "Empties a filter and keeps its parameters",
        ..Entry::PLAIN
    }
);

/// `BF.CLEAR key`.
fn clear<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let mut key = call.open::<Filter>(1, Access::Write);
    let live = key.bloom()?.ok_or(CommandError::NotFound)?.bloom().ok_or(CommandError::NotNative)?;
    // The number of items can stay above 0 with all cells empty, if items were deleted that had never been added.
    let is_used = |filter: &Bloom| !filter.is_blank() || filter.items() > 0;
    let rebuild = key.value()?.and_then(|filter| filter.rebuild());
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
