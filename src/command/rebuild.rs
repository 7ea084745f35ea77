//! BF.REBUILD: a filter is built anew beside the one that goes on serving, and takes its place in one step.

use super::double::{ToShadow, add_to_shadow, catch_up};
use super::error::CommandError;
use super::options::bad;
use super::options::bloom::{Reservation, creation, shadow};
use super::reply::Reply;
use super::{Access, Call, Command, Effect, Key, bytes_for, limit_items};
use crate::filter::{Bloom, Filter, Rebuild};
use crate::params::Family;
use std::collections::VecDeque;

/// Argument of the first item of ADD.
const FIRST_ITEM: usize = 3;

/// `BF.REBUILD key BEGIN [option…] | ADD item… | COMMIT | ABORT | STATUS`.
pub(super) fn rebuild<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let alone = || if call.argc() == FIRST_ITEM { Ok(()) } else { Err(CommandError::Arity) };
    match call.arg(2).to_ascii_uppercase().as_slice() {
        b"BEGIN" => begin(call),
        b"ADD" if call.argc() == FIRST_ITEM => Err(CommandError::Arity),
        b"ADD" => add(call),
        b"COMMIT" => alone().and_then(|()| end(call, c"bf.rebuild.commit", Filter::commit_rebuild)),
        b"ABORT" => alone().and_then(|()| end(call, c"bf.rebuild.abort", Filter::abort_rebuild)),
        b"STATUS" => alone().and_then(|()| status(call)),
        _ => Err(bad("BF.REBUILD", "BEGIN, ADD, COMMIT, ABORT or STATUS behind the key")),
    }
}

/// The Bloom filter in the key, ours or another system's, with or without a shadow.
fn bloom(key: &impl Key) -> Result<&Filter, CommandError> {
    match key.value()? {
        None => Err(CommandError::NotFound),
        Some(Filter::Cuckoo(_)) => Err(CommandError::WrongType),
        Some(value) => Ok(value),
    }
}

/// Refuses what takes memory while the server has none: the command's flags cannot say it, because COMMIT and ABORT give
/// memory back.
fn refuse_without_memory<'a, C: Call<'a>>(call: &C) -> Result<(), CommandError> {
    if !call.obeys() && call.is_out_of_memory() { Err(CommandError::OutOfMemory) } else { Ok(()) }
}

fn begin<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    refuse_without_memory(call)?;
    let mut key = call.open(1, Access::Write);
    let value = bloom(&key)?;
    if value.rebuild().is_some() {
        return Err(CommandError::Rebuilding);
    }
    let Reservation { spec, since_ms } = shadow(call, value)?;
    if !call.obeys() {
        let bytes = bytes_for(&spec)?;
        call.admit(value.bytes().saturating_add(bytes), bytes)?;
    }
    // A window without a period has no use for a time.
    let since_ms = match spec.family {
        Family::Window { every_ms: 1.., .. } => since_ms.unwrap_or_else(|| call.now_ms()),
        _ => 0,
    };
    let made = Bloom::new_since(spec, since_ms)?;
    if let Filter::Bloom(_) = value
        && let Some(filter) = key.filter_mut()?
    {
        super::catch_up(call, filter)?;
    }
    let live = key.filter().ok().flatten().and_then(Bloom::window);
    let made = made.in_step_with(live);
    let since_ms = made.window().map_or(0, |window| window.schedule().since_ms);
    let words = creation(made.spec(), since_ms);
    key.convert(|value| value.begin_rebuild(made)).ok_or(CommandError::NotFound)??;
    call.replicate(Effect::Arguments(Command::Rebuild, in_words(words)));
    call.changed(c"bf.rebuild.begin");
    call.with_ended(|ended, database| ended.forget(database, call.arg(1)));
    Ok(Reply::Ok)
}

/// The arguments of a BEGIN, from those of a BF.RESERVE: error rate, capacity, options.
fn in_words(creation: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut words = vec![b"BEGIN".to_vec()];
    let names = [&b"ERROR"[..], b"CAPACITY"].into_iter().map(Some).chain(std::iter::repeat(None));
    for (name, value) in names.zip(creation) {
        words.extend(name.map(<[u8]>::to_vec));
        words.push(value);
    }
    words
}

