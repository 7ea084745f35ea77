//! Commands on items: the hot path. Arguments go through the filter in groups, and nothing is allocated per item.

use super::error::CommandError;
use super::reply::{Answer, Answers, Reply};
use super::{
    Access, Call, Command, Effect, Key, catch_up, create, current_generation, double, foreign, limit_items,
};
use crate::config::Settings;
use crate::error::Error;
use crate::filter::batch::for_each_group;
use crate::filter::{Added, Bloom, Filter, Layer};
use crate::hash::ItemHash;
use crate::params::Spec;
use smallvec::SmallVec;
use std::ops::ControlFlow;

/// Argument of the first item, in all commands but INSERT.
const FIRST_ITEM: usize = 2;

/// Arguments that changed the filter: up to 64 take no allocation, more take one for all.
pub(super) type Indices = SmallVec<[usize; 64]>;

/// Whether adding asks first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Always records the item.
    Add,
    /// Only what is absent.
    AddIfAbsent,
}

/// `BF.EXISTS key item`, `BF.TEST key item`. A missing key and one of another type hold nothing, as in RedisBloom.
#[inline(always)]
pub(super) fn test<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open(1, Access::Read);
    let Ok(Some(filter)) = key.filter() else {
        let other = key.foreign().map(|filter| foreign::test(call, filter));
        return Ok(other.unwrap_or(Reply::Bool(false)));
    };
    let item = filter.hash(call.arg(FIRST_ITEM));
    filter.prefetch(item);
    // Closing the key takes 25 ns, in which the line comes closer: 0.98 of the whole command.
    let filter = match call.close(key) {
        Some(Filter::Bloom(filter)) => filter,
        Some(Filter::Rebuild(rebuild)) => match rebuild.live() {
            Filter::Bloom(filter) => filter,
            _ => return Ok(Reply::Bool(false)),
        },
        _ => return Ok(Reply::Bool(false)),
    };
    let found = filter.contains_at(item, current_generation(call, filter));
    filter.usage().answered(found);
    Ok(Reply::Bool(found))
}

/// `BF.MEXISTS key item…`, `BF.MTEST key item…`.
#[inline(always)]
pub(super) fn test_many<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let count = call.argc().saturating_sub(FIRST_ITEM);
    limit_items(call, count)?;
    let key = call.open(1, Access::Read);
    let mut answers = Answers::default();
    let Ok(Some(filter)) = key.filter() else {
        if let Some(filter) = key.foreign() {
            return Ok(foreign::test_many(call, filter));
        }
        answers.answers.resize(count, Answer::No);
        return Ok(Reply::Answers(answers));
    };
    answers.answers.reserve(count);
    let current = current_generation(call, filter);
    let mut yeses = 0u64;
    for_each_group(&mut &*filter, Layer::prefetch, arguments(call, FIRST_ITEM), |filter, group| {
        let found = filter.contains_many(group, current);
        yeses = yeses.wrapping_add(found.count_ones().into());
        answers.answers.extend((0..group.len()).map(|index| yes(found >> index & 1 == 1)));
        ControlFlow::Continue(())
    });
    filter.usage().tested(yeses, (count as u64).wrapping_sub(yeses));
    Ok(Reply::Answers(answers))
}

/// The arguments from `first` on.
#[inline(always)]
pub(super) fn arguments<'a, C: Call<'a>>(call: &C, first: usize) -> impl Iterator<Item = &'a [u8]> {
    (first..call.argc()).map(|index| call.arg(index))
}

/// Visits the arguments from `first` on, in order, until told to stop.
#[inline(always)]
fn for_each_item<'a, C: Call<'a>>(
    call: &C,
    filter: &mut Bloom,
    first: usize,
    mut visit: impl FnMut(&mut Bloom, usize, ItemHash) -> ControlFlow<()>,
) {
    let mut indices = first..;
    for_each_group(&mut &mut *filter, Layer::prefetch_all, arguments(call, first), |filter, group| {
        group.iter().zip(indices.by_ref()).try_for_each(|(item, index)| visit(filter, index, *item))
    });
}

#[inline(always)]
pub(super) fn yes(value: bool) -> Answer {
    if value { Answer::Yes } else { Answer::No }
}

/// `BF.ADD key item`.
#[inline(always)]
pub(super) fn add<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    add_one(call, Mode::Add)
}

/// `BF.ADDNX key item`.
pub(super) fn add_if_absent<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    add_one(call, Mode::AddIfAbsent)
}

#[inline(always)]
fn add_one<'a, C: Call<'a>>(call: &C, mode: Mode) -> Result<Reply, CommandError> {
    let mut key = call.open(1, Access::Write);
    let filter = match filter_to_add_to(call, &mut key) {
        Err(CommandError::NotNative) => return foreign::add(call, &mut key, mode),
        Err(CommandError::Rebuilding) => return double::add(call, &mut key, mode),
        filter => filter?,
    };
    let item = filter.hash(call.arg(FIRST_ITEM));
    let done = match mode {
        Mode::AddIfAbsent if filter.contains(item) => Added::default(),
        _ => add_item(call, filter, item, 0)?,
    };
    filter.usage().added(1);
    Ok(added_one(call, mode, done))
}

