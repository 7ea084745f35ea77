//! Puts the answers to batches in order: with several connections, a later batch may be answered first.

use super::state::State;
use super::taken::Taken;
use crate::error::Failure;
use crate::input::Span;
use std::collections::BTreeMap;

/// What the server did with a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Offset of the account before the batch.
    pub(super) from: u64,
    /// The account's position once the batch has been added: an offset, and which items after it are in the filter.
    pub(super) to: (u64, Taken),
    pub(super) last: Span,
    /// Number of empty lines between the offsets `from` and `to`.
    pub(super) blank: u64,
    /// Number of empty lines after the offset `to`.
    pub(super) open_blank: u64,
    /// Number of items that the server accepted.
    pub(super) done: u64,
    /// Number of these items that were absent before.
    pub(super) new: u64,
    /// Why the server refused items, and which of the items after `from` are in the filter nevertheless.
    pub(super) refused: Option<(String, Taken)>,
}

/// The account of a load in progress, as far as this run knows it.
pub(super) struct Account {
    state: State,
    /// Answers to batches after one that has no answer yet, by offset.
    early: BTreeMap<u64, Answer>,
}

impl Account {
    pub(super) fn new(state: State) -> Account {
        Account { state, early: BTreeMap::new() }
    }

    /// The state up to the first batch that has no answer yet.
    pub(super) fn state(&self) -> &State {
        &self.state
    }

    pub(super) fn into_state(self) -> State {
        self.state
    }

    /// Adds an answer. Returns why the server refused a batch, once all batches before it have been answered.
    pub(super) fn add(&mut self, answer: Answer) -> Option<anyhow::Error> {
        self.early.insert(answer.from, answer);
        while let Some(next) = self.early.remove(&self.state.offset) {
            self.state.items += next.done;
            self.state.new += next.new;
            self.state.last = next.last;
            if let Some((why, taken)) = next.refused {
                // The offset stays at the start of this batch, because only some of its items are in the filter.
                self.state.taken = taken;
                return Some(Failure::Server(why).into());
            }
            self.state.blank += next.blank;
            self.state.open_blank = next.open_blank;
            (self.state.offset, self.state.taken) = next.to;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(start: u64, end: u64) -> Answer {
        let last = Span { start, end, ..Span::default() };
        Answer {
            from: start,
            to: (end, Taken::default()),
            last,
            blank: 1,
            open_blank: 0,
            done: end - start,
            new: 1,
            refused: None,
        }
    }

    #[test]
    fn nothing_after_a_gap_is_certain() {
        let mut account = Account::new(State::default());
        for (start, end, certain) in [(10, 20, 0), (30, 40, 0), (0, 10, 20), (20, 30, 40)] {
            assert!(account.add(answer(start, end)).is_none());
            assert_eq!(account.state().offset, certain);
        }
        assert_eq!((account.state().items, account.state().new, account.state().blank), (40, 4, 4));
    }

    #[test]
    fn a_batch_taken_in_part_is_continued_in_its_middle() {
        let mut account = Account::new(State { offset: 10, ..State::default() });
        let taken: Taken = "3,1,1".parse().unwrap();
        let part = Answer { done: 4, refused: Some(("full".into(), taken.clone())), ..answer(10, 20) };
        assert_eq!(account.add(part).unwrap().to_string(), "full");
        assert_eq!((account.state().offset, &account.state().taken, account.state().items), (10, &taken, 4));
    }
}
