//! The gates for every use of LAYOUT QUOTIENT: at capacity, after growth from one item to a million, and after the
//! content has been replaced. The error rate that a table says is exact, so the measured one is compared with it, too.

use super::{Gates, Measured, RATES, questions};
use crate::support::wire::prefixes;
use crate::support::{env, seeded};
use bloomery::{Bloom, Cell, Family, Layout, Overflow, Spec, Tightening};

/// Fills a filter with items, numbered from 0. Returns the first number that was never added.
type Life = fn(&mut Bloom) -> u64;

fn add(filter: &mut Bloom, items: std::ops::Range<u64>) {
    for item in items {
        filter.add(item.to_le_bytes()).unwrap_or_else(|why| panic!("{why} at {} items", filter.items()));
    }
}

/// Number of items after growth.
const GROWN: u64 = 1_000_000;

/// Adds `capacity` items, or, in a window, `capacity` items to each generation.
fn full(filter: &mut Bloom) -> u64 {
    let Spec { capacity, .. } = filter.spec();
    let generations = filter.window().map_or(1, |window| window.span());
    for number in 0..generations {
        if filter.window().is_some() {
            filter.advance(number).unwrap();
        }
        add(filter, number * capacity..(number + 1) * capacity);
    }
    generations * capacity
}

fn grown(filter: &mut Bloom) -> u64 {
    add(filter, 0..GROWN);
    GROWN
}

/// Grows, shrinks to a thousandth by deletes, and grows again with other items.
fn grown_again(filter: &mut Bloom) -> u64 {
    add(filter, 0..GROWN);
    for item in 0..GROWN - GROWN / 1000 {
        assert!(filter.remove(item.to_le_bytes()).unwrap().present, "{item} is missing");
    }
    // Cells of prefixes that were split stay.
    assert!(filter.items() <= GROWN / 10, "{}", filter.items());
    add(filter, GROWN..2 * GROWN);
    2 * GROWN
}

/// Fills each generation and rotates, until the whole content has been dropped twenty times. A tenth of the items are
/// deleted.
fn rotated(filter: &mut Bloom) -> u64 {
    let (Spec { capacity, .. }, generations) = (filter.spec(), filter.window().unwrap().span());
    let rotations = 20 * generations;
    for number in 0..rotations {
        filter.rotate(number).unwrap();
        for item in number * capacity..(number + 1) * capacity {
            // The item may be gone already, if an item with the same prefix was deleted.
            if item % 10 == 0 {
                filter.remove(item.saturating_sub(5).to_le_bytes()).unwrap();
            }
            add(filter, item..item + 1);
        }
    }
    rotations * capacity
}

/// Adds a hundred times as many items as there is room for, so that the filter drops its oldest generation whenever it
/// is full.
fn pushed(filter: &mut Bloom) -> u64 {
    let items = filter.capacity() * 100;
    add(filter, 0..items);
    items
}

fn fixed(cell: Cell) -> Spec {
    Spec { cell, layout: Some(Layout::Quotient), ..Spec::fixed(3000, 0.5) }
}

fn scaling(cell: Cell) -> Spec {
    let family = Family::Scaling { expansion: 2, tightening: Tightening::INVERSE_SQUARE };
    Spec { family, capacity: 1, ..fixed(cell) }
}

fn window(generations: u16, overflow: Overflow) -> Spec {
    let family = Family::Window { generations, overflow, every_ms: 0 };
    Spec { family, capacity: 3200 / u64::from(generations), ..fixed(Cell::Bit) }
}

#[test]
fn every_use_keeps_its_rate_whatever_its_past() {
    let grows = |generations| Spec { capacity: 10, ..window(generations, Overflow::Saturate) };
    let uses: [(&str, Spec, Life); 11] = [
        ("fixed, full", fixed(Cell::Bit), full),
        ("COUNTING 16, full", fixed(Cell::Counter16), full),
        ("planned, full", Spec { capacity: 100_000, ..scaling(Cell::Bit) }, full),
        ("scaling, grown", scaling(Cell::Bit), grown),
        ("COUNTING 4, grown", scaling(Cell::Counter4), grown),
        ("COUNTING 4, grown again", scaling(Cell::Counter4), grown_again),
        ("WINDOW 8, full", window(8, Overflow::Error), full),
        ("WINDOW 1000, full", window(1000, Overflow::Error), full),
        ("WINDOW 4, grown", grows(4), grown),
        ("WINDOW 8, rotated", window(8, Overflow::Saturate), rotated),
        ("WINDOW 32, pushed", window(32, Overflow::Forget), pushed),
    ];
    let mut gates = Gates::default();
    let (mut all, mut expected) = (0, 0.0);
    for (name, spec, live) in uses {
        for error_rate in RATES {
            let mut filter = Bloom::new(seeded(&Spec { error_rate, ..spec }, 7)).unwrap();
            let first = live(&mut filter);
            let sum: f64 = prefixes(&filter).iter().map(|prefix| f64::exp2(-f64::from(prefix.length))).sum();
            let said = filter.rate_now();
            assert!((said - sum).abs() <= sum * 1e-9, "{name} at {error_rate}: {said} of {sum}");
            assert!(said <= error_rate, "{name} at {error_rate}: {said}");
            let asked = questions(error_rate) / 4;
            let hits = (first..first + asked).filter(|item| filter.contains(item.to_le_bytes())).count();
            // Cells of expired items don't answer, so only without them is the rate exact.
            let predicted = if filter.window().is_some() { 0.0 } else { said };
            gates.check(
                &format!("{name} at {error_rate}"),
                said,
                &Measured { asked, hits: vec![hits as u64], predicted },
            );
            if predicted > 0.0 {
                (all, expected) = (all + hits, expected + asked as f64 * said);
            }
        }
    }
    gates.verdict();
    let ratio = all as f64 / expected;
    println!("{all} hits in all, {ratio:.4} of what the filters say");
    assert!((ratio - 1.0).abs() < 0.03, "{all} hits, {expected:.0} expected");
}

/// Tables of 1 to 20,000 items, many of each, full or with room left, alone or after bits.
#[test]
fn tables_of_all_sizes() {
    let mut gates = Gates::default();
    for (items, filters) in [(1u64, 2000), (10, 2000), (100, 500), (1000, 100), (20_000, 10)] {
        for (kind, spec) in [
            ("full", Spec { capacity: items, ..fixed(Cell::Bit) }),
            ("grown", scaling(Cell::Bit)),
            ("COUNTING", scaling(Cell::Counter4)),
            ("after bits", Spec { capacity: items.div_ceil(10), layout: None, ..scaling(Cell::Bit) }),
        ] {
            for error_rate in [0.1, 0.01] {
                let asked = questions(error_rate) / filters / 4;
                let (mut measured, mut sum) = (Measured::default(), 0.0);
                for seed in 0..filters * env("BLOOMERY_SCALE", 1) {
                    let mut filter = Bloom::new(seeded(&Spec { error_rate, ..spec }, seed)).unwrap();
                    add(&mut filter, 0..items);
                    let absent = items..items + asked;
                    let hits = absent.filter(|item| filter.contains(item.to_le_bytes())).count();
                    measured.hits.push(hits as u64);
                    measured.asked += asked;
                    sum += filter.rate_now();
                }
                measured.predicted = sum / measured.hits.len() as f64;
                let promise = measured.predicted;
                assert!(promise <= error_rate, "{kind} {items}: {promise}");
                gates.check(&format!("{kind} {items} at {error_rate}"), promise, &measured);
            }
        }
    }
    gates.verdict();
}
