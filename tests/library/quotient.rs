//! What only tables promise. The laws, the oracle and the error-rate gates also cover them.

use crate::support::{seeded, wire};
use bloomery::{Bloom, Cell, Error, Family, Layout, Overflow, Spec, Tightening};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;

fn spec(capacity: u64, error_rate: f64, cell: Cell) -> Spec {
    Spec { cell, layout: Some(Layout::Quotient), ..Spec::fixed(capacity, error_rate) }
}

fn scaling(capacity: u64, error_rate: f64, cell: Cell) -> Spec {
    let family = Family::Scaling { expansion: 2, tightening: Tightening::INVERSE_SQUARE };
    Spec { family, ..spec(capacity, error_rate, cell) }
}

fn window(capacity: u64, error_rate: f64, generations: u16, overflow: Overflow) -> Spec {
    let family = Family::Window { generations, overflow, every_ms: 0 };
    Spec { family, ..spec(capacity, error_rate, Cell::Bit) }
}

fn add(filter: &mut Bloom, items: std::ops::Range<u64>) {
    for item in items {
        filter.add(item.to_le_bytes()).unwrap_or_else(|why| panic!("{why} at {} items", filter.items()));
    }
}

fn has_all(filter: &Bloom, mut items: std::ops::Range<u64>) -> bool {
    items.all(|item| filter.contains(item.to_le_bytes()))
}

/// A filter that can't grow accepts as many items as its capacity, and then refuses new ones.
#[test]
fn the_capacity_is_exact() {
    for (capacity, tables) in [(1, 200), (2, 200), (7, 200), (30, 200), (2000, 20), (200_000, 1)] {
        for (error_rate, cell) in [
            (0.3, Cell::Bit),
            (0.01, Cell::Bit),
            (1e-9, Cell::Bit),
            (0.2, Cell::Counter4),
            (1e-6, Cell::Counter16),
        ] {
            for seed in 0..tables {
                let mut filter = Bloom::new(seeded(&spec(capacity, error_rate, cell), seed)).unwrap();
                let mut next = 0;
                while filter.items() < capacity {
                    add(&mut filter, next..next + 1);
                    next += 1;
                }
                assert!(has_all(&filter, 0..next));
                let refused = (next..).find_map(|item| filter.add(item.to_le_bytes()).err());
                assert_eq!((refused, filter.items()), (Some(Error::Full), capacity));
                assert_eq!(filter.capacity(), capacity);
            }
        }
    }
}

/// In a full table, items are deleted and others added, in ten rounds for each item that the table has room for. No
/// item is refused or lost, and counts are never below those of a multiset.
#[test]
fn a_full_table_goes_on_for_ever() {
    for (capacity, error_rate, cell) in [
        (20, 0.1, Cell::Counter4),
        (1000, 0.01, Cell::Counter4),
        (1000, 1e-6, Cell::Counter16),
        (100_000, 0.01, Cell::Counter8),
    ] {
        let mut filter = Bloom::new(seeded(&spec(capacity, error_rate, cell), capacity)).unwrap();
        let mut random = StdRng::seed_from_u64(capacity);
        let mut truth: HashMap<u64, u64> = HashMap::new();
        let mut live: Vec<u64> = Vec::new();
        let mut next = 0;
        for _ in 0..10 * capacity {
            while filter.items() < capacity {
                add(&mut filter, next..next + 1);
                *truth.entry(next).or_default() += 1;
                live.push(next);
                next += 1;
            }
            // Some items are added again, but no count reaches its maximum.
            let again = live[random.random_range(0..live.len())];
            if truth[&again] < 14 && filter.count(again.to_le_bytes()).unwrap() < 14 {
                filter.add(again.to_le_bytes()).unwrap();
                *truth.entry(again).or_default() += 1;
                live.push(again);
            }
            for _ in 0..2 {
                let gone = live.swap_remove(random.random_range(0..live.len()));
                assert!(filter.remove(gone.to_le_bytes()).unwrap().present);
                let count = truth.get_mut(&gone).unwrap();
                *count -= 1;
                if *count == 0 {
                    truth.remove(&gone);
                }
            }
        }
        for (item, count) in &truth {
            assert!(filter.count(item.to_le_bytes()).unwrap() >= *count);
        }
        assert!(filter.rate_now() <= error_rate);
        // After the remaining items are deleted, no cell is in use.
        live.iter().for_each(|item| assert!(filter.remove(item.to_le_bytes()).unwrap().present));
        assert_eq!((filter.items(), filter.ones(), filter.saturated()), (0, 0, 0));
    }
}

