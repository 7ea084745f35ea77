//! A fingerprint table: a cuckoo table with overlapping windows (Schmitz, Zentgraf, Rahmann, "Smaller and More Flexible
//! Cuckoo Filters", 2025). It can have any number of cells, of which 94% can be in use. An item occupies one cell, in
//! one of two windows of two cells each, so a test touches two cache lines. A cell can also contain a count or a
//! generation number.
//!
//! One thread writes while others may read. A reader could miss an item that is being moved if it looks into one window
//! before the move and into the other after it. So a reader that finds nothing looks again if something was moved in
//! the meantime.

use super::geometry::{Identity, Place};
use super::sizes::Sizes;
use crate::bits::Hits;
use crate::error::Error;
use crate::filter::layout::packed as cells;
use crate::hash::ItemHash;
use crate::mem::Cells;
use crate::parallel::{ParallelFor, all_of};
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicU64, fence, spin_loop};
use std::ops::Range;

/// The state of a table in addition to its cells.
#[derive(Default)]
pub(crate) struct State {
    geometry: Sizes,
    /// Twice the number of changes during which a reader can miss an item, plus one while such a change is in progress.
    changes: AtomicU64,
    /// Number of changes that moved an item, freed cells or dropped generations.
    moves: AtomicU64,
}

impl State {
    /// The state of an empty table.
    pub(crate) fn new(geometry: Sizes) -> State {
        State { geometry, ..State::default() }
    }

    /// The table's sizes.
    #[inline(always)]
    pub(crate) fn geometry(&self) -> Sizes {
        self.geometry
    }

    /// How often items were moved to make room, cells were freed, or generations were dropped, modulo 2^32.
    pub(crate) fn moves(&self) -> u32 {
        self.moves.load(Relaxed) as u32
    }

    /// Sets the number of moves, from which counting continues.
    pub(crate) fn set_moves(&self, moves: u32) {
        self.moves.store(moves.into(), Relaxed);
    }

    /// Makes a [change](State::changing) that also counts as a move.
    pub(super) fn moving(&self, change: impl FnOnce()) {
        self.moves.store(self.moves.load(Relaxed) + 1, Relaxed);
        self.changing(change);
    }

    /// Runs `change`. Readers that look in the meantime and find nothing look again.
    pub(super) fn changing(&self, change: impl FnOnce()) {
        let changes = self.changes.load(Relaxed);
        self.changes.store(changes + 1, Relaxed);
        fence(Release);
        change();
        self.changes.store(changes + 2, Release);
    }
}

/// An item's count before and after a change. In a table that doesn't count, the count of an item that is present is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) before: u64,
    pub(crate) after: u64,
}

/// The number of these cells that are in use, and the number that have the highest count. `None` if a cell is in a
/// state that no command can produce: a fingerprint outside its windows, or a cell in use without a count.
pub(crate) fn census(geometry: Sizes, words: &Cells, cells: Range<u64>) -> Option<(u64, u64)> {
    let state = State::default();
    let table = Table { words, geometry, state: &state };
    let (mut used, mut saturated) = (0, 0);
    for cell in cells {
        let content = table.get(cell);
        if content == 0 {
            continue;
        }
        let is_counted = geometry.generations > 0 || table.count_in(content) > 0;
        if !is_counted || geometry.identity_in(cell, content).is_none() {
            return None;
        }
        used += 1;
        saturated += u64::from(
            geometry.payload > 0 && geometry.generations == 0 && table.count_in(content) == table.most(),
        );
    }
    Some((used, saturated))
}

/// A borrowed fingerprint table.
#[derive(Clone, Copy)]
pub(crate) struct Table<'t> {
    pub(super) words: &'t Cells,
    pub(super) geometry: Sizes,
    pub(crate) state: &'t State,
}

impl<'t> Table<'t> {
    /// A table stored in these words.
    #[inline(always)]
    pub(crate) fn new(words: &'t Cells, state: &'t State) -> Table<'t> {
        Table { words, geometry: state.geometry, state }
    }
}

