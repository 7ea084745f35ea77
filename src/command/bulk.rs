//! BF.BULKADD and BF.BULKTEST: the items of a command in one string. The server charges for every argument (65 to 115
//! ns) and every reply (20 ns); a string of a thousand items costs it little more than one item.

use super::error::CommandError;
use super::items::{add_each, filter_to_add_to};
use super::options::{Words, bad, unsigned};
use super::reply::Reply;
use super::{
    Access, Call, Command, Effect, Fork, Key, WrongType, current_generation, double, foreign, limit_items,
};
use crate::filter::batch::{GROUP, Probed, for_each_group, for_each_hashed_group};
use crate::filter::{Added, Bloom, Filter, Foreign, Layer};
use crate::hash::ItemHash;
use crate::metrics::OFFLOADED_ITEMS;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Items of one task of a fork: about 100 µs of work, against the microsecond that it takes to share it.
const PART: usize = 64 * GROUP;

/// How the items of a blob are told apart.
#[derive(Clone)]
enum Form {
    /// Each has as many bytes.
    Fixed { width: NonZeroUsize },
    /// Before each stands its length, u32, little-endian. `starts` has the offset of every [`PART`]th item.
    Prefixed { starts: Vec<usize> },
}

/// A blob, found to be whole.
struct Blob<'a> {
    bytes: &'a [u8],
    form: Form,
    /// Number of items.
    len: usize,
}

/// Argument that names the form.
const FORM: usize = 2;

impl<'a> Blob<'a> {
    /// Reads `FIXED width blob` or `PREFIXED blob`. Also gives the number of the blob's argument.
    fn parse<C: Call<'a>>(call: &C) -> Result<(Blob<'a>, usize), CommandError> {
        let mut words = Words { call, next: FORM };
        let form = words.next().unwrap_or_default();
        let whole = |blob: Blob<'a>, argument| limit_items(call, blob.len).map(|()| (blob, argument));
        if form.eq_ignore_ascii_case(b"FIXED") {
            let takes = "the number of bytes of each item, 1 or more";
            let positive = |word| NonZeroUsize::new(usize::try_from(unsigned(word)?).ok()?);
            let width = words.value("FIXED", takes, positive)?;
            let argument = words.next;
            let bytes = words.next().ok_or(CommandError::Arity)?;
            whole(Blob::fixed(bytes, width)?, argument)
        } else if form.eq_ignore_ascii_case(b"PREFIXED") {
            let argument = words.next;
            let bytes = words.next().ok_or(CommandError::Arity)?;
            whole(Blob::prefixed(bytes)?, argument)
        } else {
            Err(bad("the argument behind the key", "FIXED width, or PREFIXED"))
        }
    }

    fn fixed(bytes: &'a [u8], width: NonZeroUsize) -> Result<Blob<'a>, CommandError> {
        let (len, rest) = (bytes.len() / width, bytes.len() % width);
        if rest != 0 {
            return Err(CommandError::BadBlob { item: len, needed: width.get(), left: rest });
        }
        Ok(Blob { bytes, form: Form::Fixed { width }, len })
    }

    fn prefixed(bytes: &'a [u8]) -> Result<Blob<'a>, CommandError> {
        let (mut rest, mut len, mut starts) = (bytes, 0usize, Vec::new());
        while !rest.is_empty() {
            if len.is_multiple_of(PART) {
                starts.push(bytes.len().saturating_sub(rest.len()));
            }
            let left = rest.len();
            let (_, behind) =
                split_prefixed(rest).map_err(|needed| CommandError::BadBlob { item: len, needed, left })?;
            rest = behind;
            len = len.saturating_add(1);
        }
        Ok(Blob { bytes, form: Form::Prefixed { starts }, len })
    }

    /// Number of parts that tasks may take.
    fn parts(&self) -> usize {
        self.len.div_ceil(PART)
    }

    /// The items from the `part`th part on.
    fn items_from(&self, part: usize) -> Items<'a, '_> {
        let start = match &self.form {
            Form::Fixed { width } => part.saturating_mul(PART).saturating_mul(width.get()),
            Form::Prefixed { starts } => starts.get(part).copied().unwrap_or(self.bytes.len()),
        };
        Items { rest: self.bytes.get(start..).unwrap_or_default(), form: &self.form }
    }

    /// All items.
    fn items(&self) -> Items<'a, '_> {
        self.items_from(0)
    }

    /// The first `count` items.
    fn first(&self, count: usize) -> Blob<'a> {
        let mut items = self.items();
        items.by_ref().take(count).for_each(drop);
        let bytes = self.bytes.len().saturating_sub(items.rest.len());
        let bytes = self.bytes.get(..bytes).unwrap_or_default();
        Blob { bytes, form: self.form.clone(), len: count }
    }

    /// The arguments of a command that has these items.
    fn arguments(&self) -> Vec<Vec<u8>> {
        let bytes = self.bytes.to_vec();
        match &self.form {
            Form::Fixed { width } => vec![b"FIXED".to_vec(), width.to_string().into_bytes(), bytes],
            Form::Prefixed { .. } => vec![b"PREFIXED".to_vec(), bytes],
        }
    }
}