/// The same commands lead to the same bytes: a replica equals its primary.
#[test]
fn tables_with_the_same_history_are_equal_to_the_bit() {
    for spec in [spec(500, 0.001, Cell::Counter4), scaling(10, 0.001, Cell::Counter4)] {
        let filled = || {
            let mut filter = Bloom::new(seeded(&spec, 1)).unwrap();
            add(&mut filter, 0..500);
            (0..300u64).for_each(|item| _ = filter.remove(item.to_le_bytes()).unwrap());
            filter
        };
        let (one, mut other) = (filled(), filled());
        assert_eq!(one.to_bytes(), other.to_bytes());
        assert!(one == other);
        other.add(400u64.to_le_bytes()).unwrap();
        assert!(one != other, "another count");
    }
}

/// Tables of one seed can be combined, whatever their sizes, capacities and error rates, and whether they grow.
#[test]
fn tables_of_different_sizes_are_combined() {
    const MANY: u64 = 100_000;
    for cell in [Cell::Bit, Cell::Counter4] {
        for (large, small) in [
            (scaling(1, 0.01, cell), scaling(1, 0.01, cell)),
            (scaling(MANY, 0.01, cell), scaling(1, 0.001, cell)),
            (spec(MANY + 5, 0.001, cell), scaling(10, 0.01, cell)),
        ] {
            let [large, small] = [(large, 0..MANY), (small, MANY - 2..MANY + 3)].map(|(spec, items)| {
                let mut filter = Bloom::new(seeded(&spec, 9)).unwrap();
                add(&mut filter, items);
                filter
            });
            for (mine, theirs) in [(&large, &small), (&small, &large)] {
                let mut union = mine.snapshot().unwrap();
                union.union(theirs).unwrap();
                assert!(has_all(&union, 0..MANY + 3));
                let items = union.items() as f64;
                assert!((items / (MANY + 3) as f64 - 1.0).abs() < 0.02, "{items}");
                let wrong = (0..MANY).filter(|item| union.contains((item | 1 << 40).to_le_bytes())).count();
                assert!(wrong as f64 <= 0.02 * MANY as f64, "{wrong}");
                if cell != Cell::Bit {
                    for item in [MANY - 2, MANY - 1] {
                        assert!(union.count(item.to_le_bytes()).unwrap() >= 2);
                    }
                    assert!(union.remove(0u64.to_le_bytes()).unwrap().present);
                }
                assert!(!mine.equal(theirs) && !mine.equal(&union) && !theirs.equal(&union));
                let mut common = mine.snapshot().unwrap();
                common.intersect(theirs).unwrap();
                assert!(has_all(&common, MANY - 2..MANY) && common.items() <= 5);
                for item in 0..MANY + 3 {
                    let both = large.contains(item.to_le_bytes()) && small.contains(item.to_le_bytes());
                    assert_eq!(common.contains(item.to_le_bytes()), both);
                }
            }
        }
    }
    // Bounded tables refuse what they have no room for, and then nothing has changed.
    let [mut bounded, large] =
        [(spec(100, 0.01, Cell::Bit), 0..90), (scaling(1, 0.01, Cell::Bit), 1000..2000)].map(
            |(spec, items)| {
                let mut filter = Bloom::new(seeded(&spec, 9)).unwrap();
                add(&mut filter, items);
                filter
            },
        );
    let before = wire::encode(&bounded);
    assert_eq!(bounded.union(&large), Err(Error::Full));
    assert!(wire::encode(&bounded) == before);
}

/// Whatever their numbers of leaves, tables are equal if they have the same items.
#[test]
fn equality_ignores_the_size() {
    let mut grown = Bloom::new(seeded(&scaling(1, 0.01, Cell::Counter4), 3)).unwrap();
    add(&mut grown, 0..100);
    let small = grown.snapshot().unwrap();
    add(&mut grown, 100..100_000);
    assert!(!grown.equal(&small) && !small.equal(&grown));
    (100..100_000u64).for_each(|item| _ = grown.remove(item.to_le_bytes()).unwrap());
    // A prefix that was split into two has the items of the first.
    assert!(has_all(&grown, 0..100) && grown.items() >= 95);
    let copy = wire::decode(&wire::encode(&grown)).unwrap();
    assert!(copy.equal(&grown));
}

