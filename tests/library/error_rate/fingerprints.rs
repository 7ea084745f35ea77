//! The gates for every use of LAYOUT FINGERPRINT: at capacity, after growth, and after the content has been replaced a
//! hundred times. By then, cells have been freed and used again, fingerprints have been moved, and generation numbers
//! have wrapped around.

use super::{Gates, Measured, RATES, measure, questions, to_capacity};
use crate::support::keys::Keys;
use crate::support::{env, seeded};
use bloomery::{Bloom, Cell, Family, Layout, Overflow, Spec, Tightening};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// A rate that needs 20 bits. The other rates test less: for 10%, the smallest table that works already has a rate of
/// 1.5%.
const LOWEST: f64 = 1e-6;

/// The number of times that the content is replaced.
const TURNOVERS: u64 = 100;

/// Fills a filter with items, numbered from 0. Returns the first number that was never added.
type Life = fn(&mut Bloom) -> u64;

/// A kind of filter, and the histories that it can have.
type Use<'u> = (&'u str, Spec, &'u [(&'u str, Life)]);

fn add(filter: &mut Bloom, item: u64) {
    filter.add(item.to_le_bytes()).unwrap_or_else(|why| panic!("{why} at {} items", filter.items()));
}

/// Adds `capacity` items, or, in a window, `capacity` items to each generation.
fn full(filter: &mut Bloom) -> u64 {
    let Spec { capacity, .. } = filter.spec();
    let generations = filter.window().map_or(1, |window| window.span());
    for number in 0..generations * capacity {
        if filter.window().is_some() {
            filter.advance(number / capacity).unwrap();
        }
        add(filter, number);
    }
    generations * capacity
}

/// Adds items until the filter has grown six times and its newest layer is full.
fn grown(filter: &mut Bloom) -> u64 {
    let mut next = 0;
    while filter.layers().len() <= 6 || filter.layers().last().is_some_and(|newest| !newest.is_full()) {
        add(filter, next);
        next += 1;
    }
    next
}

/// Replaces the content a hundred times, one item at a time, in random order.
fn replace(filter: &mut Bloom, items: u64) -> u64 {
    let mut live: Vec<u64> = (0..items).collect();
    let mut random = SmallRng::seed_from_u64(items);
    for number in items..items * (TURNOVERS + 1) {
        let gone = std::mem::replace(&mut live[random.random_range(0..items as usize)], number);
        assert!(filter.remove(gone.to_le_bytes()).unwrap().present, "{gone} is missing");
        add(filter, number);
    }
    items * (TURNOVERS + 1)
}

fn replaced(filter: &mut Bloom) -> u64 {
    let items = full(filter);
    replace(filter, items)
}

fn grown_and_replaced(filter: &mut Bloom) -> u64 {
    let items = grown(filter);
    replace(filter, items)
}

/// Fills each generation and rotates, manually or by the clock, until the whole content has been dropped a hundred
/// times. A tenth of the items are deleted and replaced by others.
fn rotated(filter: &mut Bloom) -> u64 {
    let (Spec { capacity, .. }, window) = (filter.spec(), filter.window().unwrap());
    let (generations, every_ms) = (window.span(), window.schedule().every_ms);
    let (mut next, mut now_ms) = (0, 0);
    for number in 0..generations * TURNOVERS {
        if every_ms == 0 || number % 3 == 0 {
            filter.rotate(number).unwrap();
        } else {
            now_ms += every_ms;
            filter.advance(filter.generation_at(now_ms)).unwrap();
        }
        let begin = next;
        for item in begin..begin + capacity + capacity / 10 {
            // The item may be gone already, if an item with the same fingerprint was deleted.
            if item >= begin + capacity {
                filter.remove((item - capacity).to_le_bytes()).unwrap();
            }
            add(filter, item);
        }
        next = begin + capacity + capacity / 10;
    }
    next
}

/// Adds a hundred times as many items as there is room for, so that the filter drops its oldest generation whenever it
/// is full.
fn pushed(filter: &mut Bloom) -> u64 {
    let items = filter.capacity() * TURNOVERS;
    (0..items).for_each(|item| add(filter, item));
    items
}

fn fixed(cell: Cell) -> Spec {
    Spec { cell, layout: Some(Layout::Fingerprint), ..Spec::fixed(3000, 0.5) }
}

fn scaling(cell: Cell) -> Spec {
    let family = Family::Scaling { expansion: 2, tightening: Tightening::INVERSE_SQUARE };
    Spec { family, capacity: 50, ..fixed(cell) }
}

fn window(generations: u16, every_ms: u64, overflow: Overflow) -> Spec {
    let family = Family::Window { generations, overflow, every_ms };
    Spec { family, capacity: 3200 / u64::from(generations), ..fixed(Cell::Bit) }
}

