//! Puts the acks of batches in order: with several connections, a later batch may be acknowledged first.

use crate::input::ByteSpan;
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
    /// Number of items in the filter that didn't come from these, when the load began or continued.
    pub(super) others: u64,
    /// Number of empty lines that were skipped.
    pub(super) blank: u64,
    /// Whether the input ended at `offset` without a line end. Then the last item may still grow, so no load may
    /// continue here.
    #[serde(skip)]
    pub(super) is_open: bool,
}

impl Position {
    /// Number of items that are in the filter when the load has come this far, unless some were lost.
    pub(super) fn known(&self) -> u64 {
        self.others + self.new
    }
}

/// An acknowledgement: what the server did with a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ack {
    pub(super) span: ByteSpan,
    /// Number of empty lines in the batch.
    pub(super) blank: u64,
    /// Number of items in the batch.
    pub(super) items: u64,
    /// Number of these items that were absent before.
    pub(super) new: u64,
}

/// The acks so far.
pub(super) struct Acks {
    position: Position,
    /// Acks of batches after one that has none yet, by offset.
    early: BTreeMap<u64, Ack>,
}

impl Acks {
    pub(super) fn new(position: Position) -> Acks {
        Acks { position, early: BTreeMap::new() }
    }

    /// The position before the first batch that has no ack.
    pub(super) fn position(&self) -> &Position {
        &self.position
    }

    /// Adds an ack.
    pub(super) fn add(&mut self, ack: Ack) {
        self.early.insert(ack.span.start, ack);
        while let Some(Ack { span, blank, items, new }) = self.early.remove(&self.position.offset) {
            let before = &self.position;
            self.position = Position {
                offset: span.end,
                digest: span.digest,
                items: before.items + items,
                new: before.new + new,
                others: before.others,
                blank: before.blank + blank,
                is_open: span.is_open,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(start: u64, end: u64) -> Ack {
        let span = ByteSpan { start, end, digest: end, is_open: false };
        Ack { span, blank: 1, items: end - start, new: 1 }
    }

    #[test]
    fn nothing_after_a_gap_is_certain() {
        let mut acks = Acks::new(Position::default());
        for (start, end, certain) in [(10, 20, 0), (30, 40, 0), (0, 10, 20), (20, 30, 40)] {
            acks.add(ack(start, end));
            assert_eq!((acks.position().offset, acks.position().digest), (certain, certain));
        }
        let Position { items, new, blank, .. } = acks.position();
        assert_eq!((*items, *new, *blank), (40, 4, 4));
    }
}
