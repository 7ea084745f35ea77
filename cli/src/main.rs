//! `bloomery`: plan, fill, move, inspect and monitor filters from the command line.
//!
//! cli/README.md describes how the sources are organised.

// The macros panic if the text can't be written: see `error::note`.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod arguments;
mod command;
mod error;
mod filter;
mod input;
mod interrupt;
mod output;
mod printable;
mod server;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use command::{
    backup, build, completions, exporter, inspect, load, man, migrate, plan, pull, push, rebuild, restore,
    stats, test, top,
};
use std::process::ExitCode;

const EXIT_CODES: &str = "\
Exit codes:
    0  success, or the answer is yes
    1  the answer is no: an item is absent (test), a file is damaged (inspect), a filter isn't there (migrate), a
       key wasn't saved (backup)
    2  the command line, a file or its data is not usable, or there is no such key
    3  the server refused the command, or could not be reached
  130  interrupted

Examples:
  bloomery plan -n 10M -e 1%                    # estimate the cost
  bloomery load users ids.txt -n 10M -e 1%      # create and fill a filter
  bloomery test users ada                       # test an item
  bloomery stats users                          # all that is known of a filter
  bloomery top                                  # monitor all filters";

/// Work with Bloom and cuckoo filters in Redis and Valkey from the command line.
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
    Rebuild(rebuild::Options),
    Push(push::Options),
    Pull(pull::Options),
    Backup(backup::Options),
    Restore(restore::Options),
    Migrate(migrate::Options),
    Inspect(inspect::Options),
    Test(test::Options),
    Stats(stats::Options),
    Top(top::Options),
    Exporter(exporter::Options),
    Completions(completions::Options),
    #[command(hide = true)]
    Man(man::Options),
}

/// The command line. An environment variable that is empty counts as unset, because compose files set variables to
/// `${NAME:-}`.
fn command_line() -> clap::Command {
    let without_empty = |argument: clap::Arg| {
        match argument.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty()) {
            // An argument keeps the value that its variable had when it was made. No variable has an empty name.
            true => argument.env("").hide_env(true),
            false => argument,
        }
    };
    Arguments::command().mut_subcommands(|command| command.mut_args(without_empty))
}

fn main() -> ExitCode {
    let arguments = Arguments::from_arg_matches(&command_line().get_matches());
    let result = match arguments.unwrap_or_else(|error| error.exit()).command {
        Command::Plan(options) => plan::run(&options),
        Command::Build(options) => build::run(&options),
        Command::Load(options) => load::run(&options),
        Command::Rebuild(options) => rebuild::run(&options),
        Command::Push(options) => push::run(&options),
        Command::Pull(options) => pull::run(&options),
        Command::Backup(options) => backup::run(&options),
        Command::Restore(options) => restore::run(&options),
        Command::Migrate(options) => migrate::run(&options),
        Command::Inspect(options) => inspect::run(&options),
        Command::Test(options) => test::run(&options),
        Command::Stats(options) => stats::run(&options),
        Command::Top(options) => top::run(&options),
        Command::Exporter(options) => exporter::run(options),
        Command::Completions(options) => completions::run(&options, &mut Arguments::command()),
        Command::Man(options) => man::run(&options, Arguments::command()),
    };
    match result {
        Ok(outcome) => outcome.into(),
        Err(error) => error::report(&error),
    }
}
