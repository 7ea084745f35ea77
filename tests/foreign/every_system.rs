//! Filters of every system: no added item is ever missing, and a full filter that can't grow refuses new items.

use super::redisbloom::{FIXED, Link, NARROW, ROUNDED, TODAY, add, chain, load, save, unsigned};
use super::redisbloom_cuckoo::{cuckoo_fields, holds, insert, load_cuckoo, save_cuckoo};
use super::valkey_bloom::{FIXED_SEED, load_valkey, save_valkey, valkey_fields};
use crate::support::rdb::{Field, Fields, hex};
use bloomery::filter::Foreign;
use bloomery::filter::foreign::Scheme;
use bloomery::parallel::alone;
use bloomery::wire::{Decoder, Encoder, import};
use bloomery::{Added, Error, Filter};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashSet;

/// One small filter of each kind.
fn kinds() -> Vec<(&'static str, Foreign)> {
    let link = || Link::empty(10, 0.05, 5, 128);
    let rounded = |n2| Link::empty(10, 0.05, 5, 0).rounded(n2);
    let seed: Vec<u8> = (0..32).collect();
    vec![
        ("today's", load(4, chain(4, TODAY, 2, &[link()]))),
        ("today's by 1", load(4, chain(4, TODAY, 1, &[link()]))),
        ("today's by 7", load(4, chain(4, TODAY, 7, &[link()]))),
        ("a growth that was lost", load(4, chain(4, TODAY, 0, &[link()]))),
        ("rounded", load(3, chain(3, ROUNDED, 0, &[rounded(7)]))),
        ("rounded, saved later", load(4, chain(4, ROUNDED, 3, &[rounded(8)]))),
        ("narrow", load(1, chain(1, NARROW, 0, &[rounded(7)]))),
        ("narrow, of either sum", load(3, chain(3, NARROW, 0, &[link()]))),
        ("narrow, of no version", load(4, chain(4, 1, 2, &[link()]))),
        ("valkey", load_valkey(valkey_fields(2, 0.05, 0.5, &seed, 10, 4, 64))),
        ("valkey by 1", load_valkey(valkey_fields(1, 0.05, 0.9, &seed, 10, 4, 64))),
        ("go-zero", import::bitmap::go_zero(4001, 14, &[], &alone).unwrap()),
        ("redisson", import::bitmap::redisson(4001, 5, Default::default(), &[], &alone).unwrap()),
        (
            "guava",
            import::guava(&[&hex("010500000040")[..], &[0; 512]].concat(), Default::default(), &alone)
                .unwrap(),
        ),
        (
            "guava 32",
            import::guava(&[&hex("000500000040")[..], &[0; 512]].concat(), Default::default(), &alone)
                .unwrap(),
        ),
        ("parquet", import::sbbf(&[0; 40 * 32], Default::default(), &alone).unwrap()),
        (
            "bits-and-blooms",
            import::bloom_v3(&hex(&format!("{:016x}{:016x}{:016x}{:0128}", 500, 5, 500, 0)), &alone).unwrap(),
        ),
    ]
}

/// Saves the filter as a server does, and loads it.
fn restarted(filter: &Foreign) -> Foreign {
    match filter.scheme() {
        Scheme::RedisBloom(_) => load(4, save(filter)),
        Scheme::ValkeyBloom { .. } => load_valkey(save_valkey(filter)),
        _ => Decoder::read(&Encoder::new(filter).to_vec()).unwrap().into_foreign().unwrap(),
    }
}

/// Random items, through growth, restarts and copies: added items are found, and what an add reports is correct.
#[test]
fn nothing_that_went_in_is_missing() {
    for (name, filter) in kinds() {
        for seed in 0..20 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut filter = filter.snapshot().unwrap();
            let mut members: HashSet<Vec<u8>> = HashSet::new();
            let mut added = 0;
            for step in 0..800 {
                let mut item = vec![0; random.random_range(0..40)];
                random.fill(&mut item[..]);
                item.truncate(if random.random_bool(0.3) { 1 } else { 40 });
                let before = filter.contains(&item);
                assert!(before || !members.contains(&item), "{name} {seed}: lost");
                assert_eq!(add(&mut filter, &item), !before, "{name}");
                added += u64::from(!before);
                members.insert(item);
                match step % 200 {
                    60 => filter = restarted(&filter),
                    120 => filter = filter.snapshot().unwrap(),
                    180 => {
                        let bytes = Encoder::native(&filter).to_vec();
                        filter = Decoder::read(&bytes).unwrap().into_foreign().unwrap();
                    }
                    _ => {}
                }
            }
            assert!(members.iter().all(|item| filter.contains(item)), "{name} {seed}");
            assert_eq!(filter.items(), added, "{name}");
            if filter.next_link() != Ok(None) {
                assert!(filter.links().len() > 2, "{name} did not grow");
                assert!(filter.rate_now() < 0.5, "{name}: {}", filter.rate_now());
            }
        }
    }
}

/// Random inserts and deletes in cuckoo filters with RedisBloom's old and new rules, through growth, restarts and
/// compaction: items are found until they are deleted.
#[test]
fn nothing_that_went_into_a_cuckoo_filter_is_missing() {
    let old = Fields::from([unsigned(1), unsigned(16), unsigned(0), Field::String(vec![0; 32])]);
    for filter in [
        load_cuckoo(4, cuckoo_fields(16, 2, 20, 1)),
        load_cuckoo(4, cuckoo_fields(1, 3, 5, 2)),
        load_cuckoo(4, cuckoo_fields(8, 255, 1, 4)),
        load_cuckoo(3, old),
    ] {
        for seed in 0..20 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut filter = filter.snapshot().unwrap();
            let mut members: Vec<u16> = Vec::new();
            for step in 0..1200 {
                if random.random_bool(0.6) {
                    let item = random.random_range(0..600);
                    insert(&mut filter, &u16::to_le_bytes(item));
                    members.push(item);
                } else if !members.is_empty() {
                    let item = members.swap_remove(random.random_range(0..members.len()));
                    assert!(filter.remove(filter.hash(&item.to_le_bytes())));
                }
                match step % 300 {
                    100 => filter = load_cuckoo(4, save_cuckoo(&filter)),
                    200 => drop(filter.compact(true)),
                    _ => {}
                }
            }
            assert!(members.iter().all(|item| holds(&filter, &item.to_le_bytes())));
            assert_eq!(filter.items(), members.len() as u64);
            assert!(filter.tables().len() > 1 || filter.spec().bucket_size == 255);
        }
    }
}

/// A full filter that can't grow refuses new items, and changes nothing.
#[test]
fn a_full_filter_of_fixed_capacity_refuses() {
    let seed = hex(FIXED_SEED);
    for mut filter in [
        load(4, chain(4, TODAY | FIXED, 2, &[Link::empty(50, 0.01, 7, 512)])),
        load_valkey(valkey_fields(0, 0.01, 0.5, &seed, 50, 7, 480)),
    ] {
        let mut i = 0u32;
        while filter.items() < 50 {
            add(&mut filter, &i.to_le_bytes());
            i += 1;
        }
        let before = Encoder::native(&filter).to_vec();
        let stranger = (i..).map(u32::to_le_bytes).find(|item| !filter.contains(item)).unwrap();
        assert_eq!(filter.try_add(&stranger), Err(Error::Full));
        assert_eq!(filter.grow(), Ok(false));
        assert_eq!(filter.try_add(&0u32.to_le_bytes()), Ok(Added::default()), "it is there");
        assert!(Encoder::native(&filter).to_vec() == before);
        assert!(matches!(Decoder::read(&before), Ok(Filter::Foreign(_))));
    }
}