/// Windows of one schedule are united by the ages of their items.
#[test]
fn windows_of_different_sizes_are_united() {
    const MANY: u64 = 20_000;
    for (one, other) in [(0u64, 3u64), (3, 0), (0, 0)] {
        let [large, small] =
            [(1, one, 0..MANY), (5000, other, MANY - 2..MANY + 3)].map(|(capacity, first, items)| {
                let spec = seeded(&window(capacity, 1e-6, 4, Overflow::Saturate), 9);
                let mut filter = Bloom::new(spec).unwrap();
                for (age, part) in [(2, items.start..items.end - 1), (1, items.end - 1..items.end)] {
                    drop(filter.rotate(first + 2 - age).unwrap());
                    add(&mut filter, part);
                }
                drop(filter.rotate(first + 2).unwrap());
                filter
            });
        for (mine, theirs) in [(&large, &small), (&small, &large)] {
            let mut union = mine.snapshot().unwrap();
            if one != other {
                assert_eq!(union.union(theirs), Err(Error::Mismatch), "another newest generation");
                continue;
            }
            union.union(theirs).unwrap();
            let now = union.window().unwrap();
            let age = |item: u64| now.age(union.hash(item.to_le_bytes()).into(), now.newest());
            assert!((0..MANY - 1).all(|item| age(item) == Some(2)));
            assert_eq!([MANY - 1, MANY, MANY + 1, MANY + 2].map(age), [Some(1), Some(2), Some(2), Some(1)]);
            let counts: Vec<_> = now.alive(now.newest()).map(|one| one.items).collect();
            assert_eq!(counts.iter().sum::<u64>(), union.items());
            assert_eq!((union.items(), counts[1]), (MANY + 3, 2));
            assert!(!union.equal(mine));
            let mut again = union.snapshot().unwrap();
            again.union(theirs).unwrap();
            assert!(again.equal(&union));
        }
    }
}

#[test]
fn what_the_layout_cannot_do_is_refused() {
    let base = spec(100, 0.01, Cell::Bit);
    let saturates = Spec { family: Family::Fixed(Overflow::Saturate), ..base };
    assert!(matches!(Bloom::new(saturates), Err(Error::Exclusive(why)) if why.contains("ONFULL SCALE")));
    assert!(matches!(Bloom::new(Spec { shards: 2, ..base }), Err(Error::Exclusive(_))));
    assert!(matches!(bloomery::AtomicBloom::new(base), Err(Error::Exclusive(_))));
    let mut fixed = Bloom::new(base).unwrap();
    fixed.insert("ada").unwrap();
    assert_eq!(fixed.remove("ada"), Err(Error::NotCounting));
    let mut bits = Bloom::new(Spec { layout: None, ..base }).unwrap();
    assert_eq!((bits.union(&fixed), fixed.union(&bits)), (Err(Error::Mismatch), Err(Error::Mismatch)));
    let mut aging = Bloom::new(window(100, 0.01, 4, Overflow::Saturate)).unwrap();
    let other = aging.snapshot().unwrap();
    assert_eq!((aging.union(&other), aging.intersect(&other)), (Ok(()), Err(Error::Mismatch)));
}

/// A window grows, and refuses or drops nothing early. A bounded one refuses or drops at capacity times generations.
#[test]
fn windows_grow_refuse_or_drop() {
    let mut grows = Bloom::new(seeded(&window(10, 0.01, 8, Overflow::Saturate), 1)).unwrap();
    assert_eq!(grows.spec().on_full(), "SCALE");
    add(&mut grows, 0..50_000);
    assert!(has_all(&grows, 0..50_000) && grows.capacity() >= grows.items());
    let full = grows.allocated();
    (1..10).for_each(|number| drop(grows.rotate(number).unwrap()));
    assert_eq!(grows.items(), 0);
    // Expired items make room as others come.
    for number in 10..30 {
        drop(grows.rotate(number).unwrap());
        add(&mut grows, number << 20..(number << 20) + 1000);
    }
    assert!(grows.allocated() < full, "{} of {full}", grows.allocated());

    let mut refuses = Bloom::new(seeded(&window(10, 1e-9, 8, Overflow::Error), 1)).unwrap();
    add(&mut refuses, 0..80);
    assert_eq!(refuses.add(80u64.to_le_bytes()), Err(Error::Full));

    for generations in [2, 8, 100] {
        let spec = window(100, 0.001, generations, Overflow::Forget);
        let mut drops = Bloom::new(seeded(&spec, 1)).unwrap();
        let room = 100 * u64::from(generations);
        for item in 0..20 * room {
            add(&mut drops, item..item + 1);
            assert!(drops.contains((item - item.min(99)).to_le_bytes()), "{item} of {generations}");
        }
        assert!(drops.items() <= room && drops.window().unwrap().newest() >= 20);
    }
}

