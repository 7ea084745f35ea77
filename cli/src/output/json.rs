//! JSON for programs.

use serde::Serialize;
use std::io::{self, Write};

/// Prints one JSON document and a newline.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}
