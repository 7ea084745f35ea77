//! A table whose cells belong to generations: the payload of a cell has t bits, and is the number of its generation
//! modulo 2^t.
//!
//! Each leaf records the generation s at which it was last cleaned. Its cells belong to generations s − g + 1 to
//! s + 2^t − g, where g generations are alive at once. These are 2^t numbers, so s determines which of them a cell
//! means, no matter how long ago the leaf was cleaned. A write at the newest generation n first cleans the leaf if
//! n > s + g/4: it frees the cells of generations up to n − g, and s becomes n. So a rotation doesn't have to touch any
//! cell. From 4 generations on, a leaf that is written to has at most a quarter as many expired cells as living ones.
//! Leaves that were cleaned only once their numbers were used up had as many of both, and a table of 32 generations
//! needed 41 bits per item instead of 21.
//!
//! A full table with a bound forgets items early: a new item takes the place of one of the oldest in its leaf. So there
//! is nothing to remember between two adds, and every replica forgets the same items.

use super::leaf::{Form, Leaf, MOST_CELLS};
use super::table::{Hash, Quotient};
use crate::error::Error;
use crate::mem::zeros;
use crate::params::limits;
use alloc::{boxed::Box, vec::Vec};
use core::mem;

/// What is known about the generations of a table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Generations {
    /// Number of generations that are alive at once.
    span: u64,
    /// The newest generation.
    newest: u64,
    /// Number of items in each generation that is alive; generation n is at n mod span.
    items: Box<[u64]>,
}

/// Number of generations that can begin before a leaf is cleaned again.
pub(super) fn slack(span: u64) -> u64 {
    (span / 4).max(1)
}

/// Number of bits for the number of a generation: at least a quarter more numbers than generations that are alive.
pub(super) fn payload(span: u16) -> u32 {
    let span = u32::from(span);
    (span + span.div_ceil(4)).next_power_of_two().ilog2()
}

/// Whether a cell of a leaf that was last cleaned at one generation is alive at a `later` one, if generations are
/// dropped only when they are too old.
pub(super) fn is_alive(form: Form, span: u64, payload: u64, cleaned: u64, later: u64) -> bool {
    let numbers = 1 << form.payload;
    let latest = cleaned + numbers - span;
    later + (latest.wrapping_sub(payload) & (numbers - 1)) < latest + span
}

impl Generations {
    /// `span` generations without items, the newest of which is generation 0.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn new(span: u16) -> Result<Generations, Error> {
        Ok(Generations { span: span.into(), newest: 0, items: zeros(span.into())? })
    }

    /// The same generations without items.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn emptied(&self) -> Result<Generations, Error> {
        Ok(Generations { items: zeros(self.items.len())?, ..*self })
    }

    /// A copy.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn copy(&self) -> Result<Generations, Error> {
        let mut copy = self.emptied()?;
        copy.items.copy_from_slice(&self.items);
        Ok(copy)
    }

    pub(super) fn allocated(&self) -> usize {
        size_of::<Generations>() + size_of_val(&*self.items)
    }

    pub(crate) fn span(&self) -> u64 {
        self.span
    }

    /// Number of items in a generation that is alive.
    pub(crate) fn items(&self, generation: u64) -> u64 {
        self.items[(generation % self.span) as usize]
    }

    fn items_mut(&mut self, generation: u64) -> &mut u64 {
        &mut self.items[(generation % self.span) as usize]
    }

    /// The number of items in each generation, from the newest one on limited so that together they are at most this
    /// many. Generation n is at n mod span.
    pub(super) fn within(&self, cells: u64) -> Vec<u64> {
        let (mut items, mut left) = (self.items.to_vec(), cells);
        for age in 0..self.span {
            let count = &mut items[((self.newest + self.span - age) % self.span) as usize];
            *count = left.min(*count);
            left -= *count;
        }
        items
    }
}

impl Quotient {
    /// The newest generation; 0 without generations.
    #[inline(always)]
    pub(super) fn newest(&self) -> u64 {
        self.generations.as_ref().map_or(0, |generations| generations.newest)
    }

    /// The latest generation that cells of this leaf can belong to.
    #[inline(always)]
    fn latest(&self, leaf: &Leaf, span: u64) -> u64 {
        leaf.cleaned() + (1 << self.form.payload) - span
    }

