//! `bloomery plan`: estimates what a filter costs before it is created.

mod print;

use crate::error::Outcome;
use crate::output;
use print::print;

/// Estimate the memory and error rate of a filter, compare the kinds, and print the command that creates it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery plan -n 10M -e 1%
  bloomery plan -n 10M -e 0.1% --counting=8
  bloomery plan -n 10k -e 1% --grow 1000         # cost of starting small
  bloomery plan -n 10M -e 0.4% --static
  bloomery plan -n 10M -e 1% --ttl 24h           # items of the last day
  bloomery plan -n 10M -e 1% --json | jq '.kinds[] | {kind, layout, memory_bytes}'")]
pub(crate) struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    plan: bloomery_plan::PlanOptions,
}

/// Computes and prints the plan.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let plan = options.plan.plan()?;
    if options.json {
        output::json(&plan)?;
    } else {
        print(&plan)?;
    }
    Ok(Outcome::Done)
}
