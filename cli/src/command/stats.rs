//! `bloomery stats`: everything that a server knows about a filter.

use crate::error::{Outcome, fail};
use crate::filter::lines::lines;
use crate::output::{self, Name, bytes, count, key, percent};
use crate::server::connection::Server;
use crate::server::info;
use crate::server::spread::Spread;
use bloomery::Summary;
use serde::Serialize;
use std::io::{self, Write};

/// Show all that is known about a filter on a server, and what is wrong with it.
///
/// The user needs permission for BF.STATS, or CF.STATS for cuckoo filters.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery stats users
  bloomery stats users --json | jq .error_rate_now
  bloomery stats users --cluster --spread 64         # one filter in 64 parts")]
pub(crate) struct Options {
    /// The key
    key: String,

    /// Show one filter that is spread over a cluster in N parts; the key is its name
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    spread: Option<u16>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: Server,
}

/// Prints the statistics.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    if let Some(parts) = options.spread {
        return of_parts(options, parts);
    }
    let name = options.key.as_bytes();
    let filter = info::existing(&mut options.server.connect()?, name)?;
    if options.json {
        output::json(&filter)?;
    } else {
        let mut out = io::stdout().lock();
        lines(&filter).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    Ok(Outcome::Done)
}

/// Totals of a filter in parts. Error rates are means, because each part is tested for the same share of the items.
#[derive(Serialize)]
struct Parts {
    parts: usize,
    missing: Vec<Name>,
    items: u64,
    approximate_items: u64,
    capacity: u64,
    error_rate: f64,
    error_rate_now: f64,
    /// Items of the fullest part divided by its capacity: at 1 the whole filter is full.
    fullest: f64,
    size: u64,
}

fn of_parts(options: &Options, parts: u16) -> anyhow::Result<Outcome> {
    let mut spread = Spread::connect(&options.server, &options.key, parts)?;
    let found = spread
        .each(|_, part, connection| Ok((part.to_owned(), info::describe(connection, part.as_bytes())?)))?;
    let known: Vec<&Summary> = found.iter().filter_map(|(_, filter)| filter.as_ref()).collect();
    if known.is_empty() {
        fail!(Data, "there is no filter {} in {parts} parts", key(options.key.as_bytes()));
    }
    let sum = |field: fn(&Summary) -> u64| known.iter().map(|filter| field(filter)).sum::<u64>();
    let mean = |field: fn(&Summary) -> f64| {
        known.iter().map(|filter| field(filter)).sum::<f64>() / known.len() as f64
    };
    let sums = Parts {
        parts: found.len(),
        missing: found
            .iter()
            .filter(|(_, filter)| filter.is_none())
            .map(|(part, _)| Name::new(part.as_bytes()))
            .collect(),
        items: sum(|filter| filter.items),
        approximate_items: sum(|filter| filter.approximate_items.unwrap_or(0)),
        capacity: sum(|filter| filter.capacity),
        error_rate: mean(|filter| filter.error_rate.unwrap_or(0.0)),
        error_rate_now: mean(|filter| filter.error_rate_now),
        fullest: known.iter().map(|filter| filter.full()).fold(0.0, f64::max),
        size: sum(|filter| filter.size),
    };
    if options.json {
        output::json(&sums)?;
        return Ok(Outcome::Done);
    }
    let mut out = io::stdout().lock();
    for part in &sums.missing {
        writeln!(out, "! the part {part} is missing: tests say no to what it had")?;
    }
    for (name, value) in [
        ("parts", count(sums.parts as u64)),
        ("items", count(sums.items)),
        ("estimated", count(sums.approximate_items)),
        ("capacity", count(sums.capacity)),
        ("fullest part", format!("{:.0}% full", sums.fullest * 100.0)),
        ("error rate, promised", percent(sums.error_rate)),
        ("error rate, now", percent(sums.error_rate_now)),
        ("memory", bytes(sums.size)),
    ] {
        writeln!(out, "{name:<22}{value}")?;
    }
    Ok(Outcome::Done)
}
