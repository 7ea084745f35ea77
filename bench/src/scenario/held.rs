//! How long creating and dropping a large filter blocks the main thread.
//!
//! What counts is the command's own time, as the server reports it. The table also shows the longest time that another
//! client waited for a PING meanwhile, which includes delays caused by the machine's scheduler. The server may use
//! every core here, because it frees memory on another thread.

use crate::bench::Bench;
use crate::filters::{self, fixed};
use crate::items::WIDTH;
use crate::measure::Spread;
use crate::probe::Probe;
use crate::server::{Server, query};
use crate::table;
use anyhow::{Context, Result};
use std::time::Duration;

/// Enough items to touch every page of the filter.
const TOUCHING: u64 = 50_000_000;

/// How long PINGs continue after the command has ended, because that is when another thread frees the memory.
const AFTERWARDS: Duration = Duration::from_millis(300);

pub fn run(bench: &mut Bench) -> Result<()> {
    let capacity = filters::capacity_for(fixed(1, 0.01, None), bench.scale.large)?;
    let filter = filters::filled::<WIDTH>(fixed(capacity, 0.01, None), capacity.min(TOUCHING))?;
    let server = bench.launch.start(None, &[])?;
    let capacity = capacity.to_string();
    let idle = watched(&server, || {
        std::thread::sleep(AFTERWARDS);
        Ok(())
    })?;
    let (mut reserves, mut unlinks) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        reserves.push(held(&server, &["BF.RESERVE", "empty", "0.01", &capacity, "NONSCALING"])?);
        query::<()>(&mut server.client()?, &["DEL", "empty"])?;
        filters::load(&server, "filter", &filter)?;
        unlinks.push(held(&server, &["UNLINK", "filter"])?);
    }
    let line = |name: &str, held: &[Held]| {
        let command = Spread::of(held.iter().map(|held| held.command_ms));
        let ping = Spread::of(held.iter().map(|held| held.ping_ms));
        (command, vec![name.to_owned(), table::spread(&command), table::spread(&ping)])
    };
    let (reserve, first) = line("BF.RESERVE", &reserves);
    let (unlink, second) = line("UNLINK", &unlinks);
    let nothing = vec!["nothing".to_owned(), String::new(), table::number(idle)];
    table::print(
        &format!("A filter of {} MiB, ms", bench.scale.large >> 20),
        &["", "the command itself", "longest PING of another client"],
        &[first, second, nothing],
    );
    bench.report.record("reserve", reserve);
    bench.report.record("unlink", unlink);
    Ok(())
}

struct Held {
    command_ms: f64,
    ping_ms: f64,
}

/// Runs a command while another client pings. Returns the times of the command and of the longest PING.
fn held(server: &Server, words: &[&str]) -> Result<Held> {
    let mut client = server.client()?;
    query::<()>(&mut client, &["CONFIG", "RESETSTAT"])?;
    let ping_ms = watched(server, || {
        query::<()>(&mut client, words)?;
        std::thread::sleep(AFTERWARDS);
        Ok(())
    })?;
    let stat = server.info("commandstats", &format!("cmdstat_{}", words[0].to_lowercase()))?;
    let usec = stat.split(',').find_map(|field| field.strip_prefix("usec=")).context("no usec")?;
    Ok(Held { command_ms: usec.parse::<f64>()? / 1e3, ping_ms })
}

/// Milliseconds of the longest PING while `work` runs.
fn watched(server: &Server, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let probe = Probe::start(server, &["PING"], Duration::ZERO)?;
    work()?;
    Ok(probe.stop()?.max() as f64 / 1e6)
}
