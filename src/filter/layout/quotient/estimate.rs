//! The memory that unions of tables need.

use super::leaf::{Form, Leaf};
use super::read;
use super::table::{LOAD, LOG2_QUOTIENTS, Quotient};
use crate::filter::layout::Layer;

/// How large a table becomes by unions, before they are computed.
pub(crate) struct Estimate {
    form: Form,
    cells: u64,
    /// Number of cells that are added because prefixes are divided.
    divided: u64,
    /// Number of times that a prefix has cells in a leaf.
    hits: u64,
    /// Number of quotients in all leaves.
    quotients: u64,
    /// Number of bits of the longest prefixes in a leaf of the table, on average.
    longest: u32,
    /// Number of bits of the longest prefixes of all tables, and number of cells that may have more than `longest`.
    wide: (u32, u64),
    /// Bytes of the table before.
    before: u64,
}

impl Estimate {
    /// Maximum number of cells that are added because prefixes are divided, if the tables have fewer: they take 2 s.
    pub(super) const MOST_DIVIDED: u64 = 1 << 23;

    /// An empty table of this layer's form.
    pub(crate) fn new(layer: &Layer) -> Estimate {
        let form = read(layer).form;
        Estimate { form, cells: 0, divided: 0, hits: 0, quotients: 0, longest: 0, wide: (0, 0), before: 0 }
    }

    /// A layer's table before the first union.
    pub(crate) fn of(layer: &Layer) -> Estimate {
        let (empty, table) = (Estimate::new(layer), read(layer));
        // The average, because a few leaves may have become wider by an earlier union, or have many of its cells.
        let (used, [longest, _]) = table.sample();
        let hits = -libm::log1p(-used.min(1.0 - 1e-9)) * table.leaves() as f64;
        let (quotients, hits) = (table.quotients(), table.cells.min(hits as u64 + 64));
        let all = Estimate { cells: table.cells, hits, quotients, longest, ..empty };
        Estimate { before: all.bytes(), ..all }
    }

    /// Adds another layer's table. Returns whether there are not too many cells: if the other table is small and its
    /// error rate high, its prefixes are short, and each of them has cells in many quotients.
    pub(crate) fn add(&mut self, other: &Layer) -> bool {
        let table = read(other);
        let (cells, rate) = table.alive();
        self.cells = self.cells.saturating_add(cells);
        let leaves = self.cells.saturating_add(self.divided).div_ceil(LOAD);
        self.quotients = self.quotients.max(leaves << LOG2_QUOTIENTS);
        let copies = self.quotients.div_ceil(table.quotients()).saturating_sub(1);
        // All of the cells, if no prefix is longer than an address.
        let divided = ((rate * self.quotients as f64) as u64).saturating_sub(cells);
        let divided = divided.min(cells.saturating_mul(copies));
        self.divided = self.divided.saturating_add(divided);
        // A prefix that selects a leaf has all of its cells there.
        let several = (rate * (self.quotients >> LOG2_QUOTIENTS) as f64) as u64;
        self.hits = self.hits.saturating_add(cells).saturating_add(several);
        let (_, [_, longest]) = table.sample();
        if longest > self.longest {
            self.wide = (self.wide.0.max(longest), self.wide.1.saturating_add(cells));
        }
        self.divided <= self.cells.max(Estimate::MOST_DIVIDED)
    }

    /// About the size in bytes of the intersection of two layers. Its table begins with as many leaves as `first`
    /// did.
    pub(crate) fn of_common(first: &Layer, other: &Layer) -> u64 {
        let [mine, theirs] = [first, other].map(|layer| {
            let table = read(layer);
            (table.cells, table.rate(), table.sample().1[1])
        });
        let all = mine.0.max(theirs.0);
        // Of any other table, about as many cells as the error rate says are common by chance.
        let common = |(cells, rate, _): (u64, f64, u32)| cells.saturating_add((rate * all as f64) as u64);
        let cells = common(mine).min(common(theirs)).min(all);
        let planned = read(first).planned_quotients();
        let quotients = planned.max(cells.div_ceil(LOAD) << LOG2_QUOTIENTS);
        let longest = mine.2.max(theirs.2);
        Estimate { cells, hits: cells, quotients, longest, ..Estimate::new(first) }.bytes()
    }

