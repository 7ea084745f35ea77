//! Bulk commands: all items in one argument, all answers in one reply.

use super::commands::{GROUP, mostly_new, numbers, plausible};
use crate::bench::Bench;
use crate::filters::{self, fixed};
use crate::items::{self, BULK_WIDTH, Fresh, Mix};
use crate::measure::{Side, alternate};
use crate::server::SERVER_CORE;
use crate::table;
use anyhow::Result;

const RATE: f64 = 0.01;

/// Number of items in a blob of 64 KiB.
const BLOB: usize = (64 << 10) / BULK_WIDTH;

pub fn run(bench: &mut Bench) -> Result<()> {
    let (capacity, count) = (bench.scale.items, bench.scale.bulk);
    let server = bench.launch.start(Some(SERVER_CORE), &[])?;
    if !server.knows("BF.BULKTEST")? {
        bench.report.unavailable(&["bulktest", "bulkadd"], "not available");
        return Ok(());
    }
    filters::floor(&server)?;
    filters::serve::<BULK_WIDTH>(&server, "filter", fixed(capacity, RATE, None), capacity)?;
    filters::lines(&server, fixed(capacity, RATE, None), 1)?;
    let test = |mix: Mix, blob: usize| {
        let name = format!("BF.BULKTEST, {}, {} KiB", mix.name(), (blob * BULK_WIDTH) >> 10);
        Side::new(name, move |round| {
            items::bulk_commands("BF.BULKTEST", "filter", &numbers(mix, round, count, capacity), blob)
        })
        .expect(plausible(mix))
    };
    let mut sides = vec![
        Side::new("FLOOR.MEXISTS", |round| {
            let numbers = numbers(Mix::Half, round, bench.scale.many, capacity);
            items::commands("FLOOR.MEXISTS", "floor", &numbers, GROUP)
        }),
        Side::new("FLOOR.BULKTEST, 64 KiB", |round| {
            let numbers = numbers(Mix::Half, round, count, capacity);
            items::bulk_commands("FLOOR.BULKTEST", "floor", &numbers, BLOB)
        }),
        test(Mix::Half, BLOB),
        test(Mix::Present, BLOB),
        test(Mix::Absent, BLOB),
        test(Mix::Half, 16 * BLOB),
        Side::new("FLOOR.BULKTOUCH, 64 KiB", |round| {
            let numbers = numbers(Mix::Half, round, count, capacity);
            items::bulk_commands("FLOOR.BULKTOUCH", "lines", &numbers, BLOB)
        }),
    ];
    let series = alternate(&server, bench.rounds, &mut sides)?;
    table::sides("Bulk test", 0, sides.iter().map(|side| side.name.as_str()), &series);
    drop(sides);
    bench.report.record("bulktest", series[2].over(&series[6]));

    filters::serve::<BULK_WIDTH>(&server, "adds", fixed(capacity, RATE, None), capacity / 2)?;
    let mut fresh = Fresh(capacity / 2..capacity);
    let count = fresh.share(count, bench.rounds);
    let (mut same, mut marked) = (fresh.clone(), fresh.clone());
    let mut sides = [
        Side::new("FLOOR.BULKADD, 64 KiB", |_| {
            items::bulk_commands("FLOOR.BULKADD", "floor", &same.take(count), BLOB)
        }),
        Side::new("BF.BULKADD, absent, 64 KiB", |_| {
            items::bulk_commands("BF.BULKADD", "adds", &fresh.take(count), BLOB)
        })
        .expect(mostly_new),
        Side::new("BF.BULKADD, present, 64 KiB", |round| {
            let numbers = numbers(Mix::Present, round, count, capacity / 2);
            items::bulk_commands("BF.BULKADD", "adds", &numbers, BLOB)
        })
        .expect(|_, tally| tally.yes == 0),
        Side::new("FLOOR.BULKMARK, absent, 64 KiB", |_| {
            items::bulk_commands("FLOOR.BULKMARK", "lines", &marked.take(count), BLOB)
        }),
    ];
    let series = alternate(&server, bench.rounds, &mut sides)?;
    table::sides("Bulk add", 0, sides.iter().map(|side| side.name.as_str()), &series);
    bench.report.record("bulkadd", series[1].over(&series[3]));
    Ok(())
}