/// The first item behind its length, and what follows. The error is how many bytes there should be.
#[inline(always)]
fn split_prefixed(bytes: &[u8]) -> Result<(&[u8], &[u8]), usize> {
    let (length, rest) = bytes.split_first_chunk().ok_or(size_of::<u32>())?;
    let length = u32::from_le_bytes(*length) as usize;
    rest.split_at_checked(length).ok_or(length.saturating_add(size_of::<u32>()))
}

/// Items of a blob, one after the other.
struct Items<'a, 'f> {
    rest: &'a [u8],
    form: &'f Form,
}

impl<'a> Items<'a, '_> {
    /// The same if each has 16 bytes, as UUIDs and digests have: of a length that the compiler knows it makes a hash
    /// without branches.
    fn of_16(&self) -> Option<impl Iterator<Item = &'a [u8]> + use<'a>> {
        match self.form {
            Form::Fixed { width } if width.get() == 16 => {
                Some(self.rest.as_chunks::<16>().0.iter().map(|item| item.as_slice()))
            }
            _ => None,
        }
    }
}

impl<'a> Iterator for Items<'a, '_> {
    type Item = &'a [u8];

    #[inline(always)]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (item, rest) = match self.form {
            Form::Fixed { width } => self.rest.split_at_checked(width.get())?,
            Form::Prefixed { .. } => split_prefixed(self.rest).ok()?,
        };
        self.rest = rest;
        Some(item)
    }
}

/// One answer an item: a word for each group.
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

    fn ones(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.load(Relaxed).count_ones())).sum()
    }

    /// How many answers are yes, and how many no.
    fn answers(&self) -> (u64, u64) {
        let yes = self.ones();
        (yes, (self.len as u64).saturating_sub(yes))
    }

    /// In the order of GETBIT: the first item is the highest bit of the first byte.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.words.len().saturating_mul(size_of::<u64>()));
        self.words.iter().for_each(|word| bytes.extend(word.load(Relaxed).reverse_bits().to_be_bytes()));
        bytes.truncate(self.len.div_ceil(8));
        bytes
    }

    fn reply(&self, counted: bool) -> Reply {
        if counted { self.ones().into() } else { Reply::Bulk(self.to_bytes()) }
    }
}

/// Tests the items of a blob; `group` tests up to 64. The parts are shared among the threads of `fork`.
fn bitmap<F: Probed + Sync>(
    blob: &Blob<'_>,
    filter: &F,
    fork: &Fork<'_>,
    group: impl Fn(&F, &[ItemHash]) -> u64 + Sync,
) -> Bitmap {
    let bitmap = Bitmap::none(blob.len);
    fork(blob.parts(), &|part| {
        let mut words = bitmap.words.chunks(PART / GROUP).nth(part).unwrap_or_default().iter();
        let test = |filter: &mut &F, items: &[ItemHash]| {
            if let Some(word) = words.next() {
                word.store(group(filter, items), Relaxed);
            }
            ControlFlow::Continue(())
        };
        let (filter, items) = (&mut &*filter, blob.items_from(part));
        match items.of_16() {
            Some(items) => for_each_group(filter, Layer::prefetch, items.take(PART), test),
            None => for_each_group(filter, Layer::prefetch, items.take(PART), test),
        }
    });
    bitmap
}

