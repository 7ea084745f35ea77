//! Commands that add items: ADD, ADDNX, MADD, INSERT, and the backfill of BF.REBUILD. This is the hot path:
//! items go through the filter in groups, and nothing is allocated per item.
//!
//! While a filter is being rebuilt, each item goes to the live filter. It also goes to the shadow, unless the live
//! filter refused it. The client gets the live filter's reply. If the shadow refuses an item, the rebuild ends. The
//! client isn't told, because its own add succeeded.

use super::create::create_new;
use super::generations::{catch_up, catch_up_to, due};
use super::reach;
use super::shadow::give_up;
use crate::call::{Access, BloomKey, Call, Effect, Key};
use crate::error::CommandError;
use crate::grow::{Growing, add_one, grow_and_add};
use crate::items::{Mode, items, limit_items, step_for, time_probes};
use crate::options::bloom::{Insertion, insertion, new_filter};
use crate::options::redisbloom;
use crate::reply::{Answer, Answers, Reply};
use crate::table::{
    Entry, ITEM, ITEMS, KeyUse, Timing,
    bloom::{INSERT, O_K, O_K_N},
    command,
};
use bloomery::Error;
use bloomery::filter::bloom::batch::{GROUP, Work, for_each_group, group_for};
use bloomery::filter::foreign::Encoding;
use bloomery::filter::{Added, Bloom, Filter, Foreign, Live, LiveMut, LiveRef, Rebuild, Target};
use smallvec::SmallVec;
use std::ops::ControlFlow;

/// The index of the argument after the key: the first item, except in INSERT and BULKADD.
pub(super) const FIRST_ITEM: usize = 2;

/// The index of the first item in a BF.INSERT without options.
const INSERTED: usize = 3;

/// The outcome for an item.
pub(super) type Outcome = Result<Added, CommandError>;

// ---- one item ------------------------------------------------------------------------------------------------------

command!(
    Add,
    |call| add(call, Mode::Add),
    Entry {
        name: "bf.add",
        arity: 3,
        key: KeyUse::Insert,
        flags: "deny-oom",
        summary: "Adds an item to a Bloom filter, creating it if needed",
        complexity: O_K,
        since: "1.0.0",
        arguments: ITEM,
        timing: Timing::Never,
        ..Entry::PLAIN
    }
);

command!(
    Addnx,
    |call| add(call, Mode::AddIfAbsent),
    Entry {
        name: "bf.addnx",
        arity: 3,
        key: KeyUse::Insert,
        flags: "deny-oom",
        summary: "Adds an item to a Bloom filter only if it is absent",
        complexity: O_K,
        arguments: ITEM,
        timing: Timing::Never,
        ..Entry::PLAIN
    }
);

/// `BF.ADD key item`, `BF.ADDNX key item`.
#[inline(always)]
fn add<'a, C: Call<'a>>(call: &C, mode: Mode) -> Result<Reply, CommandError> {
    let mut key = call.open::<Filter>(1, Access::Add);
    let Target::One(LiveMut::Bloom(mut filter)) = target_or_new(call, &mut key)? else {
        return add_slowly(call, &mut key, mode);
    };
    let item = filter.item_hash(call.arg(FIRST_ITEM));
    let done = match mode {
        Mode::AddIfAbsent if filter.contains(item) => Added::default(),
        _ => match filter.try_add(item) {
            Err(Error::Full) => {
                key.compare();
                filter = native(&mut key)?;
                grow_and_add(call, filter, item, &mut Growing::default())?
            }
            result => result?,
        },
    };
    filter.added(1);
    if done.changed {
        match mode {
            Mode::Add => call.replicate(Effect::Verbatim),
            // If an ADDNX added something, it had the same effect as an ADD.
            Mode::AddIfAbsent => call.replicate(Effect::Items("bf.add", &[FIRST_ITEM])),
        }
        call.changed(c"bf.add");
    }
    key.added(done.added.into());
    Ok(Reply::Bool(done.added))
}

/// The native filter in a key that has one.
#[cold]
fn native(key: &mut impl Key<Filter>) -> Result<&mut Bloom, CommandError> {
    match key.target()? {
        Some(Target::One(LiveMut::Bloom(filter))) => Ok(filter),
        _ => Err(CommandError::Internal),
    }
}

