//! BF.REBUILD: builds a new filter from scratch while the old one continues to serve. The new filter then replaces the
//! old one in one step.

use super::add::{Backfill, backfill};
use super::bulk_add::{BulkBackfill, backfill_bulk};
use super::generations::catch_up;
use super::shadow::rebuild_in;
use crate::blob::Parts;
use crate::call::{Access, Admitted, Background, BloomKey, Call, Data, Effect, Key, TwoStep, still_in_keys};
use crate::error::CommandError;
use crate::grow::{admit_new, admit_reserved};
use crate::items::limit_items;
use crate::options::bloom::{Reservation, creation, shadow};
use crate::options::{bad, upper};
use crate::reply::{Reply, fields};
use crate::table::{ArgumentKind::OneOf, Entry, KeyUse, bloom::REBUILD, command, required};
use bloomery::Error;
use bloomery::filter::record::Replies;
use bloomery::filter::{Bloom, Filter, Garbage, Live, LiveRef, Target};
use bloomery::parallel::ParallelFor;
use bloomery::params::Family;
use std::ffi::CStr;
use std::sync::Arc;

/// The index of ADD's first item among the arguments.
const FIRST_ITEM: usize = 3;

/// The keyspace event that COMMIT sends.
const COMMITTED: &CStr = c"bf.rebuild.commit";

/// Building a static filter takes as long per item as merging this many bytes of cells.
const BUILD_COST: u64 = 128;

command!(
    Rebuild,
    |call| rebuild(call),
    Entry {
        name: "bf.rebuild",
        arity: -3,
        key: KeyUse::Update,
        // No deny-oom: COMMIT and ABORT free memory. For BEGIN, ADD and ADDBULK, the command checks the limit itself.
        summary: "Rebuilds a filter from scratch while the old one serves, and replaces it in one step",
        complexity: "O(1), ADD O(k * n), where k is the number of probes of an item and n is the number of items",
        arguments: &[required("action", OneOf(REBUILD))],
        in_pieces: true,
        ..Entry::PLAIN
    }
);

/// `BF.REBUILD key BEGIN [option…] | ADD item… | ADDBULK FIXED width blob | ADDBULK PREFIXED blob | COMMIT | ABORT |
/// STATUS`.
fn rebuild<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let alone = || if call.argc() == FIRST_ITEM { Ok(()) } else { Err(CommandError::Arity) };
    match upper(call.arg(2)).as_slice() {
        b"BEGIN" => begin(call),
        b"ADD" if call.argc() == FIRST_ITEM => Err(CommandError::Arity),
        b"ADD" => add(call),
        b"ADDBULK" => add_bulk(call),
        b"COMMIT" => alone().and_then(|()| commit(call)),
        b"ABORT" => alone().and_then(|()| abort(call)),
        b"STATUS" => alone().and_then(|()| status(call)),
        _ => Err(bad("BF.REBUILD", "BEGIN, ADD, ADDBULK, COMMIT, ABORT or STATUS after the key")),
    }
}

/// Refuses a subcommand that needs memory if the server is above its memory limit. A flag of the command can't do this,
/// because it would also apply to COMMIT and ABORT, which free memory.
fn refuse_without_memory<'a, C: Call<'a>>(call: &C) -> Result<(), CommandError> {
    if !call.is_from_primary() && call.is_out_of_memory() { Err(CommandError::OutOfMemory) } else { Ok(()) }
}

fn begin<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    refuse_without_memory(call)?;
    let mut key = call.open::<Filter>(1, Access::Write);
    let live = key.bloom()?;
    if rebuild_in(&key).is_some() {
        return Err(CommandError::Rebuilding);
    }
    let Reservation { spec, since_ms } = shadow(call, live)?;
    // A window without a period doesn't use the time.
    let since_ms = match spec.family {
        Family::Window { every_ms: 1.., .. } => since_ms.unwrap_or_else(|| call.now_ms()),
        _ => 0,
    };
    if spec.is_list() {
        // Refuses what COMMIT would refuse, before the client sends the items.
        spec.built(0).next_shape(&[])?;
    }
    let [live_bytes, reserved] = [LiveRef::bytes, LiveRef::reserved_bytes].map(|of| live.map_or(0, of));
    let admit = |bytes| {
        admit_reserved(call, reserved.saturating_add(bytes))?;
        admit_new(call, live_bytes.saturating_add(bytes), bytes)
    };
    let made = Bloom::new_admitted(spec, since_ms, admit)?;
    if live.is_none() {
        key.create(Bloom::new(spec.built(0))?.into());
    }
    catch_up(call, &mut key)?;
    let made = made.in_step_with(key.bloom()?.and_then(|live| live.window()));
    let since_ms = made.window().map_or(0, |window| window.schedule().since_ms);
    let words = creation(&made.spec(), since_ms, false);
    key.convert(|filter| filter.begin_rebuild(made), Filter::take).ok_or(CommandError::NotFound)??;
    if let Some(live) = key.bloom()? {
        live.usage_so_far().rebuild_begins();
    }
    call.replicate(Effect::Arguments("bf.rebuild", in_words(words)));
    call.changed(c"bf.rebuild.begin");
    Ok(Reply::Ok)
}