/// The same for another system's filter, which hashes in its own way.
fn foreign_bitmap(blob: &Blob<'_>, filter: &Foreign, fork: &Fork<'_>) -> Bitmap {
    let bitmap = Bitmap::none(blob.len);
    fork(blob.parts(), &|part| {
        let words = bitmap.words.chunks(PART / GROUP).nth(part).unwrap_or_default();
        let mut items = blob.items_from(part);
        for word in words {
            let found = items.by_ref().take(GROUP).enumerate();
            word.store(
                found.fold(0, |word, (index, item)| word | u64::from(filter.contains(item)) << index),
                Relaxed,
            );
        }
    });
    bitmap
}

/// `BF.BULKTEST key FIXED width blob [COUNT]`, `BF.BULKTEST key PREFIXED blob [COUNT]`.
pub(super) fn test<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let (blob, argument) = Blob::parse(call)?;
    let counted = match call.argc().saturating_sub(argument) {
        1 => false,
        2 if call.arg(argument.saturating_add(1)).eq_ignore_ascii_case(b"COUNT") => true,
        2 => return Err(bad("the argument behind the items", "COUNT, or nothing")),
        _ => return Err(CommandError::Arity),
    };
    let key = call.open(1, Access::Read);
    match key.value()?.map(Filter::live) {
        None => Ok(Bitmap::none(blob.len).reply(counted)),
        Some(Filter::Cuckoo(_) | Filter::Rebuild(_)) => Err(WrongType.into()),
        Some(Filter::Foreign(filter)) => {
            let bitmap = foreign_bitmap(&blob, filter, &|tasks, task| call.fork(tasks, task));
            let (yes, no) = bitmap.answers();
            filter.usage().tested(yes, no);
            Ok(bitmap.reply(counted))
        }
        Some(Filter::Bloom(filter)) => {
            let current = current_generation(call, filter);
            if blob.len as u64 >= call.settings().offload_min_items {
                let (reader, form, len) = (filter.reader(), blob.form, blob.len);
                let usage = filter.usage().elsewhere();
                return Ok(call.offload(argument, move |bytes, fork| {
                    let blob = Blob { bytes, form, len };
                    OFFLOADED_ITEMS.add(len as u64);
                    let bitmap =
                        bitmap(&blob, &reader, fork, |reader, items| reader.contains_many(items, current));
                    let (yes, no) = bitmap.answers();
                    usage.tested(yes, no);
                    bitmap.reply(counted)
                }));
            }
            let fork: &Fork<'_> = &|tasks, task| call.fork(tasks, task);
            let bitmap = bitmap(&blob, filter, fork, |filter, items| filter.contains_many(items, current));
            let (yes, no) = bitmap.answers();
            filter.usage().tested(yes, no);
            Ok(bitmap.reply(counted))
        }
    }
}

/// `BF.BULKADD key FIXED width blob`, `BF.BULKADD key PREFIXED blob`: adds the items in order.
pub(super) fn add<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let (blob, argument) = Blob::parse(call)?;
    if call.argc() != argument.saturating_add(1) {
        return Err(CommandError::Arity);
    }
    let mut key = call.open(1, Access::Write);
    let outcome = match filter_to_add_to(call, &mut key) {
        Err(CommandError::NotNative) => match key.foreign_mut() {
            None => return Err(CommandError::NotFound),
            Some(filter) => add_to_foreign(call, filter, &blob),
        },
        Err(CommandError::Rebuilding) => add_to_both(call, &mut key, &blob)?,
        filter => add_to(call, filter?, &blob, 0),
    };
    if let Some(usage) = key.value()?.and_then(Filter::usage) {
        usage.added(outcome.done as u64);
    }
    if outcome.changed {
        // Those behind a refused item did not go in.
        call.replicate(match &outcome.refused {
            None => Effect::Verbatim,
            Some(_) => Effect::Arguments(Command::Bulkadd, blob.first(outcome.done).arguments()),
        });
        call.changed(c"bf.add");
    }
    match outcome.refused {
        None => Ok(outcome.added.into()),
        Some(why) => Err(CommandError::Stopped { done: outcome.done, of: blob.len, why: Box::new(why) }),
    }
}

