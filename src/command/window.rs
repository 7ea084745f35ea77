//! BF.ROTATE and BF.AGE: commands on the generations of a window.

use super::call::{Access, Call, Effect, Key};
use super::error::CommandError;
use super::options::unsigned;
use super::reply::Reply;
use super::table::Command;
use super::test::current_generation;
use super::write::{open_generation, rebuild_in};
use crate::params::limits;

/// `BF.ROTATE key`, and from a primary or an AOF `BF.ROTATE key AT number [MANUAL]`.
///
/// Without AT it opens the generation after the current one (by the clock if the window has a period) and shifts
/// the schedule. With AT it opens exactly that generation; MANUAL says that the rotation was by hand.
pub(super) fn rotate<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let mut key = call.open(1, Access::Write);
    let window = match rebuild_in(&key) {
        // If the live filter isn't a window but the shadow is, the shadow follows the primary's clock.
        Some(rebuild) if call.obeys() => rebuild.window(),
        _ => key.bloom()?.ok_or(CommandError::NotFound)?.bloom().ok_or(CommandError::NotNative)?.window(),
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
    let number = unsigned(call.arg(3)).filter(|number| *number <= limits::MAX_GENERATION).ok_or(takes)?;
    Ok((number, call.argc() == 5))
}

/// `BF.AGE key item`.
pub(super) fn age<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open(1, Access::Read);
    let Some(filter) = key.bloom()? else { return Ok(Reply::Integer(-1)) };
    let filter = filter.bloom().ok_or(CommandError::NotNative)?;
    let age = filter.age(call.arg(2), current_generation(call, filter))?;
    Ok(age.map_or(Reply::Integer(-1), Reply::from))
}
