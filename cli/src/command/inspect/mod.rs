//! `bloomery inspect`: shows what is in a file, and whether it is intact.

mod folder;
pub(super) mod payload;
mod print;
mod rdb;
mod report;

use crate::error::{Failure, Outcome, fail};
use crate::filter::describe::describe;
use crate::filter::file;
use crate::input::open_file;
use crate::output::{self, Name};
use anyhow::Context;
use print::print;
use report::{Entry, Report};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Show what is in a filter file, a DUMP payload, an RDB file or a backup, and whether it is intact.
///
/// The program verifies all checksums, and loads every filter as a server would. Sketches are listed, and keys of
/// other types skipped. The exit code is 1 if anything is damaged.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery inspect users.bloom
  bloomery inspect /var/lib/redis/dump.rdb
  bloomery inspect filters-2026-11-30                       # the folder of a backup
  redis-cli --raw DUMP users | head -c -1 > users.dump && bloomery inspect users.dump
  bloomery inspect dump.rdb --json | jq '.filters[] | select(.filter.fill > 0.5) | .key'")]
pub(crate) struct Options {
    /// The file, or the folder of a backup
    file: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Inspects the file, and prints what is in it.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let report = inspect(&options.file)?;
    let damaged = report.error.is_some()
        || !report.problems.is_empty()
        || report.filters.iter().any(|entry| entry.error.is_some());
    let outcome = if damaged { Outcome::No } else { Outcome::Done };
    outcome.printed(if options.json { output::json(&report) } else { print(&report) })
}

fn inspect(path: &Path) -> anyhow::Result<Report> {
    if path.is_dir() {
        return folder::inspect(path);
    }
    let mut file = open_file(path)?;
    let mut magic = Vec::new();
    let cannot = || format!("cannot read {}", path.display());
    Read::by_ref(&mut file).take(6).read_to_end(&mut magic).with_context(cannot)?;
    file.seek(SeekFrom::Start(0)).with_context(cannot)?;
    let mut report = Report { file: path.to_owned(), format: "filter", checksum: true, ..Report::default() };
    let source = BufReader::with_capacity(1 << 18, file);
    if magic.starts_with(&bloomery::wire::MAGIC) {
        report.version = Some(bloomery::wire::VERSION.into());
        let (filter, error) = match file::read_filter(source) {
            Ok(value) => (Some(describe(&value)), None),
            Err(error) => (None, Some(damage(error)?)),
        };
        report.filters.push(Entry { error, filter, ..Entry::default() });
    } else if magic.starts_with(b"REDIS") || magic.starts_with(b"VALKEY") {
        report.format = "rdb";
        let filters = &mut report.filters;
        match rdb::walk(source, |found| filters.push(entry(found))) {
            Ok(file) => {
                report.version = Some(file.version);
                report.server = Some(file.server).filter(|server| !server.is_empty());
                report.keys = Some(file.keys);
                report.checksum = file.checked;
            }
            Err(error) => report.error = Some(damage(error)?),
        }
        // A server writes keys in arbitrary order.
        report.filters.sort_by(|a, b| (a.database, &a.key).cmp(&(b.database, &b.key)));
    } else {
        report.format = "dump";
        let mut all = Vec::new();
        BufReader::new(source).read_to_end(&mut all).with_context(cannot)?;
        let Some((version, found)) = payload::found(&all)? else {
            fail!(
                Data,
                "{} is not a filter file, an RDB file, or an intact DUMP payload of a filter or sketch",
                path.display()
            );
        };
        report.version = Some(version.into());
        report.filters.push(Entry { database: None, key: None, ..entry(found) });
    }
    Ok(report)
}

/// Returns the text of an error in the data. Passes on any other error, which ends the program.
fn damage(error: anyhow::Error) -> anyhow::Result<String> {
    match error.downcast_ref() {
        Some(Failure::Data(text)) => Ok(text.clone()),
        _ => Err(error),
    }
}

fn entry(found: rdb::Found) -> Entry {
    let (filter, error) = match &found.value {
        Some(Ok(value)) => (Some(describe(value)), None),
        Some(Err(error)) => (None, Some(error.to_string())),
        None => (None, None),
    };
    Entry {
        database: Some(found.database),
        key: Some(Name::new(&found.key)),
        key_type: Some(found.key_type),
        expires_ms: found.expires_ms,
        at_byte: found.at,
        error,
        filter,
    }
}
