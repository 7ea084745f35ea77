//! `bloomery`: plans, fills, moves, looks at and watches the filters of the module from a command line.
//!
//! A subcommand is a file (or a folder) here: its options, and `run`. What they share is in [`connect`] (servers),
//! [`info`] and [`scan`] (what a server knows of its filters), [`output`] and [`error`].

mod build;
mod completions;
mod connect;
mod error;
mod exporter;
mod files;
mod info;
mod inspect;
mod items;
mod load;
mod output;
mod pieces;
mod plan;
mod progress;
mod pull;
mod push;
mod reserve;
mod scan;
mod test;
mod top;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

const EXIT_CODES: &str = "\
Exit codes:
    0  it is done, or the answer is yes
    1  the answer is no, or the data is damaged
    2  the command line, or a file that it names, is not usable
    3  the server refused, or could not be reached
  130  interrupted

Examples:
  bloomery plan -n 10M -e 1%                    # what will it cost?
  bloomery load users ids.txt -n 10M -e 1%      # make it and fill it
  bloomery test users ada                       # is it in?
  bloomery top                                  # how are they all?";

/// Bloom and cuckoo filters in Redis and Valkey, from the command line.
#[derive(Parser)]
#[command(name = "bloomery", version, arg_required_else_help = true, max_term_width = 100, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Plan(plan::Options),
    Build(build::Options),
    Load(load::Options),
    Push(push::Options),
    Pull(pull::Options),
    Inspect(inspect::Options),
    Test(test::Options),
    Top(top::Options),
    Exporter(exporter::Options),
    Completions(completions::Options),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Plan(options) => plan::run(&options),
        Command::Build(options) => build::run(&options),
        Command::Load(options) => load::run(&options),
        Command::Push(options) => push::run(&options),
        Command::Pull(options) => pull::run(&options),
        Command::Inspect(options) => inspect::run(&options),
        Command::Test(options) => test::run(&options),
        Command::Top(options) => top::run(&options),
        Command::Exporter(options) => exporter::run(options),
        Command::Completions(options) => completions::run(&options),
    };
    match result {
        Ok(outcome) => outcome.into(),
        Err(error) => error::report(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
