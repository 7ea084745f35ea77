//! A leaf: the cells of up to 1024 neighbouring quotients, in one block of memory.
//!
//! ```text
//! head │ generation │ samples │ unary part → │ free │ ← cells
//! ```
//!
//! The unary part has a 1 for each cell and a 0 at the end of each quotient, so a quotient's cells are known without
//! pointers. A sample for every 32nd quotient says how many cells are before it. Cells are packed from the end of the
//! block, in the order of their quotients. All cells of a leaf have the same width, though their remainders may have
//! different lengths: a remainder is followed by a 1, and a cell is as wide as the longest one. If all remainders have
//! the same length, that 1 is left out.

use super::bits::{get, insert_one, move_down, move_up, put, remove_bit, select, window};
use crate::error::Error;
use crate::mem::{prefetch, size_class, zeros};
use crate::metrics::CELL_BYTES;
use alloc::{boxed::Box, vec::Vec};

/// Quotients between two samples. Their part of the unary part nearly always fits into 128 bits.
const SAMPLED: usize = 32;

/// Maximum number of cells in a leaf. A leaf is split at about 820, so it reaches this number only if items collide. A
/// sample can count the cells, and they fit into a piece.
pub(super) const MOST_CELLS: usize = 1 << 14;

/// What all leaves of a table have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// Binary logarithm of the number of quotients per leaf.
    pub(super) log2_quotients: u32,
    /// Bits of a count or of a generation's number.
    pub(super) payload: u32,
    /// Whether cells belong to generations. If so, each leaf records the generation at which it was last cleaned.
    pub(super) has_generations: bool,
}

impl Form {
    #[inline(always)]
    pub(super) fn quotients(self) -> usize {
        1 << self.log2_quotients
    }

    /// The word in which the samples begin.
    #[inline(always)]
    fn samples(self) -> usize {
        1 + usize::from(self.has_generations)
    }

    fn sample_words(self) -> usize {
        (self.quotients() / SAMPLED).saturating_sub(1).div_ceil(4)
    }

    /// The bit at which the unary part begins.
    #[inline(always)]
    fn unary(self) -> usize {
        (self.samples() + self.sample_words()) * 64
    }

    /// Maximum number of bits of a remainder.
    pub(super) fn most_remainder(self) -> u32 {
        62 - self.payload
    }

    /// Number of counters in these cells that have reached their maximum.
    pub(super) fn saturated_in(self, cells: impl Iterator<Item = Cell>) -> u64 {
        let most = (1 << self.payload) - 1;
        let counts = most > 0 && !self.has_generations;
        if counts { cells.filter(|cell| cell.payload == most).count() as u64 } else { 0 }
    }

    /// Number of words for this many cells of this width. No word has both unary bits and cells.
    pub(super) fn words(self, cells: usize, width: u32) -> usize {
        let unary = (self.quotients() + cells).div_ceil(64);
        self.unary() / 64 + unary + (cells * width as usize).div_ceil(64)
    }
}

/// A remainder with the 1 that follows its last bit. The first bit is the lowest.
pub(super) type Marked = u64;

/// Number of bits of a remainder.
#[inline(always)]
pub(super) fn length(remainder: Marked) -> u32 {
    remainder.ilog2()
}

/// Whether the remainder is a prefix of these bits.
#[inline(always)]
fn is_prefix(remainder: Marked, bits: u64) -> bool {
    (remainder ^ bits) << (63 - length(remainder)) << 1 == 0
}

/// A key by which remainders are sorted: a prefix comes after those that it begins and that continue with 0, and before
/// those that continue with 1.
#[inline(always)]
pub(super) fn order(remainder: Marked) -> u64 {
    remainder.reverse_bits()
}

/// A cell outside a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) quotient: u32,
    pub(super) remainder: Marked,
    pub(super) payload: u64,
}

/// Where a cell is in its leaf.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    quotient: usize,
    /// The bit of the unary part at which the quotient's cells begin.
    start: usize,
    /// Number of cells before this one.
    pub(super) index: usize,
    /// Number of cells of the quotient.
    run: usize,
}

/// The words of a leaf; none if it has no cells.
#[derive(Debug, Default)]
pub(super) struct Leaf(Box<[u64]>);

impl Drop for Leaf {
    fn drop(&mut self) {
        CELL_BYTES.sub(self.bytes());
    }
}

