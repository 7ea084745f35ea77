//! How a table grows and shrinks: leaf by leaf, or by the quotients of its only leaf.

use super::leaf::{Cell, Form, Leaf, length};
use super::table::{LOAD, LOG2_QUOTIENTS, MOST_DEPTH, MOST_RATE, Quotient, most, unit};
use crate::error::Error;
use alloc::vec::Vec;

/// Leaves are joined when there are fewer cells than this fraction of those at which they would be split again.
const JOINED: (u64, u64) = (3, 4);

impl Quotient {
    /// Splits a leaf if there are too many cells. Without memory, the table stays as it is, and the next add tries
    /// again.
    pub(super) fn grow(&mut self) {
        self.grow_for(self.cells);
    }

    /// Splits a leaf if this many cells are too many.
    pub(super) fn grow_for(&mut self, cells: u64) {
        // With a plan, leaves have more items before they are split.
        let planned = self.planned.min(2 * LOAD * self.leaves);
        // Merges can bring the rate above `MOST_RATE`.
        if cells <= self.sized_for().max(planned) || self.rate() > MOST_RATE {
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
        let list = by_first_bit(&cells, top).concat();
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
        let parts = halves(form, &cells);
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

/// The cells of the two leaves into which a leaf is split: those of even and of odd quotients.
pub(super) fn halves(form: Form, cells: &[Cell]) -> [Vec<Cell>; 2] {
    if form.log2_quotients == 0 {
        // Without quotients, the bit comes from the remainder.
        return by_first_bit(cells, 0);
    }
    let mut halves = [const { Vec::new() }; 2];
    for cell in cells {
        halves[cell.quotient as usize & 1].push(Cell { quotient: cell.quotient >> 1, ..*cell });
    }
    halves.map(|cells| by_first_bit(&cells, form.quotients() as u32 / 2).concat())
}

/// The cells whose remainders begin with 0, and those whose remainders begin with 1, without that bit. A cell without a
/// remainder belongs to both. The quotients of the second half grow by `top`.
fn by_first_bit(cells: &[Cell], top: u32) -> [Vec<Cell>; 2] {
    // The bit selects the list, because a branch would be mispredicted half of the time.
    let mut halves = [0, 1].map(|_| Vec::with_capacity(cells.len()));
    for cell in cells {
        let (first, short) = (cell.remainder as usize & 1, cell.remainder >> 1);
        let upper = cell.quotient + top;
        if short == 0 {
            halves[0].push(Cell { remainder: 1, ..*cell });
            halves[1].push(Cell { remainder: 1, quotient: upper, ..*cell });
        } else {
            let quotient = if first == 0 { cell.quotient } else { upper };
            halves[first].push(Cell { remainder: short, quotient, ..*cell });
        }
    }
    halves
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
