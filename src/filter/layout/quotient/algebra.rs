//! Union, intersection and equality of tables of any sizes. The union of a prefix and a longer one that it begins is
//! the shorter one, their intersection the longer one.

use super::estimate::Estimate;
use super::leaf::{Cell, Form, Leaf, MOST_CELLS, Marked, Place, length, order};
use super::table::{Address, Hash, LOAD, LOG2_QUOTIENTS, Quotient, unit};
use super::{read, write};
use crate::error::Error;
use crate::filter::layout::Layer;
use crate::parallel::{ParallelFor, in_turns};
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;
use crate::sync::{Mutex, PoisonError};
use alloc::vec::Vec;
use smallvec::SmallVec;

/// Bits that the hashes of items begin with, and their count or age.
#[derive(Clone, Copy)]
struct Prefix {
    bits: Hash,
    length: u32,
    value: u64,
    /// Whether it counts as an item if the table has none with this prefix. If a prefix is divided, only one part does.
    is_item: bool,
}

impl Prefix {
    /// The two prefixes that are longer by a bit.
    fn halves(self) -> [Prefix; 2] {
        let length = self.length + 1;
        [true, false].map(|is_low| Prefix {
            bits: self.bits | Hash::from(!is_low) << self.length,
            length,
            is_item: self.is_item && is_low,
            ..self
        })
    }
}

/// A prefix is at most this many bits shorter than the bits that select a quotient: it then has as many cells as
/// [`MOST_DIVIDED`](Estimate::MOST_DIVIDED).
const MOST_MISSING: u32 = Estimate::MOST_DIVIDED.ilog2();

impl Quotient {
    /// Number of cells beyond one for each item.
    fn surplus(&self) -> u64 {
        self.cells.saturating_sub(self.items)
    }

    /// The prefixes of a leaf, except those of expired items. With generations, their ages when `current` is the newest
    /// one.
    fn prefixes(&self, index: u64, current: u64) -> Vec<Prefix> {
        // While a thread visits the leaves, another may shrink the table.
        if index >= self.leaves() {
            return Vec::new();
        }
        let (leaf, depth) = (self.leaf(index), self.depth_of(index));
        let address = depth + self.form.log2_quotients;
        let prefix = |cell: super::leaf::Cell| {
            let remainder = cell.remainder ^ 1 << length(cell.remainder);
            let value = match self.generations {
                Some(_) => self.age_of(leaf, cell.payload, current)?,
                None => cell.payload,
            };
            Some(Prefix {
                bits: Hash::from(index)
                    | Hash::from(cell.quotient) << depth
                    | Hash::from(remainder) << address,
                length: address + length(cell.remainder),
                value,
                is_item: true,
            })
        };
        leaf.list(self.form).filter_map(prefix).collect()
    }

    /// Where a prefix belongs. `None` if it is too short, and belongs to several quotients.
    fn place(&self, prefix: Prefix) -> Option<(Address, Place)> {
        let at = self.address(prefix.bits);
        (prefix.length >= at.depth + self.form.log2_quotients)
            .then(|| (at, self.leaf(at.leaf).run(self.form, at.quotient)))
    }

    /// The cells that begin a prefix, or that it begins: their places, their lengths and values.
    fn related(
        &self,
        prefix: Prefix,
        (at, run): (Address, Place),
        current: u64,
    ) -> Vec<(Place, Marked, u64)> {
        let leaf = self.leaf(at.leaf);
        let own = prefix.length - at.depth - self.form.log2_quotients;
        let cells = leaf.run_cells(self.form, run).filter(|(_, remainder, _)| {
            (remainder ^ at.bits).trailing_zeros() >= own.min(length(*remainder))
        });
        cells
            .filter_map(|(place, remainder, payload)| match self.generations {
                Some(_) => Some((place, remainder, self.age_of(leaf, payload, current)?)),
                None => Some((place, remainder, payload)),
            })
            .collect()
    }

    /// Whether every item with this prefix is in the table with this value. `None` if that depends on longer prefixes.
    fn covers(&self, prefix: Prefix, current: u64) -> Option<bool> {
        let place = self.place(prefix)?;
        let own = prefix.length - place.0.depth - self.form.log2_quotients;
        match self.related(prefix, place, current)[..] {
            [] => Some(false),
            [(_, remainder, value)] if length(remainder) <= own => Some(value == prefix.value),
            _ => None,
        }
    }

    /// Calls `found` with the parts of a prefix whose items are also in this table, and their values here.
    fn meet(&self, prefix: Prefix, found: &mut impl FnMut(Prefix, u64)) {
        let Some(place) = self.place(prefix) else { return self.meet_short(prefix, found) };
        let address = place.0.depth + self.form.log2_quotients;
        for (_, remainder, value) in self.related(prefix, place, self.newest()) {
            let bits = remainder ^ 1 << length(remainder);
            let longer = prefix.length.max(address + length(remainder));
            let mask = (1 << address) - 1;
            let bits = prefix.bits & mask | (prefix.bits >> address | Hash::from(bits)) << address;
            found(Prefix { bits, length: longer, is_item: true, ..prefix }, value);
        }
    }

