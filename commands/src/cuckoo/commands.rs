//! CF.*: the commands on cuckoo filters, except SCANDUMP, LOADCHUNK, and those that describe a filter.
//!
//! What a filter does depends only on its own state, the items, and their order. So a replica that receives the adds
//! and deletes that changed the primary grows, moves and compacts exactly as the primary did.

use crate::call::{Access, Admitted, Background, Call, Data, Effect, Key, TwoStep, Unusable};
use crate::error::CommandError;
use crate::grow::{Growing, add_one, admit_new};
use crate::items::{Mode, STEP_BYTES, items, limit_items, pauses};
use crate::options::cuckoo::{creation, insertion, new_filter, reservation};
use crate::options::redisbloom;
use crate::reply::{Answer, Answers, Reply};
use crate::table::{
    self, Entry, ITEMS, KeyUse, Timing, command,
    cuckoo::{INSERT, O_N, O_N_M, RESERVE},
};
use bloomery::Error;
use bloomery::filter::cuckoo::{GROUP, Table};
use bloomery::filter::{Cuckoo, CuckooHash, CuckooSpec, Origin};
use bloomery::parallel::{ParallelFor, is_wanted};
use smallvec::SmallVec;
use std::sync::Arc;

/// The index of the first or only item among the arguments, in all commands except INSERT and INSERTNX.
const ITEM: usize = 2;

/// The index of the first item in a CF.INSERT without options.
const INSERTED: usize = 3;

/// Number of slots that the lookups of a group of items may visit before the clock is read again. Reading them touches
/// up to 16,384 cache lines, which takes a millisecond.
const LOOKED_AT: usize = if cfg!(small_steps) { 1 } else { 1 << 14 };

/// Minimum number of items in a group.
const LEAST_GROUP: usize = if cfg!(small_steps) { 1 } else { 4 };

/// Number of slots that searches for room visit between two readings of the clock. Visiting them takes 10 µs.
const SEARCHED: u64 = 1 << 10;

/// A search for room with at most this many moves isn't timed, because it takes at most a few hundred µs.
const SHORT_WALK: u16 = 4096;

/// Maximum number of steps in a compaction by CF.COMPACT. A step takes 10 to 100 ns. The next CF.COMPACT continues the
/// compaction.
const COMPACTED_BY_COMMAND: u64 = 1 << 15;

/// Maximum number of steps in a compaction by a delete. Without a compaction, a delete takes only a microsecond. Later
/// deletes continue the compaction.
const COMPACTED_BY_DELETE: u64 = 1 << 14;

/// Number of bytes of cells that a merge processes in the time that one step of a compaction takes. 32,768 steps block
/// the server for one to two milliseconds.
const BYTES_OF_A_STEP: u64 = 64;

command!(
    Reserve,
    |call| reserve(call),
    Entry {
        name: "cf.reserve",
        arity: -3,
        key: KeyUse::Insert,
        flags: "deny-oom",
        categories: "fast",
        summary: "Creates an empty cuckoo filter",
        since: "1.0.0",
        arguments: RESERVE,
        timing: Timing::IfLong,
        ..Entry::PLAIN
    }
);

/// `CF.RESERVE key capacity [option…]`.
fn reserve<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let spec = if redisbloom::reserves(call) { redisbloom::cuckoo(call)? } else { reservation(call)? };
    let mut key = call.open::<Cuckoo>(1, Access::Write);
    if key.value()?.is_some() {
        return Err(CommandError::Exists);
    }
    create(call, &mut key, spec)?;
    Ok(Reply::Ok)
}

/// Creates a filter in an opened, empty key, and replicates its creation with every parameter.
#[inline(never)]
fn create<'a, C: Call<'a>>(call: &C, key: &mut C::Key<Cuckoo>, spec: CuckooSpec) -> Result<(), CommandError> {
    let bytes = spec.bytes_of(spec.first_buckets());
    admit_new(call, bytes, bytes)?;
    key.create(Cuckoo::new(spec)?);
    call.replicate(Effect::Creation("cf.reserve", &|| creation(&spec)));
    call.changed(c"cf.reserve");
    Ok(())
}

command!(
    Add,
    |call| add(call, Mode::Add),
    Entry {
        name: "cf.add",
        arity: 3,
        key: KeyUse::Insert,
        flags: "deny-oom",
        summary: "Adds an item to a cuckoo filter, creating it if needed",
        complexity: O_N,
        since: "1.0.0",
        arguments: table::ITEM,
        timing: Timing::IfLong,
        ..Entry::PLAIN
    }
);

