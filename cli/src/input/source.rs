//! Opens files and stdin.

use crate::error::Failure;
use anyhow::Context;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes that are read at a time.
pub(super) const BUFFER: usize = 1 << 18;

/// Whether the path stands for stdin.
pub(super) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The name of the input in messages.
pub(super) fn name(path: &Path) -> String {
    if is_stdin(path) { "stdin".into() } else { path.display().to_string() }
}

/// Opens the file, or stdin, at this offset.
pub(super) fn source(path: &Path, offset: u64) -> anyhow::Result<Box<dyn Read + Send>> {
    if is_stdin(path) {
        let mut stdin = io::stdin();
        let skipped = io::copy(&mut Read::by_ref(&mut stdin).take(offset), &mut io::sink())?;
        reaches(skipped, offset, "stdin")?;
        return Ok(Box::new(stdin));
    }
    let mut file = open_file(path)?;
    if offset > 0 {
        reaches(file.metadata()?.len(), offset, &name(path))?;
        file.seek(SeekFrom::Start(offset))?;
    }
    Ok(Box::new(file))
}

/// Opens a file for reading.
pub(crate) fn open_file(path: &Path) -> anyhow::Result<File> {
    File::open(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Refuses an input that is shorter than what an earlier run has read of it.
pub(super) fn reaches(length: u64, offset: u64, name: &str) -> anyhow::Result<()> {
    if length >= offset {
        return Ok(());
    }
    let text =
        format!("{name} has {length} bytes, but {offset} were loaded before: it is not the same input");
    Err(Failure::Data(text).into())
}
