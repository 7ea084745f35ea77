//! The account of a load: up to which byte of the input every item is in the filter.

use super::send::Answer;
use crate::error::Failure;
use crate::files;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// What is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    key: String,
    input: String,
    form: String,
    /// Every item that begins before this byte of the input is in the filter.
    pub(super) offset: u64,
    /// And so are as many behind it.
    pub(super) skip: u64,
    /// Items that were sent.
    pub(super) items: u64,
    /// Those that were absent before.
    pub(super) new: u64,
    /// Empty lines.
    pub(super) blank: u64,
}

impl State {
    pub(super) fn new(key: String, input: String, form: String) -> State {
        State { key, input, form, offset: 0, skip: 0, items: 0, new: 0, blank: 0 }
    }

    /// Reads the file; `None` if there is none yet.
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

    /// Replaces the file, and waits until it is on the disk.
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let mut file = files::temporary(path, true)?;
        writeln!(file, "{}", self.to_json()?).with_context(|| format!("cannot write {}", path.display()))?;
        files::keep(file, path, true)
    }

    /// Whether it is the account of the same load.
    pub(super) fn is_of(&self, other: &State) -> Result<(), Failure> {
        for (what, mine, theirs) in [
            ("key", &self.key, &other.key),
            ("input", &self.input, &other.input),
            ("form of the items", &self.form, &other.form),
        ] {
            if mine != theirs {
                let text = format!("the load that began has another {what}, {mine} and not {theirs}");
                return Err(Failure::Usage(text));
            }
        }
        Ok(())
    }
}

/// Brings answers into order: with several connections a later batch may be answered first.
pub(super) struct Account {
    state: State,
    /// Answers to batches behind one that has none yet, by where they begin.
    early: BTreeMap<u64, Answer>,
}

impl Account {
    pub(super) fn new(state: State) -> Account {
        Account { state, early: BTreeMap::new() }
    }

    /// What is certain.
    pub(super) fn state(&self) -> &State {
        &self.state
    }

    pub(super) fn into_state(self) -> State {
        self.state
    }

    /// Takes an answer; gives back why the server refused a batch that all before it has been answered.
    pub(super) fn add(&mut self, answer: &Answer) -> Option<anyhow::Error> {
        self.early.insert(answer.start, answer.clone());
        while let Some(next) = self.early.remove(&self.state.offset) {
            self.state.items += next.done;
            self.state.new += next.new;
            if let Some(why) = next.refused {
                // It stays where it is: nothing behind it is certain.
                self.state.skip += next.done;
                return Some(Failure::Server(why).into());
            }
            self.state.blank += next.blank;
            self.state.offset = next.end;
            self.state.skip = self.state.skip.saturating_sub(next.dropped);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(start: u64, end: u64) -> Answer {
        Answer { start, end, blank: 1, dropped: 0, done: end - start, new: 1, refused: None }
    }

    fn fresh() -> State {
        State::new("k".into(), "names.txt".into(), "lines".into())
    }

    #[test]
    fn nothing_behind_a_gap_is_certain() {
        let mut account = Account::new(fresh());
        for (start, end, certain) in [(10, 20, 0), (30, 40, 0), (0, 10, 20), (20, 30, 40)] {
            assert!(account.add(&answer(start, end)).is_none());
            assert_eq!(account.state().offset, certain);
        }
        assert_eq!((account.state().items, account.state().new, account.state().blank), (40, 4, 4));
    }

    #[test]
    fn a_batch_that_was_taken_in_part_is_gone_on_with_in_its_middle() {
        let mut account = Account::new(State { skip: 2, offset: 10, ..fresh() });
        let part = Answer { done: 3, refused: Some("full".into()), ..answer(10, 20) };
        assert_eq!(account.add(&part).unwrap().to_string(), "full");
        assert_eq!((account.state().offset, account.state().skip, account.state().items), (10, 5, 3));
    }

    #[test]
    fn items_that_were_taken_before_may_fill_several_smaller_batches() {
        let mut account = Account::new(State { skip: 5, offset: 10, ..fresh() });
        account.add(&Answer { done: 0, dropped: 3, ..answer(10, 20) });
        assert_eq!((account.state().offset, account.state().skip, account.state().items), (20, 2, 0));
        account.add(&Answer { done: 1, dropped: 2, ..answer(20, 30) });
        assert_eq!((account.state().offset, account.state().skip, account.state().items), (30, 0, 1));
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
