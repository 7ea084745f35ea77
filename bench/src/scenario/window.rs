//! Tests of windows. Each test looks at every generation.

use super::commands::{GROUP, numbers, plausible};
use crate::bench::Bench;
use crate::filters;
use crate::items::{self, Mix, WIDTH};
use crate::measure::{Side, alternate};
use crate::server::SERVER_CORE;
use crate::table;
use anyhow::Result;
use bloomery::{Bloom, Spec};

const GENERATIONS: u16 = 8;

pub fn run(bench: &mut Bench) -> Result<()> {
    let (items, count) = (bench.scale.items, bench.scale.many);
    let each = items / u64::from(GENERATIONS);
    let server = bench.launch.start(Some(SERVER_CORE), &[])?;
    filters::floor(&server)?;
    filters::load(&server, "filter", &full(each)?)?;
    filters::lines(&server, Spec::window(each, 0.01, GENERATIONS), GENERATIONS)?;
    let test = |mix: Mix| {
        Side::new(format!("BF.MEXISTS, {}", mix.name()), move |round| {
            items::commands("BF.MEXISTS", "filter", &numbers(mix, round, count, items), GROUP)
        })
        .expect(plausible(mix))
    };
    let floor = |name: &'static str, key: &'static str| {
        Side::new(name, move |round| {
            items::commands(name, key, &numbers(Mix::Half, round, count, items), GROUP)
        })
    };
    let mut sides = vec![floor("FLOOR.MEXISTS", "floor"), floor("FLOOR.MTOUCH", "lines")];
    sides.extend(Mix::ALL.map(test));
    let series = alternate(&server, bench.rounds, &mut sides)?;
    let title =
        format!("Window of {GENERATIONS} generations of {each} items, all full, 1000 items per command");
    table::sides(&title, 0, sides.iter().map(|side| side.name.as_str()), &series);
    bench.report.record("window", series[2].over(&series[0]));
    Ok(())
}

/// A window whose generations are all full, with `each` items per generation.
pub fn full(each: u64) -> Result<Bloom> {
    let mut filter = Bloom::new(Spec::window(each, 0.01, GENERATIONS))?;
    for generation in 0..u64::from(GENERATIONS) {
        filter.advance(generation)?;
        let layer = filter.window().map(|window| window.current());
        if let Some(layer) = layer {
            filters::fill::<WIDTH>(&filter, layer, generation * each..(generation + 1) * each);
        }
    }
    Ok(filter)
}
