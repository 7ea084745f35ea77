//! Inspects the folder of a backup.

use super::report::{Entry, Report};
use super::{damage, payload};
use crate::command::backup::{Backup, Saved};
use crate::command::migrate::side::Held;
use crate::error;
use crate::filter::describe::describe;
use crate::filter::file::read_file;
use crate::output::{Name, shorten, unescaped};
use crate::server::family::{Family, value_types};
use anyhow::Context;
use std::path::Path;

/// Checks that each file is there, has the right checksum, and contains what the manifest says.
pub(super) fn inspect(folder: &Path) -> anyhow::Result<Report> {
    let mut report =
        Report { file: folder.to_owned(), format: "backup", checksum: true, ..Report::default() };
    let backup = match Backup::open(folder) {
        Ok(backup) => backup,
        Err(error) => return Ok(Report { error: Some(damage(error)?), ..report }),
    };
    report.version = Some(backup.manifest.format);
    report.keys = Some(backup.manifest.keys.len() as u64);
    for saved in &backup.manifest.keys {
        match entry(&backup, saved) {
            Ok(entry) => report.filters.push(entry),
            Err(why) => report.problems.push(format!("{}: {why}", shorten(&saved.key, 100))),
        }
    }
    for failed in &backup.manifest.failed {
        let why = format!("{}: isn't in the backup: {}", shorten(&failed.key, 100), failed.why);
        report.problems.push(why);
    }
    let strays = backup.strays().with_context(|| format!("cannot read {}", folder.display()))?;
    report.problems.extend(strays.into_iter().map(|name| format!("{name} is not in the manifest")));
    Ok(report)
}

/// Checks the file of a key. Loads one filter at a time, so the largest decides how much memory is needed.
fn entry(backup: &Backup, saved: &Saved) -> Result<Entry, String> {
    let path = backup.file(saved)?;
    let wrong = || format!("{} has no value of type {}", saved.file, saved.r#type);
    let key_type = value_types().into_iter().find(|known| *known == saved.r#type).ok_or_else(wrong)?;
    let filter = match Held::of_type(key_type).ok_or_else(wrong)? {
        Held::Filter(family) => {
            let filter = read_file(&path).map_err(|error| error::text(&error))?;
            if Family::of_filter(&filter) != family {
                return Err(wrong());
            }
            Some(describe(&filter))
        }
        Held::Sketch(_) => {
            let dumped = std::fs::read(&path).map_err(|error| error.to_string())?;
            let fields = payload::sketch(&dumped).ok().flatten();
            fields.filter(|fields| fields.starts_with(key_type.as_bytes())).ok_or_else(wrong)?;
            None
        }
    };
    let key = unescaped(&saved.key).ok_or_else(|| format!("{} is not the name of a key", saved.key))?;
    let (key, expires_ms) = (Some(Name::new(&key)), saved.expires_ms);
    Ok(Entry { key, key_type: Some(key_type), expires_ms, filter, ..Entry::default() })
}
