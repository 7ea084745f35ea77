//! Commands that test items: BF.EXISTS, MEXISTS, TEST, BULKTEST, COUNT.

use crate::blob::{Blob, Unread};
use crate::call::{Access, BloomKey, Call};
use crate::error::CommandError;
use crate::items::{BLOOM_STEP, items, limit_items, time_probes};
use crate::metrics::OFFLOADED_ITEMS;
use crate::reply::{Answer, Answers, Reply};
use crate::table::{
    Entry, ITEM, ITEMS, Timing,
    bloom::{BLOB, O_K, O_K_N},
    command, optional, word,
};
use bloomery::bits::Hits;
use bloomery::filter::bloom::batch::{GROUP, Probed, Work, for_each_group};
use bloomery::filter::{Bloom, Filter, Foreign, Live, LiveRef};
use bloomery::parallel::{ParallelFor, Stop};
use bloomery::params::limits;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The index of the first item among the arguments.
const FIRST_ITEM: usize = 2;

/// Number of the generation that is current for a read; 0 if the filter isn't a window. In a window with a period, it
/// depends on the time.
#[inline(always)]
pub(super) fn current_generation<'a, C: Call<'a>>(call: &C, filter: &Bloom) -> u64 {
    match filter.window() {
        None => 0,
        Some(window) if window.schedule().every_ms == 0 => window.newest(),
        Some(window) => window.number_at(call.now_ms()),
    }
}

command!(
    Exists,
    |call| test(call),
    Entry {
        name: "bf.exists",
        arity: 3,
        summary: "Tests whether an item may be in a Bloom filter",
        complexity: O_K,
        since: "1.0.0",
        arguments: ITEM,
        timing: Timing::Never,
        ..Entry::PLAIN
    }
);

command!(
    Test,
    |call| test(call),
    Entry {
        name: "bf.test",
        arity: 3,
        summary: "Tests whether an item may be in a Bloom filter",
        complexity: O_K,
        arguments: ITEM,
        timing: Timing::Never,
        ..Entry::PLAIN
    }
);

/// `BF.EXISTS key item`, `BF.TEST key item`. As in RedisBloom, a missing key or a key of another type contains no
/// items.
#[inline(always)]
fn test<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open::<Filter>(1, Access::Read);
    let filter = match key.bloom() {
        Ok(Some(LiveRef::Bloom(filter))) => filter,
        Ok(Some(LiveRef::Foreign(filter))) => return Ok(test_foreign(call, filter)),
        _ => return Ok(Reply::Bool(false)),
    };
    let item = filter.item_hash(call.arg(FIRST_ITEM));
    let found = filter.contains_as_of(item, current_generation(call, filter));
    filter.usage().answered(found);
    Ok(Reply::Bool(found))
}

#[cold]
fn test_foreign<'a, C: Call<'a>>(call: &C, filter: &Foreign) -> Reply {
    let found = filter.contains(call.arg(FIRST_ITEM));
    filter.usage().answered(found);
    Reply::Bool(found)
}

/// A filter that tests items in groups.
trait Tester: Sync {
    /// Tests items in order. Passes each group's answers and number of items to `show`, until `show` returns `Break`.
    fn test_each<'i>(
        &self,
        items: impl Iterator<Item = &'i [u8]>,
        show: impl FnMut(Hits, usize) -> ControlFlow<()>,
    );
}

/// A native filter, and the generation that the test sees as the current one.
struct Native<'f, F> {
    filter: &'f F,
    current: u64,
}

impl<F: Probed + Sync> Tester for Native<'_, F> {
    #[inline(always)]
    fn test_each<'i>(
        &self,
        items: impl Iterator<Item = &'i [u8]>,
        mut show: impl FnMut(Hits, usize) -> ControlFlow<()>,
    ) {
        for_each_group(&mut &*self.filter, Work::Test, items, |filter, group| {
            show(filter.contains_many(group, self.current), group.len())
        });
    }
}

/// Tests one item after another. Each system hashes in its own way, so nothing is prefetched.
impl Tester for Foreign {
    fn test_each<'i>(
        &self,
        items: impl Iterator<Item = &'i [u8]>,
        mut show: impl FnMut(Hits, usize) -> ControlFlow<()>,
    ) {
        let (mut hits, mut len) = (Hits::default(), 0);
        for item in items {
            if len == GROUP && show(std::mem::take(&mut hits), std::mem::take(&mut len)).is_break() {
                return;
            }
            hits = hits.with(len, self.contains(item));
            len = len.saturating_add(1);
        }
        if len > 0 {
            _ = show(hits, len);
        }
    }
}

command!(
    Mexists,
    |call| test_many(call),
    Entry {
        name: "bf.mexists",
        arity: -3,
        summary: "Tests whether items may be in a Bloom filter",
        complexity: O_K_N,
        since: "1.0.0",
        arguments: ITEMS,
        timing: Timing::IfLong,
        in_pieces: true,
        ..Entry::PLAIN
    }
);

