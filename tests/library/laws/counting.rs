//! Laws of filters that count.

use super::Case;
use crate::support::naive::Naive;
use crate::support::{add_all, filled, hash, refuses, wire};
use bloomery::{Bloom, Layout, Spec};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use std::collections::HashMap;

fn maximum(spec: &Spec) -> u64 {
    (1 << spec.cell.bits()) - 1
}

fn tally(items: &[u16]) -> HashMap<u16, u64> {
    items.iter().fold(HashMap::new(), |mut counts, item| {
        *counts.entry(*item).or_default() += 1;
        counts
    })
}

/// The items that a filter of this spec accepts: all, or only the first ones, up to its capacity.
fn taken(spec: &Spec, items: &[u16]) -> Vec<u16> {
    let room = if refuses(spec) { spec.capacity as usize } else { usize::MAX };
    items.iter().take(room).copied().collect()
}

/// A count is never below the true one, as far as a counter can represent it.
pub(crate) fn counts_are_upper_bounds(spec: &Spec, case: &Case) -> TestCaseResult {
    let items = taken(spec, &case.a);
    let filter = filled(spec, &items);
    for (item, count) in tally(&items) {
        let found = filter.count(hash(&filter, item)).unwrap();
        prop_assert!(found >= count.min(maximum(spec)), "{} of {} at {}", found, count, item);
    }
    for item in 0..240 {
        let item = hash(&filter, item);
        prop_assert_eq!(filter.count(item).unwrap() > 0, filter.contains(item));
    }
    Ok(())
}

/// If there is plenty of room, counts are exact.
pub(crate) fn counts_of_a_sparse_filter_are_exact(spec: &Spec, case: &Case) -> TestCaseResult {
    // There are 24 items in a filter for 4000 at 1e-9. In a million cases, none of them tests positive because of the
    // others, and no count is too high.
    let layout = spec.layout.filter(|layout| *layout == Layout::Quotient).or(Some(Layout::Classic));
    let spec = Spec { capacity: 4000, error_rate: 1e-9, layout, ..*spec };
    let mut filter = Bloom::new(spec).unwrap();
    let items: Vec<_> = case.a.iter().map(|item| item % 24).collect();
    add_all(&mut filter, &items);
    let counts = tally(&items);
    for item in 0..24 {
        let truth = counts.get(&item).copied().unwrap_or(0);
        prop_assert_eq!(filter.count(hash(&filter, item)).unwrap(), truth.min(maximum(&spec)));
    }
    prop_assert_eq!(filter.items(), counts.len() as u64);
    Ok(())
}

/// If no counter is saturated, deleting items leaves the filter as if they had never been added. A deleted item then
/// tests positive only because of counters that other adds incremented.
pub(crate) fn a_removed_item_is_absent_or_a_false_positive(spec: &Spec, case: &Case) -> TestCaseResult {
    let items = taken(spec, &case.a);
    let mut filter = filled(spec, &items);
    let (gone, kept) = items.split_at(items.len() / 2);
    for item in gone {
        prop_assert!(filter.remove(hash(&filter, *item)).unwrap().present);
    }
    if filter.layers()[0].saturated() == 0 {
        // No counter was saturated, so the filter equals one that never had the deleted items.
        prop_assert_eq!(wire::body(&filter), wire::body(&filled(spec, kept)));
        for item in kept {
            prop_assert!(filter.remove(hash(&filter, *item)).unwrap().present);
        }
        prop_assert_eq!((filter.ones(), filter.items()), (0, 0));
    }
    Ok(())
}

/// Deletes of added items never lower a count below the number of adds that remain.
pub(crate) fn removing_what_was_added_keeps_the_rest(spec: &Spec, case: &Case) -> TestCaseResult {
    let items = taken(spec, &case.a);
    let mut filter = filled(spec, &items);
    let mut counts = tally(&items);
    for item in &case.b {
        if let Some(count) = counts.get_mut(item).filter(|count| **count > 0) {
            filter.remove(hash(&filter, *item)).unwrap();
            *count -= 1;
        }
    }
    for (item, count) in counts {
        let found = filter.count(hash(&filter, item)).unwrap();
        prop_assert!(found >= count.min(maximum(spec)), "{} of {} at {}", found, count, item);
    }
    Ok(())
}

