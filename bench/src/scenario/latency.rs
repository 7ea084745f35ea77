//! Latency under mixed load. Probes one kind of command at a time, while another client tests and adds.

use super::commands::numbers;
use crate::bench::Bench;
use crate::filters::{self, fixed};
use crate::items::{self, ABSENT, Mix, WIDTH, item};
use crate::measure::Spread;
use crate::plots::{self, Axis, Corner, Labels, Line};
use crate::probe::{Latencies, Probe};
use crate::server::{SERVER_CORE, Server};
use crate::table;
use crate::wire::Batch;
use anyhow::Result;
use fastrand::Rng;
use std::time::{Duration, Instant};

/// Pause between two probes.
const PAUSE: Duration = Duration::from_micros(100);

/// The percentiles of the table and the plot.
const QUANTILES: [f64; 9] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999];

pub fn run(bench: &mut Bench) -> Result<()> {
    let items = bench.scale.items;
    let each = Duration::from_millis(if bench.scale.large < 1 << 30 { 100 } else { 3000 });
    let server = bench.launch.start(Some(SERVER_CORE), &[])?;
    filters::serve::<WIDTH>(&server, "filter", fixed(2 * items, 0.01, None), items)?;
    server.query::<()>(&["SET", "key", "value"])?;
    let idle = probed(&server, each, &["GET"], items, false)?;
    let kinds: [&[&str]; 4] = [&["GET"], &["BF.EXISTS"], &["BF.ADD"], &["BF.MEXISTS"]];
    let mut lines = vec![("GET, idle server".to_owned(), idle)];
    for kind in kinds {
        let name = if kind == ["BF.MEXISTS"] { "BF.MEXISTS of 100" } else { kind[0] };
        lines.push((name.to_owned(), probed(&server, each, kind, items, true)?));
    }
    let us = |latencies: &Latencies, quantile: f64| latencies.value_at_quantile(quantile) as f64 / 1e3;
    let header: Vec<String> = QUANTILES.iter().map(|q| percentile(1.0 / (1.0 - q))).collect();
    let header: Vec<&str> = std::iter::once("").chain(header.iter().map(String::as_str)).collect();
    let rows: Vec<Vec<String>> = lines
        .iter()
        .map(|(name, latencies)| {
            let figures = QUANTILES.iter().map(|quantile| table::number(us(latencies, *quantile)));
            std::iter::once(name.clone()).chain(figures).collect()
        })
        .collect();
    table::print("Latency in µs, while another client sends tests and adds, by percentile", &header, &rows);
    let lines: Vec<Line> = lines
        .iter()
        .map(|(name, latencies)| {
            let points = QUANTILES.iter().map(|q| (1.0 / (1.0 - q), Spread::exact(us(latencies, *q))));
            Line { name: name.clone(), points: points.collect() }
        })
        .collect();
    let labels = Labels {
        title: "Latency of one client under mixed load of another",
        x: "percentile",
        y: "round trip, µs",
        legend: Corner::Left,
    };
    plots::lines(&bench.plots.join("latency.svg"), &labels, &Axis::Log(10.0, percentile), true, &lines)
}

/// The percentile above which one in `value` latencies lies.
fn percentile(value: f64) -> String {
    let text = format!("{:.2}", 100.0 - 100.0 / value);
    format!("p{}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Latencies of one kind of command during the time `each`. With `load`, another client meanwhile sends pipelines of 45
/// tests and of 5 adds in turn.
fn probed(server: &Server, each: Duration, kind: &[&str], added: u64, load: bool) -> Result<Latencies> {
    let (name, mut rng) = (kind[0].to_owned(), Rng::with_seed(1));
    let probe = Probe::of(server, PAUSE, move || one(&name, &mut rng, added))?;
    let started = Instant::now();
    let mut connection = server.connect()?;
    // The load is prepared in advance and sent with pauses, because it should keep the server busy, but not the probe's
    // core.
    let load: Vec<Batch> = (0..if load { 64 } else { 0 }).flat_map(|round| mixed(round, added)).collect();
    while started.elapsed() < each {
        for batch in &load {
            connection.round_trip(batch)?;
            std::thread::sleep(PAUSE / 2);
        }
        if load.is_empty() {
            std::thread::sleep(each);
        }
    }
    probe.stop()
}

/// A batch of 45 tests, and one of 5 adds.
fn mixed(round: u64, added: u64) -> [Batch; 2] {
    let commands = |name, mix, count| items::commands(name, "filter", &numbers(mix, round, count, added), 1);
    [commands("BF.EXISTS", Mix::Half, 45), commands("BF.ADD", Mix::Present, 5)]
}

/// A command of the given kind.
fn one(name: &str, rng: &mut Rng, added: u64) -> Batch {
    let number = rng.u64(..added);
    match name {
        "GET" => {
            let mut batch = Batch::default();
            batch.push(&["GET", "key"], 1);
            batch
        }
        "BF.MEXISTS" => items::commands(name, "filter", &Mix::Half.numbers(100, added, rng), 100),
        _ => {
            let mut batch = Batch::default();
            let number = if rng.bool() { number } else { ABSENT + number };
            batch.push(&[name.as_bytes(), b"filter", &item::<WIDTH>(number)], 1);
            batch
        }
    }
}
