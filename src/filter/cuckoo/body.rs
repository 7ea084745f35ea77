//! The sub-filters, and the state that a filter has in addition to them.

use super::hash::CuckooHash;
use super::table::Table;
use crate::filter::Refused;
use alloc::boxed::Box;
use core::{mem, slice};
use smallvec::SmallVec;

/// The sub-filters, and any other state. This is `One` as long as there is a single sub-filter and no other state.
pub(super) enum Body {
    One(Table),
    More(Box<More>),
}

/// The state of a filter that has grown, has deleted or moved a fingerprint, has searched for room or refused an item,
/// has been shared, or has a wide seed.
#[derive(Default)]
pub(super) struct More {
    pub(super) tables: SmallVec<[Table; 1]>,
    pub(super) deletes: u64,
    pub(super) moves: u64,
    pub(super) seed_high: u64,
    /// Number of slots that searches for room have looked at. It isn't saved.
    pub(super) searched: u64,
    /// Numbers of items that this server did not add. They aren't saved, and a copy begins with 0.
    pub(super) refused: Refused,
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

    /// The state of `More`; `None` for `One`.
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

    /// The state of `More`. Switches from `One` to `More` first, if necessary.
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
    /// Adds an item to a free slot. Returns false if its buckets in all sub-filters are full.
    pub(super) fn insert(&mut self, item: CuckooHash) -> bool {
        let Some((newest, older)) = self.tables.split_last() else { return false };
        newest.insert(item) || older.iter().rev().any(|table| table.insert(item))
    }

    /// This state with other sub-filters.
    pub(super) fn with_tables(&self, tables: SmallVec<[Table; 1]>) -> More {
        More { tables, refused: Refused::default(), ..*self }
    }
}