command!(
    Addnx,
    |call| add(call, Mode::AddIfAbsent),
    Entry { name: "cf.addnx", summary: "Adds an item to a cuckoo filter only if it is absent", ..Add::ENTRY }
);

/// `CF.ADD key item`, `CF.ADDNX key item`.
#[inline(always)]
fn add<'a, C: Call<'a>>(call: &C, mode: Mode) -> Result<Reply, CommandError> {
    let mut key = call.open::<Cuckoo>(1, Access::Write);
    if key.value()?.is_none() {
        create(call, &mut key, new_filter(call)?)?;
    }
    let filter = key.value_mut()?.ok_or(CommandError::NotFound)?;
    let item = filter.hash(call.arg(ITEM));
    let added = add_item(call, filter, item, mode, &mut Growing::default())?;
    if added {
        // An ADDNX has the same effect on every replica, because the item is absent there too.
        call.replicate(Effect::Verbatim);
        call.changed(c"cf.add");
    }
    Ok(Reply::Bool(added))
}

command!(
    Insert,
    |call| insert(call, Mode::Add),
    Entry {
        name: "cf.insert",
        arity: -4,
        key: KeyUse::Insert,
        flags: "deny-oom",
        summary: "Adds items to a cuckoo filter, creating it with the given capacity if needed",
        complexity: O_N_M,
        since: "1.0.0",
        arguments: INSERT,
        timing: Timing::IfLong,
        in_pieces: true,
        ..Entry::PLAIN
    }
);

command!(
    Insertnx,
    |call| insert(call, Mode::AddIfAbsent),
    Entry {
        name: "cf.insertnx",
        summary: "Adds items to a cuckoo filter only if they are absent, creating it if needed",
        ..Insert::ENTRY
    }
);

/// `CF.INSERT key [option…] ITEMS item…`, `CF.INSERTNX …`.
fn insert<'a, C: Call<'a>>(call: &C, mode: Mode) -> Result<Reply, CommandError> {
    let insertion =
        if call.is_from_primary() { redisbloom::cuckoo_insertion(call)? } else { insertion(call)? };
    let first = insertion.first_item;
    limit_items(call, call.argc().saturating_sub(first))?;
    let mut key = call.open::<Cuckoo>(1, Access::Write);
    if key.value()?.is_none() {
        create(call, &mut key, insertion.spec(call)?)?;
    }
    let filter = key.value_mut()?.ok_or(CommandError::NotFound)?;
    let answers = add_arguments(call, filter, first, mode);
    replicate_added(call, first, &answers);
    Ok(match mode {
        Mode::Add => Reply::Inserted(answers),
        Mode::AddIfAbsent => Reply::InsertedIfAbsent(answers),
    })
}

/// Adds the arguments starting at index `first`, in order, until the command should pause.
fn add_arguments<'a, C: Call<'a>>(
    call: &C,
    filter: &mut Cuckoo,
    first: usize,
    mode: Mode,
) -> SmallVec<[Answer; 64]> {
    let items = call.argc().saturating_sub(first);
    if items > 1 && filter.longest_walk() > SHORT_WALK {
        // A search for room can take 40 ms, even for the first item of a command or of a piece. After such a search,
        // the command pauses.
        call.may_be_long();
    }
    let mut answers = SmallVec::from_elem(Answer::Refused, items);
    let mut growing = Growing::default();
    let mut group = [CuckooHash::default(); GROUP];
    let (mut done, mut searched) = (0usize, filter.searched());
    while done < items && !pauses(call, first, done, GROUP) {
        let (prefetcher, mut len, mut bytes) = (filter.prefetcher(), 0usize, 0usize);
        let next = first.saturating_add(done)..call.argc();
        for (hash, index) in group.iter_mut().take(group_of(filter)).zip(next) {
            let item = call.arg(index);
            *hash = prefetcher.hash(item);
            len = len.saturating_add(1);
            bytes = bytes.saturating_add(item.len());
            if bytes >= STEP_BYTES {
                break;
            }
        }
        let mut hashes = group.get(..len).unwrap_or_default();
        loop {
            if mode == Mode::Add {
                let added = filter.insert_each(hashes);
                answers.iter_mut().skip(done).take(added).for_each(|answer| *answer = Answer::Yes);
                hashes = hashes.get(added..).unwrap_or_default();
                done = done.saturating_add(added);
            }
            let Some((item, rest)) = hashes.split_first() else { break };
            let added = add_item(call, filter, *item, mode, &mut growing);
            if let (Ok(added), Some(answer)) = (added, answers.get_mut(done)) {
                *answer = Answer::from(added);
            }
            (hashes, done) = (rest, done.saturating_add(1));
            // A long search can take as long as adding a whole group of items that need no search.
            if filter.searched().wrapping_sub(searched) >= SEARCHED {
                searched = filter.searched();
                if call.should_pause(done) {
                    break;
                }
            }
        }
    }
    answers.truncate(done);
    answers
}

