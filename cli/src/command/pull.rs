//! `bloomery pull`: downloads a filter from a server to a file.

use crate::error::{self, Failure, Outcome, fail};
use crate::filter::file;
use crate::interrupt::{self, Interrupted};
use crate::output::file::{keep, temporary};
use crate::output::progress::{Pace, Progress};
use crate::output::{self, Name, bytes, key};
use crate::server::connection::{Connection, Server};
use crate::server::family::Family;
use crate::server::info;
use crate::server::key::temporary_key;
use anyhow::Context;
use bloomery::Filter;
use bloomery::Summary;
use bloomery::wire::redisbloom::Loader;
use bloomery::wire::{DecodeError, Decoder, MAGIC};
use serde::Serialize;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::Instant;
use tempfile::NamedTempFile;

/// Download a filter from a server to a file.
///
/// The filter may be in use. Items added during the download may or may not be in the file. If the filter grows,
/// rotates or (a cuckoo filter) moves fingerprints, the download starts again. RedisBloom's cuckoo filters don't show
/// whether fingerprints have moved, so they are read twice, and must be the same both times. With --snapshot, the
/// server first copies the filter atomically. The file gets its name only when it is complete and has been checked.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery pull users users.bloom
  bloomery pull stock stock.bloom --snapshot --replace
  bloomery pull words words.guava --format original
  bloomery inspect users.bloom")]
pub(crate) struct Options {
    /// The key
    key: String,

    /// The filter file to write
    file: PathBuf,

    /// Have the server copy the filter first, which doubles its memory, and download the copy
    #[arg(long)]
    snapshot: bool,

    /// Format of the file: Bloomery's, or the original format of a filter that came from another system (not
    /// RedisBloom), as BF.IMPORT reads it
    #[arg(long, value_enum, default_value_t)]
    format: PulledFormat,

    /// Maximum number of attempts if the filter keeps changing its shape
    #[arg(long, value_name = "N", default_value_t = 5)]
    tries: u32,

    /// Replace the file if it exists
    #[arg(long)]
    replace: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pace: Pace,

    #[command(flatten)]
    server: Server,
}

/// The format of the file.
#[derive(clap::ValueEnum, Clone, Copy, Default, PartialEq)]
enum PulledFormat {
    /// Bloomery's
    #[default]
    Bloomery,
    /// The format of the system the filter came from
    Original,
}

#[derive(Serialize)]
struct Report {
    key: Name,
    file: PathBuf,
    kind: String,
    bytes: u64,
    seconds: f64,
}

/// Downloads the filter, or a copy of it, into a file.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let file = temporary(&options.file, options.replace)?;
    let mut connection = options.server.connect()?;
    let name = options.key.as_bytes();
    let filter = info::existing(&mut connection, name)?;
    if options.format == PulledFormat::Original && matches!(&*filter.origin, "bloomery" | "redisbloom") {
        fail!(Data, "{} has no format but Bloomery's: its origin is {}", key(name), filter.origin);
    }
    let interrupted = interrupt::listen()?;
    let pulled = if options.snapshot {
        let copy = temporary_key(name, "pull")?;
        let copied: bool = redis::cmd("COPY").arg(name).arg(&copy).query(&mut connection)?;
        if !copied {
            fail!(Data, "there is no filter {}", key(name));
        }
        let pulled = pull(options, &mut connection, &copy, &filter, &file, &interrupted);
        let removed = redis::cmd("UNLINK").arg(&copy).query::<()>(&mut connection);
        let pulled = pulled?;
        removed.with_context(|| format!("could not delete the copy {}", key(&copy)))?;
        pulled
    } else {
        pull(options, &mut connection, name, &filter, &file, &interrupted)?
    };
    let Some(length) = pulled else {
        error::note("interrupted; no file was written");
        return Ok(Outcome::Interrupted);
    };
    keep(file, &options.file, options.replace)?;
    let report = Report {
        key: Name::new(name),
        file: options.file.clone(),
        kind: filter.kind.into_owned(),
        bytes: length,
        seconds: started.elapsed().as_secs_f64(),
    };
    let Report { key, kind, seconds, .. } = &report;
    let path = options.file.display();
    let text = format!("{path}: {kind} filter {key}, {}, in {seconds:.1} s", bytes(length));
    output::report(&report, options.json, text).map(|()| Outcome::Done)
}

