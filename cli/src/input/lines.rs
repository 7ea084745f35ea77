//! Items from lines.

use super::source::BUFFER;
use std::io::{self, Read};

/// Reads lines of any length, without their ends: a NUL byte, or a newline with or without a carriage return before it.
pub(super) struct Lines {
    source: Box<dyn Read + Send>,
    terminator: u8,
    buffer: Vec<u8>,
    /// The part of the buffer that was read and not returned yet.
    from: usize,
    to: usize,
    /// Bytes after `from` that are known to contain no terminator.
    searched: usize,
    ended: bool,
}

impl Lines {
    pub(super) fn new(source: Box<dyn Read + Send>, terminator: u8) -> Lines {
        Lines { source, terminator, buffer: vec![0; BUFFER], from: 0, to: 0, searched: 0, ended: false }
    }

    /// The next line, and its length in the input.
    pub(super) fn next(&mut self) -> io::Result<Option<(&[u8], u64)>> {
        loop {
            let unseen = &self.buffer[self.from + self.searched..self.to];
            if let Some(index) = memchr::memchr(self.terminator, unseen) {
                let start = self.from;
                let end = start + self.searched + index;
                self.from = end + 1;
                self.searched = 0;
                let line = &self.buffer[start..end];
                let line =
                    if self.terminator == b'\n' { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
                return Ok(Some((line, (end + 1 - start) as u64)));
            }
            self.searched = self.to - self.from;
            if self.ended {
                // The last line may lack its terminator.
                let line = self.from..self.to;
                self.from = self.to;
                self.searched = 0;
                let length = line.len() as u64;
                return Ok((length > 0).then(|| (&self.buffer[line], length)));
            }
            self.fill()?;
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
                    self.ended = read == 0;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
