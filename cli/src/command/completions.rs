//! `bloomery completions`: scripts that complete the command line in a shell.

use crate::error::Outcome;
use clap_complete::Shell;
use std::io::Write;

/// Print a script that completes `bloomery` in your shell.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery completions bash > ~/.local/share/bash-completion/completions/bloomery
  bloomery completions zsh > ~/.zfunc/_bloomery         # a folder of your fpath
  bloomery completions fish > ~/.config/fish/completions/bloomery.fish")]
pub(crate) struct Options {
    /// The shell
    shell: Shell,
}

/// Prints the script for the command line of `program`.
pub(crate) fn run(options: &Options, program: &mut clap::Command) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, program, "bloomery", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(Outcome::Done)
}
