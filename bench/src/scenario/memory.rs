//! Memory, as the server reports it.

use crate::bench::{Bench, Scale};
use crate::filters;
use crate::items::WIDTH;
use crate::measure::Spread;
use crate::rows::REDISBLOOM_GROWN;
use crate::server::{SERVER_CORE, Server};
use crate::table;
use anyhow::{Context, Result};

pub fn run(bench: &mut Bench) -> Result<()> {
    let server = bench.launch.start(Some(SERVER_CORE), &[])?;
    let capacity = bench.scale.items;
    let mut lines = Vec::new();
    for (id, rate, parts, options) in [
        ("blocked-1", "0.01", 1, "NONSCALING LAYOUT BLOCKED"),
        ("blocked-01", "0.001", 1, "NONSCALING LAYOUT BLOCKED"),
        ("classic-1", "0.01", 1, "NONSCALING LAYOUT CLASSIC"),
        ("classic-01", "0.001", 1, "NONSCALING LAYOUT CLASSIC"),
        ("partitioned-1", "0.01", 1, "NONSCALING LAYOUT PARTITIONED"),
        ("partitioned-01", "0.001", 1, "NONSCALING LAYOUT PARTITIONED"),
        ("quotient-1", "0.01", 1, "NONSCALING LAYOUT QUOTIENT"),
        ("quotient-01", "0.001", 1, "NONSCALING LAYOUT QUOTIENT"),
        ("quotient-001", "0.0001", 1, "NONSCALING LAYOUT QUOTIENT"),
        ("quotient-millionth", "0.000001", 1, "NONSCALING LAYOUT QUOTIENT"),
        ("quotient-counting-1", "0.01", 1, "COUNTING 4 LAYOUT QUOTIENT"),
        ("quotient-counting-01", "0.001", 1, "COUNTING 4 LAYOUT QUOTIENT"),
        ("quotient-window", "0.01", 8, "WINDOW 8 LAYOUT QUOTIENT"),
    ] {
        let each = (capacity / parts).to_string();
        let words = ["BF.RESERVE", id, rate, &each].into_iter().chain(options.split(' '));
        server.query::<()>(&words.collect::<Vec<_>>())?;
        let bytes = size(&server, id)?;
        bench.report.record(id, Spread::exact(bytes * 8.0 / capacity as f64));
        lines.push(vec![format!("{options} at {rate}, {capacity} items"), format!("{bytes}")]);
    }
    server.query::<()>(&["BF.RESERVE", "empty", "0.01", "100"])?;
    let empty: f64 = server.query(&["MEMORY", "USAGE", "empty"])?;
    bench.report.record("empty", Spread::exact(empty));
    lines.push(vec!["empty".to_owned(), format!("{empty}")]);

    server.query::<()>(&["BF.RESERVE", "grown", "0.01", "100"])?;
    filters::send(&server, "BF.MADD", "grown", 0..capacity)?;
    let grown: f64 = server.query(&["MEMORY", "USAGE", "grown"])?;
    let full_size = capacity == Scale::FULL.items;
    match full_size {
        true => bench.report.record("grown", Spread::exact(grown / REDISBLOOM_GROWN)),
        false => bench.report.unavailable(&["grown"], "not at this size"),
    }
    lines.push(vec![format!("grown from 100 to {capacity} items of {WIDTH} bytes"), format!("{grown}")]);
    table::print("Memory", &["filter", "bytes"], &lines);
    Ok(())
}

/// Bytes of a filter with all its overhead, according to BF.INFO.
fn size(server: &Server, key: &str) -> Result<f64> {
    let reply: Vec<redis::Value> = server.query(&["BF.INFO", key, "SIZE"])?;
    redis::from_redis_value(reply.into_iter().next_back().context("BF.INFO says nothing")?).context("BF.INFO")
}