/// Replicates the add of one item, if it changed something, and answers.
#[inline(always)]
pub(super) fn added_one<'a, C: Call<'a>>(call: &C, mode: Mode, Added { added, changed }: Added) -> Reply {
    if changed {
        // The effect of an ADDNX that did something is an ADD.
        call.replicate(if mode == Mode::Add {
            Effect::Verbatim
        } else {
            Effect::Items(Command::Add, &[FIRST_ITEM])
        });
        call.changed(c"bf.add");
    }
    Reply::Bool(added)
}

/// `BF.MADD key item…`.
#[inline(always)]
pub(super) fn add_many<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    limit_items(call, call.argc().saturating_sub(FIRST_ITEM))?;
    let mut key = call.open(1, Access::Write);
    match filter_to_add_to(call, &mut key) {
        Err(CommandError::NotNative) => foreign::add_items(call, &mut key, FIRST_ITEM),
        Err(CommandError::Rebuilding) => double::add_items(call, &mut key, FIRST_ITEM),
        filter => Ok(add_items(call, filter?, FIRST_ITEM)),
    }
}

/// The filter in the key, brought up to the clock, or a new one with the configured defaults.
///
/// # Errors
/// [`CommandError::NotNative`] and [`CommandError::Rebuilding`] say which other code adds to what is there.
#[inline(always)]
pub(super) fn filter_to_add_to<'k, 'a, C: Call<'a>>(
    call: &C,
    key: &'k mut C::Key,
) -> Result<&'k mut Bloom, CommandError> {
    if key.filter_mut()?.is_none() {
        create(call, key, default_spec(call)?, 0)?;
    }
    let filter = key.filter_mut()?.ok_or(CommandError::NotFound)?;
    catch_up(call, filter)?;
    Ok(filter)
}

/// The filter that an add to a missing key makes.
pub(super) fn default_spec<'a, C: Call<'a>>(call: &C) -> Result<Spec, CommandError> {
    let settings = call.settings();
    let family = Settings::family_for(settings.expansion);
    let spec = Spec { family, ..Spec::fixed(settings.initial_size, settings.error_rate) };
    super::options::bloom::with_random_seed(spec)
}

/// Adds the arguments from `first` on, in order.
pub(super) fn add_items<'a, C: Call<'a>>(call: &C, filter: &mut Bloom, first: usize) -> Reply {
    let mut adds = Adds::new(call, first);
    add_each(call, filter, arguments(call, first), 0, |result| adds.note(result));
    filter.usage().added(adds.accepted());
    adds.finish(call)
}

/// What became of the items of a command that adds many, noted in their order.
pub(super) struct Adds {
    answers: Answers,
    /// Arguments that changed the filter.
    changed: Indices,
    first: usize,
    next: usize,
}

impl Adds {
    /// For the arguments from `first` on.
    pub(super) fn new<'a, C: Call<'a>>(call: &C, first: usize) -> Adds {
        let mut answers = Answers::default();
        answers.answers.reserve(call.argc().saturating_sub(first));
        Adds { answers, changed: Indices::new(), first, next: first }
    }