/// A counter that has saturated never changes again.
pub(crate) fn counters_saturate_and_stay_there(spec: &Spec, case: &Case) -> TestCaseResult {
    let Some(first) = case.a.first() else { return Ok(()) };
    // 65,535 adds in every case would take all day, so only one in 64 cases has them.
    if maximum(spec) > 255 && !case.seed.is_multiple_of(64) {
        return Ok(());
    }
    let mut filter = Bloom::new(*spec).unwrap();
    let mut naive = (!spec.is_table()).then(|| Naive::new(*spec));
    let item = hash(&filter, *first);
    let max = maximum(spec);
    for n in 1..=max + 2 {
        let added = filter.add(item).unwrap();
        let count = filter.count(item).unwrap();
        match &mut naive {
            Some(naive) => {
                prop_assert_eq!(Some(added), naive.add(item));
                // This is more than n if two probes of the item share a cell.
                prop_assert_eq!(count, naive.count(item));
                prop_assert!(count >= n.min(max));
            }
            None => prop_assert_eq!((added.added, added.changed, count), (n == 1, n <= max, n.min(max))),
        }
    }
    prop_assert!(!filter.add(item).unwrap().changed);
    // Every counter of this item is saturated, and stays so whatever happens.
    let pinned = |filter: &Bloom| -> Vec<(usize, u64, u64)> {
        let cells = if filter.spec().is_table() {
            wire::prefixes(filter).iter().map(|one| (0, one.bits as u64, one.value.unwrap())).collect()
        } else {
            wire::cells(filter)
        };
        cells.into_iter().filter(|(_, _, count)| *count == max).collect()
    };
    let at_first = pinned(&filter);
    prop_assert_eq!(filter.layers()[0].saturated(), at_first.len() as u64);
    prop_assert_eq!(filter.ones(), filter.layers()[0].saturated());
    for other in taken(spec, &case.b) {
        filter.add(hash(&filter, other)).unwrap();
        let removed = filter.remove(item).unwrap();
        prop_assert_eq!((removed.present, removed.changed), (true, false));
        filter.remove(hash(&filter, other)).unwrap();
    }
    prop_assert_eq!(filter.count(item).unwrap(), max);
    prop_assert!(at_first.iter().all(|cell| pinned(&filter).contains(cell)));
    Ok(())
}

/// Deleting an item that tests negative changes nothing.
pub(crate) fn an_absent_item_is_left_alone(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = filled(spec, &taken(spec, &case.a));
    let before = wire::encode(&filter);
    for item in 0..240 {
        let item = hash(&filter, item);
        if !filter.contains(item) {
            let removed = filter.remove(item).unwrap();
            prop_assert!(!removed.present && !removed.changed);
        }
    }
    prop_assert_eq!(wire::encode(&filter), before);
    Ok(())
}

/// A count in the union of two multisets is at least the sum of the counts, up to saturation, and the union equals a
/// filter with both lists of items.
pub(crate) fn the_union_adds_counts_up(spec: &Spec, case: &Case) -> TestCaseResult {
    // One item occurs in both multisets. If its counters have 4 or 8 bits, it occurs so often that they saturate in the
    // union, but not before.
    let often = if maximum(spec) > 255 { 1 } else { maximum(spec) as usize * 2 / 3 };
    let with_often = |items: &[u16]| {
        let repeated = std::iter::repeat_n(7, often);
        items.iter().copied().take(30).chain(repeated).collect::<Vec<_>>()
    };
    let (in_a, in_b) = (with_often(&case.a), with_often(&case.b));
    let (mut a, b) = (filled(spec, &in_a), filled(spec, &in_b));
    a.union(&b).unwrap();
    let mut both = Naive::new(*spec);
    in_a.iter().chain(&in_b).for_each(|item| assert!(both.add(hash(&a, *item)).is_some()));
    prop_assert_eq!(wire::cells(&a), both.cells());
    for (item, count) in tally(&[in_a, in_b].concat()) {
        prop_assert!(a.count(hash(&a, item)).unwrap() >= count.min(maximum(spec)));
    }
    Ok(())
}
