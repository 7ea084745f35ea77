//! Laws of rotating filters. Throughout, G is the number of generations.

use super::Case;
use crate::support::{add_all, filled, hash, wire};
use bloomery::filter::{Schedule, Window};
use bloomery::{Bloom, Error, Family, Layout, Spec};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use std::collections::HashMap;

fn generations(spec: &Spec) -> u64 {
    let Family::Window { generations, .. } = spec.family else { unreachable!("a window's spec") };
    generations.into()
}

fn ring(filter: &Bloom) -> &Window {
    filter.window().expect("a window")
}

/// The number of generations by which each rotation of a case advances: usually 1, sometimes 4 or 7.
fn skips(case: &Case) -> impl Iterator<Item = u64> {
    case.b.iter().map(|step| if step % 3 == 0 { u64::from(step % 9) + 1 } else { 1 })
}

/// Batches of items, each with the number of generations to advance after it. A batch is so small that no item is
/// refused.
fn batches(case: &Case) -> impl Iterator<Item = (&[u16], u64)> {
    case.a.chunks(8).zip(skips(case).chain(std::iter::repeat(1)))
}

/// Whether an item tests positive in a generation other than the one of its last add. If so, its age may be inexact,
/// and it may be present for too long.
fn is_false_positive(filter: &Bloom, item: u16, newest_add: u64, current: u64) -> bool {
    let dead = |age: u64| current - age != newest_add;
    let item = hash(filter, item);
    match filter.spec().layout {
        Some(Layout::Quotient) => ring(filter).age(item, current).is_some_and(dead),
        _ => ring(filter).alive(current).any(|one| dead(one.age) && one.layer.contains(item)),
    }
}

/// An item stays present for G−1 rotations after its last add, and is gone after G.
pub(crate) fn an_item_lives_for_its_generations(spec: &Spec, case: &Case) -> TestCaseResult {
    let span = generations(spec);
    let mut filter = Bloom::new(*spec).unwrap();
    let mut added_in: HashMap<u16, u64> = HashMap::new();
    for (items, skip) in batches(case) {
        add_all(&mut filter, items);
        let newest = ring(&filter).newest();
        added_in.extend(items.iter().map(|item| (*item, newest)));
        for (item, last) in &added_in {
            if newest - last < span {
                prop_assert!(filter.contains(hash(&filter, *item)), "{} of {} in {}", item, last, newest);
            }
        }
        filter.advance(newest + skip).unwrap();
    }
    // Without further adds, G rotations drop everything.
    for _ in 0..span {
        filter.advance(ring(&filter).newest() + 1).unwrap();
    }
    prop_assert_eq!((filter.ones(), filter.items()), (0, 0));
    prop_assert!(added_in.keys().all(|item| !filter.contains(hash(&filter, *item))));
    Ok(())
}

/// The age is the number of generations since the last add, or less for a false positive. An ADD sets it to 0.
pub(crate) fn ages_count_generations(spec: &Spec, case: &Case) -> TestCaseResult {
    let span = generations(spec);
    let mut filter = Bloom::new(*spec).unwrap();
    let mut added_in: HashMap<u16, u64> = HashMap::new();
    for (items, skip) in batches(case) {
        add_all(&mut filter, items);
        let newest = ring(&filter).newest();
        added_in.extend(items.iter().map(|item| (*item, newest)));
        for (item, last) in &added_in {
            let age = ring(&filter).age(hash(&filter, *item), newest);
            let truth = newest - last;
            if truth < span {
                prop_assert!(age.is_some_and(|age| age <= truth), "{:?} for {}", age, truth);
            }
            prop_assert_eq!(age.is_some(), filter.contains(hash(&filter, *item)));
            if !is_false_positive(&filter, *item, *last, newest) {
                prop_assert_eq!(age, (truth < span).then_some(truth));
            }
        }
        filter.advance(newest + skip).unwrap();
    }
    Ok(())
}

/// ADDNX doesn't renew an item: the item expires G rotations after the add that found it absent.
pub(crate) fn add_if_absent_counts_from_the_first_add(spec: &Spec, case: &Case) -> TestCaseResult {
    let span = generations(spec);
    let mut filter = Bloom::new(*spec).unwrap();
    let Some(item) = case.a.first() else { return Ok(()) };
    let item = hash(&filter, *item);
    prop_assert!(filter.add_if_absent(item).unwrap().added);
    for rotation in 1..=span {
        filter.advance(rotation).unwrap();
        let again = filter.add_if_absent(item).unwrap();
        // Only after G rotations is the item absent, and new again.
        prop_assert_eq!((again.added, again.changed), (rotation == span, rotation == span));
    }
    // An ADD renews the item, and reports that it was known.
    filter.advance(span + 1).unwrap();
    let again = filter.add(item).unwrap();
    prop_assert_eq!((again.added, again.changed), (false, true));
    filter.advance(2 * span).unwrap();
    prop_assert!(filter.contains(item));
    filter.advance(2 * span + 1).unwrap();
    prop_assert!(!filter.contains(item));
    Ok(())
}

/// Advancing by n generations at once has the same effect as n individual rotations, for any n.
pub(crate) fn skipping_generations_drops_those_between(spec: &Spec, case: &Case) -> TestCaseResult {
    let (mut leaping, mut walking) = (Bloom::new(*spec).unwrap(), Bloom::new(*spec).unwrap());
    for (items, skip) in batches(case) {
        add_all(&mut leaping, items);
        add_all(&mut walking, items);
        let from = ring(&walking).newest();
        leaping.advance(from + skip).unwrap();
        (1..=skip).for_each(|n| drop(walking.advance(from + n).unwrap()));
        prop_assert_eq!(wire::encode(&leaping), wire::encode(&walking));
        // Going backwards does nothing.
        prop_assert!(leaping.advance(from).unwrap().is_empty());
        prop_assert_eq!(wire::encode(&leaping), wire::encode(&walking));
    }
    let far = 1 << 40;
    leaping.advance(far).unwrap();
    prop_assert_eq!((leaping.ones(), ring(&leaping).newest()), (0, far));
    Ok(())
}

