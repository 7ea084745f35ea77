//! Reads and updates the tallies of a layer.

use super::Layer;
use super::census::Census;
use super::tally::{Change, Tallies, Tally, TallyWriter, UNKNOWN};
use crate::filter::change::Added;
use crate::filter::layout::quotient::Locked;
use crate::hash::ItemHash;
use crate::mem::Words;
use crate::parallel::{ParallelFor, alone, in_parts};
use crate::sync::Ordering::Relaxed;
use crate::sync::PoisonError;
use crate::sync::{AtomicU64, MutexGuard};
use core::ops::Range;
use crossbeam_utils::CachePadded;

impl Layer {
    /// The number of items in a layer without [`Tallies::Padded`].
    #[inline(always)]
    fn own_items(&self) -> &AtomicU64 {
        &self.0.rest().items
    }

    /// The table of the layout QUOTIENT.
    #[inline(always)]
    pub(in crate::filter::layout) fn table(&self) -> Option<&Locked> {
        match self.tallies() {
            Some(Tallies::Table(table)) => Some(table),
            _ => None,
        }
    }

    /// Number of added items that were absent at the time, minus the deleted ones.
    pub fn items(&self) -> u64 {
        match self.tallies() {
            Some(Tallies::Padded { shards, .. }) => sum(shards, |tally| &tally.items),
            _ => self.own_items().load(Relaxed),
        }
    }

    /// Whether no item is present. A table without items can still have cells: parts of divided prefixes don't count.
    pub(crate) fn is_blank(&self) -> bool {
        self.reading().map_or_else(|| self.ones() == 0, |table| table.has_no_cells())
    }

    /// Number of cells that are not 0. For a static layer, whose cells don't show this, it is the number of items.
    pub fn ones(&self) -> u64 {
        match self.tallies() {
            _ if self.is_static() => self.items(),
            None => Words::ones(self.words()),
            Some(Tallies::Ones(ones)) => ones.load(Relaxed),
            Some(Tallies::Padded { shards, .. }) => sum(shards, |tally| &tally.set),
            Some(Tallies::Table(_)) => self.items(),
        }
    }

    /// Number of counters that have reached their maximum and no longer count.
    pub fn saturated(&self) -> u64 {
        match self.tallies() {
            Some(Tallies::Padded { shards, .. }) => sum(shards, |tally| &tally.saturated),
            Some(Tallies::Table(table)) => table.read().unwrap_or_else(PoisonError::into_inner).saturated,
            _ => 0,
        }
    }

    /// The number of adds minus the number of deletes in a layer of counters. `None` for other layers, and if the
    /// result is unknown because a counter is saturated.
    pub(in crate::filter::layout) fn held(&self) -> Option<u64> {
        match self.tallies() {
            Some(Tallies::Padded { shards, .. }) if self.cell().counts() && self.saturated() == 0 => {
                Some(sum(shards, |tally| &tally.sum) / u64::from(self.probes()))
            }
            _ => None,
        }
    }

    /// Like [`items`](Layer::items), for a single writer. Usually avoids adding up the shards.
    #[inline]
    pub(crate) fn items_for_single_writer(&self) -> u64 {
        match self.tallies() {
            Some(Tallies::Padded { shards, total }) => {
                if total.load(Relaxed) == UNKNOWN {
                    total.store(sum(shards, |tally| &tally.items), Relaxed);
                }
                not_negative(total.load(Relaxed))
            }
            _ => self.own_items().load(Relaxed),
        }
    }

    /// Whether the layer has at least the number of items that it is sized for.
    pub fn is_full(&self) -> bool {
        self.items() >= self.capacity()
    }

    /// Like [`is_full`](Layer::is_full), for a single writer. Never for a table, which refuses items by itself.
    #[inline]
    pub(crate) fn is_full_for_single_writer(&self) -> bool {
        self.items_for_single_writer() >= self.capacity() && !self.has_table()
    }

    /// Sets the tallies of a new layer whose cells came from elsewhere. Only sums over the shards are ever read, so the
    /// first shard gets everything.
    pub(in crate::filter::layout) fn set_tallies(&self, census: Census, items: u64) {
        match self.tallies() {
            None | Some(Tallies::Table(_)) => {}
            Some(Tallies::Ones(ones)) => ones.store(census.set, Relaxed),
            Some(Tallies::Padded { shards, .. }) => {
                if let Some(first) = shards.first() {
                    add(first, census);
                }
            }
        }
        self.set_items(items);
    }

