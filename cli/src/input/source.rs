//! Reads files and stdin, and hashes the bytes that were used.

use crate::error;
use anyhow::Context;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// Size of a read buffer, in bytes.
pub(super) const BUFFER: usize = 1 << 18;

/// Whether the path stands for stdin.
fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The name of the input in messages.
pub(super) fn name(path: &Path) -> String {
    if is_stdin(path) { "stdin".into() } else { path.display().to_string() }
}

/// Length of the input in bytes, if known.
pub(super) fn length(path: &Path) -> Option<u64> {
    if is_stdin(path) {
        return None;
    }
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
}

/// Opens a file for reading.
pub(crate) fn open_file(path: &Path) -> anyhow::Result<File> {
    File::open(path).with_context(|| format!("cannot read {}", path.display()))
}

/// An input, read from its start. A reader buffers more than it has used, so the bytes are kept here until they are
/// used and can be hashed.
pub(super) struct HashedInput {
    input: Box<dyn Read + Send>,
    /// The hash of all bytes before `hashed`.
    hash: Xxh3,
    hashed: u64,
    /// Bytes that have been read but not hashed yet.
    held: Vec<u8>,
    used: u64,
    ended: bool,
}

impl HashedInput {
    /// Opens the file, or stdin.
    pub(super) fn open(path: &Path) -> anyhow::Result<HashedInput> {
        let input: Box<dyn Read + Send> =
            if is_stdin(path) { Box::new(io::stdin()) } else { Box::new(open_file(path)?) };
        if is_stdin(path) && io::stdin().is_terminal() {
            error::note("reading items from the terminal; end with Ctrl-D, or see --help for files");
        }
        Ok(HashedInput { input, hash: Xxh3::new(), hashed: 0, held: Vec::new(), used: 0, ended: false })
    }

    /// Whether the reader has seen the end of the input.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Bytes read so far.
    pub(super) fn read_so_far(&self) -> u64 {
        self.hashed + self.held.len() as u64
    }

    /// Marks everything before this offset as used.
    pub(super) fn use_until(&mut self, offset: u64) {
        self.used = offset;
    }

    /// The XXH3-64 of the bytes before this offset. These bytes must have been read, and the offset must not be smaller
    /// than in an earlier call.
    pub(super) fn digest(&mut self, offset: u64) -> u64 {
        self.hash_until(offset);
        self.hash.digest()
    }

    fn hash_until(&mut self, offset: u64) {
        let wanted = usize::try_from(offset.saturating_sub(self.hashed)).unwrap_or(usize::MAX);
        let count = wanted.min(self.held.len());
        self.hash.update(&self.held[..count]);
        self.held.drain(..count);
        self.hashed += count as u64;
    }
}

impl Read for HashedInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.hash_until(self.used);
        // A terminal can deliver more data after an end of file.
        if self.ended {
            return Ok(0);
        }
        let count = self.input.read(buffer)?;
        self.ended = count == 0;
        self.held.extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}
