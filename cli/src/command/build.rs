//! `bloomery build`: makes a filter file from items, without a server.

use crate::error::{self, Failure, Outcome, fail};
use crate::filter::file;
use crate::filter::parts::{part_file, part_of, part_wanted};
use crate::input::{BatchLimits, Input, items_of};
use crate::interrupt;
use crate::output::file::NewFile;
use crate::output::progress::{Pace, Progress};
use crate::output::{self, bytes, count};
use anyhow::Context;
use bloomery::filter::LiveRef;
use bloomery::{Bloom, Cuckoo, Error, Filter, StaticBuilder};
use bloomery_plan::{Reserve, Static, Wanted};
use serde::Serialize;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Build a filter file from items, without a server. `bloomery push` uploads it.
///
/// The input may be larger than memory, but the filter must fit in memory. The file gets its name only when it is
/// complete. With --spread, each part gets a file of its own: FILTER.0-of-64, and so on. With --static, building needs
/// 33 bytes per item, and 39 with --static=ribbon.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery build words.bloom /usr/share/dict/words -n 200k -e 0.1%
  bloomery build urls.bloom urls.gz -n 100M -e 1% --nonscaling
  bloomery build ids.bloom users.csv --column id -n 5M -e 1%
  bloomery build denied.bloom --static denied.txt -e 0.4%
  bloomery build denied.bloom --static=ribbon denied.txt -e 1%
  bloomery build users.bloom ids.txt -n 1G -e 1% --spread 64   # 64 files, one for each part
  bloomery inspect words.bloom")]
pub(crate) struct Options {
    /// The filter file to write
    #[arg(value_name = "FILTER")]
    output: PathBuf,

    /// Replace the file if it exists
    #[arg(long)]
    replace: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    of_static: Static,

    /// Build one filter in N parts, to be spread over a cluster, with a file for each part
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    spread: Option<u16>,

    #[command(flatten)]
    input: Input,

    #[command(flatten)]
    reserve: Reserve,

    #[command(flatten)]
    pace: Pace,
}

/// Size of a batch. After each batch, progress is reported, and an interruption takes effect.
const BATCH: BatchLimits = BatchLimits { items: 65_536, bytes: 1 << 20 };

#[derive(Serialize)]
struct Report {
    file: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<u16>,
    items_read: u64,
    items_added: u64,
    blank_lines: u64,
    file_bytes: u64,
    seconds: f64,
}

/// A filter being built.
enum Builder {
    Bloom(Bloom),
    Cuckoo(Cuckoo),
    Static(StaticBuilder),
}

impl Builder {
    fn new(wanted: &Wanted) -> Result<Builder, Error> {
        Ok(match wanted {
            Wanted::Bloom(spec) if spec.is_static() => Builder::Static(StaticBuilder::with_spec(*spec)?),
            // The first generation of a window starts now, as on a server.
            Wanted::Bloom(spec) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Builder::Bloom(Bloom::new_since(*spec, u64::try_from(now.as_millis()).unwrap_or(0))?)
            }
            Wanted::Cuckoo(spec) => Builder::Cuckoo(Cuckoo::new(*spec)?),
        })
    }

    /// Adds an item. Returns whether it was absent before; always true for a cuckoo filter, and always false for a
    /// static one.
    fn add(&mut self, item: &[u8]) -> Result<bool, Error> {
        match self {
            Builder::Bloom(filter) => filter.insert(item),
            Builder::Cuckoo(filter) => filter.insert(item).map(|()| true),
            // The number of distinct items is known only once the filter is built.
            Builder::Static(builder) => builder.insert(item).map(|()| false),
        }
    }

    fn finish(self) -> Result<Filter, Error> {
        Ok(match self {
            Builder::Bloom(filter) => Filter::Bloom(filter),
            Builder::Cuckoo(filter) => Filter::Cuckoo(filter),
            Builder::Static(builder) => Filter::Bloom(builder.build()?),
        })
    }
}

/// A filter being built, or one part of it, and where its file will be.
struct Part {
    builder: Builder,
    path: PathBuf,
}

impl Part {
    fn new(options: &Options, number: usize) -> anyhow::Result<Part> {
        let whole = match options.of_static.layout {
            Some(layout) => Wanted::Bloom(options.reserve.wanted_static(layout)?),
            None => options.reserve.wanted()?,
        };
        let (wanted, path) = match options.spread.map(usize::from) {
            None => (whole, options.output.clone()),
            Some(parts) => (part_wanted(whole, parts)?, part_file(&options.output, number, parts)),
        };
        // A path that can't be written is refused now rather than after hours. The file isn't kept open: 1024 files
        // would be more than a process may have open.
        drop(NewFile::create(&path, options.replace)?);
        Ok(Part { builder: Builder::new(&wanted).map_err(refused)?, path })
    }
}

fn refused(error: Error) -> anyhow::Error {
    Failure::Usage(error.to_string()).into()
}

/// Builds the filter, and writes it unless interrupted.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let mut items = options.input.open()?;
    let count_of_parts = options.spread.map_or(1, usize::from);
    let mut parts =
        (0..count_of_parts).map(|part| Part::new(options, part)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut progress = Progress::new(&options.pace, items.length(), 0);
    let interrupted = interrupt::listen()?;
    let (mut read, mut added, mut blank) = (0u64, 0u64, 0u64);
    while let Some(batch) = items.next_batch(BATCH)? {
        for item in items_of(&batch.blob) {
            match parts[part_of(item, count_of_parts)].builder.add(item) {
                Ok(new) => added += u64::from(new),
                Err(error) => {
                    fail!(
                        Data,
                        "{error}, at item {} of {}; no file was written. Use a larger --capacity or a scaling filter",
                        count(read + 1),
                        options.input.name()
                    );
                }
            }
            read += 1;
        }
        blank += batch.blank;
        progress.at(batch.span.end, read);
        if interrupted.is_set() {
            progress.finish();
            error::note("interrupted; no file was written");
            return Ok(Outcome::Interrupted);
        }
    }
    progress.finish();
    let mut file_bytes = 0;
    for Part { builder, path } in parts {
        let filter = builder.finish().map_err(refused)?;
        if options.of_static.layout.is_some() {
            added += filter.live().map_or(0, LiveRef::items);
        }
        file_bytes += write(&path, options.replace, &filter)?;
    }
    let report = Report {
        file: options.output.clone(),
        parts: options.spread,
        items_read: read,
        items_added: added,
        blank_lines: blank,
        file_bytes,
        seconds: started.elapsed().as_secs_f64(),
    };
    let text = format!(
        "{}: {} of {} items were new, {}{}",
        report.file.display(),
        count(added),
        count(read),
        bytes(file_bytes),
        options.spread.map_or(String::new(), |parts| format!(" in {parts} files")),
    );
    output::report(&report, options.json, text).map(|()| Outcome::Done)
}

/// Writes the filter to a temporary file, and renames that to `path`. Returns the number of bytes written.
fn write(path: &Path, replace: bool, filter: &Filter) -> anyhow::Result<u64> {
    let file = NewFile::create(path, replace)?;
    let written = file::write(filter, BufWriter::with_capacity(1 << 16, file.as_file()))
        .with_context(|| format!("cannot write {}", path.display()))?;
    file.keep()?;
    Ok(written)
}
