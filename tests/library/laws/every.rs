//! Laws of every kind of filter, and laws of filters whose cells are bits.

use super::Case;
use crate::support::naive::Naive;
use crate::support::{add_all, filled, hash, refuses, seeded, summary, wire};
use bloomery::filter::Window;
use bloomery::{Added, Bloom, Cell, Error, Hits, ItemHash, Spec};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// Adds all items that the filter accepts, and returns them. A full filter refuses new items.
fn add_what_fits(filter: &mut Bloom, items: &[u16]) -> Vec<u16> {
    let taken = |item: &&u16| filter.add(hash(filter, **item)).is_ok();
    items.iter().filter(taken).copied().collect()
}

/// Grows two chains to the same number of layers, because otherwise they can't be combined.
fn align(a: &mut Bloom, b: &mut Bloom) {
    while a.layers().len() < b.layers().len() {
        a.grow().unwrap();
    }
    while b.layers().len() < a.layers().len() {
        b.grow().unwrap();
    }
}

/// Added items are present, and the result of every add agrees with the test before it.
pub(crate) fn no_false_negative(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = Bloom::new(*spec).unwrap();
    for item in &case.a {
        let item = hash(&filter, *item);
        let before = filter.contains(item);
        match filter.add(item) {
            Ok(Added { added, .. }) => {
                prop_assert_eq!(added, !before);
                prop_assert!(filter.contains(item));
            }
            Err(why) => prop_assert!(refuses(spec) && !before && why == Error::Full, "{}", why),
        }
    }
    let mut filter = Bloom::new(*spec).unwrap();
    for item in add_what_fits(&mut filter, &case.a) {
        prop_assert!(filter.contains(hash(&filter, item)));
    }
    Ok(())
}

/// A second add reports that the item is present. Bits stay as they are, and counters change unless they are saturated.
pub(crate) fn a_duplicate_adds_nothing(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = Bloom::new(*spec).unwrap();
    for item in add_what_fits(&mut filter, &case.a) {
        let item = hash(&filter, item);
        let (before, items) = (wire::body(&filter), filter.items());
        let again = filter.add(item).unwrap();
        prop_assert!(!again.added);
        prop_assert_eq!(filter.items(), items);
        prop_assert_eq!(again.changed, wire::body(&filter) != before);
        if spec.cell == Cell::Bit {
            prop_assert!(!again.changed);
        }
    }
    Ok(())
}

/// A cleared filter equals one that never had items.
pub(crate) fn clear_empties(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = Bloom::new(*spec).unwrap();
    add_what_fits(&mut filter, &case.a);
    filter.clear().unwrap();
    let fresh = Bloom::new(*spec).unwrap();
    prop_assert_eq!(summary(&filter), summary(&fresh));
    prop_assert_eq!(wire::encode(&filter), wire::encode(&fresh));
    prop_assert!(case.a.iter().all(|item| !filter.contains(hash(&filter, *item))));
    // Afterwards, the cleared filter also behaves like a new one.
    let (mut filter, mut fresh) = (filter, fresh);
    add_what_fits(&mut filter, &case.b);
    add_what_fits(&mut fresh, &case.b);
    prop_assert_eq!(wire::encode(&filter), wire::encode(&fresh));
    Ok(())
}

/// The union has the items of both filters. Its number of items is at least the larger of the two numbers, and at most
/// their sum.
pub(crate) fn union_is_a_superset(spec: &Spec, case: &Case) -> TestCaseResult {
    let (mut a, mut b) = (Bloom::new(*spec).unwrap(), Bloom::new(*spec).unwrap());
    let (in_a, in_b) = (add_what_fits(&mut a, &case.a), add_what_fits(&mut b, &case.b));
    if a.layers().len() != b.layers().len() {
        let before = wire::encode(&a);
        prop_assert_eq!(a.union(&b), Err(Error::Mismatch));
        prop_assert_eq!(wire::encode(&a), before);
        align(&mut a, &mut b);
    }
    let other = wire::encode(&b);
    let (mine, theirs) = (a.items(), b.items());
    a.union(&b).unwrap();
    for item in in_a.iter().chain(&in_b) {
        prop_assert!(a.contains(hash(&a, *item)));
    }
    prop_assert!((mine.max(theirs)..=mine + theirs).contains(&a.items()));
    prop_assert_eq!(wire::encode(&b), other);
    let union = wire::body(&a);
    a.union(&b).unwrap();
    prop_assert!(spec.cell != Cell::Bit || wire::body(&a) == union, "union with a part changes nothing");
    Ok(())
}