impl Table<'_> {
    #[inline(always)]
    pub(super) fn get(&self, cell: u64) -> u64 {
        cells::get(self.words, self.geometry.width(), cell)
    }

    #[inline(always)]
    pub(super) fn set(&self, cell: u64, content: u64) {
        cells::set(self.words, self.geometry.width(), cell, content);
    }

    #[inline(always)]
    pub(super) fn prefetch_window(&self, window: u64) {
        cells::prefetch(self.words, self.geometry.width(), window);
    }

    /// Prefetches the cache lines of both windows.
    #[inline(always)]
    pub(super) fn prefetch(&self, identity: Identity) {
        identity.windows.iter().for_each(|window| self.prefetch_window(*window));
    }

    /// Prefetches the cache line of an item's first window, which is known sooner than the second.
    #[inline(always)]
    pub(crate) fn prefetch_first(&self, item: ItemHash) {
        self.prefetch_window(self.geometry.first(item));
    }

    /// Prefetches what a test or change of the item will touch.
    #[inline(always)]
    pub(crate) fn prefetch_item(&self, item: ItemHash) {
        self.prefetch(self.geometry.identity(item));
    }

    /// Contents of an identity's four places.
    #[inline(always)]
    pub(super) fn contents(&self, identity: Identity) -> [u64; 4] {
        let width = self.geometry.width();
        let [first, second] = identity.windows;
        let [first, second] = [cells::pair(self.words, width, first), cells::pair(self.words, width, second)];
        [first[0], first[1], second[0], second[1]]
    }

    /// Which of these contents match the identity: bit i for place i. There is no branch on the result, because half of
    /// the branches would be mispredicted.
    #[inline(always)]
    pub(super) fn own(&self, identity: Identity, contents: [u64; 4]) -> u32 {
        let geometry = self.geometry;
        let mut own = 0;
        for (number, content) in contents.into_iter().enumerate() {
            let key = geometry.key_at(identity.fingerprint, number);
            // In a table that counts, a key can be 0, like a free cell.
            own |= u32::from((content & geometry.key_mask() == key) & (content != 0)) << number;
        }
        own
    }

    /// The cell of an identity, and its content.
    #[inline(always)]
    pub(super) fn find(&self, identity: Identity) -> Option<(u64, u64)> {
        let contents = self.contents(identity);
        let number = first_of(self.own(identity, contents))?;
        Some((self.geometry.place(identity, number).cell, contents[number]))
    }

    /// Whether the item may be in the table. Any thread may call this.
    #[inline(always)]
    pub(crate) fn contains(&self, item: ItemHash) -> bool {
        let identity = self.geometry.identity(item);
        !self.look(Hits::first(1), |_| Hits::default().with(0, self.has(identity))).is_empty()
    }

    /// Which of these items (at most 64) may be in the table. Only those in `asked` are tested. Any thread may call
    /// this.
    ///
    /// An item's second window is computed and requested while the cache line of the first is still being fetched.
    pub(crate) fn contains_many(&self, items: &[ItemHash], asked: Hits) -> Hits {
        let mut identities = [Identity::default(); Hits::MAX];
        asked.for_each(|index| {
            identities[index] = self.geometry.identity(items[index]);
            self.prefetch_window(identities[index].windows[1]);
        });
        self.look(asked, |asked| {
            asked.fold(Hits::default(), |found, index| found.with(index, self.has(identities[index])))
        })
    }

    /// Repeats `find` until all items in `asked` have been found, or until nothing was changed while it ran.
    #[inline(always)]
    pub(super) fn look(&self, asked: Hits, find: impl Fn(Hits) -> Hits) -> Hits {
        let mut found = Hits::default();
        loop {
            let before = self.state.changes.load(Acquire);
            found |= find(asked & !found);
            fence(Acquire);
            if found == asked || before.is_multiple_of(2) && self.state.changes.load(Relaxed) == before {
                return found;
            }
            spin_loop();
        }
    }

    /// Repeats `find` until it finds something, or until nothing was changed while it ran. A change in progress is
    /// never the reason for `None`.
    #[inline(always)]
    pub(super) fn settled<T>(&self, find: impl Fn() -> Option<T>) -> Option<T> {
        loop {
            let before = self.state.changes.load(Acquire);
            let found = find();
            if found.is_some() {
                return found;
            }
            fence(Acquire);
            if before.is_multiple_of(2) && self.state.changes.load(Relaxed) == before {
                return None;
            }
            spin_loop();
        }
    }

    /// Whether the identity is in its windows.
    #[inline(always)]
    pub(super) fn has(&self, identity: Identity) -> bool {
        self.own(identity, self.contents(identity)) != 0
    }

    /// The count in the contents of a cell that is in use; 1 if the table doesn't count.
    #[inline(always)]
    pub(super) fn count_in(&self, content: u64) -> u64 {
        match self.geometry.payload {
            0 => 1,
            _ => content >> (self.geometry.fingerprint + 2),
        }
    }

    /// The highest count.
    pub(crate) fn most(&self) -> u64 {
        if self.geometry.payload == 0 { 1 } else { (1 << self.geometry.payload) - 1 }
    }

    /// What a count of 1 adds to the content of a cell.
    #[inline(always)]
    pub(super) fn one(&self) -> u64 {
        if self.geometry.payload == 0 { 0 } else { self.geometry.key_mask() + 1 }
    }

    /// An upper bound on the number of occurrences of the item, unless its count is at the maximum. In a table that
    /// doesn't count, 1 if the item may be present, otherwise 0.
    pub(crate) fn count(&self, item: ItemHash) -> u64 {
        self.find(self.geometry.identity(item)).map_or(0, |(_, content)| self.count_in(content))
    }

    /// Adds the item or increments its count, up to the highest count.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no room for a new item; then nothing has changed.
    #[inline]
    pub(crate) fn insert(&self, item: ItemHash) -> Result<Step, Error> {
        self.count_up(self.geometry.identity(item), 1)
    }

    /// Adds an identity `adds` times (at least once).
    #[inline(always)]
    pub(super) fn count_up(&self, identity: Identity, adds: u64) -> Result<Step, Error> {
        let geometry = self.geometry;
        let contents = self.contents(identity);
        if let Some(number) = first_of(self.own(identity, contents)) {
            let before = self.count_in(contents[number]);
            let after = self.most().min(before + adds);
            if after > before {
                let counted = contents[number] + (after - before) * self.one();
                self.recount(geometry.place(identity, number).cell, counted);
            }
            return Ok(Step { before, after });
        }
        let count = adds * self.one();
        match first_of(free(contents)) {
            Some(number) => {
                let place = geometry.place(identity, number);
                self.set(place.cell, place.key | count);
            }
            None => self.insert_by_moving(identity, count)?,
        }
        Ok(Step { before: 0, after: adds })
    }

    #[inline(never)]
    pub(super) fn insert_by_moving(&self, identity: Identity, count: u64) -> Result<(), Error> {
        let chain = self.find_room(identity, |_, content| content == 0).ok_or(Error::Full)?;
        self.insert_along(&chain, count);
        Ok(())
    }

    /// Makes the moves of this chain, and then puts the new item into the chain's first place.
    pub(super) fn insert_along(&self, chain: &[Place], count: u64) {
        self.state.moving(|| {
            self.make_room(chain);
            self.set(chain[0].cell, chain[0].key | count);
        });
    }

    /// Deletes one occurrence of the item. A count at its maximum may be too low, so it stays unchanged.
    pub(crate) fn remove(&self, item: ItemHash) -> Step {
        let Some((cell, content)) = self.find(self.geometry.identity(item)) else {
            return Step { before: 0, after: 0 };
        };
        let before = self.count_in(content);
        let after = if before == self.most() { before } else { before - 1 };
        if after == 0 {
            self.state.moving(|| self.set(cell, 0));
        } else if after < before {
            self.recount(cell, content - self.one());
        }
        Step { before, after }
    }

    /// Changes the count in a cell. If the cell spans two words, a reader between the two stores could see a free cell,
    /// because the key of a counted item can be 0 and a carry leaves zeros in the lower bits.
    #[inline(always)]
    pub(super) fn recount(&self, cell: u64, content: u64) {
        if cells::is_in_one_word(self.geometry.width(), cell) {
            self.set(cell, content);
        } else {
            self.state.changing(|| self.set(cell, content));
        }
    }

    /// Whether the bits between the last cell and the words for sectors and generations are 0.
    pub(crate) fn is_padded(&self) -> bool {
        let end = self.geometry.cells * u64::from(self.geometry.width());
        let words = &self.words[..self.geometry.cell_words() as usize];
        let mut after = words.iter().skip((end / 64) as usize).map(|word| word.load(Relaxed));
        after.next().is_some_and(|last| last >> (end % 64) == 0) && after.all(|word| word == 0)
    }

    /// Whether the other table has all items of this one, with the same counts. An item can be in different cells of
    /// the two tables, because its cell depends on the order of the adds.
    pub(crate) fn is_part_of(&self, other: &Table<'_>, parallel: &ParallelFor<'_>) -> bool {
        let geometry = self.geometry;
        geometry == other.geometry
            && all_of(geometry.cells as usize, parallel, |cell| {
                let cell = cell as u64;
                let content = self.get(cell);
                content == 0
                    || geometry
                        .identity_in(cell, content)
                        .and_then(|identity| other.find(identity))
                        .is_some_and(|(_, theirs)| self.count_in(theirs) == self.count_in(content))
            })
    }
}

