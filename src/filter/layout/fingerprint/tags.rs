//! A table whose cells belong to generations: the payload of a cell has t bits, and is the number of its generation
//! modulo 2^t.
//!
//! For each sector of cells, the table stores the generation s at which it was last cleaned. The sector's cells belong
//! to generations s − g + 1 to s + slack, where g generations are alive at once and the slack is 2^t − g. These are 2^t
//! numbers, so s determines which of them a cell means, no matter how long ago the sector was cleaned. A write at the
//! newest generation n first cleans the sector if n > s + slack: it frees the cells of generations up to n − g, and s
//! becomes n. A fingerprint that is written or moved into the sector belongs to one of the generations n − g + 1 to n,
//! which are then in the sector's range. So a rotation doesn't have to touch any cell.
//!
//! A full table drops its oldest generations early. The last word contains the floor, the number of a generation: all
//! generations before it were dropped. The others keep their ages.

use super::geometry::{Identity, Place};
use super::sizes::SECTOR;
use super::table::{Table, first_of};
use crate::bits::Hits;
use crate::error::Error;
use crate::hash::ItemHash;
use crate::parallel::{ParallelFor, all_of};
use crate::params::limits;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;

/// A table whose cells belong to generations.
#[derive(Clone, Copy)]
pub(crate) struct Tags<'t>(Table<'t>);

impl<'t> Tags<'t> {
    /// Wraps the table if its cells belong to generations.
    #[inline(always)]
    pub(crate) fn of(table: Table<'t>) -> Option<Tags<'t>> {
        (table.geometry.generations > 0).then_some(Tags(table))
    }
}

impl Tags<'_> {
    /// Number of generations that are alive at once.
    #[inline(always)]
    pub(crate) fn span(&self) -> u64 {
        self.0.geometry.generations.into()
    }

    /// The generation at which the sector of a cell was last cleaned.
    #[inline(always)]
    fn cleaned(&self, cell: u64) -> &AtomicU64 {
        &self.0.words[(self.0.geometry.cell_words() + cell / SECTOR) as usize]
    }

    /// Number of items in a generation that is alive.
    fn items_in(&self, generation: u64) -> &AtomicU64 {
        let geometry = self.0.geometry;
        let place = geometry.cell_words() + geometry.sectors() + generation % self.span();
        &self.0.words[place as usize]
    }

    fn floor_word(&self) -> &AtomicU64 {
        &self.0.words[self.0.geometry.words() as usize - 1]
    }

    /// The oldest generation that wasn't dropped early.
    #[inline(always)]
    pub(crate) fn floor(&self) -> u64 {
        self.floor_word().load(Relaxed)
    }

    /// The lowest age at which a cell is free when `current` is the newest generation.
    #[inline(always)]
    fn end(&self, current: u64) -> u64 {
        self.span().min(current.saturating_add(1).saturating_sub(self.floor()))
    }

    /// Drops all generations before `floor`, which must not be after `newest`.
    pub(crate) fn drop_before(&self, floor: u64, newest: u64) {
        let before = floor.saturating_sub((newest + 1).saturating_sub(self.span()));
        (1..=before).for_each(|age| self.items_in(floor - age).store(0, Relaxed));
        // This counts as a move, because a dump with the old floor and later cells would mix two states.
        self.0.state.moving(|| self.floor_word().store(floor, Relaxed));
    }

    /// The number of a generation as stored in a cell.
    #[inline(always)]
    fn tag(&self, generation: u64) -> u64 {
        (generation & ((1 << self.0.geometry.payload) - 1)) << (self.0.geometry.fingerprint + 2)
    }

    /// Age of a cell in use: the number of generations since the one it belongs to. 0 if the cell has been refreshed
    /// since `current` was read.
    #[inline(always)]
    fn age(&self, cell: u64, content: u64, current: u64) -> u64 {
        self.age_by(self.latest(cell), content, current)
    }

