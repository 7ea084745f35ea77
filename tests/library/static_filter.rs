//! What only static filters promise.

use crate::support::env;
use bloomery::parallel::alone;
use bloomery::{Bloom, Cell, Error, Family, Filter, Layout, Overflow, Spec, StaticBuilder};
use std::collections::HashSet;

/// The layouts of static filters.
const LAYOUTS: [Option<Layout>; 2] = [Some(Layout::Fuse), Some(Layout::Ribbon)];

fn spec(layout: Option<Layout>, error_rate: f64, seed: u64) -> Spec {
    Spec { layout, seed: u128::from(seed).into(), ..Spec::fixed(1, error_rate) }
}

fn built<I: AsRef<[u8]>>(spec: Spec, items: impl IntoIterator<Item = I>) -> Bloom {
    let mut builder = StaticBuilder::with_spec(spec).unwrap();
    items.into_iter().for_each(|item| builder.insert(item.as_ref()).unwrap());
    builder.build().unwrap()
}

/// How many of `questions` numbers, starting at `from`, test positive.
fn hits(filter: &Bloom, from: u64, questions: u64) -> u64 {
    (from..from + questions).filter(|item| filter.contains(item.to_le_bytes())).count() as u64
}

#[test]
fn every_item_of_a_set_of_any_size_is_found() {
    let scale = env("BLOOMERY_SCALE", 1);
    let small = (0..300).flat_map(|items| (0..20 * scale).map(move |seed| (items, seed)));
    let large = [1000, 4095, 4096, 10_000, 65_537, 200_000, 1_000_000].map(|items| (items, items));
    for ((items, seed), layout) in small.chain(large).flat_map(|sizes| LAYOUTS.map(|layout| (sizes, layout)))
    {
        // Error rates for whole numbers of bits, and others, for which RIBBON uses fractions of a bit.
        let bits = 4 + (seed + items) % 29;
        let rate =
            0.5f64.powi(bits as i32) * if seed % 2 == 0 { 1.0 } else { 1.0 + (items % 97) as f64 / 97.0 };
        let filter = built(spec(layout, rate, seed), (0..items).map(u64::to_le_bytes));
        assert_eq!(hits(&filter, 0, items), items, "{layout:?}, {items} items, seed {seed}");
        assert_eq!((filter.items(), filter.estimate(), filter.capacity()), (items, items, items.max(1)));
        assert_eq!(Bloom::from_bytes(&filter.to_bytes()).unwrap(), filter);
    }
}

/// In five of these 60 sets, the equations of some items contradict each other. Such a set needs another round of
/// mixing.
#[test]
fn every_item_is_found_after_another_round_of_mixing() {
    for seed in 0..60 {
        let ribbon = spec(Some(Layout::Ribbon), 0.01, 60_000 + 7919 * seed);
        let filter = built(ribbon, (0..60_000u64).map(u64::to_le_bytes));
        assert_eq!(hits(&filter, 0, 60_000), 60_000, "seed {seed}");
    }
}