    /// The age of a cell: the number of generations since the one it belongs to. `None` if it has expired.
    #[inline(always)]
    pub(super) fn age_of(&self, leaf: &Leaf, payload: u64, current: u64) -> Option<u64> {
        let generations = self.generations.as_ref()?;
        let latest = self.latest(leaf, generations.span);
        let before = latest.wrapping_sub(payload) & ((1 << self.form.payload) - 1);
        let age = current.saturating_add(before).saturating_sub(latest);
        (age < generations.span).then_some(age)
    }

    /// Whether the cell's item has expired. Never without generations.
    #[inline(always)]
    pub(super) fn is_dead(&self, leaf: &Leaf, payload: u64) -> bool {
        self.generations
            .as_ref()
            .is_some_and(|generations| self.age_of(leaf, payload, generations.newest).is_none())
    }

    /// The number of a generation as a cell contains it.
    #[inline(always)]
    fn number(&self, generation: u64) -> u64 {
        generation & ((1 << self.form.payload) - 1)
    }

    /// Number of generations since the item was last added, when `current` is the newest one. `None` if it is absent.
    #[inline(always)]
    pub(super) fn age(&self, hash: Hash, current: u64) -> Option<u64> {
        let (leaf, payload) = self.find(hash)?;
        self.age_of(leaf, payload, current)
    }

    /// Puts the item into the newest generation. Returns its previous age if it was present. If a full table `forgets`,
    /// a new item takes the place of an old one.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::OutOfMemory`]. In both cases, nothing has changed.
    #[inline]
    pub(super) fn refresh(&mut self, hash: Hash, forgets: bool) -> Result<Option<u64>, Error> {
        let newest = self.newest();
        let before = self.age(hash, newest);
        if before == Some(0) {
            return Ok(before);
        }
        let is_full = before.is_none() && self.items >= self.room;
        let leaf = self.address(hash).leaf;
        let is_crowded = before.is_none() && self.leaf(leaf).cells() >= MOST_CELLS;
        let has_place = !is_crowded || self.list(leaf).0.len() < MOST_CELLS;
        // A refused item must not clean its leaf: the refused command isn't replicated.
        if !forgets && (is_full || !has_place) {
            return Err(Error::Full);
        }
        if is_crowded && has_place {
            self.clean(leaf)?
        } else {
            self.prepare(hash)?
        }
        if !has_place {
            self.forget_oldest_beside(hash);
        }
        let number = self.number(newest);
        let (room, items) = (mem::replace(&mut self.room, u64::MAX), self.items);
        let changed = self.change(hash, |_, _| Some(number));
        (self.room, self.items) = (room, items);
        changed?;
        if let Some(before) = before {
            self.count_out(before);
        }
        self.count_in(0);
        // Not before, because the add may find no memory.
        if is_full && self.items > self.room {
            self.forget_oldest_beside(hash);
        }
        Ok(before)
    }

    /// Forgets another item in the leaf of this hash: one of the oldest generation that has items or, if the leaf has
    /// none of them, of its own oldest generation. An add that has to look for it takes 1 to 3 µs.
    fn forget_oldest_beside(&mut self, hash: Hash) {
        let Some(Generations { span, newest, .. }) = self.generations.as_deref() else { return };
        let (span, newest, form, at) = (*span, *newest, self.form, self.address(hash));
        let items = |generation| self.generations.as_ref().map_or(0, |all| all.items(generation));
        let has_items = |age: &u64| newest.checked_sub(*age).is_some_and(|generation| items(generation) > 0);
        let oldest = (0..span.min(newest + 1)).rev().find(has_items).unwrap_or(0);
        let leaf = self.leaf(at.leaf);
        let own = leaf.find(form, leaf.run(form, at.quotient), at.bits).map(|(place, ..)| place.index);
        let (mask, latest) = ((1 << form.payload) - 1, self.latest(leaf, span));
        let mut found: Option<(u64, usize)> = None;
        // A loop, because with iterators, a cell takes twice as long.
        for (index, payload) in leaf.payloads(form).enumerate() {
            let age = (newest + (latest.wrapping_sub(payload) & mask)).saturating_sub(latest);
            if age < span && found.is_none_or(|(most, _)| age > most) && Some(index) != own {
                found = Some((age, index));
                if age >= oldest {
                    break;
                }
            }
        }
        if let Some((age, index)) = found {
            let (place, remainder) = leaf.cell(form, index);
            // A part of a divided prefix may be of a generation without items.
            let age = if has_items(&age) { age } else { oldest };
            self.remove(at.leaf, place, remainder);
            self.count_out(age);
        }
    }

