//! What tests, adds and deletes do to the cells of an item.

use super::Layer;
use super::tally::{Change, TallyWriter};
use crate::bits::{Hits, PerShard, Shared, Single, bit, counter};
use crate::error::Error;
use crate::filter::bloom::probe::{self, Slices};
use crate::filter::change::{Added, Removed};
use crate::filter::fingerprint::{Step, Table};
use crate::filter::fuse::Fuse;
use crate::filter::ribbon::Ribbon;
use crate::hash::ItemHash;
use crate::mem::Words;
use crate::params::{Cell, Layout};
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;
use std::ops::Range;

/// Evaluates an expression with the layer's number of probes as the constant `K`, or with `K` = 0 if that number isn't
/// between 4 and 7. In blocks, error rates down to 0.5% need up to seven probes, which fit into one word of the hash.
/// If the number is constant, the loop disappears, and a test takes half the time.
macro_rules! with_probes {
    ($number:literal, $K:ident => $value:expr) => {{
        const $K: usize = $number;
        $value
    }};
    ($layer:expr, $K:ident => $value:expr) => {
        match $layer.form().probes() {
            4 => with_probes!(4, $K => $value),
            5 => with_probes!(5, $K => $value),
            6 => with_probes!(6, $K => $value),
            7 => with_probes!(7, $K => $value),
            _ => with_probes!(0, $K => $value),
        }
    };
}

