//! Static filters: how fast they are built, how large they are, and how fast their tests are. They are compared with a
//! BLOCKED filter that has the same number of items, and with commands that hash each item and access three cache lines
//! in a region of memory as large as the FUSE filter.

use super::commands::{GROUP, numbers, plausible};
use crate::bench::Bench;
use crate::clock::cpu_ns;
use crate::filters::{self, fixed};
use crate::items::{self, Mix, WIDTH, item};
use crate::measure::{Series, Side, Spread, alternate};
use crate::server::SERVER_CORE;
use crate::table;
use anyhow::{Result, ensure};
use bloomery::{Bloom, Layout, Spec, StaticBuilder};

/// The rows about memory, with their layouts and error rates.
const MEMORY: [(&str, Option<Layout>, f64); 5] = [
    ("static-04", Some(Layout::Fuse), 0.004),
    ("static-millionth", Some(Layout::Fuse), 1e-6),
    ("ribbon-078", Some(Layout::Ribbon), 0.0078),
    ("ribbon-01", Some(Layout::Ribbon), 0.001),
    ("ribbon-millionth", Some(Layout::Ribbon), 1e-6),
];

/// The error rate of the filters whose speed is measured.
const RATE: f64 = 0.01;

pub fn run(bench: &mut Bench) -> Result<()> {
    let count = bench.scale.items;
    for (id, layout, rate) in MEMORY {
        let filter = builder(count, layout, rate)?.build()?;
        bench.report.record(id, Spread::exact(filter.bytes() as f64 * 8.0 / count as f64));
    }
    let [fuse, ribbon] = build(bench, count)?;
    test(bench, count, &fuse, &ribbon)
}

/// A builder with the items whose numbers are below `count`.
fn builder(count: u64, layout: Option<Layout>, error_rate: f64) -> Result<StaticBuilder> {
    let mut builder = StaticBuilder::with_spec(fixed(count, error_rate, layout))?;
    (0..count).try_for_each(|number| builder.insert(item::<WIDTH>(number)))?;
    Ok(builder)
}

/// Builds static filters on one thread, and adds the same items to a BLOCKED filter for comparison. Returns a FUSE and
/// a RIBBON filter.
fn build(bench: &mut Bench, count: u64) -> Result<[Bloom; 2]> {
    let names =
        ["collect the hashes", "build, FUSE", "build, RIBBON", "fill a BLOCKED filter, for comparison"];
    let mut series = [const { Series(Vec::new()) }; 4];
    let mut last = None;
    for round in 0..=bench.rounds {
        let (collect, fuse) = cpu_ns(|| builder(count, Some(Layout::Fuse), RATE))?;
        let (fuse, ribbon) = (fuse?, builder(count, Some(Layout::Ribbon), RATE)?);
        let (build_fuse, fuse) = cpu_ns(|| fuse.build())?;
        let (build_ribbon, ribbon) = cpu_ns(|| ribbon.build())?;
        let (blocked, _) =
            cpu_ns(|| filters::filled::<WIDTH>(fixed(count, RATE, Some(Layout::Blocked)), count))?;
        if round > 0 {
            let all = [collect, build_fuse, build_ribbon, blocked];
            series.iter_mut().zip(all).for_each(|(series, ns)| series.0.push(ns / count as f64));
        }
        last = Some([fuse?, ribbon?]);
    }
    let lines = names.iter().zip(&series);
    let lines: Vec<_> =
        lines.map(|(name, ns)| vec![(*name).to_owned(), table::spread(&ns.spread())]).collect();
    table::print(
        &format!("Core: a static filter of {count} items, one thread"),
        &["", "ns per item"],
        &lines,
    );
    bench.report.record("static-build", series[1].spread());
    let filters = last.ok_or_else(|| anyhow::anyhow!("no round"))?;
    ensure!(filters.iter().all(|filter| filter.items() == count), "items are lost");
    Ok(filters)
}

fn test(bench: &mut Bench, capacity: u64, filter: &Bloom, ribbon: &Bloom) -> Result<()> {
    let count = bench.scale.many;
    let server = bench.launch.start(Some(SERVER_CORE), &[])?;
    filters::load(&server, "static", filter)?;
    filters::load(&server, "ribbon", ribbon)?;
    filters::serve::<WIDTH>(&server, "blocked", fixed(capacity, RATE, Some(Layout::Blocked)), capacity)?;
    filters::lines(&server, Spec { capacity, ..filter.spec() }, 3)?;
    let test = |name: &'static str, key: &'static str| {
        Side::new(format!("{name} {key}, half present"), move |round| {
            items::commands(name, key, &numbers(Mix::Half, round, count, capacity), GROUP)
        })
    };
    let mut sides = [
        test("FLOOR.MTOUCH", "lines"),
        test("BF.MEXISTS", "static").expect(plausible(Mix::Half)),
        test("BF.MEXISTS", "ribbon").expect(plausible(Mix::Half)),
        test("BF.MEXISTS", "blocked").expect(plausible(Mix::Half)),
    ];
    let series = alternate(&server, bench.rounds, &mut sides)?;
    let title = "Static filter at 1%, 1000 items per command, compared with three lines per item";
    table::sides(title, 0, sides.iter().map(|side| side.name.as_str()), &series);
    bench.report.record("static-test", series[1].over(&series[0]));
    Ok(())
}
