//! CMS.MERGE.

use super::commands::MISSING;
use super::sketch::Sketch;
use crate::call::{Access, Call, Effect, Key};
use crate::error::CommandError;
use crate::items::limit_sources;
use crate::options::integer;
use crate::reply::Reply;
use crate::table::ArgumentKind::{Integer, Key as KeyName};
use crate::table::{Argument, Entry, KeyUse, MoreKeys, command, option, required};

/// The index of the first source among the arguments.
const FIRST_SOURCE: usize = 3;

const OVERFLOW: CommandError = CommandError::RedisBloom("CMS: MERGE overflow");

command!(
    Merge,
    |call| merge(call),
    Entry {
        name: "cms.merge",
        arity: -4,
        key: KeyUse::Update,
        flags: "deny-oom",
        summary: "Replaces a count-min sketch with the weighted sum of others",
        complexity: "O(n), where n is the number of counters in all sketches",
        since: "2.0.0",
        arguments: &[
            required("numkeys", Integer),
            Argument { name: "source", token: None, kind: KeyName, optional: false, multiple: true },
            Argument { multiple: true, ..option("weight", "WEIGHTS", Integer) },
        ],
        more_keys: &[MoreKeys::Counted],
        ..Entry::PLAIN
    }
);

/// `CMS.MERGE destination numkeys source… [WEIGHTS weight…]`. The checks have RedisBloom's order.
fn merge<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let mut key = call.open::<Sketch>(1, Access::Write);
    let shape = key.value()?.ok_or(MISSING)?.rows();
    let (sources, has_weights) = sources(call)?;
    limit_sources(call, sources, "Merge the others with further commands")?;
    let mut opened = Vec::with_capacity(sources);
    for source in (FIRST_SOURCE..).take(sources) {
        let weight = match has_weights {
            true => integer(call.arg(source.saturating_add(sources).saturating_add(1)))
                .ok_or(CommandError::RedisBloom("CMS: invalid weight value"))?,
            false => 1,
        };
        let key = call.open::<Sketch>(source, Access::Read);
        if key.value()?.ok_or(MISSING)?.rows() != shape {
            return Err(CommandError::RedisBloom("CMS: width/depth is not equal"));
        }
        opened.push((key, weight));
    }
    let mut pairs = Vec::with_capacity(sources);
    for (key, weight) in &opened {
        pairs.push((key.value()?.ok_or(MISSING)?, *weight));
    }
    let count = pairs.iter().try_fold(0i64, |count, (source, weight)| {
        let more = i128::from(source.count()).checked_mul((*weight).into())?;
        count.checked_add(i64::try_from(more).ok()?)
    });
    let count = count.and_then(|count| u64::try_from(count).ok()).ok_or(OVERFLOW)?;
    let destination = key.value()?.ok_or(MISSING)?;
    if !destination.take_sums(&pairs, &|tasks, task| call.parallel(tasks, task)) {
        return Err(OVERFLOW);
    }
    // The destination may be one of the sources, to which there must be no reference now.
    drop(opened);
    key.value_mut()?.ok_or(MISSING)?.set_count(count);
    call.replicate(Effect::Verbatim);
    call.changed(c"cms.merge");
    Ok(Reply::Ok)
}

/// The number of sources, and whether each has a weight.
fn sources<'a, C: Call<'a>>(call: &C) -> Result<(usize, bool), CommandError> {
    let number = integer(call.arg(2)).ok_or(CommandError::RedisBloom("CMS: invalid numkeys"))?;
    if number <= 0 {
        return Err(CommandError::RedisBloom("CMS: Number of keys must be positive"));
    }
    let words = call.argc().saturating_sub(FIRST_SOURCE);
    // Even a source of this name counts, as in RedisBloom.
    let is_word = |index: &usize| call.arg(*index).eq_ignore_ascii_case(b"WEIGHTS");
    let before = (FIRST_SOURCE..call.argc()).position(|index| is_word(&index));
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    match before {
        None if words == number => Ok((number, false)),
        None => Err(CommandError::RedisBloom("CMS: wrong number of keys")),
        Some(keys) if keys == number && words == number.saturating_mul(2).saturating_add(1) => {
            Ok((number, true))
        }
        Some(_) => Err(CommandError::RedisBloom("CMS: wrong number of keys/weights")),
    }
}
