//! Static filters: how fast they are built, how large they are, and their tests, beside a BLOCKED filter of as many items and
//! beside commands that hash each item and look at three lines of as much memory.

use super::commands::{GROUP, numbers, plausible};
use crate::bench::Bench;
use crate::clock::cpu_ns;
use crate::filters::{self, fixed};
use crate::items::{self, Mix, WIDTH, item};
use crate::measure::{Series, Side, Spread, alternate};
use crate::server::SERVER_CORE;
use crate::table;
use anyhow::{Result, ensure};
use bloomery::{Bloom, LayoutChoice, Spec, StaticBuilder};

/// Their error rates: 8, 20 and 7 bits.
const SMALL: f64 = 0.004;
const SMALLEST: f64 = 1e-6;
const RATE: f64 = 0.01;

pub fn run(bench: &mut Bench) -> Result<()> {
    let count = bench.scale.items;
    for (id, rate) in [("static-04", SMALL), ("static-millionth", SMALLEST)] {
        let filter = builder(count, rate)?.build()?;
        bench.report.record(id, Spread::exact(filter.bytes() as f64 * 8.0 / count as f64));
    }
    let filter = build(bench, count)?;
    test(bench, count, &filter)
}

/// A builder with the items whose numbers are below `count`.
fn builder(count: u64, error_rate: f64) -> Result<StaticBuilder> {
    let mut builder = StaticBuilder::with_spec(fixed(count, error_rate, LayoutChoice::Fuse))?;
    (0..count).try_for_each(|number| builder.insert(item::<WIDTH>(number)))?;
    Ok(builder)
}

/// Builds on one thread, and adds as many items to a BLOCKED filter for comparison.
fn build(bench: &mut Bench, count: u64) -> Result<Bloom> {
    let names = ["collect the hashes", "build", "fill a BLOCKED filter, for comparison"];
    let mut series = [const { Series(Vec::new()) }; 3];
    let mut last = None;
    for round in 0..=bench.rounds {
        let (collect, list) = cpu_ns(|| builder(count, RATE))?;
        let list = list?;
        let (build, filter) = cpu_ns(|| list.build())?;
        let (blocked, _) =
            cpu_ns(|| filters::filled::<WIDTH>(fixed(count, RATE, LayoutChoice::Blocked), count))?;
        if round > 0 {
            let all = [collect, build, blocked];
            series.iter_mut().zip(all).for_each(|(series, ns)| series.0.push(ns / count as f64));
        }
        last = Some(filter?);
    }
    let lines = names.iter().zip(&series);
    let lines: Vec<_> =
        lines.map(|(name, ns)| vec![(*name).to_owned(), table::spread(&ns.spread())]).collect();
    table::print(&format!("Core: a static filter of {count} items, one thread"), &["", "ns an item"], &lines);
    bench.report.record("static-build", series[1].spread());
    let filter = last.ok_or_else(|| anyhow::anyhow!("no round"))?;
    ensure!(filter.items() == count, "items are lost");
    Ok(filter)
}

fn test(bench: &mut Bench, capacity: u64, filter: &Bloom) -> Result<()> {
    let count = bench.scale.many;
    let server = bench.launch.start(Some(SERVER_CORE), &[])?;
    filters::load(&server, "static", filter)?;
    filters::serve::<WIDTH>(&server, "blocked", fixed(capacity, RATE, LayoutChoice::Blocked), capacity)?;
    filters::lines(&server, Spec { capacity, ..filter.spec() }, 3)?;
    let test = |name: &'static str, key: &'static str| {
        Side::new(format!("{name} {key}, half present"), move |round| {
            items::commands(name, key, &numbers(Mix::Half, round, count, capacity), GROUP)
        })
    };
    let mut sides = [
        test("FLOOR.MTOUCH", "lines"),
        test("BF.MTEST", "static").expect(plausible(Mix::Half)),
        test("BF.MTEST", "blocked").expect(plausible(Mix::Half)),
    ];
    let series = alternate(&server, bench.rounds, &mut sides)?;
    let title = "Static filter at 1%, 1000 items a command, beside three lines an item";
    table::sides(title, 0, sides.iter().map(|side| side.name.as_str()), &series);
    bench.report.record("static-test", series[1].over(&series[0]));
    Ok(())
}