/// Adds an item to another system's filter, or to a filter that is being rebuilt.
#[cold]
fn add_slowly<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key<Filter>,
    mode: Mode,
) -> Result<Reply, CommandError> {
    let mut target = key.target()?.ok_or(CommandError::NotFound)?;
    let mut outcome = Ok(Added::default());
    let item = std::iter::once(call.arg(FIRST_ITEM));
    let lost = add_each(call, &mut target, item, mode, |result| {
        outcome = result;
        ControlFlow::Continue(())
    });
    let Added { added, changed } = outcome?;
    target.added(1);
    let is_rebuilt = matches!(target, Target::Both(_));
    if let Some(why) = lost {
        give_up(call, key, &why);
    }
    if changed {
        call.replicate(match mode {
            // During a rebuild, an ADDNX is replicated unchanged: if only the shadow lacks the item, an ADD would also
            // change a replica's live filter.
            Mode::AddIfAbsent if !is_rebuilt => Effect::Items("bf.add", &[FIRST_ITEM]),
            _ => Effect::Verbatim,
        });
        call.changed(c"bf.add");
    }
    Ok(Reply::Bool(added))
}

/// Returns the filter to add to, after carrying out any rotations that are due. If the key is empty, creates a filter
/// with the configured defaults.
#[inline(always)]
pub(super) fn target_or_new<'k, 'a, C: Call<'a>>(
    call: &C,
    key: &'k mut C::Key<Filter>,
) -> Result<Target<'k>, CommandError> {
    match key.value()?.map(|filter| due(call, filter)) {
        None => create_new(call, key, new_filter(call)?)?,
        Some(None) => {}
        Some(Some(due)) => catch_up_to(call, key, due)?,
    }
    key.target()?.ok_or(CommandError::NotFound)
}

// ---- many items ----------------------------------------------------------------------------------------------------

command!(
    Madd,
    |call| add_many(call),
    Entry {
        name: "bf.madd",
        arity: -3,
        key: KeyUse::Insert,
        flags: "deny-oom",
        summary: "Adds items to a Bloom filter, creating it if needed",
        complexity: O_K_N,
        since: "1.0.0",
        arguments: ITEMS,
        timing: Timing::IfLong,
        in_pieces: true,
        ..Entry::PLAIN
    }
);

/// `BF.MADD key item…`.
#[inline(always)]
fn add_many<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    limit_items(call, call.argc().saturating_sub(FIRST_ITEM))?;
    let mut key = call.open::<Filter>(1, Access::Write);
    target_or_new(call, &mut key)?;
    add_arguments(call, &mut key, FIRST_ITEM)
}

command!(
    Insert,
    |call| insert(call),
    Entry {
        name: "bf.insert",
        arity: -4,
        key: KeyUse::Insert,
        flags: "deny-oom",
        summary: "Adds items to a Bloom filter, creating it with the given parameters if needed",
        complexity: O_K_N,
        since: "1.0.0",
        arguments: INSERT,
        timing: Timing::IfLong,
        in_pieces: true,
        ..Entry::PLAIN
    }
);

/// `BF.INSERT key [option…] ITEMS item…`.
fn insert<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let Insertion { new, may_create, scale_to, first_item } =
        if call.is_from_primary() { redisbloom::insertion(call)? } else { insertion(call)? };
    limit_items(call, call.argc().saturating_sub(first_item))?;
    let mut key = call.open::<Filter>(1, Access::Write);
    if key.bloom()?.is_none() {
        may_create?;
        if let Some(items) = scale_to {
            reach::validate(call, &new, items)?;
        }
        create_new(call, &mut key, new)?;
    }
    catch_up(call, &mut key)?;
    add_arguments(call, &mut key, first_item)
}

/// Adds the arguments starting at index `first`, in order.
fn add_arguments<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key<Filter>,
    first: usize,
) -> Result<Reply, CommandError> {
    if let Some(filter) = key.bloom()? {
        time_probes(call, filter);
    }
    let mut target = key.target()?.ok_or(CommandError::NotFound)?;
    let mut adds = Adds::new(call, first);
    let items = items(call, first, step_for(target.lines()));
    let lost = add_each(call, &mut target, items, Mode::Add, |outcome| adds.note(outcome));
    target.added(adds.accepted());
    if let Some(why) = lost {
        give_up(call, key, &why);
    }
    adds.replicate(call);
    Ok(Reply::Answers(adds.answers))
}

/// The outcomes for a command's items, in order.
struct Adds {
    answers: Answers,
    /// Indexes of the arguments that changed the filter. Up to 64 need no allocation.
    changed: SmallVec<[usize; 64]>,
    first: usize,
    next: usize,
}