/// A read as of a later generation gives the same answer as if the rotations had been performed, however long the
/// window has been idle.
pub(crate) fn reads_ignore_what_the_clock_has_dropped(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = Bloom::new(*spec).unwrap();
    for (items, skip) in batches(case) {
        add_all(&mut filter, items);
        filter.advance(ring(&filter).newest() + skip).unwrap();
    }
    add_all(&mut filter, &case.b[..case.b.len().min(8)]);
    let newest = ring(&filter).newest();
    let span = generations(spec);
    for behind in (0..=span + 1).chain([100, 1 << 40]) {
        let current = newest + behind;
        let mut rotated = filter.snapshot().unwrap();
        rotated.advance(current).unwrap();
        for item in 0..240 {
            let item = hash(&filter, item);
            prop_assert_eq!(filter.contains_as_of(item, current), rotated.contains(item));
            prop_assert_eq!(ring(&filter).age(item, current), ring(&rotated).age(item, current));
        }
        if behind >= span {
            prop_assert_eq!(ring(&filter).alive(current).count(), 0);
        }
    }
    Ok(())
}

/// A time before the current generation counts as part of the current generation.
pub(crate) fn a_clock_that_steps_back_changes_nothing(spec: &Spec, case: &Case) -> TestCaseResult {
    let since = 1_000_000 + case.seed % 1_000_000;
    let mut filter = Bloom::new_since(*spec, since).unwrap();
    let every = ring(&filter).schedule().every_ms;
    let mut latest = 0;
    for step in case.a.iter().chain(&case.b) {
        // The clock jumps back and forth by up to two minutes.
        let now = (since + u64::from(*step) * 500).saturating_sub(60_000);
        let number = filter.generation_at(now);
        let by_clock = now.saturating_sub(since).checked_div(every).unwrap_or(0);
        latest = latest.max(by_clock);
        prop_assert_eq!(number, latest);
        filter.advance(number).unwrap();
        let item = hash(&filter, *step);
        filter.add(item).unwrap();
        prop_assert!(
            [0, now, since].iter().all(|then| filter.contains_as_of(item, filter.generation_at(*then)))
        );
        if let Some(next) = ring(&filter).standing().next_in(now) {
            prop_assert!(next > 0);
            prop_assert_eq!(filter.generation_at(now + next), number + 1);
            prop_assert_eq!(filter.generation_at(now + next - 1), number);
        } else {
            prop_assert_eq!(every, 0);
        }
    }
    Ok(())
}

/// After a manual rotation, the next rotation by the clock is on time, and begins the next generation.
pub(crate) fn a_rotation_by_hand_shifts_the_schedule(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = Bloom::new_since(*spec, 5000).unwrap();
    let Schedule { every_ms, .. } = ring(&filter).schedule();
    let (mut now, mut by_hand) = (5000, 0);
    for step in &case.b {
        now += u64::from(*step) * 10;
        let by_clock = (now - 5000).checked_div(every_ms).unwrap_or(0);
        prop_assert_eq!(filter.generation_at(now), by_clock + by_hand);
        if step % 2 == 0 {
            filter.rotate(filter.generation_at(now) + 1).unwrap();
            by_hand += 1;
            prop_assert_eq!(ring(&filter).newest(), by_clock + by_hand);
            prop_assert_eq!(filter.generation_at(now), by_clock + by_hand);
        }
    }
    Ok(())
}

/// The caller gets the layers that a rotation drops, with their items. Empty layers are reused.
pub(crate) fn dropped_layers_are_handed_over(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = filled(spec, &case.a[..case.a.len().min(8)]);
    let ones = filter.ones();
    let span = generations(spec);
    for number in 1..span {
        prop_assert!(filter.advance(number).unwrap().is_empty(), "the slots ahead are empty");
    }
    let retired = filter.advance(span).unwrap();
    prop_assert_eq!(retired.iter().map(|layer| layer.ones()).sum::<u64>(), ones);
    prop_assert_eq!(retired.len(), usize::from(ones > 0));
    let fixed = Bloom::new(Spec::fixed(10, 0.1)).unwrap().advance(1);
    prop_assert_eq!(fixed.err(), Some(Error::NotWindow));
    Ok(())
}

/// A delete removes the item from every generation. Only a few other items, which share its prefix, go with it.
pub(crate) fn a_deleted_item_leaves_all_generations(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = Bloom::new(*spec).unwrap();
    for (items, skip) in batches(case) {
        add_all(&mut filter, items);
        let Some(item) = items.first().map(|item| hash(&filter, *item)) else { continue };
        let newest = ring(&filter).newest();
        let ages = |filter: &Bloom| -> Vec<_> {
            (0..240).map(|item| ring(filter).age(hash(filter, item), newest)).collect()
        };
        let (before, items) = (ages(&filter), filter.items());
        prop_assert!(filter.remove(item).unwrap().present);
        prop_assert!(!filter.contains(item) && filter.items() == items - 1);
        let changed = before.iter().zip(ages(&filter)).filter(|(before, after)| **before != *after).count();
        prop_assert!((1..=10).contains(&changed), "{} items were alike", changed);
        prop_assert!(!filter.remove(item).unwrap().changed);
        filter.advance(newest + skip).unwrap();
    }
    Ok(())
}
