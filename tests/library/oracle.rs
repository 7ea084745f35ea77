//! Random sequences of operations on a filter and on two models at once. The first model is the truth: which items were
//! added, how often, and in which generation. The filter must not miss any of them. The second model is the simplest
//! filter ([`crate::support::naive`]), which the filter has to match in every answer and every number. Filters with
//! tables have only the first model: which items share a prefix depends on the whole past.
//!
//! BLOOMERY_SEQUENCES=1000000 runs more sequences. A failure prints the seed that repeats it: `BLOOMERY_SEED=…
//! BLOOMERY_SEQUENCES=1 cargo test --test library oracle::`.

use crate::support::kinds::Kind;
use crate::support::naive::Naive;
use crate::support::{env, hash, kinds, refuses, seeded, summary, wire};
use bloomery::{Bloom, Cell, Layer, Layout, Spec};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Number of operations in a sequence.
const STEPS: u32 = 200;

/// Number of different items that a sequence draws from.
const UNIVERSE: u16 = 240;

/// What a filter must remember about an item: how many of its adds remain, and the generation of the last one.
#[derive(Clone, Copy, Default)]
struct Truth {
    count: u64,
    last: u64,
}

struct Run {
    spec: Spec,
    filter: Bloom,
    /// `None` for tables, alone or after bits.
    naive: Option<Naive>,
    truth: HashMap<u16, Truth>,
}

impl Run {
    fn new(spec: Spec) -> Run {
        let has_table = spec.is_table() || spec.adds_table();
        let naive = (!has_table).then(|| Naive::new(spec));
        Run { spec, filter: Bloom::new(spec).unwrap(), naive, truth: HashMap::new() }
    }

    fn counts(&self) -> bool {
        self.spec.cell != Cell::Bit
    }

    fn is_aging_table(&self) -> bool {
        self.filter.window().is_some() && self.spec.is_table()
    }

    fn newest(&self) -> u64 {
        self.filter.window().map_or(0, |window| window.newest())
    }

    /// Whether the filter must answer yes for the item.
    fn must_have(&self, item: u16) -> bool {
        let alive = |truth: &&Truth| match self.filter.window() {
            Some(window) => window.newest() - truth.last < window.span(),
            None => true,
        };
        self.truth.get(&item).filter(alive).is_some_and(|truth| truth.count > 0)
    }

    fn ask(&self, item: u16) {
        let item_hash = hash(&self.filter, item);
        let found = self.filter.contains(item_hash);
        assert!(found || !self.must_have(item), "false negative: {item}");
        let newest = self.newest();
        if let Some(window) = self.filter.window() {
            for current in [newest, newest + 1, newest + 7] {
                let age = window.age(item_hash, current);
                assert_eq!(self.filter.contains_as_of(item_hash, current), age.is_some());
                assert!(self.naive.as_ref().is_none_or(|naive| age == naive.age(item_hash, current)));
            }
            let age = window.age(item_hash, newest);
            assert_eq!(found, age.is_some());
            let truth =
                self.truth.get(&item).filter(|_| self.must_have(item)).map(|truth| newest - truth.last);
            assert!(truth.is_none_or(|truth| age.is_some_and(|age| age <= truth)), "{age:?} of {truth:?}");
        } else if let Some(naive) = &self.naive {
            assert_eq!(found, naive.contains(item_hash));
        }
        if self.counts() {
            let count = self.filter.count(item_hash).unwrap();
            assert!(self.naive.as_ref().is_none_or(|naive| count == naive.count(item_hash)));
            let most = (1 << self.spec.cell.bits()) - 1;
            let truth = self.truth.get(&item).map_or(0, |truth| truth.count);
            assert!(count >= truth.min(most), "counted {count} of {truth}");
        }
    }

    fn add(&mut self, item: u16, if_absent: bool) {
        let item_hash = hash(&self.filter, item);
        if if_absent && self.filter.contains(item_hash) {
            assert!(!self.filter.add_if_absent(item_hash).unwrap().changed);
            return;
        }
        let (was_there, items) = (self.filter.contains(item_hash), self.filter.items());
        let found = if if_absent { self.filter.add_if_absent(item_hash) } else { self.filter.add(item_hash) };
        match &mut self.naive {
            Some(naive) => assert_eq!(found.as_ref().ok(), naive.add(item_hash).as_ref(), "add {item}"),
            // A table refuses only new items, at its capacity and never before.
            None => assert_eq!(
                found.as_ref().map(|done| done.added).ok(),
                (was_there || !refuses(&self.spec) || items < self.filter.capacity()).then_some(!was_there)
            ),
        }
        assert!(found.is_ok() || refuses(&self.spec));
        if found.is_ok() {
            let last = self.newest();
            let truth = self.truth.entry(item).or_default();
            *truth = Truth { count: truth.count + 1, last };
        }
        if self.filter.spec().on_full() == "FORGET" && items >= self.filter.capacity() && !was_there {
            self.truth.retain(|other, _| *other == item || self.filter.contains(hash(&self.filter, *other)));
        }
    }

