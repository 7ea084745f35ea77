//! One fixed-size filter: shards × cells, with any number of readers and, through the plain methods, any number of
//! writers. Every kind of filter is made of layers.
//!
//! Test and add are wait-free on bits; counters change by compare-and-swap. No method takes `&mut self`.

use super::algebra::{Fork, all, alone, in_parts};
use super::{Added, probe};
use crate::bits::{PerShard, Shared, Single, Writer, bit, counter};
use crate::error::Error;
use crate::hash::ItemHash;
use crate::mem::Words;
use crate::params::Cell;
use crate::sizing::{Layout, Shape};
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;
use crossbeam_utils::CachePadded;
use std::ops::Range;

/// Counts kept as cells change, so that fill and error rate cost nothing to know.
#[derive(Default)]
struct Tally {
    /// Cells that are not 0.
    set: AtomicU64,
    /// Items added that were absent, less those deleted until absent; may dip below 0 while deletes race.
    items: AtomicU64,
    /// Counters at their maximum.
    saturated: AtomicU64,
}

/// The tallies of a layer: inline for one shard of bits, which keeps small filters small, else one per shard on cache
/// lines of their own, because two writers on different shards must not meet on one line.
enum Tallies {
    Inline {
        set: AtomicU64,
        items: AtomicU64,
    },
    Padded {
        shards: Box<[CachePadded<Tally>]>,
        /// New items that surely still fit, so that a single writer need not add up all shards to know whether the
        /// layer is full; 0 when not known.
        room: AtomicU64,
    },
}

/// What a write did to the cells of one item.
#[derive(Clone, Copy, Default)]
struct Change {
    set: i64,
    items: i64,
    saturated: i64,
}

/// One fixed-size Bloom filter of bits or counters.
///
/// ```
/// use bloomery::{Cell, HashKind, Layer, LayerSpec, Seed};
///
/// let layer = Layer::new(LayerSpec { cell: Cell::Counter4, ..LayerSpec::new(1000, 0.01) }.shape()?)?;
/// let item = HashKind::Xxh3.hasher(Seed::default()).hash(b"ada");
/// layer.insert(item);
/// layer.insert(item);
/// assert_eq!(layer.count(item), 2);
/// assert!(layer.remove(item)?.present && layer.remove(item)?.present);
/// assert!(!layer.contains(item));
/// # Ok::<(), bloomery::Error>(())
/// ```
pub struct Layer {
    capacity: u64,
    error_rate: f64,
    words: Words,
    tallies: Tallies,
    shards: u16,
    probes: u8,
    layout: Layout,
    cell: Cell,
}

/// An expression with the layer's number of probes as the constant `K`, or 0 if that is not one of the usual. Error
/// rates down to 0.5 % take up to seven probes, which one word of hash has; with their number known they need no loop,
/// and a test takes half the time.
macro_rules! with_probes {
    ($number:literal, $K:ident => $value:expr) => {{
        const $K: usize = $number;
        $value
    }};
    ($layer:expr, $K:ident => $value:expr) => {
        match $layer.probes {
            4 => with_probes!(4, $K => $value),
            5 => with_probes!(5, $K => $value),
            6 => with_probes!(6, $K => $value),
            7 => with_probes!(7, $K => $value),
            _ => with_probes!(0, $K => $value),
        }
    };
}

/// An expression with the width of the layer's counters as the constant `WIDTH`: shifts and masks known to the compiler.
macro_rules! with_width {
    ($layer:expr, $WIDTH:ident => $value:expr) => {
        match $layer.cell {
            Cell::Counter4 => {
                const $WIDTH: u32 = 4;
                $value
            }
            Cell::Counter8 => {
                const $WIDTH: u32 = 8;
                $value
            }
            Cell::Counter16 => {
                const $WIDTH: u32 = 16;
                $value
            }
            Cell::Bit => unreachable!("bits are no counters"),
        }
    };
}

