//! The sub-filters, and what a filter has to remember in addition to them.

use super::closed::Closed;
use super::hash::CuckooHash;
use super::table::Table;
use smallvec::SmallVec;
use std::{mem, slice};

/// `One` sub-filter for as long as there is nothing else to remember.
pub(super) enum Body {
    One(Table),
    More(Box<More>),
}

/// The state of a filter that has grown, has deleted or moved a fingerprint, has searched for room, or has a wide seed.
#[derive(Default)]
pub(super) struct More {
    pub(super) tables: SmallVec<[Table; 1]>,
    pub(super) deletes: u64,
    pub(super) moves: u64,
    pub(super) seed_high: u64,
    /// The results of searches for room, from the first search on. They aren't saved.
    pub(super) searches: Option<Box<Searches>>,
}

impl Body {
    /// The sub-filters from oldest to newest. There is at least one.
    #[inline(always)]
    pub(super) fn tables(&self) -> &[Table] {
        match self {
            Body::One(table) => slice::from_ref(table),
            Body::More(more) => &more.tables,
        }
    }

    /// What has been remembered so far.
    #[inline(always)]
    pub(super) fn so_far(&self) -> Option<&More> {
        match self {
            Body::One(_) => None,
            Body::More(more) => Some(more),
        }
    }

    /// Like [`so_far`](Body::so_far), but mutable.
    pub(super) fn so_far_mut(&mut self) -> Option<&mut More> {
        match self {
            Body::One(_) => None,
            Body::More(more) => Some(more),
        }
    }

    /// Switches to `More`, so that there is room for everything to be remembered from now on.
    pub(super) fn more(&mut self) -> &mut More {
        if let Body::One(_) = self {
            let more = Body::More(Box::default());
            if let (Body::One(table), Body::More(more)) = (mem::replace(self, more), &mut *self) {
                more.tables.push(table);
            }
        }
        match self {
            Body::More(more) => more,
            Body::One(_) => unreachable!("it has just been replaced"),
        }
    }
}

impl More {
    /// Adds an item to a free slot. Returns false if there is none in its buckets.
    pub(super) fn insert(&mut self, item: CuckooHash) -> bool {
        let Some((newest, older)) = self.tables.split_last() else { return false };
        let Some(slot) = newest.insert(item) else {
            return older.iter().rev().any(|table| table.insert(item).is_some());
        };
        let closed = self.searches.as_mut().and_then(|searches| searches.closed.as_mut());
        if let Some(closed) = closed.filter(|closed| closed.is_candidate(newest.bucket_of(slot))) {
            closed.has_changed();
        }
        true
    }

    /// This body with other sub-filters. The results of earlier searches don't apply to them.
    pub(super) fn with_tables(&self, tables: SmallVec<[Table; 1]>) -> More {
        More { tables, searches: None, ..*self }
    }
}

/// The results of earlier searches for room in the newest sub-filter.
#[derive(Default)]
pub(super) struct Searches {
    /// Number of slots that searches have looked at.
    pub(super) looked_at: u64,
    /// Whether a search has failed since the last delete or growth. If the filter then grows, nothing else needs to be
    /// remembered.
    pub(super) failed: bool,
    /// The closed buckets, kept if searches fail again because the filter didn't grow.
    pub(super) closed: Option<Closed>,
}