    /// The latest generation that cells in this cell's sector can belong to.
    #[inline(always)]
    fn latest(&self, cell: u64) -> u64 {
        self.cleaned(cell).load(Relaxed) + self.0.geometry.slack()
    }

    /// The age of a cell in a sector whose latest possible generation is `latest`.
    #[inline(always)]
    fn age_by(&self, latest: u64, content: u64, current: u64) -> u64 {
        let geometry = self.0.geometry;
        let before =
            latest.wrapping_sub(content >> (geometry.fingerprint + 2)) & ((1 << geometry.payload) - 1);
        current.saturating_add(before).saturating_sub(latest)
    }

    /// Whether a cell is free or its item has expired.
    #[inline(always)]
    fn is_free(&self, cell: u64, content: u64, current: u64) -> bool {
        content == 0 || self.age(cell, content, current) >= self.end(current)
    }

    /// Whether the item may be in the table.
    #[inline(always)]
    pub(crate) fn contains(&self, item: ItemHash, current: u64) -> bool {
        self.has(self.0.geometry.identity(item), current)
    }

    /// Which of up to 64 items may be in the table.
    ///
    /// An item's second window is computed and requested while the cache line of the first is still being fetched.
    pub(crate) fn contains_many(&self, items: &[ItemHash], current: u64) -> Hits {
        let mut identities = [Identity::default(); Hits::MAX];
        for (identity, item) in identities.iter_mut().zip(items) {
            *identity = self.0.geometry.identity(*item);
            self.0.prefetch_window(identity.windows[1]);
        }
        (0..)
            .zip(&identities[..items.len()])
            .fold(Hits::default(), |found, (index, identity)| found.with(index, self.has(*identity, current)))
    }

    #[inline(always)]
    fn has(&self, identity: Identity, current: u64) -> bool {
        self.0.settled(|| self.age_of(identity, current)).is_some()
    }

    /// Number of generations since the item was last added; `None` if it is absent.
    pub(crate) fn age_now(&self, item: ItemHash, current: u64) -> Option<u64> {
        let identity = self.0.geometry.identity(item);
        self.0.settled(|| self.age_of(identity, current))
    }

    #[inline(always)]
    fn age_of(&self, identity: Identity, current: u64) -> Option<u64> {
        let (cell, content) = self.0.find(identity)?;
        Some(self.age(cell, content, current)).filter(|age| *age < self.end(current))
    }

    /// Puts the item into the newest generation. Returns its previous age if it was present.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no room for a new item; then nothing has changed.
    #[inline]
    pub(crate) fn insert(&self, item: ItemHash, newest: u64) -> Result<Option<u64>, Error> {
        let identity = self.0.geometry.identity(item);
        let contents = self.0.contents(identity);
        let own = first_of(self.0.own(identity, contents));
        let cell = |number| self.0.geometry.place(identity, number).cell;
        let age = own.map(|number| self.age(cell(number), contents[number], newest));
        let before = age.filter(|age| *age < self.end(newest));
        if before == Some(0) {
            return Ok(before);
        }
        let is_free = |cell, content| self.is_free(cell, content, newest);
        // An identity has only one cell, even if its item has expired.
        match own.or_else(|| (0..4).find(|number| is_free(cell(*number), contents[*number]))) {
            Some(number) => {
                let place = self.0.geometry.place(identity, number);
                self.clean(place.cell, newest);
                self.0.state.changing(|| self.put(place, newest));
            }
            None => {
                let chain = self.0.find_room(identity, is_free).ok_or(Error::Full)?;
                chain.iter().for_each(|place| self.clean(place.cell, newest));
                self.0.state.moving(|| {
                    self.0.make_room(&chain);
                    self.put(chain[0], newest);
                });
            }
        }
        if let Some(age) = before {
            self.count(newest.saturating_sub(age), u64::MAX);
        }
        self.count(newest, 1);
        Ok(before)
    }

    fn put(&self, place: Place, newest: u64) {
        self.0.set(place.cell, place.key | self.tag(newest));
    }

