//! `bloomery migrate`: copies the filters of one running server to another.

mod carry;
mod failed;
mod payload;
mod side;

use crate::error::{Failure, Outcome, note};
use crate::input::{BatchLimits, Input, InputFormat, Items, items_of};
use crate::interrupt;
use crate::output::progress::{Pace, Progress};
use crate::output::{self, bytes, count, key};
use crate::server::connection::Server;
use crate::server::family::Family;
use bloomery::{HashKind, Seed};
use bloomery_plan::parse_count;
use carry::{Migration, Round, Rules};
use failed::Failed;
use serde::Serialize;
use side::{Key, Side};
use std::collections::HashSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Copy the filters of a running server to another
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

    /// Overwrite filters at the target that differ; without this option they stay, and count as failures
    #[arg(long)]
    replace: bool,

    /// How many times to copy a filter that clients keep changing before it counts as a failure
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Copy filters of this size or more in pieces of at most 16 MiB; a smaller filter is copied whole, while each
    /// server does nothing else
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    pieces_from: u64,

    /// Number of random items to test on both sides, for each filter
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

/// Number of items in one query.
const BATCH: usize = 1000;

/// The outcome of the migration.
#[derive(Default, Serialize)]
struct Report {
    copied: usize,
    bytes: u64,
    equal_before: usize,
    failed: Vec<Trouble>,
    answers: u64,
    answers_yes: u64,
    seconds: f64,
}

#[derive(Serialize)]
struct Trouble {
    key: String,
    why: String,
}

/// Copies the filters, and compares them.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    options.check.as_deref().map(|file| items(file, options.binary)).transpose()?;
    let (user, password) = (options.source_user.clone(), options.source_password.clone());
    let source = options.target.of_another(&options.source, user, password).patient();
    let rules = Rules { replace: options.replace, pieces_from: options.pieces_from.saturating_mul(1 << 20) };
    let source = Side::connect("source", &source)?;
    let target = Side::connect("target", &options.target.clone().patient())?;
    let mut migration = Migration::new(source, target, rules, !options.dry_run)?;
    if options.dry_run {
        return dry_run(&mut migration, options);
    }
    let interrupted = interrupt::listen()?;
    let mut keys = Vec::new();
    let mut report = Report::default();
    for number in 0..=options.rounds {
        let is_last = number == options.rounds;
        keys = migration.source.filters(&options.r#match, options.family)?;
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
            filters(keys.len()),
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
    report.seconds = started.elapsed().as_secs_f64();
    print(&report, options.json)?;
    Ok(if report.failed.is_empty() { Outcome::Done } else { Outcome::No })
}

/// Tests the same items on both sides, for every filter that both sides have.
fn compare(migration: &mut Migration, keys: &[Key], options: &Options) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let mut progress = Progress::new(&options.pace, Some(keys.iter().map(|key| key.bytes).sum()), 0);
    let mut done = 0;
    for key in keys {
        progress.at(done, 0);
        done += key.bytes;
        if migration.failed.contains_key(&key.name) {
            continue;
        }
        let mut compared = Ok(());
        batches(options, |items| {
            compared = migration.check(key, &items).map(|yes| {
                report.answers += items.len() as u64;
                report.answers_yes += yes;
            });
            compared.is_ok()
        })?;
        let compared = match compared {
            Ok(()) => migration.different_field(key).and_then(|field| match field {
                Some(field) => Err(Failed::Filter(field)),
                None => Ok(()),
            }),
            failed => failed,
        };
        match compared {
            Ok(()) => {}
            Err(Failed::Run(error)) => return Err(error),
            // It isn't a failure if a filter has since been deleted at the source.
            Err(Failed::Filter(why) | Failed::ThisTime(why)) if migration.source.has(&key.name)? => {
                migration.failed.insert(key.name.clone(), why);
            }
            Err(_) => {}
        }
    }
    progress.finish();
    let good = || keys.iter().filter(|key| !migration.failed.contains_key(&key.name));
    report.copied = good().filter(|key| migration.copied.contains_key(&key.name)).count();
    report.bytes = good().filter_map(|key| migration.copied.get(&key.name)).sum();
    report.equal_before = good().count() - report.copied;
    report.failed =
        migration.failed.iter().map(|(name, why)| Trouble { key: key(name), why: why.clone() }).collect();
    Ok(report)
}

/// Calls `ask` with batches of the items to test, until it returns false.
///
/// The random items are almost certainly absent. So if all answers agree, both sides almost certainly have the same
/// bits.
fn batches(options: &Options, mut ask: impl FnMut(Vec<Vec<u8>>) -> bool) -> anyhow::Result<()> {
    let random = Seed::random(HashKind::Xxh3).map_err(|error| anyhow::anyhow!("no randomness: {error:?}"))?;
    let first = u128::from(random);
    let item = |number: u64| format!("{:032x}", first.wrapping_add(number.into())).into_bytes();
    let mut next = 0;
    while next < options.sample {
        let end = options.sample.min(next + BATCH as u64);
        if !ask((next..end).map(item).collect()) {
            return Ok(());
        }
        next = end;
    }
    let Some(file) = &options.check else { return Ok(()) };
    let mut lines = items(file, options.binary)?;
    while let Some(batch) = lines.next_batch(BatchLimits { items: BATCH as u64, bytes: 1 << 20 })? {
        if !ask(items_of(&batch.blob).map(<[u8]>::to_vec).collect()) {
            break;
        }
    }
    Ok(())
}

/// Opens the file with the items to test. It is read once for each filter.
fn items(file: &Path, binary: bool) -> anyhow::Result<Items> {
    if file.as_os_str() == "-" {
        return Err(Failure::Usage("--check needs a file, which can be read more than once".into()).into());
    }
    Input { file: file.to_owned(), format: InputFormat { binary, ..InputFormat::default() } }.open()
}

fn dry_run(migration: &mut Migration, options: &Options) -> anyhow::Result<Outcome> {
    let mut out = io::stdout().lock();
    for filter in migration.source.filters(&options.r#match, options.family)? {
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
        let family = filter.family.title;
        writeln!(out, "{}: {family}, {}, {verdict}", key(&filter.name), bytes(filter.bytes))?;
    }
    Ok(Outcome::Done)
}

fn print(report: &Report, json: bool) -> anyhow::Result<()> {
    if json {
        return output::json(report);
    }
    let mut out = io::stdout().lock();
    for Trouble { key, why } in &report.failed {
        writeln!(out, "{key}: {why}")?;
    }
    writeln!(
        out,
        "{} copied ({}), {} equal before, {} not at the target as they should be; {} answers compared, {} of them yes",
        filters(report.copied),
        bytes(report.bytes),
        report.equal_before,
        report.failed.len(),
        count(report.answers),
        count(report.answers_yes)
    )?;
    Ok(())
}

fn filters(number: usize) -> String {
    format!("{} {}", count(number as u64), if number == 1 { "filter" } else { "filters" })
}