impl Adds {
    /// An empty record for the arguments starting at index `first`.
    fn new<'a, C: Call<'a>>(call: &C, first: usize) -> Adds {
        let mut answers = Answers::default();
        answers.answers.reserve(call.argc().saturating_sub(first));
        Adds { answers, changed: SmallVec::new(), first, next: first }
    }

    /// Notes the outcome of the next item. If a fixed-size filter is full, the command ends at this item, with the
    /// error as its last answer (as in RedisBloom). After any other refusal, the command continues with the next item.
    #[inline(always)]
    fn note(&mut self, outcome: Outcome) -> ControlFlow<()> {
        match outcome {
            Ok(Added { added, changed }) => {
                self.answers.answers.push(Answer::from(added));
                if changed {
                    self.changed.push(self.next);
                }
            }
            Err(error) => {
                self.answers.answers.push(Answer::Refused);
                let full = error == CommandError::Full;
                self.answers.error = Some(error);
                if full {
                    return ControlFlow::Break(());
                }
            }
        }
        self.next = self.next.saturating_add(1);
        ControlFlow::Continue(())
    }

    /// Number of items that were not refused.
    fn accepted(&self) -> u64 {
        let answers = &self.answers.answers;
        match self.answers.error {
            None => answers.len() as u64,
            Some(_) => answers.iter().filter(|answer| **answer != Answer::Refused).count() as u64,
        }
    }

    /// Replicates the items that changed the filter.
    fn replicate<'a, C: Call<'a>>(&self, call: &C) {
        if self.changed.is_empty() {
            return;
        }
        let all = self.changed.len() == call.argc().saturating_sub(self.first);
        call.replicate(match all && self.first <= INSERTED {
            true => Effect::Verbatim,
            false => Effect::Items("bf.madd", &self.changed),
        });
        call.changed(c"bf.add");
    }
}

// ---- into each kind of filter --------------------------------------------------------------------------------------

/// Adds items in order and passes each outcome to `note`, until `note` returns `Break`. If the filter is being rebuilt
/// and its shadow could not follow, returns the reason. The caller must then [end](give_up) the rebuild.
#[inline(always)]
pub(super) fn add_each<'a, 'i, C: Call<'a>>(
    call: &C,
    target: &mut Target<'_>,
    mut items: impl Iterator<Item = &'i [u8]>,
    mode: Mode,
    mut note: impl FnMut(Outcome) -> ControlFlow<()>,
) -> Option<CommandError> {
    match target {
        Target::One(LiveMut::Bloom(filter)) => add_to_bloom(call, filter, items, Growing::default(), note),
        Target::One(LiveMut::Foreign(filter)) => {
            let mut growing = Growing::default();
            let _ = items.try_for_each(|item| note(add_to_foreign(call, filter, item, &mut growing)));
        }
        Target::Both(rebuild) => return add_to_both(call, rebuild, &mut items, mode, &mut note),
    }
    None
}

/// Adds items to a native filter in groups.
#[inline(always)]
pub(super) fn add_to_bloom<'a, 'i, C: Call<'a>>(
    call: &C,
    filter: &mut Bloom,
    items: impl Iterator<Item = &'i [u8]>,
    mut growing: Growing,
    mut note: impl FnMut(Outcome) -> ControlFlow<()>,
) {
    for_each_group(&mut &mut *filter, Work::Write, items, |filter, group| {
        let layers = filter.layers().len();
        // A whole group is looked up at once, so that its cache misses overlap. They can be many: a filter may have
        // many layers.
        let known = filter.known(group);
        group.iter().enumerate().try_for_each(|(index, item)| {
            note(if known.has(index) {
                Ok(Added::default())
            } else if filter.layers().len() == layers {
                match filter.add_unknown(*item) {
                    Err(Error::Full) => grow_and_add(call, &mut **filter, *item, &mut growing),
                    result => result.map_err(CommandError::from),
                }
            } else {
                // The filter has grown since the group was looked up, and its new layer hasn't been tested.
                add_one(call, &mut **filter, *item, &mut growing)
            })
        })
    });
}