    /// About the number of bytes by which the table becomes larger.
    pub(crate) fn more_bytes(&self) -> u64 {
        self.bytes().saturating_sub(self.before)
    }

    fn bytes(&self) -> u64 {
        let (cells, quotients) = (self.cells.saturating_add(self.divided), self.quotients.max(1));
        let leaves = (quotients >> LOG2_QUOTIENTS).max(1);
        // Of n leaves, n · (1 − e^−c) are hit if there are c hits per leaf.
        let with = |hits: u64| leaves as f64 * -libm::expm1(-(hits as f64 / leaves as f64));
        let (used, wide) = (with(self.hits).max(1.0), with(self.wide.1));
        let form = Form { log2_quotients: quotients.ilog2().min(LOG2_QUOTIENTS), ..self.form };
        let words = |longest: u32, address: u32| {
            let remainder = longest.saturating_sub(address).min(form.most_remainder());
            form.words((cells as f64 / used) as usize + 1, remainder + 1 + form.payload) as f64
        };
        // Part of the leaves have been split since their number was a power of two.
        let split = 2.0 * (1.0 - (1u64 << quotients.ilog2()) as f64 / quotients as f64);
        let words = |longest| {
            let address = quotients.ilog2();
            words(longest, address) * (1.0 - split) + words(longest, address + 1) * split
        };
        let words =
            words(self.longest.max(self.wide.0)) * wide + words(self.longest) * (used - wide).max(0.0);
        // A tenth of a leaf is free on average.
        (words * 8.0 * 1.1) as u64 + leaves.next_power_of_two() * size_of::<Leaf>() as u64
    }
}

impl Quotient {
    /// Some of the leaves, at most this many. The step is odd, because leaves whose numbers end alike have parts of the
    /// same divided prefixes.
    fn some(&self, most: u64) -> impl Iterator<Item = u64> {
        (0..self.leaves()).step_by(self.leaves().div_ceil(most) as usize | 1)
    }

    /// About the number of cells that haven't expired, and their part of the error rate. A few leaves may contain most
    /// cells, because divided prefixes crowd there, so this subtracts the expired cells that some leaves show.
    pub(super) fn alive(&self) -> (u64, f64) {
        let expired = |index| {
            let leaf = self.leaf(index);
            leaf.payloads(self.form).filter(|payload| self.is_dead(leaf, *payload)).count() as u64
        };
        let expired = match self.generations {
            Some(_) => self.some(16).map(expired).sum::<u64>() * self.leaves() / self.some(16).count() as u64,
            None => 0,
        };
        let cells = self.cells.saturating_sub(expired).max(self.items);
        (cells, self.rate() * cells as f64 / self.cells.max(1) as f64)
    }

    /// What some of the leaves show: the fraction of leaves with cells, and the number of bits of the longest prefixes
    /// in a leaf, on average and at most. Without cells in these leaves, the next prefix shows it.
    fn sample(&self) -> (f64, [u32; 2]) {
        let some = || self.some(64);
        let used = some().filter(|index| self.leaf(*index).cells() > 0);
        let prefix = |index| self.depth_of(index) + self.form.log2_quotients;
        let lengths = used.map(|index| prefix(index) + self.leaf(index).longest(self.form));
        let (count, sum, most) =
            lengths.fold((0, 0, 0), |(count, sum, most), bits| (count + 1, sum + bits, bits.max(most)));
        match count {
            0 => (0.0, [self.next_length(); 2]),
            count => (f64::from(count) / some().count() as f64, [sum / count, most]),
        }
    }
}
