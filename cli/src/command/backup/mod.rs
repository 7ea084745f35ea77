//! `bloomery backup`: saves the filters and sketches of a running server to a folder.

mod folder;
mod manifest;

pub(super) use folder::Backup;
pub(super) use manifest::Saved;

use super::migrate::failed::Failed;
use super::migrate::side::{Held, Key, Side};
use super::migrate::{Skipped, plural, said, skipped};
use super::pull::{Download, Pulled, PulledFormat};
use crate::error::{self, Aftermath, Outcome, fail};
use crate::interrupt::{self, Interrupted};
use crate::output::progress::{Pace, Progress};
use crate::output::{self, bytes, escaped};
use crate::server::connection::{Node, Server};
use crate::server::family::Family;
use anyhow::Context;
use folder::Incomplete;
use manifest::{FORMAT, Manifest, Origin, Unsaved};
use serde::Serialize;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Save the filters and sketches of a running server to a folder
///
/// Each key gets a file. The file manifest.json says which, and has the expiry times; SHA256SUMS has the checksums. The
/// program only reads from the server, a filter in pieces of about 1 MiB, and a sketch at once. Items added during the
/// run may or may not be in the files. The folder gets its name when it is complete; until then it is called
/// FOLDER.incomplete, and the next run with the same name empties it. The exit code is 1 if some keys couldn't be
/// saved.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery backup filters-2026-11-30
  bloomery backup users-only --match 'users:*' --cluster -u redis://node.example
  bloomery inspect filters-2026-11-30
  bloomery restore filters-2026-11-30 -u redis://other.example")]
pub(crate) struct Options {
    /// The folder to write, which must not exist
    folder: PathBuf,

    /// Save only keys that match this pattern, as in SCAN
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    r#match: String,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pace: Pace,

    #[command(flatten)]
    server: Server,
}

#[derive(Serialize)]
struct Report<'r> {
    folder: &'r PathBuf,
    keys: usize,
    bytes: u64,
    failed: &'r [Unsaved],
    skipped: &'r [Skipped],
    seconds: f64,
}

/// Number of attempts to search while slots move, and to download a filter that keeps changing its shape.
const TRIES: u32 = 5;

/// Maximum number of characters of a key's name in the name of its file.
const READABLE: usize = 40;

/// Saves all keys.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let server = options.server.clone().for_filters();
    // A server that can't be reached is reported before a folder is made.
    server.nodes()?;
    let folder = Incomplete::create(&options.folder)?;
    let mut searched = search(&server, &options.r#match)?;
    if !server.cluster && searched.iter_mut().any(|found| is_node(&mut found.side)) {
        error::note(
            "this backup has the keys of one node of a cluster; --cluster saves the other nodes' as well",
        );
    }
    let manifest = Manifest {
        format: FORMAT,
        program: env!("CARGO_PKG_VERSION").into(),
        began_ms: now(),
        ended_ms: 0,
        r#match: options.r#match.clone(),
        servers: searched.iter_mut().map(|found| Origin::of(&mut found.side, server.module())).collect(),
        keys: Vec::new(),
        failed: Vec::new(),
        skipped: searched.iter_mut().flat_map(|found| std::mem::take(&mut found.skipped)).collect(),
    };
    let length = searched.iter().flat_map(|found| &found.keys).map(|key| key.bytes).sum();
    let progress = Progress::new(&options.pace, Some(length), 0);
    let interrupted = interrupt::listen()?;
    let mut run = Run { folder, manifest, progress, done: 0, interrupted };
    let ended = searched.iter_mut().try_for_each(|found| run.save_all(&mut found.side, &found.keys));
    run.progress.finish();
    let left =
        format!("{} has a part of the backup: run this again, or delete it", run.folder.path.display());
    if run.interrupted.is_set() {
        error::note(&format!("interrupted; {left}"));
        return Ok(Outcome::Interrupted);
    }
    ended.with_context(|| Aftermath(left))?;
    run.manifest.ended_ms = now();
    run.folder.finish(&run.manifest)?;
    let Manifest { keys, failed, skipped, .. } = &run.manifest;
    let report = Report {
        folder: &options.folder,
        keys: keys.len(),
        bytes: keys.iter().map(|saved| saved.bytes).sum(),
        failed,
        skipped,
        seconds: started.elapsed().as_secs_f64(),
    };
    let outcome = if failed.is_empty() { Outcome::Done } else { Outcome::No };
    outcome.printed(print(&report, options.json))
}

/// Whether the server belongs to a cluster.
fn is_node(side: &mut Side) -> bool {
    let info = side.ask::<String>(redis::cmd("INFO").arg("server"));
    info.is_ok_and(|info| info.lines().any(|line| line == "redis_mode:cluster"))
}

/// A server, and what was found there.
struct Searched {
    side: Side,
    keys: Vec<Key>,
    skipped: Vec<Skipped>,
}