/// Replicates the items that were added. The command's items are its arguments starting at index `first`. If a
/// command without options has added all its items, the command itself is replicated, so that no other command has to
/// be built.
fn replicate_added<'a, C: Call<'a>>(call: &C, first: usize, answers: &[Answer]) {
    let is_added = |answer: &Answer| *answer == Answer::Yes;
    let added = answers.iter().copied().filter(is_added).count();
    if added == 0 {
        return;
    }
    let all = added == call.argc().saturating_sub(first);
    if all && first == INSERTED {
        call.replicate(Effect::Verbatim);
    } else {
        let items = answers.iter().zip(first..).filter(|(answer, _)| is_added(answer));
        let items = items.map(|(_, index)| index);
        let mut words = SmallVec::<[usize; 64]>::with_capacity(answers.len().saturating_add(1));
        // The word ITEMS comes before the items.
        words.push(first.saturating_sub(1));
        words.extend(items);
        call.replicate(Effect::Items("cf.insert", &words));
    }
    call.changed(c"cf.add");
}

/// Number of items in a group. A group is processed between two readings of the clock, so it is smaller if each item is
/// looked up in hundreds of sub-filters.
fn group_of(filter: &Cuckoo) -> usize {
    match filter.slots_asked() {
        // This is the case for nearly all filters, which thus avoid the division.
        asked if asked <= LOOKED_AT / GROUP => GROUP,
        asked => LOOKED_AT.checked_div(asked).unwrap_or(GROUP).clamp(LEAST_GROUP, GROUP),
    }
}

/// Adds one item, or skips it if only absent items are to be added and it is present. Grows the filter within its
/// limits. Returns whether the item was added.
#[inline(always)]
fn add_item<'a, C: Call<'a>>(
    call: &C,
    filter: &mut Cuckoo,
    item: CuckooHash,
    mode: Mode,
    growing: &mut Growing,
) -> Result<bool, CommandError> {
    if mode == Mode::AddIfAbsent && filter.contains(item) {
        return Ok(false);
    }
    add_one(call, filter, item, growing).map(|done| done.added)
}

/// The filter to test. As in RedisBloom, a missing key or a key of another type contains nothing.
#[inline(always)]
fn asked<K: Key<Cuckoo>>(key: &K) -> Option<&Cuckoo> {
    key.value().ok().flatten()
}

command!(
    Exists,
    |call| test(call),
    Entry {
        name: "cf.exists",
        arity: 3,
        summary: "Tests whether an item may be in a cuckoo filter",
        complexity: O_N,
        tips: "",
        since: "1.0.0",
        arguments: table::ITEM,
        timing: Timing::Never,
        ..Entry::PLAIN
    }
);

/// `CF.EXISTS key item`.
#[inline(always)]
fn test<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open::<Cuckoo>(1, Access::Read);
    let present = asked(&key).is_some_and(|filter| filter.contains(filter.hash(call.arg(ITEM))));
    Ok(Reply::Bool(present))
}

command!(
    Mexists,
    |call| test_many(call),
    Entry {
        name: "cf.mexists",
        arity: -3,
        summary: "Tests whether items may be in a cuckoo filter",
        complexity: O_N_M,
        tips: "",
        since: "1.0.0",
        arguments: ITEMS,
        timing: Timing::IfLong,
        in_pieces: true,
        ..Entry::PLAIN
    }
);

