//! `bloomery man`: manual pages, for packages of the program.

use crate::error::Outcome;
use anyhow::Context;
use std::path::PathBuf;

/// Write a manual page for `bloomery` and for each command
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Existing folder to write to
    folder: PathBuf,
}

/// Writes the manual pages of `program`: `bloomery.1`, `bloomery-plan.1`, and so on.
pub(crate) fn run(options: &Options, program: clap::Command) -> anyhow::Result<Outcome> {
    clap_mangen::generate_to(program, &options.folder)
        .with_context(|| format!("cannot write to {}", options.folder.display()))?;
    Ok(Outcome::Done)
}
