//! BF.MERGE, BF.INTERSECT, BF.EQUAL: commands on several filters. They check every filter before changing any.

use super::generations::catch_up;
use super::merge_blobs::merge_blobs;
use super::test::current_generation;
use super::unite::{
    Merged, Refused, admit_made, clock, merged, put_merged, refuse_rebuild, refused, union_work, unite, work,
};
use crate::call::{Access, Admitted, Background, BloomKey, Call, Data, Effect, Key, TwoStep, still_in_keys};
use crate::error::CommandError;
use crate::grow::admit_reserved;
use crate::items::limit_sources;
use crate::options::printable;
use crate::reply::Reply;
use crate::table::{
    ArgumentKind, Entry, KeyUse, MoreKeys,
    bloom::{MERGE, O_CELLS, SOURCES},
    command, has_blobs, required,
};
use bloomery::Error;
use bloomery::filter::{Bloom, Filter, Live, LiveRef, Union};
use bloomery::parallel::ParallelFor;
use std::collections::HashSet;
use std::sync::Arc;

/// The index of the first source among the arguments.
const FIRST_SOURCE: usize = 2;

/// How to merge more sources than one command may have.
pub(super) const MERGE_MORE: &str = "Merge the others with further commands";

/// How to intersect more of them: each command replaces the destination.
const INTERSECT_MORE: &str =
    "Intersect the others with further commands, which have the destination as a source as well";

/// The sources of a command, with each key listed once.
struct Sources<K> {
    /// For each source except the destination: the index of the argument that names it, and the opened key.
    keys: Vec<(usize, K)>,
    /// Whether the destination is also a source.
    has_destination: bool,
    /// Whether any key, including the destination, is named twice.
    repeated: bool,
}

impl<K: Key<Filter>> Sources<K> {
    /// Opens the keys of the sources, all of which must exist.
    fn open<'a, C: Call<'a, Key<Filter> = K>>(call: &C) -> Result<Sources<K>, CommandError> {
        let mut sources = Sources { keys: Vec::new(), has_destination: false, repeated: false };
        let mut names = HashSet::new();
        for index in FIRST_SOURCE..call.argc() {
            let name = call.arg(index);
            let is_destination = name == call.arg(1);
            let is_new = !is_destination && names.insert(name);
            sources.has_destination |= is_destination;
            sources.repeated |= !is_new;
            if is_new {
                let key = call.open::<Filter>(index, Access::Read);
                key.bloom()?.ok_or(CommandError::NotFound)?;
                sources.keys.push((index, key));
            }
        }
        Ok(sources)
    }

    /// The filters in the keys. All of the keys must exist.
    fn filters(&self) -> Result<Vec<LiveRef<'_>>, CommandError> {
        self.keys.iter().map(|(_, key)| key.bloom()?.ok_or(CommandError::NotFound)).collect()
    }

    /// The error for sources that can't be merged.
    fn refusal<'a, C: Call<'a>>(&self, call: &C, why: Refused) -> CommandError {
        why.told(|source| quoted(call, self.keys.get(source).map_or(1, |(index, _)| *index)))
    }
}

/// The name of the key in argument `index`, in quotes for an error text.
fn quoted<'a, C: Call<'a>>(call: &C, index: usize) -> String {
    format!("'{}'", printable(call.arg(index)))
}

fn counts(filter: LiveRef<'_>) -> bool {
    filter.bloom().is_some_and(|filter| filter.spec().cell.counts())
}

command!(
    Merge,
    |call| merge(call),
    Entry {
        name: "bf.merge",
        arity: -3,
        key: KeyUse::Insert,
        flags: "deny-oom",
        summary: "Adds the items of Bloom filters to a Bloom filter, creating it if needed",
        complexity: O_CELLS,
        arguments: MERGE,
        more_keys: &[MoreKeys::RestUnlessBlobs],
        ..Entry::PLAIN
    }
);