/// Converts the arguments of a BF.RESERVE (error rate, capacity, options) to those of a BF.REBUILD BEGIN.
fn in_words(creation: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut words = vec![b"BEGIN".to_vec()];
    let names = [&b"ERROR"[..], b"CAPACITY"].into_iter().map(Some).chain(std::iter::repeat(None));
    for (name, value) in names.zip(creation) {
        words.extend(name.map(<[u8]>::to_vec));
        words.push(value);
    }
    words
}

/// Opens a key in which a rebuild is running, and carries out the rotations that are due.
fn open_rebuild<'a, C: Call<'a>>(call: &C) -> Result<C::Key<Filter>, CommandError> {
    refuse_without_memory(call)?;
    let mut key = call.open::<Filter>(1, Access::Write);
    key.bloom()?.ok_or(CommandError::NotFound)?;
    if rebuild_in(&key).is_none() {
        return Err(not_rebuilding(&key));
    }
    catch_up(call, &mut key)?;
    // If the shadow could not follow the rotation, the rebuild has just ended.
    if rebuild_in(&key).is_none() { Err(not_rebuilding(&key)) } else { Ok(key) }
}

/// ADD: adds the items to the shadow only.
fn add<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let count = call.argc().saturating_sub(FIRST_ITEM);
    limit_items(call, count)?;
    let mut key = open_rebuild(call)?;
    let Some(Target::Both(rebuild)) = key.target()? else { return Err(CommandError::Internal) };
    let Backfill { changed, done, refused } = backfill(call, rebuild, FIRST_ITEM);
    if !changed.is_empty() {
        // Includes the index of the word ADD, which comes before the items.
        let words: Vec<usize> = std::iter::once(FIRST_ITEM.saturating_sub(1)).chain(changed).collect();
        let verbatim = words.len() > count;
        call.replicate(if verbatim { Effect::Verbatim } else { Effect::Items("bf.rebuild", &words) });
        call.changed(c"bf.rebuild.add");
    }
    match refused {
        None => Ok(Reply::Ok),
        Some(why) => Err(CommandError::Stopped { done, of: Some(count), why: Box::new(why) }),
    }
}

/// ADDBULK: adds the items of a blob to the shadow only.
fn add_bulk<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let mut blobs = Parts::parse(call, FIRST_ITEM)?;
    // The first part, which may be the whole blob, is checked before anything changes.
    let part = blobs.next()?;
    let mut key = open_rebuild(call)?;
    let Some(Target::Both(rebuild)) = key.target()? else { return Err(CommandError::Internal) };
    let BulkBackfill { blobs, done, changed, refused } = backfill_bulk(call, rebuild, blobs, part);
    if changed {
        call.replicate(match blobs.are_done() {
            true => Effect::Verbatim,
            false => Effect::Arguments("bf.rebuild", [vec![b"ADDBULK".to_vec()], blobs.done()].concat()),
        });
        call.changed(c"bf.rebuild.add");
    }
    if let Some(why) = refused {
        return Err(CommandError::Stopped { done, of: blobs.of(), why: Box::new(why) });
    }
    if !blobs.are_done() {
        call.go_on_later(blobs.rest());
    }
    Ok(Reply::Ok)
}

fn commit<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open::<Filter>(1, Access::Write);
    key.bloom()?.ok_or(CommandError::NotFound)?;
    match rebuild_in(&key) {
        Some(rebuild) if rebuild.shadow().spec().is_list() => build(call, key),
        _ => end(call, key, COMMITTED, |filter| Some(vec![filter.commit_rebuild()?.into()])),
    }
}

