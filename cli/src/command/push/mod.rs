//! `bloomery push`: uploads a filter file to a server.

mod upload;

pub(super) use upload::{Expiry, Rules, Upload, refuse_early};

use crate::arguments::parse_whole_seconds;
use crate::error::{self, Aftermath, Outcome, fail};
use crate::filter::file::read_file;
use crate::filter::parts::{part_file, part_keys};
use crate::interrupt;
use crate::output::progress::{Pace, Progress};
use crate::output::{self, Name, bytes, key};
use crate::server::connection::Server;
use crate::server::family::{Family, key_types};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

/// Upload a filter file to a server, and replace the key atomically, or merge the file into it.
///
/// The program checks the file, uploads it to a temporary key in the same slot, and renames that to KEY when the upload
/// is complete. Until then, the old filter serves. Items added to the old filter during the upload are not in the new
/// one. The key keeps its time to live. With --merge, a file of up to 1 MiB is sent as one command. With --spread, use
/// the same FILE and KEY as with `bloomery build` and `bloomery load`; the parts are replaced one after the other.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery push words.bloom words
  bloomery push tonight.bloom denied --replace            # under live traffic
  bloomery push tonight.bloom denied --replace --ttl 90000
  bloomery push paris.bloom users --merge                 # the union of both
  bloomery push users.bloom users --cluster --spread 64   # what build --spread 64 has built")]
pub(crate) struct Options {
    /// The filter file
    file: PathBuf,

    /// The key
    key: String,

    /// Replace the filter if the key exists
    #[arg(long)]
    replace: bool,

    /// Add the items of the file to the filter in the key, with BF.MERGE and its rules
    #[arg(long, conflicts_with_all = ["replace", "ttl"])]
    merge: bool,

    /// Set the time to live of the key instead of keeping it: seconds, or with a unit as in 7d; 0 removes it
    #[arg(long, value_name = "TIME", value_parser = parse_ttl)]
    ttl: Option<u64>,

    /// Upload the N files of a filter in parts, each to the key of its part; KEY is the name of the whole
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    spread: Option<u16>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pace: Pace,

    #[command(flatten)]
    server: Server,
}

/// The longest time to live, in seconds (285,000 years). Servers refuse times that are not within 2^63 ms of 1970.
const MAX_TTL: u64 = 9_000_000_000_000;

fn parse_ttl(text: &str) -> Result<u64, String> {
    let seconds = parse_whole_seconds(text)?;
    if seconds <= MAX_TTL { Ok(seconds) } else { Err(format!("servers accept up to {MAX_TTL} seconds")) }
}

#[derive(Serialize)]
struct Report {
    file: PathBuf,
    key: Name,
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<u16>,
    replaced: bool,
    merged: bool,
    bytes: u64,
    seconds: f64,
}

fn rules(options: &Options) -> Rules {
    let expiry = match options.ttl {
        None => Expiry::Keep,
        Some(0) => Expiry::Never,
        Some(seconds) => Expiry::In(seconds.saturating_mul(1000)),
    };
    Rules { replace: options.replace, merge: options.merge, expiry }
}

/// Checks the file, and prepares its upload.
fn upload(options: &Options, path: PathBuf, key: String) -> anyhow::Result<Upload> {
    let family = Family::of_filter(&read_file(&path)?);
    if options.merge && !family.can_merge {
        fail!(Usage, "{} filters cannot be merged", family.title);
    }
    Ok(Upload { path, key: key.into_bytes(), family })
}

/// The upload of each part, or the only upload if there are no parts.
fn uploads(options: &Options) -> anyhow::Result<Vec<Upload>> {
    let Some(parts) = options.spread else {
        return Ok(vec![upload(options, options.file.clone(), options.key.clone())?]);
    };
    let keys = part_keys(&options.key, parts)?.into_iter().enumerate();
    let file = |part| part_file(&options.file, part, usize::from(parts));
    keys.map(|(part, key)| upload(options, file(part), key)).collect()
}

/// Checks all files, then uploads each of them to its key.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let uploads = uploads(options)?;
    let lengths =
        uploads.iter().map(|upload| std::fs::metadata(&upload.path).map(|metadata| metadata.len()).ok());
    let length = lengths.sum::<Option<u64>>();
    let mut connection = options.server.connect()?;
    let types = key_types();
    for upload in &uploads {
        refuse_early(&mut connection, &upload.key, (options.replace || options.merge).then_some(&types))?;
    }
    let interrupted = interrupt::listen()?;
    let mut progress = Progress::new(&options.pace, length, 0);
    let (mut sent, mut had_filter) = (0, false);
    for (number, upload) in uploads.iter().enumerate() {
        let held = upload.run(rules(options), &mut connection, &interrupted, |bytes| {
            sent += bytes;
            progress.at(sent, 0);
        });
        if !matches!(held, Ok(Some(_))) {
            progress.finish();
        }
        let name = key(&upload.key);
        let before = format!("the {number} parts before {name} have what is in their files");
        let held = held.map_err(|why| if number == 0 { why } else { why.context(Aftermath(before.clone())) });
        let Some(held) = held? else {
            let before = if number == 0 { String::new() } else { format!("; {before}") };
            error::note(&format!("interrupted; {name} is unchanged{before}"));
            return Ok(Outcome::Interrupted);
        };
        had_filter |= held != "none";
    }
    progress.finish();
    let report = Report {
        file: options.file.clone(),
        key: Name::new(options.key.as_bytes()),
        parts: options.spread,
        replaced: !options.merge && had_filter,
        merged: options.merge && had_filter,
        bytes: sent,
        seconds: started.elapsed().as_secs_f64(),
    };
    let what = match &report {
        Report { merged: true, .. } => "merged with",
        Report { replaced: true, .. } => "replaced with",
        _ => "created from",
    };
    let text = format!(
        "{}: {what} {}{}, {}, in {:.1} s",
        report.key,
        options.file.display(),
        options.spread.map_or(String::new(), |parts| format!(" in {parts} files")),
        bytes(sent),
        report.seconds
    );
    output::report(&report, options.json, text).map(|()| Outcome::Done)
}
