//! `bloomery rebuild`: builds a new filter from files while the old one serves, and then replaces the old one.

use super::load::backfill;
use crate::error::{self, Outcome, fail};
use crate::input::{Input, InputFormat, Items};
use crate::interrupt::{self, Interrupted};
use crate::output::progress::Pace;
use crate::output::{self, Name, bytes, count, key};
use crate::server::connection::Server;
use crate::server::family::Family;
use crate::server::info;
use anyhow::Context;
use bloomery::Summary;
use bloomery::filter::record::Word;
use bloomery_plan::parse_count;
use bloomery_plan::{Reserve, Static};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

/// Rebuild a filter from files, and swap it in.
///
/// The old filter serves until the new one is complete. Items that are added meanwhile go to both. Filter options that
/// are left out stay as they are. With --static, the key need not exist. If anything fails, or on Ctrl-C, the rebuild
/// is aborted, and the old filter stays.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery rebuild seen events.txt                          # a filter like the old one
  bloomery rebuild users users.csv --column id -n 20M       # a larger one
  bloomery rebuild denied denied.txt --static -e 0.4%       # built from the list, without adds
  bloomery rebuild denied list-*.txt --at-least 1M          # unless a list was cut off")]
#[command(mut_arg("timeout", |timeout| timeout.default_value("600")))]
pub(crate) struct Options {
    /// The filter's key
    key: String,

    /// Files with one item per line; - is stdin
    #[arg(default_value = "-", value_name = "FILE")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    of_static: Static,

    /// Keep the old filter if the files have fewer items than this [default: 1, and a tenth of the old filter's items]
    #[arg(long, value_name = "ITEMS", value_parser = parse_count)]
    at_least: Option<u64>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    format: InputFormat,

    #[command(flatten)]
    reserve: Reserve,

    #[command(flatten)]
    pace: Pace,

    #[command(flatten)]
    server: Server,
}

#[derive(Serialize)]
struct Report {
    key: Name,
    items_read: u64,
    blank_lines: u64,
    /// Number of items in the new filter, including those added during the rebuild.
    items: u64,
    bytes: u64,
    seconds: f64,
}

/// Rebuilds the filter, or leaves it unchanged.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let interrupted = interrupt::listen()?;
    let name = options.key.as_bytes();
    let words = options.reserve.begin(options.of_static.layout)?;
    // A file that can't be read is reported before anything is sent.
    let input = |file: &PathBuf| Input { file: file.clone(), format: options.format.clone() }.open();
    let items: Vec<Items> = options.files.iter().map(input).collect::<anyhow::Result<_>>()?;
    // Committing a static filter of 100 million items takes 10 s or more, so the timeout is longer than usual.
    let server = options.server.clone().for_filters();
    let old = info::describe(&mut server.connect()?, name)?;
    check(options, old.as_ref())?;
    let rebuild = Rebuild::begin(&server, name, &words)?;
    let filled = fill(options, &rebuild, items, &interrupted).and_then(|filled| {
        if options.at_least.is_none() && filled.is_some() {
            rebuild.check_size(old.map_or(0, |old| old.items))?;
        }
        Ok(filled)
    });
    let committed = match &filled {
        Ok(Some(_)) => rebuild.end("COMMIT"),
        _ => Ok(()),
    };
    if committed.is_err() || !matches!(filled, Ok(Some(_))) {
        let outcome = match rebuild.end("ABORT") {
            Ok(()) => Some(format!("the rebuild was aborted, and {} serves as before", key(name))),
            // COMMIT took effect, but its reply was lost.
            Err(_) if committed.is_err() && rebuild.is_in_place().unwrap_or(false) => None,
            Err(error) => {
                Some(format!("the rebuild of {} could not be aborted ({})", key(name), error::text(&error)))
            }
        };
        if let Some(outcome) = outcome {
            committed.and(filled).context(outcome.clone())?;
            error::note(&format!("interrupted: {outcome}"));
            return Ok(Outcome::Interrupted);
        }
    }
    let (items_read, blank_lines) = filled?.unwrap_or_default();
    let filter = rebuild.filter().with_context(|| format!("{} was rebuilt", key(name)))?.unwrap_or_default();
    let report = Report {
        key: Name::new(name),
        items_read,
        blank_lines,
        items: filter.items,
        bytes: filter.size,
        seconds: started.elapsed().as_secs_f64(),
    };
    let Report { key, seconds, .. } = &report;
    let (read, items, size) = (count(items_read), count(report.items), bytes(report.bytes));
    let blank = match blank_lines {
        0 => String::new(),
        lines => format!(" ({} empty lines skipped)", count(lines)),
    };
    let text =
        format!("{key}: rebuilt from {read} items{blank}, and has {items} now, {size}, in {seconds:.1} s");
    output::report(&report, options.json, text).map(|()| Outcome::Done)
}

