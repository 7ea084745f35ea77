//! A set of hash prefixes in which none is a prefix of another. An item is in the filter if one of them is a prefix of
//! its hash; there is at most one.
//!
//! The lowest bits of a hash select a leaf, the next ones a quotient in that leaf, and those that follow are compared
//! with the remainders in the quotient's cells. The number of leaves follows the number of cells by linear hashing
//! (Litwin, 1980): leaves are split in the order of their numbers, and new ones are appended, so the table grows and
//! shrinks by one leaf at a time, and a leaf's number and depth follow from the number of leaves. A split takes one bit
//! of each remainder. A cell whose remainder has no bits left goes to both places.
//!
//! The filter's error rate is the sum of 2^-length over all prefixes. It is kept exactly. The length of a new prefix is
//! chosen so that the sum stays below the promised rate however large the filter becomes.
//!
//! Sources: Pagh, Segev, Wieder, "How to approximate a set without knowing its size in advance" (2013); Bender et al.,
//! "Don't thrash: how to cache your hash on flash" (2012) for quotients; Dayan et al., "InfiniFilter" (2023).

use super::generations::Generations;
use super::leaf::{Cell, Form, Leaf, Marked, Place, length};
use super::pieces::{END, Totals, leaf_at};
use crate::bits::Hits;
use crate::error::Error;
use alloc::{boxed::Box, vec::Vec};

/// log2 of the number of quotients in a leaf of a table with several leaves.
pub(super) const LOG2_QUOTIENTS: u32 = 10;

/// Average number of cells per leaf above which a leaf is split. The unary part then needs 1 + 1024/820 bits per cell.
pub(super) const LOAD: u64 = 820;

/// The error rate is a number of 2^-120.
const RATE_BITS: u32 = 120;

/// A new prefix is as long as if all cells that the table is sized for now, or those of a full leaf if that are more,
/// would use an eighth of what is left of the error rate. So the first leaf and each doubling use an eighth, and after
/// any number of doublings something is left.
const PARTS: u128 = 8;

/// Maximum depth of a leaf.
pub(super) const MOST_DEPTH: u32 = 40;

/// Maximum depth of a leaf in a table without items: 2^20 empty leaves need 16 MiB.
const MOST_PLANNED_DEPTH: u32 = 19;

/// A table keeps below this rate. With more, prefixes would cover most quotients, and splits would leave as many cells
/// in each half as there were.
pub(super) const MOST_RATE: f64 = 0.5;

/// An item's hash: 128 bits, from the lowest.
pub(super) type Hash = u128;

/// Where a hash leads.
#[derive(Clone, Copy, Default)]
pub(super) struct Address {
    pub(super) leaf: u64,
    /// Number of bits that select the leaf.
    pub(super) depth: u32,
    pub(super) quotient: usize,
    /// The bits after those of the quotient.
    pub(super) bits: u64,
}

/// What a table has from the beginning for the number of items that was announced.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) leaves: u64,
    pub(super) log2_quotients: u32,
    /// Number of bits of each remainder until the announced items have come. Only with several leaves: a table with one
    /// is too small to gain by it.
    remainder: u32,
}

impl Plan {
    /// With one length for all remainders, the number of leaves is chosen so that the announced items use 15/16 of the
    /// error rate `promise`: an item in a leaf that has been split costs half as much as one in a leaf that hasn't.
    fn of(promise: u128, planned: u64) -> Plan {
        let log2_quotients =
            (0..LOG2_QUOTIENTS).find(|log2| planned <= most(*log2)).unwrap_or(LOG2_QUOTIENTS);
        let each = (promise - promise / 16) / u128::from(planned.max(1));
        // The longest prefix such that 2^-length is at least `each`.
        let length = RATE_BITS - each.saturating_sub(1).max(1).ilog2() - 1;
        if planned <= LOAD || each == 0 || length < LOG2_QUOTIENTS {
            return Plan { leaves: 1, log2_quotients, remainder: 0 };
        }
        // As many leaves as there are 1024 items, or up to twice as many.
        let depth = planned.div_ceil(1024).next_power_of_two().ilog2().saturating_sub(1).min(MOST_DEPTH);
        let depth = depth.min(length - LOG2_QUOTIENTS).min(MOST_PLANNED_DEPTH);
        // If a fraction f of the leaves is split, the mean is (1 − f/2) · 2^-length.
        let split = ((2 * (unit(length) - each)) << depth).checked_div(unit(length)).unwrap_or(0) as u64;
        let leaves = (1 << depth) + split + 1;
        Plan { leaves: leaves.min(2 << depth), log2_quotients, remainder: length - LOG2_QUOTIENTS - depth }
    }
}

