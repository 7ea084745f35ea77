//! The account as it is saved: up to which byte of the input every item is in the filter.

use crate::error::Failure;
use crate::output::file;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Write};
use std::path::Path;

/// The account of a load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    key: String,
    input: String,
    form: String,
    /// Every item that starts before this byte of the input is in the filter.
    pub(super) offset: u64,
    /// This many items after `offset` are in the filter.
    pub(super) skip: u64,
    /// Items added so far.
    pub(super) items: u64,
    /// Items among them that were absent before.
    pub(super) new: u64,
    /// Empty lines skipped so far.
    pub(super) blank: u64,
}

impl State {
    pub(super) fn new(key: String, input: String, form: String) -> State {
        State { key, input, form, offset: 0, skip: 0, items: 0, new: 0, blank: 0 }
    }

    /// Reads the file; `None` if it doesn't exist.
    pub(super) fn read(path: &Path) -> anyhow::Result<Option<State>> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            result => result.with_context(|| format!("cannot read {}", path.display()))?,
        };
        State::parse(&text)
            .with_context(|| format!("{} is not the account of a load", path.display()))
            .map(Some)
    }

    pub(super) fn parse(text: &str) -> anyhow::Result<State> {
        serde_json::from_str(text).map_err(|error| Failure::Data(error.to_string()).into())
    }

    pub(super) fn to_json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string(self)?)
    }

    /// Replaces the file, and waits until the data is on the disk.
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let mut account = file::temporary(path, true)?;
        writeln!(account, "{}", self.to_json()?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        file::keep(account, path, true)
    }

    /// Refuses the account of another load.
    pub(super) fn is_of(&self, other: &State) -> Result<(), Failure> {
        for (what, mine, theirs) in [
            ("key", &self.key, &other.key),
            ("input", &self.input, &other.input),
            ("form of the items", &self.form, &other.form),
        ] {
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

    fn fresh() -> State {
        State::new("k".into(), "names.txt".into(), "lines".into())
    }

    #[test]
    fn the_file_is_read_as_it_was_written_and_belongs_to_one_load() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        assert_eq!(State::read(&path).unwrap(), None);
        let state = State { offset: 7, items: 3, ..fresh() };
        state.write(&path).unwrap();
        state.write(&path).unwrap();
        assert_eq!(State::read(&path).unwrap(), Some(state.clone()));
        assert!(state.is_of(&fresh()).is_ok());
        assert!(state.is_of(&State { input: "other.txt".into(), ..fresh() }).is_err());
        std::fs::write(&path, "{").unwrap();
        assert_eq!(crate::error::code(&State::read(&path).unwrap_err()), 1);
    }
}
