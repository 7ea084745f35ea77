//! `bloomery migrate`: copies the filters and sketches of one running server to another.

mod carry;
mod compare;
pub(super) mod failed;
pub(super) mod payload;
pub(super) mod side;

use crate::error::{Outcome, note};
use crate::interrupt;
use crate::output::progress::{Pace, Progress};
use crate::output::{self, Name, bytes, count, key, shorten};
use crate::printable::printable;
use crate::server::connection::Server;
use crate::server::family::Family;
use anyhow::Context;
use bloomery_plan::parse_count;
use carry::{Migration, Round, Rules};
use compare::{compare, items};
use failed::Failed;
use serde::Serialize;
use side::Side;
use std::collections::HashSet;
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

/// Copy the filters and sketches of a running server to another
///
/// The source may have RedisBloom, valkey-bloom or Bloomery; the target has Bloomery, or RedisBloom for the way back.
/// Their versions don't matter: filters can move from Redis 8 to Redis 7 or Valkey. The program only reads from the
/// source. At the end, it tests the same items on both sides. Filters that are already equal at the target are skipped.
/// So after an interruption, run the command again: it continues where it stopped. The exit code is 1 if some filters
/// couldn't be copied. docs/MOVING.md is the guide.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery migrate redis://old.example:6379 --host new.example
  bloomery migrate redis://old.example:6379/2 --host new.example --db 2 --match 'users:*' --dry-run
  BLOOMERY_SOURCE_PASSWORD=… BLOOMERY_PASSWORD=… bloomery migrate redis://old.example -u redis://new.example")]
#[command(mut_arg("timeout", |timeout| timeout.default_value("600")))]
pub(crate) struct Options {
    /// The source: redis://, rediss:// (TLS) or unix:// address
    source: String,

    /// ACL user at the source
    #[arg(long, env = "BLOOMERY_SOURCE_USER", value_name = "NAME")]
    source_user: Option<String>,

    /// Password at the source; prefer the environment, because other users can read the command line
    #[arg(long, env = "BLOOMERY_SOURCE_PASSWORD", hide_env_values = true, value_name = "PASSWORD")]
    source_password: Option<String>,

    /// Copy only keys that match this pattern, as in SCAN
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    r#match: String,

    /// Copy only Bloom filters, or only cuckoo filters
    #[arg(long = "type", value_name = "TYPE", value_parser = Family::parser())]
    family: Option<&'static Family>,

    /// Overwrite filters and sketches at the target that differ; without this option they stay, and count as failures
    #[arg(long)]
    replace: bool,

    /// How many times to copy a filter that clients keep changing before it counts as a failure
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Copy filters of this size or more in pieces of at most 16 MiB; a smaller filter is copied whole, while each
    /// server does nothing else
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    pieces_from: u64,

    /// Number of random items to test on both sides, for each filter. If the source can dump filters in pieces, their
    /// bits are compared: then at most as many as the filter has, and about a million for all filters
    #[arg(long, value_name = "N", default_value = "10000", value_parser = parse_count)]
    sample: u64,

    /// Also test the items of this file on both sides, one item on each line
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,

    /// Read the bytes of the --check file as they are: don't decompress gzip or zstd data, and accept what isn't text
    #[arg(long, requires = "check")]
    binary: bool,

    /// Say what would be done, without writing anything
    #[arg(long)]
    dry_run: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pace: Pace,

    #[command(flatten)]
    target: Server,
}

/// The outcome of the migration.
#[derive(Default, Serialize)]
struct Report {
    copied: usize,
    bytes: u64,
    equal_before: usize,
    failed: Vec<Trouble>,
    answers: u64,
    answers_yes: u64,
    /// Number of filters that no random item was tested in, because there are too many filters.
    unasked: u64,
    skipped: Vec<Skipped>,
    seconds: f64,
}

/// The keys of a type that is neither a filter's nor a sketch's.
#[derive(Serialize)]
pub(super) struct Skipped {
    r#type: String,
    keys: u64,
    /// The first of them.
    names: Vec<Name>,
}

#[derive(Serialize)]
struct Trouble {
    key: Name,
    why: String,
}

/// What a dry run says.
#[derive(Default, Serialize)]
struct Preview {
    filters: Vec<Previewed>,
    skipped: Vec<Skipped>,
}

#[derive(Serialize)]
struct Previewed {
    key: Name,
    kind: &'static str,
    bytes: u64,
    verdict: String,
}