/// What became of the items of a blob.
#[derive(Default)]
struct Outcome {
    /// Items that were absent before.
    added: u64,
    /// Items before the first that was refused.
    done: usize,
    changed: bool,
    refused: Option<CommandError>,
}

impl Outcome {
    /// Notes what became of the next item.
    #[inline(always)]
    fn note(&mut self, result: Result<Added, CommandError>) -> ControlFlow<()> {
        match result {
            Ok(Added { added, changed }) => {
                self.added = self.added.saturating_add(added.into());
                self.changed |= changed;
                self.done = self.done.saturating_add(1);
                ControlFlow::Continue(())
            }
            Err(why) => {
                self.refused = Some(why);
                ControlFlow::Break(())
            }
        }
    }
}

#[inline]
fn add_to<'a, C: Call<'a>>(call: &C, filter: &mut Bloom, blob: &Blob<'_>, beside: u64) -> Outcome {
    let shards = filter.shards_for(blob.len as u64);
    if shards > 1 && blob.parts() > 1 && call.threads() > 1 {
        return add_by_shard(call, filter, shards, blob);
    }
    let mut outcome = Outcome::default();
    add_each(call, filter, blob.items(), beside, |result| outcome.note(result));
    outcome
}

/// Adds the items on several threads, each those of its own shards: items that are alike have one shard, and stay in
/// order. Each thread hashes all items, which is a fifth of the work of adding them and needs no memory.
fn add_by_shard<'a, C: Call<'a>>(call: &C, filter: &Bloom, shards: u32, blob: &Blob<'_>) -> Outcome {
    let tasks = u32::try_from(call.threads()).unwrap_or(u32::MAX).min(shards);
    let (added, changed) = (AtomicU64::new(0), AtomicBool::new(false));
    call.fork(tasks as usize, &|task| {
        let hasher = filter.hasher();
        let hashes = blob.items().map(|item| hasher.hash(item));
        // Each has a range of the shards, of which there is a power of two.
        let owner = |shard: u32| shard.wrapping_mul(tasks) >> shards.trailing_zeros();
        let own = hashes.filter(|item| owner(item.shard(shards)) as usize == task);
        let (mut new, mut any) = (0u64, false);
        for_each_hashed_group(&mut &*filter, Layer::prefetch_all, own, |filter, items| {
            for item in items {
                let done = filter.add_in_own_shard(*item);
                new = new.wrapping_add(done.added.into());
                any |= done.changed;
            }
            ControlFlow::Continue(())
        });
        added.fetch_add(new, Relaxed);
        changed.fetch_or(any, Relaxed);
    });
    Outcome { added: added.into_inner(), done: blob.len, changed: changed.into_inner(), refused: None }
}

#[cold]
fn add_to_foreign<'a, C: Call<'a>>(call: &C, filter: &mut Foreign, blob: &Blob<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    let _ = blob.items().try_for_each(|item| outcome.note(foreign::add_item(call, filter, item)));
    outcome
}

/// Adds the items to a filter that is being rebuilt, and those that were not refused to its shadow.
#[cold]
fn add_to_both<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key,
    blob: &Blob<'_>,
) -> Result<Outcome, CommandError> {
    double::catch_up(call, key)?;
    let rebuild = key.rebuild_mut().ok_or(CommandError::NotFound)?;
    let mut outcome = match rebuild.live_mut() {
        Filter::Bloom(filter) => add_to(call, filter, blob, 0),
        Filter::Foreign(filter) => add_to_foreign(call, filter, blob),
        Filter::Cuckoo(_) | Filter::Rebuild(_) => return Err(WrongType.into()),
    };
    let beside = rebuild.live().bytes();
    let accepted = outcome.refused.as_ref().map(|_| blob.first(outcome.done));
    let shadow = add_to(call, rebuild.shadow_mut(), accepted.as_ref().unwrap_or(blob), beside);
    match shadow.refused {
        None => outcome.changed |= shadow.changed,
        Some(why) => double::give_up(call, key, &why),
    }
    Ok(outcome)
}