/// Downloads the filter into the file, in several attempts if needed. Returns the number of bytes written, or `None` if
/// the user interrupted.
fn pull(
    options: &Options,
    connection: &mut Connection,
    name: &[u8],
    filter: &Summary,
    file: &NamedTempFile,
    interrupted: &Interrupted,
) -> anyhow::Result<Option<u64>> {
    let mut progress = Progress::new(&options.pace, Some(filter.size), 0);
    let family = Family::of(filter);
    for _ in 0..options.tries.max(1) {
        let mut out = file.as_file();
        out.set_len(0)?;
        out.seek(SeekFrom::Start(0))?;
        match once(connection, (family, name), options.format, out, &mut progress, interrupted)? {
            Pulled::Whole(length) => {
                progress.finish();
                return Ok(Some(length));
            }
            Pulled::Stopped => {
                progress.finish();
                return Ok(None);
            }
            Pulled::Changed => {}
        }
    }
    progress.finish();
    fail!(
        Data,
        "{} changed its shape during each of {} attempts; use --snapshot",
        key(options.key.as_bytes()),
        options.tries
    )
}

enum Pulled {
    Whole(u64),
    /// The filter changed its shape during the download.
    Changed,
    Stopped,
}

fn once(
    connection: &mut Connection,
    (family, name): (&Family, &[u8]),
    format: PulledFormat,
    mut out: impl Write,
    progress: &mut Progress,
    interrupted: &Interrupted,
) -> anyhow::Result<Pulled> {
    let dump = family.command("SCANDUMP");
    let mut next = |iterator: u64| -> anyhow::Result<(u64, Vec<u8>)> {
        let (iterator, piece): (u64, Option<Vec<u8>>) =
            redis::cmd(&dump).arg(name).arg(iterator).query(connection)?;
        Ok((iterator, piece.unwrap_or_default()))
    };
    let (mut iterator, head) = next(0)?;
    let mut receiver = Receiver::new(family, &head, format)?;
    let mut length = receiver.write(&head, &mut out)?;
    let (mut first_pass, mut received) = (DefaultHasher::new(), head.len() as u64);
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
            result => {
                result.map_err(|error| Failure::Server(format!("the server sent damaged data: {error}")))?
            }
        }
        length += receiver.write(&piece, &mut out)?;
        (after, &piece).hash(&mut first_pass);
        received += piece.len() as u64;
        progress.at(received, 0);
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
    /// Bloomery's format. If the file is to have the same format, the pieces are written as they arrive. Otherwise the
    /// filter is written at the end.
    Native(Box<Decoder>, PulledFormat),
    /// RedisBloom's format. In a file, nothing would show where one of its pieces ends. So the filter is written in
    /// Bloomery's format at the end.
    RedisBloom(Box<Loader>),
}

impl Receiver {
    fn new(family: &Family, head: &[u8], format: PulledFormat) -> anyhow::Result<Receiver> {
        let receiver = if head.starts_with(&MAGIC) {
            Decoder::new(head).map(|decoder| Receiver::Native(Box::new(decoder), format))
        } else {
            (family.loader)(head).map(|loader| Receiver::RedisBloom(Box::new(loader)))
        };
        Ok(receiver.map_err(|error| Failure::Server(format!("the server sent a damaged head: {error}")))?)
    }

    fn push(&mut self, iterator: u64, piece: &[u8]) -> Result<(), DecodeError> {
        match self {
            Receiver::Native(decoder, _) => decoder.push(piece),
            Receiver::RedisBloom(loader) => loader.push(iterator.saturating_sub(1), piece),
        }
    }

    /// Whether fingerprints can move from a later piece to an earlier one without the pieces showing it.
    fn tells_no_moves(&self, family: &Family) -> bool {
        matches!(self, Receiver::RedisBloom(_)) && family.moves
    }

    fn write(&self, piece: &[u8], out: &mut impl Write) -> anyhow::Result<u64> {
        let Receiver::Native(_, PulledFormat::Bloomery) = self else { return Ok(0) };
        out.write_all(piece).context("cannot write the file")?;
        Ok(piece.len() as u64)
    }

    /// Verifies that the download is complete. Returns the filter if it still has to be written.
    fn finish(self) -> Result<Option<Filter>, DecodeError> {
        match self {
            Receiver::Native(decoder, PulledFormat::Bloomery) => decoder.finish().map(|_| None),
            Receiver::Native(decoder, PulledFormat::Original) => decoder.finish().map(Some),
            Receiver::RedisBloom(loader) => loader.finish().map(Some),
        }
    }
}
