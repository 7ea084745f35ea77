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
use super::pieces::{END, Totals, half, leaf_at};
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

/// Leaves are joined when there are fewer cells than this fraction of those at which they would be split again.
const JOINED: (u64, u64) = (3, 4);

/// Maximum depth of a leaf in a table without items: 2^20 empty leaves need 16 MiB.
const MOST_PLANNED_DEPTH: u32 = 19;

/// A table keeps below this rate. With more, prefixes would cover most quotients, and splits would leave as many cells
/// in each half as there were.
const MOST_RATE: f64 = 0.5;

/// Maximum depth of a leaf.
pub(super) const MOST_DEPTH: u32 = 40;

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
struct Plan {
    leaves: u64,
    log2_quotients: u32,
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
    leaves: u64,
    pub(super) cells: u64,
    pub(super) items: u64,
    /// Number of items that were announced.
    planned: u64,
    plan: Plan,
    /// Number of items at which adds are refused.
    pub(super) room: u64,
    sum: u128,
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

    /// The error rate: exact, apart from rounding to an `f64`.
    pub(crate) fn rate(&self) -> f64 {
        self.sum as f64 / (1u128 << RATE_BITS) as f64
    }

    /// Number of leaves.
    pub(crate) fn leaves(&self) -> u64 {
        self.leaves
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

    fn most_cells(&self, leaves: u64) -> u64 {
        if leaves == 1 { most(self.form.log2_quotients) } else { leaves * LOAD }
    }

    /// Bits of the longest number that selects a leaf, minus one.
    #[inline(always)]
    fn depth(&self) -> u32 {
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
    fn push(&mut self, leaf: Leaf) -> Result<(), Error> {
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
    fn pop(&mut self) {
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
    fn duplicate(&mut self, cells: &[Cell], more: &[Cell]) {
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

    // ---- growing and shrinking ------------------------------------------------------------------------------------

    /// Splits a leaf if there are too many cells. Without memory, the table stays as it is, and the next add tries
    /// again.
    pub(super) fn grow(&mut self) {
        // With a plan, leaves have more items before they are split.
        let planned = self.planned.min(2 * LOAD * self.leaves);
        // Merges can bring the rate above `MOST_RATE`.
        if self.cells <= self.sized_for().max(planned) || self.rate() > MOST_RATE {
            return;
        }
        if self.leaves == 1 && self.form.log2_quotients < LOG2_QUOTIENTS {
            self.double_quotients();
        } else if self.depth() < MOST_DEPTH {
            self.split();
        }
    }

    /// Joins two leaves if there are few cells.
    pub(super) fn shrink(&mut self) {
        let log2_quotients = self.form.log2_quotients;
        let fewer = match self.leaves {
            1 if log2_quotients <= self.plan.log2_quotients => return,
            1 => most(log2_quotients - 1),
            leaves if leaves <= self.plan.leaves => return,
            leaves => self.most_cells(leaves - 1),
        };
        if self.cells * JOINED.1 >= fewer * JOINED.0 {
            return;
        }
        if self.leaves == 1 { self.halve_quotients() } else { self.join() }
    }

    /// The cells of a leaf that haven't expired, and those that have.
    pub(super) fn list(&self, index: u64) -> (Vec<Cell>, Vec<Cell>) {
        let leaf = self.leaf(index);
        leaf.list(self.form).partition(|cell| !self.is_dead(leaf, cell.payload))
    }

    /// Notes that these cells of a leaf are no longer in the table.
    pub(super) fn uncount(&mut self, index: u64, cells: &[Cell]) {
        for cell in cells {
            self.cells -= 1;
            self.sum -= unit(self.prefix_of(index, cell.remainder));
        }
    }

    /// Frees the expired cells of a leaf, and then shrinks if there are few cells.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; then nothing has changed.
    pub(super) fn clean(&mut self, index: u64) -> Result<(), Error> {
        let (cells, expired) = self.list(index);
        let leaf = Leaf::build(self.form, &cells, self.newest())?;
        self.uncount(index, &expired);
        self.replace(index, leaf);
        (0..2).for_each(|_| self.shrink());
        Ok(())
    }

    fn double_quotients(&mut self) {
        let (cells, expired) = self.list(0);
        let top = self.form.quotients() as u32;
        let form = Form { log2_quotients: self.form.log2_quotients + 1, ..self.form };
        let halves = [0, 1].map(|half| cells.iter().filter_map(move |cell| cell.shortened(half, top)));
        let list: Vec<Cell> = halves.into_iter().flatten().collect();
        if let Ok(leaf) = Leaf::build(form, &list, self.newest()) {
            self.uncount(0, &expired);
            self.duplicate(&cells, &list);
            self.form = form;
            self.replace(0, leaf);
        }
    }

    fn halve_quotients(&mut self) {
        let (cells, expired) = self.list(0);
        let form = Form { log2_quotients: self.form.log2_quotients - 1, ..self.form };
        let list = lengthened(form, &[&cells], form.quotients() as u32);
        if let Some(Ok(leaf)) = list.map(|list| Leaf::build(form, &list, self.newest())) {
            self.uncount(0, &expired);
            self.form = form;
            self.replace(0, leaf);
        }
    }

    /// Splits the next leaf in turn.
    fn split(&mut self) {
        let form = self.form;
        let index = self.leaves - (1 << self.depth());
        let (cells, expired) = self.list(index);
        let parts = [0, 1].map(|odd| half(form, &cells, odd));
        let built = parts.each_ref().map(|cells| Leaf::build(form, cells, self.newest()));
        if let [Ok(low), Ok(high)] = built
            && self.push(high).is_ok()
        {
            // The depth of the leaf has changed with its number of cells.
            self.leaves -= 1;
            self.uncount(index, &expired);
            self.leaves += 1;
            self.duplicate(&cells, &parts.concat());
            self.replace(index, low);
        }
    }

    /// Joins the last leaf with the one from which it was split.
    fn join(&mut self) {
        let last = self.leaves - 1;
        let index = last - (1 << last.ilog2());
        let [low, high] = [index, last].map(|leaf| self.list(leaf));
        let list = lengthened(self.form, &[&low.0, &high.0], self.form.quotients() as u32 / 2);
        if let Some(Ok(leaf)) = list.map(|list| Leaf::build(self.form, &list, self.newest())) {
            self.uncount(index, &low.1);
            self.uncount(last, &high.1);
            self.pop();
            self.replace(index, leaf);
        }
    }
}

/// Maximum number of cells in a table with a single leaf that has 2^`log2_quotients` quotients.
fn most(log2_quotients: u32) -> u64 {
    if log2_quotients == LOG2_QUOTIENTS { LOAD } else { (4 << log2_quotients) / 5 }
}

/// Number of bits that select this leaf among `leaves` leaves.
#[inline(always)]
pub(super) fn depth_in(leaves: u64, leaf: u64) -> u32 {
    let depth = leaves.ilog2();
    depth + u32::from(leaf & ((1 << depth) - 1) < leaves - (1 << depth))
}

impl Cell {
    /// The cell without the first bit of its remainder, if that bit is `half`. If the bit is 1, the quotient grows by
    /// `top`. A cell without a remainder belongs to both halves.
    pub(super) fn shortened(&self, half: u64, top: u32) -> Option<Cell> {
        let remainder = match self.remainder {
            1 => 1,
            remainder if remainder & 1 == half => remainder >> 1,
            _ => return None,
        };
        Some(Cell { quotient: self.quotient + half as u32 * top, remainder, ..*self })
    }
}

/// The cells of these leaves as the cells of one leaf. A quotient's number is below 2 · `half`; its highest bit becomes
/// the first bit of the remainder. `None` if a remainder would be too long.
fn lengthened(form: Form, parts: &[&[Cell]], half: u32) -> Option<Vec<Cell>> {
    let mut list = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
    let mut halves: smallvec::SmallVec<[_; 2]> = parts
        .iter()
        .map(|part| {
            let (low, high) = part.split_at(part.partition_point(|cell| cell.quotient < half));
            [low.iter().peekable(), high.iter().peekable()]
        })
        .collect();
    for quotient in 0..half {
        for (number, halves) in (0..).zip(&mut halves) {
            for (bit, cells) in (0..).zip(halves) {
                while let Some(cell) = cells.next_if(|cell| cell.quotient == quotient + bit * half) {
                    if length(cell.remainder) >= form.most_remainder() {
                        return None;
                    }
                    list.push(Cell {
                        quotient: quotient * parts.len() as u32 + number,
                        remainder: cell.remainder << 1 | u64::from(bit),
                        payload: cell.payload,
                    });
                }
            }
        }
    }
    Some(list)
}
