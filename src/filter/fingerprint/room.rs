//! Room for an item whose cells are all taken: the shortest chain of moves that ends at a free cell, found by
//! breadth-first search. It is found before anything is moved, and carried out from its free end, so a search without
//! success has changed nothing, and no fingerprint is ever absent. There is no randomness: replicas make the same
//! moves.

use super::Table;
use super::geometry::{Identity, Place};
use crate::filter::bloom::probe::mix;
use smallvec::SmallVec;

/// Maximum number of cells that a search visits. In a table with 6.25% more cells than items, all of 10 million adds
/// found room.
const VISITED: usize = 2048;

/// The steps of a search in a hash table, by the number of their cell; 0 for none. A cell whose entry was overwritten
/// by another is visited again. Without this table the search would go round in circles, and a table of fingerprints
/// would be full at 92% instead of 94%.
///
/// No chain visits a cell twice, which would lose a fingerprint: everything that a later step at the same cell leads to
/// was already found, or recorded, from the first.
type Seen = [u16; VISITED];

/// A cell in use. Its fingerprint would move, to make room for the incoming one.
#[derive(Clone, Copy)]
struct Step {
    /// The place of the incoming fingerprint.
    place: Place,
    /// The step that the incoming fingerprint comes from. The first four steps are for the item itself.
    from: Option<u16>,
}

/// A chain of moves: the places of the item, of the fingerprint that is there now, and so on to a free cell.
pub(super) type Chain = SmallVec<[Place; 8]>;

impl Table<'_> {
    /// The shortest chain of moves that makes room for an item whose cells are all taken; `None` if there is none
    /// within the limit. `is_free` gets cells and their contents.
    pub(super) fn find_room(&self, item: Identity, is_free: impl Fn(u64, u64) -> bool) -> Option<Chain> {
        let mut steps: SmallVec<[Step; 64]> = SmallVec::new();
        steps.extend(self.geometry.places(item).map(|place| Step { place, from: None }));
        steps.iter().for_each(|step| self.prefetch_others(step.place));
        // Most chains are of one move. Up to there, nothing has to be recorded.
        for next in 0..steps.len() {
            if let Some(to) = self.others(steps[next].place).find(|to| is_free(to.cell, self.get(to.cell))) {
                return Some(chain(&steps, next, to));
            }
        }
        self.find_room_beyond(&mut steps, is_free)
    }

    /// Continues a search whose steps have all been looked at.
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

    /// Asks the processor to fetch the places that the fingerprint in this one could move to.
    #[inline(always)]
    fn prefetch_others(&self, place: Place) {
        if let Some(owner) = self.geometry.identity_in(place.cell, self.get(place.cell)) {
            self.prefetch(owner);
        }
    }

    /// The places that the fingerprint in this one could move to.
    #[inline(always)]
    fn others(&self, place: Place) -> impl Iterator<Item = Place> {
        let content = self.get(place.cell);
        let own = content & self.geometry.key_mask();
        let places = self.geometry.identity_in(place.cell, content).map(|owner| self.geometry.places(owner));
        places.into_iter().flatten().filter(move |to| to.key != own)
    }

    /// Moves the fingerprints of a chain, from its free end on. The first place is free then.
    pub(super) fn make_room(&self, chain: &[Place]) {
        for places in chain.windows(2).rev() {
            let payload = self.get(places[0].cell) & !self.geometry.key_mask();
            self.set(places[1].cell, places[1].key | payload);
        }
    }
}

/// Records that the next step goes to this cell. Returns false, and records nothing, if an earlier step did.
fn is_first(seen: &mut Seen, steps: &[Step], cell: u64) -> bool {
    let slot = &mut seen[mix(mix(cell + 1)) as usize % VISITED];
    if *slot != 0 && steps[usize::from(*slot)].place.cell == cell {
        return false;
    }
    *slot = steps.len() as u16;
    true
}

/// The places on the path from its first step to step `last`, and the free one after it.
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
