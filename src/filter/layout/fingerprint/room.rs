//! Makes room for an item whose cells are all in use. A breadth-first search finds the shortest chain of moves that
//! ends at a free cell. The moves begin only after the search, and at the free end, so a failed search changes nothing
//! and no fingerprint is ever absent. There is no randomness, so replicas make the same moves.

use super::geometry::{Identity, Place};
use super::table::Table;
use crate::hash::mix;
use smallvec::SmallVec;

/// Maximum number of cells that a search visits. In a test with 6.25% more cells than items, all 10 million adds found
/// room.
const VISITED: usize = 2048;

/// A hash table from cell numbers to the steps of a search; 0 means no step. If a cell's entry was overwritten by
/// another cell's, the cell can be visited again. Without this table, the search would go round in circles, and a
/// fingerprint table would be full at 92% instead of 94%.
///
/// A chain that visited a cell twice would lose a fingerprint. There is no such chain: everything that a later step at
/// the same cell leads to was already found or recorded by the first step.
type Seen = [u16; VISITED];

/// A cell in use whose fingerprint would move to make room for the incoming one.
#[derive(Clone, Copy)]
struct Step {
    /// The place of the incoming fingerprint.
    place: Place,
    /// The step whose fingerprint would move here. `None` in the first four steps, which are for the new item itself.
    from: Option<u16>,
}

/// A chain of moves: the new item's place, then the next place for the fingerprint that is there now, and so on up to a
/// free cell.
pub(super) type Chain = SmallVec<[Place; 8]>;

impl Table<'_> {
    /// The shortest chain of moves that makes room for an item whose cells are all in use; `None` if there is none
    /// within the limit. `is_free` receives a cell and its content.
    pub(super) fn find_room(&self, item: Identity, is_free: impl Fn(u64, u64) -> bool) -> Option<Chain> {
        let mut steps: SmallVec<[Step; 64]> = SmallVec::new();
        steps.extend(self.geometry.places(item).map(|place| Step { place, from: None }));
        steps.iter().for_each(|step| self.prefetch_others(step.place));
        // Most chains consist of one move. To find such a chain, nothing needs to be recorded.
        for next in 0..steps.len() {
            if let Some(to) = self.others(steps[next].place).find(|to| is_free(to.cell, self.get(to.cell))) {
                return Some(chain(&steps, next, to));
            }
        }
        self.find_room_beyond(&mut steps, is_free)
    }

    /// Continues a search in which no step so far leads to a free cell.
    #[inline(never)]
    fn find_room_beyond(
        &self,
        steps: &mut SmallVec<[Step; 64]>,
        is_free: impl Fn(u64, u64) -> bool,
    ) -> Option<Chain> {
        let mut seen: Seen = [0; VISITED];
        let looked_at = steps.len();
        let mut next = 0;
        while let Some(Step { place, .. }) = steps.get(next).copied() {
            for to in self.others(place) {
                if next >= looked_at && is_free(to.cell, self.get(to.cell)) {
                    return Some(chain(steps, next, to));
                }
                if steps.len() < VISITED && is_first(&mut seen, steps, to.cell) {
                    self.prefetch_others(to);
                    steps.push(Step { place: to, from: Some(next as u16) });
                }
            }
            next += 1;
        }
        None
    }

    /// Prefetches the places that the fingerprint in this place could move to.
    #[inline(always)]
    fn prefetch_others(&self, place: Place) {
        if let Some(owner) = self.geometry.identity_in(place.cell, self.get(place.cell)) {
            self.prefetch(owner);
        }
    }

    /// The places that the fingerprint in this place could move to.
    #[inline(always)]
    fn others(&self, place: Place) -> impl Iterator<Item = Place> {
        let content = self.get(place.cell);
        let own = content & self.geometry.key_mask();
        let places = self.geometry.identity_in(place.cell, content).map(|owner| self.geometry.places(owner));
        places.into_iter().flatten().filter(move |to| to.key != own)
    }

    /// Moves the fingerprints of a chain, starting at its free end. The chain's first place is free afterwards.
    pub(super) fn make_room(&self, chain: &[Place]) {
        for places in chain.windows(2).rev() {
            let payload = self.get(places[0].cell) & !self.geometry.key_mask();
            self.set(places[1].cell, places[1].key | payload);
        }
    }
}

/// Records that the next step goes to this cell. If an earlier step already went there, returns false and records
/// nothing.
fn is_first(seen: &mut Seen, steps: &[Step], cell: u64) -> bool {
    let slot = &mut seen[mix(mix(cell + 1)) as usize % VISITED];
    if *slot != 0 && steps[usize::from(*slot)].place.cell == cell {
        return false;
    }
    *slot = steps.len() as u16;
    true
}

/// The places on the path to step `last`, followed by the free place.
fn chain(steps: &[Step], last: usize, free: Place) -> Chain {
    let mut chain = Chain::new();
    chain.push(free);
    let mut step = Some(last as u16);
    while let Some(Step { place, from }) = step.map(|step| steps[usize::from(step)]) {
        chain.push(place);
        step = from;
    }
    chain.reverse();
    chain
}
