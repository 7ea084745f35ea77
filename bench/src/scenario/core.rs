//! The library without a server. `cargo bench` in the folder `bench` measures it in more detail.

use crate::bench::Bench;
use crate::clock::cpu_ns;
use crate::filters::{self, GROUP, fixed};
use crate::items::{BULK_WIDTH, Mix, item};
use crate::measure::{Series, Spread};
use crate::server::{CLIENT_CORE, SERVER_CORE, pin};
use crate::table;
use anyhow::{Result, anyhow};
use bloomery::{Bloom, ItemHash, Layout, Spec};
use fastbloom::AtomicBloomFilter;
use fastrand::Rng;
use xxhash_rust::xxh3::xxh3_64;

type Item = [u8; BULK_WIDTH];

/// Number of tests in a round.
const TESTS: u64 = 2_000_000;

/// Number of items that each thread adds in a round.
const ADDS: u64 = 2_000_000;

/// Number of shards of the filters that threads add to.
const SHARDS: u32 = 64;

pub fn run(bench: &mut Bench) -> Result<()> {
    tests(bench)?;
    threads(bench)
}

/// Tests items one after the other. Returns the number of positive answers.
pub fn test_each(filter: &Bloom, items: &[Item]) -> u64 {
    items.iter().filter(|item| filter.contains(filter.hash(*item))).count() as u64
}

/// Tests items in groups, whose cache misses overlap, as in the server. Returns the number of positive answers.
pub fn test_in_groups(filter: &Bloom, items: &[Item]) -> u64 {
    let mut yes = 0;
    for group in items.chunks(GROUP) {
        let mut hashes = [ItemHash::default(); GROUP];
        for (hash, item) in hashes.iter_mut().zip(group) {
            *hash = filter.hash(item).into();
            filter.prefetch(*hash);
        }
        yes += u64::from(filter.contains_many(&hashes[..group.len()], 0).count());
    }
    yes
}

fn tests(bench: &mut Bench) -> Result<()> {
    let bytes = bench.scale.large / 8;
    let spec = fixed(1, 0.01, Some(Layout::Blocked));
    let capacity = filters::capacity_for(spec, bytes)?;
    let filter = filters::filled::<BULK_WIDTH>(Spec { capacity, ..spec }, capacity)?;
    let classic = fixed(1, 0.01, Some(Layout::Classic));
    let classic = Spec { capacity: filters::capacity_for(classic, bytes)?, ..classic };
    let classic = filters::filled::<BULK_WIDTH>(classic, capacity)?;
    let partitioned = Spec { layout: Some(Layout::Partitioned), ..classic.spec() };
    let partitioned = filters::filled::<BULK_WIDTH>(partitioned, capacity)?;
    // Two filters of the crate `fastbloom`, as large as ours and with the same items: one with the crate's default
    // hash, SipHash, and one with XXH3.
    let new = || AtomicBloomFilter::with_num_bits(bytes as usize * 8);
    let fastbloom = new().expected_items(capacity as usize);
    let fastbloom_xxh3 = new().expected_items(capacity as usize);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // This thread must not run on the core of the thread that starts it.
            let _ = pin(SERVER_CORE);
            (0..capacity).for_each(|number| {
                fastbloom.insert(&item::<BULK_WIDTH>(number)[..]);
            });
        });
        (0..capacity).for_each(|number| {
            fastbloom_xxh3.insert_hash(xxh3_64(&item::<BULK_WIDTH>(number)));
        });
    });
    type Test<'a> = Box<dyn Fn(&[Item]) -> u64 + 'a>;
    let sides: [(&str, Test<'_>); 8] = [
        ("BLOCKED, in groups", Box::new(|items| test_in_groups(&filter, items))),
        ("BLOCKED, one by one", Box::new(|items| test_each(&filter, items))),
        ("CLASSIC, in groups", Box::new(|items| test_in_groups(&classic, items))),
        ("CLASSIC, one by one", Box::new(|items| test_each(&classic, items))),
        (
            "fastbloom, as it comes",
            Box::new(|items| items.iter().filter(|item| fastbloom.contains(&item[..])).count() as u64),
        ),
        (
            "fastbloom, with XXH3",
            Box::new(|items| {
                items.iter().filter(|item| fastbloom_xxh3.contains_hash(xxh3_64(*item))).count() as u64
            }),
        ),
        ("PARTITIONED, in groups", Box::new(|items| test_in_groups(&partitioned, items))),
        ("PARTITIONED, one by one", Box::new(|items| test_each(&partitioned, items))),
    ];
    let mut series = vec![Series(Vec::new()); sides.len()];
    for round in 0..=bench.rounds {
        let numbers = Mix::Half.numbers(TESTS, capacity, &mut Rng::with_seed(round));
        let items: Vec<Item> = numbers.into_iter().map(item).collect();
        for ((_, test), series) in sides.iter().zip(&mut series) {
            let (ns, _) = cpu_ns(|| test(&items))?;
            if round > 0 {
                series.0.push(ns / TESTS as f64);
            }
        }
    }
    let lines: Vec<Vec<String>> = sides
        .iter()
        .zip(&series)
        .map(|((name, _), figures)| {
            vec![
                (*name).to_owned(),
                table::spread(&figures.spread()),
                table::spread(&figures.over(&series[0])),
            ]
        })
        .collect();
    let title = format!("Core: test, half present, {} MiB, filled with {capacity} items", bytes >> 20);
    table::print(&title, &["", "ns per item", "over the first"], &lines);
    bench.report.record("core", series[0].spread());
    bench.report.record("core-fastbloom", series[4].over(&series[0]));
    Ok(())
}

