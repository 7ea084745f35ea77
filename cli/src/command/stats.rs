//! `bloomery stats`: all that a server knows of a filter.

use crate::error::{Failure, Outcome};
use crate::filter::lines::lines;
use crate::output::{self, key};
use crate::server::connection::Server;
use crate::server::info;
use std::io::{self, Write};

/// Show all that is known of a filter on a server, and what is wrong with it.
///
/// The user needs permission for BF.STATS, or CF.STATS for cuckoo filters.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery stats users
  bloomery stats users --json | jq .error_rate_now")]
pub(crate) struct Options {
    /// The key
    key: String,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: Server,
}

/// Prints it.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let name = options.key.as_bytes();
    let filter = info::describe(&mut options.server.connect()?, name)?
        .ok_or_else(|| Failure::Data(format!("there is no filter {}", key(name))))?;
    if options.json {
        output::json(&filter)?;
    } else {
        let mut out = io::stdout().lock();
        lines(&filter).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    Ok(Outcome::Done)
}