/// However far the clock jumps, older items are gone for good, and recent ones stay.
#[test]
fn a_clock_that_jumps_forgets_everything_at_once() {
    let mut filter = Bloom::new(seeded(&window(2000, 0.01, 8, Overflow::Error), 1)).unwrap();
    let mut number = 0;
    for jump in (1..70).chain([1 << 20, 1 << 40, 15, 16, 17, (1 << 50) + 3]) {
        let items: Vec<u64> = (0..500).map(|i| number << 10 | i).collect();
        for item in &items {
            filter.add(item.to_le_bytes()).unwrap();
        }
        number += jump;
        filter.advance(number).unwrap();
        let present = items.iter().filter(|item| filter.contains(item.to_le_bytes())).count();
        assert!(if jump < 8 { present == 500 } else { present < 20 }, "{present} after {jump}");
    }
}

/// A reader in another thread never misses an item while leaves are split and joined.
#[test]
fn a_reader_never_misses_an_item_of_a_table_that_grows_and_shrinks() {
    let mut filter = Bloom::new(seeded(&scaling(1, 0.01, Cell::Counter4), 3)).unwrap();
    add(&mut filter, 0..100);
    let reader = filter.reader();
    std::thread::scope(|scope| {
        let asked = scope.spawn(move || {
            for round in 0..20_000 {
                for item in 0..100u64 {
                    assert!(reader.contains(item.to_le_bytes()), "{item} in round {round}");
                }
            }
        });
        while !asked.is_finished() {
            add(&mut filter, 100..5000);
            (100..5000u64).for_each(|item| _ = filter.remove(item.to_le_bytes()).unwrap());
        }
        asked.join().unwrap();
    });
}

/// A reader in another thread never misses an item of a window that is being refreshed, or is in a leaf that is being
/// cleaned.
#[test]
fn a_reader_never_misses_an_item_of_a_window() {
    let mut filter = Bloom::new(seeded(&window(700, 0.01, 3, Overflow::Forget), 3)).unwrap();
    add(&mut filter, 0..500);
    let reader = std::sync::Mutex::new(filter.reader());
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            for round in 0..400 {
                let reader = reader.lock().unwrap().clone();
                for item in 0..500u64 {
                    assert!(reader.contains(item.to_le_bytes()), "{item} in round {round}");
                }
            }
        });
        let (mut number, mut next) = (0, 1 << 32);
        while !asked.is_finished() {
            number += 1;
            filter.advance(number).unwrap();
            add(&mut filter, 0..500);
            add(&mut filter, next..next + 300);
            next += 300;
            *reader.lock().unwrap() = filter.reader();
        }
        asked.join().unwrap();
    });
}

/// A filter that counts and grows, compared with a multiset. Items that weren't deleted are never absent, and when all
/// are deleted, the table is empty. Items come and go in waves.
#[test]
fn a_table_that_counts_loses_nothing() {
    for capacity in [1, 8, 300, 1000] {
        let mut wrong = 0;
        for seed in 0..if capacity < 100 { 100 } else { 5 } {
            let mut filter = Bloom::new(seeded(&scaling(capacity, 0.1, Cell::Counter8), seed)).unwrap();
            let mut random = StdRng::seed_from_u64(seed);
            let mut live: Vec<u64> = Vec::new();
            let mut counts: HashMap<u64, u64> = HashMap::new();
            let most = 4 * capacity.max(200);
            for wave in 0..12 {
                for _ in 0..random.random_range(0..most) {
                    // There are so few different items that they come again while others still use their cells.
                    let item = random.random_range(0..2 * most);
                    let count = counts.entry(item).or_default();
                    wrong += usize::from(*count == 0 && filter.contains(item.to_le_bytes()));
                    filter.add(item.to_le_bytes()).unwrap();
                    *count += 1;
                    live.push(item);
                }
                for _ in 0..random.random_range(0..=live.len()) {
                    let gone = live.swap_remove(random.random_range(0..live.len()));
                    assert!(filter.remove(gone.to_le_bytes()).unwrap().present, "wave {wave}");
                    let count = counts.get_mut(&gone).unwrap();
                    *count -= 1;
                    assert!(*count == 0 || filter.contains(gone.to_le_bytes()));
                }
                for (item, count) in &counts {
                    assert!(filter.count(item.to_le_bytes()).unwrap() >= (*count).min(255));
                }
                assert!(filter.rate_now() <= 0.1);
            }
            if filter.saturated() == 0 {
                live.iter().for_each(|item| _ = filter.remove(item.to_le_bytes()).unwrap());
                // If two items share a prefix that was split, one of each half's counts is left.
                assert!(filter.items() <= 20, "{} items are left", filter.items());
            }
        }
        assert!(wrong > 0, "nothing was taken for another");
    }
}
