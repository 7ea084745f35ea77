//! Measures every row of Bloomery's scoreboard, and draws the plots. Run it with `scripts/bench`, which builds
//! everything that is needed.

mod bench;
mod clock;
mod filters;
mod items;
mod measure;
mod plots;
mod probe;
mod report;
mod rows;
mod scenario;
mod server;
mod table;
mod wire;

use anyhow::{Result, ensure};
use bench::{Bench, Scale};
use clap::Parser;
use report::Report;
use server::Launch;
use std::path::PathBuf;
use std::time::Instant;

/// Measures Bloomery against what the server itself costs, and against other methods.
#[derive(Parser)]
#[command(about, long_about = None)]
struct Arguments {
    /// Server, by its name in `scripts/servers`.
    #[arg(long, default_value = "redis-8.0")]
    server: String,
    /// Rounds that are counted. Each runs every side once.
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Uses small filters and few items, only to check that everything works.
    #[arg(long)]
    quick: bool,
    /// Runs only these scenarios, or those that measure these rows.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Lists scenarios and rows.
    #[arg(long)]
    list: bool,
    /// Writes the scoreboard's numbers to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Folder for the plots: docs/benchmarks, or target/bench/plots for a quick run.
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Bloomery's module.
    #[arg(long, env = "BLOOMERY_MODULE", default_value = "target/release/libbloomery.so")]
    module: PathBuf,
    /// The module with the floor's commands.
    #[arg(long, env = "BLOOMERY_FLOOR", default_value = "target/bench/release/libbloomery_floor.so")]
    floor: PathBuf,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if arguments.list {
        for scenario in scenario::ALL {
            println!("{:12} {}", scenario.name, scenario.rows.join(" "));
        }
        return Ok(());
    }
    let wanted = |scenario: &scenario::Scenario| {
        let named = |name: &String| *name == scenario.name || scenario.rows.contains(&name.as_str());
        arguments.only.is_empty() || arguments.only.iter().any(named)
    };
    let known =
        |name: &String| scenario::ALL.iter().any(|s| *name == s.name || s.rows.contains(&name.as_str()));
    ensure!(arguments.only.iter().all(known), "unknown name; --list shows them");
    ensure!(arguments.rounds > 0, "no rounds");
    let mut bench = Bench {
        launch: Launch::find(&arguments.server, &[&arguments.floor, &arguments.module])?,
        rounds: arguments.rounds,
        scale: if arguments.quick { Scale::QUICK } else { Scale::FULL },
        plots: arguments.plots.unwrap_or_else(|| {
            PathBuf::from(if arguments.quick { "target/bench/plots" } else { "docs/benchmarks" })
        }),
        report: Report::default(),
    };
    println!(
        "{}, {} rounds{}",
        bench.launch.name,
        bench.rounds,
        if arguments.quick { ", quick" } else { "" }
    );
    std::fs::create_dir_all(&bench.plots)?;
    server::pin(server::CLIENT_CORE)?;
    for scenario in scenario::ALL.iter().filter(|scenario| wanted(scenario)) {
        let started = Instant::now();
        (scenario.run)(&mut bench)?;
        println!("\n[{}: {:.0} s]", scenario.name, started.elapsed().as_secs_f64());
    }
    table::scoreboard(rows::Section::Speed, bench.report.measured());
    table::scoreboard(rows::Section::Memory, bench.report.measured());
    arguments.json.map_or(Ok(()), |path| bench.report.save(&path))
}
