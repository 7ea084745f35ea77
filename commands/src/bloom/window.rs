//! BF.ROTATE and BF.AGE: commands on the generations of a window.

use super::generations::{catch_up_to, due, open_generation, set_schedule};
use super::shadow::rebuild_in;
use super::test::current_generation;
use crate::call::{Access, BloomKey, Call, Effect, Key};
use crate::error::CommandError;
use crate::options::{bad, unsigned};
use crate::reply::Reply;
use crate::table::{
    Entry, KeyUse, Timing,
    bloom::{AGE, O_K},
    command,
};
use bloomery::filter::{Due, Filter, Schedule, Standing};
use bloomery::params::limits;

command!(
    Rotate,
    |call| rotate(call),
    Entry {
        name: "bf.rotate",
        arity: -2,
        key: KeyUse::Update,
        summary: "Begins a new generation of a window and drops the oldest",
        ..Entry::PLAIN
    }
);

/// `BF.ROTATE key`, and from a primary or an AOF `BF.ROTATE key AT number [MANUAL]` or
/// `BF.ROTATE key SCHEDULE since rotations`.
///
/// Without AT or SCHEDULE, it opens the generation after the current one, and shifts the schedule. In a window with a
/// period, the clock determines which generation is current. With AT, it opens exactly the generation with the given
/// number; MANUAL says that the rotation was manual. With SCHEDULE, it sets the schedule, because the primary's clock
/// was set back.
fn rotate<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let mut key = call.open::<Filter>(1, Access::Write);
    let standing = standing(call, &key)?;
    if call.argc() > 2 {
        return obey(call, key, standing);
    }
    let number = if call.is_from_primary() { standing.newest } else { standing.number_at(call.now_ms()) };
    let number = number.saturating_add(1);
    // A rotation that is due needn't be carried out separately: it is part of this one.
    if let Some(due @ Due::Schedule(_)) = key.value()?.and_then(|filter| due(call, filter)) {
        catch_up_to(call, &mut key, due)?;
    }
    open_generation(call, &mut key, number, true)?;
    let words = [&b"AT"[..], number.to_string().as_bytes(), b"MANUAL"].map(<[u8]>::to_vec);
    call.replicate(Effect::Arguments("bf.rotate", words.to_vec()));
    call.changed(c"bf.rotate");
    Ok(Reply::Ok)
}

/// The state of the window that is about to rotate.
fn standing<'a, C: Call<'a>>(call: &C, key: &C::Key<Filter>) -> Result<Standing, CommandError> {
    let window = match rebuild_in(key) {
        // If the live filter isn't a window but the shadow is, the shadow follows the primary's clock.
        Some(rebuild) if call.is_from_primary() => rebuild.window(),
        _ => key.bloom()?.ok_or(CommandError::NotFound)?.bloom().ok_or(CommandError::NotNative)?.window(),
    };
    Ok(window.ok_or(CommandError::NotWindow)?.standing())
}

/// Repeats what a primary did.
fn obey<'a, C: Call<'a>>(
    call: &C,
    mut key: C::Key<Filter>,
    standing: Standing,
) -> Result<Reply, CommandError> {
    let event = match replicated(call)? {
        Replicated::At { number, by_hand } if number > standing.newest => {
            open_generation(call, &mut key, number, by_hand)?;
            c"bf.rotate"
        }
        Replicated::Schedule { since_ms, rotations } => {
            set_schedule(call, &mut key, Schedule { since_ms, rotations, ..standing.schedule })?;
            c"bf.schedule"
        }
        Replicated::At { .. } => return Ok(Reply::Ok),
    };
    call.replicate(Effect::Verbatim);
    call.changed(event);
    Ok(Reply::Ok)
}

/// What a primary did to a window.
enum Replicated {
    At { number: u64, by_hand: bool },
    Schedule { since_ms: u64, rotations: u64 },
}

/// Parses `AT number [MANUAL]` and `SCHEDULE since rotations`.
fn replicated<'a, C: Call<'a>>(call: &C) -> Result<Replicated, CommandError> {
    let is = |word: &[u8]| call.arg(2).eq_ignore_ascii_case(word);
    if !(is(b"AT") || is(b"SCHEDULE")) || call.argc() > 5 {
        return Err(CommandError::Arity);
    }
    if !call.is_from_primary() {
        return Err(CommandError::NotForClients(if is(b"AT") { "AT" } else { "SCHEDULE" }));
    }
    if is(b"SCHEDULE") {
        let expected = CommandError::BadOption {
            option: "SCHEDULE",
            expected: "a Unix time in milliseconds, and the number of a generation",
        };
        let number = |index: usize, most| unsigned(call.arg(index)).filter(|number| *number <= most);
        let times =
            (call.argc() == 5).then(|| (number(3, limits::MAX_TIME_MS), number(4, limits::MAX_GENERATION)));
        let Some((Some(since_ms), Some(rotations))) = times else { return Err(expected) };
        return Ok(Replicated::Schedule { since_ms, rotations });
    }
    let expected = CommandError::BadOption {
        option: "AT",
        expected: "the number of a generation, and MANUAL or nothing",
    };
    if call.argc() == 3 || (call.argc() == 5 && !call.arg(4).eq_ignore_ascii_case(b"MANUAL")) {
        return Err(expected);
    }
    let number = unsigned(call.arg(3)).filter(|number| *number <= limits::MAX_GENERATION).ok_or(expected)?;
    Ok(Replicated::At { number, by_hand: call.argc() == 5 })
}

command!(
    Age,
    |call| age(call),
    Entry {
        name: "bf.age",
        arity: -3,
        summary: "Returns how many generations or milliseconds ago an item was last added to a window",
        complexity: O_K,
        arguments: AGE,
        timing: Timing::Never,
        ..Entry::PLAIN
    }
);

/// `BF.AGE key item [MS]`.
fn age<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let in_ms = call.argc() > 3;
    if call.argc() > 4 {
        return Err(CommandError::Arity);
    }
    if in_ms && !call.arg(3).eq_ignore_ascii_case(b"MS") {
        return Err(bad("BF.AGE", "an item, and MS or nothing"));
    }
    let key = call.open::<Filter>(1, Access::Read);
    let Some(filter) = key.bloom()? else { return Ok(Reply::Integer(-1)) };
    let filter = filter.bloom().ok_or(CommandError::NotNative)?;
    let age = filter.age(call.arg(2), current_generation(call, filter))?;
    let age = match filter.window().filter(|_| in_ms) {
        None => age,
        Some(window) if window.schedule().every_ms == 0 => return Err(CommandError::Exclusive(NO_PERIOD)),
        Some(window) => age.and_then(|age| window.standing().lasts_ms(age, call.now_ms())),
    };
    Ok(age.map_or(Reply::Integer(-1), Reply::from))
}

const NO_PERIOD: &str = "a window that is only rotated manually has no ages in milliseconds; leave MS out";