/// What a delete did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// The item tested present; an absent one is left alone.
    pub present: bool,
    /// Some counter changed; none does when all are saturated.
    pub changed: bool,
}

impl Layer {
    /// An empty layer. The memory is zeroed by the allocator and not touched, so this takes microseconds at any size.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    ///
    /// # Panics
    /// When `shape` fails [`Shape::check`].
    pub fn new(shape: Shape) -> Result<Layer, Error> {
        Layer::with_words(shape, Words::zeroed(shape.words())?)
    }

    /// A layer of these cells, `shape.words()` of them with so many `ones`; it holds `items`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn from_words(shape: Shape, words: Words, items: u64, ones: u64) -> Result<Layer, Error> {
        let layer = Layer::with_words(shape, words)?;
        match &layer.tallies {
            Tallies::Inline { set, .. } => set.store(ones, Relaxed),
            // By shard, and of counters those at their maximum.
            Tallies::Padded { .. } => layer.recount(),
        }
        layer.set_items(items);
        Ok(layer)
    }

    fn with_words(shape: Shape, words: Words) -> Result<Layer, Error> {
        assert_eq!(shape.check(), Ok(()), "a shape is checked where it is read");
        let tallies = if shape.shards == 1 && !shape.cell.counts() {
            Tallies::Inline { set: AtomicU64::new(0), items: AtomicU64::new(0) }
        } else {
            // 128 KiB for 1024 shards: as fallible as the cells.
            let count = shape.shards as usize;
            let refused = Error::OutOfMemory { bytes: (count * size_of::<CachePadded<Tally>>()) as u64 };
            let mut shards: Vec<CachePadded<Tally>> = Vec::new();
            shards.try_reserve_exact(count).map_err(|_| refused)?;
            shards.resize_with(count, CachePadded::default);
            Tallies::Padded { shards: shards.into_boxed_slice(), room: AtomicU64::new(0) }
        };
        Ok(Layer {
            capacity: shape.capacity,
            error_rate: shape.error_rate,
            words,
            tallies,
            shards: shape.shards as u16,
            probes: shape.probes as u8,
            layout: shape.layout,
            cell: shape.cell,
        })
    }

    /// The geometry.
    pub fn shape(&self) -> Shape {
        Shape {
            capacity: self.capacity,
            error_rate: self.error_rate,
            cells: self.cells(),
            probes: self.probes.into(),
            shards: self.shards.into(),
            layout: self.layout,
            cell: self.cell,
        }
    }

    /// Whether the item may be in the layer: false is certain, true is wrong at the error rate.
    #[inline]
    pub fn contains(&self, item: ItemHash) -> bool {
        match (self.cell, self.layout) {
            (Cell::Bit, Layout::Blocked) => with_probes!(self, K => self.block_contains::<K>(item)),
            (Cell::Bit, Layout::Classic) => self.walk(item, bit::get),
            (_, Layout::Blocked) => {
                with_width!(self, WIDTH => with_probes!(self, K => self.block_counts::<WIDTH, K>(item)))
            }
            (cell, _) => self.walk(item, |words, index| counter::get(words, cell.bits(), index) != 0),
        }
    }

    /// As [`block_contains`](Layer::block_contains), in a block of counters.
    #[inline(always)]
    fn block_counts<const WIDTH: u32, const K: usize>(&self, item: ItemHash) -> bool {
        let block = self.block(item);
        if K == 0 {
            return self.walk_as::<0>(item, WIDTH, |block, index| counter::get(block, WIDTH, index) != 0);
        }
        let mut all = true;
        for index in probe::first_in_block::<K>(item, WIDTH) {
            all &= counter::get(block, WIDTH, index) != 0;
        }
        all
    }

    /// Which of the items may be in the layer, of those that `asked` has a bit for: bit i for item i, up to 64.
    ///
    /// For items whose lines were [prefetched](Layer::prefetch).
    #[inline]
    pub fn contains_many(&self, items: &[ItemHash], asked: u64) -> u64 {
        let asked = asked & u64::MAX.checked_shr(64 - items.len() as u32).unwrap_or(0);
        match (self.cell, self.layout) {
            (Cell::Bit, Layout::Blocked) => {
                with_probes!(self, K => each(items, asked, |item| self.block_contains::<K>(item)))
            }
            (_, Layout::Blocked) => {
                with_width!(self, WIDTH => with_probes!(self, K => {
                    each(items, asked, |item| self.block_counts::<WIDTH, K>(item))
                }))
            }
            _ => each(items, asked, |item| self.contains(item)),
        }
    }

    /// [`contains`](Layer::contains) in a block of bits, without a branch on what is found there: mispredicting one
    /// costs more than all probes in a line that is at hand.
    #[inline(always)]
    fn block_contains<const K: usize>(&self, item: ItemHash) -> bool {
        let block = self.block(item);
        if K != 0 {
            return all_set(block, probe::first_in_block::<K>(item, 1));
        }
        // Of many probes four say no to most that are absent, as nearly all items are in most layers.
        if self.probes > 4 && !all_set(block, probe::first_in_block::<4>(item, 1)) {
            return false;
        }
        let mut all = true;
        for index in probe::in_block(item, 1, self.probes.into()) {
            all &= bit::get(block, index);
        }
        all
    }

    /// Sets the item's bits in its block, and says how many were not set.
    ///
    /// Not inlined: beside [`block_contains`](Layer::block_contains) the compiler keeps what both compute, and runs out
    /// of registers.
    #[inline(never)]
    fn block_set<W: Writer, const K: usize>(&self, item: ItemHash) -> i64 {
        let block = self.block(item);
        let set = |index| i64::from(bit::set_in_dirty_line::<W>(block, index));
        if K == 0 {
            return probe::in_block(item, 1, self.probes.into()).map(set).sum();
        }
        let mut new = 0;
        for index in probe::first_in_block::<K>(item, 1) {
            new += set(index);
        }
        new
    }

    /// Fetches the lines that a test of this item will touch first; worth it some items ahead. In a CLASSIC layer those
    /// of two probes, which tell most items that are absent: on 1 GiB a test of one takes 41 ns with two, 66 with four
    /// and 133 with all seven, and one of an item that is present takes 140 in any case.
    #[inline]
    pub fn prefetch(&self, item: ItemHash) {
        self.prefetch_probes(item, 2);
    }

    /// Fetches all lines that an add or delete of this item will touch.
    #[inline]
    pub fn prefetch_all(&self, item: ItemHash) {
        self.prefetch_probes(item, self.probes.into());
    }

    #[inline(always)]
    fn prefetch_probes(&self, item: ItemHash, most: u32) {
        match self.layout {
            Layout::Blocked => self.words.prefetch(self.block_start(item)),
            Layout::Classic => {
                let (start, len) = self.shard_range(item);
                let per_word = u64::BITS / self.cell.bits();
                let cells = len as u64 * u64::from(per_word);
                for index in probe::classic(item, cells, most.min(self.probes.into())) {
                    self.words.prefetch(start + index / per_word as usize);
                }
            }
        }
    }

    /// Adds the item; any number of threads may do so at once. On counters it always counts, as in a multiset.
    ///
    /// Two threads that add the same new item at the same time may both be told that they added it, or neither that
    /// it was there: every cell is decided by itself.
    #[inline]
    pub fn insert(&self, item: ItemHash) -> Added {
        self.insert_as::<Shared>(item)
    }

    /// As [`insert`](Layer::insert) for the only thread that writes: no locked instruction. Readers may run beside it;
    /// a second writer would lose updates.
    #[inline]
    pub fn insert_single_writer(&self, item: ItemHash) -> Added {
        self.insert_as::<Single>(item)
    }

    /// As [`insert_single_writer`](Layer::insert_single_writer) for the only thread that writes to the item's
    /// [shard](ItemHash::shard). Others may write to other shards.
    #[inline]
    pub fn insert_in_own_shard(&self, item: ItemHash) -> Added {
        self.insert_as::<PerShard>(item)
    }

    /// Adds the item and says whether it was present before (test-and-add).
    #[inline]
    pub fn test_and_insert(&self, item: ItemHash) -> bool {
        !self.insert(item).added
    }

    /// Adds the item only if it is absent, and says whether it was present (test-or-add).
    #[inline]
    pub fn test_or_insert(&self, item: ItemHash) -> bool {
        self.contains(item) || self.test_and_insert(item)
    }

    #[inline(always)]
    fn insert_as<W: Writer>(&self, item: ItemHash) -> Added {
        let (mut change, mut changed) = (Change::default(), false);
        match self.cell {
            Cell::Bit if self.layout == Layout::Blocked => {
                // A block that has all bits stays clean.
                if !self.contains(item) {
                    change.set = with_probes!(self, K => self.block_set::<W, K>(item));
                }
                changed = change.set != 0;
            }
            Cell::Bit => {
                self.walk(item, |words, index| {
                    change.set += i64::from(bit::set::<W>(words, index));
                    true
                });
                changed = change.set != 0;
            }
            _ => {
                with_width!(self, WIDTH => with_probes!(self, K => {
                    self.walk_as::<K>(item, WIDTH, |words, index| {
                        let max = counter::maximum(WIDTH);
                        let step = counter::increment::<W>(words, WIDTH, index);
                        change.set += i64::from(step.before == 0);
                        change.saturated += i64::from(step.after == max && step.before != max);
                        changed |= step.after != step.before;
                        true
                    });
                }));
            }
        }
        change.items = i64::from(change.set != 0);
        self.tally::<W>(item, change);
        Added { added: change.items != 0, changed }
    }

    /// Deletes one occurrence of the item; any number of threads may do so at once.
    ///
    /// An item that is certainly absent is left alone. Deleting an item that was never added, but tests positive,
    /// takes from others what is theirs: the one way to make a false negative.
    ///
    /// # Errors
    /// [`Error::NotCounting`] on bits.
    pub fn remove(&self, item: ItemHash) -> Result<Removed, Error> {
        self.remove_as::<Shared>(item)
    }

    /// As [`remove`](Layer::remove) for the only thread that writes.
    ///
    /// # Errors
    /// [`Error::NotCounting`] on bits.
    pub fn remove_single_writer(&self, item: ItemHash) -> Result<Removed, Error> {
        self.remove_as::<Single>(item)
    }

    fn remove_as<W: Writer>(&self, item: ItemHash) -> Result<Removed, Error> {
        if !self.cell.counts() {
            return Err(Error::NotCounting);
        }
        if !self.contains(item) {
            return Ok(Removed::default());
        }
        let (mut change, mut changed) = (Change::default(), false);
        with_width!(self, WIDTH => with_probes!(self, K => {
            self.walk_as::<K>(item, WIDTH, |words, index| {
                let step = counter::decrement::<W>(words, WIDTH, index);
                change.set -= i64::from(step.before != 0 && step.after == 0);
                changed |= step.after != step.before;
                true
            });
        }));
        // An add that was a false positive was not counted, but its delete may empty a cell: never below 0.
        change.items = -i64::from(change.set != 0 && self.items() > 0);
        self.tally::<W>(item, change);
        Ok(Removed { present: true, changed })
    }

    /// How often the item was added, at most: the minimum of its counters. On bits 0 or 1.
    pub fn count(&self, item: ItemHash) -> u64 {
        let mut least = u64::MAX;
        self.walk(item, |words, index| {
            let value = match self.cell {
                Cell::Bit => bit::get(words, index).into(),
                cell => counter::get(words, cell.bits(), index),
            };
            least = least.min(value);
            true
        });
        least
    }

    /// Empties the layer. An add that runs at the same time may be lost in part.
    pub fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, Relaxed));
        self.recount();
        self.set_items(0);
    }

    /// Makes this the union: OR of bits, saturating sum of counters. No item of either is lost.
    ///
    /// The number of items afterwards is the estimate from the fill, since the overlap is not known.
    ///
    /// # Errors
    /// [`Error::Mismatch`] unless both have the same geometry. That both use the same hash and seed is the caller's
    /// duty; [`Filter::union`](crate::Filter::union) sees to it.
    pub fn union(&self, other: &Layer) -> Result<(), Error> {
        self.union_as::<Shared>(other, &alone).map(drop)
    }

    /// As [`union`](Layer::union) for the only thread that writes, which has the threads of `fork` help. Says whether
    /// anything changed.
    ///
    /// # Errors
    /// As [`union`](Layer::union).
    pub fn union_single_writer(&self, other: &Layer, fork: &Fork<'_>) -> Result<bool, Error> {
        self.union_as::<Single>(other, fork)
    }

    fn union_as<W: Writer>(&self, other: &Layer, fork: &Fork<'_>) -> Result<bool, Error> {
        let (mine, theirs) = (self.items(), other.items());
        let width = self.cell.bits();
        let changed = match self.cell {
            Cell::Bit => self.combine::<W>(other, fork, |a, b| a | b),
            _ => self.combine::<W>(other, fork, |a, b| counter::saturating_sum(width, a, b)),
        }?;
        let (least, most) = (mine.max(theirs), mine.saturating_add(theirs));
        let items = if changed { self.nearest_estimate().clamp(least, most) } else { least };
        self.set_items(items);
        Ok(changed || items != mine)
    }

    /// Makes this the intersection: AND of bits, minimum of counters. Items of both stay; the error rate is at most
    /// the larger of the two, but above that of a filter built from the common items.
    ///
    /// # Errors
    /// As [`union`](Layer::union).
    pub fn intersect(&self, other: &Layer) -> Result<(), Error> {
        self.intersect_as::<Shared>(other, &alone)
    }

    /// As [`intersect`](Layer::intersect) for the only thread that writes, which has the threads of `fork` help.
    ///
    /// # Errors
    /// As [`union`](Layer::union).
    pub fn intersect_single_writer(&self, other: &Layer, fork: &Fork<'_>) -> Result<(), Error> {
        self.intersect_as::<Single>(other, fork)
    }

    fn intersect_as<W: Writer>(&self, other: &Layer, fork: &Fork<'_>) -> Result<(), Error> {
        let width = self.cell.bits();
        match self.cell {
            Cell::Bit => self.combine::<W>(other, fork, |a, b| a & b),
            _ => self.combine::<W>(other, fork, |a, b| counter::minimum(width, a, b)),
        }?;
        self.set_items(self.nearest_estimate().min(self.items()).min(other.items()));
        Ok(())
    }

    /// Replaces each word by what `combined` makes of it and the other's. Says whether one changed; those that do not
    /// are not written, so that their pages stay clean.
    fn combine<W: Writer>(
        &self,
        other: &Layer,
        fork: &Fork<'_>,
        combined: impl Fn(u64, u64) -> u64 + Sync,
    ) -> Result<bool, Error> {
        if !self.is_congruent(other) {
            return Err(Error::Mismatch);
        }
        let changed = AtomicU64::new(0);
        self.recount_behind(fork, |range| {
            let mut any = false;
            for (mine, theirs) in self.words[range.clone()].iter().zip(&other.words[range]) {
                let theirs = theirs.load(Relaxed);
                let new = |word| Some(combined(word, theirs)).filter(|new| *new != word);
                any |= W::update(mine, new).1;
            }
            if any {
                changed.store(1, Relaxed);
            }
        });
        Ok(changed.into_inner() != 0)
    }

    /// Whether the same item has the same cells in both.
    pub fn is_congruent(&self, other: &Layer) -> bool {
        (self.words.len(), self.shards, self.probes, self.layout, self.cell)
            == (other.words.len(), other.shards, other.probes, other.layout, other.cell)
    }

    /// Whether both have the same geometry and the same cells.
    pub fn equal(&self, other: &Layer) -> bool {
        self.equal_in(other, &alone)
    }

    /// As [`equal`](Layer::equal), on the threads of `fork`.
    pub(super) fn equal_in(&self, other: &Layer, fork: &Fork<'_>) -> bool {
        self.is_congruent(other) && all(&self.words, &other.words, fork, |mine, theirs| mine == theirs)
    }

    /// Whether the other one has the same geometry, and of bits none that this has not.
    pub(super) fn covers(&self, other: &Layer, fork: &Fork<'_>) -> bool {
        self.is_congruent(other) && all(&self.words, &other.words, fork, |mine, theirs| theirs & !mine == 0)
    }

    /// A copy. Under concurrent adds it is consistent word by word: it holds every item whose add had returned.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn snapshot(&self) -> Result<Layer, Error> {
        self.copy(&alone)
    }

    /// As [`snapshot`](Layer::snapshot), on the threads of `fork`.
    ///
    /// # Errors
    /// As there.
    pub(super) fn copy(&self, fork: &Fork<'_>) -> Result<Layer, Error> {
        let copy = Layer::new(self.shape())?;
        copy.recount_behind(fork, |range| {
            for (to, from) in copy.words[range.clone()].iter().zip(&self.words[range]) {
                // Zero pages of the copy stay untouched.
                let word = from.load(Relaxed);
                if word != 0 {
                    to.store(word, Relaxed);
                }
            }
        });
        copy.set_items(self.items());
        Ok(copy)
    }

    /// Items that it is sized for.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Error rate that it is sized for.
    pub fn error_rate(&self) -> f64 {
        self.error_rate
    }

    /// Cells: m. For bits this is the capacity in bits.
    pub fn cells(&self) -> u64 {
        self.words.len() as u64 * u64::from(u64::BITS / self.cell.bits())
    }

    /// Number of shards.
    pub fn shards(&self) -> u32 {
        self.shards.into()
    }

    /// Probes of one item: k.
    pub fn probes(&self) -> u32 {
        self.probes.into()
    }

    /// Bits or counters.
    pub fn cell(&self) -> Cell {
        self.cell
    }

    /// Bytes of the cells.
    pub fn bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    /// Bytes of memory, with all overhead.
    pub fn allocated(&self) -> usize {
        let tallies = match &self.tallies {
            Tallies::Inline { .. } => 0,
            Tallies::Padded { shards, .. } => size_of_val(&**shards),
        };
        size_of::<Layer>() + self.words.allocated() + tallies
    }

    /// Items added that were absent at the time, less those deleted.
    pub fn items(&self) -> u64 {
        match &self.tallies {
            Tallies::Inline { items, .. } => items.load(Relaxed),
            Tallies::Padded { shards, .. } => sum(shards, |tally| &tally.items),
        }
    }

    /// Cells that are not 0.
    pub fn ones(&self) -> u64 {
        match &self.tallies {
            Tallies::Inline { set, .. } => set.load(Relaxed),
            Tallies::Padded { shards, .. } => sum(shards, |tally| &tally.set),
        }
    }

    /// Counters that have reached their maximum and no longer count.
    pub fn saturated(&self) -> u64 {
        match &self.tallies {
            Tallies::Inline { .. } => 0,
            Tallies::Padded { shards, .. } => sum(shards, |tally| &tally.saturated),
        }
    }

    /// Fraction of cells that are not 0.
    pub fn fill(&self) -> f64 {
        self.ones() as f64 / self.cells() as f64
    }

    /// Number of distinct items, estimated from the fill (Swamidass–Baldi).
    pub fn estimate(&self) -> u64 {
        self.shape().items_at(self.fill()) as u64
    }

    /// The [`estimate`](Layer::estimate), rounded: where it becomes the number of items, cutting off would be seen.
    fn nearest_estimate(&self) -> u64 {
        self.shape().items_at(self.fill()).round() as u64
    }

    /// The error rate that it has now, from its fill.
    pub fn rate_now(&self) -> f64 {
        self.shape().rate_now(self.fill())
    }

    /// Whether it holds as many items as it is sized for.
    pub fn is_full(&self) -> bool {
        self.items() >= self.capacity
    }

    /// As [`is_full`](Layer::is_full) for the only thread that writes, which need not add up the shards each time.
    #[inline]
    pub(crate) fn is_full_for_single_writer(&self) -> bool {
        match &self.tallies {
            Tallies::Inline { items, .. } => items.load(Relaxed) >= self.capacity,
            Tallies::Padded { room, .. } => {
                if room.load(Relaxed) == 0 {
                    room.store(self.capacity.saturating_sub(self.items()), Relaxed);
                }
                room.load(Relaxed) == 0
            }
        }
    }

    /// The cells, to be written out.
    pub(crate) fn words(&self) -> &Words {
        &self.words
    }

    /// Sets the number of items. Which shard an item fell into is not recorded, since only the sum is ever asked for.
    fn set_items(&self, total: u64) {
        match &self.tallies {
            Tallies::Inline { items, .. } => items.store(total, Relaxed),
            Tallies::Padded { shards, room } => {
                room.store(0, Relaxed);
                for (index, tally) in shards.iter().enumerate() {
                    tally.items.store(if index == 0 { total } else { 0 }, Relaxed);
                }
            }
        }
    }

    /// Takes the tallies of cells anew from the cells.
    fn recount(&self) {
        self.recount_behind(&alone, |_| ());
    }

    /// Has the words visited in ranges, and takes the tallies of cells anew: of each range while it is in the cache.
    fn recount_behind(&self, fork: &Fork<'_>, visit: impl Fn(Range<usize>) + Sync) {
        /// Words of a range: 32 KiB.
        const RANGE: usize = 4096;
        let per_shard = self.words.len() / usize::from(self.shards);
        match &self.tallies {
            Tallies::Inline { set, .. } => set.store(0, Relaxed),
            Tallies::Padded { shards, .. } => shards.iter().for_each(|tally| {
                tally.set.store(0, Relaxed);
                tally.saturated.store(0, Relaxed);
            }),
        }
        in_parts(self.words.len(), fork, |part| {
            let mut start = part.start;
            while start < part.end {
                let shard = start / per_shard;
                let end = part.end.min((shard + 1) * per_shard).min(start + RANGE);
                visit(start..end);
                self.count_words(shard, &self.words[start..end]);
                start = end;
            }
        });
    }

    /// Adds the cells in these words to the tally of their shard.
    fn count_words(&self, shard: usize, words: &[AtomicU64]) {
        match &self.tallies {
            Tallies::Inline { set, .. } => {
                set.fetch_add(Words::ones(words), Relaxed);
            }
            Tallies::Padded { shards, .. } => {
                let tally = &shards[shard];
                let (set, saturated) = match self.cell {
                    Cell::Bit => (Words::ones(words), 0),
                    cell => words.iter().fold((0, 0), |(set, saturated), word| {
                        let (some, most) = counter::census(cell.bits(), word.load(Relaxed));
                        (set + u64::from(some), saturated + u64::from(most))
                    }),
                };
                tally.set.fetch_add(set, Relaxed);
                tally.saturated.fetch_add(saturated, Relaxed);
            }
        }
    }

    #[inline(always)]
    fn tally<W: Writer>(&self, item: ItemHash, change: Change) {
        match &self.tallies {
            Tallies::Inline { set, items } => {
                W::tally(set, change.set);
                W::tally(items, change.items);
            }
            Tallies::Padded { shards, room } => {
                W::use_room(room, change.items);
                let tally = &shards[item.shard(self.shards.into()) as usize];
                W::tally(&tally.set, change.set);
                W::tally(&tally.items, change.items);
                W::tally(&tally.saturated, change.saturated);
            }
        }
    }

    /// First word and number of words of the item's shard.
    #[inline(always)]
    fn shard_range(&self, item: ItemHash) -> (usize, usize) {
        if self.shards == 1 {
            return (0, self.words.len());
        }
        let len = self.words.len() / usize::from(self.shards);
        (item.shard(self.shards.into()) as usize * len, len)
    }

    /// The item's block.
    #[inline(always)]
    fn block(&self, item: ItemHash) -> &[AtomicU64; probe::BLOCK_WORDS] {
        let Some(block) = self.words[self.block_start(item)..].first_chunk() else {
            unreachable!("a blocked shard is a whole number of blocks");
        };
        block
    }

    /// First word of the item's block.
    #[inline(always)]
    fn block_start(&self, item: ItemHash) -> usize {
        let (start, len) = self.shard_range(item);
        start + probe::block(item, len / probe::BLOCK_WORDS) * probe::BLOCK_WORDS
    }

    /// Visits the item's cells as (words, index among their cells) until `visit` says false; whether none did.
    #[inline(always)]
    fn walk(&self, item: ItemHash, visit: impl FnMut(&[AtomicU64], usize) -> bool) -> bool {
        self.walk_as::<0>(item, self.cell.bits(), visit)
    }

    /// [`walk`](Layer::walk) over `K` cells of `width` bits.
    #[inline(always)]
    fn walk_as<const K: usize>(
        &self,
        item: ItemHash,
        width: u32,
        mut visit: impl FnMut(&[AtomicU64], usize) -> bool,
    ) -> bool {
        let probes = self.probes.into();
        match self.layout {
            Layout::Blocked if K == 0 => {
                let block = self.block(item);
                probe::in_block(item, width, probes).all(|index| visit(block, index))
            }
            Layout::Blocked => {
                let block = self.block(item);
                probe::first_in_block::<K>(item, width).into_iter().all(|index| visit(block, index))
            }
            Layout::Classic => {
                let (start, len) = self.shard_range(item);
                let shard = &self.words[start..start + len];
                let cells = len as u64 * u64::from(u64::BITS / width);
                probe::classic(item, cells, probes).all(|index| visit(shard, index))
            }
        }
    }
}

