//! `bloomery restore`: puts the keys of a backup into a running server.

use super::backup::{Backup, Saved};
use super::migrate::payload::set_version;
use super::migrate::plural;
use super::migrate::side::{Held, Side};
use super::push::{Expiry, Rules, Upload, refuse_early};
use crate::error::{self, Aftermath, Failure, Outcome, fail};
use crate::interrupt::{self, Interrupted};
use crate::output::progress::{Pace, Progress};
use crate::output::{self, Name, bytes, key, unescaped};
use crate::server::connection::Server;
use crate::server::family::{Sketch, key_types};
use anyhow::Context;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

/// Put the keys of a backup into a running server
///
/// The program first checks the files, and which keys exist. If anything is wrong, it changes nothing. Then it uploads
/// one key after the other as `bloomery push` does, so each appears at once, with its expiry time. Keys that have
/// expired since the backup stay out.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery restore filters-2026-11-30
  bloomery restore filters-2026-11-30 users stock --replace
  bloomery restore filters-2026-11-30 users --as users-yesterday")]
pub(crate) struct Options {
    /// The folder that `bloomery backup` wrote
    folder: PathBuf,

    /// Restore only these keys, as manifest.json spells them
    keys: Vec<String>,

    /// Restore the key under this name
    #[arg(long, value_name = "NAME")]
    r#as: Option<String>,

    /// Replace keys that exist: a filter by a filter, a sketch by one of the same type
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

#[derive(Serialize)]
struct Report {
    folder: PathBuf,
    keys: u64,
    bytes: u64,
    /// Keys that have expired since the backup.
    expired: Vec<Name>,
    seconds: f64,
}

/// A key to restore.
struct Job {
    name: Vec<u8>,
    path: PathBuf,
    bytes: u64,
    held: Held,
    expires_ms: Option<u64>,
}

/// Checks everything, then restores the keys.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let backup = Backup::open(&options.folder)?;
    let jobs = jobs(&backup, options)?;
    let mut connection = options.server.connect()?;
    for job in &jobs {
        let types = match job.held {
            Held::Filter(_) => key_types(),
            Held::Sketch(sketch) => vec![sketch.key_type],
        };
        refuse_early(&mut connection, &job.name, options.replace.then_some(&types))?;
    }
    let address = options.server.address()?.addr().to_string();
    let mut side = Side::new("server", address, connection);
    let interrupted = interrupt::listen()?;
    let progress = Progress::new(&options.pace, Some(jobs.iter().map(|job| job.bytes).sum()), 0);
    let mut run = Run { replace: options.replace, progress, sent: 0, version: None, interrupted };
    let mut report =
        Report { folder: options.folder.clone(), keys: 0, bytes: 0, expired: Vec::new(), seconds: 0.0 };
    for job in &jobs {
        let before = format!("restored before {}: {}", key(&job.name), plural(report.keys, "key"));
        let restored = run.restore(&mut side, job);
        if !matches!(restored, Ok(Some(_))) {
            run.progress.finish();
        }
        let file = || format!("{} from {}", key(&job.name), job.path.display());
        match restored.with_context(file).with_context(|| Aftermath(before.clone()))? {
            None => {
                error::note(&format!("interrupted; {before}"));
                return Ok(Outcome::Interrupted);
            }
            Some(false) => report.expired.push(Name::new(&job.name)),
            Some(true) => {
                report.keys += 1;
                report.bytes += job.bytes;
            }
        }
    }
    run.progress.finish();
    report.seconds = started.elapsed().as_secs_f64();
    let expired = match report.expired.len() as u64 {
        0 => String::new(),
        expired => format!("{} had expired, ", plural(expired, "key")),
    };
    let (keys, size) = (plural(report.keys, "key"), bytes(report.bytes));
    let text =
        format!("{}: {keys} restored, {size}, {expired}in {:.1} s", report.folder.display(), report.seconds);
    output::report(&report, options.json, text).map(|()| Outcome::Done)
}

/// The keys to restore. Fails if a file isn't what the manifest says.
fn jobs(backup: &Backup, options: &Options) -> anyhow::Result<Vec<Job>> {
    let all = &backup.manifest.keys;
    for key in &options.keys {
        if !all.iter().any(|saved| saved.key == *key) {
            fail!(Data, "{} has no key {key}; see its manifest.json", options.folder.display());
        }
    }
    let chosen = |saved: &&Saved| options.keys.is_empty() || options.keys.contains(&saved.key);
    let chosen: Vec<&Saved> = all.iter().filter(chosen).collect();
    if options.r#as.is_some() && chosen.len() != 1 {
        fail!(Usage, "--as is for one key; name it after the folder");
    }
    let job = |saved: &Saved| {
        let damaged = |why| Failure::Data(format!("{}: {why}; nothing was restored", saved.key));
        let path = backup.file(saved).map_err(damaged)?;
        let held = Held::of_type(&saved.r#type);
        let held = held.ok_or_else(|| damaged(format!("its type, {}, is unknown", saved.r#type)))?;
        let name = unescaped(&saved.key).ok_or_else(|| damaged("this isn't the name of a key".into()))?;
        let name = options.r#as.as_ref().map_or(name, |name| name.as_bytes().to_vec());
        Ok(Job { name, path, bytes: saved.bytes, held, expires_ms: saved.expires_ms })
    };
    chosen.into_iter().map(job).collect()
}

/// A restore in progress.
struct Run {
    replace: bool,
    progress: Progress,
    sent: u64,
    /// An RDB version that the server reads, once it is known.
    version: Option<u16>,
    interrupted: Interrupted,
}

impl Run {
    /// Restores a key. Returns whether it did, or had expired, or `None` after an interruption.
    fn restore(&mut self, side: &mut Side, job: &Job) -> anyhow::Result<Option<bool>> {
        if job.expires_ms.is_some_and(|expires| expires <= side.now().unwrap_or(0)) {
            return Ok(Some(false));
        }
        if self.interrupted.is_set() {
            return Ok(None);
        }
        let family = match job.held {
            Held::Filter(family) => family,
            Held::Sketch(sketch) => return self.sketch(side, job, sketch).map(|()| Some(true)),
        };
        let upload = Upload { path: job.path.clone(), key: job.name.clone(), family };
        let expiry = job.expires_ms.map_or(Expiry::Never, Expiry::At);
        let rules = Rules { replace: self.replace, merge: false, expiry };
        let (progress, sent) = (&mut self.progress, &mut self.sent);
        let held = upload.run(rules, &mut side.connection, &self.interrupted, |bytes| {
            *sent += bytes;
            progress.at(*sent, 0);
        })?;
        Ok(held.map(|held| held != "expired"))
    }

    fn sketch(&mut self, side: &mut Side, job: &Job, sketch: &Sketch) -> anyhow::Result<()> {
        let mut payload = std::fs::read(&job.path)?;
        let version = match self.version {
            Some(version) => version,
            None => *self.version.insert(side.rdb_version()?),
        };
        set_version(&mut payload, version);
        let mut command = redis::cmd("RESTORE");
        command.arg(&job.name).arg(job.expires_ms.unwrap_or(0)).arg(payload).arg("ABSTTL");
        if self.replace {
            command.arg("REPLACE");
        }
        side.ask::<()>(&command).map_err(|error| {
            anyhow::Error::new(error).context(format!("the {} {}", sketch.title, key(&job.name)))
        })?;
        self.sent += job.bytes;
        self.progress.at(self.sent, 0);
        Ok(())
    }
}