/// Evaluates an expression with the width of the layer's counters as the constant `WIDTH`, so that shifts and masks
/// are constants.
macro_rules! with_width {
    ($layer:expr, $WIDTH:ident => $value:expr) => {
        match $layer.cell() {
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

/// Evaluates an expression with the slices of a layer without blocks, in which each shard has `$cells` cells. The code
/// for CLASSIC doesn't contain what only PARTITIONED needs, because that took 3% to 10% of the time of a test whose
/// lines are cached.
macro_rules! with_slices {
    ($layer:expr, $cells:expr, $slices:ident => $value:expr) => {
        if $layer.form().layout() == Layout::Partitioned {
            let $slices = Slices::apart($cells, $layer.probes());
            $value
        } else {
            let $slices = Slices::whole($cells);
            $value
        }
    };
}

/// In CLASSIC and PARTITIONED layers of more than this many bytes, cache lines are prefetched. Smaller layers fit into
/// the L2 cache.
const PREFETCHED_FROM: u64 = 1 << 20;

/// If cache lines are prefetched, those of the first `FETCHED_FIRST` probes are prefetched for all items. The lines of
/// the other probes among the first `FETCHED_NEXT` are prefetched only for items that the first probes don't exclude.
const FETCHED_FIRST: u32 = 2;
const FETCHED_NEXT: u32 = 6;

impl Layer {
    /// Whether the item may be in the layer. False is certain. For an absent item, the answer is true with the
    /// probability [`rate_now`](Layer::rate_now).
    #[inline]
    pub fn contains(&self, item: ItemHash) -> bool {
        match (self.cell(), self.form().layout()) {
            (Cell::Bit, Layout::Blocked) => with_probes!(self, K => self.block_contains::<K>(item)),
            (Cell::Bit, Layout::Classic | Layout::Partitioned) => {
                let shard = self.shard(item);
                with_slices!(self, cells_in(shard, 1), slices => has_all(shard, item, slices, self.probes()))
            }
            (_, Layout::Blocked) => {
                with_width!(self, WIDTH => with_probes!(self, K => self.block_counts::<WIDTH, K>(item)))
            }
            (_, Layout::Fingerprint) => self.fingerprints().contains(item),
            (_, Layout::Fuse) => self.fuse().contains(item.high),
            (_, Layout::Ribbon) => self.ribbon().contains(item.high),
            // A list isn't tested: it is only for building a filter. A test would have to compare all hashes.
            (_, Layout::List) => false,
            (cell, _) => self.walk(item, |words, index| counter::get(words, cell.bits(), index) != 0),
        }
    }

    /// The cells of a layer of fingerprints.
    #[inline(always)]
    fn fingerprints(&self) -> Table<'_> {
        let Some(table) = self.table() else { unreachable!("this layout has a table") };
        table
    }

    /// The cells of a binary fuse filter.
    #[inline(always)]
    fn fuse(&self) -> Fuse<'_> {
        Fuse::new(self.words(), self.probes())
    }

    /// The cells of a ribbon filter.
    #[inline(always)]
    fn ribbon(&self) -> Ribbon<'_> {
        Ribbon::new(self.words(), self.probes())
    }

    /// Like [`block_contains`](Layer::block_contains), in a block of counters.
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

    /// Which of up to 64 items may be in the layer. Only the items in `asked` are tested.
    ///
    /// The items' cache lines should have been [prefetched](Layer::prefetch).
    #[inline]
    pub fn contains_many(&self, items: &[ItemHash], asked: Hits) -> Hits {
        let asked = asked & Hits::first(items.len());
        match (self.cell(), self.form().layout()) {
            (Cell::Bit, Layout::Blocked) => {
                with_probes!(self, K => each(items, asked, |item| self.block_contains::<K>(item)))
            }
            (_, Layout::Blocked) => {
                with_width!(self, WIDTH => with_probes!(self, K => {
                    each(items, asked, |item| self.block_counts::<WIDTH, K>(item))
                }))
            }
            (Cell::Bit, Layout::Classic | Layout::Partitioned) if !self.is_near() => {
                let cells = cells_in(self.words(), 1) >> self.form().log2_shards();
                with_slices!(self, cells, slices => self.spread_contains_many(items, asked, slices))
            }
            // Reads the layer's head once for all items. That saves 76 of 271 instructions for each absent item.
            (Cell::Bit, Layout::Classic | Layout::Partitioned) if self.shards() == 1 => {
                let (words, probes) = (self.words(), self.probes());
                with_slices!(self, cells_in(words, 1), slices => {
                    each(items, asked, |item| has_all(words, item, slices, probes))
                })
            }
            (_, Layout::Fingerprint) => self.fingerprints().contains_many(items, asked),
            (_, Layout::Fuse) => {
                let fuse = self.fuse();
                each(items, asked, |item| fuse.contains(item.high))
            }
            (_, Layout::Ribbon) => {
                let ribbon = self.ribbon();
                each(items, asked, |item| ribbon.contains(item.high))
            }
            _ => each(items, asked, |item| self.contains(item)),
        }
    }

    /// [`contains`](Layer::contains) in a block of bits, without branching on the bits: a misprediction costs
    /// more than all probes in a cached line.
    #[inline(always)]
    fn block_contains<const K: usize>(&self, item: ItemHash) -> bool {
        let block = self.block(item);
        if K != 0 {
            return all_set(block, probe::first_in_block::<K>(item, 1));
        }
        // The first four of many probes exclude most absent items, and in most layers nearly all items are absent.
        if self.probes() > 4 && !all_set(block, probe::first_in_block::<4>(item, 1)) {
            return false;
        }
        let mut all = true;
        for index in probe::in_block(item, 1, self.probes()) {
            all &= bit::get(block, index);
        }
        all
    }

    /// [`contains`](Layer::contains) for several items, in a layer without blocks. For all items that the first two
    /// probes don't exclude, the lines of the next probes are fetched together. Otherwise a quarter of the absent items
    /// would wait for their third probe, and half of those items for the next one.
    #[inline(always)]
    fn spread_contains_many(&self, items: &[ItemHash], asked: Hits, slices: Slices) -> Hits {
        let probes = self.probes();
        let likely = each(items, asked, |item| {
            let (shard, two) = (self.shard(item), probe::spread(item, slices, FETCHED_FIRST.min(probes)));
            two.fold(1, |all, index| all & bit::shifted(shard, index)) == 1
        });
        likely.for_each(|index| self.prefetch_probes(items[index], FETCHED_FIRST..FETCHED_NEXT));
        each(items, likely, |item| {
            let (shard, all) = (self.shard(item), probe::spread(item, slices, probes));
            all.skip(FETCHED_FIRST as usize).all(|index| bit::get(shard, index))
        })
    }

    /// Sets the item's bits in its block, and returns how many were not set before. If all were set, the cache line
    /// stays clean.
    #[inline(always)]
    fn block_insert<W: TallyWriter, const K: usize>(&self, item: ItemHash) -> i64 {
        if self.block_contains::<K>(item) { 0 } else { self.block_set::<W, K>(item) }
    }

    /// Like [`block_insert`](Layer::block_insert), for an item that isn't present: always writes the cache line.
    ///
    /// Not inlined: otherwise the compiler would keep the values that this method and
    /// [`block_contains`](Layer::block_contains) both compute, and run out of registers.
    #[inline(never)]
    fn block_set<W: TallyWriter, const K: usize>(&self, item: ItemHash) -> i64 {
        let block = self.block(item);
        let set = |index| i64::from(bit::set::<W>(block, index));
        if K == 0 {
            return probe::in_block(item, 1, self.probes()).map(set).sum();
        }
        let mut new = 0;
        for index in probe::first_in_block::<K>(item, 1) {
            new += set(index);
        }
        new
    }

    /// Like [`block_insert`](Layer::block_insert), in a layer without blocks. `shard` is the item's shard.
    #[inline(always)]
    fn spread_insert<W: TallyWriter>(&self, item: ItemHash, shard: &[AtomicU64], slices: Slices) -> i64 {
        let mut cells = probe::spread(item, slices, self.probes());
        let Some(clear) = cells.find(|index| !bit::get(shard, *index)) else { return 0 };
        // Half of the other bits are set already, so a branch on each would often be mispredicted.
        let set = |index| i64::from(bit::set::<W>(shard, index));
        set(clear) + cells.map(set).sum::<i64>()
    }

    /// Whether the layer's cells are expected to be in the CPU caches. If so, prefetching does nothing.
    #[inline]
    pub fn is_near(&self) -> bool {
        matches!(self.form().layout(), Layout::Classic | Layout::Partitioned)
            && self.bytes() <= PREFETCHED_FROM
    }

    /// Maximum number of cache lines that adding or deleting an item touches.
    #[inline]
    pub fn lines(&self) -> usize {
        match self.form().layout() {
            Layout::Classic | Layout::Partitioned => self.probes() as usize,
            Layout::Blocked | Layout::Fingerprint | Layout::Fuse | Layout::Ribbon | Layout::List => 3,
        }
    }

    /// Prefetches the cache lines that a test of this item will touch first. In a layer without blocks, these are the
    /// lines of two probes, which exclude most absent items. Call this a few items ahead of the test. In a layer of 1
    /// GiB, a test of an absent item takes 41 ns with two lines fetched, 66 ns with four, and 133 ns with all seven. A
    /// test of a present item takes 140 ns in each case.
    #[inline]
    pub fn prefetch(&self, item: ItemHash) {
        self.prefetch_probes(item, 0..FETCHED_FIRST);
    }

    /// Prefetches all cache lines that adding or deleting this item will touch.
    #[inline]
    pub fn prefetch_all(&self, item: ItemHash) {
        self.prefetch_probes(item, 0..self.probes());
    }

    #[inline(always)]
    fn prefetch_probes(&self, item: ItemHash, probes: Range<u32>) {
        match self.form().layout() {
            Layout::Blocked => Words::prefetch(self.words(), self.block_start(item)),
            Layout::Fingerprint if probes.end == FETCHED_FIRST => self.fingerprints().prefetch_first(item),
            Layout::Fingerprint => self.fingerprints().prefetch_item(item),
            Layout::Fuse => self.fuse().prefetch(item.high),
            Layout::Ribbon => self.ribbon().prefetch(item.high),
            Layout::List => {}
            _ if self.is_near() => {}
            Layout::Classic | Layout::Partitioned => {
                let (start, len) = self.shard_range(item);
                let (log2_per_word, most) = (self.cell().log2_per_word(), probes.end.min(self.probes()));
                with_slices!(self, (len as u64) << log2_per_word, slices => {
                    for index in probe::spread(item, slices, most).skip(probes.start as usize) {
                        Words::prefetch(self.words(), start + (index >> log2_per_word));
                    }
                });
            }
        }
    }

    /// Adds the item. Any number of threads may add items at the same time. Counters count every add.
    ///
    /// If two threads add the same new item at the same time, both may be told that they added it, because each cell is
    /// updated separately.
    #[inline]
    pub fn insert(&self, item: ItemHash) -> Added {
        self.insert_as::<Shared>(item)
    }

    /// Like [`insert`](Layer::insert), for a single writer: uses no locked instructions. Readers may run at the same
    /// time; a second writer would lose updates.
    ///
    /// # Errors
    /// [`Error::Full`] if a fingerprint table or a list has no room, [`Error::Static`] for an item that a static filter
    /// doesn't contain. In both cases, nothing has changed.
    #[inline]
    pub fn insert_single_writer(&self, item: ItemHash) -> Result<Added, Error> {
        match self.form().layout() {
            Layout::Fingerprint => {
                let Step { before, after } = self.fingerprints().insert(item)?;
                self.tally_fingerprint(item, Step { before, after });
                Ok(Added { added: before == 0, changed: before != after })
            }
            Layout::Fuse | Layout::Ribbon if self.contains(item) => Ok(Added::default()),
            Layout::Fuse | Layout::Ribbon => Err(Error::Static),
            Layout::List => {
                let next = self.words().get(self.items() as usize).ok_or(Error::Full)?;
                next.store(item.high, Relaxed);
                Ok(self.tally_set::<Single>(item, 1))
            }
            _ => Ok(self.insert_as::<Single>(item)),
        }
    }

    /// Like [`insert_single_writer`](Layer::insert_single_writer), for an item that was absent a moment ago, and most
    /// likely still is. In blocks of bits, it isn't tested again.
    ///
    /// # Errors
    /// Same as [`insert_single_writer`](Layer::insert_single_writer).
    #[inline(always)]
    pub(crate) fn insert_absent_single_writer(&self, item: ItemHash) -> Result<Added, Error> {
        match (self.cell(), self.form().layout()) {
            (Cell::Bit, Layout::Blocked) => {
                let set = with_probes!(self, K => self.block_set::<Single, K>(item));
                Ok(self.tally_set::<Single>(item, set))
            }
            _ => self.insert_single_writer(item),
        }
    }

    /// Like [`insert_single_writer`](Layer::insert_single_writer), for the only thread that writes to the item's
    /// shard. Other threads may write to other shards.
    #[inline]
    pub fn insert_in_own_shard(&self, item: ItemHash) -> Added {
        self.insert_as::<PerShard>(item)
    }

    /// Adds the item and returns whether it was present before (test-and-add).
    #[inline]
    pub fn test_and_insert(&self, item: ItemHash) -> bool {
        !self.insert(item).added
    }

    /// Adds the item only if it is absent. Returns whether it was present (test-or-add).
    #[inline]
    pub fn test_or_insert(&self, item: ItemHash) -> bool {
        self.contains(item) || self.test_and_insert(item)
    }

    #[inline(always)]
    fn insert_as<W: TallyWriter>(&self, item: ItemHash) -> Added {
        let set = match (self.cell(), self.form().layout()) {
            (Cell::Bit, Layout::Blocked) => with_probes!(self, K => self.block_insert::<W, K>(item)),
            (Cell::Bit, Layout::Classic | Layout::Partitioned) => {
                let shard = self.shard(item);
                with_slices!(self, cells_in(shard, 1), slices => self.spread_insert::<W>(item, shard, slices))
            }
            (_, Layout::Fingerprint | Layout::Fuse | Layout::List | Layout::Ribbon) => {
                unreachable!("this layout has a single writer, and no shards")
            }
            _ => return self.count_up::<W>(item),
        };
        self.tally_set::<W>(item, set)
    }

    /// Tallies an item whose add has set `set` bits that were clear before.
    #[inline(always)]
    fn tally_set<W: TallyWriter>(&self, item: ItemHash, set: i64) -> Added {
        if set == 0 {
            return Added::default();
        }
        self.tally::<W>(item, Change { set, items: 1, ..Change::default() });
        Added { added: true, changed: true }
    }

    /// [`insert_as`](Layer::insert_as) for counters. Not inlined, because the code exists once for every combination of
    /// width and number of probes.
    #[inline(never)]
    fn count_up<W: TallyWriter>(&self, item: ItemHash) -> Added {
        let (mut change, mut changed) = (Change::default(), false);
        with_width!(self, WIDTH => with_probes!(self, K => {
            self.walk_as::<K>(item, WIDTH, |words, index| {
                let max = counter::maximum(WIDTH);
                let step = counter::increment::<W>(words, WIDTH, index);
                change.set += i64::from(step.before == 0);
                change.sum += (step.after - step.before) as i64;
                change.saturated += i64::from(step.after == max && step.before != max);
                changed |= step.after != step.before;
                true
            });
        }));
        change.items = i64::from(change.set != 0);
        self.tally::<W>(item, change);
        Added { added: change.items != 0, changed }
    }

    /// Deletes one occurrence of the item. Any number of threads may delete items at the same time. Deletes in the same
    /// shard take turns. Otherwise, after one thread has found an item, another could delete it before the first
    /// decrements its counters, and counters that other items share would be decremented twice.
    ///
    /// If the item is certainly absent, nothing changes. Deleting an item that was never added, but tests positive,
    /// decrements counters that other items need. This is the only way to cause a false negative.
    ///
    /// # Errors
    /// [`Error::NotCounting`] for a layer without counters.
    pub fn remove(&self, item: ItemHash) -> Result<Removed, Error> {
        let _turn = self.turn_to_delete(item);
        self.remove_as::<Shared>(item)
    }

    /// Like [`remove`](Layer::remove), for a single writer.
    ///
    /// # Errors
    /// [`Error::NotCounting`] for a layer without counters.
    pub fn remove_single_writer(&self, item: ItemHash) -> Result<Removed, Error> {
        self.remove_as::<Single>(item)
    }

    fn remove_as<W: TallyWriter>(&self, item: ItemHash) -> Result<Removed, Error> {
        if !self.cell().counts() {
            return Err(Error::NotCounting);
        }
        if let Some(table) = self.table() {
            let Step { before, after } = table.remove(item);
            self.tally_fingerprint(item, Step { before, after });
            return Ok(Removed { present: before > 0, changed: before != after });
        }
        if !self.contains(item) {
            return Ok(Removed::default());
        }
        let (mut change, mut changed) = (Change::default(), false);
        with_width!(self, WIDTH => with_probes!(self, K => {
            self.walk_as::<K>(item, WIDTH, |words, index| {
                let step = counter::decrement::<W>(words, WIDTH, index);
                change.set -= i64::from(step.before != 0 && step.after == 0);
                change.sum -= (step.before - step.after) as i64;
                changed |= step.after != step.before;
                true
            });
        }));
        // An item that tested present when it was added wasn't counted, but its delete may empty a cell. The number of
        // items must not go below 0.
        change.items = -i64::from(change.set != 0 && self.items() > 0);
        self.tally::<W>(item, change);
        if changed {
            self.correct_items::<W>(item, change.set == 0);
        }
        Ok(Removed { present: true, changed })
    }

    /// Updates the tally after a fingerprint's count has changed.
    #[inline(always)]
    pub(super) fn tally_fingerprint(&self, item: ItemHash, Step { before, after }: Step) {
        let items = i64::from(before == 0) - i64::from(after == 0);
        let is_saturated =
            self.cell().counts() && before < after && after == counter::maximum(self.cell().bits());
        if before != after {
            let saturated = i64::from(is_saturated);
            self.tally::<Single>(item, Change { set: items, items, saturated, ..Change::default() });
        }
    }

    /// The item's count: the minimum of its counters, or its fingerprint's count. This is the number of its adds minus
    /// its deletes, or more if other items share its cells. A saturated counter no longer counts. 0 or 1 for bits.
    pub fn count(&self, item: ItemHash) -> u64 {
        if let Some(table) = self.table() {
            return table.count(item);
        }
        let mut least = u64::MAX;
        self.walk(item, |words, index| {
            let value = match self.cell() {
                Cell::Bit => bit::get(words, index).into(),
                cell => counter::get(words, cell.bits(), index),
            };
            least = least.min(value);
            true
        });
        least
    }

    /// Index of the first word of the item's shard, and the shard's number of words.
    #[inline(always)]
    fn shard_range(&self, item: ItemHash) -> (usize, usize) {
        if self.form().log2_shards() == 0 {
            return (0, self.words().len());
        }
        let len = self.words().len() >> self.form().log2_shards();
        (item.shard(self.shards()) as usize * len, len)
    }

    /// The item's block.
    #[inline(always)]
    fn block(&self, item: ItemHash) -> &[AtomicU64; probe::BLOCK_WORDS] {
        let Some(block) = self.words()[self.block_start(item)..].first_chunk() else {
            unreachable!("a blocked shard is a whole number of blocks");
        };
        block
    }

    /// Index of the first word of the item's block.
    #[inline(always)]
    fn block_start(&self, item: ItemHash) -> usize {
        let (start, len) = self.shard_range(item);
        start + probe::block(item, len / probe::BLOCK_WORDS) * probe::BLOCK_WORDS
    }

    /// The words of the item's shard.
    #[inline(always)]
    fn shard(&self, item: ItemHash) -> &[AtomicU64] {
        let (start, len) = self.shard_range(item);
        &self.words()[start..start + len]
    }

    /// Calls `visit` with each of the item's cells, as (words, index of the cell), until `visit` returns false. Returns
    /// true if `visit` never returned false.
    #[inline(always)]
    fn walk(&self, item: ItemHash, visit: impl FnMut(&[AtomicU64], usize) -> bool) -> bool {
        self.walk_as::<0>(item, self.cell().bits(), visit)
    }

    /// Like [`walk`](Layer::walk), with cells of `width` bits. `K` is the number of probes, or 0 if it isn't a
    /// constant.
    #[inline(always)]
    fn walk_as<const K: usize>(
        &self,
        item: ItemHash,
        width: u32,
        mut visit: impl FnMut(&[AtomicU64], usize) -> bool,
    ) -> bool {
        let probes = self.probes();
        match self.form().layout() {
            Layout::Blocked if K == 0 => {
                let block = self.block(item);
                probe::in_block(item, width, probes).all(|index| visit(block, index))
            }
            Layout::Blocked => {
                let block = self.block(item);
                probe::first_in_block::<K>(item, width).into_iter().all(|index| visit(block, index))
            }
            Layout::Classic | Layout::Partitioned => {
                let shard = self.shard(item);
                with_slices!(self, cells_in(shard, width), slices => {
                    probe::spread(item, slices, probes).all(|index| visit(shard, index))
                })
            }
            Layout::Fingerprint | Layout::Fuse | Layout::List | Layout::Ribbon => {
                unreachable!("this layout has no probes")
            }
        }
    }
}