    /// Like [`meet`](Quotient::meet), for a prefix that belongs to several quotients. Visits only those with cells.
    fn meet_short(&self, prefix: Prefix, found: &mut impl FnMut(Prefix, u64)) {
        let at = self.address(prefix.bits);
        if prefix.length < at.depth {
            return prefix.halves().into_iter().for_each(|half| self.meet(half, found));
        }
        for part in self.prefixes(at.leaf, self.newest()) {
            if (part.bits ^ prefix.bits) & ((1 << prefix.length) - 1) == 0 {
                found(Prefix { value: prefix.value, ..part }, part.value);
            }
        }
    }

    /// Adds all items with this prefix, which is shortened if a cell has no room for it. `together` combines values.
    /// Returns whether anything changed.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Full`] for a prefix that belongs to too many quotients.
    fn add(&mut self, prefix: Prefix, together: &impl Fn(u64, u64) -> u64) -> Result<bool, Error> {
        self.prepare(prefix.bits)?;
        let Some((at, run)) = self.place(prefix) else {
            if self.address(prefix.bits).depth + self.form.log2_quotients - prefix.length > MOST_MISSING {
                return Err(Error::Full);
            }
            let [low, high] = prefix.halves();
            return Ok(self.add(low, together)? | self.add(high, together)?);
        };
        let (form, newest) = (self.form, self.newest());
        let address = at.depth + form.log2_quotients;
        // The most are 45 bits or more, so shortened prefixes together add at most 2^-45 to the error rate.
        let own = (prefix.length - address).min(form.most_remainder());
        // Cells of expired items count as well: they are removed or used again.
        let related: SmallVec<[_; 4]> = self
            .leaf(at.leaf)
            .run_cells(form, run)
            .filter(|(_, remainder, _)| (remainder ^ at.bits).trailing_zeros() >= own.min(length(*remainder)))
            .map(|(place, remainder, payload)| {
                let value = match self.generations {
                    Some(_) => self.age_of(self.leaf(at.leaf), payload, newest),
                    None => Some(payload),
                };
                (place, remainder, value)
            })
            .collect();
        let values = related.iter().filter_map(|(_, _, value)| *value);
        let (sum, had) = (values.clone().fold(prefix.value, together), values.clone().count() as u64);
        values.for_each(|value| self.count_out(value));
        if had > 0 || prefix.is_item {
            self.count_in(sum);
        }
        let payload = self.payload_of(sum);
        if let [(place, remainder, before)] = related[..]
            && length(remainder) <= own
        {
            self.leaf_mut(at.leaf).set_payload(form, place, payload);
            return Ok(before != Some(sum));
        }
        // From the last to the first, so that places stay valid.
        for (place, remainder, _) in related.into_iter().rev() {
            self.remove(at.leaf, place, remainder);
        }
        let run = self.leaf(at.leaf).run(form, at.quotient);
        let remainder = at.bits & ((1 << own) - 1) | 1 << own;
        self.insert(at.leaf, run, (remainder, payload))?;
        self.spend(address + own);
        self.grow();
        Ok(true)
    }
}

/// A leaf of another table.
struct Theirs {
    form: Form,
    depth: u32,
    cells: Vec<Cell>,
}

/// The cells of a leaf, to which those of another are added, and the table's number of items.
struct Union<'t, F> {
    cells: Vec<Cell>,
    items: u64,
    changed: bool,
    together: &'t F,
}

impl<F: Fn(u64, u64) -> u64> Union<'_, F> {
    /// Adds a cell. Those of its quotient begin at this index.
    fn add(&mut self, first: usize, mut cell: Cell) {
        let own = length(cell.remainder);
        let is_related = |other: &Cell| {
            let least = own.min(length(other.remainder));
            (other.remainder ^ cell.remainder).trailing_zeros() >= least
        };
        let is_shorter = |other: &&mut Cell| length(other.remainder) <= own && is_related(other);
        if let Some(shorter) = self.cells[first..].iter_mut().find(is_shorter) {
            let sum = (self.together)(shorter.payload, cell.payload);
            self.changed |= sum != shorter.payload;
            shorter.payload = sum;
            return;
        }
        let (mut longer, mut sum) = (0, cell.payload);
        for other in self.cells.extract_if(first.., |other| is_related(other)) {
            (longer, sum) = (longer + 1, (self.together)(sum, other.payload));
        }
        cell.payload = sum;
        self.cells.push(cell);
        self.items = self.items.saturating_sub(longer) + 1;
        self.changed = true;
    }
}

