//! `bloomery push`: a filter file into a server.

use crate::connect::{Connection, Server};
use crate::error::{Failure, Outcome};
use crate::items::open_file;
use crate::load::tag;
use crate::output::{self, bytes, key};
use crate::pieces::{Pieces, read_file};
use crate::progress::{self, Pace, Progress};
use crate::scan::KeyType;
use anyhow::Context;
use bloomery::{Filter, HashKind, Seed};
use serde::Serialize;
use std::io::{BufReader, Write};
use std::path::PathBuf;
use std::time::Instant;

/// Put a filter file into a server, in one step for those who use the key.
///
/// The file is checked first. Its pieces then go to a temporary key in the same slot, which takes the place of KEY when
/// it is complete: until then tests are answered by the old filter, from then on by the new one. Items that are added to
/// the old one meanwhile are not in the new one. The key keeps its time to live.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery push words.bloom words
  bloomery push tonight.bloom denied --replace            # under live traffic
  bloomery push tonight.bloom denied --replace --ttl 90000")]
pub(crate) struct Options {
    /// The filter file
    file: PathBuf,

    /// The key
    key: String,

    /// Replace the filter that the key holds
    #[arg(long)]
    replace: bool,

    /// Time to live of the key, in seconds, instead of what it has; 0 is none
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<u64>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pace: Pace,

    #[command(flatten)]
    server: Server,
}

/// Puts the temporary key in the place of the other, with its time to live, if it may.
///
/// KEYS: from, to. ARGV: whether to replace, the time to live in ms (-1 to keep it), the types that may be replaced.
const SWAP: &str = "\
local held = redis.call('TYPE', KEYS[2]).ok
if held ~= 'none' then
  if ARGV[1] == '0' then return redis.error_reply('the key exists; --replace replaces it') end
  local is_filter = false
  for i = 3, #ARGV do is_filter = is_filter or held == ARGV[i] end
  if not is_filter then return redis.error_reply('the key holds a ' .. held .. ', which is not replaced by a filter') end
end
local expires = redis.call('PEXPIRETIME', KEYS[2])
redis.call('RENAME', KEYS[1], KEYS[2])
if ARGV[2] == '-1' then
  if expires > 0 then redis.call('PEXPIREAT', KEYS[2], expires) end
elseif ARGV[2] ~= '0' then
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
end
return held";

#[derive(Serialize)]
struct Report {
    file: PathBuf,
    key: String,
    replaced: bool,
    bytes: u64,
    seconds: f64,
}

/// Pushes.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let value = read_file(&options.file)?;
    let load = if matches!(value, Filter::Cuckoo(_)) { "CF.LOADCHUNK" } else { "BF.LOADCHUNK" };
    // Its cells are not needed any more.
    drop(value);
    let length = std::fs::metadata(&options.file).map(|metadata| metadata.len()).ok();
    let mut connection = options.server.connect()?;
    let name = options.key.as_bytes();
    refuse_early(&mut connection, name, options.replace)?;
    let temporary = temporary_key(name, "push")?;
    let interrupted = progress::interrupted()?;
    let mut progress = Progress::new(&options.pace, length, 0);
    let file = open_file(&options.file)?;
    let mut pieces = Pieces::new(BufReader::with_capacity(1 << 18, file));
    let mut sent = 0;
    while let Some(piece) = pieces.next()? {
        if interrupted.is_set() {
            progress.finish();
            eprintln!("bloomery: interrupted; {} is as it was", key(name));
            return Ok(Outcome::Interrupted);
        }
        redis::cmd(load)
            .arg(&temporary)
            .arg(piece.iterator())
            .arg(&piece.bytes)
            .query::<()>(&mut connection)
            .with_context(|| format!("{} is as it was", key(name)))?;
        sent += piece.bytes.len() as u64;
        progress.at(sent, 0);
    }
    progress.finish();
    let held = swap(&mut connection, options, &temporary).inspect_err(|_| {
        let _ = redis::cmd("UNLINK").arg(&temporary).query::<()>(&mut connection);
    })?;
    let report = Report {
        file: options.file.clone(),
        key: key(name),
        replaced: held != "none",
        bytes: sent,
        seconds: started.elapsed().as_secs_f64(),
    };
    if options.json {
        output::json(&report)?;
    } else {
        let what = if report.replaced { "replaced by" } else { "made of" };
        writeln!(
            std::io::stdout(),
            "{}: {what} {}, {}, in {:.1} s",
            report.key,
            options.file.display(),
            bytes(sent),
            report.seconds
        )?;
    }
    Ok(Outcome::Done)
}

/// Before anything is sent; the swap looks again.
fn refuse_early(connection: &mut Connection, name: &[u8], replace: bool) -> anyhow::Result<()> {
    let held: String = redis::cmd("TYPE").arg(name).query(connection)?;
    let text = if held == "none" || replace && is_filter(&held) {
        return Ok(());
    } else if replace {
        format!("{} holds a {held}, which is not replaced by a filter", key(name))
    } else {
        format!("{} exists; --replace replaces it", key(name))
    };
    Err(Failure::Usage(text).into())
}

fn is_filter(held: &str) -> bool {
    KeyType::ALL.iter().any(|known| known.name() == held)
}

fn swap(connection: &mut Connection, options: &Options, temporary: &[u8]) -> anyhow::Result<String> {
    let ttl = options.ttl.map_or_else(|| "-1".into(), |seconds| seconds.saturating_mul(1000).to_string());
    let mut command = redis::cmd("EVAL");
    command.arg(SWAP).arg(2).arg(temporary).arg(&options.key).arg(u8::from(options.replace)).arg(ttl);
    KeyType::ALL.iter().for_each(|known| {
        command.arg(known.name());
    });
    command
        .query(connection)
        .with_context(|| format!("the filter arrived, but did not take the place of {}", options.key))
}

/// A key in the same slot that nobody else has.
pub(crate) fn temporary_key(name: &[u8], purpose: &str) -> anyhow::Result<Vec<u8>> {
    let random = Seed::random(HashKind::Xxh3).map_err(|error| anyhow::anyhow!("no randomness: {error:?}"))?;
    let end = format!("}}:bloomery-{purpose}:{:x}", u128::from(random));
    Ok([b"{", tag(name), end.as_bytes()].concat())
}