/// Fails if the filter cannot be rebuilt.
fn check(options: &Options, filter: Option<&Summary>) -> anyhow::Result<()> {
    let name = key(options.key.as_bytes());
    match filter {
        None if options.of_static.layout.is_none() => fail!(
            Usage,
            "there is no filter {name}; create it with bloomery load, or make a static filter with --static"
        ),
        Some(filter) if Family::of(filter).rebuild.is_none() => {
            fail!(Usage, "{name} is a {} filter, which cannot be rebuilt", Family::of(filter).title)
        }
        Some(filter) if filter.rebuild.is_some() => fail!(
            Usage,
            "{name} is being rebuilt; BF.REBUILD {name} ABORT ends that, if no program goes on with it"
        ),
        _ => Ok(()),
    }
}

/// Adds the items of all inputs to the rebuild. Returns the number of items and the number of empty lines, or `None`
/// after an interruption. Fails if there are fewer items than `--at-least`.
fn fill(
    options: &Options,
    rebuild: &Rebuild,
    inputs: Vec<Items>,
    interrupted: &Interrupted,
) -> anyhow::Result<Option<(u64, u64)>> {
    let (mut read, mut blank) = (0, 0);
    for input in inputs {
        let (key, identity) = (options.key.as_bytes(), rebuild.identity.as_deref().unwrap_or_default());
        let (items, lines) = backfill(&options.server, key, identity, input, &options.pace, interrupted)?;
        if interrupted.is_set() {
            return Ok(None);
        }
        (read, blank) = (read + items, blank + lines);
    }
    let at_least = options.at_least.unwrap_or(1);
    if read < at_least {
        fail!(Data, "{} items were read, and --at-least is {}", count(read), count(at_least));
    }
    Ok(Some((read, blank)))
}

/// A rebuild that has begun. Each command has a connection of its own, because the server may close an idle connection.
struct Rebuild<'a> {
    server: &'a Server,
    key: &'a [u8],
    /// The identity of the new filter. Another rebuild of the key has a different identity.
    identity: Option<Word>,
}

impl<'a> Rebuild<'a> {
    /// Begins a rebuild. The caller has checked that no other one is running.
    fn begin(server: &'a Server, key: &'a [u8], words: &[String]) -> anyhow::Result<Rebuild<'a>> {
        let mut begin = redis::cmd("BF.REBUILD");
        let lost = match begin.arg(key).arg("BEGIN").arg(words).query::<()>(&mut server.connect()?) {
            Ok(()) => None,
            Err(error) if error.is_io_error() => Some(error),
            Err(error) => return Err(error.into()),
        };
        let rebuild = Rebuild { server, key, identity: None };
        // The identity is queried a second time if the first query fails: without it, this program can't abort the
        // rebuild.
        let identity = rebuild.running().or_else(|_| rebuild.running()).with_context(|| {
            format!(
                "it isn't known whether a rebuild of {} has begun; BF.REBUILD ABORT ends it",
                output::key(key)
            )
        })?;
        match lost {
            Some(error) if identity.is_none() => Err(error.into()),
            // Even if the reply to BEGIN was lost, the rebuild that is running now is this one.
            _ => Ok(Rebuild { identity, ..rebuild }),
        }
    }

    /// Identity of the rebuild that is running; `None` if there is none.
    fn running(&self) -> anyhow::Result<Option<Word>> {
        Ok(self.filter()?.and_then(|filter| Some(filter.rebuild?.identity)))
    }

    fn filter(&self) -> anyhow::Result<Option<Summary>> {
        Ok(info::describe(&mut self.server.connect()?, self.key)?)
    }

    /// Fails if the new filter has less than a tenth of the old one's items: its input was probably not the whole list.
    fn check_size(&self, old: u64) -> anyhow::Result<()> {
        let new = self.filter()?.and_then(|filter| Some(filter.rebuild?.items));
        match new {
            Some(new) if new < old.div_ceil(10) => {
                fail!(
                    Data,
                    "the new filter has {} items, less than a tenth of the old one's {}. If that is right, use --at-least 1",
                    count(new),
                    count(old)
                )
            }
            _ => Ok(()),
        }
    }

    /// Whether the new filter has replaced the old one.
    fn is_in_place(&self) -> anyhow::Result<bool> {
        Ok(self.identity.is_some() && self.filter()?.and_then(|filter| filter.identity) == self.identity)
    }

    /// Sends COMMIT or ABORT, unless another rebuild of the key is running. If none is running, the server's error says
    /// so.
    fn end(&self, word: &str) -> anyhow::Result<()> {
        let identity = self.identity.as_deref().unwrap_or_default();
        info::check_rebuild(&mut self.server.connect()?, self.key, identity)?;
        redis::cmd("BF.REBUILD").arg(self.key).arg(word).query::<()>(&mut self.server.connect()?)?;
        Ok(())
    }
}