/// Builds a static filter from the shadow, which is a list, and commits it. The result depends only on the list, so
/// replicas build the same filter.
fn build<'a, C: Call<'a>>(call: &C, key: C::Key<Filter>) -> Result<Reply, CommandError> {
    let list = rebuild_in(&key).ok_or(CommandError::Internal)?.shadow();
    let items = list.items();
    let bytes = Bloom::bytes_for(&list.spec().built(items))?;
    let most = bytes.saturating_add(items.saturating_mul(list.build_bytes()));
    if call.goes_to_background(items.saturating_mul(BUILD_COST)) {
        let memory = Admitted::for_background_work(call, bytes, most)?;
        let inputs: Arc<[Live]> = Arc::new([LiveRef::Bloom(list).share()]);
        let job = Background { keys: vec![1], inputs: inputs.clone(), data: Data::Arguments(0..0), memory };
        return call.in_background(job, Build { inputs, items });
    }
    // The server evicts nothing until the command has ended. By then, the list's memory is free.
    let _admitted = Admitted::in_new_key(call, bytes, most)?;
    let built = list.build(&|tasks, task| call.parallel(tasks, task))?;
    commit_built(call, key, built)
}

/// A COMMIT whose filter is built in the background.
struct Build {
    /// The list.
    inputs: Arc<[Live]>,
    items: u64,
}

impl TwoStep for Build {
    type Prepared = Result<Bloom, Error>;

    fn prepare(&mut self, _: &[&[u8]], parallel: &ParallelFor<'_>) -> Result<Bloom, Error> {
        match &*self.inputs {
            [Live::Bloom(list)] => list.build(parallel),
            _ => Err(Error::Mismatch),
        }
    }

    fn commit<'a, C: Call<'a>>(
        self,
        call: &C,
        built: impl FnOnce() -> Self::Prepared,
    ) -> Result<Reply, CommandError> {
        let key = call.open::<Filter>(1, Access::Write);
        key.bloom()?.ok_or(CommandError::NotFound)?;
        let list = rebuild_in(&key).ok_or_else(|| not_rebuilding(&key))?.shadow();
        still_in_keys(&self.inputs, &[LiveRef::Bloom(list)])?;
        let built = built()?;
        // If the filter was in another key during the work, the list might have received items there that the built
        // filter lacks.
        if list.items() != self.items {
            return Err(CommandError::Changed);
        }
        commit_built(call, key, built)
    }
}

/// Ends the rebuild with a filter that was built from its list.
fn commit_built<'a, C: Call<'a>>(call: &C, key: C::Key<Filter>, built: Bloom) -> Result<Reply, CommandError> {
    end(call, key, COMMITTED, |filter| {
        let (live, list) = filter.commit_built(built)?;
        Some(vec![live.into(), list.into()])
    })
}

fn abort<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open::<Filter>(1, Access::Write);
    key.bloom()?.ok_or(CommandError::NotFound)?;
    end(call, key, c"bf.rebuild.abort", |filter| Some(vec![filter.abort_rebuild()?.into()]))
}

fn end<'a, C: Call<'a>>(
    call: &C,
    mut key: C::Key<Filter>,
    event: &'static CStr,
    end: impl FnOnce(&mut Filter) -> Option<Vec<Garbage>>,
) -> Result<Reply, CommandError> {
    let dropped = key.convert(end, Filter::take).flatten().ok_or_else(|| not_rebuilding(&key))?;
    dropped.into_iter().for_each(|garbage| call.discard(garbage));
    call.replicate(Effect::Verbatim);
    call.changed(event);
    Ok(Reply::Ok)
}

fn status<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open::<Filter>(1, Access::Read);
    key.bloom()?.ok_or(CommandError::NotFound)?;
    if let Some(rebuild) = rebuild_in(&key) {
        return Ok(Reply::Map(fields(&rebuild.summary(), Replies::Both)));
    }
    let why = why_ended(&key);
    let mut fields = vec![("Status", Reply::from("none"))];
    fields.extend(why.map(|why| ("Ended because", Reply::from(why.as_str()))));
    Ok(Reply::Map(fields))
}

/// The error if there is no rebuild to add to, commit or abort.
fn not_rebuilding(key: &impl Key<Filter>) -> CommandError {
    CommandError::NotRebuilding(why_ended(key))
}

/// Why the last rebuild of the filter in a key ended, if it ended by itself.
fn why_ended(key: &impl Key<Filter>) -> Option<String> {
    key.bloom().ok()??.usage_so_far().why_rebuild_ended()
}
