//! CMS.*: the commands on count-min sketches, except CMS.MERGE.

use super::sketch::Sketch;
use crate::call::{Access, Call, Effect, Key, Unusable};
use crate::error::CommandError;
use crate::grow::admit_new;
use crate::items::{limit_items, pauses};
use crate::options::{integer, number};
use crate::reply::Reply;
use crate::rows::Rows;
use crate::table::ArgumentKind::{Block, Double, Integer, Text};
use crate::table::{Argument, Entry, ITEMS, KeyUse, Timing, command, required};

pub(super) const MISSING: CommandError = CommandError::RedisBloom("CMS: key does not exist");
const EXISTS: CommandError = CommandError::RedisBloom("CMS: key already exists");
const NO_MEMORY: CommandError = CommandError::RedisBloom("CMS: Insufficient memory to create the key");
const BAD_SHAPE: CommandError = CommandError::RedisBloom("CMS: invalid init arguments");

/// What an element of CMS.INCRBY's reply is if its estimate can't rise any more.
const OVERFLOW: &str = "CMS: INCRBY overflow";

/// The index of the first item among the arguments.
const ITEM: usize = 2;

/// An item and its increment.
const PAIR: usize = 2;

command!(
    Initbydim,
    |call| init(call, |call| Ok((
        positive(call.arg(2)).ok_or(CommandError::RedisBloom("CMS: invalid width"))?,
        positive(call.arg(3)).ok_or(CommandError::RedisBloom("CMS: invalid depth"))?,
    ))),
    Entry {
        name: "cms.initbydim",
        arity: 4,
        key: KeyUse::Insert,
        flags: "deny-oom",
        categories: "fast",
        summary: "Creates a count-min sketch with the given dimensions",
        since: "2.0.0",
        arguments: &[required("width", Integer), required("depth", Integer)],
        ..Entry::PLAIN
    }
);

command!(
    Initbyprob,
    |call| init(call, |call| {
        let share = |word| number(word).filter(|share| *share > 0.0 && *share < 1.0);
        let error =
            share(call.arg(2)).ok_or(CommandError::RedisBloom("CMS: invalid overestimation value"))?;
        let probability = share(call.arg(3)).ok_or(CommandError::RedisBloom("CMS: invalid prob value"))?;
        let size = |size: f64| Some(size).filter(|size| *size >= 1.0 && *size < i64::MAX as f64);
        let [width, depth] = shape(error, probability).map(size);
        let (width, depth) = (width.ok_or(BAD_SHAPE)?, depth.ok_or(BAD_SHAPE)?);
        #[allow(clippy::cast_possible_truncation, reason = "they are in the range")]
        Ok((width as i64, depth as i64))
    }),
    Entry {
        name: "cms.initbyprob",
        summary: "Creates a count-min sketch with the given accuracy",
        arguments: &[required("error", Double), required("probability", Double)],
        ..Initbydim::ENTRY
    }
);

/// Width and depth of a sketch whose estimates exceed the true counts by more than `error` times the sum of all counts
/// with this probability. As in RedisBloom, the depth is computed in single precision.
fn shape(error: f64, probability: f64) -> [f64; 2] {
    #[allow(clippy::cast_possible_truncation, reason = "as in RedisBloom")]
    let halvings = libm::log10f(probability as f32) / libm::log10f(0.5);
    [libm::ceil(2.0 / error), libm::ceilf(halvings).into()]
}

/// An integer of at least 1.
fn positive(word: &[u8]) -> Option<i64> {
    integer(word).filter(|number| *number > 0)
}

/// `CMS.INITBYDIM key width depth`, `CMS.INITBYPROB key error probability`.
fn init<'a, C: Call<'a>>(
    call: &C,
    size: impl FnOnce(&C) -> Result<(i64, i64), CommandError>,
) -> Result<Reply, CommandError> {
    let mut key = call.open::<Sketch>(1, Access::Write);
    match key.value() {
        Ok(None) => {}
        // As in RedisBloom, a value of another type is refused in the same words.
        Ok(Some(_)) | Err(Unusable::WrongType) => return Err(EXISTS),
        Err(why) => return Err(why.into()),
    }
    let (width, depth) = size(call)?;
    let cells = width.checked_mul(depth).ok_or(BAD_SHAPE)?;
    let rows = Rows::new(width.unsigned_abs(), depth.unsigned_abs()).ok_or(BAD_SHAPE)?;
    let bytes = u64::try_from(cells).ok().and(Sketch::bytes_of(rows)).ok_or(NO_MEMORY)?;
    admit_new(call, bytes, bytes).map_err(|why| why.or_redisblooms(NO_MEMORY))?;
    let sketch = Sketch::new(rows).map_err(|_| NO_MEMORY)?;
    rows.limit(call)?;
    key.create(sketch);
    call.replicate(Effect::Verbatim);
    call.changed(c"cms.init");
    Ok(Reply::Ok)
}

command!(
    Incrby,
    |call| increase(call),
    Entry {
        name: "cms.incrby",
        arity: -4,
        key: KeyUse::Update,
        flags: "deny-oom",
        summary: "Raises the counts of items in a count-min sketch",
        complexity: "O(n), where n is the number of items",
        since: "2.0.0",
        arguments: INCREMENTS,
        timing: Timing::IfLong,
        in_pieces: true,
        ..Entry::PLAIN
    }
);

