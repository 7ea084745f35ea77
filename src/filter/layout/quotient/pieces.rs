//! Tables in pieces. A piece contains the leaves of a range of hashes, in the order of their hashes' bits, the lowest
//! first. So the place at which a piece ends doesn't depend on the number of leaves: a dump goes on where it was while
//! the table grows and shrinks.
//!
//! A leaf is written as words:
//!
//! ```text
//! head        bits 0..16 number of cells, 16..24 bits per cell, 24 whether each remainder is followed by a 1,
//!             32..40 number of bits that select the leaf, 40..48 log2 of the number of quotients
//! generation  at which the leaf was last cleaned; only if cells belong to generations
//! unary part  a 1 for each cell, a 0 at the end of each quotient
//! cells       the first one at the end of the last word, each further one before it
//! ```

use super::bits::get;
use super::generations::is_alive;
use super::leaf::{Cell, Form, Leaf, MOST_CELLS, length, order};
use super::resize::halves;
use super::table::{Hash, LOAD, LOG2_QUOTIENTS, MOST_DEPTH, Quotient, depth_in, unit};
use super::{cells, new_generations, payload};
use crate::error::Error;
use crate::filter::layout::shape::Shape;
use crate::params::limits;
use alloc::{vec, vec::Vec};
use core::ops::Range;

/// The position after the last hash. A position is the first bits of a hash, the lowest bit first, as the highest bits
/// of a number below this one. Positions in two tables are still integers that a double can hold, as in Lua scripts.
pub(crate) const END: u64 = 1 << 51;

/// Number of bits by which a hash has more bits than a position.
const UNUSED: u32 = 13;

/// Leaves made of others need at most this many times the memory of what was read into them, plus [`SPARE`]. A table
/// that has shrunk since its head was written is read as one with the head's number of leaves, which are emptier.
const MOST_TIMES: u64 = 2;
const SPARE: u64 = 1 << 20;

/// Loading makes at most this many copies of cells for each of those words, plus [`SPARE_COPIES`]: a cell without a
/// remainder belongs to both halves of a leaf. Making a copy takes 30 ns.
const MOST_COPIES: u64 = 4;
const SPARE_COPIES: u64 = 1 << 15;

/// Maximum number of words from which a leaf is put together. They are saved in one chunk.
const MOST_PENDING: usize = 2 * MOST_CELLS;

/// The bits of the hashes at a position, the first one lowest.
fn hashes_at(position: u64) -> u64 {
    (position << UNUSED).reverse_bits()
}

/// A cell of a leaf that has another place in the table that is being loaded.
#[derive(Clone, Debug)]
struct Moved {
    /// The prefix for which the cell stands, and its number of bits.
    bits: Hash,
    length: u32,
    payload: u64,
    /// The generation at which its leaf was cleaned.
    cleaned: u64,
}

impl Moved {
    /// The positions of the hashes that begin with the prefix.
    #[allow(clippy::cast_possible_truncation, reason = "positions are the first bits")]
    fn positions(&self) -> Range<u64> {
        let start = (self.bits as u64).reverse_bits() >> UNUSED;
        start..start + END.checked_shr(self.length).unwrap_or(0).max(1)
    }
}

/// Number of bits that select the leaf at a position, and the leaf's index.
pub(super) fn leaf_at(leaves: u64, position: u64) -> (u32, u64) {
    let hashes = hashes_at(position);
    let depth = depth_in(leaves, hashes & ((1 << leaves.ilog2()) - 1));
    (depth, hashes & ((1 << depth) - 1))
}

impl Quotient {
    /// Appends the leaves from a position on to a piece, until it has at least `enough` words. Returns the position
    /// after them; `None` if `position` isn't where a leaf begins, now or in a larger table.
    pub(crate) fn write(&self, mut position: u64, enough: usize, piece: &mut Vec<u64>) -> Option<u64> {
        while position < END && piece.len() < enough {
            let hashes = hashes_at(position);
            let index = self.address(hashes.into()).leaf;
            let mut depth = self.depth_of(index);
            let leaf = self.leaf(index);
            if leaf.is_tight() && position.is_multiple_of(END >> depth) {
                leaf.write(self.form, depth, leaf.cleaned(), piece);
                position += END >> depth;
                continue;
            }
            // If the leaf has been joined since the last piece, it begins before the position.
            let mut cells: Vec<Cell> = leaf.list(self.form).collect();
            while !position.is_multiple_of(END >> depth) {
                if depth == MOST_DEPTH {
                    return None;
                }
                let [even, odd] = halves(self.form, &cells);
                cells = if hashes >> depth & 1 == 0 { even } else { odd };
                depth += 1;
            }
            let built = Leaf::build(self.form, &cells, leaf.cleaned()).ok()?;
            built.write(self.form, depth, leaf.cleaned(), piece);
            position += END >> depth;
        }
        Some(position)
    }
}

