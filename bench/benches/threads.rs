//! Measures the speed of a filter that is used by one thread, by several, and by as many as there are cores. The filter
//! is a `Bloom` behind a mutex, a `Bloom` behind a read-write lock, or an `AtomicBloom` with one shard or 64. For
//! comparison, each thread also works on a filter of its own. `cargo bench --bench threads` prints the results as a
//! table.
//!
//! A cell has two numbers, both medians over the rounds: millions of items a second for all threads together, by the
//! wall clock, and nanoseconds of processor time per item. The first is valid only on an idle machine. The second is
//! valid on a busy one too, but doesn't include the time that a thread waits for a lock.

use bloomery::{AtomicBloom, Bloom, Layout, Spec};
use nix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::sync::{Barrier, Mutex, RwLock};
use std::time::Instant;

/// Capacity of a filter. At an error rate of 1%, the filter takes up 12 MiB, more than a core's caches hold.
const CAPACITY: u64 = 10_000_000;

/// Items numbered below this are in a filter from the start. Half of the items in a round are among them.
const FILLED: u64 = CAPACITY / 4;

/// Number of items per thread in a round.
const ITEMS: u64 = 500_000;

const ROUNDS: u64 = 7;

/// In the mixed work, one item in ten is added and the others are tested.
const ADDS_ONE_IN: u64 = 10;

type Item = [u8; 16];

/// A filter that several threads use at the same time.
trait Shared: Sync {
    fn add(&self, item: &Item) -> bool;
    fn test(&self, item: &Item) -> bool;
}

impl Shared for Mutex<Bloom> {
    fn add(&self, item: &Item) -> bool {
        self.lock().expect("no thread panics").insert(item).expect("room for all")
    }
    fn test(&self, item: &Item) -> bool {
        self.lock().expect("no thread panics").contains(item)
    }
}

impl Shared for RwLock<Bloom> {
    fn add(&self, item: &Item) -> bool {
        self.write().expect("no thread panics").insert(item).expect("room for all")
    }
    fn test(&self, item: &Item) -> bool {
        self.read().expect("no thread panics").contains(item)
    }
}

impl Shared for AtomicBloom {
    fn add(&self, item: &Item) -> bool {
        self.insert(item)
    }
    fn test(&self, item: &Item) -> bool {
        self.contains(item)
    }
}

fn spec(shards: u32) -> Spec {
    Spec { shards, layout: Some(Layout::Blocked), ..Spec::fixed(CAPACITY, 0.01) }
}

fn atomic(shards: u32) -> Box<dyn Shared> {
    Box::new(AtomicBloom::new(spec(shards)).expect("memory for the filter"))
}

fn locked() -> Bloom {
    Bloom::new(spec(1)).expect("memory for the filter")
}

/// A way to use filters from several threads: its name, and a function that makes the filters for a number of threads
/// (one for all threads, or one for each).
type Way = (&'static str, fn(usize) -> Vec<Box<dyn Shared>>);

const WAYS: [Way; 5] = [
    ("Mutex<Bloom>", |_| vec![Box::new(Mutex::new(locked()))]),
    ("RwLock<Bloom>", |_| vec![Box::new(RwLock::new(locked()))]),
    ("AtomicBloom", |_| vec![atomic(1)]),
    ("AtomicBloom, 64 shards", |_| vec![atomic(64)]),
    ("a filter for each thread", |threads| (0..threads).map(|_| atomic(1)).collect()),
];

/// A kind of work: its name, and a function that adds or tests an item. The number is the item's position among the
/// thread's items in the round.
type Work = (&'static str, fn(&dyn Shared, u64, &Item) -> bool);

const WORKS: [Work; 3] =
    [
        ("adds", |filter, _, item| filter.add(item)),
        ("tests", |filter, _, item| filter.test(item)),
        ("one add in ten", |filter, number, item| {
            if number.is_multiple_of(ADDS_ONE_IN) { filter.add(item) } else { filter.test(item) }
        }),
    ];

fn item(number: u64) -> Item {
    u128::from(number).to_le_bytes()
}

/// If `number` is even, an item that is in the filter from the start, otherwise one that isn't.
fn one(number: u64) -> Item {
    item(if number.is_multiple_of(2) {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % FILLED
    } else {
        FILLED + number
    })
}

/// Seconds of processor time that this thread has used.
fn used() -> f64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has it");
    time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Measures `work` with this number of threads. Returns millions of items a second, and nanoseconds of processor time
/// per item.
fn measure(filters: &[Box<dyn Shared>], work: Work, threads: usize) -> (f64, f64) {
    for filter in filters {
        (0..FILLED).for_each(|number| _ = filter.add(&item(number)));
    }
    let start = Barrier::new(threads);
    let (mut rates, mut costs) = (vec![0.0; ROUNDS as usize], vec![0.0; ROUNDS as usize]);
    std::thread::scope(|scope| {
        let start = &start;
        let all: Vec<_> = (0..threads)
            .map(|thread| {
                let filter = &*filters[thread % filters.len()];
                scope.spawn(move || {
                    // Round 0 warms up, and isn't counted.
                    let rounds = (0..=ROUNDS).map(|round| {
                        let first = (round * threads as u64 + thread as u64) * ITEMS;
                        let items: Vec<Item> = (first..first + ITEMS).map(one).collect();
                        start.wait();
                        let (began, used_before) = (Instant::now(), used());
                        for (number, item) in items.iter().enumerate() {
                            black_box(work.1(filter, number as u64, item));
                        }
                        let rate = ITEMS as f64 / began.elapsed().as_secs_f64() / 1e6;
                        (rate, (used() - used_before) / ITEMS as f64 * 1e9)
                    });
                    rounds.skip(1).collect::<Vec<_>>()
                })
            })
            .collect();
        for thread in all {
            for (round, (rate, cost)) in thread.join().expect("no thread panics").into_iter().enumerate() {
                rates[round] += rate;
                costs[round] += cost / threads as f64;
            }
        }
    });
    (median(rates), median(costs))
}

/// The numbers of threads to measure: 1, 2, 4 … and the number of cores.
fn counts() -> Vec<usize> {
    let all = std::thread::available_parallelism().map_or(1, Into::into);
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|count| *count < all).collect();
    counts.push(all);
    counts
}

fn main() {
    let counts = counts();
    let columns: Vec<String> = counts.iter().map(|count| format!("threads: {count}")).collect();
    println!("| millions of items a second; ns per item | | {} |", columns.join(" | "));
    println!("| --- | --- |{}", " ---: |".repeat(counts.len()));
    for work in WORKS {
        for (name, make) in WAYS {
            let cells: Vec<String> = counts
                .iter()
                .map(|threads| {
                    let (rate, cost) = measure(&make(*threads), work, *threads);
                    format!("{rate:.1}; {cost:.0}")
                })
                .collect();
            println!("| {} | {name} | {} |", work.0, cells.join(" | "));
        }
    }
}