/// The intersection has the items that both filters have, and none that test positive in only one of them.
pub(crate) fn intersection_keeps_the_common(spec: &Spec, case: &Case) -> TestCaseResult {
    let (mut a, mut b) = (Bloom::new(*spec).unwrap(), Bloom::new(*spec).unwrap());
    let (in_a, in_b) = (add_what_fits(&mut a, &case.a), add_what_fits(&mut b, &case.b));
    align(&mut a, &mut b);
    let before = a.snapshot().unwrap();
    if a.layers().len() > 1 {
        // An item that is in different layers of the two filters would be lost.
        prop_assert_eq!(a.intersect(&b), Err(Error::Mismatch));
        prop_assert!(a.equal(&before));
        return Ok(());
    }
    a.intersect(&b).unwrap();
    for item in 0..240 {
        let item_hash = hash(&a, item);
        if in_a.contains(&item) && in_b.contains(&item) {
            prop_assert!(a.contains(item_hash));
        }
        if a.contains(item_hash) {
            prop_assert!(before.contains(item_hash) && b.contains(item_hash));
        }
    }
    prop_assert!(a.items() <= before.items().min(b.items()));
    Ok(())
}

/// `equal` compares cells, and `is_congruent` compares hash, seed and shape.
pub(crate) fn equal_means_equal_cells(spec: &Spec, case: &Case) -> TestCaseResult {
    let (mut a, mut b) = (Bloom::new(*spec).unwrap(), Bloom::new(*spec).unwrap());
    add_what_fits(&mut a, &case.a);
    add_what_fits(&mut b, &case.a);
    prop_assert!(a.equal(&b) && b.equal(&a));
    add_what_fits(&mut b, &case.b);
    prop_assert_eq!(a.equal(&b), wire::body(&a) == wire::body(&b));
    let stranger = Bloom::new(seeded(spec, !case.seed)).unwrap();
    prop_assert!(!stranger.is_congruent(&Bloom::new(*spec).unwrap()));
    let before = wire::encode(&a);
    prop_assert_eq!(a.union(&stranger), Err(Error::Mismatch));
    prop_assert_eq!(a.intersect(&stranger), Err(Error::Mismatch));
    prop_assert_eq!(wire::encode(&a), before);
    Ok(())
}

/// A copy has the same numbers and cells, and changing one of the two doesn't change the other.
pub(crate) fn a_snapshot_is_equal_and_independent(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = Bloom::new(*spec).unwrap();
    add_what_fits(&mut filter, &case.a);
    let mut copy = filter.snapshot().unwrap();
    prop_assert!(copy.equal(&filter));
    prop_assert_eq!(summary(&copy), summary(&filter));
    let before = wire::encode(&filter);
    prop_assert_eq!(&wire::encode(&copy), &before);
    add_what_fits(&mut copy, &case.b);
    prop_assert_eq!(&wire::encode(&filter), &before);
    let after = wire::encode(&copy);
    filter.clear().unwrap();
    prop_assert_eq!(wire::encode(&copy), after);
    Ok(())
}

/// A reader answers as the filter does, for items that were added before it was created, and for items that are added
/// to the same layers later.
pub(crate) fn a_reader_answers_the_same(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = Bloom::new(*spec).unwrap();
    add_what_fits(&mut filter, &case.a);
    let reader = filter.reader();
    for item in 0..240 {
        let item = hash(&filter, item);
        prop_assert_eq!(reader.contains(item), filter.contains(item));
    }
    prop_assert_eq!(reader.hash(b"item"), filter.hash(b"item"));
    let layers = filter.layers().len();
    let added = add_what_fits(&mut filter, &case.b);
    if filter.layers().len() == layers {
        prop_assert!(added.iter().all(|item| reader.contains(hash(&filter, *item))));
    }
    // The filter is dropped, as if its key were deleted, but the reader continues to read.
    let (hashes, answers): (Vec<_>, Vec<_>) =
        (0..240).map(|item| hash(&filter, item)).map(|item| (item, reader.contains(item))).unzip();
    drop(filter);
    prop_assert_eq!(hashes.into_iter().map(|item| reader.contains(item)).collect::<Vec<_>>(), answers);
    Ok(())
}