/// `CF.MEXISTS key item…`.
fn test_many<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    limit_items(call, call.argc().saturating_sub(ITEM))?;
    let key = call.open::<Cuckoo>(1, Access::Read);
    let mut answers = Answers::default();
    answers.answers.reserve(call.argc().saturating_sub(ITEM));
    match asked(&key) {
        None => answers.answers.extend(items(call, ITEM, GROUP).map(|_| Answer::No)),
        Some(filter) => {
            let group = group_of(filter);
            let prefetcher = filter.prefetcher();
            let items = items(call, ITEM, group).map(|item| prefetcher.hash(item));
            filter.test_each(items, group, |hits, len| {
                answers.answers.extend((0..len).map(|index| Answer::from(hits.has(index))));
            });
        }
    }
    Ok(Reply::Answers(answers))
}

command!(
    Count,
    |call| count(call),
    Entry {
        name: "cf.count",
        summary: "Estimates how often an item was added to a cuckoo filter",
        ..Exists::ENTRY
    }
);

/// `CF.COUNT key item`.
fn count<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open::<Cuckoo>(1, Access::Read);
    Ok(asked(&key).map_or(0, |filter| filter.count(filter.hash(call.arg(ITEM)))).into())
}

command!(
    Del,
    |call| delete(call),
    Entry {
        name: "cf.del",
        arity: 3,
        key: KeyUse::Delete,
        summary: "Deletes one occurrence of an item from a cuckoo filter",
        complexity: O_N,
        since: "1.0.0",
        arguments: table::ITEM,
        timing: Timing::IfLong,
        ..Entry::PLAIN
    }
);

/// The filter to change. As in RedisBloom, a missing key and a key of another type get the same error.
fn existing<K: Key<Cuckoo>>(key: &mut K, not_found: CommandError) -> Result<&mut Cuckoo, CommandError> {
    match key.value_mut() {
        Err(why @ Unusable::Locked) => Err(why.into()),
        found => found.ok().flatten().ok_or(not_found),
    }
}

/// `CF.DEL key item`. If the filter is [sparse](Cuckoo::is_sparse) afterwards, compacts it.
fn delete<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let mut key = call.open::<Cuckoo>(1, Access::Write);
    let filter = existing(&mut key, CommandError::RedisBloom("Not found"))?;
    let item = filter.hash(call.arg(ITEM));
    if compacts_whole(filter) && filter.is_sparse_after(1) && filter.contains(item) {
        return compact_whole(call, filter, Compaction::AfterDelete(item));
    }
    Ok(if filter.remove(item) { deleted(call, filter) } else { Reply::Bool(false) })
}

/// Ends a delete that has removed an item.
fn deleted<'a, C: Call<'a>>(call: &C, filter: &mut Cuckoo) -> Reply {
    if filter.is_sparse() {
        call.may_be_long();
        call.discard(filter.compact_within(false, COMPACTED_BY_DELETE).into());
    }
    call.replicate(Effect::Verbatim);
    call.changed(c"cf.del");
    Reply::Bool(true)
}

command!(
    Compact,
    |call| compact(call),
    Entry {
        name: "cf.compact",
        key: KeyUse::Update,
        summary: "Moves the items of newer sub-filters into older ones and frees those that are empty",
        complexity: "O(n), where n is the number of slots",
        since: "1.0.0",
        ..Entry::PLAIN
    }
);

/// `CF.COMPACT key`.
fn compact<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let mut key = call.open::<Cuckoo>(1, Access::Write);
    let filter = existing(&mut key, Compaction::Requested.not_found())?;
    if compacts_whole(filter) {
        return compact_whole(call, filter, Compaction::Requested);
    }
    let before = shape(filter);
    call.discard(filter.compact_within(true, COMPACTED_BY_COMMAND).into());
    Ok(compacted(call, filter, before))
}

/// What a compaction changes: the numbers of moves, of deletes, and of sub-filters.
type Shape = (u64, u64, usize);

fn shape(filter: &Cuckoo) -> Shape {
    (filter.moves(), filter.deletes(), filter.tables().len())
}

/// Ends a CF.COMPACT, before which the filter had the shape `before`.
fn compacted<'a, C: Call<'a>>(call: &C, filter: &Cuckoo, before: Shape) -> Reply {
    if shape(filter) != before {
        call.replicate(Effect::Verbatim);
        call.changed(c"cf.compact");
    }
    Reply::Ok
}

/// Whether each compaction of this filter runs to its end, as in RedisBloom. This is so for RedisBloom's filters: this
/// server's primary or replica might run RedisBloom, and both servers must have the same sub-filters afterwards.
fn compacts_whole(filter: &Cuckoo) -> bool {
    filter.spec().origin == Origin::RedisBloom
}

