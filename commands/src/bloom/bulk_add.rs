//! BULKADD: many items in one string, and the backfill of BF.REBUILD from such a string.

use super::add::{FIRST_ITEM, Outcome, add_each, add_to_bloom, target_or_new};
use super::shadow::give_up;
use crate::blob::{Blob, Items, Parts};
use crate::call::{Access, BloomKey, Call, Effect};
use crate::error::CommandError;
use crate::grow::Growing;
use crate::items::{Mode, should_pause, step_for};
use crate::reply::Reply;
use crate::table::{
    Entry, KeyUse,
    bloom::{BLOB, O_K_N},
    command, optional, word,
};
use bloomery::filter::bloom::batch::{Work, for_each_hashed_group};
use bloomery::filter::{Added, Bloom, Filter, LiveMut, Rebuild, Target};
use smallvec::SmallVec;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

command!(
    Bulkadd,
    |call| add_bulk(call),
    Entry {
        name: "bf.bulkadd",
        arity: -4,
        key: KeyUse::Insert,
        flags: "deny-oom",
        summary: "Adds the items of one string to a Bloom filter, creating it if needed",
        complexity: O_K_N,
        arguments: &[optional(word("nocreate", "NOCREATE")), BLOB],
        in_pieces: true,
        ..Entry::PLAIN
    }
);

/// `BF.BULKADD key [NOCREATE] FIXED width blob`, `BF.BULKADD key [NOCREATE] PREFIXED blob`: adds the items in order.
fn add_bulk<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let may_create = !call.arg(FIRST_ITEM).eq_ignore_ascii_case(b"NOCREATE");
    let form = if may_create { FIRST_ITEM } else { FIRST_ITEM.saturating_add(1) };
    let mut blobs = Parts::parse(call, form)?;
    // The first part, which may be the whole blob, is checked before anything changes.
    let part = blobs.next()?;
    let mut key = call.open::<Filter>(1, Access::Write);
    if !may_create && key.bloom()?.is_none() {
        return Err(CommandError::NotFound);
    }
    let mut target = target_or_new(call, &mut key)?;
    let (mut sums, mut lost) = (Sums::default(), None);
    let step = step_for(target.lines());
    add_parts(call, &mut blobs, part, &mut sums, |blob, sums| match &mut target {
        Target::One(LiveMut::Bloom(filter)) if shards(call, filter, blob) > 1 => {
            let (mut items, end) = (blob.items(), sums.done.saturating_add(blob.len()));
            while sums.done < end && !call.should_pause(sums.done) {
                let left = end.saturating_sub(sums.done);
                let count = sums.done.clamp(step, MOST_TOGETHER).min(left);
                sums.append(add_by_shard(call, filter, &items, count));
                items.by_ref().take(count).for_each(drop);
            }
        }
        target => {
            let items = until_pause(call, sums.done, blob, step);
            let shadow_lost = add_each(call, target, items, Mode::Add, |outcome| sums.note(outcome));
            lost = lost.take().or(shadow_lost);
        }
    });
    target.added(sums.done as u64);
    if let Some(why) = lost {
        give_up(call, &mut key, &why);
    }
    if sums.changed {
        // Items that the command hasn't processed are left out. So is NOCREATE, which has no effect if the filter
        // exists.
        let words: SmallVec<[usize; 3]> = (form..call.argc()).collect();
        call.replicate(match blobs.are_done() {
            true if may_create => Effect::Verbatim,
            true => Effect::Items("bf.bulkadd", &words),
            false => Effect::Arguments("bf.bulkadd", blobs.done()),
        });
        call.changed(c"bf.add");
    }
    if let Some(why) = sums.refused {
        return Err(CommandError::Stopped { done: sums.done, of: blobs.of(), why: Box::new(why) });
    }
    if !blobs.are_done() {
        call.go_on_later(blobs.rest());
    }
    Ok(sums.added.into())
}

/// Adds the items of a blob part by part, beginning with `part`, until the server should serve other clients or an item
/// is refused.
fn add_parts<'a, C: Call<'a>>(
    call: &C,
    blobs: &mut Parts<'a>,
    mut part: Option<Blob<'a>>,
    sums: &mut Sums,
    mut add: impl FnMut(&Blob<'a>, &mut Sums),
) {
    while let Some(blob) = &part {
        let before = sums.done;
        add(blob, sums);
        let done = sums.done.saturating_sub(before);
        blobs.advance(blob, done);
        if done < blob.len() {
            break;
        }
        part = match blobs.next() {
            Ok(Some(_)) if call.should_pause(sums.done) => break,
            Ok(part) => part,
            Err(why) => {
                sums.refused = Some(why);
                break;
            }
        };
    }
}

/// Iterates over the items of a part, up to the point where the server should serve other clients. `done` items were
/// added before them.
fn until_pause<'a, 'b, C: Call<'a>>(
    call: &'b C,
    done: usize,
    blob: &'b Blob<'a>,
    step: usize,
) -> impl Iterator<Item = &'a [u8]> + use<'a, 'b, C> {
    let numbered = (done..).zip(blob.items());
    numbered.take_while(move |(done, _)| !should_pause(call, *done, step)).map(|(_, item)| item)
}

