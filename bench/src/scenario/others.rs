//! How a large bulk test slows other clients.
//!
//! In each round, one client pings every half millisecond: first alone, then while another client sends FLOOR.BULKTEST
//! again and again, then while it sends BF.BULKTEST. Each command has a million items. The server may use every core,
//! because it has a pool of threads.

use super::commands::numbers;
use crate::bench::Bench;
use crate::filters::{self, fixed};
use crate::items::{self, BULK_WIDTH, Mix};
use crate::measure::Spread;
use crate::probe::{Latencies, Probe};
use crate::server::Server;
use crate::table;
use crate::wire::Batch;
use anyhow::{Result, bail};
use bloomery::Layout::Classic;
use std::time::{Duration, Instant};

/// Pause between two probes.
const PAUSE: Duration = Duration::from_micros(500);

/// Maximum number of items that the filter is filled with. This is enough to touch all pages of the filter. A test of a
/// CLASSIC filter fetches all the lines of an item, however full the filter is.
const FILL: u64 = 100_000_000;

pub fn run(bench: &mut Bench) -> Result<()> {
    let server = bench.launch.start(None, &[])?;
    if !server.knows("BF.BULKTEST")? {
        bench.report.unavailable(&["others"], "not available");
        return Ok(());
    }
    let capacity = filters::capacity_for(fixed(1, 0.01, Classic), bench.scale.large)?;
    let added = capacity.min(FILL);
    filters::serve::<BULK_WIDTH>(&server, "filter", fixed(capacity, 0.01, Classic), added)?;
    let items = bench.scale.bulk / 4;
    let each = Duration::from_millis(if bench.scale.large < 1 << 30 { 100 } else { 2000 });
    let numbers = numbers(Mix::Half, 1, items, added);
    let test = items::bulk_commands("BF.BULKTEST", "filter", &numbers, items as usize);
    // The floor shows what the server itself needs to receive the same number of bytes and to reply.
    filters::floor(&server)?;
    let floor = items::bulk_commands("FLOOR.BULKTEST", "floor", &numbers, items as usize);
    let under = |request: &Batch| -> Result<(Latencies, u32)> {
        let mut sent = 0;
        let latencies = probed(&server, || {
            let mut connection = server.connect()?;
            let started = Instant::now();
            while started.elapsed() < each {
                if let Some(error) = connection.run(request)?.error {
                    bail!("a bulk test: {error}");
                }
                sent += 1;
            }
            Ok(())
        })?;
        Ok((latencies, sent))
    };

    let (mut ratios, mut lines) = (Vec::new(), Vec::new());
    for round in 1..=bench.rounds {
        let idle = probed(&server, || {
            std::thread::sleep(each);
            Ok(())
        })?;
        let (floored, _) = under(&floor)?;
        let (loaded, tests) = under(&test)?;
        ratios.push(p99(&loaded) / p99(&idle));
        let ms = |ns: f64| table::number(ns / 1e6);
        lines.push(vec![
            round.to_string(),
            ms(p99(&idle)),
            ms(p99(&floored)),
            ms(p99(&loaded)),
            ms(idle.max() as f64),
            ms(floored.max() as f64),
            ms(loaded.max() as f64),
            tests.to_string(),
        ]);
    }
    table::print(
        &format!(
            "PING of another client, ms, during bulk tests of {items} items, and FLOOR.BULKTEST of as many"
        ),
        &["round", "idle p99", "floor p99", "loaded p99", "idle max", "floor max", "loaded max", "tests"],
        &lines,
    );
    bench.report.record("others", Spread::of(ratios));
    Ok(())
}

fn probed(server: &Server, work: impl FnOnce() -> Result<()>) -> Result<Latencies> {
    let probe = Probe::start(server, &["PING"], PAUSE)?;
    work()?;
    probe.stop()
}

fn p99(latencies: &Latencies) -> f64 {
    latencies.value_at_quantile(0.99) as f64
}