/// `BF.MERGE destination source [source…]`: the destination becomes the union.
///
/// The result depends only on the filters, so the command itself is replicated.
fn merge<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let mut key = call.open::<Filter>(1, Access::Write);
    refuse_rebuild(&key)?;
    if has_blobs(call.argc(), call.arg(FIRST_SOURCE)) {
        return merge_blobs(call, key);
    }
    limit_sources(call, call.argc().saturating_sub(FIRST_SOURCE), MERGE_MORE)?;
    let sources = Sources::open(call)?;
    let filters = sources.filters()?;
    let existing = key.bloom()?;
    if existing.is_none() && sources.has_destination {
        return Err(CommandError::NotFound);
    }
    // A missing destination starts as a copy of the first source.
    let Some(base) = existing.or(filters.first().copied()) else { return Err(CommandError::NotFound) };
    if sources.repeated && counts(base) {
        return Err(CommandError::CountedTwice);
    }
    let now_ms = clock(call);
    let refusal = |why| sources.refusal(call, why);
    let union = Union::plan(existing, &filters, now_ms).map_err(|why| refusal(why.into()))?;
    let inputs = existing.into_iter().chain(filters.iter().copied());
    if call.goes_to_background(union_work(&union, inputs)) {
        let is_new = existing.is_none();
        let (total, most) = (base.bytes(), union.most_bytes(base));
        if is_new {
            admit_reserved(call, base.reserved_bytes())?;
        }
        let memory = match is_new {
            true => Admitted::in_new_key(call, total, most)?,
            false => Admitted::for_background_work(call, total, most)?,
        };
        catch_up(call, &mut key)?;
        let inputs: Arc<[Live]> = key.bloom()?.into_iter().chain(filters).map(LiveRef::share).collect();
        let keys = (1..call.argc()).collect();
        let job = Background { keys, inputs: inputs.clone(), data: Data::Arguments(0..0), memory };
        return call.in_background(job, Merging { inputs, is_new, now_ms });
    }
    unite(call, key, &filters, union, refusal)
}

/// A BF.MERGE of keys in the background.
struct Merging {
    /// The destination, unless it `is_new`, and the sources.
    inputs: Arc<[Live]>,
    is_new: bool,
    now_ms: Option<u64>,
}

impl TwoStep for Merging {
    type Prepared = Result<Merged, Refused>;

    fn prepare(&mut self, _: &[&[u8]], parallel: &ParallelFor<'_>) -> Self::Prepared {
        let inputs: Vec<LiveRef<'_>> = self.inputs.iter().map(Live::as_ref).collect();
        merged(&inputs, self.is_new, self.now_ms, parallel)
    }

    fn commit<'a, C: Call<'a>>(
        self,
        call: &C,
        merged: impl FnOnce() -> Self::Prepared,
    ) -> Result<Reply, CommandError> {
        let key = call.open::<Filter>(1, Access::Write);
        refuse_rebuild(&key)?;
        let sources = Sources::open(call)?;
        let (existing, filters) = (key.bloom()?, sources.filters()?);
        // If other filters are in the keys and can't be merged, sending the command again would be no use.
        Union::plan(existing, &filters, self.now_ms).map_err(|why| sources.refusal(call, why.into()))?;
        let now: Vec<LiveRef<'_>> = existing.into_iter().chain(filters).collect();
        still_in_keys(&self.inputs, &now)?;
        put_merged(call, key, merged().map_err(|why| sources.refusal(call, why))?)
    }
}

command!(
    Intersect,
    |call| intersect(call),
    Entry {
        name: "bf.intersect",
        arity: -4,
        key: KeyUse::Overwrite,
        flags: "deny-oom",
        summary: "Stores the intersection of Bloom filters",
        complexity: O_CELLS,
        arguments: SOURCES,
        more_keys: &[MoreKeys::Rest],
        ..Entry::PLAIN
    }
);

/// `BF.INTERSECT destination source source…`: replaces the destination with the intersection, as SINTERSTORE does.
fn intersect<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    limit_sources(call, call.argc().saturating_sub(FIRST_SOURCE), INTERSECT_MORE)?;
    let (key, sources) = (open_destination(call)?, Sources::open(call)?);
    let filters = to_intersect(call, &key, &sources)?;
    let Some(((first_index, first), others)) = filters.split_first() else {
        return Err(CommandError::NotFound);
    };
    first.check_intersection(first).map_err(|why| refused(quoted(call, *first_index), why))?;
    for (index, other) in others {
        first.check_intersection(other).map_err(|why| refused(quoted(call, *index), why))?;
    }
    let inputs = filters.iter().map(|(_, filter)| LiveRef::Bloom(filter));
    let goes_to_background = call.goes_to_background(inputs.clone().map(work).sum());
    let others: Vec<&Bloom> = others.iter().map(|(_, filter)| *filter).collect();
    let (total, most) = (first.bytes(), first.intersection_bytes(&others));
    admit_reserved(call, first.reserved_bytes())?;
    // The destination keeps its content until the intersection is complete.
    let memory = match goes_to_background && key.value()?.is_some() {
        true => Admitted::for_background_work(call, total, most)?,
        false => Admitted::in_new_key(call, total, most)?,
    };
    if goes_to_background {
        let inputs: Arc<[Live]> = inputs.map(LiveRef::share).collect();
        let keys = (1..call.argc()).collect();
        let job = Background { keys, inputs: inputs.clone(), data: Data::Arguments(0..0), memory };
        return call.in_background(job, Intersecting { inputs });
    }
    let result = intersection(inputs, &|tasks, task| call.parallel(tasks, task))?;
    put_intersection(call, key, result)
}

