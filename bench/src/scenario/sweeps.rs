//! Plots of how the cost depends on one quantity at a time.

use super::commands::numbers;
use crate::bench::Bench;
use crate::filters::{self, fixed};
use crate::items::{self, BULK_WIDTH, Mix, WIDTH};
use crate::measure::{Series, Side, alternate};
use crate::plots::{self, Axis, Corner, Labels, Line};
use crate::server::{SERVER_CORE, Server};
use crate::table;
use anyhow::Result;
use bloomery::Layout::{self, Blocked, Classic};
use bloomery::{LayerSpec, Spec};

/// Number of rounds for each point in a plot. It is small, because there are many points.
const ROUNDS: u64 = 3;

/// Maximum number of items that a filter is filled with. This is enough to touch every page of a 4 GiB filter.
const FILL: u64 = 8_000_000;

/// Label of the vertical axis in the plots of times.
const COST: &str = "server CPU time, ns per item";

/// Lines that get one more point with each measurement.
struct Lines(Vec<Line>);

impl Lines {
    fn new(names: &[&str]) -> Lines {
        Lines(names.iter().map(|name| Line { name: (*name).to_owned(), points: Vec::new() }).collect())
    }

    /// Adds a point to the line with that name, if there is one.
    fn add(&mut self, name: &str, x: f64, series: &Series) {
        if let Some(line) = self.0.iter_mut().find(|line| line.name == name) {
            line.points.push((x, series.spread()));
        }
    }

    fn draw(self, bench: &Bench, file: &str, labels: &Labels<'_>, axis: &Axis) -> Result<()> {
        let write = |x: f64| match axis {
            Axis::Linear => count(x),
            Axis::Log(_, write) => write(x),
        };
        let mut lines = self.0;
        lines.retain(|line| !line.points.is_empty());
        let mut places: Vec<f64> = lines.iter().flat_map(|line| &line.points).map(|point| point.0).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let row = |place: &f64| {
            let figure =
                |line: &Line| line.points.iter().find(|point| point.0 == *place).map(|point| point.1);
            let figures =
                lines.iter().map(|line| figure(line).as_ref().map_or_else(String::new, table::spread));
            std::iter::once(write(*place)).chain(figures).collect::<Vec<String>>()
        };
        let header: Vec<&str> =
            std::iter::once(labels.x).chain(lines.iter().map(|line| line.name.as_str())).collect();
        let title = format!("{} ({})", labels.title, labels.y);
        table::print(&title, &header, &places.iter().map(row).collect::<Vec<_>>());
        plots::lines(&bench.plots.join(file), labels, axis, false, &lines)
    }
}

fn binary(bytes: f64) -> String {
    let mib = bytes / (1 << 20) as f64;
    if mib >= 1024.0 { format!("{} GiB", mib / 1024.0) } else { format!("{mib} MiB") }
}

fn count(value: f64) -> String {
    format!("{}", value.round())
}

/// Bytes of memory that are available on the machine.
fn available() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}

/// Measures the sides, and adds a point at `x` to each side's line, which has the side's name.
fn measure<'a>(server: &Server, sides: Vec<Side<'a>>, lines: &mut Lines, x: f64) -> Result<()> {
    let mut sides = sides;
    let series = alternate(server, ROUNDS, &mut sides)?;
    sides.iter().zip(&series).for_each(|(side, series)| lines.add(&side.name, x, series));
    Ok(())
}

/// Plots times against the size of the filter, from a size that fits into a cache to 4 GiB.
pub fn size(bench: &mut Bench) -> Result<()> {
    const NAMES: [(&str, Layout); 2] = [("BLOCKED", Blocked), ("CLASSIC", Classic)];
    let mut lines = Lines::new(&[
        "floor",
        "MEXISTS BLOCKED, half present",
        "MEXISTS CLASSIC, half present",
        "BULKTEST BLOCKED, absent",
        "BULKTEST CLASSIC, absent",
    ]);
    let sizes = std::iter::successors(Some(1u64 << 20), |bytes| Some(bytes * 4));
    for bytes in sizes.take_while(|bytes| *bytes <= bench.scale.large * 4) {
        if bytes * 3 / 2 > available() {
            println!("\nno memory for a filter of {}", binary(bytes as f64));
            break;
        }
        for (layout, choice) in NAMES {
            let capacity = filters::capacity_for(fixed(1, 0.01, choice), bytes)?;
            let added = capacity.min(FILL);
            let server = bench.launch.start(Some(SERVER_CORE), &[])?;
            let many = bench.scale.many / 2;
            let size = capacity.to_string();
            server.query::<()>(&["BF.RESERVE", "filter", "0.01", &size, "NONSCALING", "LAYOUT", layout])?;
            filters::send(&server, "BF.MADD", "filter", 0..added)?;
            let mut sides = vec![Side::new(format!("MEXISTS {layout}, half present"), move |round| {
                items::commands("BF.MEXISTS", "filter", &numbers(Mix::Half, round, many, added), 1000)
            })];
            if choice == Blocked {
                filters::floor(&server)?;
                sides.push(Side::new("floor", move |round| {
                    items::commands("FLOOR.MEXISTS", "floor", &numbers(Mix::Half, round, many, added), 1000)
                }));
            }
            if server.knows("BF.BULKTEST")? {
                // These items have a different width, so none of them is in the filter.
                sides.push(Side::new(format!("BULKTEST {layout}, absent"), move |round| {
                    let numbers = numbers(Mix::Half, round, 2 * many, added);
                    items::bulk_commands("BF.BULKTEST", "filter", &numbers, (64 << 10) / BULK_WIDTH)
                }));
            }
            measure(&server, sides, &mut lines, bytes as f64)?;
        }
    }
    let labels = Labels {
        title: "Cost of a test against the size of the filter",
        x: "filter",
        y: COST,
        legend: Corner::Left,
    };
    lines.draw(bench, "size.svg", &labels, &Axis::Log(4.0, binary))
}

