//! Downloads a filter in pieces, and verifies them.

use super::PulledFormat;
use crate::error::Failure;
use crate::filter::file;
use crate::interrupt::Interrupted;
use crate::server::connection::Connection;
use crate::server::family::Family;
use anyhow::Context;
use bloomery::Filter;
use bloomery::wire::redisbloom::Loader;
use bloomery::wire::{Checker, DecodeError, Decoder, MAGIC};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Seek, SeekFrom, Write};

/// A filter to download.
pub(in crate::command) struct Download<'d> {
    pub(in crate::command) family: &'static Family,
    pub(in crate::command) name: &'d [u8],
    pub(in crate::command) format: PulledFormat,
    /// Maximum number of attempts if the filter changes its shape during the download.
    pub(in crate::command) tries: u32,
    pub(in crate::command) interrupted: &'d Interrupted,
}

/// How a download ended.
pub(in crate::command) enum Pulled {
    /// The file has this many bytes.
    Whole(u64),
    /// The filter changed its shape during the download.
    Changed,
    /// The user interrupted.
    Stopped,
}

impl Download<'_> {
    /// Downloads the filter into the file, in several attempts if needed. After each piece, calls `received` with the
    /// number of bytes of this attempt.
    pub(in crate::command) fn run(
        &self,
        connection: &mut Connection,
        mut file: &File,
        mut received: impl FnMut(u64),
    ) -> anyhow::Result<Pulled> {
        for _ in 0..self.tries.max(1) {
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            match self.once(connection, file, &mut received)? {
                Pulled::Changed => {}
                ended => return Ok(ended),
            }
        }
        Ok(Pulled::Changed)
    }

    fn once(
        &self,
        connection: &mut Connection,
        mut out: impl Write,
        received: &mut impl FnMut(u64),
    ) -> anyhow::Result<Pulled> {
        let &Download { family, name, format, interrupted, .. } = self;
        let dump = family.command("SCANDUMP");
        let mut next = |iterator: u64| -> anyhow::Result<(u64, Vec<u8>)> {
            let (iterator, piece): (u64, Option<Vec<u8>>) =
                redis::cmd(&dump).arg(name).arg(iterator).query(connection)?;
            Ok((iterator, piece.unwrap_or_default()))
        };
        let (mut iterator, head) = next(0)?;
        let mut receiver = Receiver::new(family, &head, format)?;
        let mut length = receiver.write(&head, &mut out)?;
        let (mut first_pass, mut position) = (DefaultHasher::new(), head.len() as u64);
        head.hash(&mut first_pass);
        loop {
            if interrupted.is_set() {
                return Ok(Pulled::Stopped);
            }
            let (after, piece) = next(iterator)?;
            if after == 0 {
                break;
            }
            match receiver.push(after, &piece) {
                Err(DecodeError::StampMismatch | DecodeError::Order { .. } | DecodeError::Length(_)) => {
                    return Ok(Pulled::Changed);
                }
                result => result
                    .map_err(|error| Failure::Server(format!("the server sent damaged data: {error}")))?,
            }
            length += receiver.write(&piece, &mut out)?;
            (after, &piece).hash(&mut first_pass);
            position += piece.len() as u64;
            received(position);
            iterator = after;
        }
        if receiver.tells_no_moves(family) {
            match digest_of(next, interrupted)? {
                None => return Ok(Pulled::Stopped),
                Some(second_pass) if second_pass != first_pass.finish() => return Ok(Pulled::Changed),
                Some(_) => {}
            }
        }
        match receiver.finish() {
            Ok(None) => Ok(Pulled::Whole(length)),
            Ok(Some(filter)) => {
                let written = match format {
                    PulledFormat::Bloomery => file::write(&filter, out),
                    PulledFormat::Original => file::write_original(&filter, out),
                };
                written.map(Pulled::Whole).context("cannot write the file")
            }
            Err(DecodeError::Length(_)) => Ok(Pulled::Changed),
            Err(error) => Err(Failure::Server(format!("the server sent damaged data: {error}")).into()),
        }
    }
}

/// The digest of all pieces of a download that `next` fetches, or `None` after an interruption.
fn digest_of(
    mut next: impl FnMut(u64) -> anyhow::Result<(u64, Vec<u8>)>,
    interrupted: &Interrupted,
) -> anyhow::Result<Option<u64>> {
    let mut digest = DefaultHasher::new();
    let (mut iterator, head) = next(0)?;
    head.hash(&mut digest);
    while iterator != 0 && !interrupted.is_set() {
        let (after, piece) = next(iterator)?;
        if after != 0 {
            (after, &piece).hash(&mut digest);
        }
        iterator = after;
    }
    Ok((!interrupted.is_set()).then(|| digest.finish()))
}

/// Assembles the pieces of a download, and verifies them.
enum Receiver {
    /// Bloomery's format, for a file of the same format: the pieces are written as they arrive, so a filter of any size
    /// needs the memory of one piece.
    Pieces(Checker),
    /// Bloomery's format, for a file of the original format, which is written at the end.
    Native(Box<Decoder>),
    /// RedisBloom's format. In a file, nothing would show where one of its pieces ends. So the filter is written in
    /// Bloomery's format at the end.
    RedisBloom(Box<Loader>),
}

impl Receiver {
    fn new(family: &Family, head: &[u8], format: PulledFormat) -> anyhow::Result<Receiver> {
        let receiver = match format {
            _ if !head.starts_with(&MAGIC) => {
                (family.loader)(head).map(|loader| Receiver::RedisBloom(Box::new(loader)))
            }
            PulledFormat::Bloomery => Checker::new(head).map(Receiver::Pieces),
            PulledFormat::Original => Decoder::new(head).map(|decoder| Receiver::Native(Box::new(decoder))),
        };
        Ok(receiver.map_err(|error| Failure::Server(format!("the server sent a damaged head: {error}")))?)
    }

    fn push(&mut self, iterator: u64, piece: &[u8]) -> Result<(), DecodeError> {
        match self {
            Receiver::Pieces(checker) => checker.push(piece, iterator.saturating_sub(1)),
            Receiver::Native(decoder) => decoder.push(piece),
            Receiver::RedisBloom(loader) => loader.push(iterator.saturating_sub(1), piece),
        }
    }

    /// Whether fingerprints can move from a later piece to an earlier one without the pieces showing it.
    fn tells_no_moves(&self, family: &Family) -> bool {
        matches!(self, Receiver::RedisBloom(_)) && family.moves
    }

    fn write(&self, piece: &[u8], out: &mut impl Write) -> anyhow::Result<u64> {
        let Receiver::Pieces(_) = self else { return Ok(0) };
        out.write_all(piece).context("cannot write the file")?;
        Ok(piece.len() as u64)
    }

    /// Verifies that the download is complete. Returns the filter if it still has to be written.
    fn finish(self) -> Result<Option<Filter>, DecodeError> {
        match self {
            Receiver::Pieces(checker) => checker.finish().map(|()| None),
            Receiver::Native(decoder) => decoder.finish().map(Some),
            Receiver::RedisBloom(loader) => loader.finish().map(Some),
        }
    }
}
