//! How far a load got, and the file that identifies a load.

use super::taken::Taken;
use crate::error::Failure;
use crate::input::Span;
use crate::output::file;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Write};
use std::path::Path;

/// How far a load got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    /// Every item that starts before this byte of the input is in the filter.
    pub(super) offset: u64,
    /// Which items after `offset` are also in the filter.
    pub(super) taken: Taken,
    /// The last batch before `offset`, or the batch after `offset` if it was added only in part.
    pub(super) last: Span,
    /// Number of items added so far.
    pub(super) items: u64,
    /// The number of these items that were absent before.
    pub(super) new: u64,
    /// Number of empty lines skipped so far.
    pub(super) blank: u64,
    /// Number of empty lines after `offset`: 1 if the input ends with an empty line without a line end, else 0.
    #[serde(skip)]
    pub(super) open_blank: u64,
}

/// The filter that a load fills, as the server described it after the last batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// The filter's identity; empty for a filter of another system.
    pub(super) identity: String,
    /// Number of items in the filter.
    pub(super) count: u64,
    /// Number of deletes and rotations, which remove items from the filter. Empty if the number isn't known.
    pub(super) removed: String,
    /// Value of `removed` before the batch [`State::last`] was added.
    pub(super) then: String,
}

/// Where the account of a load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Stage {
    /// Not written yet, or just written to the server. No items have been sent.
    New,
    /// On the server.
    Begun,
    /// In the file: everything was loaded.
    Complete,
}

/// The file of a load that can be resumed.
///
/// While the load is in progress, its account is on the server, where a script updates it together with the filter. So
/// if a server loses its latest writes, the two still agree. The file identifies the account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct File {
    /// A random number, part of the account's key on the server.
    pub(super) load: String,
    key: String,
    form: String,
    pub(super) stage: Stage,
    /// How far the load had got at the end of the last run.
    #[serde(flatten)]
    pub(super) state: State,
    /// The filter as of the end of a complete load; not used before that.
    pub(super) filter: Mark,
}

impl File {
    pub(super) fn new(load: String, key: String, form: String) -> File {
        let (state, filter) = (State::default(), Mark::default());
        File { load, key, form, stage: Stage::New, state, filter }
    }

    /// Reads the file; `None` if it doesn't exist.
    pub(super) fn read(path: &Path) -> anyhow::Result<Option<File>> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            result => result.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let not_one = || format!("{} is not the account of a load", path.display());
        let value: serde_json::Value = serde_json::from_str(&text)
            .map_err(|error| Failure::Data(error.to_string()))
            .with_context(not_one)?;
        if value.get("offset").is_some() && value.get("last").is_none() {
            let text = format!(
                "{} was written by an older version, which did not note which input it had loaded; \
                 finish that load with the older version, or delete the file to load everything again",
                path.display()
            );
            return Err(Failure::Usage(text).into());
        }
        let file = serde_json::from_value(value).map_err(|error| Failure::Data(error.to_string()));
        file.with_context(not_one).map(Some)
    }

    /// Replaces the file, and waits until the data is on the disk.
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let mut account = file::temporary(path, true)?;
        writeln!(account, "{}", serde_json::to_string(self)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        file::keep(account, path, true)
    }

    /// Fails if `other` is the file of a load into a different key, or of items in a different form.
    pub(super) fn is_of(&self, other: &File) -> Result<(), Failure> {
        for (what, mine, theirs) in
            [("key", &self.key, &other.key), ("form of the items", &self.form, &other.form)]
        {
            if mine != theirs {
                let text = format!("the saved load has another {what}: {mine}, not {theirs}");
                return Err(Failure::Usage(text));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> File {
        File::new("17".into(), "k".into(), "lines".into())
    }

    #[test]
    fn the_file_is_read_as_it_was_written_and_belongs_to_one_load() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        assert_eq!(File::read(&path).unwrap(), None);
        let last = Span { start: 7, end: 90, digest: u64::MAX, open: Some(0) };
        let state = State { offset: 7, items: 3, taken: "3,1,2".parse().unwrap(), last, ..State::default() };
        let file = File { state, stage: Stage::Begun, ..fresh() };
        file.write(&path).unwrap();
        file.write(&path).unwrap();
        assert_eq!(File::read(&path).unwrap(), Some(file.clone()));
        assert!(file.is_of(&fresh()).is_ok());
        assert!(file.is_of(&File { form: "lines, with empty ones".into(), ..fresh() }).is_err());
        let damaged_part = std::fs::read_to_string(&path).unwrap().replace("7:90:", "7:");
        for damaged in ["{", "{}", "[]", &damaged_part] {
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(crate::error::code(&File::read(&path).unwrap_err()), 2, "{damaged}");
        }
    }

    #[test]
    fn the_file_of_an_older_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        for older in [
            r#"{"key":"k","input":"names.txt","form":"lines","offset":7,"skip":0,"items":3,"new":3,"blank":0}"#,
            r#"{"load":"17","key":"k","input":"names.txt","form":"lines","stage":"complete","offset":7,"taken":"",
                "items":3,"new":3,"blank":0,"filter":{"identity":"","count":3,"removed":"0"}}"#,
        ] {
            std::fs::write(&path, older).unwrap();
            let error = File::read(&path).unwrap_err();
            assert_eq!(crate::error::code(&error), 2);
            assert!(error.to_string().contains("older version"), "{error}");
        }
    }
}
