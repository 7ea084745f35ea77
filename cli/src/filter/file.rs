//! Filter files: one head, then chunks, as docs/FORMAT.md describes them.

use crate::error::Failure;
use crate::input::open_file;
use anyhow::Context;
use bloomery::Filter;
use bloomery::wire::{DecodeError, Decoder, Encoder, Export, MAGIC, MAX_CHUNK};
use std::io::{BufReader, Read, Write};
use std::path::Path;

/// Number of bytes before the fields of a head, and before the data of a chunk ([`PREFIX`]).
const ENVELOPE: usize = 24;
const PREFIX: usize = 20;

/// Position of the field with the length of the bytes that follow, in a head and in a chunk.
const LENGTH: std::ops::Range<usize> = 8..12;

/// Position of the field with the length of the body in a head.
const BODY_LENGTH: std::ops::Range<usize> = 12..20;

/// Maximum length of the fields of a head, in bytes. This is more than enough: a filter that is being rebuilt may have
/// 4096 layers or links, and its shadow 4096 layers. Each needs at most 64 bytes.
const MAX_HEAD: usize = 1 << 20;

/// The complete head, or a complete chunk.
pub(crate) struct FilePiece {
    /// Offset of the piece in the file.
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
}

impl FilePiece {
    /// Where in the body a chunk begins.
    pub(crate) fn start(&self) -> u64 {
        self.bytes.first_chunk().map_or(0, |start| u64::from_le_bytes(*start))
    }

    /// Length of the body that a head announces.
    pub(crate) fn body_len(&self) -> u64 {
        self.bytes.get(BODY_LENGTH).and_then(|length| length.try_into().ok()).map_or(0, u64::from_le_bytes)
    }
}

/// Reads the pieces of a file in order.
pub(crate) struct FilePieces<R> {
    source: R,
    at: u64,
}

impl<R: Read> FilePieces<R> {
    /// Reads pieces from `source`, which starts with a head.
    pub(crate) fn new(source: R) -> FilePieces<R> {
        FilePieces { source, at: 0 }
    }

    /// Returns the next piece; `None` at the end of the file.
    pub(crate) fn next(&mut self) -> anyhow::Result<Option<FilePiece>> {
        let (part, prefix, most) =
            if self.at == 0 { ("head", ENVELOPE, MAX_HEAD) } else { ("chunk", PREFIX, MAX_CHUNK) };
        let mut bytes = Vec::new();
        let read = self.source.by_ref().take(prefix as u64).read_to_end(&mut bytes)?;
        if read == 0 && self.at > 0 {
            return Ok(None);
        }
        if self.at == 0 && !bytes.starts_with(&MAGIC) {
            return Err(damaged(0, DecodeError::Magic));
        }
        let length =
            bytes.get(LENGTH).and_then(|length| length.try_into().ok()).map_or(0, u32::from_le_bytes);
        if read < prefix || length as usize > most {
            return Err(damaged(self.at, DecodeError::Length(part)));
        }
        if self.source.by_ref().take(length.into()).read_to_end(&mut bytes)? < length as usize {
            return Err(damaged(self.at, DecodeError::Length(part)));
        }
        let piece = FilePiece { at: self.at, bytes };
        self.at += piece.bytes.len() as u64;
        Ok(Some(piece))
    }
}

/// The error for damage at byte `at`.
fn damaged(at: u64, error: DecodeError) -> anyhow::Error {
    Failure::Data(format!("at byte {at}: {error}")).into()
}

/// Reads a filter, and verifies every checksum.
pub(crate) fn read_filter(source: impl Read) -> anyhow::Result<Filter> {
    let mut pieces = FilePieces::new(source);
    let head = pieces.next()?.ok_or_else(|| damaged(0, DecodeError::Length("head")))?;
    let mut decoder = Decoder::new(&head.bytes).map_err(|error| damaged(0, error))?;
    while let Some(piece) = pieces.next()? {
        decoder.push(&piece.bytes).map_err(|error| damaged(piece.at, error))?;
    }
    let end = pieces.at;
    decoder.finish().map_err(|error| damaged(end, error))
}

/// Reads the filter in a file.
pub(crate) fn read_file(path: &Path) -> anyhow::Result<Filter> {
    let file = open_file(path)?;
    read_filter(BufReader::with_capacity(1 << 18, file))
        .with_context(|| format!("{} is not a complete filter", path.display()))
}

/// Writes a filter in Bloomery's format; returns the number of bytes written.
pub(crate) fn write(filter: &Filter, mut out: impl Write) -> std::io::Result<u64> {
    let (mut written, mut failed) = (0, None);
    Encoder::native(filter).pieces(|piece| {
        if failed.is_none() {
            failed = out.write_all(piece).err();
            written += piece.len() as u64;
        }
    });
    failed.map_or_else(|| out.flush(), Err)?;
    Ok(written)
}

/// Writes a filter from another system in that system's format; returns the number of bytes written.
pub(crate) fn write_original(filter: &Filter, mut out: impl Write) -> std::io::Result<u64> {
    let export = match filter {
        Filter::Foreign(filter) => Export::new(filter),
        _ => None,
    };
    let export = export.ok_or_else(|| std::io::Error::other("the filter has no format but Bloomery's"))?;
    let mut written = 0;
    while written < export.len() {
        let piece = export.read(written, 1 << 20);
        out.write_all(&piece)?;
        written += piece.len() as u64;
    }
    out.flush()?;
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bloomery::{Bloom, Spec};

    fn file() -> Vec<u8> {
        // Two chunks: more than a MiB of cells.
        Encoder::new(&Bloom::new(Spec::fixed(1_000_000, 0.001)).unwrap()).to_vec()
    }

    #[test]
    fn damage_is_found_and_its_place_named() {
        let bytes = file();
        assert!(read_filter(bytes.as_slice()).is_ok());
        let second = 24 + 136;
        let third = second + 20 + (1 << 20);
        for (place, text) in
            [(0, "at byte 0: not a"), (30, "at byte 0: wrong checksum"), (third + 100, "at byte 1048756: ")]
        {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1;
            let error = read_filter(damaged.as_slice()).unwrap_err();
            assert!(error.to_string().starts_with(text), "{error}");
            assert_eq!(crate::error::code(&error), 2);
        }
        for length in [0, 10, 24, second, second + 10, third, bytes.len() - 1] {
            assert!(read_filter(&bytes[..length]).is_err(), "{length}");
        }
        assert!(read_filter([bytes.as_slice(), b"x"].concat().as_slice()).is_err());
        assert!(read_filter([bytes.as_slice(), &bytes].concat().as_slice()).is_err());
    }
}