/// Plots times against the number of items in a command.
pub fn group(bench: &mut Bench) -> Result<()> {
    let (capacity, total) = (bench.scale.items, bench.scale.many / 5);
    let server = bench.launch.start(Some(SERVER_CORE), &[])?;
    filters::floor(&server)?;
    filters::serve::<WIDTH>(&server, "filter", fixed(capacity, 0.01, None), capacity)?;
    let mut lines = Lines::new(&["floor", "BF.MEXISTS", "BF.MADD, present"]);
    for group in [1usize, 3, 10, 32, 100, 316, 1000, 3162, 10_000] {
        let side = |name: &str, command: &'static str, key: &'static str, mix: Mix| {
            Side::new(name, move |round| {
                items::commands(command, key, &numbers(mix, round, total, capacity), group)
            })
        };
        let sides = vec![
            side("floor", "FLOOR.MEXISTS", "floor", Mix::Half),
            side("BF.MEXISTS", "BF.MEXISTS", "filter", Mix::Half),
            side("BF.MADD, present", "BF.MADD", "filter", Mix::Present),
        ];
        measure(&server, sides, &mut lines, group as f64)?;
    }
    let title = format!("Cost against items per command, filter of {capacity} items");
    let labels = Labels { title: &title, x: "items per command", y: COST, legend: Corner::Right };
    lines.draw(bench, "items.svg", &labels, &Axis::Log(10.0, count))
}

/// Plots times against the number of probes, which follows from the error rate.
pub fn probes(bench: &mut Bench) -> Result<()> {
    let (capacity, many) = (bench.scale.items / 10, bench.scale.many / 2);
    let server = bench.launch.start(Some(SERVER_CORE), &[])?;
    filters::floor(&server)?;
    let mut lines =
        Lines::new(&["floor", "BLOCKED, absent", "BLOCKED, present", "CLASSIC, absent", "CLASSIC, present"]);
    for (layout, choice) in [("BLOCKED", Blocked), ("CLASSIC", Classic)] {
        let mut last = 0;
        for exponent in 1..=16 {
            let spec = fixed(capacity, 0.5f64.powi(exponent), choice);
            let k = probes_of(&spec)?;
            // Blocks use fewer probes than would be ideal, so several rates may have the same number of probes.
            if k == last {
                continue;
            }
            last = k;
            filters::serve::<WIDTH>(&server, "filter", spec, capacity)?;
            let test = |mix: Mix| {
                Side::new(format!("{layout}, {}", mix.name()), move |round| {
                    items::commands("BF.MEXISTS", "filter", &numbers(mix, round, many, capacity), 1000)
                })
            };
            let mut sides = vec![test(Mix::Absent), test(Mix::Present)];
            if choice == Classic {
                sides.push(Side::new("floor", move |round| {
                    items::commands(
                        "FLOOR.MEXISTS",
                        "floor",
                        &numbers(Mix::Half, round, many, capacity),
                        1000,
                    )
                }));
            }
            measure(&server, sides, &mut lines, k.into())?;
            server.query::<()>(&["DEL", "filter"])?;
        }
    }
    let title = format!("Cost of MEXISTS of 1000 items against k, filters of {capacity} items");
    let labels = Labels { title: &title, x: "k, probes per item", y: COST, legend: Corner::Left };
    lines.draw(bench, "probes.svg", &labels, &Axis::Linear)
}

/// The number of probes of an item in a filter with this spec.
fn probes_of(spec: &Spec) -> Result<u32> {
    let layer = LayerSpec { layout: spec.layout, ..LayerSpec::new(spec.capacity, spec.error_rate) };
    Ok(layer.shape()?.probes)
}

/// Plots bits per item against the error rate.
pub fn memory(bench: &mut Bench) -> Result<()> {
    let capacity = bench.scale.items;
    let mut lines: Vec<Line> = ["theory, log2(1/p)/ln 2", "CLASSIC", "BLOCKED"]
        .map(|name| Line { name: name.to_owned(), points: Vec::new() })
        .into();
    for step in 2..=12 {
        let rate = 10f64.powf(-f64::from(step) / 2.0);
        let exact = crate::measure::Spread::exact;
        lines[0].points.push((rate, exact(-rate.log2() / std::f64::consts::LN_2)));
        for (line, layout) in lines[1..].iter_mut().zip([Classic, Blocked]) {
            let bytes = bloomery::Bloom::bytes_for(&fixed(capacity, rate, layout))?;
            line.points.push((rate, exact(bytes as f64 * 8.0 / capacity as f64)));
        }
    }
    let mut rows = Vec::new();
    for index in 0..lines[0].points.len() {
        let mut row = vec![format!("{:.2e}", lines[0].points[index].0)];
        row.extend(lines.iter().map(|line| table::number(line.points[index].1.median)));
        rows.push(row);
    }
    let header: Vec<&str> =
        std::iter::once("error rate").chain(lines.iter().map(|line| line.name.as_str())).collect();
    table::print(&format!("Bits per item, {capacity} items"), &header, &rows);
    let title = "Memory against the error rate";
    let labels = Labels { title, x: "error rate", y: "bits per item", legend: Corner::Right };
    let write = |rate: f64| format!("1e{}", rate.log10().round());
    plots::lines(&bench.plots.join("memory.svg"), &labels, &Axis::Log(10.0, write), false, &lines)
}