/// Which of these contents belong to free cells: bit i for place i.
#[inline(always)]
pub(super) fn free(contents: [u64; 4]) -> u32 {
    let mut free = 0;
    for (number, content) in contents.into_iter().enumerate() {
        free |= u32::from(content == 0) << number;
    }
    free
}

/// Number of the first place whose bit is set.
#[inline(always)]
pub(super) fn first_of(places: u32) -> Option<usize> {
    (places != 0).then(|| (places.trailing_zeros() % 4) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    /// Compares tables with a list of their items, for every cell width up to a word.
    #[test]
    fn tables_of_every_width_have_what_was_added() {
        for payload in [0, 4, 8, 16] {
            for fingerprint in 6..=62 - payload {
                let geometry = Sizes { cells: 200, fingerprint, payload, generations: 0 }.filled();
                let words: Vec<AtomicU64> = (0..geometry.words()).map(|_| AtomicU64::new(0)).collect();
                let state = State::new(geometry);
                let table = Table::new(&words, &state);
                let item = |number: u64| ItemHash { low: mix(number), high: mix(!number) };
                let mut added = Vec::new();
                while let Ok(step) = table.insert(item(added.len() as u64)) {
                    added.push(step.before == 0);
                    // Short fingerprints of two items are sometimes equal.
                    assert!(added.len() < 1000 && (step.before == 0 || fingerprint < 20));
                }
                let items = 0..added.len() as u64;
                let cells = added.iter().filter(|new| **new).count() as u64;
                assert!(cells > 175, "{cells} items in {geometry:?}");
                assert!(
                    items.clone().all(|number| table.contains(item(number)) && table.count(item(number)) > 0)
                );
                assert!(fingerprint < 20 || !items.clone().any(|number| table.contains(item(number + 1000))));
                assert_eq!(census(geometry, &words, 0..geometry.cells).map(|(used, _)| used), Some(cells));
                assert!(table.is_padded());
                if payload == 0 {
                    continue; // nothing can be deleted
                }
                let others = items.clone().filter(|number| number % 2 == 1);
                items.clone().step_by(2).for_each(|number| _ = table.remove(item(number)));
                assert!(fingerprint < 20 || others.clone().all(|number| table.contains(item(number))));
                others.for_each(|number| _ = table.remove(item(number)));
                assert!(words.iter().all(|word| word.load(Relaxed) == 0), "{geometry:?} is empty again");
            }
        }
    }
}