/// Tests in groups give the same answers as tests of one item: for the filter, for its reader, and for some of the
/// items in each layer. In a window, this holds as of any generation, even if some or all generations have expired by
/// then.
pub(crate) fn many_at_a_time_are_answered_as_one_by_one(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = Bloom::new(*spec).unwrap();
    // In a window the halves of the list are in different generations.
    for items in case.a.chunks(case.a.len().div_ceil(2).max(1)) {
        if let Some(newest) = filter.window().map(Window::newest) {
            filter.advance(newest + 1).unwrap();
        }
        add_what_fits(&mut filter, items);
    }
    let newest = filter.window().map_or(0, Window::newest);
    let reader = filter.reader();
    let hashes: Vec<_> = (0..240).map(|item| hash(&filter, item)).collect();
    let mask = |test: &dyn Fn(ItemHash) -> bool, items: &[ItemHash]| {
        items.iter().enumerate().fold(Hits(0), |hits, (index, item)| hits.with(index, test(*item)))
    };
    // Groups of up to 64 items. In each layer, only the items in a mask are tested; two of the masks come from the
    // seed.
    for len in [0, 1, case.b.len() % 64, 63, 64] {
        let items = &hashes[case.b.len()..case.b.len() + len];
        items.iter().for_each(|item| filter.prefetch(*item));
        for current in (0..8).map(|ahead| newest + ahead) {
            let expected = mask(&|item| filter.contains_as_of(item, current), items);
            prop_assert_eq!(filter.contains_many(items, current), expected, "{} as of {}", len, current);
            prop_assert_eq!(reader.contains_many(items, current), expected, "{} as of {}", len, current);
        }
        for layer in filter.layers() {
            let expected = mask(&|item| layer.contains(item), items);
            for asked in [0, 1, u64::MAX, case.seed, case.seed >> 7].map(Hits) {
                prop_assert_eq!(layer.contains_many(items, asked), expected & asked, "{} {:?}", len, asked);
            }
        }
    }
    Ok(())
}

/// Decoding the bytes of a filter gives the same filter: cells, parameters, every number, and the same bytes again.
pub(crate) fn encoding_and_decoding_changes_nothing(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = Bloom::new(*spec).unwrap();
    add_what_fits(&mut filter, &case.a);
    let bytes = wire::encode(&filter);
    let copy = wire::decode(&bytes).unwrap();
    prop_assert!(copy.equal(&filter));
    prop_assert_eq!(summary(&copy), summary(&filter));
    prop_assert!(spec.is_table() || copy.allocated() == filter.allocated());
    prop_assert_eq!(wire::encode(&copy), bytes);
    Ok(())
}

/// A replica that was loaded from the bytes stays equal to its primary through adds, deletes and rotations.
pub(crate) fn a_decoded_copy_goes_on_alike(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = Bloom::new(*spec).unwrap();
    let added = add_what_fits(&mut filter, &case.a);
    if spec.cell != Cell::Bit && case.seed.is_multiple_of(4) {
        // The filter is emptied again in a different order, which may leave the number of items above 0.
        let mut emptied = added.clone();
        emptied.sort_unstable();
        for item in emptied {
            prop_assert!(filter.remove(hash(&filter, item)).unwrap().present);
        }
    }
    for step in &case.b[..case.b.len() / 2] {
        if spec.cell != Cell::Bit {
            // This also deletes items that test positive but were never added. That is forbidden, but happens.
            let _ = filter.remove(hash(&filter, *step)).unwrap();
        } else if let (Some(window), 0) = (filter.window(), step % 8) {
            let next = window.newest() + 1 + u64::from(step / 100);
            filter.rotate(next).unwrap();
        }
    }
    let mut copy = wire::decode(&wire::encode(&filter)).unwrap();
    for step in &case.b[case.b.len() / 2..] {
        for filter in [&mut filter, &mut copy] {
            let item = hash(filter, *step);
            match step % 3 {
                0 if spec.cell != Cell::Bit => drop(filter.remove(item)),
                0 if filter.window().is_some() => {
                    let next = filter.window().map_or(0, |window| window.newest()) + 1;
                    filter.advance(next).unwrap();
                }
                _ => drop(filter.add(item)),
            }
        }
        prop_assert_eq!(summary(&copy), summary(&filter));
    }
    prop_assert_eq!(wire::encode(&copy), wire::encode(&filter));
    Ok(())
}