impl std::fmt::Debug for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layer")
            .field("shape", &self.shape())
            .field("ones", &self.ones())
            .finish_non_exhaustive()
    }
}

/// Whether all of these bits are set.
#[inline(always)]
fn all_set<const K: usize>(block: &[AtomicU64; probe::BLOCK_WORDS], probes: [usize; K]) -> bool {
    // In the lowest bit of a word: of booleans the compiler makes a branch for each, half of which are mispredicted.
    let mut all = 1;
    for index in probes {
        all &= block[index / 64].load(Relaxed) >> (index % 64);
    }
    all == 1
}

/// Which of the items `test` holds for, of those that `asked` has a bit for.
#[inline(always)]
fn each(items: &[ItemHash], mut asked: u64, test: impl Fn(ItemHash) -> bool) -> u64 {
    let mut found = 0;
    while asked != 0 {
        let index = asked.trailing_zeros();
        found |= u64::from(test(items[index as usize])) << index;
        asked &= asked - 1;
    }
    found
}

fn sum(shards: &[CachePadded<Tally>], field: impl Fn(&Tally) -> &AtomicU64) -> u64 {
    let total = shards.iter().fold(0u64, |total, tally| total.wrapping_add(field(tally).load(Relaxed)));
    (total as i64).max(0) as u64
}
