//! `bloomery plan`: estimates what a filter costs before it is created.

mod chart;
mod print;

use crate::error::{Failure, Outcome};
use crate::output;
use anyhow::Context;
use bloomery_plan::{growth_chart, memory_chart};
use clap::ValueEnum;
use print::print;
use std::path::PathBuf;

/// Estimate the memory and error rate of a filter, compare the kinds, and print the command that creates it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery plan -n 10M -e 1%
  bloomery plan -n 10M -e 0.1% --counting=8
  bloomery plan -n 10k -e 1% --grow 1000         # cost of starting small
  bloomery plan -n 10M -e 0.4% --static
  bloomery plan -n 10M -e 1% --ttl 24h           # items of the last day
  bloomery plan -n 10M -e 1% --svg memory.svg
  bloomery plan -n 10M -e 1% --json | jq '.kinds[] | {kind, layout, memory_bytes}'")]
pub(crate) struct Options {
    /// Write a chart to this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// What to draw
    #[arg(long, requires = "svg", default_value = "memory")]
    chart: Chart,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    plan: bloomery_plan::PlanOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Chart {
    /// Memory of each kind, by error rate
    Memory,
    /// Memory of a scaling filter as it grows
    Growth,
}

/// Computes and prints the plan. With `--svg`, also writes a chart.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let plan = options.plan.plan()?;
    if let Some(path) = &options.svg {
        let wanted = options.plan.wanted()?;
        let chart = match options.chart {
            Chart::Memory => memory_chart(&wanted),
            Chart::Growth => growth_chart(&wanted, &plan.growth)
                .ok_or_else(|| Failure::Usage("--chart growth requires a scaling filter".into()))?,
        };
        std::fs::write(path, chart::draw(&chart)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if options.json {
        output::json(&plan)?;
    } else {
        print(&plan)?;
    }
    Ok(Outcome::Done)
}
