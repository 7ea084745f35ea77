//! TOPK.*: the commands on Top-K sketches.

use super::sketch::Sketch;
use super::stored::bytes_of;
use crate::call::{Access, Call, Effect, Key, Unusable};
use crate::cms::{INCREMENTS, replicate_until};
use crate::error::CommandError;
use crate::grow::admit_new;
use crate::items::{limit_items, pauses};
use crate::options::{integer, number};
use crate::reply::{Answer, Answers, Reply};
use crate::rows::Rows;
use crate::stored::Stored;
use crate::table::ArgumentKind::{Block, Double, Integer};
use crate::table::{Argument, Entry, ITEMS, KeyUse, Timing, command, optional, required, word};

const MISSING: CommandError = CommandError::RedisBloom("TopK: key does not exist");
const EXISTS: CommandError = CommandError::RedisBloom("TopK: key already exists");
const NO_MEMORY: CommandError =
    CommandError::RedisBloom("ERR Insufficient memory to create topk data structure");
const BAD_INCREMENT: CommandError = CommandError::RedisBloom(
    "TopK: increment must be an integer greater or equal to 0                            and smaller or equal to \
     100,000",
);

/// The index of the first item among the arguments.
const ITEM: usize = 2;

/// An item and its increment.
const PAIR: usize = 2;

/// The largest increment.
const MOST: u32 = 100_000;

/// Number of draws, which take 2 ms, after which a group of items ends. Its last item may need more.
const MOST_DRAWS: u64 = 1 << 16;

/// The longest list that a client may ask for. Each add looks for its item in the whole list, which takes 0.7 ms then.
const MOST_LISTED: u32 = 1_000_000;

command!(
    Reserve,
    |call| reserve(call),
    Entry {
        name: "topk.reserve",
        arity: -3,
        key: KeyUse::Insert,
        flags: "deny-oom",
        categories: "fast",
        summary: "Creates a Top-K sketch",
        since: "2.0.0",
        arguments: &[
            required("topk", Integer),
            optional(required(
                "width_depth_decay",
                Block(&[required("width", Integer), required("depth", Integer), required("decay", Double)]),
            )),
        ],
        ..Entry::PLAIN
    }
);

/// `TOPK.RESERVE key topk [width depth decay]`.
fn reserve<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let has_shape = match call.argc() {
        3 => false,
        6 => true,
        _ => return Err(CommandError::Arity),
    };
    let mut key = call.open::<Sketch>(1, Access::Write);
    match key.value() {
        Ok(None) => {}
        // As in RedisBloom, a value of another type is refused in the same words.
        Ok(Some(_)) | Err(Unusable::WrongType) => return Err(EXISTS),
        Err(why) => return Err(why.into()),
    }
    let size = |index, refusal| match integer(call.arg(index)).and_then(|size| u32::try_from(size).ok()) {
        Some(size) if size > 0 => Ok(size),
        _ => Err(CommandError::RedisBloom(refusal)),
    };
    let k = size(2, "TopK: invalid k")?;
    if k > MOST_LISTED && !call.is_from_primary() {
        return Err(CommandError::RedisBloom("TopK: invalid k: the maximum is 1000000"));
    }
    let (width, depth, decay) = if has_shape {
        let (width, depth) = (size(3, "TopK: invalid width")?, size(4, "TopK: invalid depth")?);
        let decay = number(call.arg(5)).filter(|decay| *decay > 0.0 && *decay <= 1.0);
        let bad = CommandError::RedisBloom("TopK: invalid decay value. must be '<= 1' & '> 0'");
        (width, depth, decay.ok_or(bad)?)
    } else {
        (8, 7, 0.9)
    };
    let rows = Rows::new(width.into(), depth.into()).ok_or(NO_MEMORY)?;
    let bytes = bytes_of(k.into(), rows).ok_or(NO_MEMORY)?;
    admit_new(call, bytes, bytes).map_err(|why| why.or_redisblooms(NO_MEMORY))?;
    let sketch = Sketch::new(k, rows, decay).map_err(|_| NO_MEMORY)?;
    rows.limit(call)?;
    key.create(sketch);
    call.replicate(Effect::Verbatim);
    call.changed(c"topk.reserve");
    Ok(Reply::Ok)
}