    /// Cleans the leaf of a hash if it has not been cleaned for long.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; then nothing has changed.
    pub(super) fn prepare(&mut self, hash: Hash) -> Result<(), Error> {
        let Some(generations) = &self.generations else { return Ok(()) };
        let (leaf, span) = (self.address(hash).leaf, generations.span);
        let due = self.leaf(leaf).cleaned() + slack(span);
        if generations.newest > due && self.leaf(leaf).cells() > 0 {
            self.clean(leaf)?;
        }
        Ok(())
    }

    /// Counts an item in the table and, if there are generations, in the one of this age.
    pub(super) fn count_in(&mut self, age: u64) {
        if let Some(generations) = &mut self.generations {
            *generations.items_mut(generations.newest.saturating_sub(age)) += 1;
        }
        self.items += 1;
    }

    /// Counts an item out of the table and, if there are generations, of the one of this age. Does nothing if this
    /// generation has no items: the cell is then part of a divided prefix, and another part was counted out before.
    pub(super) fn count_out(&mut self, age: u64) {
        if let Some(generations) = &mut self.generations {
            let count = generations.items_mut(generations.newest.saturating_sub(age));
            if *count == 0 {
                return;
            }
            *count -= 1;
        }
        self.items = self.items.saturating_sub(1);
    }

    /// The payload of a cell with this count or, with generations, of this age.
    pub(super) fn payload_of(&self, value: u64) -> u64 {
        match &self.generations {
            Some(generations) => self.number(generations.newest.saturating_sub(value)),
            None => value,
        }
    }

    /// Deletes the item from its generation. Returns whether it was present.
    pub(super) fn expire(&mut self, hash: Hash) -> bool {
        let newest = self.newest();
        let Some(age) = self.age(hash, newest) else { return false };
        let items = self.items;
        let removed = self.change(hash, |_, _| None);
        debug_assert!(removed.is_ok());
        self.items = items;
        self.count_out(age);
        true
    }

    /// Begins generations up to `newest`. Items of those that are then too old are gone.
    pub(super) fn open(&mut self, newest: u64) {
        if let Some(generations) = &mut self.generations {
            let opened = newest.saturating_sub(generations.newest).min(generations.span);
            for generation in newest + 1 - opened..=newest {
                *generations.items_mut(generation) = 0;
            }
            generations.newest = generations.newest.max(newest);
            self.items = generations.items.iter().sum();
        }
    }

    /// Renumbers all generations, so that each one that can be alive has a number. Returns how much larger the numbers
    /// are.
    pub(super) fn renumber(&mut self) -> u64 {
        let Some(generations) = &mut self.generations else { return 0 };
        // A multiple of both, so that counts keep their places, and cells their numbers.
        let more = generations.span << self.form.payload;
        generations.newest += more;
        for index in 0..self.leaves {
            let leaf = self.leaf_mut(index);
            leaf.set_cleaned(leaf.cleaned() + more);
        }
        more
    }

    /// Makes an empty table continue with these generations.
    pub(super) fn set_newest(&mut self, newest: u64) {
        if let Some(generations) = &mut self.generations {
            generations.newest = newest;
        }
    }

    /// Sets the generations of a table whose cells came from elsewhere. Returns false if no commands could have
    /// produced them.
    pub(super) fn restore(&mut self, newest: u64, items: &[u64]) -> bool {
        let Some(generations) = &mut self.generations else { return items.is_empty() };
        let sum = items.iter().try_fold(0u64, |sum, items| sum.checked_add(*items));
        let is_sound =
            newest <= limits::MAX_GENERATION && items.len() == generations.items.len() && sum.is_some();
        if is_sound {
            generations.newest = newest;
            generations.items.copy_from_slice(items);
            // Items may have been deleted after the numbers were written.
            generations.items = generations.within(self.cells).into();
            self.items = generations.items.iter().sum();
        }
        is_sound
    }
}
