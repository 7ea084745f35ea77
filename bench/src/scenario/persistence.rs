//! Saving and loading a filter, compared with a plain string of the same size. Two servers with the same settings have
//! one key each, and are measured in turn. What counts is the CPU time of the server or of its child, because the speed
//! of the disk and the machine's other work say nothing about a filter.

use crate::bench::Bench;
use crate::filters::{self, fixed};
use crate::items::WIDTH;
use crate::measure::{Series, Spread};
use crate::server::{Server, query};
use crate::table;
use anyhow::{Result, ensure};
use fastrand::Rng;
use std::time::Duration;

pub fn run(bench: &mut Bench) -> Result<()> {
    let bytes = bench.scale.large;
    // The filter is full, so that half of its bits are set.
    let capacity = filters::capacity_for(fixed(1, 0.01, None), bytes)?;
    // Compression is off, because with it, both servers would spend most of their time trying to compress
    // incompressible bytes, which would hide the rest.
    let settings = [("rdbcompression", "no")];
    let with_filter = bench.launch.start(None, &settings)?;
    filters::serve::<WIDTH>(&with_filter, "filter", fixed(capacity, 0.01, None), capacity)?;
    let with_string = bench.launch.start(None, &settings)?;
    let mut string = vec![0; bytes as usize];
    Rng::with_seed(1).fill(&mut string);
    redis::cmd("SET").arg("string").arg(string).query::<()>(&mut with_string.client()?)?;

    let servers = [&with_string, &with_filter];
    let mut saves = [Series(Vec::new()), Series(Vec::new())];
    let mut loads = saves.clone();
    for round in 0..bench.rounds {
        for turn in 0..2 {
            let side = (turn + round as usize) % 2;
            saves[side].0.push(save(servers[side])?);
            loads[side].0.push(load(servers[side])?);
        }
    }
    let line = |name: &str, series: &Series| vec![name.to_owned(), table::spread(&series.spread())];
    table::print(
        &format!("{} MiB", bytes >> 20),
        &["", "seconds of CPU time"],
        &[
            line("BGSAVE, string", &saves[0]),
            line("BGSAVE, filter", &saves[1]),
            line("load, string", &loads[0]),
            line("load, filter", &loads[1]),
        ],
    );
    // A rate is the inverse of a time, so the string's time is divided by the filter's.
    let rate = |series: &[Series; 2]| -> Spread { series[0].over(&series[1]) };
    bench.report.record("bgsave", rate(&saves));
    bench.report.record("load", rate(&loads));
    Ok(())
}

/// Seconds of CPU time that a BGSAVE's child uses.
fn save(server: &Server) -> Result<f64> {
    let used = || -> Result<f64> {
        let of = |field| -> Result<f64> { Ok(server.info("cpu", field)?.parse()?) };
        Ok(of("used_cpu_sys_children")? + of("used_cpu_user_children")?)
    };
    let before = used()?;
    query::<()>(&mut server.client()?, &["BGSAVE"])?;
    while server.info("persistence", "rdb_bgsave_in_progress")? != "0" {
        std::thread::sleep(Duration::from_millis(5));
    }
    let status = server.info("persistence", "rdb_last_bgsave_status")?;
    ensure!(status == "ok", "BGSAVE failed:\n{}", server.log());
    Ok(used()? - before)
}

/// Seconds of CPU time that the server needs to drop everything and load the file again.
fn load(server: &Server) -> Result<f64> {
    let before = server.cpu_ns()?;
    query::<()>(&mut server.client()?, &["DEBUG", "RELOAD", "NOSAVE"])?;
    Ok((server.cpu_ns()? - before) as f64 / 1e9)
}