/// `BF.MEXISTS key item…`.
#[inline(always)]
fn test_many<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let count = call.argc().saturating_sub(FIRST_ITEM);
    limit_items(call, count)?;
    let key = call.open::<Filter>(1, Access::Read);
    let mut answers = Answers::default();
    let Ok(Some(filter)) = key.bloom() else {
        answers.answers.extend(items(call, FIRST_ITEM, BLOOM_STEP).map(|_| Answer::No));
        return Ok(Reply::Answers(answers));
    };
    time_probes(call, filter);
    answers.answers.reserve(count);
    let mut yes = 0u64;
    let show = |hits: Hits, len| {
        yes = yes.wrapping_add(hits.count().into());
        answers.answers.extend((0..len).map(|index| Answer::from(hits.has(index))));
        ControlFlow::Continue(())
    };
    let items = items(call, FIRST_ITEM, BLOOM_STEP);
    match filter {
        LiveRef::Bloom(filter) => {
            Native { filter, current: current_generation(call, filter) }.test_each(items, show);
        }
        LiveRef::Foreign(filter) => filter.test_each(items, show),
    }
    filter.usage().tested(yes, (answers.answers.len() as u64).wrapping_sub(yes));
    Ok(Reply::Answers(answers))
}

/// The answers for the items of a blob: one bit per item, and one word per group.
struct Bitmap {
    words: Vec<AtomicU64>,
    len: usize,
}

impl Bitmap {
    fn none(len: usize) -> Bitmap {
        let mut words = Vec::new();
        words.resize_with(len.div_ceil(GROUP), AtomicU64::default);
        Bitmap { words, len }
    }

    /// Tests the items of a blob on several threads. `tasks` is the number of tasks per part. Once `stop` is set, each
    /// thread tests at most one more group, because waiting for whole tasks would take too long. The caller then
    /// discards the answers.
    fn of(
        blob: &Blob<'_>,
        filter: &impl Tester,
        tasks: NonZeroUsize,
        parallel: &ParallelFor<'_>,
        stop: &Stop,
    ) -> Bitmap {
        let bitmap = Bitmap::none(blob.len());
        let task = Blob::PART / tasks;
        parallel(blob.len().div_ceil(task), &|index| {
            if stop.is_set() {
                return;
            }
            let mut words = bitmap.words.chunks(task / GROUP).nth(index).unwrap_or_default().iter();
            let show = |hits: Hits, _| {
                if let Some(word) = words.next() {
                    word.store(hits.0, Relaxed);
                }
                if stop.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let mut items = blob.items_from(index / tasks);
            items.by_ref().take((index % tasks).saturating_mul(task)).for_each(drop);
            match items.of_16() {
                Some(items) => filter.test_each(items.take(task), show),
                None => filter.test_each(items.take(task), show),
            }
        });
        bitmap
    }

    fn ones(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.load(Relaxed).count_ones())).sum()
    }

    /// Returns the bits in GETBIT's order. The first item is the highest bit of the first byte.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.words.len().saturating_mul(size_of::<u64>()));
        self.words.iter().for_each(|word| bytes.extend(word.load(Relaxed).reverse_bits().to_be_bytes()));
        bytes.truncate(self.len.div_ceil(8));
        bytes
    }

    /// Passes the number of "yes" answers and the number of "no" answers to `count`. Replies with the answers or, if
    /// `counted`, with the number of "yes" answers.
    fn reply(&self, counted: bool, count: impl FnOnce(u64, u64)) -> Reply {
        let yes = self.ones();
        count(yes, (self.len as u64).saturating_sub(yes));
        if counted { yes.into() } else { Reply::Bulk(self.to_bytes()) }
    }
}

/// The number of parallel tasks for testing a part. It is higher if each item has many probes, so that a task takes at
/// most about a millisecond before other jobs get their turn. With 4096 layers, testing a whole part would take more
/// than a second.
fn tasks(filter: LiveRef<'_>) -> NonZeroUsize {
    const MOST: usize = Blob::PART / GROUP;
    // 2^18 probes per task.
    let tasks = usize::try_from(filter.probes() >> 6).unwrap_or(MOST).min(MOST);
    NonZeroUsize::new(tasks.next_power_of_two()).unwrap_or(NonZeroUsize::MIN)
}

/// Returns a filter's answers for the items of a blob. In a window, `current` is the current generation. A missing
/// filter contains none of the items.
fn answers(
    blob: &Blob<'_>,
    filter: Option<LiveRef<'_>>,
    current: u64,
    parallel: &ParallelFor<'_>,
    stop: &Stop,
) -> Bitmap {
    match filter {
        None => Bitmap::none(blob.len()),
        Some(live @ LiveRef::Foreign(filter)) => Bitmap::of(blob, filter, tasks(live), parallel, stop),
        Some(live @ LiveRef::Bloom(filter)) => {
            Bitmap::of(blob, &Native { filter, current }, tasks(live), parallel, stop)
        }
    }
}

command!(
    Bulktest,
    |call| test_bulk(call),
    Entry {
        name: "bf.bulktest",
        arity: -4,
        summary: "Tests the items of one string, and returns one bit for each",
        complexity: O_K_N,
        arguments: &[BLOB, optional(word("count", "COUNT"))],
        ..Entry::PLAIN
    }
);

