//! The scenarios: one file for each subject that is measured.

mod bulk;
mod commands;
mod core;
mod counting;
mod fuse;
mod gozero;
mod held;
mod kinds;
mod latency;
mod layouts;
mod memory;
mod others;
mod persistence;
mod quotient;
mod sweeps;
mod turnover;
mod window;

use crate::bench::Bench;
use anyhow::Result;

/// What is measured about one subject.
pub struct Scenario {
    /// Name for `--only`.
    pub name: &'static str,
    /// Rows of the scoreboard that it measures.
    pub rows: &'static [&'static str],
    /// Measures the rows, prints tables and draws plots.
    pub run: fn(&mut Bench) -> Result<()>,
}

const fn scenario(
    name: &'static str,
    rows: &'static [&'static str],
    run: fn(&mut Bench) -> Result<()>,
) -> Scenario {
    Scenario { name, rows, run }
}

/// All scenarios.
pub const ALL: &[Scenario] = &[
    scenario("single", &["exists", "test", "add"], commands::single),
    scenario("many", &["mexists", "madd"], commands::many),
    scenario("large", &["mexists-large"], commands::large),
    scenario("bulk", &["bulktest", "bulkadd"], bulk::run),
    scenario("counting", &["counting-add", "counting-del"], counting::run),
    scenario(
        "quotient",
        &[
            "quotient-test",
            "quotient-add",
            "quotient-counting-test",
            "quotient-counting-add",
            "quotient-counting-del",
            "quotient-window-8",
            "quotient-window-60",
        ],
        quotient::run,
    ),
    scenario(
        "static",
        &[
            "static-build",
            "static-test",
            "static-04",
            "static-millionth",
            "ribbon-078",
            "ribbon-01",
            "ribbon-millionth",
        ],
        fuse::run,
    ),
    scenario("turnover", &[], turnover::run),
    scenario("layouts", &[], layouts::run),
    scenario("window", &["window"], window::run),
    scenario("gozero", &["gozero-one", "gozero-many", "gozero-bulk"], gozero::run),
    scenario("held", &["reserve", "unlink"], held::run),
    scenario("others", &["others"], others::run),
    scenario("persistence", &["bgsave", "load"], persistence::run),
    scenario("core", &["core", "core-fastbloom", "core-threads"], core::run),
    scenario(
        "memory",
        &[
            "blocked-1",
            "blocked-01",
            "classic-1",
            "classic-01",
            "partitioned-1",
            "partitioned-01",
            "quotient-1",
            "quotient-01",
            "quotient-001",
            "quotient-millionth",
            "quotient-counting-1",
            "quotient-counting-01",
            "quotient-window",
            "grown",
            "empty",
        ],
        memory::run,
    ),
    scenario("plot-size", &[], sweeps::size),
    scenario("plot-items", &[], sweeps::group),
    scenario("plot-probes", &[], sweeps::probes),
    scenario("plot-memory", &[], sweeps::memory),
    scenario("plot-latency", &[], latency::run),
    scenario("plot-kinds", &[], kinds::run),
];