pub(crate) const INCREMENTS: &[Argument] = &[Argument {
    name: "items",
    token: None,
    kind: Block(&[required("item", Text), required("increment", Integer)]),
    optional: false,
    multiple: true,
}];

/// `CMS.INCRBY key item increment [item increment…]`.
fn increase<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    if !call.argc().is_multiple_of(PAIR) {
        return Err(CommandError::Arity);
    }
    let pairs = call.argc().saturating_sub(ITEM) / PAIR;
    limit_items(call, pairs)?;
    let mut key = call.open::<Sketch>(1, Access::Write);
    let sketch = key.value_mut()?.ok_or(MISSING)?;
    sketch.rows().limit_work(call, (ITEM, PAIR), 0)?;
    let increments = (ITEM..call.argc()).skip(1).step_by(PAIR).map(|index| {
        let increment =
            integer(call.arg(index)).ok_or(CommandError::RedisBloom("CMS: Cannot parse number"))?;
        u64::try_from(increment).map_err(|_| CommandError::RedisBloom("CMS: Number cannot be negative"))
    });
    let increments = increments.collect::<Result<Vec<u64>, _>>()?;
    // Copying 400 MB would take 0.8 s.
    if sketch.is_shared() && call.goes_to_background(sketch.bytes()) {
        return Err(CommandError::Locked);
    }
    sketch.own(&|tasks, task| call.parallel(tasks, task))?;
    let (mut estimates, mut next) = (Vec::with_capacity(pairs), ITEM);
    while next < call.argc() && !pauses(call, ITEM, next.saturating_sub(ITEM), PAIR) {
        let items = sketch.rows().group(call, next, PAIR);
        let increments = increments.get(estimates.len()..).unwrap_or_default();
        sketch.increase(&items, increments.get(..items.len()).unwrap_or_default(), &mut estimates);
        next = next.saturating_add(PAIR.saturating_mul(items.len()));
    }
    replicate_until(call, "cms.incrby", next);
    call.changed(c"cms.incrby");
    Ok(Reply::Counts(estimates, Some(OVERFLOW)))
}

/// Replicates a command that has done its items up to the argument `end`, and goes on later with the others.
pub(crate) fn replicate_until<'a, C: Call<'a>>(call: &C, command: &'static str, end: usize) {
    if end >= call.argc() {
        call.replicate(Effect::Verbatim);
    } else {
        call.replicate(Effect::Items(command, &Vec::from_iter(ITEM..end)));
    }
}

command!(
    Query,
    |call| query(call),
    Entry {
        name: "cms.query",
        arity: -3,
        summary: "Estimates the counts of items in a count-min sketch",
        complexity: "O(n), where n is the number of items",
        tips: "",
        since: "2.0.0",
        arguments: ITEMS,
        timing: Timing::IfLong,
        in_pieces: true,
        ..Entry::PLAIN
    }
);

/// `CMS.QUERY key item…`.
fn query<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let items = call.argc().saturating_sub(ITEM);
    limit_items(call, items)?;
    let key = call.open::<Sketch>(1, Access::Read);
    let sketch = key.value()?.ok_or(MISSING)?;
    sketch.rows().limit_work(call, (ITEM, 1), 0)?;
    let mut estimates = Vec::with_capacity(items);
    while estimates.len() < items && !pauses(call, ITEM, estimates.len(), 1) {
        let group = sketch.rows().group(call, ITEM.saturating_add(estimates.len()), 1);
        sketch.estimate(&group, &mut estimates);
    }
    Ok(Reply::Counts(estimates, None))
}

command!(
    Info,
    |call| info(call),
    Entry {
        name: "cms.info",
        categories: "fast",
        summary: "Returns the dimensions of a count-min sketch, and the sum of its increments",
        since: "2.0.0",
        timing: Timing::IfLong,
        ..Entry::PLAIN
    }
);

/// `CMS.INFO key`.
fn info<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open::<Sketch>(1, Access::Read);
    let sketch = key.value()?.ok_or(MISSING)?;
    let Rows { width, depth } = sketch.rows();
    Ok(Reply::Map(vec![
        ("width", width.get().into()),
        ("depth", depth.get().into()),
        ("count", Reply::Integer(sketch.count().cast_signed())),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from RedisBloom.
    #[test]
    fn shapes_are_redisblooms() {
        for (error, probability, width, depth) in [
            (0.001, 0.01, 2000.0, 7.0),
            (0.1, 0.1, 20.0, 4.0),
            (0.01, 0.001, 200.0, 10.0),
            (0.001, 0.0001, 2000.0, 14.0),
            (0.00001, 0.000_001, 200_000.0, 20.0),
            (0.3, 0.5, 7.0, 1.0),
            (0.7, 0.25, 3.0, 2.0),
            (0.9, 0.9, 3.0, 1.0),
            (0.25, 0.000_976_562_5, 8.0, 10.0),
            (0.7, 0.0625, 3.0, 4.0),
            (0.003, 0.03125, 667.0, 5.0),
            (0.1, 1e-30, 20.0, 100.0),
            (0.1, 1e-40, 20.0, 133.0),
            (0.1, 1e-46, 20.0, f64::INFINITY),
            (0.1, 0.999_999_9, 20.0, 1.0),
            (0.1, 0.999_999_99, 20.0, 0.0),
        ] {
            assert_eq!(shape(error, probability), [width, depth], "{error} {probability}");
        }
    }
}