    /// Deletes the item if the filter must have it. Deleting any other item is forbidden.
    fn remove(&mut self, item: u16) {
        if !self.must_have(item) {
            return;
        }
        let hashed = hash(&self.filter, item);
        // In a window, deleting an item also removes others with the same prefix.
        let others: Vec<u16> =
            (0..UNIVERSE).filter(|other| self.is_aging_table() && self.must_have(*other)).collect();
        let removed = self.filter.remove(hashed).unwrap();
        assert!(removed.present);
        match &mut self.naive {
            Some(naive) => assert_eq!((removed.present, removed.changed), naive.remove(hashed)),
            None => assert!(!self.is_aging_table() || !self.filter.contains(hashed)),
        }
        let gone = others.into_iter().filter(|other| !self.filter.contains(hash(&self.filter, *other)));
        for other in gone.collect::<Vec<_>>() {
            self.truth.remove(&other);
        }
        if let Some(truth) = self.truth.get_mut(&item) {
            truth.count -= 1;
        }
    }

    /// Continues with an equal copy of the filter, made in one of two ways.
    fn replace(&mut self, how: u32) {
        let before = summary(&self.filter);
        let copy = match how {
            0 => self.filter.snapshot().unwrap(),
            _ => wire::decode(&wire::encode(&self.filter)).unwrap(),
        };
        assert!(copy.equal(&self.filter));
        assert_eq!(summary(&copy), before);
        self.filter = copy;
    }

    /// Checks that the number of items is at most the number of adds, is 0 exactly if the filter is empty, and fits the
    /// fill if the filter has a single layer.
    fn count_items(&self) {
        if self.filter.window().is_some() || self.filter.saturated() > 0 {
            return;
        }
        let held = |truth: &Truth| if self.counts() { truth.count } else { 1 };
        let items = self.filter.items();
        assert!(items <= self.truth.values().map(held).sum(), "{items} items");
        assert_eq!(items == 0, self.filter.ones() == 0);
        // A table's number isn't estimated.
        let is_estimated = |layer: &&Layer| layer.shape().layout != Layout::Quotient;
        if let [layer] = self.filter.layers()
            && is_estimated(&layer)
        {
            let (least, most) = layer.shape().items_between(layer.fill());
            // A filter of bits counts an item when the item sets a bit, and never corrects the number. Deletes from a
            // counting filter do correct it.
            assert!(
                items <= most && (items >= least || !self.counts()),
                "{items} of {least} to {most} in {:?}",
                self.spec
            );
        }
    }

    fn step(&mut self, rng: &mut StdRng) {
        // A few items are frequent, so that counters grow; the others are rare.
        let item = if rng.random_bool(0.3) { rng.random_range(0..4) } else { rng.random_range(0..UNIVERSE) };
        match rng.random_range(0..100) {
            0..45 => self.add(item, false),
            45..55 => self.add(item, true),
            55..75 if self.counts() => self.remove(item),
            60..75 if self.is_aging_table() => self.remove(item),
            55..60 if self.filter.window().is_some() => {
                let skip = match rng.random_range(0..100) {
                    0..80 => 1,
                    80..99 => rng.random_range(0..10),
                    _ => rng.random_range(0..1 << 40),
                };
                let number = self.newest() + skip;
                let by_hand = rng.random_bool(0.5);
                let opened = if by_hand { self.filter.rotate(number) } else { self.filter.advance(number) };
                opened.unwrap();
                self.naive.iter_mut().for_each(|naive| naive.advance(number));
            }
            97 => self.replace(rng.random_range(0..2)),
            98 if rng.random_bool(0.2) => {
                self.filter.clear().unwrap();
                self.naive.iter_mut().for_each(Naive::clear);
                self.truth.clear();
            }
            _ => {}
        }
        self.ask(item);
        self.ask(rng.random_range(0..UNIVERSE));
        assert_eq!(self.naive.as_ref().and_then(|naive| naive.differs(&self.filter)), None);
        self.count_items();
    }
}

/// Runs one sequence. Everything in it follows from its seed.
fn sequence(kinds: &[Kind], seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let (_, kind) = kinds[rng.random_range(0..kinds.len())];
    let capacity = [1, 5, 20, 60, 150][rng.random_range(0..5)];
    let error_rate = [0.3, 0.05, 0.001, 1e-6][rng.random_range(0..4)];
    let mut run = Run::new(seeded(&Spec { capacity, error_rate, ..kind() }, rng.random()));
    for _ in 0..STEPS {
        run.step(&mut rng);
    }
    // At the end every item is tested once more, and the cells are compared one by one.
    (0..UNIVERSE).for_each(|item| run.ask(item));
    if let Some(naive) = &run.naive {
        assert_eq!(wire::cells(&run.filter), naive.cells());
    }
}

#[test]
fn random_sequences_equal_the_models() {
    equal_the_models(kinds::ALL, env("BLOOMERY_SEQUENCES", 10_000));
}

#[test]
fn random_sequences_of_tables_equal_the_models() {
    equal_the_models(kinds::TABLES, env("BLOOMERY_SEQUENCES", 10_000) / 10);
}

fn equal_the_models(kinds: &[Kind], sequences: u64) {
    let first = env("BLOOMERY_SEED", 1);
    println!("{sequences} sequences of {STEPS} operations from seed {first}");
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64).min(sequences);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for seed in (first + thread..first + sequences).step_by(threads as usize) {
                    if let Err(why) = catch_unwind(AssertUnwindSafe(|| sequence(kinds, seed))) {
                        eprintln!("repeat with BLOOMERY_SEED={seed} BLOOMERY_SEQUENCES=1");
                        resume_unwind(why);
                    }
                }
            });
        }
    });
}
