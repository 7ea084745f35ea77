//! Measures the library without a server. Compares filters of several kinds with the crates `fastbloom` and
//! `bloomfilter`, at sizes that fit into a core's cache, into the shared cache, and into neither. These benchmarks are
//! for exploration; the scoreboard's numbers come from `scripts/bench`.
//!
//! Filters are half full. Half of the tested items are present. Adds cycle through other items (about a million at
//! most), which are new only in the first cycle.

use bloomery::filter::Origin;
use bloomery::{Bloom, Cell, Cuckoo, CuckooSpec, HashKind, ItemHash, Layout, Seed, Spec};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;

type Item = [u8; 16];

/// Number of items in one call of a benchmark.
const BATCH: usize = 4096;

/// Number of items in a group. The cache misses of these items overlap.
const GROUP: usize = 16;

const RATE: f64 = 0.01;

/// Capacities. At an error rate of 1%, a filter without counters has a size of about 64 KiB, 12 MiB or 128 MiB.
const CAPACITIES: [u64; 3] = [50_000, 10_000_000, 105_000_000];

fn item(number: u64) -> Item {
    let mut bytes = *b"item____________";
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Batches of items to test, in which present and absent ones alternate.
fn tests(capacity: u64) -> Vec<Vec<Item>> {
    let mut rng = fastrand::Rng::with_seed(capacity);
    let mut one = |at: usize| {
        let number = rng.u64(..capacity / 2);
        item(if at.is_multiple_of(2) { number } else { number + (1 << 40) })
    };
    (0..64).map(|_| (0..BATCH).map(&mut one).collect()).collect()
}

/// Batches of items to add.
fn adds(capacity: u64) -> Vec<Vec<Item>> {
    let batches = (capacity / 2 / BATCH as u64).clamp(1, 256);
    let batch =
        |index: u64| (0..BATCH as u64).map(|at| item(capacity / 2 + index * BATCH as u64 + at)).collect();
    (0..batches).map(batch).collect()
}

/// Bloom filters of several kinds, half full.
fn kinds(capacity: u64) -> Vec<(&'static str, Bloom)> {
    let fixed = |layout| Spec { layout, ..Spec::fixed(capacity, RATE) };
    let specs = [
        ("blocked", fixed(Some(Layout::Blocked))),
        ("classic", fixed(Some(Layout::Classic))),
        ("sharded", Spec { shards: 16, ..fixed(Some(Layout::Blocked)) }),
        ("counting", Spec { cell: Cell::Counter4, ..fixed(None) }),
        ("chain", Spec::scaling((capacity / 64).max(1), RATE)),
        ("window", Spec::window(capacity / 8, RATE, 8)),
    ];
    let half_full = |spec: Spec| {
        let mut filter = Bloom::new(spec).expect("memory for the filter");
        for number in 0..capacity / 2 {
            // A window rotates after every eighth of the items, as if by the clock.
            if let Some(newest) = filter.window().map(bloomery::filter::Window::newest)
                && number / (capacity / 16).max(1) > newest
            {
                filter.advance(newest + 1).expect("memory for a generation");
            }
            filter.add(filter.hash(&item(number))).expect("room for half the capacity");
        }
        filter
    };
    specs.into_iter().map(|(name, spec)| (name, half_full(spec))).collect()
}

/// Adds a benchmark that calls `work` with one batch after another, over and over.
fn cycle(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    capacity: u64,
    batches: &[Vec<Item>],
    mut work: impl FnMut(&[Item]),
) {
    let mut next = batches.iter().cycle();
    group.bench_function(BenchmarkId::new(name, capacity), |bencher| {
        bencher.iter(|| work(next.next().map_or(&[], Vec::as_slice)));
    });
}

fn hashes(filter: &Bloom, items: &[Item]) -> [ItemHash; GROUP] {
    let mut hashes = [ItemHash::default(); GROUP];
    for (hash, item) in hashes.iter_mut().zip(items) {
        *hash = filter.hash(item).into();
        filter.prefetch(*hash);
    }
    hashes
}

fn bloom(group: &mut BenchmarkGroup<'_, WallTime>, capacity: u64, tests: &[Vec<Item>], adds: &[Vec<Item>]) {
    for (kind, mut filter) in kinds(capacity) {
        cycle(group, &format!("{kind}/test"), capacity, tests, |items| {
            for item in items {
                black_box(filter.contains(filter.hash(item)));
            }
        });
        cycle(group, &format!("{kind}/test in groups"), capacity, tests, |items| {
            for items in items.chunks(GROUP) {
                for hash in &hashes(&filter, items)[..items.len()] {
                    black_box(filter.contains(*hash));
                }
            }
        });
        cycle(group, &format!("{kind}/add"), capacity, adds, |items| {
            for item in items {
                let _ = black_box(filter.add(filter.hash(item)));
            }
        });
        cycle(group, &format!("{kind}/add in groups"), capacity, adds, |items| {
            for items in items.chunks(GROUP) {
                for hash in &hashes(&filter, items)[..items.len()] {
                    let _ = black_box(filter.add(*hash));
                }
            }
        });
    }
}

fn cuckoo(group: &mut BenchmarkGroup<'_, WallTime>, capacity: u64, tests: &[Vec<Item>], adds: &[Vec<Item>]) {
    // The defaults of the server's configuration, except that filters don't grow.
    let spec = CuckooSpec {
        capacity,
        bucket_size: 2,
        max_iterations: 20,
        expansion: 0,
        origin: Origin::Bloomery,
        hash: HashKind::Xxh3,
        seed: Seed::default(),
    };
    let mut filter = Cuckoo::new(spec).expect("memory for the filter");
    for number in 0..capacity / 2 {
        let _ = filter.insert(filter.hash(&item(number)));
    }
    cycle(group, "cuckoo/test", capacity, tests, |items| {
        for item in items {
            black_box(filter.contains(filter.hash(item)));
        }
    });
    // Every added item is deleted again, because a cuckoo filter is a multiset: repeated adds would fill it.
    cycle(group, "cuckoo/add and delete", capacity, adds, |items| {
        for item in items {
            let _ = black_box(filter.insert(filter.hash(item)));
        }
        for item in items {
            black_box(filter.remove(filter.hash(item)));
        }
    });
}

fn others(group: &mut BenchmarkGroup<'_, WallTime>, capacity: u64, tests: &[Vec<Item>], adds: &[Vec<Item>]) {
    let fastbloom = fastbloom::AtomicBloomFilter::with_false_pos(RATE).expected_items(capacity as usize);
    let mut bloomfilter =
        bloomfilter::Bloom::<[u8]>::new_for_fp_rate(capacity as usize, RATE).expect("memory for the filter");
    for number in 0..capacity / 2 {
        fastbloom.insert(&item(number)[..]);
        bloomfilter.set(&item(number)[..]);
    }
    cycle(group, "crate fastbloom/test", capacity, tests, |items| {
        for item in items {
            black_box(fastbloom.contains(&item[..]));
        }
    });
    cycle(group, "crate fastbloom/add", capacity, adds, |items| {
        for item in items {
            black_box(fastbloom.insert(&item[..]));
        }
    });
    cycle(group, "crate bloomfilter/test", capacity, tests, |items| {
        for item in items {
            black_box(bloomfilter.check(&item[..]));
        }
    });
    cycle(group, "crate bloomfilter/add", capacity, adds, |items| {
        for item in items {
            bloomfilter.set(&item[..]);
        }
    });
}

fn core(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("core");
    group.throughput(Throughput::Elements(BATCH as u64));
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1)).sample_size(20);
    for capacity in CAPACITIES {
        let (tests, adds) = (tests(capacity), adds(capacity));
        bloom(&mut group, capacity, &tests, &adds);
        cuckoo(&mut group, capacity, &tests, &adds);
        others(&mut group, capacity, &tests, &adds);
    }
    group.finish();
}

criterion_group!(benches, core);
criterion_main!(benches);