command!(
    Add,
    |call| add(call, 1, "topk.add", |_| Some(1)),
    Entry {
        name: "topk.add",
        arity: -3,
        key: KeyUse::Update,
        flags: "deny-oom",
        summary: "Adds items to a Top-K sketch, and returns those that leave its list",
        complexity: "O(n * d), where n is the number of items and d is the depth",
        since: "2.0.0",
        arguments: ITEMS,
        timing: Timing::IfLong,
        in_pieces: true,
        ..Entry::PLAIN
    }
);

command!(
    Incrby,
    |call| {
        if !call.argc().is_multiple_of(PAIR) {
            return Err(CommandError::Arity);
        }
        add(call, PAIR, "topk.incrby", |item| {
            let increment = integer(call.arg(item.saturating_add(1)));
            let increment = increment.and_then(|increment| u32::try_from(increment).ok());
            increment.filter(|increment| *increment <= MOST)
        })
    },
    Entry {
        name: "topk.incrby",
        arity: -4,
        summary: "Raises the counts of items in a Top-K sketch, and returns those that leave its list",
        complexity: "O(n * d), where n is the number of items and d is the depth",
        arguments: INCREMENTS,
        ..Add::ENTRY
    }
);

/// `TOPK.ADD key item…`, `TOPK.INCRBY key item increment [item increment…]`. Every `stride`th argument is an item,
/// which is added `times` times. If an increment is bad, nothing is added, and each element of the reply is the error.
/// RedisBloom adds the pairs before it, and then its reply is too short.
fn add<'a, C: Call<'a>>(
    call: &C,
    stride: usize,
    command: &'static str,
    times: impl Fn(usize) -> Option<u32>,
) -> Result<Reply, CommandError> {
    let items = call.argc().saturating_sub(ITEM).checked_div(stride).unwrap_or(0);
    limit_items(call, items)?;
    let mut key = call.open::<Sketch>(1, Access::Write);
    let sketch = key.value_mut()?.ok_or(MISSING)?;
    let times: Vec<u32> = (ITEM..call.argc()).step_by(stride).map_while(times).collect();
    // A RedisBloom primary has applied the increments before a bad one.
    if times.len() < items && !call.is_from_primary() {
        let answers = std::iter::repeat_n(Answer::Refused, items).collect();
        return Ok(Reply::Answers(Answers { answers, error: Some(BAD_INCREMENT) }));
    }
    sketch.rows().limit_work(call, (ITEM, stride), times.iter().max().copied().unwrap_or(0))?;
    let end = ITEM.saturating_add(stride.saturating_mul(times.len()));
    if !call.is_from_primary() {
        let items = (ITEM..end).step_by(stride).map(|item| call.arg(item));
        call.admit_tenant(|| sketch.bytes().saturating_add(sketch.most_new(items) as u64))?;
    }
    let (mut expelled, mut next) = (Vec::with_capacity(times.len()), ITEM);
    while next < end && !pauses(call, ITEM, next.saturating_sub(ITEM), stride) {
        let mut group = sketch.group(call, next, stride);
        let done = expelled.len();
        group.truncate(times.len().saturating_sub(done));
        let times = |index: usize| times.get(done.saturating_add(index)).copied().unwrap_or(0);
        let depth = sketch.rows().depth.get();
        let mut draws = 0;
        let fits = (0..group.len()).take_while(|index| {
            let fits = draws < MOST_DRAWS;
            draws = depth.saturating_mul(times(*index).into()).saturating_add(draws);
            fits
        });
        group.truncate(fits.count());
        sketch.add(&group, times, &mut expelled);
        next = next.saturating_add(stride.saturating_mul(group.len()));
    }
    replicate_until(call, command, next);
    call.changed(c"topk.add");
    Ok(Reply::Items(expelled))
}