    /// Notes what became of the next item. The first that finds a filter of fixed size full ends the command, with its
    /// error as the last answer (RedisBloom does so); where memory is refused the others go on.
    #[inline(always)]
    pub(super) fn note(&mut self, result: Result<Added, CommandError>) -> ControlFlow<()> {
        match result {
            Ok(Added { added, changed }) => {
                self.answers.answers.push(yes(added));
                self.changed.extend(changed.then_some(self.next));
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

    /// How many items were not refused.
    pub(super) fn accepted(&self) -> u64 {
        match self.answers.error {
            None => self.answers.answers.len() as u64,
            Some(_) => self.accepted_arguments().len() as u64,
        }
    }

    /// The arguments that were not refused, in order.
    pub(super) fn accepted_arguments(&self) -> Indices {
        let answers = (self.first..).zip(&self.answers.answers);
        answers.filter(|(_, answer)| **answer != Answer::Refused).map(|(index, _)| index).collect()
    }

    /// Notes arguments, in order, that changed something else.
    pub(super) fn also_changed(&mut self, others: &[usize]) {
        self.changed.extend_from_slice(others);
        self.changed.sort_unstable();
        self.changed.dedup();
    }

    /// Replicates the items that changed something, and answers.
    pub(super) fn finish<'a, C: Call<'a>>(self, call: &C) -> Reply {
        if !self.changed.is_empty() {
            let all = self.changed.len() == call.argc().saturating_sub(self.first);
            let verbatim = all && self.first == FIRST_ITEM;
            call.replicate(if verbatim {
                Effect::Verbatim
            } else {
                Effect::Items(Command::Madd, &self.changed)
            });
            call.changed(c"bf.add");
        }
        Reply::Answers(self.answers)
    }
}

/// Adds items in order, growing as [`add_item`] does, and tells `visit` what became of each until told to stop. `beside`
/// are the bytes of another filter that counts together with this one.
#[inline(always)]
pub(super) fn add_each<'a, 'i, C: Call<'a>>(
    call: &C,
    filter: &mut Bloom,
    items: impl Iterator<Item = &'i [u8]>,
    beside: u64,
    mut visit: impl FnMut(Result<Added, CommandError>) -> ControlFlow<()>,
) {
    for_each_group(&mut &mut *filter, Layer::prefetch_all, items, |filter, group| {
        let layers = filter.layers().len();
        // All layers are asked for a whole group: a chain that has grown to 5 million items from 100 has sixteen.
        let mut known = filter.known(group);
        group.iter().try_for_each(|item| {
            let is_known = known & 1 == 1;
            known >>= 1;
            visit(if is_known {
                Ok(Added::default())
            } else if filter.layers().len() == layers {
                match filter.add_to_newest(*item) {
                    Err(Error::Full) => grow_and_add(call, filter, *item, beside),
                    result => result.map_err(CommandError::from),
                }
            } else {
                // It has grown: what was the newest layer then has been asked for nothing.
                add_item(call, filter, *item, beside)
            })
        })
    });
}

/// Adds one item, growing a chain within the limits of memory.
#[inline(always)]
pub(super) fn add_item<'a, C: Call<'a>>(
    call: &C,
    filter: &mut Bloom,
    item: ItemHash,
    beside: u64,
) -> Result<Added, CommandError> {
    match filter.add_without_growth(item) {
        Err(Error::Full) => grow_and_add(call, filter, item, beside),
        result => Ok(result?),
    }
}

#[cold]
fn grow_and_add<'a, C: Call<'a>>(
    call: &C,
    filter: &mut Bloom,
    item: ItemHash,
    beside: u64,
) -> Result<Added, CommandError> {
    let grown = (|| {
        let Some(shape) = filter.next_shape()? else { return Err(CommandError::Full) };
        if !call.obeys() {
            let total = filter.bytes().saturating_add(shape.bytes()).saturating_add(beside);
            call.admit(total, shape.bytes())?;
        }
        filter.grow()?;
        Ok(())
    })();
    match grown {
        Ok(()) => Ok(filter.add_without_growth(item)?),
        Err(CommandError::Full) => Err(CommandError::Full),
        Err(why) => Err(CommandError::CannotGrow(Box::new(why))),
    }
}

/// `BF.DEL key item`.
pub(super) fn delete<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let mut key = call.open(1, Access::Write);
    let Some(filter) = key.live_mut()? else { return Ok(Reply::Bool(false)) };
    let item = filter.hash(call.arg(FIRST_ITEM));
    let removed = filter.remove(item)?;
    filter.usage().deleted(removed.present.into());
    if removed.changed {
        double::count_deletes(&mut key, 1);
        call.replicate(Effect::Verbatim);
        call.changed(c"bf.del");
    }
    Ok(Reply::Bool(removed.present))
}

/// `BF.MDEL key item…`.
pub(super) fn delete_many<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    limit_items(call, call.argc().saturating_sub(FIRST_ITEM))?;
    let mut key = call.open(1, Access::Write);
    let mut answers = Answers::default();
    let Some(filter) = key.live_mut()? else {
        answers.answers.resize(call.argc().saturating_sub(FIRST_ITEM), Answer::No);
        return Ok(Reply::Answers(answers));
    };
    let mut changed = Indices::new();
    // Asked first, so that a filter that cannot delete refuses before anything has happened.
    filter.count(ItemHash::default())?;
    for_each_item(call, filter, FIRST_ITEM, |filter, index, item| {
        // Asked above: it counts.
        let removed = filter.remove(item).unwrap_or_default();
        filter.usage().deleted(removed.present.into());
        answers.answers.push(yes(removed.present));
        if removed.changed {
            changed.push(index);
        }
        ControlFlow::Continue(())
    });
    if !changed.is_empty() {
        double::count_deletes(&mut key, changed.len());
        let all = changed.len() == call.argc().saturating_sub(FIRST_ITEM);
        call.replicate(if all { Effect::Verbatim } else { Effect::Items(Command::Mdel, &changed) });
        call.changed(c"bf.del");
    }
    Ok(Reply::Answers(answers))
}

/// `BF.COUNT key item`.
pub(super) fn count<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open(1, Access::Read);
    let Some(filter) = key.filter()? else { return Ok(Reply::Integer(0)) };
    Ok(filter.count(filter.hash(call.arg(FIRST_ITEM)))?.into())
}

/// `BF.AGE key item`.
pub(super) fn age<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open(1, Access::Read);
    let Some(filter) = key.filter()? else { return Ok(Reply::Integer(-1)) };
    let window = filter.window().ok_or(CommandError::NotWindow)?;
    let item = filter.hash(call.arg(FIRST_ITEM));
    Ok(window.age(item, current_generation(call, filter)).map_or(Reply::Integer(-1), Reply::from))
}
