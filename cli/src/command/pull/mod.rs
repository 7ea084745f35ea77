//! `bloomery pull`: downloads a filter from a server to a file.

mod download;

pub(super) use download::{Download, Pulled};

use crate::error::{self, Outcome, fail};
use crate::interrupt;
use crate::output::file::NewFile;
use crate::output::progress::{Pace, Progress};
use crate::output::{self, Name, bytes, key};
use crate::server::connection::Server;
use crate::server::family::Family;
use crate::server::info;
use crate::server::key::temporary_key;
use anyhow::Context;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

/// Download a filter from a server to a file.
///
/// The filter may be in use. Items added during the download may or may not be in the file. If the filter grows,
/// rotates or (a cuckoo filter) moves fingerprints, the download starts again. RedisBloom's cuckoo filters don't show
/// whether fingerprints have moved, so they are read twice, and must be the same both times. With --snapshot, the
/// server first copies the filter atomically. The file gets its name only when it is complete and undamaged.
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
pub(super) enum PulledFormat {
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
    let file = NewFile::create(&options.file, options.replace)?;
    let mut connection = options.server.connect()?;
    let name = options.key.as_bytes();
    let filter = info::existing(&mut connection, name)?;
    if options.format == PulledFormat::Original && matches!(&*filter.origin, "bloomery" | "redisbloom") {
        fail!(Data, "{} has no format but Bloomery's: its origin is {}", key(name), filter.origin);
    }
    let interrupted = interrupt::listen()?;
    let mut progress = Progress::new(&options.pace, Some(filter.size), 0);
    let mut pull = |connection: &mut _, name: &[u8]| {
        let (family, format) = (Family::of(&filter), options.format);
        let download = Download { family, name, format, tries: options.tries, interrupted: &interrupted };
        download.run(connection, file.as_file(), |received| progress.at(received, 0))
    };
    let pulled = if options.snapshot {
        let copy = temporary_key(name, "pull")?;
        let copied: bool = redis::cmd("COPY").arg(name).arg(&copy).query(&mut connection)?;
        if !copied {
            fail!(Data, "there is no filter {}", key(name));
        }
        let pulled = pull(&mut connection, &copy);
        let removed = redis::cmd("UNLINK").arg(&copy).query::<()>(&mut connection);
        let pulled = pulled?;
        removed.with_context(|| format!("could not delete the copy {}", key(&copy)))?;
        pulled
    } else {
        pull(&mut connection, name)?
    };
    progress.finish();
    let length = match pulled {
        Pulled::Whole(length) => length,
        Pulled::Changed => fail!(
            Data,
            "{} changed its shape during each of {} attempts; use --snapshot",
            key(name),
            options.tries
        ),
        Pulled::Stopped => {
            error::note("interrupted; no file was written");
            return Ok(Outcome::Interrupted);
        }
    };
    file.keep()?;
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