/// `BF.BULKTEST key FIXED width blob [COUNT]`, `BF.BULKTEST key PREFIXED blob [COUNT]`.
fn test_bulk<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let (unread, bytes) = Unread::parse(call, FIRST_ITEM)?;
    let argument = unread.argument();
    let counted = match call.argc().saturating_sub(argument) {
        1 => false,
        2 if call.arg(argument.saturating_add(1)).eq_ignore_ascii_case(b"COUNT") => true,
        2 => return Err(CommandError::Expected("COUNT or nothing after the items")),
        _ => return Err(CommandError::Arity),
    };
    let blob = if unread.is_long() { None } else { Some(unread.read(bytes, || ())?) };
    let key = call.open::<Filter>(1, Access::Read);
    let filter = key.bloom()?;
    // An item might be tested in every layer. A single test in an imported filter can need as many probes as one in
    // hundreds of layers.
    let probes = filter.map_or(0, LiveRef::probes).checked_div(limits::MAX_PROBES.into()).unwrap_or(0);
    let layers = filter.map_or(1, LiveRef::arrays).max(usize::try_from(probes).unwrap_or(usize::MAX));
    let is_short =
        |blob: &Blob<'_>| (blob.len().saturating_mul(layers) as u64) < call.settings().offload_min_items;
    let blob = blob.filter(is_short);
    let current = filter.and_then(LiveRef::bloom).map_or(0, |filter| current_generation(call, filter));
    let Some(blob) = blob else {
        let usage = filter.map(|filter| filter.usage().off_main_thread());
        let inputs: Arc<[Live]> = filter.map(LiveRef::share).into_iter().collect();
        return call.offload(argument, inputs.clone(), move |bytes, parallel, stop| {
            // Each pause runs an empty task, after which other jobs can get their turn.
            let blob = match unread.read(bytes, || parallel(1, &|_| ())) {
                Ok(blob) => blob,
                Err(why) => return Some(Err(why)),
            };
            let bitmap = answers(&blob, inputs.first().map(Live::as_ref), current, parallel, stop);
            if stop.is_set() {
                return None;
            }
            OFFLOADED_ITEMS.add(blob.len() as u64);
            Some(Ok(bitmap.reply(counted, |yes, no| {
                if let Some(usage) = usage {
                    usage.tested(yes, no);
                }
            })))
        });
    };
    let parallel: &ParallelFor<'_> = &|tasks, task| call.parallel(tasks, task);
    let bitmap = answers(&blob, filter, current, parallel, &Stop::default());
    Ok(bitmap.reply(counted, |yes, no| {
        if let Some(filter) = filter {
            filter.usage().tested(yes, no);
        }
    }))
}

command!(
    Count,
    |call| count(call),
    Entry {
        name: "bf.count",
        arity: 3,
        summary: "Estimates how often an item was added to a counting filter",
        complexity: O_K,
        arguments: ITEM,
        timing: Timing::Never,
        ..Entry::PLAIN
    }
);

/// `BF.COUNT key item`.
fn count<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open::<Filter>(1, Access::Read);
    let Some(filter) = key.bloom()? else { return Ok(Reply::Integer(0)) };
    let filter = filter.bloom().ok_or(CommandError::NotNative)?;
    Ok(filter.count(filter.item_hash(call.arg(FIRST_ITEM)))?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bloomery::parallel::alone;

    /// A filter that sets `stop` while group number `at`, counted from 1, is tested.
    struct Leaves {
        stop: Stop,
        at: u64,
        groups: AtomicU64,
    }

    impl Tester for Leaves {
        fn test_each<'i>(
            &self,
            mut items: impl Iterator<Item = &'i [u8]>,
            mut show: impl FnMut(Hits, usize) -> ControlFlow<()>,
        ) {
            while items.by_ref().take(GROUP).count() > 0 {
                if self.groups.fetch_add(1, Relaxed) + 1 == self.at {
                    self.stop.set();
                }
                if show(Hits::default(), GROUP).is_break() {
                    return;
                }
            }
        }
    }

    /// No group is tested after the one during which the client disconnects, whichever part that group is in.
    #[test]
    fn tests_stop_after_the_group_during_which_the_client_went() {
        let bytes = vec![0; 3 * Blob::PART];
        let blob = Blob::fixed(&bytes, NonZeroUsize::MIN).unwrap();
        let groups = (Blob::PART / GROUP) as u64;
        for at in [1, 2, groups, groups + 1, 2 * groups + 5, 3 * groups, u64::MAX] {
            for tasks in [1, 8, Blob::PART / GROUP] {
                let filter = Leaves { stop: Stop::default(), at, groups: AtomicU64::new(0) };
                Bitmap::of(&blob, &filter, NonZeroUsize::new(tasks).unwrap(), &alone, &filter.stop);
                assert_eq!(filter.groups.into_inner(), at.min(3 * groups));
            }
        }
    }
}