/// What is known about leaves once all their cells have been seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) cells: u64,
    /// What the prefixes add to the error rate.
    pub(super) sum: u128,
    /// Number of counters that have reached their maximum.
    pub(super) saturated: u64,
    /// The latest generation at which a leaf was cleaned.
    cleaned: u64,
}

/// A table that is being loaded from pieces.
#[derive(Debug)]
pub(crate) struct Loading {
    form: Form,
    shape: Shape,
    /// The number of leaves of the table.
    leaves: u64,
    position: u64,
    /// The position at which the leaves in `done` end.
    next: u64,
    /// The leaves so far, in the order of their positions.
    done: Vec<Leaf>,
    totals: Totals,
    bytes: u64,
    excess: Excess,
    /// The cells of the leaf that begins before the position, in the order of their positions, and its generation.
    begun: Vec<Moved>,
    cleaned: u64,
    /// The words from which `begun` was read, and the position at which they begin.
    pending: Vec<u64>,
    pending_at: u64,
}

/// What leaves made of others have needed beyond what their words pay for. What words pay too much isn't kept, so a
/// server that has loaded a partial upload accepts all that the one that saved it accepts.
#[derive(Clone, Copy, Debug, Default)]
struct Excess {
    bytes: u64,
    copies: u64,
}

impl Excess {
    fn pay(&mut self, words: u64) {
        self.bytes = self.bytes.saturating_sub(words * 8 * MOST_TIMES);
        self.copies = self.copies.saturating_sub(words * MOST_COPIES);
    }
}

impl Loading {
    /// Whether a table of this shape can have this number of leaves, and 2^`log2_quotients` quotients in each. It never
    /// has fewer than in the beginning: otherwise, BF.CLEAR would make them from a few bytes.
    pub(crate) fn is_possible(shape: &Shape, leaves: u64, log2_quotients: u32) -> bool {
        let plan = Quotient::with_one_leaf(shape.error_rate, payload(shape), cells(shape), None).plan;
        if leaves < plan.leaves || log2_quotients < plan.log2_quotients {
            return false;
        }
        match leaves {
            1 => log2_quotients <= LOG2_QUOTIENTS,
            _ => log2_quotients == LOG2_QUOTIENTS && (2..=1 << MOST_DEPTH).contains(&leaves),
        }
    }

    /// Begins to load a table of this shape, with leaves and quotients that are [possible](Loading::is_possible).
    pub(crate) fn new(shape: &Shape, leaves: u64, log2_quotients: u32) -> Loading {
        Loading {
            form: Form { log2_quotients, payload: payload(shape), has_generations: shape.generations > 0 },
            shape: *shape,
            leaves,
            position: 0,
            next: 0,
            done: Vec::new(),
            totals: Totals::default(),
            bytes: 0,
            excess: Excess::default(),
            begun: Vec::new(),
            cleaned: 0,
            pending: Vec::new(),
            pending_at: 0,
        }
    }

    /// Approximate bytes of memory that the table will need.
    pub(crate) fn estimate(&self) -> u64 {
        let cells = if self.leaves == 1 { self.form.quotients() as u64 } else { self.leaves * LOAD };
        Shape { capacity: cells, ..self.shape }.bytes()
    }

    /// Approximate bytes that the table may need for items up to its capacity, at least.
    pub(crate) fn reserved(&self) -> u64 {
        self.shape.bytes()
    }

    /// The position up to which leaves have been read.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Approximate memory in use, in bytes.
    pub(crate) fn held(&self) -> u64 {
        self.bytes
            + (self.done.capacity() * size_of::<Leaf>() + self.begun.capacity() * size_of::<Moved>()) as u64
    }