    /// Deletes the item. Returns whether it was present.
    pub(crate) fn remove(&self, item: ItemHash, newest: u64) -> bool {
        let own = self.0.find(self.0.geometry.identity(item));
        let Some((cell, content)) = own.filter(|(cell, content)| !self.is_free(*cell, *content, newest))
        else {
            return false;
        };
        self.count(newest.saturating_sub(self.age(cell, content, newest)), u64::MAX);
        self.0.state.moving(|| self.0.set(cell, 0));
        true
    }

    /// Adds 1 or −1 (`u64::MAX`) to the number of items in a generation. The number never falls below 0, even if the
    /// table is from a dump, in which the cells can be from before an add and the numbers of items from after it, or
    /// vice versa.
    fn count(&self, generation: u64, change: u64) {
        let count = self.items_in(generation);
        let (before, after) = (count.load(Relaxed), count.load(Relaxed).wrapping_add(change));
        count.store(if change > 1 && before == 0 { 0 } else { after }, Relaxed);
    }

    /// Frees the expired cells of a sector if their numbers could otherwise be taken for newer generations.
    #[inline(always)]
    fn clean(&self, cell: u64, newest: u64) {
        if newest > self.latest(cell) {
            self.clean_sector(cell / SECTOR * SECTOR, newest);
        }
    }

    #[cold]
    fn clean_sector(&self, first: u64, newest: u64) {
        let end = self.0.geometry.cells.min(first + SECTOR);
        let latest = self.latest(first);
        self.0.state.moving(|| {
            for cell in first..end {
                let content = self.0.get(cell);
                if content != 0 && self.age_by(latest, content, newest) >= self.end(newest) {
                    self.0.set(cell, 0);
                }
            }
            self.cleaned(first).store(newest, Relaxed);
        });
    }

    /// Number of items in a generation that is alive.
    pub(crate) fn items(&self, generation: u64) -> u64 {
        self.items_in(generation).load(Relaxed)
    }

    /// Number of items in all generations.
    pub(crate) fn all_items(&self) -> u64 {
        (0..self.span()).fold(0, |all: u64, generation| all.saturating_add(self.items(generation)))
    }

    /// Records that these generations have no items yet. The last of them is now the newest.
    pub(crate) fn open(&self, opened: std::ops::RangeInclusive<u64>) {
        opened.for_each(|generation| self.items_in(generation).store(0, Relaxed));
    }

    /// Whether sectors and generations are in a state that commands can produce when `newest` is the newest generation.
    pub(crate) fn is_sound(&self, newest: u64) -> bool {
        let geometry = self.0.geometry;
        let first = geometry.cell_words() as usize;
        let (sectors, items) = self.0.words[first..].split_at(geometry.sectors() as usize);
        let (items, floor) = (&items[..items.len() - 1], self.floor());
        // If dropped generations had items, a table could be full of items that it can't drop.
        let mut dropped = (newest.saturating_add(1)).saturating_sub(self.span())..floor;
        newest <= limits::MAX_GENERATION
            && floor <= newest
            && dropped.all(|generation| self.items(generation) == 0)
            && sectors.iter().all(|cleaned| cleaned.load(Relaxed) <= newest)
            && items.iter().all(|items| items.load(Relaxed) <= geometry.cells)
    }

    /// Whether the other table has all items of this one, with the same ages.
    pub(crate) fn is_part_of(
        &self,
        other: &Tags<'_>,
        [current, other_current]: [u64; 2],
        parallel: &ParallelFor<'_>,
    ) -> bool {
        let geometry = self.0.geometry;
        geometry == other.0.geometry
            && all_of(geometry.cells as usize, parallel, |cell| {
                let content = self.0.get(cell as u64);
                self.is_free(cell as u64, content, current)
                    || geometry
                        .identity_in(cell as u64, content)
                        .and_then(|identity| other.age_of(identity, other_current))
                        .is_some_and(|age| age == self.age(cell as u64, content, current))
            })
    }
}
