//! CMS.MERGE.

use super::commands::MISSING;
use super::sketch::Sketch;
use crate::call::{Access, Admitted, Background, Call, Data, Effect, Key, TwoStep};
use crate::error::CommandError;
use crate::items::limit_sources;
use crate::options::integer;
use crate::reply::Reply;
use crate::rows::Rows;
use crate::table::ArgumentKind::{Integer, Key as KeyName};
use crate::table::{Argument, Entry, KeyUse, MoreKeys, command, option, required};
use bloomery::Error;
use bloomery::filter::Garbage;
use bloomery::parallel::ParallelFor;
use std::sync::Arc;

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
    let key = call.open::<Sketch>(1, Access::Write);
    let sources = opened(call, &key)?;
    let destination = key.value()?.ok_or(MISSING)?;
    let count = sources.iter().try_fold(0i64, |count, (source, weight)| {
        let more = i128::from(source.count()).checked_mul((*weight).into())?;
        count.checked_add(i64::try_from(more).ok()?)
    });
    let count = count.and_then(|count| u64::try_from(count).ok()).ok_or(OVERFLOW)?;
    let bytes = destination.bytes();
    let number = sources.len();
    let mut merging = Merging { shape: destination.rows(), sources, count };
    if call.goes_to_background(bytes.saturating_mul(number as u64)) {
        let memory = Admitted::for_background_work(call, bytes, bytes)?;
        let keys = [1].into_iter().chain((FIRST_SOURCE..).take(number)).collect();
        let job = Background { keys, inputs: Arc::new([]), data: Data::Arguments(0..0), memory };
        return call.in_background(job, merging);
    }
    Admitted::beside_keys(call, bytes, bytes)?;
    let made = merging.prepare(&[], &|tasks, task| call.parallel(tasks, task));
    merging.put(call, key, made)
}

/// A merge that has been checked.
struct Merging {
    shape: Rows,
    /// The sources, which share their memory with the sketches in the keys, and their weights.
    sources: Vec<(Sketch, i64)>,
    /// The sum of all increments that the destination will have.
    count: u64,
}

impl TwoStep for Merging {
    type Prepared = Result<Option<Sketch>, Error>;

    fn prepare(&mut self, _: &[&[u8]], parallel: &ParallelFor<'_>) -> Self::Prepared {
        Sketch::of_sums(self.shape, self.count, &self.sources, parallel)
    }

    fn commit<'a, C: Call<'a>>(
        self,
        call: &C,
        made: impl FnOnce() -> Self::Prepared,
    ) -> Result<Reply, CommandError> {
        let key = call.open::<Sketch>(1, Access::Write);
        let now = opened(call, &key)?;
        let mut pairs = self.sources.iter().zip(&now);
        if !pairs.all(|((given, _), (now, _))| given.is_shared_with(now)) {
            return Err(CommandError::Changed);
        }
        self.put(call, key, made())
    }
}

impl Merging {
    /// Puts the sums into the destination.
    fn put<'a, C: Call<'a>>(
        self,
        call: &C,
        mut key: C::Key<Sketch>,
        made: <Merging as TwoStep>::Prepared,
    ) -> Result<Reply, CommandError> {
        let made = made?.ok_or(OVERFLOW)?;
        let (bytes, destination) = (made.bytes(), key.value_mut()?.ok_or(MISSING)?);
        let old = std::mem::replace(destination, made);
        call.discard(Garbage::Other(Box::new((old, self.sources)), bytes));
        call.replicate(Effect::Verbatim);
        call.changed(c"cms.merge");
        Ok(Reply::Ok)
    }
}

/// The sources and their weights. The sources share their memory with the sketches in the keys.
fn opened<'a, C: Call<'a>>(call: &C, key: &C::Key<Sketch>) -> Result<Vec<(Sketch, i64)>, CommandError> {
    let shape = key.value()?.ok_or(MISSING)?.rows();
    let (sources, has_weights) = sources(call)?;
    limit_sources(call, sources, "Merge the others with further commands")?;
    let open = |source: usize| {
        let weight = match has_weights {
            true => integer(call.arg(source.saturating_add(sources).saturating_add(1)))
                .ok_or(CommandError::RedisBloom("CMS: invalid weight value"))?,
            false => 1,
        };
        let key = call.open::<Sketch>(source, Access::Read);
        let sketch = key.value()?.ok_or(MISSING)?;
        if sketch.rows() != shape {
            return Err(CommandError::RedisBloom("CMS: width/depth is not equal"));
        }
        Ok((sketch.share(), weight))
    };
    (FIRST_SOURCE..).take(sources).map(open).collect()
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