/// The table.
pub(crate) struct Quotient {
    pub(super) form: Form,
    /// Leaf 0.
    first: Leaf,
    /// The other leaves: `more[k]` has leaves 2^k to 2^(k+1) − 1, as far as they exist.
    more: Vec<Vec<Leaf>>,
    pub(super) leaves: u64,
    pub(super) cells: u64,
    pub(super) items: u64,
    /// Number of items that were announced.
    pub(super) planned: u64,
    pub(super) plan: Plan,
    /// Number of items at which adds are refused.
    pub(super) room: u64,
    pub(super) sum: u128,
    promise: u128,
    pub(in crate::filter::layout) saturated: u64,
    bytes: u64,
    pub(super) generations: Option<Box<Generations>>,
}

/// A number of 2^-120.
fn units(rate: f64) -> u128 {
    let (exponent, fraction) = (rate.to_bits() >> 52 & 2047, rate.to_bits() & ((1 << 52) - 1) | 1 << 52);
    // The rate is fraction · 2^(exponent − 1075).
    let shift = i64::try_from(exponent).unwrap_or(0) - 1075 + i64::from(RATE_BITS);
    if shift < 0 { u128::from(fraction) >> (-shift).min(127) } else { u128::from(fraction) << shift.min(74) }
}

/// What a prefix of this length adds to the error rate.
pub(super) fn unit(length: u32) -> u128 {
    1 << (RATE_BITS - length)
}