    /// Sets the number of items. Only the sum over the shards is ever read, so the first shard gets everything.
    pub(in crate::filter::layout) fn set_items(&self, total: u64) {
        match self.tallies() {
            Some(Tallies::Padded { shards, total: sum }) => {
                sum.store(total, Relaxed);
                for (index, tally) in shards.iter().enumerate() {
                    tally.items.store(if index == 0 { total } else { 0 }, Relaxed);
                }
            }
            _ => self.own_items().store(total, Relaxed),
        }
    }

    /// Counts the cells again.
    pub(in crate::filter::layout) fn recount(&self) {
        self.recount_after(&alone, |_| ());
    }

    /// Calls `visit` with each range of words, and then counts the cells in the range while they are in the cache.
    pub(in crate::filter::layout) fn recount_after(
        &self,
        parallel: &ParallelFor<'_>,
        visit: impl Fn(Range<usize>) + Sync,
    ) {
        /// Words per range: 32 KiB.
        const RANGE: usize = 4096;
        let per_shard = self.words().len() / self.shards() as usize;
        match self.tallies() {
            None | Some(Tallies::Table(_)) => {}
            Some(Tallies::Ones(ones)) => ones.store(0, Relaxed),
            Some(Tallies::Padded { shards, .. }) => shards.iter().for_each(|tally| {
                tally.set.store(0, Relaxed);
                tally.sum.store(0, Relaxed);
                tally.saturated.store(0, Relaxed);
            }),
        }
        in_parts(self.words().len(), parallel, |part| {
            let mut start = part.start;
            while start < part.end {
                let shard = start / per_shard;
                let end = part.end.min((shard + 1) * per_shard).min(start + RANGE);
                visit(start..end);
                self.count_words(shard, &self.words()[start..end]);
                start = end;
            }
        });
    }

    /// Adds the cells in these words to the tally of their shard.
    fn count_words(&self, shard: usize, words: &[AtomicU64]) {
        // The cells of a static filter don't show the number of items.
        if !self.layout().has_probes() {
            return;
        }
        match self.tallies() {
            None | Some(Tallies::Table(_)) => {}
            Some(Tallies::Ones(ones)) => {
                ones.fetch_add(Words::ones(words), Relaxed);
            }
            Some(Tallies::Padded { shards, .. }) => add(&shards[shard], Census::of(self.cell(), words)),
        }
    }

    /// Waits until no other thread is deleting an item in this item's shard. Other threads then wait until the guard is
    /// dropped. `None` for a layer without [`Tallies::Padded`], which doesn't support deletes.
    pub(in crate::filter::layout) fn turn_to_delete(&self, item: ItemHash) -> Option<MutexGuard<'_, ()>> {
        match self.tallies() {
            Some(Tallies::Padded { shards, .. }) => {
                let tally = &shards[item.shard(self.shards()) as usize];
                Some(tally.deletes.lock().unwrap_or_else(PoisonError::into_inner))
            }
            _ => None,
        }
    }

    /// Tallies an item whose add has set `set` bits that were clear before.
    #[inline(always)]
    pub(in crate::filter::layout) fn tally_set<W: TallyWriter>(&self, item: ItemHash, set: i64) -> Added {
        if set == 0 {
            return Added::default();
        }
        self.tally::<W>(item, Change { set, items: 1, ..Change::default() });
        Added { added: true, changed: true }
    }

    /// Updates the tallies after a write to the item's cells.
    #[inline(always)]
    pub(in crate::filter::layout) fn tally<W: TallyWriter>(&self, item: ItemHash, change: Change) {
        match self.tallies() {
            Some(Tallies::Padded { shards, total }) => {
                W::tally_total(total, change.items);
                let tally = &shards[W::own_tally(item.shard(self.shards()) as usize, shards.len())];
                W::tally(&tally.set, change.set);
                W::tally(&tally.items, change.items);
                W::tally(&tally.sum, change.sum);
                W::tally(&tally.saturated, change.saturated);
            }
            few => {
                if let Some(Tallies::Ones(ones)) = few {
                    W::tally(ones, change.set);
                }
                W::tally(self.own_items(), change.items);
            }
        }
    }
}

fn add(tally: &Tally, census: Census) {
    tally.set.fetch_add(census.set, Relaxed);
    tally.sum.fetch_add(census.sum, Relaxed);
    tally.saturated.fetch_add(census.saturated, Relaxed);
}

fn sum(shards: &[CachePadded<Tally>], field: impl Fn(&Tally) -> &AtomicU64) -> u64 {
    let total = shards.iter().fold(0u64, |total, tally| total.wrapping_add(field(tally).load(Relaxed)));
    not_negative(total)
}

fn not_negative(total: u64) -> u64 {
    (total as i64).max(0) as u64
}