/// Copies the filters, and compares them.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    options.check.as_deref().map(|file| items(file, options.binary)).transpose()?;
    let (user, password) = (options.source_user.clone(), options.source_password.clone());
    let source = options.target.of_another(&options.source, user, password).for_filters();
    let rules = Rules { replace: options.replace, pieces_from: options.pieces_from.saturating_mul(1 << 20) };
    let source = Side::connect("source", &source)?;
    let target = Side::connect("target", &options.target.clone().for_filters())?;
    let mut migration = Migration::new(source, target, rules, !options.dry_run)?;
    if options.dry_run {
        return dry_run(&mut migration, options);
    }
    let interrupted = interrupt::listen()?;
    let skipped = skipped(&mut migration.source, &options.r#match)?;
    let mut keys = Vec::new();
    let mut report = Report::default();
    for number in 0..=options.rounds {
        let is_last = number == options.rounds;
        keys = migration.source.keys(&options.r#match, options.family)?;
        let start = Instant::now();
        let total = keys.iter().map(|key| key.bytes).sum();
        let mut progress = Progress::new(&options.pace, Some(total), 0);
        let round = migration.round(&keys, !is_last, &interrupted, |bytes| progress.at(bytes, 0));
        progress.finish();
        let Round { unsettled, is_interrupted } = round?;
        if is_interrupted || interrupted.is_set() {
            note("interrupted. Run this again: it goes on where it stopped");
            return Ok(Outcome::Interrupted);
        }
        options.pace.note(&format!(
            "round {}: {}, {}, in {:.1} s",
            number + 1,
            plural(keys.len() as u64, "key"),
            bytes(total),
            start.elapsed().as_secs_f64()
        ));
        if unsettled > 0 && !is_last {
            continue;
        }
        let known = migration.failed.len();
        report = compare(&mut migration, &keys, options)?;
        // A filter that differs only now may have been written to since the round, so another round follows.
        if is_last || migration.failed.len() == known {
            break;
        }
    }
    let left: HashSet<&[u8]> = keys.iter().map(|key| &key.name[..]).collect();
    for name in migration.copied.keys().filter(|name| !left.contains(&name[..])) {
        note(&format!("{} is gone from the source since it was copied, and stays at the target", key(name)));
    }
    report.skipped = skipped;
    report.seconds = started.elapsed().as_secs_f64();
    let outcome = if report.failed.is_empty() { Outcome::Done } else { Outcome::No };
    outcome.printed(print(&report, options.json))
}

/// The keys at the source that are neither filters nor sketches.
pub(super) fn skipped(source: &mut Side, pattern: &str) -> anyhow::Result<Vec<Skipped>> {
    let others = source.others(pattern).with_context(|| source.to_string())?;
    Ok(others.into_iter().map(|(r#type, (keys, names))| Skipped { r#type, keys, names }).collect())
}

fn dry_run(migration: &mut Migration, options: &Options) -> anyhow::Result<Outcome> {
    let mut out = io::stdout().lock();
    let mut preview = Preview::default();
    for filter in migration.source.keys(&options.r#match, options.family)? {
        let difference = match migration.target.has(&filter.name)? {
            false => Ok(Some(None)),
            true => migration.difference(&filter).map(|difference| difference.map(Some)),
        };
        let verdict = match difference {
            Ok(None) => "is there, and equal".to_owned(),
            Ok(Some(None)) => "would be copied".to_owned(),
            Ok(Some(Some(difference))) if options.replace => {
                format!("would be overwritten; it differs: {difference}")
            }
            Ok(Some(Some(difference))) => format!("would be left; it differs: {difference}"),
            Err(Failed::Run(error)) => return Err(error),
            Err(Failed::Filter(why) | Failed::ThisTime(why)) => why,
        };
        let (verdict, kind, size) = (said(&verdict), filter.held.title(), filter.bytes);
        if options.json {
            let key = Name::new(&filter.name);
            preview.filters.push(Previewed { key, kind, bytes: size, verdict });
        } else {
            writeln!(out, "{}: {kind}, {}, {verdict}", key(&filter.name), bytes(size))?;
        }
    }
    preview.skipped = skipped(&mut migration.source, &options.r#match)?;
    if options.json {
        output::json(&preview)?;
    } else {
        preview.skipped.iter().try_for_each(|skipped| writeln!(out, "{skipped}"))?;
    }
    Ok(Outcome::Done)
}

/// What a server says, without its control characters, and not at any length.
pub(super) fn said(why: &str) -> String {
    shorten(&printable(why), 1000).into_owned()
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Skipped { r#type, keys, names } = self;
        write!(f, "skipped {} of type {type}: ", plural(*keys, "key"))?;
        let names: Vec<String> = names.iter().map(Name::to_string).collect();
        f.write_str(&names.join(", "))?;
        if names.len() as u64 == *keys { Ok(()) } else { f.write_str(", …") }
    }
}

fn print(report: &Report, json: bool) -> anyhow::Result<()> {
    if json {
        return output::json(report);
    }
    let mut out = io::stdout().lock();
    for Trouble { key, why } in &report.failed {
        writeln!(out, "{key}: {why}")?;
    }
    report.skipped.iter().try_for_each(|skipped| writeln!(out, "{skipped}"))?;
    let unasked = match report.unasked {
        0 => String::new(),
        unasked => format!("; no random item was tested in {}", plural(unasked, "filter")),
    };
    writeln!(
        out,
        "{} copied ({}), {} equal before, {} not at the target as they should be; {} answers compared, {} of them yes{unasked}",
        plural(report.copied as u64, "key"),
        bytes(report.bytes),
        report.equal_before,
        report.failed.len(),
        count(report.answers),
        count(report.answers_yes)
    )?;
    Ok(())
}

pub(super) fn plural(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}