/// Compares two threads that add to one filter at the same time with one thread that adds alone, and with two that have
/// a filter each and share nothing but the machine. What counts is CPU time: whether each thread has a core depends on
/// the machine, but whether threads slow each other down depends on the library.
fn threads(bench: &mut Bench) -> Result<()> {
    let adds = ADDS.min(bench.scale.items);
    let numbers = 2 * adds * (bench.rounds + 1);
    let spec = Spec { shards: SHARDS, ..fixed(2 * numbers, 0.01, Some(Layout::Blocked)) };
    // The filter is already half full with other items, because the first access to a page costs more than all adds to
    // that page.
    let filter = || -> Result<Bloom> {
        let filter = Bloom::new(spec)?;
        filters::fill::<BULK_WIDTH>(&filter, &filter.layers()[0], numbers..2 * numbers);
        Ok(filter)
    };
    let (alone, together, apart) = (filter()?, filter()?, [filter()?, filter()?]);
    let at_once = |mine: &Bloom, theirs: &Bloom, start: u64| {
        std::thread::scope(|scope| -> Result<f64> {
            let other = scope.spawn(|| add_on(theirs, SERVER_CORE, start, adds));
            let mine = add_on(mine, CLIENT_CORE, start + adds, adds)?;
            let other = other.join().map_err(|_| anyhow!("a thread that adds panicked"))??;
            Ok((mine + other) / 2.0)
        })
    };
    let mut series = [const { Series(Vec::new()) }; 3];
    for round in 0..=bench.rounds {
        let start = 2 * adds * round;
        let figures = [
            add_on(&alone, CLIENT_CORE, start, adds)?,
            at_once(&together, &together, start)?,
            at_once(&apart[0], &apart[1], start)?,
        ];
        if round > 0 {
            series.iter_mut().zip(figures).for_each(|(series, figure)| series.0.push(figure));
        }
    }
    let names = ["one thread", "two, one filter", "two, a filter each"];
    let lines = names
        .iter()
        .zip(&series)
        .map(|(name, series)| vec![(*name).to_owned(), table::spread(&series.spread())]);
    let title = format!("Core: adds to filters of {SHARDS} shards");
    table::print(&title, &["", "ns per item, of each thread"], &lines.collect::<Vec<_>>());
    let Spread { median, min, max } = series[0].over(&series[1]);
    bench.report.record("core-threads", Spread { median: 2.0 * median, min: 2.0 * min, max: 2.0 * max });
    Ok(())
}

/// Adds `adds` items on the given core. Returns nanoseconds of CPU time per item.
fn add_on(filter: &Bloom, core: usize, start: u64, adds: u64) -> Result<f64> {
    pin(core)?;
    let items: Vec<Item> = (start..start + adds).map(item).collect();
    let layer = &filter.layers()[0];
    let (ns, _) = cpu_ns(|| {
        for group in items.chunks(GROUP) {
            let mut hashes = [ItemHash::default(); GROUP];
            for (hash, item) in hashes.iter_mut().zip(group) {
                *hash = filter.hash(item).into();
                layer.prefetch(*hash);
            }
            hashes[..group.len()].iter().for_each(|hash| {
                layer.insert(*hash);
            });
        }
    })?;
    Ok(ns / adds as f64)
}
