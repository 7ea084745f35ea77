//! The account of a load under way: which batches the server has answered.

use super::state::State;
use crate::error::Failure;
use std::collections::BTreeMap;

/// What the server did with a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Offset of the batch in the input.
    pub(super) start: u64,
    /// Offset of the next batch.
    pub(super) end: u64,
    /// Empty lines in the batch.
    pub(super) blank: u64,
    /// Items at its start that an earlier run added.
    pub(super) dropped: u64,
    /// Items that the server took: all, or the first `done`.
    pub(super) done: u64,
    /// Items among them that were absent before.
    pub(super) new: u64,
    /// Why the server refused the others.
    pub(super) refused: Option<String>,
}

/// Puts answers in order: with several connections, a later batch may be answered first.
pub(super) struct Account {
    state: State,
    /// Answers to batches after one that has no answer yet, by offset.
    early: BTreeMap<u64, Answer>,
}

impl Account {
    pub(super) fn new(state: State) -> Account {
        Account { state, early: BTreeMap::new() }
    }

    /// What is certain so far.
    pub(super) fn state(&self) -> &State {
        &self.state
    }

    pub(super) fn into_state(self) -> State {
        self.state
    }

    /// Takes an answer. Returns why the server refused a batch, once all batches before it have been answered.
    pub(super) fn add(&mut self, answer: &Answer) -> Option<anyhow::Error> {
        self.early.insert(answer.start, answer.clone());
        while let Some(next) = self.early.remove(&self.state.offset) {
            self.state.items += next.done;
            self.state.new += next.new;
            if let Some(why) = next.refused {
                // The offset stays: nothing after this batch is certain.
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

    fn account(offset: u64, skip: u64) -> Account {
        let mut state = State::new("k".into(), "names.txt".into(), "lines".into());
        (state.offset, state.skip) = (offset, skip);
        Account::new(state)
    }

    fn answer(start: u64, end: u64) -> Answer {
        Answer { start, end, blank: 1, dropped: 0, done: end - start, new: 1, refused: None }
    }

    #[test]
    fn nothing_after_a_gap_is_certain() {
        let mut account = account(0, 0);
        for (start, end, certain) in [(10, 20, 0), (30, 40, 0), (0, 10, 20), (20, 30, 40)] {
            assert!(account.add(&answer(start, end)).is_none());
            assert_eq!(account.state().offset, certain);
        }
        assert_eq!((account.state().items, account.state().new, account.state().blank), (40, 4, 4));
    }

    #[test]
    fn a_batch_taken_in_part_is_continued_in_its_middle() {
        let mut account = account(10, 2);
        let part = Answer { done: 3, refused: Some("full".into()), ..answer(10, 20) };
        assert_eq!(account.add(&part).unwrap().to_string(), "full");
        assert_eq!((account.state().offset, account.state().skip, account.state().items), (10, 5, 3));
    }

    #[test]
    fn items_added_earlier_may_fill_several_smaller_batches() {
        let mut account = account(10, 5);
        account.add(&Answer { done: 0, dropped: 3, ..answer(10, 20) });
        assert_eq!((account.state().offset, account.state().skip, account.state().items), (20, 2, 0));
        account.add(&Answer { done: 1, dropped: 2, ..answer(20, 30) });
        assert_eq!((account.state().offset, account.state().skip, account.state().items), (30, 0, 1));
    }
}
