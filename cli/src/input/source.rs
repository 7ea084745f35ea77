//! Reads files and stdin, and hashes the bytes of text that were used.

use super::text::{Form, Recognised, recognise};
use crate::error;
use anyhow::Context;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// Size of a read buffer, in bytes.
pub(super) const BUFFER: usize = 1 << 18;

/// Size at which an item with its line end, or a CSV record, is refused, in bytes. Up to three copies are in memory.
const LONGEST: usize = 16 << 20;

/// Whether the path stands for stdin.
fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The name of the input in messages.
pub(super) fn name(path: &Path) -> String {
    if is_stdin(path) { "stdin".into() } else { path.display().to_string() }
}

/// Opens a file for reading.
pub(crate) fn open_file(path: &Path) -> anyhow::Result<File> {
    File::open(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The text of an input, read from its start. A reader buffers more than it has used, so the bytes are kept here until
/// they are used and can be hashed.
pub(super) struct HashedInput {
    /// The input, until its first bytes are read.
    unread: Option<Box<dyn Read + Send>>,
    text: Box<dyn Read + Send>,
    form: Form,
    /// Length of the text in bytes, if known.
    length: Option<u64>,
    /// The hash of all bytes before `hashed`.
    hash: Xxh3,
    hashed: u64,
    /// Bytes that have been read but not hashed yet.
    held: Vec<u8>,
    used: u64,
    ended: bool,
}

impl HashedInput {
    /// Opens the file, or stdin. Refuses a file that isn't text. A pipe may deliver nothing for a long time, so it is
    /// examined only when its items are wanted.
    pub(super) fn open(path: &Path, form: Form) -> anyhow::Result<HashedInput> {
        if is_stdin(path) {
            if io::stdin().is_terminal() {
                error::note("reading items from the terminal; end with Ctrl-D, or see --help for files");
            }
            return Ok(HashedInput::unread(Box::new(io::stdin()), form));
        }
        let file = open_file(path)?;
        let metadata = file.metadata()?;
        let mut input = HashedInput::unread(Box::new(file), form);
        if metadata.is_file() {
            let is_compressed = input.begin().with_context(|| format!("cannot read {}", name(path)))?;
            input.length = (!is_compressed).then_some(metadata.len());
        }
        Ok(input)
    }

    fn unread(source: Box<dyn Read + Send>, form: Form) -> HashedInput {
        HashedInput {
            unread: Some(source),
            text: Box::new(io::empty()),
            form,
            length: None,
            hash: Xxh3::new(),
            hashed: 0,
            held: Vec::new(),
            used: 0,
            ended: false,
        }
    }

    /// Reads the first bytes, unless that was done before. Returns whether they begin compressed data.
    fn begin(&mut self) -> io::Result<bool> {
        let Some(source) = self.unread.take() else { return Ok(false) };
        let Recognised { text, is_compressed } = recognise(source, self.form)?;
        self.text = text;
        Ok(is_compressed)
    }

    /// Length of the text in bytes, if known.
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Whether the reader has seen the end of the input.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Bytes of text read so far.
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

    /// The bytes that have been read from this offset on, which must not be smaller than the one that was used last.
    pub(super) fn read_since(&self, offset: u64) -> &[u8] {
        let start = usize::try_from(offset.saturating_sub(self.hashed)).unwrap_or(usize::MAX);
        self.held.get(start..).unwrap_or_default()
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
        self.begin()?;
        self.hash_until(self.used);
        if self.held.len() >= LONGEST {
            let text = "an item has 16 MiB or more. End each item with a newline, or use --null or --column. It begins";
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{text} at byte {}", self.hashed),
            ));
        }
        // A terminal can deliver more data after an end of file.
        if self.ended {
            return Ok(0);
        }
        let count = self.text.read(buffer)?;
        self.ended = count == 0;
        self.held.extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}