impl Leaf {
    fn zeroed(words: usize) -> Result<Leaf, Error> {
        let leaf = zeros(size_class(words * 8) / 8)?;
        CELL_BYTES.add(size_of_val(&*leaf) as u64);
        Ok(Leaf(leaf))
    }

    /// A copy that shares no memory with this leaf.
    pub(super) fn copy(&self) -> Result<Leaf, Error> {
        if self.0.is_empty() {
            return Ok(Leaf::default());
        }
        let mut copy = Leaf::zeroed(self.0.len())?;
        copy.0.copy_from_slice(&self.0);
        Ok(copy)
    }

    /// Bytes of the block.
    pub(super) fn bytes(&self) -> u64 {
        self.0.len() as u64 * 8
    }

    #[inline(always)]
    fn head(&self) -> u64 {
        self.0.first().copied().unwrap_or(0)
    }

    /// Number of cells.
    #[inline(always)]
    pub(super) fn cells(&self) -> usize {
        (self.head() & 0xffff) as usize
    }

    /// Bits per cell.
    #[inline(always)]
    fn width(&self) -> u32 {
        (self.head() >> 16 & 0xff) as u32
    }

    /// Number of bits for which the remainders have room; 0 without cells.
    pub(super) fn longest(&self, form: Form) -> u32 {
        self.width().saturating_sub(u32::from(self.is_marked()) + form.payload)
    }

    /// Whether each remainder is followed by a 1.
    #[inline(always)]
    fn is_marked(&self) -> bool {
        self.head() >> 24 & 1 == 1
    }

    /// Whether the leaf is as [`build`](Leaf::build) makes it. After a removal, cells may be wider than needed.
    #[inline(always)]
    pub(super) fn is_tight(&self) -> bool {
        self.head() >> 25 & 1 == 0
    }

    fn set_head(&mut self, cells: usize, width: u32, is_marked: bool) {
        self.0[0] = cells as u64 | u64::from(width) << 16 | u64::from(is_marked) << 24;
    }

    fn set_cells(&mut self, cells: usize) {
        self.0[0] = self.0[0] & !0xffff | cells as u64;
    }

    /// The generation at which the leaf was last cleaned. 0 without cells.
    #[inline(always)]
    pub(super) fn cleaned(&self) -> u64 {
        self.0.get(1).copied().unwrap_or(0)
    }

    pub(super) fn set_cleaned(&mut self, generation: u64) {
        if let Some(word) = self.0.get_mut(1) {
            *word = generation;
        }
    }

    /// Requests the cache lines of the head and of the quotient's unary bits.
    #[inline(always)]
    pub(super) fn prefetch_unary(&self, form: Form, quotient: usize) {
        if !self.0.is_empty() {
            prefetch(&self.0, 0);
            prefetch(&self.0, (form.unary() / 64 + quotient * 29 / 1024).min(self.0.len() - 1));
        }
    }

    /// Requests the cache line of the quotient's first cell.
    #[inline(always)]
    pub(super) fn prefetch_cell(&self, place: Place) {
        if place.run > 0 {
            prefetch(&self.0, (self.0.len() * 64 - (place.index + 1) * self.width() as usize) / 64);
        }
    }

    /// The place of the quotient's first cell.
    #[inline(always)]
    pub(super) fn run(&self, form: Form, quotient: usize) -> Place {
        if self.0.is_empty() {
            return Place { quotient, start: 0, index: 0, run: 0 };
        }
        let (block, skipped) = (quotient / SAMPLED, (quotient % SAMPLED) as u32);
        // Sample 0, which would be 0, is left out.
        let before = match block.checked_sub(1) {
            Some(sample) => (self.0[form.samples() + sample / 4] >> (sample % 4 * 16) & 0xffff) as usize,
            None => 0,
        };
        let first = form.unary() + block * SAMPLED + before;
        let (low, high) = (window(&self.0, first), window(&self.0, first + 64));
        // With the 0 before the block, quotient i begins after 0 number i.
        let (low, high) = (!low << 1 | 1, !high << 1 | !low >> 63);
        let in_low = low.count_ones();
        let (bits, rank, at) =
            if skipped < in_low { (low, skipped, 0) } else { (high, skipped - in_low, 64) };
        let start = match select(bits, rank) {
            Some(skip) => first + at + skip as usize,
            None => self.far(quotient, first),
        };
        Place { quotient, start, index: start - form.unary() - quotient, run: self.ones(start) }
    }