    /// Reads a piece: words, in which only whole leaves can be.
    ///
    /// # Errors
    /// [`Error::Foreign`] if the piece isn't valid, [`Error::OutOfMemory`]. In both cases, nothing has changed.
    pub(crate) fn read(&mut self, words: &[u64]) -> Result<(), Error> {
        let before = (self.position, self.next, self.done.len(), self.totals, self.bytes);
        let excess = self.excess;
        let begun = (self.begun.clone(), self.cleaned, self.pending.clone(), self.pending_at);
        let read = self.read_leaves(words);
        if read.is_err() {
            self.done.truncate(before.2);
            (self.position, self.next, _, self.totals, self.bytes) = before;
            self.excess = excess;
            (self.begun, self.cleaned, self.pending, self.pending_at) = begun;
        }
        read
    }

    fn read_leaves(&mut self, mut words: &[u64]) -> Result<(), Error> {
        const DAMAGED: Error = Error::Foreign("cells");
        while let Some(head) = words.first() {
            let all = words;
            words = &words[1..];
            let field = |at: u32, bits: u32| head >> at & ((1 << bits) - 1);
            let (cells, width, is_marked) = (field(0, 16) as usize, field(16, 8) as u32, field(24, 1) == 1);
            let (depth, log2_quotients) = (field(32, 8) as u32, field(40, 8) as u32);
            let form = Form { log2_quotients, ..self.form };
            if head & 0xffff_0000_fe00_0000 != 0
                || depth > MOST_DEPTH
                || log2_quotients > LOG2_QUOTIENTS
                || cells > MOST_CELLS
                || width > 63
                || self.position >= END
                || !self.position.is_multiple_of(END >> depth)
            {
                return Err(DAMAGED);
            }
            let cleaned = match (form.has_generations, cells) {
                (true, 1..) => {
                    let cleaned =
                        words.split_off_first().filter(|cleaned| **cleaned <= limits::MAX_GENERATION);
                    *cleaned.ok_or(DAMAGED)?
                }
                _ => 0,
            };
            let mut part = |bits: usize| words.split_off(..bits.div_ceil(64)).ok_or(DAMAGED);
            let unary = part(if cells == 0 { 0 } else { form.quotients() + cells })?;
            let list = part(cells * width as usize)?;
            let raw = list;
            let list = cells_in(form, (cells, width, is_marked), unary, raw).ok_or(DAMAGED)?;
            if self.shape.cell.counts() && list.iter().any(|cell| cell.payload == 0) {
                return Err(DAMAGED);
            }
            let (own, _) = leaf_at(self.leaves, self.position);
            if (own, self.form, self.next) == (depth, form, self.position) {
                self.position += END >> depth;
                self.next = self.position;
                let leaf = Leaf::from_parts(form, (&list, width, is_marked), cleaned, unary, raw)?;
                self.finish_leaf(leaf, depth, &list)?;
                continue;
            }
            self.take(form, depth, list, cleaned, &all[..all.len() - words.len()])?;
        }
        Ok(())
    }

    /// Takes in the cells of the leaf at the position, if the table has grown or shrunk since its head was written: the
    /// cells become prefixes, and those the cells of other leaves.
    fn take(
        &mut self,
        form: Form,
        depth: u32,
        cells: Vec<Cell>,
        cleaned: u64,
        words: &[u64],
    ) -> Result<(), Error> {
        let end = self.position + (END >> depth);
        if self.pending.is_empty() {
            self.pending_at = self.position;
        }
        self.pending.extend_from_slice(words);
        self.excess.pay(words.len() as u64);
        let hashes = Hash::from(hashes_at(self.position) & ((1 << depth) - 1));
        let address = depth + form.log2_quotients;
        let first = self.begun.len();
        self.begun.extend(cells.iter().map(|cell| {
            let remainder = cell.remainder ^ 1 << length(cell.remainder);
            let bits = hashes | Hash::from(cell.quotient) << depth | Hash::from(remainder) << address;
            Moved { bits, length: address + length(cell.remainder), payload: cell.payload, cleaned }
        }));
        self.begun[first..].sort_unstable_by_key(|cell| cell.bits.reverse_bits());
        self.cleaned = self.cleaned.max(cleaned);
        self.position = end;
        let is_whole = end >= self.next + (END >> leaf_at(self.leaves, self.next).0);
        // Looking at all of them for each leaf could take seconds.
        if is_whole || self.begun.len() > 2 * MOST_CELLS {
            self.forget_expired();
            if self.begun.len() > MOST_CELLS {
                return Err(Error::Foreign("cells"));
            }
        }
        if self.pending.len() > MOST_PENDING {
            return Err(Error::Foreign("cells"));
        }
        while self.next < end {
            let (own, index) = leaf_at(self.leaves, self.next);
            let after = self.next + (END >> own);
            if after > end {
                return Ok(());
            }
            let (list, cleaned) = (self.divide(self.next..after, own, index)?, self.cleaned);
            if list.iter().any(|cell| length(cell.remainder) > self.form.most_remainder()) {
                return Err(Error::Foreign("cells"));
            }
            let leaf = Leaf::build(self.form, &list, cleaned)?;
            self.excess.bytes += leaf.bytes() + size_of::<Leaf>() as u64;
            if self.excess.bytes > SPARE || self.excess.copies > SPARE_COPIES {
                return Err(Error::Foreign("cells"));
            }
            self.finish_leaf(leaf, own, &list)?;
            self.next = after;
        }
        self.begun.clear();
        self.pending.clear();
        self.cleaned = 0;
        Ok(())
    }