/// Maximum number of steps by which a table grows from a single quotient to a size for this many cells.
fn steps_for(cells: u64) -> u64 {
    cells / LOAD + u64::from(LOG2_QUOTIENTS) + 2
}

/// Whole leaves.
impl Quotient {
    /// A leaf; without cells if another thread has removed it in the meantime.
    fn leaf_of(&self, index: u64) -> Theirs {
        let cells =
            if index < self.leaves() { self.leaf(index).list(self.form).collect() } else { Vec::new() };
        Theirs { form: self.form, depth: self.depth_of(index), cells }
    }

    /// Adds the cells of another table's leaf with this index, twice as fast as one by one. The caller then lets the
    /// table grow. Returns whether anything changed; `None` if the leaf isn't in the same place here.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; then nothing has changed.
    fn unite_leaf(
        &mut self,
        index: u64,
        theirs: &Theirs,
        together: &impl Fn(u64, u64) -> u64,
    ) -> Result<Option<bool>, Error> {
        let form = self.form;
        if index >= self.leaves()
            || (form, self.depth_of(index)) != (theirs.form, theirs.depth)
            || self.leaf(index).cells() + theirs.cells.len() > MOST_CELLS
        {
            return Ok(None);
        }
        let mine: Vec<Cell> = self.leaf(index).list(form).collect();
        let cells = Vec::with_capacity(mine.len() + theirs.cells.len());
        let (mut union, mut rest) = (Union { cells, items: self.items, changed: false, together }, &mine[..]);
        let mut take = |to: &mut Vec<Cell>, is_next: &dyn Fn(u32) -> bool| {
            let count = rest.iter().take_while(|cell| is_next(cell.quotient)).count();
            to.extend(rest.split_off(..count).into_iter().flatten());
        };
        for run in theirs.cells.chunk_by(|a, b| a.quotient == b.quotient) {
            let quotient = run[0].quotient;
            take(&mut union.cells, &|other| other < quotient);
            let first = union.cells.len();
            take(&mut union.cells, &|other| other == quotient);
            run.iter().for_each(|cell| union.add(first, *cell));
            union.cells[first..].sort_unstable_by_key(|cell| order(cell.remainder));
        }
        take(&mut union.cells, &|_| true);
        if union.changed {
            let leaf = Leaf::build(form, &union.cells, 0)?;
            self.uncount(index, &mine);
            self.cells += union.cells.len() as u64;
            let units = union.cells.iter().map(|cell| unit(self.prefix_of(index, cell.remainder)));
            self.sum += units.sum::<u128>();
            self.items = union.items;
            self.replace(index, leaf);
        }
        Ok(Some(union.changed))
    }
}

impl Layer {
    /// Number of leaves of the table.
    fn leaves(&self) -> u64 {
        read(self).leaves()
    }

    /// Whether the tables of both layers have the same items. With generations, the items' ages must be equal when
    /// these are the newest ones.
    pub(crate) fn has_same_items(
        &self,
        other: &Layer,
        current: [u64; 2],
        parallel: &ParallelFor<'_>,
    ) -> bool {
        let [mine, theirs] = current;
        let sides = [(self, other, current), (other, self, [theirs, mine])];
        sides.into_iter().all(|(a, b, current)| {
            crate::parallel::all_of(a.leaves() as usize, parallel, |index| {
                // Never two locks at once: if both layers are the same, a writer may wait between them.
                let mut prefixes = read(a).prefixes(index as u64, current[0]);
                while let Some(prefix) = prefixes.pop() {
                    // A lock for each of them, because a short prefix may be looked up in millions of places.
                    let covers = read(b).covers(prefix, current[1]);
                    match covers {
                        Some(true) => {}
                        Some(false) => return false,
                        None => prefixes.extend(prefix.halves()),
                    }
                }
                true
            })
        })
    }