/// Whether all of these bits are set.
#[inline(always)]
fn all_set<const K: usize>(block: &[AtomicU64; probe::BLOCK_WORDS], probes: [usize; K]) -> bool {
    // Uses the lowest bit of a word. With booleans, the compiler would generate a branch for each, and half of the
    // branches would be mispredicted.
    let mut all = 1;
    for index in probes {
        all &= block[index / 64].load(Relaxed) >> (index % 64);
    }
    all == 1
}

/// Number of cells of this width in these words.
#[inline(always)]
fn cells_in(words: &[AtomicU64], width: u32) -> u64 {
    words.len() as u64 * u64::from(u64::BITS / width)
}

/// Whether the item's bits are set in its shard of a layer without blocks. The first two probes exclude three quarters
/// of the absent items or more. They are evaluated together: with a branch on each of them, half of the branches would
/// be mispredicted.
#[inline(always)]
fn has_all(shard: &[AtomicU64], item: ItemHash, slices: Slices, probes: u32) -> bool {
    let mut bits = probe::spread(item, slices, probes);
    let two = bits.by_ref().take(2).fold(1, |all, index| all & bit::shifted(shard, index));
    two == 1 && bits.all(|index| bit::get(shard, index))
}

/// The items for which `test` holds. Only the items in `asked` are tested.
#[inline(always)]
fn each(items: &[ItemHash], asked: Hits, test: impl Fn(ItemHash) -> bool) -> Hits {
    asked.fold(Hits::default(), |found, index| found.with(index, test(items[index])))
}