impl Quotient {
    /// An empty table that promises this error rate, with leaves for `planned` items.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn new(
        error_rate: f64,
        payload: u32,
        planned: u64,
        generations: Option<Generations>,
    ) -> Result<Quotient, Error> {
        Quotient::with_one_leaf(error_rate, payload, planned, generations).planned()
    }

    /// Like [`new`](Quotient::new), but with a single leaf. The caller adds the others.
    pub(super) fn with_one_leaf(
        error_rate: f64,
        payload: u32,
        planned: u64,
        generations: Option<Generations>,
    ) -> Quotient {
        let (promise, has_generations) = (units(error_rate.min(MOST_RATE)), generations.is_some());
        let plan = Plan::of(promise, planned);
        Quotient {
            form: Form { log2_quotients: plan.log2_quotients, payload, has_generations },
            first: Leaf::default(),
            more: Vec::new(),
            leaves: 1,
            cells: 0,
            items: 0,
            planned,
            plan,
            room: u64::MAX,
            sum: 0,
            promise,
            saturated: 0,
            bytes: 0,
            generations: generations.map(Box::new),
        }
    }

    /// This table with all leaves that its plan has.
    fn planned(mut self) -> Result<Quotient, Error> {
        while self.leaves < self.plan.leaves {
            self.push(Leaf::default())?;
        }
        Ok(self)
    }

    /// An empty table like this one, with a single leaf.
    fn alike(&self, generations: Option<Generations>) -> Quotient {
        Quotient {
            form: Form { log2_quotients: self.plan.log2_quotients, ..self.form },
            first: Leaf::default(),
            more: Vec::new(),
            leaves: 1,
            cells: 0,
            items: 0,
            sum: 0,
            saturated: 0,
            bytes: 0,
            generations: generations.map(Box::new),
            ..*self
        }
    }

    /// An empty table like this one.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn emptied(&self) -> Result<Quotient, Error> {
        let generations = self.generations.as_ref().map(|generations| generations.emptied()).transpose()?;
        self.alike(generations).planned()
    }

    /// A copy that shares no memory with this table.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(in crate::filter::layout) fn copy(&self) -> Result<Quotient, Error> {
        let generations = self.generations.as_ref().map(|generations| generations.copy()).transpose()?;
        let mut copy = self.alike(generations);
        copy.form = self.form;
        copy.first = self.first.copy()?;
        for leaf in self.more.iter().flatten() {
            copy.push(leaf.copy()?)?;
        }
        (copy.cells, copy.items, copy.saturated) = (self.cells, self.items, self.saturated);
        (copy.sum, copy.bytes) = (self.sum, self.bytes);
        Ok(copy)
    }

    // ---- numbers --------------------------------------------------------------------------------------------------

    /// Bytes of all leaves and of the lists of leaves.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes + self.more.iter().map(|list| list.capacity() * size_of::<Leaf>()).sum::<usize>() as u64
    }

    /// Bytes of memory that the table uses in addition to itself.
    pub(crate) fn allocated(&self) -> usize {
        let lists = self.more.capacity() * size_of::<Vec<Leaf>>();
        self.bytes() as usize
            + lists
            + self.generations.as_ref().map_or(0, |generations| generations.allocated())
    }

    /// Number of items.
    pub(crate) fn items(&self) -> u64 {
        self.items
    }

    /// Whether no item is present, not even an expired one.
    pub(crate) fn has_no_cells(&self) -> bool {
        self.cells == 0
    }

    /// The error rate: exact, apart from rounding to an `f64`.
    pub(crate) fn rate(&self) -> f64 {
        self.sum as f64 / (1u128 << RATE_BITS) as f64
    }

    /// Number of leaves.
    pub(crate) fn leaves(&self) -> u64 {
        self.leaves
    }

    /// Number of quotients in all leaves.
    pub(super) fn quotients(&self) -> u64 {
        self.leaves << self.form.log2_quotients
    }

    /// Number of quotients that the table has when it is empty.
    pub(super) fn planned_quotients(&self) -> u64 {
        self.plan.leaves << self.plan.log2_quotients
    }

    /// Number of items that fit before the table must grow.
    pub(crate) fn room(&self) -> u64 {
        self.room
    }

    pub(crate) fn set_room(&mut self, room: u64) {
        self.room = room;
    }

    /// Number of cells for which the table has leaves and quotients now.
    pub(crate) fn sized_for(&self) -> u64 {
        self.most_cells(self.leaves)
    }

    pub(super) fn most_cells(&self, leaves: u64) -> u64 {
        if leaves == 1 { most(self.form.log2_quotients) } else { leaves * LOAD }
    }

    /// Bits of the longest number that selects a leaf, minus one.
    #[inline(always)]
    pub(super) fn depth(&self) -> u32 {
        self.leaves.ilog2()
    }

    /// Number of bits that select this leaf.
    #[inline(always)]
    pub(super) fn depth_of(&self, leaf: u64) -> u32 {
        depth_in(self.leaves, leaf)
    }

    // ---- leaves ---------------------------------------------------------------------------------------------------

    #[inline(always)]
    pub(super) fn leaf(&self, index: u64) -> &Leaf {
        match index.checked_ilog2() {
            None => &self.first,
            Some(list) => &self.more[list as usize][(index - (1 << list)) as usize],
        }
    }

    #[inline(always)]
    pub(super) fn leaf_mut(&mut self, index: u64) -> &mut Leaf {
        match index.checked_ilog2() {
            None => &mut self.first,
            Some(list) => &mut self.more[list as usize][(index - (1 << list)) as usize],
        }
    }

    /// Replaces a leaf.
    pub(super) fn replace(&mut self, index: u64, leaf: Leaf) {
        let (new, place) = (leaf.bytes(), self.leaf_mut(index));
        let old = place.bytes();
        *place = leaf;
        self.bytes = self.bytes - old + new;
    }

    /// Appends a leaf.
    pub(super) fn push(&mut self, leaf: Leaf) -> Result<(), Error> {
        let list = self.depth() as usize;
        if list == self.more.len() {
            let bytes = size_of::<Leaf>() << list;
            let refused = |_| Error::OutOfMemory { bytes: bytes as u64 };
            let mut leaves = Vec::new();
            leaves.try_reserve_exact(1 << list).map_err(refused)?;
            self.more.try_reserve_exact(1).map_err(refused)?;
            self.more.push(leaves);
        }
        self.bytes += leaf.bytes();
        self.more[list].push(leaf);
        self.leaves += 1;
        Ok(())
    }

    /// Removes the last leaf.
    pub(super) fn pop(&mut self) {
        let Some(list) = self.more.last_mut() else { return };
        let bytes = list.pop().map_or(0, |leaf| leaf.bytes());
        if list.is_empty() {
            self.more.pop();
        }
        self.bytes -= bytes;
        self.leaves -= 1;
    }

    /// Takes in leaves that came from elsewhere, in the order of their positions, and what is known about them. The
    /// table must have a single leaf.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn adopt(&mut self, form: Form, leaves: Vec<Leaf>, totals: Totals) -> Result<(), Error> {
        self.form = form;
        (self.cells, self.sum, self.saturated) = (totals.cells, totals.sum, totals.saturated);
        while self.leaves < leaves.len() as u64 {
            self.push(Leaf::default())?;
        }
        let mut position = 0;
        for leaf in leaves {
            let (depth, index) = leaf_at(self.leaves, position);
            self.replace(index, leaf);
            position += END >> depth;
        }
        Ok(())
    }

    // ---- items ----------------------------------------------------------------------------------------------------

    #[inline(always)]
    pub(super) fn address(&self, hash: Hash) -> Address {
        let (low, depth) = (hash as u64, self.depth());
        let base = low & ((1 << depth) - 1);
        let is_split = base < self.leaves - (1 << depth);
        let depth = depth + u32::from(is_split);
        let leaf = if is_split { low & ((1 << depth) - 1) } else { base };
        let log2_quotients = self.form.log2_quotients;
        let quotient = (low >> depth) as usize & ((1 << log2_quotients) - 1);
        Address { leaf, depth, quotient, bits: (hash >> (depth + log2_quotients)) as u64 }
    }

    /// The leaf of the hash, and the payload in its cell. `None` if no prefix of the hash is in the table.
    #[inline(always)]
    pub(super) fn find(&self, hash: Hash) -> Option<(&Leaf, u64)> {
        let at = self.address(hash);
        let leaf = self.leaf(at.leaf);
        let (_, _, payload) = leaf.find(self.form, leaf.run(self.form, at.quotient), at.bits)?;
        Some((leaf, payload))
    }

    /// Calls `found` with the number of each of up to 64 `asked` hashes that [`find`](Quotient::find) finds. The
    /// hashes' cache misses overlap.
    #[inline(always)]
    pub(super) fn find_many(
        &self,
        asked: Hits,
        hash: impl Fn(usize) -> Hash,
        mut found: impl FnMut(usize, &Leaf, u64),
    ) {
        let (form, mut addresses) = (self.form, [Address::default(); Hits::MAX]);
        let mut runs = [Place::default(); Hits::MAX];
        asked.for_each(|number| {
            let at = self.address(hash(number));
            self.leaf(at.leaf).prefetch_unary(form, at.quotient);
            addresses[number] = at;
        });
        asked.for_each(|number| {
            let leaf = self.leaf(addresses[number].leaf);
            runs[number] = leaf.run(form, addresses[number].quotient);
            leaf.prefetch_cell(runs[number]);
        });
        asked.for_each(|number| {
            let leaf = self.leaf(addresses[number].leaf);
            if let Some((_, _, payload)) = leaf.find(form, runs[number], addresses[number].bits) {
                found(number, leaf, payload);
            }
        });
    }

    /// Requests the first cache lines that finding this hash touches.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: Hash) {
        let at = self.address(hash);
        self.leaf(at.leaf).prefetch_unary(self.form, at.quotient);
    }

    /// Changes the payload of the hash. `change` gets the payload before, `None` if the table has no prefix of the
    /// hash, and returns the payload after, `None` to remove the cell. Returns both.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::OutOfMemory`] for a hash that isn't in the table. In both cases, nothing has changed.
    #[inline(always)]
    pub(super) fn change(
        &mut self,
        hash: Hash,
        change: impl FnOnce(&Leaf, Option<u64>) -> Option<u64>,
    ) -> Result<(Option<u64>, Option<u64>), Error> {
        let (form, at) = (self.form, self.address(hash));
        let leaf = self.leaf_mut(at.leaf);
        let run = leaf.run(form, at.quotient);
        match leaf.find(form, run, at.bits) {
            Some((place, remainder, before)) => {
                let after = change(leaf, Some(before));
                match after {
                    Some(payload) if payload == before => {}
                    Some(payload) => leaf.set_payload(form, place, payload),
                    None => self.take_out(at, place, remainder),
                }
                Ok((Some(before), after))
            }
            None => {
                let after = change(leaf, None);
                if let Some(payload) = after {
                    self.put(at, run, payload)?;
                }
                Ok((None, after))
            }
        }
    }

    /// Adds a cell for an item without one.
    fn put(&mut self, at: Address, run: Place, payload: u64) -> Result<(), Error> {
        if self.items >= self.room {
            return Err(Error::Full);
        }
        let (form, before) = (self.form, at.depth + self.form.log2_quotients);
        let leaf = self.leaf(at.leaf);
        let bits = self.next_remainder(before).min(form.most_remainder());
        let bits = bits.max(leaf.distinct(form, run, at.bits));
        if bits > form.most_remainder() {
            return Err(Error::Full);
        }
        let remainder = at.bits & ((1 << bits) - 1) | 1 << bits;
        self.insert(at.leaf, run, (remainder, payload))?;
        self.items += 1;
        self.spend(before + bits);
        self.grow();
        Ok(())
    }

    /// Adds what a prefix of this length costs to the error rate.
    pub(super) fn spend(&mut self, length: u32) {
        self.sum += unit(length);
    }

    /// Counts the counters that have reached their maximum.
    pub(super) fn count_saturated(&mut self) {
        if self.form.payload > 0 && !self.form.has_generations {
            let leaves = 0..self.leaves;
            let form = self.form;
            self.saturated = leaves.map(|index| form.saturated_in(self.leaf(index).list(form))).sum();
        }
    }

    /// Notes that these cells have become `more`: a cell without a remainder belongs to both halves of a leaf.
    pub(super) fn duplicate(&mut self, cells: &[Cell], more: &[Cell]) {
        self.cells = self.cells - cells.len() as u64 + more.len() as u64;
        self.saturated += self.form.saturated_in(more.iter().copied());
        self.saturated -= self.form.saturated_in(cells.iter().copied());
    }

    /// Adds a cell to a leaf.
    pub(super) fn insert(&mut self, leaf: u64, run: Place, cell: (Marked, u64)) -> Result<(), Error> {
        let (form, newest) = (self.form, self.newest());
        let place = self.leaf_mut(leaf);
        let old = place.bytes();
        place.insert(form, run, cell, newest)?;
        let new = place.bytes();
        self.bytes = self.bytes - old + new;
        self.cells += 1;
        Ok(())
    }

    fn take_out(&mut self, at: Address, place: Place, remainder: Marked) {
        self.remove(at.leaf, place, remainder);
        self.items = self.items.saturating_sub(1);
        self.shrink();
    }

    /// Removes a cell from a leaf.
    pub(super) fn remove(&mut self, leaf: u64, place: Place, remainder: Marked) {
        let (form, prefix) = (self.form, self.prefix_of(leaf, remainder));
        let block = self.leaf_mut(leaf);
        let old = block.bytes();
        block.remove(form, place);
        let new = block.bytes();
        self.bytes = self.bytes - old + new;
        self.cells -= 1;
        self.sum -= unit(prefix);
    }

    /// Number of bits of the prefix that a remainder in this leaf stands for.
    pub(super) fn prefix_of(&self, leaf: u64, remainder: Marked) -> u32 {
        self.depth_of(leaf) + self.form.log2_quotients + length(remainder)
    }

    /// Number of bits of the next prefix, unless others begin like it.
    pub(super) fn next_length(&self) -> u32 {
        let address = self.depth() + self.form.log2_quotients;
        address + self.next_remainder(address).min(self.form.most_remainder())
    }

    /// Number of bits of the next remainder, if the leaf and the quotient have this many bits.
    fn next_remainder(&self, address: u32) -> u32 {
        if self.cells < self.planned && self.plan.leaves > 1 && self.leaves >= self.plan.leaves {
            return self.plan.remainder;
        }
        let sized = self.sized_for().max(self.planned).max(LOAD);
        let cells = u128::from(sized) * PARTS;
        // Merges can use up the error rate. Then new items add little to it.
        let left = self.promise.saturating_sub(self.sum).max(self.promise / 256).max(1);
        // The prefix has ⌈log2(cells / left)⌉ bits.
        let shift = left.ilog2().saturating_sub(cells.ilog2());
        let shift = if cells << shift > left { shift.saturating_sub(1) } else { shift };
        (RATE_BITS - shift).saturating_sub(address)
    }
}

/// Maximum number of cells in a table with a single leaf that has 2^`log2_quotients` quotients.
pub(super) fn most(log2_quotients: u32) -> u64 {
    if log2_quotients == LOG2_QUOTIENTS { LOAD } else { (4 << log2_quotients) / 5 }
}

/// Number of bits that select this leaf among `leaves` leaves.
#[inline(always)]
pub(super) fn depth_in(leaves: u64, leaf: u64) -> u32 {
    let depth = leaves.ilog2();
    depth + u32::from(leaf & ((1 << depth) - 1) < leaves - (1 << depth))
}