    /// Where a quotient's cells begin whose block begins at bit `at`, if that is not in the next 128 bits.
    #[cold]
    fn far(&self, quotient: usize, at: usize) -> usize {
        (0..quotient % SAMPLED).fold(at, |at, _| at + self.ones(at) + 1)
    }

    /// Number of ones from bit `at` to the next 0.
    #[inline(always)]
    fn ones(&self, mut at: usize) -> usize {
        let first = at;
        loop {
            let ones = (!window(&self.0, at)).trailing_zeros() as usize;
            at += ones;
            if ones < 64 {
                return at - first;
            }
        }
    }

    #[inline(always)]
    fn at(&self, index: usize) -> usize {
        self.0.len() * 64 - (index + 1) * self.width() as usize
    }

    /// The remainder and the payload of a cell.
    #[inline(always)]
    fn get(&self, form: Form, index: usize) -> (Marked, u64) {
        let width = self.width();
        if width == 0 {
            return (1, 0);
        }
        let cell = get(&self.0, self.at(index), width);
        let bits = width - form.payload;
        let low = cell & ((1 << bits) - 1);
        (if self.is_marked() { low } else { low | 1 << bits }, cell >> bits)
    }

    /// The payloads of all cells in order.
    pub(super) fn payloads(&self, form: Form) -> impl Iterator<Item = u64> + '_ {
        let (end, width, payload) = (self.0.len() * 64, self.width() as usize, form.payload);
        (1..=self.cells()).map(move |cells| match payload {
            0 => 0,
            _ => get(&self.0, end - (cells - 1) * width - payload as usize, payload),
        })
    }

    /// The place and the remainder of a cell.
    pub(super) fn cell(&self, form: Form, index: usize) -> (Place, Marked) {
        let (mut word, mut rank) = (form.unary() / 64, index as u32);
        let skip = loop {
            match select(self.0[word], rank) {
                Some(skip) => break skip as usize,
                None => rank -= self.0[word].count_ones(),
            }
            word += 1;
        };
        let quotient = word * 64 + skip - form.unary() - index;
        (Place { index, ..self.run(form, quotient) }, self.get(form, index).0)
    }

    /// The cells of a run: the place, the remainder and the payload of each.
    pub(super) fn run_cells(
        &self,
        form: Form,
        run: Place,
    ) -> impl Iterator<Item = (Place, Marked, u64)> + '_ {
        (run.index..run.index + run.run).map(move |index| {
            let (remainder, payload) = self.get(form, index);
            (Place { index, ..run }, remainder, payload)
        })
    }

    /// The cell whose remainder is a prefix of these bits, if the run has one, and its payload and remainder.
    #[inline(always)]
    pub(super) fn find(&self, form: Form, run: Place, bits: u64) -> Option<(Place, Marked, u64)> {
        // A loop, because the compiler doesn't inline the iterator.
        for index in run.index..run.index + run.run {
            let (remainder, payload) = self.get(form, index);
            if is_prefix(remainder, bits) {
                return Some((Place { index, ..run }, remainder, payload));
            }
        }
        None
    }

    /// Number of bits that a prefix of these bits needs so that it is a prefix of no remainder in the run. No remainder
    /// there may be a prefix of the bits.
    pub(super) fn distinct(&self, form: Form, run: Place, bits: u64) -> u32 {
        let common = |index| (self.get(form, index).0 ^ bits).trailing_zeros() + 1;
        (run.index..run.index + run.run).map(common).max().unwrap_or(0)
    }

    /// Changes the payload of a cell.
    pub(super) fn set_payload(&mut self, form: Form, place: Place, payload: u64) {
        let bits = self.width() - form.payload;
        if form.payload > 0 {
            let at = self.at(place.index) + bits as usize;
            put(&mut self.0, at, form.payload, payload);
        }
    }

    /// Adds a cell to the run of its quotient. The remainder must be neither a prefix of another one in the run nor
    /// begin with one. An empty leaf counts as cleaned at `generation`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Full`] if the leaf has [`MOST_CELLS`]. In both cases, nothing has changed.
    pub(super) fn insert(
        &mut self,
        form: Form,
        run: Place,
        (remainder, payload): (Marked, u64),
        generation: u64,
    ) -> Result<(), Error> {
        let (cells, width, bits) = (self.cells(), self.width(), length(remainder));
        if cells >= MOST_CELLS {
            return Err(Error::Full);
        }
        let fits = cells > 0
            && match self.is_marked() {
                true => bits + 1 + form.payload <= width,
                false => bits + form.payload == width,
            };
        if !fits {
            let cell = Cell { quotient: run.quotient as u32, remainder, payload };
            return self.insert_slowly(form, cell, generation);
        }
        self.make_room(form, cells + 1, width)?;
        let index =
            (run.index..run.index + run.run).find(|at| order(self.get(form, *at).0) > order(remainder));
        let index = index.unwrap_or(run.index + run.run);
        self.move_unary(form, run, true);
        let (first, end) = (self.0.len() * 64 - cells * width as usize, self.at(index) + width as usize);
        if width > 0 {
            move_down(&mut self.0, first, end, width as usize);
            let stored = if self.is_marked() { remainder } else { remainder & !(1 << bits) };
            let at = end - width as usize;
            put(&mut self.0, at, width, stored | payload << (width - form.payload));
        }
        self.set_cells(cells + 1);
        Ok(())
    }

    /// Adds or removes a 1 in the unary part, and updates the samples.
    fn move_unary(&mut self, form: Form, run: Place, adds: bool) {
        let end = form.unary() + form.quotients() + self.cells();
        if adds {
            insert_one(&mut self.0, run.start, end);
        } else {
            remove_bit(&mut self.0, run.start, end);
        }
        // Four samples per word. The last word may have room for more; what is there means nothing.
        let (first, ones) = (run.quotient / SAMPLED, 0x0001_0001_0001_0001);
        let words = form.samples() + first / 4..form.samples() + form.sample_words();
        let mut step = ones << (first % 4 * 16);
        for word in self.0.get_mut(words).unwrap_or_default() {
            *word = if adds { word.wrapping_add(step) } else { word.wrapping_sub(step) };
            step = ones;
        }
    }

    /// Makes the block large enough for this many cells.
    fn make_room(&mut self, form: Form, cells: usize, width: u32) -> Result<(), Error> {
        let needed = form.words(cells, width);
        if needed <= self.0.len() {
            return Ok(());
        }
        let mut larger = Leaf::zeroed(needed)?;
        let back = (self.cells() * width as usize).div_ceil(64);
        let (old, new) = (self.0.len(), larger.0.len());
        larger.0[..old - back].copy_from_slice(&self.0[..old - back]);
        larger.0[new - back..].copy_from_slice(&self.0[old - back..]);
        *self = larger;
        Ok(())
    }

    #[cold]
    fn insert_slowly(&mut self, form: Form, cell: Cell, generation: u64) -> Result<(), Error> {
        let mut cells: Vec<Cell> = self.list(form).collect();
        let key = |cell: &Cell| (cell.quotient, order(cell.remainder));
        let at = cells.partition_point(|other| key(other) < key(&cell));
        cells.insert(at, cell);
        let cleaned = if self.0.is_empty() { generation } else { self.cleaned() };
        *self = Leaf::build(form, &cells, cleaned)?;
        Ok(())
    }

    /// Removes a cell. Its block shrinks when it is much too large.
    pub(super) fn remove(&mut self, form: Form, place: Place) {
        let (cells, width) = (self.cells(), self.width());
        if cells == 1 {
            *self = Leaf::default();
            return;
        }
        self.move_unary(form, place, false);
        let first = self.0.len() * 64 - cells * width as usize;
        if width > 0 {
            let at = self.at(place.index);
            move_up(&mut self.0, first, at, width as usize);
        }
        self.set_cells(cells - 1);
        self.0[0] |= 1 << 25;
        if form.words(cells - 1, width) * 3 < self.0.len() * 2 {
            let (list, cleaned) = (self.list(form).collect::<Vec<_>>(), self.cleaned());
            // Without memory for a smaller block, the larger one stays.
            if let Ok(smaller) = Leaf::build(form, &list, cleaned) {
                *self = smaller;
            }
        }
    }

    /// A leaf with these cells, which are in the order of their quotients and, in a run, in the order of their
    /// remainders.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Full`] for more than [`MOST_CELLS`].
    pub(super) fn build(form: Form, cells: &[Cell], cleaned: u64) -> Result<Leaf, Error> {
        let lengths = cells.iter().map(|cell| length(cell.remainder));
        let (Some(longest), Some(shortest)) = (lengths.clone().max(), lengths.min()) else {
            return Ok(Leaf::default());
        };
        if cells.len() > MOST_CELLS {
            return Err(Error::Full);
        }
        let is_marked = longest != shortest;
        let width = longest + u32::from(is_marked) + form.payload;
        let mut leaf = Leaf::zeroed(form.words(cells.len(), width))?;
        leaf.set_head(cells.len(), width, is_marked);
        if form.has_generations {
            leaf.set_cleaned(cleaned);
        }
        leaf.sample_all(form, cells);
        for (index, cell) in cells.iter().enumerate() {
            let bit = form.unary() + cell.quotient as usize + index;
            leaf.0[bit / 64] |= 1 << (bit % 64);
            if width > 0 {
                let stored = if is_marked { cell.remainder } else { cell.remainder & !(1 << longest) };
                let at = leaf.at(index);
                put(&mut leaf.0, at, width, stored | cell.payload << (width - form.payload));
            }
        }
        Ok(leaf)
    }

    /// A leaf with these cells, whose unary part and cells are given as [`write`](Leaf::write) writes them.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn from_parts(
        form: Form,
        (cells, width, is_marked): (&[Cell], u32, bool),
        cleaned: u64,
        unary: &[u64],
        words: &[u64],
    ) -> Result<Leaf, Error> {
        if cells.is_empty() {
            return Ok(Leaf::default());
        }
        let mut leaf = Leaf::zeroed(form.words(cells.len(), width))?;
        leaf.set_head(cells.len(), width, is_marked);
        if form.has_generations {
            leaf.set_cleaned(cleaned);
        }
        let (first, end) = (form.unary() / 64, leaf.0.len());
        leaf.0[first..first + unary.len()].copy_from_slice(unary);
        leaf.0[end - words.len()..].copy_from_slice(words);
        leaf.sample_all(form, cells);
        Ok(leaf)
    }

    /// Writes the samples.
    fn sample_all(&mut self, form: Form, cells: &[Cell]) {
        let samples = (form.quotients() / SAMPLED).saturating_sub(1);
        let mut before = 0;
        for sample in 0..samples {
            let first = ((sample + 1) * SAMPLED) as u32;
            while cells.get(before).is_some_and(|cell| cell.quotient < first) {
                before += 1;
            }
            self.sample(form, sample, before);
        }
    }

    fn sample(&mut self, form: Form, sample: usize, cells: usize) {
        self.0[form.samples() + sample / 4] |= (cells as u64) << (sample % 4 * 16);
    }

    /// All cells in order.
    pub(super) fn list(&self, form: Form) -> impl Iterator<Item = Cell> + '_ {
        let (mut bit, mut quotient) = (form.unary(), 0);
        (0..self.cells()).map(move |index| {
            // To the next 1: each 0 before it ends a quotient.
            let mut rest = self.0[bit / 64] >> (bit % 64);
            while rest == 0 {
                let skipped = 64 - bit % 64;
                quotient += skipped as u32;
                bit += skipped;
                rest = self.0[bit / 64];
            }
            quotient += rest.trailing_zeros();
            bit += rest.trailing_zeros() as usize + 1;
            let (remainder, payload) = self.get(form, index);
            Cell { quotient, remainder, payload }
        })
    }

    /// Appends the leaf as words; see [`pieces`](super::pieces). The leaf must be [tight](Leaf::is_tight), so that
    /// equal leaves are written alike.
    pub(super) fn write(&self, form: Form, depth: u32, cleaned: u64, to: &mut Vec<u64>) {
        to.push(self.head() | u64::from(depth) << 32 | u64::from(form.log2_quotients) << 40);
        if self.cells() == 0 {
            return;
        }
        if form.has_generations {
            to.push(cleaned);
        }
        let first = form.unary() / 64;
        to.extend_from_slice(&self.0[first..first + (form.quotients() + self.cells()).div_ceil(64)]);
        let cells = (self.cells() * self.width() as usize).div_ceil(64);
        to.extend_from_slice(&self.0[self.0.len() - cells..]);
    }
}
