//! Counting filters: add and delete. Each round deletes as many items as it adds, so the filter stays half full.

use super::commands::{GROUP, mostly_new};
use crate::bench::Bench;
use crate::filters::{self, fixed};
use crate::items::{self, Fresh, WIDTH};
use crate::measure::{Side, alternate};
use crate::server::SERVER_CORE;
use crate::table;
use anyhow::Result;
use bloomery::{Cell, Spec};

pub fn run(bench: &mut Bench) -> Result<()> {
    let (capacity, count) = (bench.scale.items, bench.scale.many);
    let server = bench.launch.start(Some(SERVER_CORE), &[])?;
    filters::floor(&server)?;
    let spec = Spec { cell: Cell::Counter4, ..fixed(capacity, 0.01, None) };
    filters::serve::<WIDTH>(&server, "filter", spec, capacity / 2)?;
    filters::lines(&server, spec, 1)?;
    let mut floor = Fresh(capacity / 2..capacity);
    let count = floor.share(count, bench.rounds);
    let mut marked = floor.clone();
    let (mut adds, mut deletes) = (floor.clone(), Fresh(0..capacity / 2));
    let mut sides = [
        Side::new("FLOOR.MADD", |_| items::commands("FLOOR.MADD", "floor", &floor.take(count), GROUP)),
        Side::new("BF.MADD, absent", |_| items::commands("BF.MADD", "filter", &adds.take(count), GROUP))
            .expect(mostly_new),
        Side::new("BF.MDEL, present", |_| items::commands("BF.MDEL", "filter", &deletes.take(count), GROUP))
            .expect(|batch, tally| tally.yes == batch.items),
        Side::new("FLOOR.MMARK", |_| items::commands("FLOOR.MMARK", "lines", &marked.take(count), GROUP)),
    ];
    let series = alternate(&server, bench.rounds, &mut sides)?;
    let title = "Counting filter of 4 bits, 1000 items per command";
    table::sides(title, 0, sides.iter().map(|side| side.name.as_str()), &series);
    bench.report.record("counting-add", series[1].over(&series[0]));
    bench.report.record("counting-del", series[2].over(&series[0]));
    Ok(())
}
