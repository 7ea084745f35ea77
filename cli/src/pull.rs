//! `bloomery pull`: a filter from a server into a file.

use crate::connect::{Connection, Server};
use crate::error::{Failure, Outcome};
use crate::files::{keep, temporary};
use crate::info::{self, FilterInfo};
use crate::output::{self, bytes, key};
use crate::progress::{self, Interrupted, Pace, Progress};
use crate::push::temporary_key;
use anyhow::Context;
use bloomery::Filter;
use bloomery::wire::redisbloom::Loader;
use bloomery::wire::{DecodeError, Decoder, Encoder, MAGIC};
use serde::Serialize;
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::Instant;
use tempfile::NamedTempFile;

/// Save a filter of a server in a file.
///
/// The filter may be in use. Items that are added while it is pulled may or may not be in the file; if it grows, rotates
/// or (a cuckoo filter) moves fingerprints meanwhile, it is pulled anew. --snapshot pulls a copy that the server makes in
/// one step. The file appears under its name only when it is whole, and has been checked.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery pull users users.bloom
  bloomery pull stock stock.bloom --snapshot --replace
  bloomery inspect users.bloom")]
pub(crate) struct Options {
    /// The key
    key: String,

    /// The filter file to make
    file: PathBuf,

    /// Let the server copy the filter first, which takes as much memory again, and pull the copy
    #[arg(long)]
    snapshot: bool,

    /// How often to begin anew when the filter changes its shape
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

#[derive(Serialize)]
struct Report {
    key: String,
    file: PathBuf,
    kind: String,
    bytes: u64,
    seconds: f64,
}

/// Pulls.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let file = temporary(&options.file, options.replace)?;
    let mut connection = options.server.connect()?;
    let name = options.key.as_bytes();
    let filter = info::describe(&mut connection, name)?
        .ok_or_else(|| Failure::Data(format!("there is no filter {}", key(name))))?;
    let interrupted = progress::interrupted()?;
    let pulled = if options.snapshot {
        let copy = temporary_key(name, "pull")?;
        let copied: bool = redis::cmd("COPY").arg(name).arg(&copy).query(&mut connection)?;
        if !copied {
            return Err(Failure::Data(format!("there is no filter {}", key(name))).into());
        }
        let pulled = pull(options, &mut connection, &copy, &filter, &file, &interrupted);
        let removed = redis::cmd("UNLINK").arg(&copy).query::<()>(&mut connection);
        let pulled = pulled?;
        removed.with_context(|| format!("the copy {} is left behind", key(&copy)))?;
        pulled
    } else {
        pull(options, &mut connection, name, &filter, &file, &interrupted)?
    };
    let Some(length) = pulled else {
        eprintln!("bloomery: interrupted; no file was made");
        return Ok(Outcome::Interrupted);
    };
    keep(file, &options.file, options.replace)?;
    let report = Report {
        key: key(name),
        file: options.file.clone(),
        kind: filter.kind,
        bytes: length,
        seconds: started.elapsed().as_secs_f64(),
    };
    if options.json {
        output::json(&report)?;
    } else {
        let Report { key, kind, seconds, .. } = &report;
        let path = options.file.display();
        writeln!(std::io::stdout(), "{path}: {kind} filter {key}, {}, in {seconds:.1} s", bytes(length))?;
    }
    Ok(Outcome::Done)
}

/// Writes the filter into the file, as often as it takes; `None` if the user stopped it.
fn pull(
    options: &Options,
    connection: &mut Connection,
    name: &[u8],
    filter: &FilterInfo,
    file: &NamedTempFile,
    interrupted: &Interrupted,
) -> anyhow::Result<Option<u64>> {
    let mut progress = Progress::new(&options.pace, Some(filter.size), 0);
    let dump = if filter.kind == "cuckoo" { "CF.SCANDUMP" } else { "BF.SCANDUMP" };
    for _ in 0..options.tries.max(1) {
        let mut out = file.as_file();
        out.set_len(0)?;
        out.seek(SeekFrom::Start(0))?;
        match once(connection, dump, name, out, &mut progress, interrupted)? {
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
    let text = format!(
        "{} changed its shape during each of {} tries; --snapshot pulls a copy",
        key(options.key.as_bytes()),
        options.tries
    );
    Err(Failure::Data(text).into())
}

enum Pulled {
    Whole(u64),
    /// The filter took another shape meanwhile.
    Changed,
    Stopped,
}

fn once(
    connection: &mut Connection,
    dump: &str,
    name: &[u8],
    mut out: impl Write,
    progress: &mut Progress,
    interrupted: &Interrupted,
) -> anyhow::Result<Pulled> {
    let mut next = |iterator: u64| -> anyhow::Result<(u64, Vec<u8>)> {
        let (iterator, piece): (u64, Option<Vec<u8>>) =
            redis::cmd(dump).arg(name).arg(iterator).query(connection)?;
        Ok((iterator, piece.unwrap_or_default()))
    };
    let (mut iterator, head) = next(0)?;
    let mut receiver = Receiver::new(dump, &head)?;
    let mut length = receiver.write(&head, &mut out)?;
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
        progress.at(after, 0);
        iterator = after;
    }
    match receiver.finish() {
        Ok(None) => Ok(Pulled::Whole(length)),
        Ok(Some(value)) => write_native(&value, out).map(Pulled::Whole),
        Err(DecodeError::Length(_)) => Ok(Pulled::Changed),
        Err(error) => Err(Failure::Server(format!("the server sent damaged data: {error}")).into()),
    }
}

/// Puts the pieces together, which also checks them.
enum Receiver {
    /// In our format: the pieces are the file.
    Native(Box<Decoder>),
    /// In RedisBloom's, which cannot tell its pieces apart in a file: it is written in ours at the end.
    RedisBloom(Box<Loader>),
}

impl Receiver {
    fn new(dump: &str, head: &[u8]) -> anyhow::Result<Receiver> {
        let receiver = if head.starts_with(&MAGIC) {
            Decoder::new(head).map(|decoder| Receiver::Native(Box::new(decoder)))
        } else {
            let loader = if dump == "CF.SCANDUMP" { Loader::cuckoo(head) } else { Loader::bloom(head) };
            loader.map(|loader| Receiver::RedisBloom(Box::new(loader)))
        };
        Ok(receiver.map_err(|error| Failure::Server(format!("the server sent a damaged head: {error}")))?)
    }

    fn push(&mut self, iterator: u64, piece: &[u8]) -> Result<(), DecodeError> {
        match self {
            Receiver::Native(decoder) => decoder.push(piece),
            Receiver::RedisBloom(loader) => loader.push(iterator.saturating_sub(1), piece),
        }
    }

    fn write(&self, piece: &[u8], out: &mut impl Write) -> anyhow::Result<u64> {
        if let Receiver::RedisBloom(_) = self {
            return Ok(0);
        }
        out.write_all(piece).context("cannot write the file")?;
        Ok(piece.len() as u64)
    }

    /// The filter, if it has yet to be written.
    fn finish(self) -> Result<Option<Filter>, DecodeError> {
        match self {
            Receiver::Native(decoder) => decoder.finish().map(|_| None),
            Receiver::RedisBloom(loader) => loader.finish().map(Some),
        }
    }
}

fn write_native(value: &Filter, mut out: impl Write) -> anyhow::Result<u64> {
    let (mut length, mut failed) = (0, None);
    Encoder::native(value).pieces(|piece| {
        if failed.is_none() {
            failed = out.write_all(piece).err();
            length += piece.len() as u64;
        }
    });
    match failed {
        None => Ok(length),
        Some(error) => Err(error).context("cannot write the file"),
    }
}
