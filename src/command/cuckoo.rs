//! CF.*: commands on cuckoo filters, except SCANDUMP and LOADCHUNK.
//!
//! What a filter does depends only on its own state, the items and their order. So a replica that receives the adds
//! and deletes that changed the primary grows, moves and compacts exactly as the primary did.

use super::call::{Access, Call, Effect, Key};
use super::describe::identity;
use super::error::CommandError;
use super::options::cuckoo::{Insertion, creation, insertion, new_filter, reservation};
use super::options::redisbloom;
use super::reply::{Answer, Answers, Reply};
use super::table::Command;
use super::write::{CUCKOO_STEP, Growing, Mode, add_one, indices, limit_items};
use crate::filter::{Cuckoo, CuckooHash, CuckooSpec, FilterRef, Origin};
use smallvec::{SmallVec, smallvec};

/// Argument of the item, in all commands but INSERT.
const ITEM: usize = 2;

/// Steps of a compaction by CF.COMPACT. One takes 10 to 100 ns. The next command goes on.
const COMPACTED_BY_COMMAND: u64 = 1 << 15;

/// Steps of a compaction by a delete, which would take a microsecond otherwise. The next deletes go on.
const COMPACTED_BY_DELETE: u64 = 1 << 14;

/// `CF.RESERVE key capacity [option…]`.
pub(super) fn reserve<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let spec = if redisbloom::reserves(call) { redisbloom::cuckoo(call)? } else { reservation(call)? };
    let mut key = call.open(1, Access::Write);
    if key.cuckoo()?.is_some() {
        return Err(CommandError::Exists);
    }
    create(call, &mut key, spec)?;
    Ok(Reply::Ok)
}

/// RedisBloom's filters have no seed.
fn seeded(spec: CuckooSpec) -> Result<CuckooSpec, CommandError> {
    if spec.origin == Origin::Bloomery { Ok(spec.with_random_seed()?) } else { Ok(spec) }
}

/// Creates a filter in an opened, empty key, and replicates its creation with every parameter.
fn create<'a, C: Call<'a>>(call: &C, key: &mut C::Key, spec: CuckooSpec) -> Result<(), CommandError> {
    if !call.obeys() {
        let bytes = spec.bytes_of(spec.first_buckets());
        call.admit(bytes, bytes)?;
    }
    let filter = Cuckoo::new(spec)?;
    call.replicate(Effect::Arguments(Command::CfReserve, creation(filter.spec())));
    key.create(filter.into());
    call.changed(c"cf.reserve");
    Ok(())
}

/// `CF.ADD key item`, `CF.ADDNX key item`.
#[inline(always)]
pub(super) fn add<'a, C: Call<'a>>(call: &C, mode: Mode) -> Result<Reply, CommandError> {
    let mut key = call.open(1, Access::Write);
    if key.cuckoo()?.is_none() {
        create(call, &mut key, seeded(new_filter(call))?)?;
    }
    let filter = key.cuckoo_mut()?.ok_or(CommandError::NotFound)?;
    let item = filter.hash(call.arg(ITEM));
    let added = add_item(call, filter, item, mode, &mut Growing::default())?;
    if added {
        call.replicate(if mode == Mode::Add {
            Effect::Verbatim
        } else {
            Effect::Items(Command::CfAdd, &[ITEM])
        });
        call.changed(c"cf.add");
    }
    Ok(Reply::Bool(added))
}

/// `CF.INSERT key [option…] ITEMS item…`, `CF.INSERTNX …`.
pub(super) fn insert<'a, C: Call<'a>>(call: &C, mode: Mode) -> Result<Reply, CommandError> {
    let Insertion { spec, create: may_create, first_item } =
        if call.obeys() { redisbloom::cuckoo_insertion(call)? } else { insertion(call)? };
    limit_items(call, call.argc().saturating_sub(first_item))?;
    let mut key = call.open(1, Access::Write);
    if key.cuckoo()?.is_none() {
        if !may_create {
            return Err(CommandError::NotFound);
        }
        create(call, &mut key, seeded(spec)?)?;
    }
    let filter = key.cuckoo_mut()?.ok_or(CommandError::NotFound)?;
    // Includes the word ITEMS, which comes before the items.
    let mut added: SmallVec<[usize; 64]> = smallvec![first_item.saturating_sub(1)];
    let mut growing = Growing::default();
    let replies = indices(call, first_item, CUCKOO_STEP).map(|index| {
        let outcome = add_item(call, filter, filter.hash(call.arg(index)), mode, &mut growing);
        if outcome == Ok(true) {
            added.push(index);
        }
        match (mode, outcome) {
            (Mode::Add, outcome) => Reply::Inserted(outcome.is_ok()),
            (Mode::AddIfAbsent, Ok(added)) => Reply::Integer(added.into()),
            (Mode::AddIfAbsent, Err(_)) => Reply::Integer(-1),
        }
    });
    let replies = replies.collect();
    if added.len() > 1 {
        call.replicate(Effect::Items(Command::CfInsert, &added));
        call.changed(c"cf.add");
    }
    Ok(Reply::Array(replies))
}