/// The error rate is within 5 standard deviations of 2^-f for fingerprints of f bits. At 32 bits, hits are so rare that
/// a few of them would fail the test.
#[test]
fn the_error_rate_is_that_of_the_fingerprint() {
    let questions = 1_000_000 * env("BLOOMERY_SCALE", 1);
    for width in 4..=32 {
        for items in [100, 50_000] {
            let rate = 0.5f64.powi(width);
            let fuse = spec(Some(Layout::Fuse), rate, width as u64);
            let filter = built(fuse, (0..items).map(u64::to_le_bytes));
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

/// A ribbon filter keeps any error rate that it is built for. Unless it is small, its real rate is hardly lower. In a
/// million tests of each filter, the number of hits is within 5 standard deviations of what the filter computes,
/// whatever share of its blocks has one more column.
#[test]
fn the_error_rate_of_a_ribbon_filter_is_the_promise() {
    let questions = 1_000_000 * env("BLOOMERY_SCALE", 1);
    for (step, rate) in
        [0.9, 0.6, 0.5, 0.3, 0.1, 0.07, 0.03, 0.01, 0.0078, 0.5f64.powi(7), 0.001, 1e-4, 1e-5, 1e-6, 1e-9]
            .into_iter()
            .enumerate()
    {
        for items in [1, 10, 100, 1000, 10_000, 100_000, 1_000_000] {
            let ribbon = spec(Some(Layout::Ribbon), rate, step as u64 + items);
            let filter = built(ribbon, (0..items).map(u64::to_le_bytes));
            let now = filter.rate_now();
            // A filter consists of whole blocks of 64 rows, and a small filter has only three blocks or a few more.
            let least = if items < 10_000 { 0.5 } else { 0.99 };
            assert!(now <= rate * (1.0 + 1e-12) && now >= least * rate, "{rate}, {items} items: {now}");
            let (found, expected) = (hits(&filter, items, questions) as f64, questions as f64 * now);
            let sigma = (expected * (1.0 - now)).sqrt().max(0.4);
            assert!(
                (found - expected).abs() <= 5.0 * sigma,
                "{rate}, {items} items: {found}, not {expected}"
            );
        }
    }
}

/// Even in the largest sets, every item is found, and the error rate is within 5 standard deviations. The test needs
/// minutes and 4 GB, so it runs only if `BLOOMERY_SCALE` is at least 100.
#[test]
fn a_hundred_million_items() {
    if env("BLOOMERY_SCALE", 1) < 100 {
        return;
    }
    let items = 100_000_000;
    for rate in [0.5f64.powi(4), 0.5f64.powi(8), 0.01, 1e-6] {
        for layout in LAYOUTS {
            let filter = built(spec(layout, rate, 1), (0..items).map(u64::to_le_bytes));
            assert_eq!((filter.items(), hits(&filter, 0, items)), (items, items), "{layout:?}, {rate}");
            let now = filter.rate_now();
            assert!(now <= rate * (1.0 + 1e-12), "{layout:?}, {rate}: {now}");
            let (found, expected) = (hits(&filter, items, items) as f64, items as f64 * now);
            let sigma = (expected * (1.0 - now)).sqrt().max(0.4);
            println!("{layout:?}, {rate}: {found} of {items} absent items, {expected} expected");
            assert!((found - expected).abs() <= 5.0 * sigma, "{layout:?}, {rate}: {found}, not {expected}");
        }
    }
}

#[test]
fn an_item_takes_as_many_bits_as_promised() {
    let (fuse, ribbon) = (Some(Layout::Fuse), Some(Layout::Ribbon));
    for (layout, error_rate, most) in [
        (fuse, 0.004, 9.1),
        (fuse, 1e-6, 22.6),
        (fuse, 0.07, 4.55),
        (ribbon, 0.0078, 7.31),
        (ribbon, 0.01, 7.02),
        (ribbon, 0.001, 10.42),
        (ribbon, 1e-6, 20.82),
        (ribbon, 0.07, 4.05),
    ] {
        let items = 1_000_000;
        let filter = built(spec(layout, error_rate, 1), (0..items as u64).map(u64::to_le_bytes));
        let bits = filter.bytes() as f64 * 8.0 / f64::from(items);
        assert!(bits <= most, "{layout:?}, {error_rate}: {bits} bits an item");
    }
}

/// The filter depends only on the set: not on the order, on repetitions, or on the number of threads.
#[test]
fn equal_sets_make_equal_filters() {
    for layout in LAYOUTS {
        let spec = spec(layout, 0.01, 7);
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
}

/// A stream: its name, its length, its items by number, and the number of different items.
type Stream = (&'static str, u64, fn(u64) -> [u8; 32], u64);

/// A different item for each number.
fn item(number: u64) -> [u8; 32] {
    std::array::from_fn(|at| number.to_be_bytes()[at % 8])
}

/// Whatever items come, in whatever order and however often, the filter has each of them, and no more false positives
/// than promised.
#[test]
fn every_stream_makes_the_filter_of_its_set() {
    fn flipped(bit: u64) -> [u8; 32] {
        std::array::from_fn(|at| if at as u64 == bit / 8 { 0xAA ^ (1 << (bit % 8)) } else { 0xAA })
    }
    let long = if env("BLOOMERY_SCALE", 1) < 100 { 10_000_000 } else { 100_000_000 };
    let streams: [Stream; 10] = [
        ("one item", 1, item, 1),
        ("all equal", 300_000, |_| item(7), 1),
        ("all equal but the last", 300_000, |number| item(number / 299_999), 2),
        ("equal but for one bit", 256, flipped, 256),
        ("sorted", 300_000, item, 300_000),
        ("sorted backwards", 300_000, |number| item(u64::MAX - number), 300_000),
        ("equal but for the upper bits", 300_000, |number| item(number << 40), 300_000),
        ("each twice, far from the other", 600_000, |number| item(number % 300_000), 300_000),
        ("three by turns", 1_000_000, |number| item(number % 3), 3),
        ("very many", long, item, long),
    ];
    let absent = |number: u64| [item(number), item(!number)].concat();
    for ((name, length, stream, different), layout) in
        streams.iter().flat_map(|stream| LAYOUTS.map(|layout| (*stream, layout)))
    {
        for width in if length < long { &[4, 8, 13, 20, 32][..] } else { &[8] } {
            let rate = 0.5f64.powi(*width);
            let filter = built(spec(layout, rate, length), (0..length).map(stream));
            assert_eq!(filter.items(), different, "{name}, {layout:?}, {width} bits");
            assert!(
                (0..length).all(|number| filter.contains(stream(number))),
                "{name}, {layout:?}, {width} bits"
            );
            let questions = 100_000;
            let found = (0..questions).filter(|number| filter.contains(absent(*number))).count() as f64;
            let expected = questions as f64 * rate;
            let most = 5.0 * expected.sqrt().max(0.4);
            assert!(
                (found - expected).abs() <= most,
                "{name}, {layout:?}, {width} bits: {found}, not {expected}"
            );
        }
    }
}

/// The builder keeps each different item only once, so a long stream with few different items needs little memory.
#[test]
fn repetitions_take_no_memory() {
    for layout in LAYOUTS {
        let times = if env("BLOOMERY_SCALE", 1) < 100 { 1 << 22 } else { 1 << 32 };
        for different in [1, 3, 1000, 100_000] {
            let mut builder = StaticBuilder::with_spec(spec(layout, 0.01, 1)).unwrap();
            (0..times).for_each(|number| builder.insert(item(number % different)).unwrap());
            assert_eq!(builder.items(), times);
            assert!(
                builder.build().unwrap() == built(spec(layout, 0.01, 1), (0..different).map(item)),
                "{different}"
            );
            let (list, most) = (builder.into_list().bytes(), (32 * different).max(1 << 20) * 3 / 2);
            assert!(list <= most, "{different}: {list} bytes, not {most}");
        }
    }
}

#[test]
fn an_empty_filter_has_nothing() {
    for layout in LAYOUTS {
        for filter in [built(spec(layout, 0.9, 1), [[0u8; 0]; 0]), Bloom::new(spec(layout, 0.9, 1)).unwrap()]
        {
            assert_eq!((hits(&filter, 0, 10_000), filter.items(), filter.rate_now()), (0, 0, 0.0));
        }
    }
}

#[test]
fn there_are_no_adds_and_nothing_to_combine() {
    for layout in LAYOUTS {
        let mut filter = built(spec(layout, 1e-9, 1), [b"ada", b"bob"]);
        let before = filter.to_bytes();
        assert_eq!((filter.insert("ada"), filter.insert("eve")), (Ok(false), Err(Error::Static)));
        assert_eq!(Bloom::new(spec(layout, 1e-9, 1)).unwrap().insert("eve"), Err(Error::Static));
        assert_eq!(filter.remove("ada"), Err(Error::NotCounting));
        let same = filter.clone();
        assert_eq!(
            (filter.union(&same), filter.intersect(&same)),
            (Err(Error::Mismatch), Err(Error::Mismatch))
        );
        assert_eq!(filter.to_bytes(), before);
        assert_eq!(Filter::from(filter).summary(0).kind, "static");
    }
}

#[test]
fn what_does_not_go_with_it_is_refused() {
    for layout in LAYOUTS {
        let good = spec(layout, 0.01, 1);
        for wrong in [
            Spec { shards: 2, ..good },
            Spec { cell: Cell::Counter4, ..good },
            Spec { family: Family::Fixed(Overflow::Saturate), ..good },
            Spec { family: Spec::window(1, 0.01, 2).family, ..good },
            Spec { layout: None, ..good },
            Spec { error_rate: 1e-10, ..good },
        ] {
            assert!(StaticBuilder::with_spec(wrong).is_err(), "{wrong:?}");
        }
        assert!(Bloom::new(Spec { family: Spec::scaling(1, 0.01).family, ..good }).is_err());
    }
}

/// Different items have different hashes, so a filter has as many items as its set.
#[test]
fn no_item_is_taken_for_a_repetition() {
    let items: HashSet<[u8; 8]> =
        (0..200_000u64).map(|item| ((item << 40) | (item % 7)).to_le_bytes()).collect();
    for layout in LAYOUTS {
        assert_eq!(built(spec(layout, 0.1, 3), &items).items(), items.len() as u64);
    }
}
