//! Laws of filters that grow.

use super::Case;
use crate::support::{filled, hash, wire};
use bloomery::{Added, Bloom, Error, Family, Layout, Spec};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// Every layer has the shape that follows from the spec and the layers before it. Its capacity is that of the layer
/// before it times the expansion factor, or an eighth of the total so far if that is more. The error rates of all
/// layers together keep the promise.
pub(crate) fn layers_follow_the_spec(spec: &Spec, case: &Case) -> TestCaseResult {
    let filter = filled(spec, &case.a);
    let Family::Scaling { expansion, .. } = spec.family else { unreachable!("a scaling spec") };
    let mut capacities = Vec::new();
    let mut promised = 0.0;
    for layer in filter.layers() {
        let all = capacities.iter().sum::<u64>();
        let grown = capacities.last().map_or(spec.capacity, |last: &u64| last * u64::from(expansion));
        prop_assert_eq!(layer.shape(), spec.next_shape(&capacities).unwrap());
        prop_assert_eq!(layer.capacity(), grown.max(all / 8));
        capacities.push(layer.capacity());
        promised += layer.error_rate();
    }
    prop_assert!(promised <= spec.error_rate);
    prop_assert_eq!(filter.capacity(), capacities.iter().sum::<u64>());
    prop_assert_eq!(filter.next_shape().unwrap(), Some(spec.next_shape(&capacities).unwrap()));
    Ok(())
}

/// The filter grows with the first new item that finds the newest layer full, and not earlier.
pub(crate) fn a_layer_is_opened_when_the_newest_is_full(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = Bloom::new(*spec).unwrap();
    for item in case.a.iter().chain(&case.b) {
        let item = hash(&filter, *item);
        let newest = filter.layers().last().unwrap();
        let (layers, full) = (filter.layers().len(), newest.items() == newest.capacity());
        let expected = layers + usize::from(full && !filter.contains(item));
        filter.add(item).unwrap();
        prop_assert_eq!(filter.layers().len(), expected);
        let (_, older) = filter.layers().split_last().unwrap();
        prop_assert!(older.iter().all(|layer| layer.items() == layer.capacity()));
    }
    Ok(())
}

/// The first new item that finds the bits full goes to a table, and so do all later ones. Both parts together keep the
/// promise.
pub(crate) fn a_full_filter_adds_one_table(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = Bloom::new(*spec).unwrap();
    for item in case.a.iter().chain(&case.b) {
        let item = hash(&filter, *item);
        let (bits, tables) = filter.layers().split_first().unwrap();
        let (held, is_new) = (bits.items(), !filter.contains(item));
        let has_table = tables.len() == 1 || is_new && held == spec.capacity;
        let added = u64::from(is_new && !has_table);
        filter.add(item).unwrap();
        let (bits, tables) = filter.layers().split_first().unwrap();
        prop_assert_eq!((bits.items(), tables.len()), (held + added, usize::from(has_table)));
        prop_assert!(tables.iter().all(|table| table.shape().layout == Layout::Quotient));
        prop_assert!(filter.layers().iter().map(|layer| layer.error_rate()).sum::<f64>() <= spec.error_rate);
        prop_assert!(tables.iter().all(|table| table.rate_now() <= table.error_rate()));
    }
    Ok(())
}

/// When the chain is full, `try_add` refuses a new item instead of growing, for callers that have to ask for memory
/// before the filter grows.
pub(crate) fn without_growth_a_full_chain_refuses(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = Bloom::new(*spec).unwrap();
    let mut growing = Bloom::new(*spec).unwrap();
    for item in &case.a {
        let item = hash(&filter, *item);
        let (present, before) = (filter.contains(item), wire::encode(&filter));
        match filter.try_add(item) {
            Ok(done) => prop_assert_eq!(done, Added { added: !present, changed: !present }),
            Err(why) => {
                prop_assert_eq!(why, Error::Full);
                prop_assert!(!present && filter.layers().last().unwrap().is_full());
                prop_assert_eq!(wire::encode(&filter), before);
                prop_assert_eq!(filter.grow(), Ok(true));
                prop_assert!(filter.try_add(item).unwrap().added);
            }
        }
        growing.add(item).unwrap();
    }
    prop_assert_eq!(wire::encode(&filter), wire::encode(&growing));
    Ok(())
}

/// Growing adds an empty layer, so no absent item becomes present, and no present item becomes absent.
pub(crate) fn growing_keeps_every_answer(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = filled(spec, &case.a);
    let answers =
        |filter: &Bloom| -> Vec<bool> { (0..240).map(|i| filter.contains(hash(filter, i))).collect() };
    let (before, items) = (answers(&filter), filter.items());
    for _ in 0..case.b.len() % 4 {
        prop_assert!(filter.grow().unwrap());
    }
    prop_assert_eq!(answers(&filter), before);
    prop_assert_eq!(filter.items(), items);
    Ok(())
}
