//! Puts the answers to batches in order: with several connections, a later batch may be answered first.

use crate::error::Failure;
use crate::input::Span;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How far a load got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// All items before this byte of the input are in the filter.
    pub(super) offset: u64,
    /// XXH3-64 of the input before `offset`.
    pub(super) digest: u64,
    /// Number of these items.
    pub(super) items: u64,
    /// Number of these items that were absent before.
    pub(super) new: u64,
    /// Number of empty lines that were skipped.
    pub(super) blank: u64,
    /// Whether the input ended at `offset` without a line end. Then the last item may still grow, so no load may
    /// continue here.
    #[serde(skip)]
    pub(super) is_open: bool,
}

/// What the server did with a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) span: Span,
    /// Number of empty lines in the batch.
    pub(super) blank: u64,
    /// Number of items that the server accepted.
    pub(super) items: u64,
    /// Number of these items that were absent before.
    pub(super) new: u64,
    /// Why the server refused the other items.
    pub(super) refused: Option<String>,
}

/// The answers so far.
pub(super) struct Answers {
    position: Position,
    /// Number of items after the position that are in the filter, of a batch that the server accepted only in part.
    after: u64,
    /// Answers to batches after one that has no answer yet, by offset.
    early: BTreeMap<u64, Answer>,
}

impl Answers {
    pub(super) fn new(position: Position) -> Answers {
        Answers { position, after: 0, early: BTreeMap::new() }
    }

    /// The position before the first batch that has no answer yet, or wasn't accepted as a whole.
    pub(super) fn position(&self) -> &Position {
        &self.position
    }

    /// Number of items of the batch at the position that are in the filter nevertheless.
    pub(super) fn after(&self) -> u64 {
        self.after
    }

    /// Adds an answer. Returns why the server refused a batch, once all batches before it have been answered.
    pub(super) fn add(&mut self, answer: Answer) -> Option<anyhow::Error> {
        self.early.insert(answer.span.start, answer);
        while let Some(Answer { span, blank, items, new, refused }) = self.early.remove(&self.position.offset)
        {
            if let Some(why) = refused {
                self.after = items;
                return Some(Failure::Server(why).into());
            }
            let before = &self.position;
            self.position = Position {
                offset: span.end,
                digest: span.digest,
                items: before.items + items,
                new: before.new + new,
                blank: before.blank + blank,
                is_open: span.is_open,
            };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(start: u64, end: u64) -> Answer {
        let span = Span { start, end, digest: end, is_open: false };
        Answer { span, blank: 1, items: end - start, new: 1, refused: None }
    }

    #[test]
    fn nothing_after_a_gap_is_certain() {
        let mut answers = Answers::new(Position::default());
        for (start, end, certain) in [(10, 20, 0), (30, 40, 0), (0, 10, 20), (20, 30, 40)] {
            assert!(answers.add(answer(start, end)).is_none());
            assert_eq!((answers.position().offset, answers.position().digest), (certain, certain));
        }
        let Position { items, new, blank, .. } = answers.position();
        assert_eq!((*items, *new, *blank), (40, 4, 4));
    }

    #[test]
    fn a_batch_that_was_accepted_in_part_is_sent_again() {
        let at = Position { offset: 10, items: 7, ..Position::default() };
        let mut answers = Answers::new(at.clone());
        let part = Answer { items: 4, refused: Some("full".into()), ..answer(10, 20) };
        assert_eq!(answers.add(part).unwrap().to_string(), "full");
        assert_eq!((answers.position(), answers.after()), (&at, 4));
    }
}
