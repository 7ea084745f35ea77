//! Static filters: what only they promise.

use crate::support::env;
use bloomery::internals::alone;
use bloomery::{Bloom, Cell, Error, Family, Filter, LayoutChoice, Overflow, Spec, StaticBuilder};
use std::collections::HashSet;

fn spec(error_rate: f64, seed: u64) -> Spec {
    Spec { layout: LayoutChoice::Fuse, seed: u128::from(seed).into(), ..Spec::fixed(1, error_rate) }
}

fn built<I: AsRef<[u8]>>(spec: Spec, items: impl IntoIterator<Item = I>) -> Bloom {
    let mut builder = StaticBuilder::with_spec(spec).unwrap();
    items.into_iter().for_each(|item| builder.insert(item.as_ref()).unwrap());
    builder.build().unwrap()
}

/// Questions about numbers from `from` on to which the filter says yes.
fn hits(filter: &Bloom, from: u64, questions: u64) -> u64 {
    (from..from + questions).filter(|item| filter.contains(item.to_le_bytes())).count() as u64
}

#[test]
fn every_item_of_a_set_of_any_size_is_found() {
    let scale = env("BLOOMERY_SCALE", 1);
    let small = (0..300).flat_map(|items| (0..20 * scale).map(move |seed| (items, seed)));
    let large = [1000, 4095, 4096, 10_000, 65_537, 200_000, 1_000_000].map(|items| (items, items));
    for (items, seed) in small.chain(large) {
        let width = 4 + (seed + items) % 29;
        let filter = built(spec(0.5f64.powi(width as i32), seed), (0..items).map(u64::to_le_bytes));
        assert_eq!(hits(&filter, 0, items), items, "{items} items, seed {seed}");
        assert_eq!((filter.items(), filter.estimate(), filter.capacity()), (items, items, items.max(1)));
        assert_eq!(Bloom::from_bytes(&filter.to_bytes()).unwrap(), filter);
    }
}

/// Within 5 standard deviations of 2^-f, for each number of bits: seldom enough at 32 that any hit is one too many.
#[test]
fn the_error_rate_is_that_of_the_fingerprint() {
    let questions = 1_000_000 * env("BLOOMERY_SCALE", 1);
    for width in 4..=32 {
        for items in [100, 50_000] {
            let rate = 0.5f64.powi(width);
            let filter = built(spec(rate, width as u64), (0..items).map(u64::to_le_bytes));
            assert!((filter.rate_now() / rate - 1.0).abs() < 1e-6 && filter.spec().error_rate == rate);
            let (found, expected) = (hits(&filter, items, questions) as f64, questions as f64 * rate);
            let sigma = expected.sqrt().max(0.4);
            assert!(
                (found - expected).abs() <= 5.0 * sigma,
                "{width} bits, {items} items: {found}, not {expected}"
            );
        }
    }
}

#[test]
fn an_item_takes_an_eighth_more_than_its_fingerprint() {
    for (error_rate, most) in [(0.004, 9.1), (1e-6, 22.6), (0.07, 4.55)] {
        let items = 1_000_000;
        let filter = built(spec(error_rate, 1), (0..items as u64).map(u64::to_le_bytes));
        let bits = filter.bytes() as f64 * 8.0 / f64::from(items);
        assert!(bits <= most, "{error_rate}: {bits} bits an item");
    }
}

/// The filter follows from the set: not from the order, nor from repetitions, nor from the number of threads.
#[test]
fn equal_sets_make_equal_filters() {
    let spec = spec(0.01, 7);
    let one = built(spec, (0..100_000u64).map(u64::to_le_bytes));
    let twice = (0..100_000u64).rev().chain(0..50_000).flat_map(|item| [item, item / 2]);
    let mut builder = StaticBuilder::with_spec(Spec { capacity: 1 << 20, ..spec }).unwrap();
    twice.for_each(|item| builder.insert(item.to_le_bytes()).unwrap());
    let backwards = builder
        .build_in(&|tasks, task| {
            std::thread::scope(|scope| {
                (0..4).for_each(|of| drop(scope.spawn(move || (of..tasks).step_by(4).for_each(task))))
            })
        })
        .unwrap();
    assert_eq!((one.items(), builder.items()), (100_000, 300_000));
    assert!(one == backwards && one.to_bytes() == backwards.to_bytes());
    assert_eq!(builder.build_in(&alone).unwrap(), one);
}

/// All equal; all but one equal; equal but for a bit; few items very often.
#[test]
fn sets_that_are_hard_to_separate_are_built() {
    let long = |bit: usize| {
        let mut item = vec![0xAA; 200];
        item[bit / 8] ^= 1 << (bit % 8);
        item
    };
    assert_eq!(built(spec(0.01, 1), std::iter::repeat_n(*b"one", 100_000)).items(), 1);
    let filter = built(spec(0.01, 1), std::iter::repeat_n(*b"one", 100_000).chain([*b"two"]));
    assert!(filter.items() == 2 && filter.contains("one") && filter.contains("two"));
    let filter = built(spec(0.01, 1), (0..1600).map(long));
    assert!(filter.items() == 1600 && (0..1600).all(|bit| filter.contains(long(bit))));
    let filter = built(spec(0.01, 1), (0..1_000_000u32).map(|item| (item % 3).to_le_bytes()));
    assert_eq!(filter.items(), 3);
}

#[test]
fn an_empty_filter_has_nothing() {
    for filter in [built(spec(0.9, 1), [[0u8; 0]; 0]), Bloom::new(spec(0.9, 1)).unwrap()] {
        assert_eq!((hits(&filter, 0, 10_000), filter.items(), filter.rate_now()), (0, 0, 0.0));
    }
}

#[test]
fn there_are_no_adds_and_nothing_to_combine() {
    let mut filter = built(spec(1e-9, 1), [b"ada", b"bob"]);
    let before = filter.to_bytes();
    assert_eq!((filter.insert("ada"), filter.insert("eve")), (Ok(false), Err(Error::Static)));
    assert_eq!(Bloom::new(spec(1e-9, 1)).unwrap().insert("eve"), Err(Error::Static));
    assert_eq!(filter.remove("ada"), Err(Error::NotCounting));
    let same = filter.clone();
    assert_eq!((filter.union(&same), filter.intersect(&same)), (Err(Error::Mismatch), Err(Error::Mismatch)));
    assert_eq!(filter.to_bytes(), before);
    assert_eq!(Filter::from(filter).summary(0).kind, "static");
}

#[test]
fn what_does_not_go_with_it_is_refused() {
    let good = spec(0.01, 1);
    for wrong in [
        Spec { shards: 2, ..good },
        Spec { cell: Cell::Counter4, ..good },
        Spec { family: Family::Fixed(Overflow::Saturate), ..good },
        Spec { family: Spec::window(1, 0.01, 2).family, ..good },
        Spec { layout: LayoutChoice::Auto, ..good },
        Spec { error_rate: 1e-10, ..good },
    ] {
        assert!(StaticBuilder::with_spec(wrong).is_err(), "{wrong:?}");
    }
    assert!(Bloom::new(Spec { family: Spec::scaling(1, 0.01).family, ..good }).is_err());
}

/// Different items have different hashes, so a filter has as many items as its set.
#[test]
fn no_item_is_taken_for_a_repetition() {
    let items: HashSet<[u8; 8]> =
        (0..200_000u64).map(|item| ((item << 40) | (item % 7)).to_le_bytes()).collect();
    assert_eq!(built(spec(0.1, 3), &items).items(), items.len() as u64);
}
