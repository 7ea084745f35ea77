//! LAYOUT QUOTIENT, compared with commands that hash each item and access two cache lines in a region of memory as
//! large as the counting filter.

use super::commands::{GROUP, mostly_new, numbers, plausible};
use crate::bench::Bench;
use crate::filters::{self, fixed};
use crate::items::{self, Fresh, Mix, WIDTH};
use crate::measure::{Side, alternate};
use crate::server::SERVER_CORE;
use crate::table;
use anyhow::Result;
use bloomery::{Cell, Family, Layout, Overflow, Spec};

/// Keys of windows, and their numbers of generations.
const WINDOWS: [(&str, u16); 2] = [("window 8", 8), ("window 60", 60)];

pub fn run(bench: &mut Bench) -> Result<()> {
    let (capacity, count) = (bench.scale.items, bench.scale.many);
    let half = capacity / 2;
    let server = bench.launch.start(Some(SERVER_CORE), &[])?;
    let plain = fixed(capacity, 0.01, Some(Layout::Quotient));
    let counting = Spec { cell: Cell::Counter4, ..plain };
    filters::serve::<WIDTH>(&server, "plain", plain, half)?;
    filters::serve::<WIDTH>(&server, "counting", counting, half)?;
    for (key, generations) in WINDOWS {
        let family = Family::Window { generations, overflow: Overflow::Forget, every_ms: 0 };
        let window = Spec { family, capacity: capacity / u64::from(generations), ..plain };
        filters::load(&server, key, &filters::filled_in_turn::<WIDTH>(window, half, half)?)?;
    }
    filters::lines(&server, counting, 2)?;

    let test = |name: &'static str, key: &'static str| {
        Side::new(format!("{name} {key}, half present"), move |round| {
            items::commands(name, key, &numbers(Mix::Half, round, count, half), GROUP)
        })
    };
    let mut sides = [
        test("FLOOR.MTOUCH", "lines"),
        test("BF.MEXISTS", "plain").expect(plausible(Mix::Half)),
        test("BF.MEXISTS", "counting").expect(plausible(Mix::Half)),
        test("BF.MEXISTS", WINDOWS[0].0).expect(plausible(Mix::Half)),
        test("BF.MEXISTS", WINDOWS[1].0).expect(plausible(Mix::Half)),
    ];
    let series = alternate(&server, bench.rounds, &mut sides)?;
    let title = "QUOTIENT at 1%, half full, 1000 items per command, compared with two lines per item";
    table::sides(title, 0, sides.iter().map(|side| side.name.as_str()), &series);
    bench.report.record("quotient-test", series[1].over(&series[0]));
    bench.report.record("quotient-counting-test", series[2].over(&series[0]));
    bench.report.record("quotient-window-8", series[3].over(&series[0]));
    bench.report.record("quotient-window-60", series[4].over(&series[0]));

    // Each round deletes as many items from the counting filter as it adds, so this filter stays half full. The plain
    // filter gets fuller in each round.
    let fresh = Fresh(half..capacity);
    let count = fresh.share(count, bench.rounds);
    let change = |name: &'static str, key: &'static str, mut numbers: Fresh| {
        Side::new(format!("{name} {key}"), move |_| items::commands(name, key, &numbers.take(count), GROUP))
    };
    let mut sides = [
        change("FLOOR.MMARK", "lines", fresh.clone()),
        change("BF.MADD", "plain", fresh.clone()).expect(mostly_new),
        change("BF.MADD", "counting", fresh.clone()).expect(mostly_new),
        change("BF.MDEL", "counting", Fresh(0..half)).expect(|batch, tally| tally.yes == batch.items),
    ];
    let series = alternate(&server, bench.rounds, &mut sides)?;
    table::sides(
        "QUOTIENT at 1%, adds and deletes, 1000 items per command",
        0,
        sides.iter().map(|side| side.name.as_str()),
        &series,
    );
    bench.report.record("quotient-add", series[1].over(&series[0]));
    bench.report.record("quotient-counting-add", series[2].over(&series[0]));
    bench.report.record("quotient-counting-del", series[3].over(&series[0]));
    Ok(())
}
