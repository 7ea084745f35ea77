//! BF.MERGE, BF.INTERSECT, BF.EQUAL: commands on several filters. They check every filter before changing any.

use super::generations::catch_up;
use super::shadow::rebuild_in;
use super::test::current_generation;
use crate::call::{Access, Admitted, Background, BloomKey, Call, Data, Effect, Key, TwoStep, still_in_keys};
use crate::error::CommandError;
use crate::items::limit_items;
use crate::options::printable;
use crate::reply::Reply;
use crate::table::{
    ArgumentKind, Entry, KeyUse, MoreKeys,
    bloom::{MERGE, O_CELLS, SOURCES},
    command, has_blobs, required,
};
use bloomery::Error;
use bloomery::filter::{Bloom, Filter, Incompatible, Live, LiveRef, Target, Union};
use bloomery::parallel::ParallelFor;
use bloomery::params::Layout;
use bloomery::wire::DecodeError;
use bloomery::wire::whole::{self, Declared};
use std::collections::HashSet;
use std::sync::Arc;

/// The index of the first source among the arguments.
const FIRST_SOURCE: usize = 2;

/// The index of the first source that is given as bytes.
const FIRST_BLOB: usize = FIRST_SOURCE + 1;

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
    /// Opens the keys of the sources, all of which must exist. The key names count towards the limit on items.
    fn open<'a, C: Call<'a, Key<Filter> = K>>(call: &C) -> Result<Sources<K>, CommandError> {
        limit_items(call, call.argc().saturating_sub(FIRST_SOURCE))?;
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

/// Refuses a destination that is being rebuilt, because its shadow would miss the items.
fn refuse_rebuild(key: &impl Key<Filter>) -> Result<(), CommandError> {
    rebuild_in(key).map_or(Ok(()), |_| Err(CommandError::Rebuilding))
}

/// The error for a source that can't be combined with the others.
fn refused(source: String, why: Incompatible) -> CommandError {
    match why {
        Incompatible::Differs(what) => CommandError::Incompatible { source, what },
        Incompatible::ClockBehind => CommandError::ClockBehind { source },
        Incompatible::Fingerprints => CommandError::Fingerprints { source },
        Incompatible::Layers => CommandError::SeveralLayers { source },
        Incompatible::TooManyLayers => CommandError::Core(Error::TooManyLayers),
        Incompatible::TooManyPairs => CommandError::TooManyPairs,
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
        since: "0.1.0",
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
    if call.goes_to_background(inputs.map(work).sum()) {
        let is_new = existing.is_none();
        let (total, most) = (base.bytes(), union.most_bytes(base));
        let memory = match is_new {
            true => Admitted::in_new_key(call, total, most)?,
            false => Admitted::for_background_work(call, total, most)?,
        };
        catch_up(call, &mut key)?;
        let inputs: Arc<[Live]> = key.bloom()?.into_iter().chain(filters).map(LiveRef::share).collect();
        let keys = 1..call.argc();
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

/// Reading a byte of a blob takes as long as combining this many bytes of cells. Combining a MiB of bits takes 0.3 ms.
/// Reading a MiB takes 1.0 ms for a file, and 1.4 to 2.6 ms for a DUMP payload.
const READ: u64 = 4;

/// Reading the shortest blob takes as long as reading this many bytes of a long blob: 2 µs.
const LEAST_READ: u64 = 2048;

/// `BF.MERGE destination BLOB data [data…]`: merges filters that are given as files or DUMP payloads, perhaps from
/// another server, instead of in keys.
fn merge_blobs<'a, C: Call<'a>>(call: &C, mut key: C::Key<Filter>) -> Result<Reply, CommandError> {
    let (existing, now_ms) = (key.bloom()?, clock(call));
    let arguments = FIRST_BLOB..call.argc();
    limit_items(call, arguments.len())?;
    let blobs: Vec<&[u8]> = arguments.clone().map(|index| call.arg(index)).collect();
    let (mut cells, mut largest) = (0u64, existing.map_or(0, LiveRef::bytes));
    let held = existing.map_or(0, work);
    let mut effort = held;
    for (number, blob) in blobs.iter().enumerate() {
        let Declared { cells: declared, is_cuckoo } =
            whole::declared(blob).map_err(|why| bad_source(number, why))?;
        if is_cuckoo {
            return Err(cuckoo_source(number));
        }
        cells = cells.saturating_add(declared);
        largest = largest.max(declared);
        let bytes = declared.max(blob.len() as u64).max(LEAST_READ);
        effort = effort.saturating_add(bytes.saturating_mul(READ));
    }
    let mut sources = Vec::new();
    if !call.goes_to_background(effort) {
        if !call.is_from_primary() {
            // The temporary memory of the sources is freed when this command ends, before the server evicts any keys.
            // So only this check limits it.
            call.admit(largest, cells)?;
        }
        sources = read_all(&blobs)?;
        let filters: Vec<LiveRef<'_>> = sources.iter().filter_map(Filter::live).collect();
        // Only now is it known which of the filters are fingerprint tables.
        if !call
            .goes_to_background(filters.iter().fold(held, |sum, filter| sum.saturating_add(work(*filter))))
        {
            let union = Union::plan(existing, &filters, now_ms).map_err(|why| blob_refusal(why.into()))?;
            return unite(call, key, &filters, union, blob_refusal);
        }
    }
    let is_new = existing.is_none();
    let most = cells.saturating_mul(2).saturating_add(existing.map_or(0, LiveRef::bytes));
    let memory = Admitted::for_background_work(call, largest, most)?;
    catch_up(call, &mut key)?;
    let inputs: Arc<[Live]> = key.bloom()?.into_iter().map(LiveRef::share).collect();
    let job = Background { keys: 1..2, inputs: inputs.clone(), data: Data::Arguments(arguments), memory };
    call.in_background(job, MergeBlobs { inputs, sources, is_new, now_ms })
}

/// A BF.MERGE of blobs in the background.
struct MergeBlobs {
    /// The destination, unless it `is_new`.
    inputs: Arc<[Live]>,
    /// The filters in the blobs, if they have been read.
    sources: Vec<Filter>,
    is_new: bool,
    now_ms: Option<u64>,
}

impl TwoStep for MergeBlobs {
    type Prepared = Result<Merged, Refused>;

    fn prepare(&mut self, blobs: &[&[u8]], parallel: &ParallelFor<'_>) -> Self::Prepared {
        let mut sources = std::mem::take(&mut self.sources);
        if sources.is_empty() {
            sources = read_all(blobs).map_err(Refused::Other)?;
        }
        let filters = self.inputs.iter().map(Live::as_ref).chain(sources.iter().filter_map(Filter::live));
        merged(&filters.collect::<Vec<_>>(), self.is_new, self.now_ms, parallel)
    }

    fn commit<'a, C: Call<'a>>(
        self,
        call: &C,
        merged: impl FnOnce() -> Self::Prepared,
    ) -> Result<Reply, CommandError> {
        let key = call.open::<Filter>(1, Access::Write);
        refuse_rebuild(&key)?;
        still_in_keys(&self.inputs, key.bloom()?.as_slice())?;
        put_merged(call, key, merged().map_err(blob_refusal)?)
    }
}

/// The error for blobs that can't be merged.
fn blob_refusal(why: Refused) -> CommandError {
    why.told(|source| format!("blob {}", source.saturating_add(1)))
}

/// Reads the Bloom filters in these blobs.
fn read_all(blobs: &[&[u8]]) -> Result<Vec<Filter>, CommandError> {
    let read = |(number, blob): (usize, &&[u8])| match whole::read(blob) {
        Ok(Filter::Cuckoo(_)) => Err(cuckoo_source(number)),
        read => read.map_err(|why| bad_source(number, why)),
    };
    blobs.iter().enumerate().map(read).collect()
}

/// The error for blob `number`, counted from 0.
fn bad_source(number: usize, why: DecodeError) -> CommandError {
    match why {
        DecodeError::OutOfMemory { bytes } => Error::OutOfMemory { bytes }.into(),
        why => CommandError::BadSource { blob: number.saturating_add(1), why },
    }
}

fn cuckoo_source(number: usize) -> CommandError {
    CommandError::CuckooSource { blob: number.saturating_add(1) }
}

/// The current time, or `None` on a server that follows another server's decisions.
fn clock<'a, C: Call<'a>>(call: &C) -> Option<u64> {
    (!call.is_from_primary()).then(|| call.now_ms())
}

/// Carries out the planned union with these filters immediately.
fn unite<'a, 'f, C: Call<'a>>(
    call: &C,
    mut key: C::Key<Filter>,
    filters: &[LiveRef<'f>],
    mut union: Union<'f>,
    refusal: impl Fn(Refused) -> CommandError,
) -> Result<Reply, CommandError> {
    let parallel: &ParallelFor<'_> = &|tasks, task| call.parallel(tasks, task);
    let existing = key.bloom()?;
    let Some(base) = existing.or(filters.first().copied()) else { return Err(CommandError::NotFound) };
    union.join(base, parallel).map_err(|why| refusal(why.into()))?;
    let grows = union.bytes();
    if !call.is_from_primary() {
        let total = base.bytes().saturating_add(grows);
        let more = if existing.is_none() { total } else { grows };
        // `spare` is temporary memory, which is freed when this command ends, before the server evicts any keys. So
        // only this check limits it.
        let spare = existing.map_or(0, |destination| union.spare_bytes(destination));
        if more > 0 || spare > 0 {
            call.admit(total, more.saturating_add(spare))?;
        }
    }
    let no_room = no_room(base);
    let changed = if existing.is_none() {
        let made = union.begun(base, parallel).map_err(no_room)?;
        key.create(made.into());
        true
    } else {
        catch_up(call, &mut key)?;
        match key.target()? {
            Some(Target::One(destination)) => union.apply(destination, parallel).map_err(no_room)?,
            Some(Target::Both(_)) => return Err(CommandError::Rebuilding),
            None => return Err(CommandError::NotFound),
        }
    };
    if changed {
        call.replicate(Effect::Verbatim);
        call.changed(c"bf.merge");
    }
    Ok(Reply::Ok)
}

/// A union of filters that was computed in the background.
struct Merged {
    filter: Live,
    /// The number of bytes of cells that the destination will have.
    total: u64,
    /// Whether the union differs from the destination.
    changed: bool,
}

/// Why filters can't be merged.
enum Refused {
    /// This source can't be combined with the first filter.
    Source(usize, Incompatible),
    Other(CommandError),
}

impl From<(usize, Incompatible)> for Refused {
    fn from((source, why): (usize, Incompatible)) -> Refused {
        Refused::Source(source, why)
    }
}

impl Refused {
    /// The error, with the source's name.
    fn told(self, name: impl Fn(usize) -> String) -> CommandError {
        match self {
            Refused::Source(source, why) => refused(name(source), why),
            Refused::Other(why) => why,
        }
    }
}

/// Returns the union of `inputs`. The first of them is the destination, unless the destination `is_new`.
fn merged(
    inputs: &[LiveRef<'_>],
    is_new: bool,
    now_ms: Option<u64>,
    parallel: &ParallelFor<'_>,
) -> Result<Merged, Refused> {
    let Some((base, sources)) = inputs.split_first() else {
        return Err(Refused::Other(CommandError::NotFound));
    };
    let mut union = match is_new {
        true => Union::plan(None, inputs, now_ms),
        false => Union::plan(Some(*base), sources, now_ms),
    }?;
    union.join(*base, parallel)?;
    let made = match is_new {
        true => union.begun(*base, parallel).map(|filter| (filter, true)),
        false => union.apart(*base, parallel),
    };
    let (filter, changed) = made.map_err(|why| Refused::Other(no_room(*base)(why)))?;
    Ok(Merged { filter, total: base.bytes().saturating_add(union.bytes()), changed })
}

/// Converts an error from computing a union. If the items don't fit, the new error gives the capacity of `base`.
fn no_room(base: LiveRef<'_>) -> impl Fn(Error) -> CommandError + Copy + use<> {
    let capacity = base.capacity();
    move |why| match why {
        Error::Full => CommandError::UnionFull { capacity },
        why => why.into(),
    }
}

/// Stores in its key a union that was computed in the background.
fn put_merged<'a, C: Call<'a>>(
    call: &C,
    mut key: C::Key<Filter>,
    merged: Merged,
) -> Result<Reply, CommandError> {
    let Merged { filter, total, changed } = merged;
    // The memory is already allocated, but the union may exceed the size limit for a filter.
    let admitted = call.admit(total, 0);
    if admitted.is_err() || !changed {
        call.discard(filter.into());
        return admitted.map(|()| Reply::Ok);
    }
    match key.target()? {
        None => key.create(filter.into()),
        Some(Target::One(destination)) => call.discard(destination.exchange(filter).into()),
        Some(Target::Both(_)) => return Err(CommandError::Rebuilding),
    }
    call.replicate(Effect::Verbatim);
    call.changed(c"bf.merge");
    Ok(Reply::Ok)
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
        since: "0.1.0",
        arguments: SOURCES,
        more_keys: &[MoreKeys::Rest],
        ..Entry::PLAIN
    }
);

/// `BF.INTERSECT destination source source…`: replaces the destination with the intersection, as SINTERSTORE does.
fn intersect<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
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
    let goes_to_background = call.goes_to_background(inputs.clone().map(LiveRef::bytes).sum());
    let bytes = first.bytes();
    // The destination keeps its content until the intersection is complete.
    let memory = match goes_to_background && key.value()?.is_some() {
        true => Admitted::for_background_work(call, bytes, bytes)?,
        false => Admitted::in_new_key(call, bytes, bytes)?,
    };
    if goes_to_background {
        let inputs: Arc<[Live]> = inputs.map(LiveRef::share).collect();
        let keys = 1..call.argc();
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

/// Processing a byte of a fingerprint table takes as long as processing this many bytes of bits or counters, because
/// each fingerprint is looked up in another table, which takes 45 ns.
const FINGERPRINTS: u64 = 32;

/// How long it takes to combine or compare this filter, expressed as the number of bytes of bits or counters that would
/// take as long.
fn work(filter: LiveRef<'_>) -> u64 {
    let is_looked_up = filter.bloom().is_some_and(|filter| filter.spec().layout == Some(Layout::Fingerprint));
    filter.bytes().saturating_mul(if is_looked_up { FINGERPRINTS } else { 1 })
}

command!(
    Equal,
    |call| equal(call),
    Entry {
        name: "bf.equal",
        arity: 3,
        key: KeyUse::Read,
        summary: "Tests whether two Bloom filters give every item the same answer",
        complexity: O_CELLS,
        since: "0.1.0",
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