/// Adds one item, growing the filter within its limits.
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

/// The filter to test. As in RedisBloom, a missing key and a key of another type hold nothing.
#[inline(always)]
fn asked<K: Key>(key: &K) -> Option<&Cuckoo> {
    key.cuckoo().ok().flatten()
}

/// `CF.EXISTS key item`.
#[inline(always)]
pub(super) fn test<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open(1, Access::Read);
    let present = asked(&key).is_some_and(|filter| filter.contains(filter.hash(call.arg(ITEM))));
    Ok(Reply::Bool(present))
}

/// `CF.MEXISTS key item…`.
pub(super) fn test_many<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    limit_items(call, call.argc().saturating_sub(ITEM))?;
    let key = call.open(1, Access::Read);
    let filter = asked(&key);
    let present = |index| filter.is_some_and(|filter| filter.contains(filter.hash(call.arg(index))));
    let mut answers = Answers::default();
    answers.answers.reserve(call.argc().saturating_sub(ITEM));
    answers.answers.extend(indices(call, ITEM, CUCKOO_STEP).map(|index| Answer::from(present(index))));
    Ok(Reply::Answers(answers))
}

/// `CF.COUNT key item`.
pub(super) fn count<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open(1, Access::Read);
    Ok(asked(&key).map_or(0, |filter| filter.count(filter.hash(call.arg(ITEM)))).into())
}

/// `CF.DEL key item`. Compacts a filter that has grown once a tenth of its items has been deleted.
pub(super) fn delete<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let mut key = call.open(1, Access::Write);
    let filter = key.cuckoo_mut().ok().flatten().ok_or(CommandError::RedisBloom("Not found"))?;
    let removed = filter.remove(filter.hash(call.arg(ITEM)));
    if removed {
        if filter.is_sparse() {
            // A replica of RedisBloom must have the same sub-filters as its primary, which compacts them at once.
            let is_theirs = filter.spec().origin == Origin::RedisBloom;
            let most = if is_theirs { u64::MAX } else { COMPACTED_BY_DELETE };
            call.discard(filter.compact_within(false, most).into());
        }
        call.replicate(Effect::Verbatim);
        call.changed(c"cf.del");
    }
    Ok(Reply::Bool(removed))
}

/// `CF.COMPACT key`.
pub(super) fn compact<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let mut key = call.open(1, Access::Write);
    let filter = key.cuckoo_mut().ok().flatten();
    let filter = filter.ok_or(CommandError::RedisBloom("Cuckoo filter was not found"))?;
    let before = (filter.moves(), filter.deletes(), filter.tables().len());
    call.discard(filter.compact_within(true, COMPACTED_BY_COMMAND).into());
    if (filter.moves(), filter.deletes(), filter.tables().len()) != before {
        call.replicate(Effect::Verbatim);
        call.changed(c"cf.compact");
    }
    Ok(Reply::Ok)
}

/// `CF.INFO key [FULL]`.
pub(super) fn info<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let is_full = match call.argc() {
        2 => false,
        3 if call.arg(2).eq_ignore_ascii_case(b"FULL") => true,
        // As in RedisBloom, where the command has no options.
        _ => return Err(CommandError::Arity),
    };
    let key = call.open(1, Access::Read);
    let filter = key.cuckoo()?.ok_or(CommandError::NotFound)?;
    let spec = filter.spec();
    let mut fields = vec![
        ("Size", (filter.allocated() as u64).into()),
        ("Number of buckets", spec.first_buckets().into()),
        ("Number of filters", (filter.tables().len() as u64).into()),
        ("Number of items inserted", filter.items().into()),
        ("Number of items deleted", filter.deletes().into()),
        ("Bucket size", u64::from(spec.bucket_size).into()),
        ("Expansion rate", u64::from(spec.expansion).into()),
        ("Max iterations", u64::from(spec.max_iterations).into()),
    ];
    if is_full {
        fields.push(("Identity", identity(FilterRef::from(filter).summary(call.now_ms()).identity)));
    }
    Ok(Reply::Map(fields))
}

/// `CF.DEBUG key`: one line, in RedisBloom's format.
pub(super) fn debug<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open(1, Access::Read);
    let filter = key.cuckoo()?.ok_or(CommandError::NotFound)?;
    let spec = filter.spec();
    let line = format!(
        "bktsize:{} buckets:{} items:{} deletes:{} filters:{} max_iterations:{} expansion:{}",
        spec.bucket_size,
        spec.first_buckets(),
        filter.items(),
        filter.deletes(),
        filter.tables().len(),
        spec.max_iterations,
        spec.expansion,
    );
    Ok(Reply::Bulk(line.into_bytes()))
}
