//! JSON for programs.

use serde::Serialize;
use std::io::{self, Write};

/// Prints a report: as JSON, or as a line of text.
pub(crate) fn report(report: &impl Serialize, as_json: bool, text: String) -> anyhow::Result<()> {
    if as_json {
        return json(report);
    }
    writeln!(io::stdout(), "{text}")?;
    Ok(())
}

/// Prints one JSON document and a newline.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}