    /// Drops cells that have expired by the time at which a neighbour was cleaned: they have no number in a common
    /// leaf.
    fn forget_expired(&mut self) {
        let (form, span, latest) = (self.form, self.shape.generations, self.cleaned);
        self.begun.retain(|Moved { payload, cleaned, .. }| {
            span == 0 || is_alive(form, span.into(), *payload, *cleaned, latest)
        });
    }

    /// The cells of the leaf at these positions among those that have moved.
    fn divide(&mut self, at: Range<u64>, depth: u32, index: u64) -> Result<Vec<Cell>, Error> {
        let address = depth + self.form.log2_quotients;
        let (mut list, mut found) = (Vec::new(), 0);
        let first = self.begun.partition_point(|cell| cell.positions().end <= at.start);
        for Moved { bits, length, payload, .. } in &self.begun[first..] {
            let common = (*length).min(depth);
            if (*bits as u64 ^ index) & ((1 << common) - 1) != 0 {
                break;
            }
            found += 1;
            // A prefix that is shorter than the address belongs to several quotients.
            let missing = address.saturating_sub((*length).max(depth));
            let known = (*bits as u64 >> depth) as u32 & (self.form.quotients() as u32 - 1);
            for more in 0..1u32 << missing {
                let quotient = known | more << (self.form.log2_quotients - missing);
                let rest = length.saturating_sub(address);
                let remainder = (*bits >> address) as u64 & ((1 << rest) - 1) | 1 << rest;
                list.push(Cell { quotient, remainder, payload: *payload });
            }
            if list.len() > MOST_CELLS {
                return Err(Error::Foreign("cells"));
            }
        }
        self.excess.copies += list.len() as u64 - found;
        Ok(if list.len() > 1 { self.form.by_quotient(&list) } else { list })
    }

    fn finish_leaf(&mut self, leaf: Leaf, depth: u32, cells: &[Cell]) -> Result<(), Error> {
        let (totals, address) = (&mut self.totals, depth + self.form.log2_quotients);
        totals.cells += cells.len() as u64;
        totals.sum += cells.iter().map(|cell| unit(address + length(cell.remainder))).sum::<u128>();
        totals.saturated += self.form.saturated_in(cells.iter().copied());
        totals.cleaned = totals.cleaned.max(if self.form.has_generations { leaf.cleaned() } else { 0 });
        self.bytes += leaf.bytes();
        self.done.try_reserve(1).map_err(|_| Error::OutOfMemory { bytes: 16 })?;
        self.done.push(leaf);
        Ok(())
    }

    /// Hands the words of what has been read to `sink`, in pieces of at least `enough` words, each with its position. A
    /// table that reads them continues where this one does.
    pub(crate) fn write(&self, enough: usize, mut sink: impl FnMut(u64, &[u64])) {
        let end = if self.pending.is_empty() { self.next } else { self.pending_at };
        let (mut from, mut position, mut words) = (0, 0, Vec::new());
        for leaf in &self.done {
            if position == end {
                break;
            }
            let (depth, _) = leaf_at(self.leaves, position);
            leaf.write(self.form, depth, leaf.cleaned(), &mut words);
            position += END >> depth;
            if words.len() >= enough {
                sink(from, &words);
                (from, words) = (position, Vec::new());
            }
        }
        words.extend_from_slice(&self.pending);
        if !words.is_empty() {
            sink(from, &words);
        }
    }

