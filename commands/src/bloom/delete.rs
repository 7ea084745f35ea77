//! BF.DEL and MDEL. During a rebuild, deletes change only the live filter, and the rebuild counts the deletes that its
//! shadow misses.

use super::generations::catch_up;
use crate::call::{Access, BloomKey, Call, Effect, Key};
use crate::error::CommandError;
use crate::items::{BLOOM_STEP, items, limit_items, step_for};
use crate::reply::{Answer, Answers, Reply};
use crate::table::{
    Entry, ITEM, ITEMS, KeyUse, Timing,
    bloom::{O_K, O_K_N},
    command,
};
use bloomery::filter::bloom::batch::{Work, for_each_group};
use bloomery::filter::{Bloom, Filter, Live, LiveMut, Target};
use smallvec::SmallVec;
use std::ops::ControlFlow;

/// The index of the first item among the arguments.
const FIRST_ITEM: usize = 2;

/// The native filter to delete from.
fn live(target: Target<'_>) -> Result<&mut Bloom, CommandError> {
    match target {
        Target::One(LiveMut::Bloom(filter)) => Ok(filter),
        Target::One(LiveMut::Foreign(_)) => Err(CommandError::NotNative),
        Target::Both(rebuild) => match rebuild.both_mut() {
            (Live::Bloom(filter), _) => Ok(filter),
            (Live::Foreign(_), _) => Err(CommandError::NotNative),
        },
    }
}

/// If the filter is being rebuilt, counts deletes that changed the live filter and so are missing from the shadow.
fn count_missed(key: &mut impl Key<Filter>, deletes: usize) {
    if let Ok(Some(Target::Both(rebuild))) = key.target() {
        rebuild.count_deletes(deletes as u64);
    }
}

/// Carries out what is due in a window before a delete. If the filter will refuse the delete, nothing may change, so
/// this does nothing.
fn catch_up_to_delete<'a, C: Call<'a>>(call: &C, key: &mut C::Key<Filter>) -> Result<(), CommandError> {
    let filter = key.bloom()?.and_then(|live| live.bloom());
    if filter.is_some_and(Bloom::can_delete) { catch_up(call, key) } else { Ok(()) }
}

command!(
    Del,
    |call| delete(call),
    Entry {
        name: "bf.del",
        arity: 3,
        key: KeyUse::Delete,
        summary: "Deletes one occurrence of an item from a counting filter",
        complexity: O_K,
        arguments: ITEM,
        timing: Timing::Never,
        ..Entry::PLAIN
    }
);

/// `BF.DEL key item`.
fn delete<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let mut key = call.open::<Filter>(1, Access::Write);
    catch_up_to_delete(call, &mut key)?;
    let Some(target) = key.target()? else { return Ok(Reply::Bool(false)) };
    let filter = live(target)?;
    let removed = filter.remove(filter.item_hash(call.arg(FIRST_ITEM)))?;
    filter.usage().deleted(removed.present.into());
    if removed.changed {
        count_missed(&mut key, 1);
        call.replicate(Effect::Verbatim);
        call.changed(c"bf.del");
    }
    Ok(Reply::Bool(removed.present))
}

command!(
    Mdel,
    |call| delete_many(call),
    Entry {
        name: "bf.mdel",
        arity: -3,
        key: KeyUse::Delete,
        summary: "Deletes one occurrence of each item from a counting filter",
        complexity: O_K_N,
        arguments: ITEMS,
        in_pieces: true,
        ..Entry::PLAIN
    }
);

/// `BF.MDEL key item…`.
fn delete_many<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let count = call.argc().saturating_sub(FIRST_ITEM);
    limit_items(call, count)?;
    let mut key = call.open::<Filter>(1, Access::Write);
    let mut answers = Answers::default();
    catch_up_to_delete(call, &mut key)?;
    let Some(target) = key.target()? else {
        answers.answers.extend(items(call, FIRST_ITEM, BLOOM_STEP).map(|_| Answer::No));
        return Ok(Reply::Answers(answers));
    };
    let mut filter = live(target)?;
    // Checked first, so that a filter that cannot delete refuses before anything has changed.
    if !filter.can_delete() {
        return Err(CommandError::NotCounting);
    }
    let mut changed: SmallVec<[usize; 64]> = SmallVec::new();
    let mut numbers = FIRST_ITEM..;
    let items = items(call, FIRST_ITEM, step_for(filter.newest_layer().lines()));
    for_each_group(&mut filter, Work::Write, items, |filter, group| {
        for (item, index) in group.iter().zip(numbers.by_ref()) {
            let removed = filter.remove(*item).unwrap_or_default();
            filter.usage().deleted(removed.present.into());
            answers.answers.push(Answer::from(removed.present));
            changed.extend(removed.changed.then_some(index));
        }
        ControlFlow::Continue(())
    });
    if !changed.is_empty() {
        count_missed(&mut key, changed.len());
        let all = changed.len() == count;
        call.replicate(if all { Effect::Verbatim } else { Effect::Items("bf.mdel", &changed) });
        call.changed(c"bf.del");
    }
    Ok(Reply::Answers(answers))
}