/// A rate that is 10% off is within the noise of one use, which has a few hundred hits. The hits of all uses together,
/// more than 50,000, determine the rate to within 2.2% (5σ). The hits at the lowest rate count together, too.
#[test]
fn every_use_keeps_its_rate_whatever_its_past() {
    let by_hand = window(8, 0, Overflow::Error);
    // A TTL of 31 seconds, with the usual number of steps and with a single step.
    let (ttl, one_step) = (window(32, 1000, Overflow::Rotate), window(2, 31_000, Overflow::Rotate));
    let uses: [Use<'_>; 11] = [
        ("fixed", fixed(Cell::Bit), &[("full", full)]),
        ("scaling", scaling(Cell::Bit), &[("grown", grown)]),
        ("COUNTING 4", fixed(Cell::Counter4), &[("full", full), ("replaced", replaced)]),
        ("COUNTING 8", fixed(Cell::Counter8), &[("full", full), ("replaced", replaced)]),
        ("COUNTING 16", fixed(Cell::Counter16), &[("full", full), ("replaced", replaced)]),
        (
            "COUNTING 4, scaling",
            scaling(Cell::Counter4),
            &[("grown", grown), ("replaced", grown_and_replaced)],
        ),
        ("COUNTING 16, scaling", scaling(Cell::Counter16), &[("replaced", grown_and_replaced)]),
        ("WINDOW 8", by_hand, &[("full", full), ("rotated", rotated)]),
        ("WINDOW 1000", window(1000, 0, Overflow::Error), &[("full", full)]),
        ("TTL", ttl, &[("full", full), ("rotated", rotated), ("pushed", pushed)]),
        ("TTL STEPS 1", one_step, &[("rotated", rotated), ("pushed", pushed)]),
    ];
    let mut gates = Gates::default();
    let (mut all, mut expected, mut lowest) = (0, 0.0, Measured::default());
    for (name, spec, lives) in uses {
        for (past, live) in lives {
            for error_rate in RATES.into_iter().chain([LOWEST]) {
                let mut filter = Bloom::new(seeded(&Spec { error_rate, ..spec }, 7)).unwrap();
                let first = live(&mut filter);
                let asked = questions_at(error_rate) / if error_rate == LOWEST { 16 } else { 1 };
                let hits = (first..first + asked).filter(|item| filter.contains(item.to_le_bytes())).count();
                // The model knows how many cells are in use, and the rate depends on nothing else.
                let predicted = filter.rate_now();
                let measured = Measured { asked, hits: vec![hits as u64], predicted };
                gates.check(&format!("{name}, {past}"), error_rate, &measured);
                // Tables may be larger than the rate requires, because adds need room. Such a table would keep the
                // promise even if its rate were higher than predicted.
                let most = asked as f64 * predicted;
                let bound = 1.05 * most + 5.0 * most.sqrt() + 5.0;
                assert!(
                    hits as f64 <= bound,
                    "{name}, {past} at {error_rate}: {hits} of {most:.1} predicted"
                );
                (all, expected) = (all + hits, expected + most);
                if error_rate == LOWEST {
                    lowest.predicted =
                        (lowest.predicted * lowest.asked as f64 + most) / (lowest.asked + asked) as f64;
                    lowest.asked += asked;
                    lowest.hits = vec![lowest.hits.iter().sum::<u64>() + hits as u64];
                }
            }
        }
    }
    gates.check("all uses at the lowest rate", LOWEST, &lowest);
    gates.verdict();
    let ratio = all as f64 / expected;
    println!("{all} hits in all, {ratio:.4} of the model");
    assert!((ratio - 1.0).abs() < 0.05, "{all} hits, {expected:.0} predicted");
}

/// Tables for 1 to 1,000,000 items, with items from several sources.
#[test]
fn tables_of_all_sizes() {
    let mut gates = Gates::default();
    for cell in [Cell::Bit, Cell::Counter4, Cell::Counter16] {
        for (capacity, filters, keys) in [
            (1, 2500, Keys::Sequential),
            (10, 2500, Keys::Sequential),
            (100, 1000, Keys::Url),
            (1000, 300, Keys::Uuid),
            (20_000, 32, Keys::Sequential),
            (1_000_000, 1, Keys::Url),
        ] {
            let lowest = (cell == Cell::Bit && filters == 1).then_some(LOWEST);
            for error_rate in RATES.into_iter().chain(lowest) {
                let spec = Spec { capacity, error_rate, ..fixed(cell) };
                let measured = measure(spec, keys, filters, questions_at(error_rate), to_capacity);
                gates.check(&format!("{cell:?} {capacity} {keys:?}"), error_rate, &measured);
            }
        }
    }
    gates.verdict();
}

/// Number of tests: enough for 10 hits at the lowest rate, and for 60 or more at the others.
fn questions_at(rate: f64) -> u64 {
    if rate < 1e-4 { 10_000_000 * env("BLOOMERY_SCALE", 1) } else { questions(rate) / 8 }
}