/// A BF.INTERSECT in the background.
struct Intersecting {
    inputs: Arc<[Live]>,
}

impl TwoStep for Intersecting {
    type Prepared = Result<Bloom, Error>;

    fn prepare(&mut self, _: &[&[u8]], parallel: &ParallelFor<'_>) -> Self::Prepared {
        intersection(self.inputs.iter().map(Live::as_ref), parallel)
    }

    fn commit<'a, C: Call<'a>>(
        self,
        call: &C,
        result: impl FnOnce() -> Self::Prepared,
    ) -> Result<Reply, CommandError> {
        let (key, sources) = (open_destination(call)?, Sources::open(call)?);
        let filters = to_intersect(call, &key, &sources)?;
        let now: Vec<LiveRef<'_>> = filters.iter().map(|(_, filter)| LiveRef::Bloom(filter)).collect();
        still_in_keys(&self.inputs, &now)?;
        put_intersection(call, key, result()?)
    }
}

/// Opens the destination of an intersection.
fn open_destination<'a, C: Call<'a>>(call: &C) -> Result<C::Key<Filter>, CommandError> {
    let key = call.open::<Filter>(1, Access::Write);
    key.bloom()?;
    refuse_rebuild(&key)?;
    Ok(key)
}

/// The filters to intersect, each with the index of the argument that names its key. The parameters come from the
/// first one, which is the source that is named first.
fn to_intersect<'k, 'a, C: Call<'a>>(
    call: &C,
    key: &'k C::Key<Filter>,
    sources: &'k Sources<C::Key<Filter>>,
) -> Result<Vec<(usize, &'k Bloom)>, CommandError> {
    let mut filters = Vec::new();
    for (index, source) in &sources.keys {
        filters.push((*index, native(source)?));
    }
    if sources.has_destination {
        filters.push((1, native(key)?));
        if call.arg(FIRST_SOURCE) == call.arg(1) {
            filters.rotate_right(1);
        }
    }
    Ok(filters)
}

/// Puts an intersection into the destination.
fn put_intersection<'a, C: Call<'a>>(
    call: &C,
    mut key: C::Key<Filter>,
    result: Bloom,
) -> Result<Reply, CommandError> {
    if let Err(why) = admit_made(call, result.reserved_bytes()) {
        call.discard(Live::Bloom(result).into());
        return Err(why);
    }
    key.create(result.into());
    call.replicate(Effect::Verbatim);
    call.changed(c"bf.intersect");
    Ok(Reply::Ok)
}

/// Returns a filter with the items that are in every one of these native filters.
fn intersection<'f>(
    filters: impl Iterator<Item = LiveRef<'f>>,
    parallel: &ParallelFor<'_>,
) -> Result<Bloom, Error> {
    let filters: Vec<&Bloom> = filters.filter_map(LiveRef::bloom).collect();
    let (first, others) = filters.split_first().ok_or(Error::Mismatch)?;
    first.intersection(others, parallel)
}

/// The native filter in a key.
fn native(key: &impl Key<Filter>) -> Result<&Bloom, CommandError> {
    key.bloom()?.ok_or(CommandError::NotFound)?.bloom().ok_or(CommandError::NotNative)
}

command!(
    Equal,
    |call| equal(call),
    Entry {
        name: "bf.equal",
        arity: 3,
        summary: "Tests whether two Bloom filters give every item the same answer",
        complexity: O_CELLS,
        arguments: &[required("other", ArgumentKind::Key)],
        more_keys: &[MoreKeys::Rest],
        ..Entry::PLAIN
    }
);

/// `BF.EQUAL key other`.
fn equal<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let (key, other) =
        (call.open::<Filter>(1, Access::Read), call.open::<Filter>(FIRST_SOURCE, Access::Read));
    let (Some(a), Some(b)) = (key.bloom()?, other.bloom()?) else { return Err(CommandError::NotFound) };
    let generation = |filter: LiveRef<'_>| match filter.bloom() {
        Some(filter) => current_generation(call, filter),
        None => 0,
    };
    let generations = [generation(a), generation(b)];
    if call.goes_to_background(work(a).saturating_add(work(b))) {
        let inputs: Arc<[Live]> = Arc::new([a.share(), b.share()]);
        return call.offload(1, inputs.clone(), move |_, parallel, stop| {
            let parallel: &ParallelFor<'_> = &|tasks, task| stop.run(parallel, tasks, task);
            let [a, b] = &*inputs else { return None };
            let equal = a.as_ref().equal_at(b.as_ref(), generations, parallel);
            (!stop.is_set()).then_some(Ok(Reply::Bool(equal)))
        });
    }
    let parallel: &ParallelFor<'_> = &|tasks, task| call.parallel(tasks, task);
    Ok(Reply::Bool(a.equal_at(b, generations, parallel)))
}