/// Backfills the shadow.
fn add<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let count = call.argc().saturating_sub(FIRST_ITEM);
    limit_items(call, count)?;
    refuse_without_memory(call)?;
    let mut key = call.open(1, Access::Write);
    if bloom(&key)?.rebuild().is_none() {
        return Err(not_rebuilding(call));
    }
    catch_up(call, &mut key)?;
    // Where it cannot rotate along, the rebuild has just ended.
    let Some(rebuild) = key.rebuild_mut() else { return Err(not_rebuilding(call)) };
    let all: Vec<usize> = (FIRST_ITEM..call.argc()).collect();
    let ToShadow { changed, done, refused } = add_to_shadow(call, rebuild, &all);
    if !changed.is_empty() {
        // With the word ADD, which stands before the items.
        let words: Vec<usize> = std::iter::once(FIRST_ITEM.saturating_sub(1)).chain(changed).collect();
        let verbatim = words.len() > count;
        call.replicate(if verbatim { Effect::Verbatim } else { Effect::Items(Command::Rebuild, &words) });
        call.changed(c"bf.rebuild.add");
    }
    match refused {
        None => Ok(Reply::Ok),
        Some(why) => Err(CommandError::Stopped { done, of: count, why: Box::new(why) }),
    }
}

/// COMMIT and ABORT.
fn end<'a, C: Call<'a>>(
    call: &C,
    event: &'static std::ffi::CStr,
    end: impl FnOnce(&mut Filter) -> Option<Filter>,
) -> Result<Reply, CommandError> {
    let mut key = call.open(1, Access::Write);
    bloom(&key)?;
    let dropped = key.convert(end).flatten().ok_or_else(|| not_rebuilding(call))?;
    call.retire(dropped.into());
    call.replicate(Effect::Verbatim);
    call.changed(event);
    Ok(Reply::Ok)
}

fn status<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open(1, Access::Read);
    if let Some(rebuild) = bloom(&key)?.rebuild() {
        return Ok(Reply::Map(figures(rebuild)));
    }
    let ended = call.with_ended(|ended, database| ended.reason(database, call.arg(1)));
    let mut fields = vec![("Status", Reply::from("none"))];
    fields.extend(ended.map(|why| ("Ended because", Reply::from(why.as_str()))));
    Ok(Reply::Map(fields))
}

/// What is known of a rebuild that is running. All of it is kept as the cells change.
pub(super) fn figures(rebuild: &Rebuild) -> Vec<(&'static str, Reply)> {
    let shadow = rebuild.shadow();
    let estimate = |value: f64| Reply::Double(format!("{value:.5e}").parse().unwrap_or(value));
    vec![
        ("Status", Reply::from("running")),
        ("Kind", Reply::from(shadow.spec().kind())),
        ("Capacity", shadow.capacity().into()),
        ("Error rate", Reply::Double(shadow.spec().error_rate)),
        ("Error rate now", estimate(shadow.rate_now())),
        ("Number of items inserted", shadow.items().into()),
        ("Approximate number of items", shadow.estimate().into()),
        ("Number of filters", (shadow.layers().len() as u64).into()),
        ("Fill", estimate(shadow.fill())),
        ("Size", (shadow.allocated() as u64).into()),
        ("Deletes missed", rebuild.deletes_missed().into()),
    ]
}

/// Why there is nothing to add to, commit or abort.
fn not_rebuilding<'a, C: Call<'a>>(call: &C) -> CommandError {
    CommandError::NotRebuilding(call.with_ended(|ended, database| ended.reason(database, call.arg(1))))
}

/// Rebuilds that ended by themselves, and why: the last few, for clients that come to commit.
#[derive(Default)]
pub struct Ended {
    last: VecDeque<(i32, Vec<u8>, String)>,
}

/// How many are remembered.
const REMEMBERED: usize = 64;

impl Ended {
    pub(super) fn note(&mut self, database: i32, key: &[u8], why: String) {
        self.forget(database, key);
        self.last.truncate(REMEMBERED.saturating_sub(1));
        self.last.push_front((database, key.to_vec(), why));
    }

    /// Forgets a key: a new rebuild begins.
    fn forget(&mut self, database: i32, key: &[u8]) {
        self.last.retain(|(other, name, _)| (*other, name.as_slice()) != (database, key));
    }

    fn reason(&self, database: i32, key: &[u8]) -> Option<String> {
        let mut last = self.last.iter();
        last.find(|(other, name, _)| (*other, name.as_slice()) == (database, key))
            .map(|(.., why)| why.clone())
    }

    /// Forgets the keys of this database, or all: they have been flushed.
    pub fn flush(&mut self, database: Option<i32>) {
        self.last.retain(|(own, ..)| database.is_some_and(|database| *own != database));
    }
}
