//! Commands where each item is an argument, compared with the floor's.

use crate::bench::Bench;
use crate::filters::{self, fixed};
use crate::items::{self, Fresh, Mix, WIDTH};
use crate::measure::{Series, Side, alternate};
use crate::server::{SERVER_CORE, Server};
use crate::table;
use crate::wire::{Batch, Tally};
use anyhow::{Result, anyhow};
use fastrand::Rng;

/// Error rate of the filters.
const RATE: f64 = 0.01;

/// Number of items in a command that accepts several.
pub const GROUP: usize = 1000;

/// Number of items in a filter that fits into the processor's caches. Such a filter shows what a command costs without
/// cache misses.
const SMALL: u64 = 20_000;

/// Maximum number of items that a large filter is filled with before it is tested. This is enough to touch every page
/// of a 1 GiB filter, and the cache misses of a test don't depend on how full the filter is.
const LARGE_FILL: u64 = 100_000_000;

/// A check that the answers are possible for a filter of our error rate: every member tests positive, and few other
/// items do.
pub fn plausible(mix: Mix) -> impl Fn(&Batch, &Tally) -> bool {
    move |batch, tally| {
        let share = tally.yes as f64 / batch.items as f64;
        match mix {
            Mix::Present => tally.yes == batch.items,
            Mix::Absent => share < 5.0 * RATE,
            Mix::Half => (0.4..0.6).contains(&share),
        }
    }
}

/// Whether more than 90% of the items were new.
pub fn mostly_new(batch: &Batch, tally: &Tally) -> bool {
    tally.yes as f64 > 0.9 * batch.items as f64
}

/// Numbers to test in a round. Every side tests the same ones.
pub fn numbers(mix: Mix, round: u64, count: u64, added: u64) -> Vec<u64> {
    mix.numbers(count, added, &mut Rng::with_seed(round))
}

/// A side that sends the command `name` with items from the mix to `key`.
fn test_side(
    name: &'static str,
    key: &'static str,
    mix: Mix,
    count: u64,
    added: u64,
    group: usize,
) -> Side<'static> {
    Side::new(format!("{name}, {}", mix.name()), move |round| {
        items::commands(name, key, &numbers(mix, round, count, added), group)
    })
}

/// A side that tests items in the key `filter`, and checks the answers.
fn filter_side(name: &'static str, mix: Mix, count: u64, added: u64, group: usize) -> Side<'static> {
    test_side(name, "filter", mix, count, added, group).expect(plausible(mix))
}

/// Runs the floor and the sides, prints what they cost, and returns the series of the sides.
fn against_floor<'a>(
    bench: &Bench,
    server: &Server,
    title: &str,
    floor: Side<'a>,
    sides: Vec<Side<'a>>,
) -> Result<Vec<Series>> {
    let mut all = vec![floor];
    all.extend(sides);
    let mut series = alternate(server, bench.rounds, &mut all)?;
    table::sides(title, 0, all.iter().map(|side| side.name.as_str()), &series);
    Ok(series.split_off(1))
}

/// Measures commands with one item.
pub fn single(bench: &mut Bench) -> Result<()> {
    let (capacity, count) = (bench.scale.items, bench.scale.singles);
    let server = bench.launch.start(Some(SERVER_CORE), &[])?;
    filters::floor(&server)?;
    filters::serve::<WIDTH>(&server, "filter", fixed(capacity, RATE, None), capacity)?;
    filters::lines(&server, fixed(capacity, RATE, None), 1)?;
    filters::serve::<WIDTH>(&server, "small", fixed(SMALL, RATE, None), SMALL)?;
    let mut tests: Vec<Side<'_>> = Mix::ALL
        .into_iter()
        .flat_map(|mix| ["BF.EXISTS", "BF.TEST"].map(|name| filter_side(name, mix, count, capacity, 1)))
        .collect();
    tests.push(Side::new(format!("BF.EXISTS, half present, of {SMALL} items"), |round| {
        items::commands("BF.EXISTS", "small", &numbers(Mix::Half, round, count, SMALL), 1)
    }));
    tests.push(test_side("FLOOR.TOUCH", "lines", Mix::Half, count, capacity, 1));
    let floor = test_side("FLOOR.EXISTS", "floor", Mix::Half, count, capacity, 1);
    let series = against_floor(bench, &server, "Test, one item per command", floor, tests)?;
    let least = &series[series.len() - 1];
    bench.report.record("exists", series[0].over(least));
    bench.report.record("test", series[1].over(least));

    let names = ["FLOOR.ADD", "FLOOR.MARK", "BF.ADD"];
    let [least, added] = adds(bench, &server, "Add, one item per command", names, count, 1)?;
    bench.report.record("add", added.over(&least));
    Ok(())
}

