//! `bloomery plan`: estimates what a filter costs before it is created.

mod chart;
mod cost;
mod print;

use crate::error::{Failure, Outcome};
use crate::filter::options::{NOT_STATIC, Reserve};
use crate::filter::wanted::Wanted;
use crate::output;
use anyhow::Context;
use clap::ValueEnum;
use cost::{Cost, Plan, cost, growth, kinds};
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
  bloomery plan -n 10M -e 1% --json | jq '.kinds[] | {kind, memory_bytes}'")]
pub(crate) struct Options {
    /// Show the growth of a scaling filter up to this multiple of the capacity
    #[arg(long, value_name = "TIMES", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    grow: u64,

    /// Write a chart to this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// What to draw
    #[arg(long, requires = "svg", default_value = "memory")]
    chart: Chart,

    /// Plan a static filter: the least memory, and no adds
    #[arg(long = "static", conflicts_with_all = NOT_STATIC)]
    is_static: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reserve: Reserve,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Chart {
    /// Memory of each kind, by error rate
    Memory,
    /// Memory of a scaling filter as it grows
    Growth,
}

/// Computes the plan, writes the chart, and prints the plan.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let wanted = options.reserve.wanted()?;
    let wanted = if options.is_static { Wanted::Bloom(options.reserve.wanted_static()?) } else { wanted };
    let plan = Plan {
        filter: Cost { command: options.reserve.command(&wanted, "KEY").join(" "), ..cost(&wanted)? },
        growth: growth(&wanted, options.grow)?,
        kinds: kinds(&wanted)?,
    };
    if let Some(path) = &options.svg {
        let drawing = match (options.chart, &wanted) {
            (Chart::Memory, Wanted::Bloom(spec)) => chart::memory(spec)?,
            (Chart::Growth, Wanted::Bloom(spec)) if !plan.growth.is_empty() => {
                chart::growth(spec, &plan.growth)?
            }
            (Chart::Growth, _) => {
                return Err(Failure::Usage("--chart growth requires a scaling filter".into()).into());
            }
            (Chart::Memory, Wanted::Cuckoo(_)) => {
                let text = "--chart memory requires a Bloom filter with an --error-rate; its chart includes cuckoo filters";
                return Err(Failure::Usage(text.into()).into());
            }
        };
        std::fs::write(path, drawing).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if options.json {
        output::json(&plan)?;
    } else {
        print(&plan)?;
    }
    Ok(Outcome::Done)
}
