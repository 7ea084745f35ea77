//! Processes items in groups. All items of a group are hashed and their cache lines prefetched before the first item is
//! probed, so that the group's cache misses overlap. If items were processed one at a time, each would have to wait for
//! memory.

use super::Bloom;
use super::reader::Reader;
use crate::bits::Hits;
use crate::filter::layout::Layer;
use crate::hash::{Hasher, Item, ItemHash};
use core::ops::{ControlFlow, Deref};

/// Items per group: one [`Hits`] holds the answers. A core can have 10 to 16 cache misses in flight; a group is enough
/// to keep it busy.
pub const GROUP: usize = Hits::MAX;

/// Maximum number of cache lines that the adds of a group touch. In memory that nobody has written to, each line may
/// need two page faults, one for the read and one for the write, which take 3 µs together. Without this limit, a group
/// of 64 items with 29 probes each blocked a server for 6 ms, because commands look at the clock only between groups. A
/// group's lines also fit into the L1 cache.
const LINES: usize = 512;

/// Number of items to add as a group if each touches `lines` cache lines. It is a power of two, so 32, the largest
/// number of items between two readings of the clock, is a multiple of every smaller group.
#[inline]
pub fn group_for(lines: usize) -> usize {
    // True for nearly all filters, which thus avoid the division.
    if lines <= LINES / GROUP {
        return GROUP;
    }
    1 << (LINES / lines).max(1).ilog2()
}

/// What is done with a group of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The items are looked up.
    Test,
    /// The items are added or deleted.
    Write,
}

/// A filter, or a reader of a filter, in which items are looked up.
pub trait Probed {
    /// The keyed hash function.
    fn hasher(&self) -> Hasher;

    /// The layer that a test or add of an item touches first.
    fn first(&self) -> &Layer;

    /// Which of up to 64 items the filter may contain. A window answers as of generation `current`.
    fn contains_many(&self, items: &[ItemHash], current: u64) -> Hits;
}

impl Probed for Bloom {
    #[inline(always)]
    fn hasher(&self) -> Hasher {
        Bloom::hasher(self)
    }

    #[inline(always)]
    fn first(&self) -> &Layer {
        self.newest_layer()
    }

    #[inline(always)]
    fn contains_many(&self, items: &[ItemHash], current: u64) -> Hits {
        Bloom::contains_many(self, items, current)
    }
}

impl Probed for Reader {
    #[inline(always)]
    fn hasher(&self) -> Hasher {
        Reader::hasher(self)
    }

    #[inline(always)]
    fn first(&self) -> &Layer {
        self.newest_layer()
    }

    #[inline(always)]
    fn contains_many(&self, items: &[ItemHash], current: u64) -> Hits {
        Reader::contains_many(self, items, current)
    }
}

impl Bloom {
    /// Whether each item may be in the filter, in order. The cache misses of up to 64 items overlap, so in a large
    /// filter this is several times as fast as [`contains`](Bloom::contains). Items are taken from the iterator in
    /// groups.
    ///
    /// ```
    /// let mut seen = bloomery::Bloom::fixed(1000, 1e-9)?;
    /// seen.extend(["ada", "grace"]);
    /// assert!(seen.contains_each(["ada", "barbara", "grace"]).eq([true, false, true]));
    /// # Ok::<(), bloomery::Error>(())
    /// ```
    pub fn contains_each(&self, items: impl IntoIterator<Item = impl Item>) -> impl Iterator<Item = bool> {
        let (hasher, newest) = (self.hasher(), self.newest());
        let mut hashes = items.into_iter().map(move |item| item.hash_by(hasher));
        let mut group = [ItemHash::default(); GROUP];
        let (mut len, mut next, mut found) = (0, 0, Hits::default());
        core::iter::from_fn(move || {
            if next == len {
                (len, next) = (0, 0);
                for (slot, item) in group.iter_mut().zip(hashes.by_ref()) {
                    *slot = item;
                    self.newest_layer().prefetch(item);
                    len += 1;
                }
                found = self.contains_many(&group[..len], newest);
            }
            next += 1;
            (next <= len).then(|| found.has(next - 1))
        })
    }
}

/// Hashes the items in groups, and calls `visit` with each group until it returns `Break`. A group has up to [`GROUP`]
/// items, or for [`Work::Write`] up to the number of items that [`group_for`] returns. Before each call, the items'
/// cache lines in the filter's first layer are prefetched, unless that layer [is near](Layer::is_near). `filter` is a
/// shared or an exclusive reference, which is passed on to `visit`.
#[inline(always)]
pub fn for_each_group<'i, F: Deref<Target: Probed>>(
    filter: &mut F,
    work: Work,
    items: impl Iterator<Item = &'i [u8]>,
    visit: impl FnMut(&mut F, &[ItemHash]) -> ControlFlow<()>,
) {
    let hasher = filter.hasher();
    for_each_hashed_group(filter, work, items.map(|item| hasher.hash_in_loop(item)), visit);
}

/// Like [`for_each_group`], for an iterator over hashes.
#[inline(always)]
pub fn for_each_hashed_group<F: Deref<Target: Probed>>(
    filter: &mut F,
    work: Work,
    mut items: impl Iterator<Item = ItemHash>,
    mut visit: impl FnMut(&mut F, &[ItemHash]) -> ControlFlow<()>,
) {
    let mut group = [ItemHash::default(); GROUP];
    loop {
        let mut len = 0;
        let first = filter.first();
        let is_near = first.is_near();
        let most = match work {
            Work::Test => GROUP,
            Work::Write => group_for(first.lines()),
        };
        for (slot, item) in group[..most].iter_mut().zip(items.by_ref()) {
            *slot = item;
            match work {
                _ if is_near => {}
                Work::Test => first.prefetch(item),
                Work::Write => first.prefetch_all(item),
            }
            len += 1;
        }
        if len == 0 || visit(filter, &group[..len]).is_break() || len < most {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Spec;

    #[test]
    fn groups_give_the_answers_of_single_items() {
        for spec in
            [Spec::fixed(500, 0.3), Spec::scaling(10, 0.3), Spec::growing(0.3), Spec::window(100, 0.3, 3)]
        {
            let [mut one, mut many] = [(); 2].map(|()| Bloom::new(spec).unwrap());
            for round in 0..4u32 {
                let items = || (round * 200..).take([200, 64, 1, 0][round as usize]);
                items().for_each(|item| assert!(one.insert(item).is_ok()));
                many.extend(items());
                assert!(one == many, "{spec:?}");
                for end in [0, 1, 63, 64, 65, 1000] {
                    assert!(
                        one.contains_each(0..end).eq((0..end).map(|item| one.contains(item))),
                        "{spec:?}"
                    );
                }
                drop(one.advance(u64::from(round)));
                drop(many.advance(u64::from(round)));
            }
        }
    }
}
