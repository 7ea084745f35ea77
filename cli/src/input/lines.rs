//! Items from lines.

use super::batch::Item;
use super::source::{BUFFER, HashedInput};
use std::io::{self, Read};

/// Reads lines of any length, and strips their line ends. `terminator` is a newline, which may follow a carriage
/// return, or a NUL byte.
pub(super) struct Lines {
    source: HashedInput,
    terminator: u8,
    buffer: Vec<u8>,
    /// The bytes of `buffer` from here to `to` have been read but not returned yet.
    from: usize,
    to: usize,
    /// Number of bytes after `from` that are known to contain no terminator.
    searched: usize,
    /// Offset of the next line.
    offset: u64,
}

impl Lines {
    pub(super) fn new(source: HashedInput, terminator: u8) -> Lines {
        Lines { source, terminator, buffer: vec![0; BUFFER], from: 0, to: 0, searched: 0, offset: 0 }
    }

    pub(super) fn source(&mut self) -> &mut HashedInput {
        &mut self.source
    }

    /// The next line; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Item<'_>>> {
        loop {
            let unseen = &self.buffer[self.from + self.searched..self.to];
            let (length, whole, is_open) = if let Some(index) = memchr::memchr(self.terminator, unseen) {
                let length = self.searched + index;
                (length, length + 1, false)
            } else if self.source.ended() {
                // The last line may lack its terminator.
                let length = self.to - self.from;
                if length == 0 {
                    return Ok(None);
                }
                (length, length, true)
            } else {
                self.searched = self.to - self.from;
                self.fill()?;
                continue;
            };
            let line = &self.buffer[self.from..self.from + length];
            self.from += whole;
            self.searched = 0;
            self.offset += whole as u64;
            let is_text = self.terminator == b'\n' && !is_open;
            let bytes = if is_text { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
            return Ok(Some(Item { bytes, end: self.offset, is_open }));
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.from..self.to, 0);
        self.to -= self.from;
        self.from = 0;
        if self.to == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        loop {
            match self.source.read(&mut self.buffer[self.to..]) {
                Ok(read) => {
                    self.to += read;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