/// Searches every server. A key that moves from a server that is still to be searched to one that has been isn't found,
/// so if slots of a cluster move during a search, it is repeated, a few times and for as long as a reply may take.
fn search(server: &Server, pattern: &str) -> anyhow::Result<Vec<Searched>> {
    let started = Instant::now();
    for tries in 1.. {
        let before = server.slots_at_rest()?;
        let search = |Node { address, connection }| {
            let mut side = Side::new("server", address, connection);
            let skipped = skipped(&mut side, pattern)?;
            let keys = side.keys(pattern, None).with_context(|| side.to_string())?;
            Ok(Searched { side, keys, skipped })
        };
        let searched: anyhow::Result<Vec<_>> = server.nodes()?.into_iter().map(search).collect();
        // An error doesn't count if slots have moved: a node refuses commands for keys that it no longer has.
        if server.slots()? == Some(before) {
            return searched;
        }
        if tries >= TRIES && started.elapsed() >= server.reply_timeout() {
            break;
        }
    }
    fail!(Server, "slots of the cluster moved during every search, so keys could be missed; try again later")
}

/// A backup in progress.
struct Run {
    folder: Incomplete,
    manifest: Manifest,
    progress: Progress,
    /// Bytes of the keys that are done.
    done: u64,
    interrupted: Interrupted,
}

impl Run {
    /// Saves all keys of a server, unless the user interrupts.
    fn save_all(&mut self, side: &mut Side, keys: &[Key]) -> anyhow::Result<()> {
        // A slot that has moved may have left keys at its old node.
        let known: HashSet<String> = self.manifest.keys.iter().map(|saved| saved.key.clone()).collect();
        for key in keys.iter().filter(|key| !known.contains(&escaped(&key.name))) {
            let saved = self.save(side, key);
            if self.interrupted.is_set() {
                return Ok(());
            }
            match saved {
                Ok(saved) => self.manifest.keys.extend(saved),
                // It isn't a failure if the key has expired, or was deleted.
                Err(Failed::Filter(_) | Failed::ThisTime(_)) if !side.has(&key.name)? => {}
                Err(Failed::Filter(why) | Failed::ThisTime(why)) => {
                    self.manifest.failed.push(Unsaved { key: escaped(&key.name), why: said(&why) });
                }
                Err(Failed::Run(error)) => return Err(error),
            }
            self.done += key.bytes;
            self.progress.at(self.done, 0);
        }
        Ok(())
    }

    /// Saves a key. Returns `None` if it is gone, or after an interruption.
    fn save(&mut self, side: &mut Side, key: &Key) -> Result<Option<Saved>, Failed> {
        let expires: i64 = side.of_key("PEXPIRETIME", &key.name)?;
        let items = key.held.family().map(|family| side.items(family, &key.name)).transpose()?.flatten();
        let name = file_name(self.manifest.keys.len() + 1, key);
        let file = self.folder.file(&name)?;
        let is_whole = match key.held {
            Held::Filter(family) => self.download(side, family, &key.name, &file),
            Held::Sketch(_) => dump(side, &key.name, &file),
        };
        if !matches!(is_whole, Ok(true)) {
            self.folder.discard(&name)?;
            return is_whole.map(|_| None);
        }
        Ok(Some(Saved {
            key: escaped(&key.name),
            r#type: key.key_type.into(),
            bytes: self.folder.seal(&name, &file)?,
            file: name,
            items,
            expires_ms: u64::try_from(expires).ok(),
        }))
    }

    fn download(
        &mut self,
        side: &mut Side,
        family: &'static Family,
        name: &[u8],
        file: &File,
    ) -> Result<bool, Failed> {
        let (progress, done) = (&mut self.progress, self.done);
        let (format, interrupted) = (PulledFormat::Bloomery, &self.interrupted);
        let download = Download { family, name, format, tries: TRIES, interrupted };
        match download.run(&mut side.connection, file, |received| progress.at(done + received, 0))? {
            Pulled::Whole(_) => Ok(true),
            Pulled::Stopped => Ok(false),
            Pulled::Changed => Err(Failed::Filter(format!(
                "changed its shape during each of {TRIES} attempts; use bloomery pull --snapshot"
            ))),
        }
    }
}

/// Writes what DUMP returns. Returns false if the key is gone.
fn dump(side: &mut Side, name: &[u8], mut file: &File) -> Result<bool, Failed> {
    let Some(payload) = side.of_key::<Option<Vec<u8>>>("DUMP", name)? else { return Ok(false) };
    file.write_all(&payload).context("cannot write the file").map_err(Failed::Run)?;
    Ok(true)
}

/// The name of a key's file: a number, so that no two are the same, and what is harmless of the key's name.
fn file_name(number: usize, key: &Key) -> String {
    let is_harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let harmless = |&byte: &u8| if is_harmless(byte) { char::from(byte) } else { '_' };
    let readable: String = key.name.iter().take(READABLE).map(harmless).collect();
    let end = if key.held.family().is_some() { "bloom" } else { "dump" };
    format!("{number:06}-{readable}.{end}")
}

/// Unix time in milliseconds.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn print(report: &Report, json: bool) -> anyhow::Result<()> {
    if json {
        return output::json(report);
    }
    let mut out = io::stdout().lock();
    for Unsaved { key, why } in report.failed {
        writeln!(out, "{}: {why}", output::shorten(key, 100))?;
    }
    report.skipped.iter().try_for_each(|skipped| writeln!(out, "{skipped}"))?;
    let (folder, keys, size) =
        (report.folder.display(), plural(report.keys as u64, "key"), bytes(report.bytes));
    let failed = report.failed.len();
    writeln!(out, "{folder}: {keys}, {size}, {failed} not saved, in {:.1} s", report.seconds)?;
    Ok(())
}