/// The outcome of adding items up to the first refusal.
#[derive(Default)]
struct Sums {
    /// Number of items that were absent before.
    added: u64,
    /// Number of items before the first one that was refused.
    done: usize,
    changed: bool,
    refused: Option<CommandError>,
}

impl Sums {
    /// Adds the outcome for the items that follow.
    fn append(&mut self, next: Sums) {
        self.added = self.added.saturating_add(next.added);
        self.done = self.done.saturating_add(next.done);
        self.changed |= next.changed;
    }

    /// Records the outcome of the next item.
    #[inline(always)]
    fn note(&mut self, outcome: Outcome) -> ControlFlow<()> {
        match outcome {
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

/// Number of shards to which threads can add these items in parallel. It is 1 if one thread should add them all.
fn shards<'a, C: Call<'a>>(call: &C, filter: &Bloom, blob: &Blob<'_>) -> u32 {
    if blob.len() > Blob::PART && call.threads() > 1 { filter.shards_for(blob.len() as u64) } else { 1 }
}

/// Maximum number of items that several threads add between two readings of the clock. Until that maximum is reached,
/// each step has as many items as have been added so far. So between two readings, the command's running time at most
/// doubles, even if an item takes 70 µs. An item can take that long in memory that hasn't been touched, where each of
/// up to 40 probes makes the kernel provide a page.
const MOST_TOGETHER: usize = 2 * Blob::PART;

/// Adds the first `count` of these items on several threads. Each thread adds the items of its own shards. Equal items
/// are in the same shard, so they stay in order. Each thread hashes all items. That is a fifth of the work of adding
/// them, and it needs no memory.
fn add_by_shard<'a, C: Call<'a>>(call: &C, filter: &Bloom, items: &Items<'_, '_>, count: usize) -> Sums {
    let shards = filter.newest_layer().shards();
    let tasks = u32::try_from(call.threads()).unwrap_or(u32::MAX).min(shards);
    let (added, changed) = (AtomicU64::new(0), AtomicBool::new(false));
    call.parallel(tasks as usize, &|task| {
        let hasher = filter.hasher();
        let hashes = items.clone().take(count).map(|item| hasher.hash(item));
        // Each task has a range of the shards. The number of shards is a power of two.
        let owner = |shard: u32| shard.wrapping_mul(tasks) >> shards.trailing_zeros();
        let own = hashes.filter(|item| owner(item.shard(shards)) as usize == task);
        let (mut new, mut any) = (0u64, false);
        for_each_hashed_group(&mut &*filter, Work::Write, own, |filter, items| {
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
    Sums { added: added.into_inner(), done: count, changed: changed.into_inner(), refused: None }
}

/// The outcome of backfilling a rebuild from a blob.
pub(super) struct BulkBackfill<'a> {
    /// The blob, and how much of it is done.
    pub(super) blobs: Parts<'a>,
    /// Number of items that are done.
    pub(super) done: usize,
    /// Whether the shadow has changed.
    pub(super) changed: bool,
    /// Why the next item was refused.
    pub(super) refused: Option<CommandError>,
}

/// Adds the items of a blob to the shadow only, until the shadow refuses an item or the server should serve other
/// clients. `part` is the first part of the blob.
pub(super) fn backfill_bulk<'a, C: Call<'a>>(
    call: &C,
    rebuild: &mut Rebuild,
    mut blobs: Parts<'a>,
    part: Option<Blob<'a>>,
) -> BulkBackfill<'a> {
    let (live, shadow) = rebuild.both_mut();
    let (mut sums, step) = (Sums::default(), step_for(shadow.newest_layer().lines()));
    add_parts(call, &mut blobs, part, &mut sums, |blob, sums| {
        let items = until_pause(call, sums.done, blob, step);
        let growing = Growing::of_shadow(shadow, live.as_ref());
        add_to_bloom(call, shadow, items, growing, |outcome| sums.note(outcome));
    });
    BulkBackfill { blobs, done: sums.done, changed: sums.changed, refused: sums.refused }
}