/// The counts that are updated as cells change match the cells, and the cells are those of the simplest model.
pub(crate) fn tallies_equal_a_recount(spec: &Spec, case: &Case) -> TestCaseResult {
    let (mut filter, mut naive) = (Bloom::new(*spec).unwrap(), Naive::new(*spec));
    for (i, step) in case.a.iter().chain(&case.b).enumerate() {
        let item = hash(&filter, *step);
        if spec.cell != Cell::Bit && step % 4 == 0 {
            let removed = filter.remove(item).unwrap();
            prop_assert_eq!((removed.present, removed.changed), naive.remove(item));
        } else if filter.window().is_some() && step % 16 == 0 {
            filter.advance(naive.newest() + 1).unwrap();
            naive.advance(naive.newest() + 1);
        } else {
            prop_assert_eq!(filter.add(item).ok(), naive.add(item));
        }
        prop_assert_eq!(naive.differs(&filter), None, "after step {}", i);
    }
    prop_assert_eq!(wire::cells(&filter), naive.cells());
    prop_assert_eq!(filter.ones(), filter.layers().iter().map(|layer| layer.ones()).sum::<u64>());
    prop_assert_eq!(filter.fill(), filter.ones() as f64 / filter.cells() as f64);
    Ok(())
}

/// ADDNX leaves a present item alone, and adds an absent one as usual.
pub(crate) fn add_if_absent_adds_what_is_absent(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = Bloom::new(*spec).unwrap();
    for item in &case.a {
        let item = hash(&filter, *item);
        let (present, before) = (filter.contains(item), wire::encode(&filter));
        match filter.add_if_absent(item) {
            Ok(done) => {
                prop_assert_eq!(done, Added { added: !present, changed: !present });
                prop_assert_eq!(wire::encode(&filter) == before, present);
                prop_assert!(filter.contains(item));
            }
            Err(why) => prop_assert!(refuses(spec) && !present && why == Error::Full),
        }
    }
    Ok(())
}

/// A prefetch is only a hint, and changes nothing.
pub(crate) fn prefetch_changes_nothing(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = Bloom::new(*spec).unwrap();
    add_what_fits(&mut filter, &case.a);
    let before = wire::encode(&filter);
    case.b.iter().for_each(|item| filter.prefetch(hash(&filter, *item)));
    prop_assert_eq!(wire::encode(&filter), before);
    Ok(())
}

/// A filter of bits refuses to count and to delete, and stays unchanged.
pub(crate) fn bits_neither_count_nor_delete(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = filled(spec, &case.a);
    let before = wire::encode(&filter);
    for item in case.a.iter().chain(&case.b) {
        let item = hash(&filter, *item);
        prop_assert_eq!(filter.remove(item), Err(Error::NotCounting));
        prop_assert_eq!(filter.count(item), Err(Error::NotCounting));
    }
    prop_assert_eq!(wire::encode(&filter), before);
    Ok(())
}

/// One layer of bits is a set, so neither order nor repetition matters.
pub(crate) fn sets_of_bits_know_no_order(spec: &Spec, case: &Case) -> TestCaseResult {
    let forwards = filled(spec, &case.a);
    let mut backwards: Vec<_> = case.a.iter().rev().copied().collect();
    backwards.extend(&case.a);
    let mut other = Bloom::new(*spec).unwrap();
    add_all(&mut other, &backwards);
    prop_assert!(other.equal(&forwards));
    Ok(())
}

/// A filter refuses an item if and only if the filter is full and the item is new. A refusal changes nothing.
pub(crate) fn a_full_filter_refuses_new_items_only(spec: &Spec, case: &Case) -> TestCaseResult {
    let mut filter = Bloom::new(*spec).unwrap();
    for item in case.a.iter().chain(&case.b) {
        let item = hash(&filter, *item);
        let newest = filter.window().map_or(&filter.layers()[0], |window| window.current());
        let (full, there) = (newest.is_full(), newest.contains(item));
        let before = wire::encode(&filter);
        let result = filter.add(item);
        prop_assert_eq!(result == Err(Error::Full), full && !there);
        if result.is_err() {
            prop_assert_eq!(wire::encode(&filter), before);
        }
    }
    prop_assert!(filter.items() <= filter.capacity());
    Ok(())
}
