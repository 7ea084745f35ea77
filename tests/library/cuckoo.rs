//! Cuckoo filters compared with an exact multiset, through eviction, growth, deletes, compaction, copies and the wire
//! format: there are no false negatives, and a count is never below the number of adds.

use bloomery::filter::Origin;
use bloomery::wire::{Decoder, Encoder};
use bloomery::{Cuckoo, CuckooSpec, HashKind, Seed, limits};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

/// Default number of sequences. BLOOMERY_SEQUENCES sets another number, and BLOOMERY_SEED sets the seed of the first
/// sequence.
const SEQUENCES: u64 = 2_000;

const STEPS: u32 = 300;

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

fn spec(random: &mut SmallRng) -> CuckooSpec {
    let bucket_size = *[1, 2, 3, 4, 8].get(random.random_range(0..5)).unwrap();
    CuckooSpec {
        capacity: u64::from(bucket_size) * random.random_range(2..40),
        bucket_size,
        max_iterations: random.random_range(1..30),
        expansion: 1 << random.random_range(0..3),
        hash: if random.random() { HashKind::Xxh3 } else { HashKind::SipHash },
        seed: Seed::from(random.random::<u128>()),
        origin: Origin::Bloomery,
    }
}

#[test]
fn random_operations_against_a_multiset() {
    let first = environment("BLOOMERY_SEED").unwrap_or(0);
    let (mut grown, mut compacted) = (0, 0);
    for seed in first..first + environment("BLOOMERY_SEQUENCES").unwrap_or(SEQUENCES) {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut filter = Cuckoo::new(spec(&mut random)).unwrap();
        let mut truth: BTreeMap<u32, u64> = BTreeMap::new();
        for step in 0..STEPS {
            // First the filter grows, then it shrinks.
            let deletes = if step < STEPS / 2 { 2 } else { 7 };
            let name = random.random_range(0..120u32);
            let item = filter.hash(&name.to_le_bytes());
            match random.random_range(0..10) {
                // Only added items may be deleted.
                choice if choice < deletes => {
                    if let Some(count) = truth.get_mut(&name).filter(|count| **count > 0) {
                        let before = filter.tables().len();
                        assert!(filter.remove(item), "seed {seed}: {name} is gone");
                        *count -= 1;
                        if filter.is_sparse() {
                            filter.compact(false);
                        }
                        compacted += u32::from(filter.tables().len() < before);
                    }
                }
                7 => drop(filter.compact(random.random())),
                8 => filter = filter.snapshot().unwrap(),
                9 => {
                    let bytes = Encoder::new(&filter).to_vec();
                    filter = Decoder::read(&bytes).unwrap().into_cuckoo().unwrap();
                    assert_eq!(Encoder::new(&filter).to_vec(), bytes, "seed {seed}");
                }
                _ => {
                    while filter.try_insert(item).is_err() {
                        filter.grow().unwrap();
                        grown += 1;
                    }
                    *truth.entry(name).or_default() += 1;
                }
            }
            assert_eq!(filter.items(), truth.values().sum::<u64>(), "seed {seed}");
        }
        for (name, count) in &truth {
            let item = filter.hash(&name.to_le_bytes());
            assert!(filter.count(item) >= *count, "seed {seed}: {name} is there fewer than {count} times");
            assert!(filter.contains(item) || *count == 0, "seed {seed}: {name} is missing");
        }
    }
    // The test would show little if nothing had grown or shrunk.
    assert!(grown > 100 && compacted > 100, "{grown} {compacted}");
}

#[test]
fn growth_ends_where_it_may_not_go_on() {
    let spec = CuckooSpec {
        capacity: 4,
        bucket_size: 2,
        max_iterations: 20,
        expansion: 0,
        origin: Origin::Bloomery,
        hash: HashKind::Xxh3,
        seed: Seed::default(),
    };
    let mut filter = Cuckoo::new(spec).unwrap();
    let item = filter.hash(b"item");
    while filter.try_insert(item).is_ok() {}
    let held = filter.items();
    assert!(held >= 2 && filter.grow().is_err() && filter.try_insert(item).is_err());
    assert_eq!((filter.items(), filter.count(item) >= held), (held, true));

    let wide = CuckooSpec { capacity: 1 << 20, expansion: 32_768, ..spec };
    assert_eq!(
        (wide.buckets_of(1), wide.buckets_of(2)),
        (Some(1 << 34), None),
        "beyond every limit of memory"
    );

    // Every filter that can be created can be saved and loaded, however often it has grown.
    let spec = CuckooSpec { expansion: 1, ..spec };
    let mut filter = Cuckoo::new(spec).unwrap();
    while filter.grow().is_ok() {}
    assert_eq!(filter.tables().len(), limits::MAX_TABLES);
    let bytes = Encoder::new(&filter).to_vec();
    assert_eq!(Decoder::read(&bytes).unwrap().into_cuckoo().unwrap().tables().len(), limits::MAX_TABLES);

    for refused in [
        CuckooSpec { capacity: 3, ..spec },
        CuckooSpec { bucket_size: 0, ..spec },
        CuckooSpec { max_iterations: 0, ..spec },
        CuckooSpec { expansion: 3, ..spec },
    ] {
        assert!(Cuckoo::new(refused).is_err(), "{refused:?}");
    }
}