    /// Adds the leaves of another layer's table that are in the same place in this one. Returns whether anything
    /// changed, and which leaves are left.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    fn unite_whole(
        &self,
        other: &Layer,
        together: &(impl Fn(u64, u64) -> u64 + Sync),
        parallel: &ParallelFor<'_>,
    ) -> Result<(bool, Vec<u64>), Error> {
        let done = Mutex::new((false, Vec::new()));
        in_turns(other.leaves(), parallel, |leaves| {
            for index in leaves {
                let theirs = read(other).leaf_of(index);
                let united = write(self).unite_leaf(index, &theirs, together)?;
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                match united {
                    Some(has_changed) => done.0 |= has_changed,
                    None => done.1.push(index),
                }
            }
            Ok::<_, Error>(())
        })?;
        let (changed, left) = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        // The table grows only now, because that moves leaves.
        if changed {
            let cells = read(self).cells;
            self.grow_in_turns(cells, parallel)?;
        }
        Ok((changed, left))
    }

    /// Lets the table grow to a size for this many cells.
    fn grow_in_turns(&self, cells: u64, parallel: &ParallelFor<'_>) -> Result<(), Error> {
        in_turns(steps_for(cells).saturating_sub(self.leaves()), parallel, |steps| {
            let mut table = write(self);
            steps.for_each(|_| table.grow_for(cells));
            Ok(())
        })
    }

    /// Adds the items of another layer, whose ages become older by `ages_by`. A table that `grows` takes more items
    /// than it has room for now. Returns whether anything changed.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Full`] if the table has no room for all items. Some of them have been added
    /// by then.
    pub(crate) fn unite(
        &self,
        other: &Layer,
        ages_by: i128,
        grows: bool,
        parallel: &ParallelFor<'_>,
    ) -> Result<bool, Error> {
        let most = (1u64 << self.cell().payload()) - 1;
        let (own, room) = (self.items(), if grows { u64::MAX } else { read(self).room() });
        let span = u64::from(self.generations());
        // Items of the other table that have several cells are first counted several times.
        let surplus = read(other).surplus();
        let together = |a: u64, b: u64| if span > 0 { a.min(b) } else { a.saturating_add(b).min(most) };
        if grows {
            // With as many leaves as the other table, which has as many cells, its leaves are in the same places.
            // Leaves that were only planned count for nothing.
            let (cells, _) = read(other).alive();
            self.grow_in_turns(cells, parallel)?;
        }
        let (has_changed, left) = match span {
            0 if grows => self.unite_whole(other, &together, parallel)?,
            _ => (false, (0..other.leaves()).collect()),
        };
        let changed = AtomicU64::new(has_changed.into());
        in_turns(left.len() as u64, parallel, |leaves| {
            for index in &left[leaves.start as usize..leaves.end as usize] {
                let theirs = {
                    let table = read(other);
                    table.prefixes(*index, table.newest())
                };
                let mut mine = write(self);
                for prefix in theirs {
                    let value = match span {
                        0 => prefix.value,
                        _ => match u64::try_from((i128::from(prefix.value) + ages_by).max(0)) {
                            Ok(age) if age < span => age,
                            _ => continue,
                        },
                    };
                    let has_item = |mine: &Quotient| {
                        let place = mine.place(prefix);
                        place.is_some_and(|place| !mine.related(prefix, place, mine.newest()).is_empty())
                    };
                    if mine.items >= room.saturating_add(surplus) && !has_item(&mine) {
                        return Err(Error::Full);
                    }
                    if mine.add(Prefix { value, ..prefix }, &together)? {
                        changed.store(1, Relaxed);
                    }
                }
            }
            Ok(())
        })?;
        let items = {
            let (theirs, mut mine) = (other.items(), write(self));
            mine.count_saturated();
            if span == 0 {
                mine.items = mine.items.min(own.saturating_add(theirs));
            }
            mine.items
        };
        self.count_table();
        if items > room.max(own) {
            return Err(Error::Full);
        }
        // Cells may have expired, or be in both tables.
        in_turns(self.leaves(), parallel, |steps| {
            let mut table = write(self);
            steps.for_each(|_| table.shrink());
            Ok::<_, Error>(())
        })?;
        if grows {
            self.grow_table();
        }
        Ok(changed.into_inner() != 0)
    }

    /// Keeps only the items that another layer also has. Counts become the smaller ones.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn keep_common(&self, other: &Layer, parallel: &ParallelFor<'_>) -> Result<(), Error> {
        let common = read(self).emptied()?;
        let common = Mutex::new(common);
        // Prefixes of the table with more quotients are longer, so each is looked up in one place of the other.
        let [mine, theirs] = [self, other].map(|layer| read(layer).quotients());
        let (long, short) = if mine < theirs { (other, self) } else { (self, other) };
        in_turns(long.leaves(), parallel, |leaves| {
            let mut common = common.lock().unwrap_or_else(PoisonError::into_inner);
            for index in leaves {
                let prefixes = read(long).prefixes(index, 0);
                let (table, mut found) = (read(short), Vec::new());
                for prefix in prefixes {
                    table.meet(prefix, &mut |part, value| {
                        found.push(Prefix { value: part.value.min(value), ..part });
                    });
                }
                drop(table);
                found.into_iter().try_for_each(|prefix| common.add(prefix, &u64::max).map(drop))?;
            }
            Ok(())
        })?;
        let mut common = common.into_inner().unwrap_or_else(PoisonError::into_inner);
        common.count_saturated();
        // A prefix that was divided counts once.
        common.items = common.items.min(self.items()).min(other.items());
        self.lower_room(&mut common);
        *write(self) = common;
        self.count_table();
        Ok(())
    }
}
