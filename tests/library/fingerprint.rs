//! What only fingerprint tables promise. The laws, the oracle and the error-rate gates also cover them.

use crate::support::{env, seeded};
use bloomery::{Bloom, Cell, Error, Family, Layout, Overflow, Spec, Tightening};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;

fn spec(capacity: u64, error_rate: f64, cell: Cell) -> Spec {
    Spec { cell, layout: Some(Layout::Fingerprint), ..Spec::fixed(capacity, error_rate) }
}

/// Adds items, numbered from `next`, until the filter is full. Returns the first number that wasn't added.
fn fill(filter: &mut Bloom, mut next: u64) -> u64 {
    while filter.items() < filter.capacity() {
        filter.add(next.to_le_bytes()).unwrap_or_else(|why| panic!("{why} at {} items", filter.items()));
        next += 1;
    }
    next
}

/// Tables of all sizes accept as many items as their capacity, whatever the width of a fingerprint. Then they refuse
/// new items, and still have all the old ones.
#[test]
fn no_add_below_the_capacity_is_refused() {
    let scale = env("BLOOMERY_SCALE", 1);
    for (capacity, tables) in
        [(1, 500), (2, 500), (7, 500), (30, 500), (200, 300), (2000, 100), (50_000, 4), (1_000_000, 1)]
    {
        for (error_rate, cell) in [
            (0.9, Cell::Bit),
            (0.1, Cell::Bit),
            (0.01, Cell::Bit),
            (1e-6, Cell::Bit),
            (0.2, Cell::Counter4),
            (1e-9, Cell::Counter16),
        ] {
            for seed in 0..tables * scale {
                let mut filter = Bloom::new(seeded(&spec(capacity, error_rate, cell), seed)).unwrap();
                let next = fill(&mut filter, 0);
                assert!((0..next).all(|item| filter.contains(item.to_le_bytes())));
                let refused = (next..).find_map(|item| filter.add(item.to_le_bytes()).err());
                assert_eq!((refused, filter.items()), (Some(Error::Full), capacity));
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
        (200_000, 0.01, Cell::Counter8),
    ] {
        let mut filter = Bloom::new(seeded(&spec(capacity, error_rate, cell), capacity)).unwrap();
        let mut random = StdRng::seed_from_u64(capacity);
        let mut truth: HashMap<u64, u64> = HashMap::new();
        let mut live: Vec<u64> = Vec::new();
        let mut next = 0;
        for _ in 0..10 * capacity {
            while filter.items() < capacity {
                filter.add(u64::to_le_bytes(next)).unwrap();
                *truth.entry(next).or_default() += 1;
                live.push(next);
                next += 1;
            }
            // Some items are added again, but no count reaches its maximum.
            let again = live[random.random_range(0..live.len())];
            if truth[&again] < 14 {
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
        let exact =
            truth.iter().filter(|(item, count)| filter.count(item.to_le_bytes()).unwrap() == **count).count();
        assert!(
            exact as f64 > truth.len() as f64 * (1.0 - 3.0 * error_rate) - 3.0,
            "{exact} of {}",
            truth.len()
        );
        assert!(filter.items() <= truth.len() as u64);
        // After the remaining items are deleted, no cell is in use.
        live.iter().for_each(|item| assert!(filter.remove(item.to_le_bytes()).unwrap().present));
        assert_eq!((filter.items(), filter.ones(), filter.saturated()), (0, 0, 0));
    }
}

/// The same commands lead to the same cells, even if fingerprints are moved: a replica equals its primary bit for bit.
/// A different order leads to different cells with the same items.
#[test]
fn tables_with_the_same_history_are_equal_to_the_bit() {
    let spec = seeded(&spec(500, 0.001, Cell::Counter4), 1);
    let filled = |order: &mut dyn Iterator<Item = u64>| {
        let mut filter = Bloom::new(spec).unwrap();
        order.for_each(|item| _ = filter.add(item.to_le_bytes()).unwrap());
        filter
    };
    let (one, same) = (filled(&mut (0..500)), filled(&mut (0..500)));
    let mut other = filled(&mut (0..500).rev());
    assert_eq!(one.to_bytes(), same.to_bytes());
    assert!(one.to_bytes() != other.to_bytes() && one == other);
    other.add(7u64.to_le_bytes()).unwrap();
    assert!(one != other, "another count");
}

/// A reader in another thread never misses an item while the writer moves it.
#[test]
fn a_reader_never_misses_an_item_that_is_moved() {
    let mut filter = Bloom::new(seeded(&spec(300, 0.01, Cell::Counter4), 3)).unwrap();
    // The first half stays. The other items come and go, and each new one moves several fingerprints.
    let kept = fill(&mut filter, 0);
    let reader = filter.reader();
    std::thread::scope(|scope| {
        let asked = scope.spawn(move || {
            let mut rounds = 0;
            for round in 0..300_000 {
                for item in 0..kept / 2 {
                    assert!(reader.contains(item.to_le_bytes()), "{item} in round {round}");
                }
                rounds += 1;
            }
            rounds
        });
        let mut next = kept;
        while !asked.is_finished() {
            let oldest = next - kept / 2;
            filter.remove(oldest.to_le_bytes()).unwrap();
            _ = filter.add(next.to_le_bytes());
            next += 1;
        }
        assert_eq!(asked.join().unwrap(), 300_000);
    });
}

#[test]
fn what_the_layout_cannot_do_is_refused() {
    let base = spec(100, 0.01, Cell::Bit);
    let window = Family::Window { generations: 4, overflow: Overflow::Saturate, every_ms: 0 };
    for refused in [
        Spec { shards: 2, ..base },
        Spec { family: Family::Fixed(Overflow::Saturate), ..base },
        Spec { family: window, ..base },
    ] {
        assert!(
            matches!(Bloom::new(refused), Err(Error::Exclusive(why)) if why.contains("BLOCKED or CLASSIC"))
        );
    }
    assert!(matches!(bloomery::AtomicBloom::new(base), Err(Error::Exclusive(_))));
    let mut fixed = Bloom::new(base).unwrap();
    fixed.insert("ada").unwrap();
    assert_eq!(fixed.remove("ada"), Err(Error::NotCounting));
    let mut other = fixed.snapshot().unwrap();
    assert_eq!((other.union(&fixed), other.intersect(&fixed)), (Ok(()), Err(Error::Mismatch)));
    assert!(other.contains("ada") && other.items() == 1);
    let scaling = Family::Scaling { expansion: 2, tightening: Tightening::INVERSE_SQUARE };
    for spec in [Spec { family: scaling, ..base }, self::window(100, 0.01, 4, Overflow::Error)] {
        let (mut filter, other) = (Bloom::new(spec).unwrap(), Bloom::new(spec).unwrap());
        assert_eq!(filter.union(&other), Err(Error::Mismatch));
    }
}

fn window(capacity: u64, error_rate: f64, generations: u16, overflow: Overflow) -> Spec {
    let family = Family::Window { generations, overflow, every_ms: 0 };
    Spec { family, ..spec(capacity, error_rate, Cell::Bit) }
}

/// All generations are filled to their capacity, up to a hundred times over: no add is refused, no item expires early
/// or late, and expired items need no room. Generation numbers are reused after 4 to 16 rotations here.
#[test]
fn a_full_window_goes_on_for_ever() {
    for (capacity, generations, error_rate, turnovers) in [
        (1, 2, 0.1, 100),
        (10, 3, 0.01, 100),
        (300, 8, 0.01, 100),
        (2000, 15, 0.001, 20),
        (5000, 2, 0.01, 20),
    ] {
        let spec = window(capacity, error_rate, generations, Overflow::Error);
        let mut filter = Bloom::new(seeded(&spec, capacity)).unwrap();
        let span = u64::from(generations);
        // An item's number divided by this gives its generation.
        const EACH: u64 = 1 << 32;
        for number in 0..turnovers * span {
            filter.advance(number).unwrap();
            let newest = |filter: &Bloom| filter.window().unwrap().alive(number).next().unwrap().items;
            let mut count = 0;
            while newest(&filter) < capacity {
                let item = number * EACH + count;
                filter.add(item.to_le_bytes()).unwrap_or_else(|why| panic!("{why} in generation {number}"));
                count += 1;
            }
            let window = filter.window().unwrap();
            for age in 0..span.min(number + 1) {
                for i in 0..capacity.min(5) {
                    let item = filter.hasher().hash(&((number - age) * EACH + i).to_le_bytes());
                    let found = window.age(item, number);
                    assert!(found.is_some_and(|found| found <= age), "{found:?} of {age}");
                }
            }
        }
        let asked = 200_000;
        let wrong = (0..asked).filter(|i| filter.contains((i | 1_u64 << 60).to_le_bytes())).count() as f64;
        let rate = wrong / asked as f64;
        assert!(rate < error_rate * 1.2 + 0.001, "{rate} of {error_rate}");
        // An item with the same fingerprint as one of an older generation replaces it.
        assert!(filter.items() * 20 >= capacity * span * 17, "{} items", filter.items());
    }
}

#[test]
fn a_window_of_eight_generations_takes_less_than_a_ring() {
    for (generations, error_rate, most) in
        [(8, 0.01, 14.4), (60, 0.01, 16.6), (1000, 0.01, 22.2), (8, 0.001, 17.7)]
    {
        let spec = window(1_000_000 / u64::from(generations), error_rate, generations, Overflow::Rotate);
        let bits = Bloom::bytes_for(&spec).unwrap() as f64 * 8.0 / 1e6;
        assert!(bits <= most, "{generations} generations: {bits} bits an item");
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

/// A full window that rotates drops its oldest generation, and keeps the newest items: at least as many as a
/// generation's capacity.
#[test]
fn a_full_window_drops_the_oldest() {
    for generations in [2, 8, 100] {
        let spec = window(100, 0.001, generations, Overflow::Rotate);
        let mut filter = Bloom::new(seeded(&spec, 1)).unwrap();
        let room = 100 * u64::from(generations);
        for item in 0..20 * room {
            filter.add(item.to_le_bytes()).unwrap();
            let kept = item.min(100 - 1);
            assert!(filter.contains((item - kept).to_le_bytes()), "{item} of {generations}");
        }
        assert!(filter.items() <= room && filter.window().unwrap().newest() >= 20);
    }
}

/// A reader in another thread never misses an item that is being refreshed or moved, or is in a sector that is being
/// cleaned.
#[test]
fn a_reader_never_misses_an_item_of_a_window() {
    let spec = window(700, 0.01, 3, Overflow::Rotate);
    let mut filter = Bloom::new(seeded(&spec, 3)).unwrap();
    let kept = 0..500u64;
    kept.clone().for_each(|item| _ = filter.add(item.to_le_bytes()).unwrap());
    let reader = std::sync::Mutex::new(filter.reader());
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            for round in 0..400 {
                let reader = reader.lock().unwrap().clone();
                for item in kept.clone() {
                    assert!(reader.contains(item.to_le_bytes()), "{item} in round {round}");
                }
            }
        });
        let (mut number, mut next) = (0, 1 << 32);
        while !asked.is_finished() {
            number += 1;
            filter.advance(number).unwrap();
            kept.clone().for_each(|item| _ = filter.add(item.to_le_bytes()).unwrap());
            for _ in 0..300 {
                filter.add(u64::to_le_bytes(next)).unwrap();
                next += 1;
            }
            *reader.lock().unwrap() = filter.reader();
        }
        asked.join().unwrap();
    });
}

/// A filter that counts and grows, compared with a multiset. About every tenth item shares a fingerprint with another
/// one. Items that weren't deleted are never absent, and when all are deleted, all layers are empty. Items come and go
/// in waves, so that fingerprints vanish from older layers while items that share them stay.
#[test]
fn a_chain_that_counts_loses_nothing() {
    for (capacity, expansion) in [(8, 1), (20, 2), (300, 1), (1000, 3)] {
        let mut wrong = 0;
        for seed in 0..if capacity < 100 { 200 } else { 5 } {
            let family = Family::Scaling { expansion, tightening: Tightening::INVERSE_SQUARE };
            let spec = Spec { family, ..spec(capacity, 0.1, Cell::Counter8) };
            let mut filter = Bloom::new(seeded(&spec, seed)).unwrap();
            let mut random = StdRng::seed_from_u64(seed);
            let mut live: Vec<u64> = Vec::new();
            let mut counts: HashMap<u64, u64> = HashMap::new();
            for wave in 0..12 {
                for _ in 0..random.random_range(0..4 * capacity) {
                    // There are so few different items that they come again while others still use their cells.
                    let item = random.random_range(0..8 * capacity);
                    let count = counts.entry(item).or_default();
                    wrong += usize::from(*count == 0 && filter.contains(item.to_le_bytes()));
                    filter.add(item.to_le_bytes()).unwrap();
                    *count += 1;
                    live.push(item);
                }
                for _ in 0..random.random_range(0..=live.len()) {
                    // Items of the oldest layer are deleted more often.
                    let most = random.random_range(0..live.len());
                    let gone = live.swap_remove(random.random_range(0..=most));
                    assert!(filter.remove(gone.to_le_bytes()).unwrap().present, "wave {wave}");
                    let count = counts.get_mut(&gone).unwrap();
                    *count -= 1;
                    assert!(*count == 0 || filter.contains(gone.to_le_bytes()));
                }
                for (item, count) in &counts {
                    assert!(filter.count(item.to_le_bytes()).unwrap() >= (*count).min(255));
                }
            }
            assert!(filter.layers().len() > 1);
            if filter.saturated() == 0 {
                live.iter().for_each(|item| _ = filter.remove(item.to_le_bytes()).unwrap());
                assert_eq!((filter.items(), filter.ones()), (0, 0));
            }
        }
        assert!(wrong > 0, "nothing was taken for another");
    }
}