/// Measures commands with 1000 items.
pub fn many(bench: &mut Bench) -> Result<()> {
    let (capacity, count) = (bench.scale.items, bench.scale.many);
    let server = bench.launch.start(Some(SERVER_CORE), &[])?;
    filters::floor(&server)?;
    filters::serve::<WIDTH>(&server, "filter", fixed(capacity, RATE, None), capacity)?;
    filters::lines(&server, fixed(capacity, RATE, None), 1)?;
    let [least, tested] = tests_of_many(bench, &server, "Test, 1000 items per command", count, capacity)?;
    bench.report.record("mexists", tested.over(&least));

    let (title, names) = ("Add, 1000 items per command", ["FLOOR.MADD", "FLOOR.MMARK", "BF.MADD"]);
    let [least, added] = adds(bench, &server, title, names, count, GROUP)?;
    bench.report.record("madd", added.over(&least));
    Ok(())
}

/// Measures tests with 1000 items per command, on a filter far larger than the caches.
pub fn large(bench: &mut Bench) -> Result<()> {
    let spec = fixed(1, RATE, None);
    let capacity = filters::capacity_for(spec, bench.scale.large)?;
    let items = capacity.min(LARGE_FILL);
    let server = bench.launch.start(Some(SERVER_CORE), &[])?;
    filters::floor(&server)?;
    filters::serve::<WIDTH>(&server, "filter", fixed(capacity, RATE, None), items)?;
    let title = format!(
        "Test, 1000 items per command, filter of {} MiB for {} M items that holds {} M",
        bench.scale.large >> 20,
        capacity / 1_000_000,
        items / 1_000_000
    );
    filters::lines(&server, fixed(capacity, RATE, None), 1)?;
    let [least, tested] = tests_of_many(bench, &server, &title, bench.scale.many, items)?;
    bench.report.record("mexists-large", tested.over(&least));
    Ok(())
}

/// Measures tests with 1000 items per command. Returns the series for the least that a filter can do, and the series
/// for the filter. In both, half of the items are present.
fn tests_of_many(bench: &Bench, server: &Server, title: &str, count: u64, added: u64) -> Result<[Series; 2]> {
    let floor = test_side("FLOOR.MEXISTS", "floor", Mix::Half, count, added, GROUP);
    let mut tests = vec![test_side("FLOOR.MTOUCH", "lines", Mix::Half, count, added, GROUP)];
    tests.extend(Mix::ALL.map(|mix| filter_side("BF.MEXISTS", mix, count, added, GROUP)));
    first_two(against_floor(bench, server, title, floor, tests)?)
}

/// Measures adds to a filter that is half full. `names` are the commands for the floor, for the least that a filter can
/// do, and for the filter. Returns the series of the last two, for new items.
fn adds(
    bench: &Bench,
    server: &Server,
    title: &str,
    names: [&'static str; 3],
    count: u64,
    group: usize,
) -> Result<[Series; 2]> {
    let [floor, mark, add] = names;
    let capacity = bench.scale.items;
    filters::serve::<WIDTH>(server, "adds", fixed(capacity, RATE, None), capacity / 2)?;
    let mut fresh = Fresh(capacity / 2..capacity);
    let count = fresh.share(count, bench.rounds);
    let (mut same, mut marked) = (fresh.clone(), fresh.clone());
    let commands = move |name, key, numbers: Vec<u64>| items::commands(name, key, &numbers, group);
    let floor = Side::new(format!("{floor}, absent"), move |_| commands(floor, "floor", same.take(count)));
    let new = Side::new(format!("{add}, absent"), move |_| commands(add, "adds", fresh.take(count)));
    let old = Side::new(format!("{add}, present"), move |round| {
        commands(add, "adds", numbers(Mix::Present, round, count, capacity / 2))
    });
    let least = Side::new(format!("{mark}, absent"), move |_| commands(mark, "lines", marked.take(count)));
    let sides = vec![least, new.expect(mostly_new), old.expect(|_, tally| tally.yes == 0)];
    first_two(against_floor(bench, server, title, floor, sides)?)
}

fn first_two(mut series: Vec<Series>) -> Result<[Series; 2]> {
    series.truncate(2);
    series.try_into().map_err(|_| anyhow!("fewer than two sides"))
}