/// Number of steps of a background compaction after which other jobs can get their turn. These steps take about a
/// millisecond.
const STEPS_OF_A_TASK: u64 = 1 << 14;

/// A function that returns whether a compaction continues. It gets the number of steps so far.
type GoOn<'g> = &'g mut dyn FnMut(u64) -> bool;

/// A complete compaction of a filter.
#[derive(Clone, Copy)]
enum Compaction {
    /// Deletes an item first.
    AfterDelete(CuckooHash),
    Requested,
}

impl Compaction {
    fn run(self, filter: &mut Cuckoo, go_on: GoOn<'_>) -> Vec<Table> {
        match self {
            Compaction::AfterDelete(item) => {
                filter.remove(item);
                filter.compact_while(false, go_on)
            }
            Compaction::Requested => filter.compact_while(true, go_on),
        }
    }

    /// The error for a key that doesn't hold a cuckoo filter.
    fn not_found(self) -> CommandError {
        CommandError::RedisBloom(match self {
            Compaction::AfterDelete(_) => "Not found",
            Compaction::Requested => "Cuckoo filter was not found",
        })
    }

    /// Ends the command whose compaction is done. `before` is the [shape] before the compaction.
    fn end<'a, C: Call<'a>>(self, call: &C, filter: &mut Cuckoo, before: Shape) -> Reply {
        match self {
            Compaction::AfterDelete(_) => deleted(call, filter),
            Compaction::Requested => compacted(call, filter, before),
        }
    }
}

/// A complete compaction in the background: a worker compacts a copy, because in the filter itself a reader could miss
/// an item that is being moved.
struct CompactCopy {
    compaction: Compaction,
    /// The filter before the compaction. It shares the memory of the filter in the key.
    of: Cuckoo,
}

impl TwoStep for CompactCopy {
    /// The compacted copy.
    type Prepared = Result<Cuckoo, Error>;

    fn prepare(&mut self, _: &[&[u8]], parallel: &ParallelFor<'_>) -> Self::Prepared {
        let mut copy = self.of.copy(parallel)?;
        let mut next = STEPS_OF_A_TASK;
        drop(self.compaction.run(&mut copy, &mut |steps| {
            if steps < next {
                return true;
            }
            next = steps.saturating_add(STEPS_OF_A_TASK);
            is_wanted(parallel)
        }));
        Ok(copy)
    }

    fn commit<'a, C: Call<'a>>(
        self,
        call: &C,
        copy: impl FnOnce() -> Self::Prepared,
    ) -> Result<Reply, CommandError> {
        let (CompactCopy { compaction, of }, mut key) = (self, call.open::<Cuckoo>(1, Access::Write));
        let filter = existing(&mut key, compaction.not_found())?;
        if !filter.is_shared_with(&of) {
            call.discard(of.into());
            return Err(CommandError::Changed);
        }
        let before = shape(filter);
        let old = std::mem::replace(filter, copy()?);
        [of, old].into_iter().for_each(|filter| call.discard(filter.into()));
        Ok(compaction.end(call, filter, before))
    }
}

/// Compacts a filter completely, and ends the command, now or in the background.
fn compact_whole<'a, C: Call<'a>>(
    call: &C,
    filter: &mut Cuckoo,
    compaction: Compaction,
) -> Result<Reply, CommandError> {
    if call.goes_to_background(filter.most_steps().saturating_mul(BYTES_OF_A_STEP)) {
        let bytes = filter.bytes();
        match (Admitted::for_background_work(call, bytes, bytes), compaction) {
            (Ok(memory), _) => {
                let of = filter.share();
                let job =
                    Background { keys: vec![1], inputs: Arc::new([]), data: Data::Arguments(0..0), memory };
                return call.in_background(job, CompactCopy { compaction, of });
            }
            // A delete never fails for lack of memory. Without enough memory for a copy, it compacts the filter itself,
            // on this thread.
            (Err(CommandError::Background(_)), Compaction::AfterDelete(_)) => {}
            (Err(why), _) => return Err(why),
        }
    }
    call.may_be_long();
    let before = shape(filter);
    call.discard(compaction.run(filter, &mut |_| true).into());
    Ok(compaction.end(call, filter, before))
}
