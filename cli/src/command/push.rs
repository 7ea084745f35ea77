//! `bloomery push`: uploads a filter file to a server.

use crate::arguments::parse_whole_seconds;
use crate::error::{self, Aftermath, Outcome, fail};
use crate::filter::file::{FilePieces, read_file};
use crate::filter::parts::{part_file, part_keys};
use crate::input::open_file;
use crate::interrupt::{self, Interrupted};
use crate::output::progress::{Pace, Progress};
use crate::output::{self, Name, bytes, key};
use crate::server::connection::{Connection, Server};
use crate::server::family::{Family, key_types};
use crate::server::key::temporary_key;
use anyhow::Context;
use bloomery::wire::LONGEST;
use redis::RedisError;
use serde::Serialize;
use std::io::BufReader;
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

/// Renames the temporary key to the filter's key, if this is allowed, and returns the type that the key had. The time
/// to live is set on the temporary key first, and the rename keeps it. So if the server refuses the time, the filter's
/// key is unchanged.
///
/// - `KEYS[1]` and `KEYS[2]`: the temporary key and the filter's key.
/// - `ARGV[1]`: `1` if an existing key may be replaced, else `0`.
/// - `ARGV[2]`: the time to live in milliseconds; `-1` to keep it, `0` for none.
/// - From `ARGV[3]`: the types of keys that may be replaced.
const SWAP: &str = "\
local held = redis.call('TYPE', KEYS[2]).ok
if held ~= 'none' then
  if ARGV[1] == '0' then return redis.error_reply('the key exists; use --replace to replace it') end
  local is_filter = false
  for i = 3, #ARGV do is_filter = is_filter or held == ARGV[i] end
  if not is_filter then return redis.error_reply('the key holds a ' .. held .. ', not a filter') end
end
redis.call('PERSIST', KEYS[1])
if ARGV[2] == '-1' then
  local expires = redis.call('PEXPIRETIME', KEYS[2])
  if expires > 0 then redis.call('PEXPIREAT', KEYS[1], expires) end
elseif ARGV[2] ~= '0' then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
redis.call('RENAME', KEYS[1], KEYS[2])
return held";

/// Milliseconds until a complete temporary key expires, in case the program ends before it renames or merges the key.
/// This is longer than any merge takes.
const ABANDONED_MS: u64 = 3_600_000;

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

/// A file and the key that it is for.
struct Upload {
    path: PathBuf,
    key: String,
    /// The command that loads the file.
    load: String,
}

impl Upload {
    /// Checks the file, and prepares its upload.
    fn new(options: &Options, path: PathBuf, key: String) -> anyhow::Result<Upload> {
        let family = Family::of_filter(&read_file(&path)?);
        if options.merge && !family.can_merge {
            fail!(Usage, "{} filters cannot be merged", family.title);
        }
        Ok(Upload { path, key, load: family.command("LOADCHUNK") })
    }

    /// The upload of each part, or the only upload if there are no parts.
    fn all(options: &Options) -> anyhow::Result<Vec<Upload>> {
        let Some(parts) = options.spread else {
            return Ok(vec![Upload::new(options, options.file.clone(), options.key.clone())?]);
        };
        let keys = part_keys(&options.key, parts)?.into_iter().enumerate();
        let file = |part| part_file(&options.file, part, usize::from(parts));
        keys.map(|(part, key)| Upload::new(options, file(part), key)).collect()
    }

    /// Uploads the file, and replaces the key or merges the file into it. Returns the type that the key had, or `None`
    /// if interrupted. Adds the number of bytes sent to `sent`.
    fn run(
        &self,
        options: &Options,
        connection: &mut Connection,
        interrupted: &Interrupted,
        sent: &mut u64,
        progress: &mut Progress,
    ) -> anyhow::Result<Option<String>> {
        let name = self.key.as_bytes();
        if interrupted.is_set() {
            return Ok(None);
        }
        if options.merge && std::fs::metadata(&self.path)?.len() <= LONGEST as u64 {
            let data = std::fs::read(&self.path)?;
            let held = merge(connection, &self.key, &[b"BLOB", &data])?;
            *sent += data.len() as u64;
            progress.at(*sent, 0);
            return Ok(Some(held));
        }
        let temporary = temporary_key(name, "push")?;
        let mut pieces = FilePieces::new(BufReader::with_capacity(1 << 18, open_file(&self.path)?));
        let mut upload = || -> anyhow::Result<Option<String>> {
            let (mut next, mut body_len) = (pieces.next()?, 0);
            while let Some(piece) = next {
                next = pieces.next()?;
                // LOADCHUNK expects 1 with the head, and with a chunk 1 plus where it ends.
                let end = match &next {
                    _ if piece.at == 0 => 0,
                    Some(after) => after.start(),
                    None => body_len,
                };
                if piece.at == 0 {
                    body_len = piece.body_len();
                }
                if interrupted.is_set() {
                    return Ok(None);
                }
                redis::cmd(&self.load)
                    .arg(&temporary)
                    .arg(end.saturating_add(1))
                    .arg(&piece.bytes)
                    .query::<()>(connection)
                    .with_context(|| format!("{} is unchanged", key(name)))?;
                *sent += piece.bytes.len() as u64;
                progress.at(*sent, 0);
            }
            // If this process ended now, nobody else would delete the key.
            redis::cmd("PEXPIRE").arg(&temporary).arg(ABANDONED_MS).query::<()>(connection)?;
            if !options.merge {
                return swap(connection, options, &self.key, &temporary).map(Some);
            }
            let held = merge(connection, &self.key, &[&temporary])?;
            // The merge is done. If removing the temporary key fails, the key expires.
            let _ = redis::cmd("UNLINK").arg(&temporary).query::<()>(connection);
            Ok(Some(held))
        };
        let held = upload();
        if !matches!(held, Ok(Some(_))) {
            give_up(connection, &self.load, &temporary);
        }
        held
    }
}