    /// The table, once everything has been read. `generations` are its newest generation and the number of items in
    /// each; `items` is the number of items without generations.
    ///
    /// # Errors
    /// [`Error::Foreign`], [`Error::OutOfMemory`].
    pub(crate) fn finish(self, items: u64, generations: (u64, &[u64])) -> Result<Quotient, Error> {
        if self.position != END || self.done.len() as u64 != self.leaves {
            return Err(Error::Foreign("cells"));
        }
        let Shape { error_rate, capacity, .. } = self.shape;
        let span = new_generations(&self.shape)?;
        let mut table = Quotient::with_one_leaf(error_rate, self.form.payload, cells(&self.shape), span);
        table.set_room(capacity);
        table.adopt(self.form, self.done, self.totals)?;
        let (newest, counts) = generations;
        table.items = items.min(table.cells);
        if !table.restore(newest, counts) || self.totals.cleaned > newest {
            return Err(Error::Foreign("generations"));
        }
        Ok(table)
    }
}

impl Form {
    /// The cells in the order of their quotients. Cells of the same quotient stay in their order.
    fn by_quotient(self, cells: &[Cell]) -> Vec<Cell> {
        let mut ends = vec![0; self.quotients()];
        cells.iter().for_each(|cell| ends[cell.quotient as usize] += 1);
        let mut sum = 0;
        ends.iter_mut().for_each(|end| {
            sum += *end;
            *end = sum;
        });
        let mut sorted = cells.to_vec();
        for cell in cells.iter().rev() {
            let place = &mut ends[cell.quotient as usize];
            *place -= 1;
            sorted[*place] = *cell;
        }
        sorted
    }
}

/// The cells that are written like this. `None` if no leaf has them.
fn cells_in(
    form: Form,
    (cells, width, is_marked): (usize, u32, bool),
    unary: &[u64],
    words: &[u64],
) -> Option<Vec<Cell>> {
    let (mut list, mut quotient, mut longest, mut shortest) = (Vec::with_capacity(cells), 0, 0, u32::MAX);
    let remainder_bits = width.checked_sub(form.payload);
    let mut bit = 0;
    while let Some(word) = unary.get(bit / 64) {
        // To the next 1: each 0 before it ends a quotient.
        let rest = word >> (bit % 64);
        let zeros = if rest == 0 { 64 - bit % 64 } else { rest.trailing_zeros() as usize };
        quotient += zeros as u32;
        bit += zeros + usize::from(rest != 0);
        if rest == 0 {
            continue;
        }
        if quotient as usize >= form.quotients() || list.len() == cells {
            return None;
        }
        let bits = remainder_bits?;
        let cell = match width {
            0 => 0,
            width => get(words, words.len() * 64 - (list.len() + 1) * width as usize, width),
        };
        let low = if bits == 0 { 0 } else { cell & u64::MAX >> (64 - bits) };
        let remainder = match is_marked {
            true if low == 0 => return None,
            true => low,
            false if bits > form.most_remainder() => return None,
            false => low | 1 << bits,
        };
        longest = longest.max(length(remainder));
        shortest = shortest.min(length(remainder));
        let payload = if form.payload == 0 { 0 } else { cell >> bits };
        let cell = Cell { quotient, remainder, payload };
        if let Some(before) = list.last().filter(|before: &&Cell| before.quotient == quotient) {
            let shorter = length(before.remainder).min(length(remainder));
            let is_prefix = (before.remainder ^ remainder).trailing_zeros() >= shorter;
            if is_prefix || order(before.remainder) >= order(remainder) {
                return None;
            }
        }
        list.push(cell);
    }
    let is_canonical = cells == 0 && width == 0 && !is_marked
        || is_marked == (longest != shortest) && remainder_bits == Some(longest + u32::from(is_marked));
    let is_padded = cells == 0 || (cells * width as usize).is_multiple_of(64) || {
        words
            .first()
            .is_some_and(|first| first & ((1 << (words.len() * 64 - cells * width as usize)) - 1) == 0)
    };
    (list.len() == cells && is_canonical && is_padded).then_some(list)
}
