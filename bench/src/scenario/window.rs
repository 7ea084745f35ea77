//! Windows: a test asks every generation.

use super::commands::{GROUP, numbers, plausible};
use crate::filters;
use crate::items::{self, Mix, WIDTH};
use crate::measure::{Side, alternate};
use crate::server::SERVER_CORE;
use crate::{Bench, table};
use anyhow::Result;
use bloomery::{Filter, Spec};

const GENERATIONS: u8 = 8;

pub fn run(bench: &mut Bench) -> Result<()> {
    let (items, count) = (bench.scale.items, bench.scale.many);
    let each = items / u64::from(GENERATIONS);
    let server = bench.launch.start(Some(SERVER_CORE), &[])?;
    filters::floor(&server)?;
    filters::load(&server, "filter", &full(each)?)?;
    let test = |mix: Mix| {
        Side::new(format!("BF.MTEST, {}", mix.name()), move |round| {
            items::commands("BF.MTEST", "filter", &numbers(mix, round, count, items), GROUP)
        })
        .expect(plausible(mix))
    };
    let mut sides = vec![Side::new("FLOOR.MEXISTS", |round| {
        items::commands("FLOOR.MEXISTS", "floor", &numbers(Mix::Half, round, count, items), GROUP)
    })];
    sides.extend(Mix::ALL.map(test));
    let series = alternate(&server, bench.rounds, &mut sides)?;
    let title =
        format!("Window of {GENERATIONS} generations of {each} items, all full, 1000 items a command");
    table::sides(&title, 0, sides.iter().map(|side| side.name.as_str()), &series);
    bench.report.record("window", series[1].over(&series[0]));
    Ok(())
}

/// A window whose generations are all full.
pub fn full(each: u64) -> Result<Filter> {
    let mut filter = Filter::new(Spec::window(each, 0.01, GENERATIONS))?;
    for generation in 0..u64::from(GENERATIONS) {
        filter.advance(generation)?;
        let layer = filter.window().map(|window| window.current().clone());
        if let Some(layer) = layer {
            filters::fill::<WIDTH>(&filter, &layer, generation * each..(generation + 1) * each);
        }
    }
    Ok(filter)
}
