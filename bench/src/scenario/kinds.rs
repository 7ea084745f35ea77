//! Plots the cost of tests and adds for filters of several kinds and layouts.

use super::commands::{GROUP, numbers};
use super::window;
use crate::bench::Bench;
use crate::filters::{self, fixed};
use crate::items::{self, Fresh, Mix, WIDTH};
use crate::measure::{Side, Spread, alternate};
use crate::plots::{self, Corner, Group, Labels};
use crate::server::{SERVER_CORE, Server};
use crate::table;
use anyhow::Result;
use bloomery::{Cell, Layout, Spec};

pub fn run(bench: &mut Bench) -> Result<()> {
    let (items, many) = (bench.scale.items, bench.scale.many / 2);
    let blocked = fixed(2 * items, 0.01, Some(Layout::Blocked));
    let classic = fixed(2 * items, 0.01, Some(Layout::Classic));
    let fill = |spec: Spec| move |server: &Server| filters::serve::<WIDTH>(server, "filter", spec, items);
    type Make<'a> = Box<dyn Fn(&Server) -> Result<()> + 'a>;
    let kinds: [(&str, Make<'_>); 6] = [
        ("BLOCKED", Box::new(fill(blocked))),
        ("CLASSIC", Box::new(fill(classic))),
        ("SHARDS 16", Box::new(fill(Spec { shards: 16, ..blocked }))),
        ("COUNTING", Box::new(fill(Spec { cell: Cell::Counter4, ..fixed(2 * items, 0.01, None) }))),
        ("grown from 100", Box::new(|server| grown(server, items))),
        ("WINDOW 8", Box::new(|server| filters::load(server, "filter", &window::full(items / 8)?))),
    ];
    let mut groups = Vec::new();
    for (name, make) in kinds {
        let server = bench.launch.start(Some(SERVER_CORE), &[])?;
        filters::floor(&server)?;
        make(&server)?;
        let mut fresh = Fresh(items..2 * items);
        let tests = |command: &'static str, key: &'static str, mix: Mix| {
            Side::new(mix.name(), move |round| {
                items::commands(command, key, &numbers(mix, round, many, items), GROUP)
            })
        };
        let mut sides = [
            tests("FLOOR.MEXISTS", "floor", Mix::Half),
            tests("BF.MEXISTS", "filter", Mix::Present),
            tests("BF.MEXISTS", "filter", Mix::Absent),
            Side::new("add", move |_| items::commands("BF.MADD", "filter", &fresh.take(many), GROUP)),
        ];
        let bars: Vec<Spread> = alternate(&server, bench.rounds.min(3), &mut sides)?
            .iter()
            .map(|series| series.spread())
            .collect();
        groups.push(Group { name: name.to_owned(), bars });
    }
    let names = ["floor", "MEXISTS, present", "MEXISTS, absent", "MADD, absent"];
    let rows: Vec<Vec<String>> = groups
        .iter()
        .map(|group| {
            std::iter::once(group.name.clone()).chain(group.bars.iter().map(table::spread)).collect()
        })
        .collect();
    let title = format!("Kinds and layouts, {items} items, 1%, 1000 items per command");
    let header: Vec<&str> = std::iter::once("").chain(names).collect();
    table::print(&title, &header, &rows);
    let labels = Labels { title: &title, x: "", y: "server CPU time, ns per item", legend: Corner::Left };
    plots::bars(&bench.plots.join("kinds.svg"), &labels, &names, &groups)
}

/// Makes a chain that grows from the default capacity.
fn grown(server: &Server, items: u64) -> Result<()> {
    server.query::<()>(&["BF.RESERVE", "filter", "0.01", "100"])?;
    filters::send(server, "BF.MADD", "filter", 0..items)
}