/// Checks all files, then uploads each of them to its key.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let uploads = Upload::all(options)?;
    let lengths =
        uploads.iter().map(|upload| std::fs::metadata(&upload.path).map(|metadata| metadata.len()).ok());
    let length = lengths.sum::<Option<u64>>();
    let mut connection = options.server.connect()?;
    for upload in &uploads {
        refuse_early(&mut connection, upload.key.as_bytes(), options.replace || options.merge)?;
    }
    let interrupted = interrupt::listen()?;
    let mut progress = Progress::new(&options.pace, length, 0);
    let (mut sent, mut had_filter) = (0, false);
    for (number, upload) in uploads.iter().enumerate() {
        let held = upload.run(options, &mut connection, &interrupted, &mut sent, &mut progress);
        if !matches!(held, Ok(Some(_))) {
            progress.finish();
        }
        let name = key(upload.key.as_bytes());
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

/// Removes what was uploaded: the load or, if it was complete, the temporary key. If this fails, the server drops the
/// load after five minutes, and the key after an hour.
fn give_up(connection: &mut Connection, load: &str, temporary: &[u8]) {
    // Nothing can be done about an error: probably the connection failed.
    let _ = redis::cmd(load).arg(temporary).arg(0).arg("").query::<()>(connection);
    let _ = redis::cmd("UNLINK").arg(temporary).query::<()>(connection);
}

/// Fails if the key exists and may not be changed. This happens before anything is sent; the server checks again at the
/// end.
fn refuse_early(connection: &mut Connection, name: &[u8], may_exist: bool) -> anyhow::Result<()> {
    let held: String = redis::cmd("TYPE").arg(name).query(connection)?;
    if held == "none" || may_exist && key_types().contains(&&*held) {
        return Ok(());
    }
    if may_exist {
        fail!(Usage, "{} holds a {held}, not a filter; delete it first", key(name));
    }
    fail!(Usage, "{} exists; use --replace to replace it", key(name))
}

/// Says whether the last command, which failed, has changed the key. If there was no reply, the server may have
/// executed the command.
fn state_after(error: &RedisError, name: &str) -> String {
    match error.is_io_error() {
        false => format!("{name} is unchanged"),
        true => format!("it isn't known whether {name} has changed"),
    }
}

/// Merges a source into the key, and returns the type that the key had. `source` is given as in BF.MERGE: a key, or
/// BLOB and a payload. If the server refuses, the key is unchanged.
fn merge(connection: &mut Connection, key: &str, source: &[&[u8]]) -> anyhow::Result<String> {
    let held = redis::cmd("TYPE").arg(key).query(connection)?;
    redis::cmd("BF.MERGE").arg(key).arg(source).query::<()>(connection).map_err(|error| {
        let state = state_after(&error, key);
        anyhow::Error::new(error).context(state)
    })?;
    Ok(held)
}

/// Ends the upload by renaming the temporary key; returns the type that the key had.
fn swap(
    connection: &mut Connection,
    options: &Options,
    key: &str,
    temporary: &[u8],
) -> anyhow::Result<String> {
    let ttl = options.ttl.map_or_else(|| "-1".into(), |seconds| seconds.saturating_mul(1000).to_string());
    let mut command = redis::cmd("EVAL");
    command.arg(SWAP).arg(2).arg(temporary).arg(key).arg(u8::from(options.replace)).arg(ttl);
    command.arg(key_types());
    command.query(connection).map_err(|error: RedisError| {
        let state = state_after(&error, key);
        anyhow::Error::new(error).context(format!("the filter was uploaded, but {state}"))
    })
}
