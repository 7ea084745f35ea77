//! Laws of tables.

use super::Case;
use crate::support::wire::Prefix;
use crate::support::{hash, wire};
use bloomery::{Bloom, Cell, Error, Spec};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// Adds, deletes and rotates.
fn lived(spec: &Spec, case: &Case) -> Bloom {
    let mut filter = Bloom::new(*spec).unwrap();
    for (number, step) in case.a.iter().chain(&case.b).enumerate() {
        let item = hash(&filter, *step);
        match step % 4 {
            0 if filter.can_delete() => drop(filter.remove(item)),
            1 if filter.window().is_some() && number % 16 == 0 => {
                filter.rotate(filter.window().unwrap().newest() + 1 + u64::from(step % 3)).unwrap();
            }
            _ => drop(filter.add(item)),
        }
    }
    filter
}

/// A table is a set of prefixes, none of which begins another. Every answer and every number follows from them.
pub(crate) fn answers_follow_from_the_prefixes(spec: &Spec, case: &Case) -> TestCaseResult {
    let filter = lived(spec, case);
    let prefixes = wire::prefixes(&filter);
    for (number, a) in prefixes.iter().enumerate() {
        for b in &prefixes[..number] {
            let common = (1 << a.length.min(b.length)) - 1;
            prop_assert!((a.bits ^ b.bits) & common != 0, "{:?} {:?}", a, b);
        }
    }
    let rate: f64 = prefixes.iter().map(|prefix| f64::exp2(-f64::from(prefix.length))).sum();
    prop_assert!((filter.rate_now() - rate).abs() <= rate * 1e-9, "{} of {}", filter.rate_now(), rate);
    prop_assert!(rate <= spec.error_rate);
    let alive: Vec<&Prefix> = prefixes.iter().filter(|prefix| prefix.value.is_some()).collect();
    prop_assert!(filter.items() <= alive.len() as u64);
    prop_assert_eq!(filter.items() == 0, alive.is_empty());
    for item in 0..240 {
        let item = hash(&filter, item);
        let value = alive.iter().find(|prefix| prefix.begins(item)).and_then(|prefix| prefix.value);
        prop_assert_eq!(filter.contains(item), value.is_some());
        if spec.cell != Cell::Bit {
            prop_assert_eq!(filter.count(item).unwrap(), value.unwrap_or(0));
        }
        if let Some(window) = filter.window() {
            prop_assert_eq!(window.age(item, window.newest()), value);
        }
    }
    Ok(())
}

/// The union has the items of both tables, with the sum of their counts or the lower of their ages. If there is no room
/// for the union, nothing changes.
pub(crate) fn the_union_is_whole_or_nothing(spec: &Spec, case: &Case) -> TestCaseResult {
    let (mut a, mut b) = (Bloom::new(*spec).unwrap(), Bloom::new(*spec).unwrap());
    case.a.iter().for_each(|item| _ = a.add(hash(&a, *item)));
    case.b.iter().for_each(|item| _ = b.add(hash(&b, *item)));
    let before = [&a, &b].map(wire::encode);
    let (mine, theirs) = (a.snapshot().unwrap(), wire::prefixes(&b));
    let result = a.union(&b);
    prop_assert_eq!(&wire::encode(&b), &before[1]);
    if let Err(why) = result {
        let is_bounded = wire::prefixes(&mine).len() + theirs.len() > spec.capacity as usize;
        prop_assert!(why == Error::Full && is_bounded, "{}", why);
        prop_assert_eq!(&wire::encode(&a), &before[0]);
        return Ok(());
    }
    let most = (1u64 << spec.cell.bits()) - 1;
    prop_assert!(a.items() <= mine.items() + b.items());
    for item in 0..240 {
        let item = hash(&a, item);
        let (has, had) = ([&mine, &b].map(|filter| filter.contains(item)), a.contains(item));
        // A prefix of one table may become a part of a shorter one of the other table.
        prop_assert!(had || !has[0] && !has[1]);
        if spec.cell != Cell::Bit {
            let counts = [&mine, &b].map(|filter| filter.count(item).unwrap());
            prop_assert!(a.count(item).unwrap() >= most.min(counts[0] + counts[1]));
        }
        if let Some(window) = a.window().filter(|_| had) {
            let ages = [&mine, &b].map(|filter| filter.window().unwrap().age(item, window.newest()));
            prop_assert!(window.age(item, window.newest()) <= ages.into_iter().flatten().min());
        }
    }
    let union = wire::body(&a);
    a.union(&b).unwrap();
    prop_assert!(spec.cell != Cell::Bit || wire::body(&a) == union, "union with a part changes nothing");
    Ok(())
}

/// The intersection has exactly the items that both tables have, with the lower of their counts.
pub(crate) fn the_intersection_is_what_both_have(spec: &Spec, case: &Case) -> TestCaseResult {
    let (mut a, mut b) = (Bloom::new(*spec).unwrap(), Bloom::new(*spec).unwrap());
    case.a.iter().for_each(|item| _ = a.add(hash(&a, *item)));
    case.b.iter().for_each(|item| _ = b.add(hash(&b, *item)));
    let before = a.snapshot().unwrap();
    if a.window().is_some() {
        prop_assert_eq!(a.intersect(&b), Err(Error::Mismatch));
        prop_assert!(a.equal(&before));
        return Ok(());
    }
    a.intersect(&b).unwrap();
    for item in 0..240 {
        let item = hash(&a, item);
        prop_assert_eq!(a.contains(item), before.contains(item) && b.contains(item));
        if spec.cell != Cell::Bit {
            let counts = [&before, &b].map(|filter| filter.count(item).unwrap());
            prop_assert_eq!(a.count(item).unwrap(), counts[0].min(counts[1]));
        }
    }
    prop_assert!(a.items() <= before.items().min(b.items()));
    Ok(())
}