/// Adds one item to another system's filter. ADD and ADDNX do the same here, because none of those systems counts an
/// item twice.
fn add_to_foreign<'a, C: Call<'a>>(
    call: &C,
    filter: &mut Foreign,
    item: &[u8],
    growing: &mut Growing,
) -> Outcome {
    add_one(call, filter, item, growing).map_err(|why| match why {
        CommandError::Core(Error::Foreign("item")) => CommandError::BadItem(match filter.encoding() {
            Encoding::Bytes => "bytes",
            Encoding::Utf16 | Encoding::Json | Encoding::Kryo5 => "text in UTF-8",
            Encoding::Long => "integers of 64 bits",
            Encoding::Int => "integers of 32 bits",
        }),
        why => why,
    })
}

/// Adds items to a filter that is being rebuilt, like [`add_each`]. For each item, combines the outcomes in the two
/// filters into one, and passes the result to `note`.
#[cold]
fn add_to_both<'a, 'i, C: Call<'a>>(
    call: &C,
    rebuild: &mut Rebuild,
    items: &mut dyn Iterator<Item = &'i [u8]>,
    mode: Mode,
    note: &mut dyn FnMut(Outcome) -> ControlFlow<()>,
) -> Option<CommandError> {
    let (live, shadow) = rebuild.both_mut();
    let (mut lost, mut growing) = (None, Growing::default());
    let most = group_for(live.as_ref().lines().saturating_add(shadow.newest_layer().lines()));
    loop {
        let group: SmallVec<[&[u8]; GROUP]> = items.take(most).collect();
        for item in &group {
            if let Live::Bloom(filter) = live {
                filter.newest_layer().prefetch_all(filter.item_hash(item));
            }
            shadow.newest_layer().prefetch_all(shadow.item_hash(item));
        }
        for item in &group {
            let mut outcome = match live {
                Live::Bloom(filter) => add_or_skip(call, filter, item, mode, &mut growing),
                Live::Foreign(filter) => add_to_foreign(call, filter, item, &mut growing),
            };
            if lost.is_none() {
                lost = follow(call, live.as_ref(), shadow).err();
            }
            if let (Ok(done), None) = (&mut outcome, &lost) {
                // Each item gets a `Growing` of its own. No refusal has to be remembered, because the first refusal
                // ends the rebuild.
                let mut growing = Growing::of_shadow(shadow, live.as_ref());
                match add_or_skip(call, shadow, item, mode, &mut growing) {
                    Ok(Added { changed, .. }) => done.changed |= changed,
                    Err(why) => lost = Some(why),
                }
            }
            if note(outcome).is_break() {
                return lost;
            }
        }
        if group.len() < most {
            return lost;
        }
    }
}

/// If the live filter began a generation early, does the same in the shadow.
fn follow<'a, C: Call<'a>>(call: &C, live: LiveRef<'_>, shadow: &mut Bloom) -> Result<(), CommandError> {
    if let (Some(leader), Some(window)) = (live.window(), shadow.window())
        && leader.newest() > window.newest()
    {
        call.discard(shadow.follow(leader)?.into());
    }
    Ok(())
}

/// Adds one item. If only absent items are to be added, skips an item that is present.
fn add_or_skip<'a, C: Call<'a>>(
    call: &C,
    filter: &mut Bloom,
    item: &[u8],
    mode: Mode,
    growing: &mut Growing,
) -> Outcome {
    let item = filter.item_hash(item);
    match mode {
        Mode::AddIfAbsent if filter.contains(item) => Ok(Added::default()),
        _ => add_one(call, filter, item, growing),
    }
}

// ---- backfilling ---------------------------------------------------------------------------------------------------

/// The outcome of backfilling a rebuild.
pub(super) struct Backfill {
    /// Indexes of the arguments that changed the shadow.
    pub(super) changed: SmallVec<[usize; 64]>,
    /// Number of items that the shadow accepted.
    pub(super) done: usize,
    /// Why the next item was refused.
    pub(super) refused: Option<CommandError>,
}

/// Adds arguments to the shadow only, from index `first` up to the first one that the shadow refuses.
pub(super) fn backfill<'a, C: Call<'a>>(call: &C, rebuild: &mut Rebuild, first: usize) -> Backfill {
    let (live, shadow) = rebuild.both_mut();
    let items = items(call, first, step_for(shadow.newest_layer().lines()));
    let mut adds = Adds::new(call, first);
    let growing = Growing::of_shadow(shadow, live.as_ref());
    add_to_bloom(call, shadow, items, growing, |outcome| {
        let refused = outcome.is_err();
        match adds.note(outcome) {
            ControlFlow::Continue(()) if !refused => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    });
    let done = usize::try_from(adds.accepted()).unwrap_or(usize::MAX);
    Backfill { changed: adds.changed, done, refused: adds.answers.error }
}