command!(
    Query,
    |call| query(call),
    Entry {
        name: "topk.query",
        arity: -3,
        summary: "Tests whether items are in the list of a Top-K sketch",
        complexity: "O(n), where n is the number of items",
        tips: "",
        since: "2.0.0",
        arguments: ITEMS,
        timing: Timing::IfLong,
        in_pieces: true,
        ..Entry::PLAIN
    }
);

/// `TOPK.QUERY key item…`.
fn query<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let items = call.argc().saturating_sub(ITEM);
    limit_items(call, items)?;
    let key = call.open::<Sketch>(1, Access::Read);
    let sketch = key.value()?.ok_or(MISSING)?;
    let mut answers = Answers::default();
    while answers.answers.len() < items && !pauses(call, ITEM, answers.answers.len(), 1) {
        let item = call.arg(ITEM.saturating_add(answers.answers.len()));
        answers.answers.push(Answer::from(sketch.holds(item)));
    }
    Ok(Reply::Answers(answers))
}

command!(
    Count,
    |call| count(call),
    Entry { name: "topk.count", summary: "Estimates the counts of items in a Top-K sketch", ..Query::ENTRY }
);

/// `TOPK.COUNT key item…`.
fn count<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let items = call.argc().saturating_sub(ITEM);
    limit_items(call, items)?;
    let key = call.open::<Sketch>(1, Access::Read);
    let sketch = key.value()?.ok_or(MISSING)?;
    sketch.rows().limit_work(call, (ITEM, 1), 0)?;
    let mut counts = Vec::with_capacity(items);
    while counts.len() < items && !pauses(call, ITEM, counts.len(), 1) {
        let group = sketch.group(call, ITEM.saturating_add(counts.len()), 1);
        sketch.counts(&group, &mut counts);
    }
    Ok(Reply::Counts(counts, None))
}

const LIST: &[Argument] = &[optional(word("withcount", "WITHCOUNT"))];

command!(
    List,
    |call| list(call),
    Entry {
        name: "topk.list",
        arity: -2,
        summary: "Returns the list of a Top-K sketch, most frequent items first",
        complexity: "O(k * log(k)), where k is the length of the list",
        tips: "",
        since: "2.0.0",
        arguments: LIST,
        ..Entry::PLAIN
    }
);

/// `TOPK.LIST key [WITHCOUNT]`. As in RedisBloom, the word may be cut short.
fn list<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    const WORD: &[u8] = b"WITHCOUNT";
    let with_count = match call.argc() {
        2 => false,
        3 => {
            let word = call.arg(2);
            let is_begun = WORD.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
            is_begun.then_some(true).ok_or(CommandError::RedisBloom("WITHCOUNT keyword expected"))?
        }
        _ => return Err(CommandError::Arity),
    };
    let key = call.open::<Sketch>(1, Access::Read);
    let mut replies = Vec::new();
    for (item, count) in key.value()?.ok_or(MISSING)?.heap().list() {
        replies.push(Reply::Bulk(item.to_vec()));
        if with_count {
            replies.push(Reply::Integer(count.into()));
        }
    }
    Ok(Reply::Array(replies))
}

command!(
    Info,
    |call| info(call),
    Entry {
        name: "topk.info",
        categories: "fast",
        summary: "Returns the parameters of a Top-K sketch",
        tips: "",
        since: "2.0.0",
        timing: Timing::IfLong,
        ..Entry::PLAIN
    }
);

/// `TOPK.INFO key`.
fn info<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open::<Sketch>(1, Access::Read);
    let sketch = key.value()?.ok_or(MISSING)?;
    let Rows { width, depth } = sketch.rows();
    Ok(Reply::Map(vec![
        ("k", (sketch.heap().len() as u64).into()),
        ("width", width.get().into()),
        ("depth", depth.get().into()),
        ("decay", Reply::Double(sketch.decay())),
    ]))
}
