//! The rotating filter. Adds go to the newest generation, a test looks at all generations that are alive, and a
//! rotation drops the oldest. In a window of G generations, an item therefore stays for at least G−1 rotations after
//! its last add, unless it is forgotten early to make room.

use super::generations::{Generation, Generations};
use super::schedule::{Due, Schedule, Standing};
use crate::error::Error;
use crate::filter::change::{Added, Removed};
use crate::filter::layout::{Layer, Shape};
use crate::hash::ItemHash;
use crate::parallel::ParallelFor;
use crate::params::limits;
use alloc::{boxed::Box, vec::Vec};

/// Generations that rotate. The number of the newest generation determines which ones are alive.
pub struct Window {
    layers: Box<[Layer]>,
    newest: u64,
    schedule: Schedule,
}

impl Window {
    /// An empty window with this number of layers.
    pub(crate) fn new(shape: Shape, layers: u64, schedule: Schedule) -> Result<Window, Error> {
        let layers = (0..layers).map(|_| Layer::new(shape)).collect::<Result<_, Error>>()?;
        Ok(Window { layers, newest: 0, schedule })
    }

    pub(crate) fn from_parts(layers: Box<[Layer]>, newest: u64, schedule: Schedule) -> Window {
        assert!(!layers.is_empty(), "a window has generations");
        Window { layers, newest, schedule }
    }

    #[inline(always)]
    pub(super) fn generations(&self) -> Generations<'_> {
        Generations::new(&self.layers, self.newest)
    }

    /// Number of generations that are alive at once.
    pub fn span(&self) -> u64 {
        self.generations().span()
    }

    /// The layers: one per generation in ring order, or the single layer that all generations share.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Number of the generation that receives the adds.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// When generations change.
    pub fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// The window's newest generation and its schedule.
    #[inline]
    pub fn standing(&self) -> Standing {
        Standing { newest: self.newest, schedule: self.schedule }
    }

    /// Number of the generation that is current at `now_ms`. Never below the newest generation's number, even if the
    /// clock steps back.
    #[inline]
    pub fn number_at(&self, now_ms: u64) -> u64 {
        self.standing().number_at(now_ms)
    }

    /// What a write at `now_ms` must do first; `None` if nothing is due. Without a period, nothing is ever due.
    ///
    /// Once that is done, the next rotation by the clock is at most two periods away, and the clock drops no item until
    /// G−1 periods have passed since its last add.
    #[inline]
    pub fn due(&self, now_ms: u64) -> Option<Due> {
        self.standing().due(now_ms)
    }

    /// The generations that are alive when `current` is the current one, newest first.
    pub fn alive(&self, current: u64) -> impl Iterator<Item = Generation<'_>> {
        self.generations().alive(current)
    }

    /// Whether any generation that is alive when `current` is the current one may contain the item.
    #[inline]
    pub fn contains(&self, item: ItemHash, current: u64) -> bool {
        self.generations().contains(item, current)
    }

    /// Number of generations since the item was last added: 0 if it was last added in generation `current`. `None` if
    /// it is absent.
    pub fn age(&self, item: ItemHash, current: u64) -> Option<u64> {
        self.generations().age(item, current)
    }

    /// The layer that receives the adds.
    #[inline]
    pub fn current(&self) -> &Layer {
        self.generations().current()
    }

    /// Records the item in the newest generation. If each generation has its own layer, `insert` adds the item to the
    /// newest one. In the result, `added` means that no generation contained the item, and `changed` means that the
    /// newest one didn't. If a full table `forgets`, a new item takes the place of an old one.
    #[inline]
    pub(crate) fn add(
        &self,
        item: ItemHash,
        insert: impl Fn(&Layer, ItemHash) -> Result<Added, Error>,
        forgets: bool,
    ) -> Result<Added, Error> {
        match self.generations().table() {
            Some((_, tags)) => tags.insert(item, forgets),
            None => self.add_to_ring(item, insert),
        }
    }

    /// Like [`add`](Window::add), for a window in which each generation has its own layer.
    #[inline]
    pub(crate) fn add_to_ring<E>(
        &self,
        item: ItemHash,
        insert: impl Fn(&Layer, ItemHash) -> Result<Added, E>,
    ) -> Result<Added, E> {
        let elsewhere = self.contains(item, self.newest);
        let Added { added, changed } = insert(self.current(), item)?;
        Ok(Added { added: added && !elsewhere, changed })
    }

    /// Deletes the item from all generations.
    ///
    /// # Errors
    /// [`Error::NotCounting`] if the generations have layers of their own.
    pub(super) fn remove(&self, item: ItemHash) -> Result<Removed, Error> {
        let (_, tags) = self.generations().table().ok_or(Error::NotCounting)?;
        Ok(tags.remove(item))
    }

    /// Whether the next generation should begin early, so that items are forgotten in the order in which they came: if
    /// the table is full, the newest generation has its share of it, and the one that then expires has no more than
    /// that. A burst within one period could otherwise fill the table with one generation, so the next one also begins
    /// if the newest has all shares but one.
    fn is_due_early(&self) -> bool {
        let Some((layer, tags)) = self.generations().table() else { return false };
        let (capacity, span) = (layer.capacity(), tags.span());
        let share = capacity / span;
        let expiring = (self.newest + 1).checked_sub(span).map_or(0, |oldest| tags.items(oldest));
        let newest = tags.items(self.newest);
        newest >= capacity - share || newest >= share && expiring <= share && layer.is_full()
    }

    /// Whether an item can be added now, or is present. If not, the window must refuse the item or, if it `forgets`,
    /// [begin a generation](Window::begin_early). If each generation has its own layer, only the newest layer is
    /// considered.
    #[inline]
    pub(super) fn has_room_for(&self, item: ItemHash, forgets: bool) -> bool {
        let layer = self.current();
        match self.generations().table() {
            // A full table refuses items or forgets others by itself.
            Some((_, tags)) => !(forgets && self.is_due_early()) || tags.contains(item, self.newest),
            None => !layer.is_full_for_single_writer() || layer.contains(item),
        }
    }

    /// Begins the next generation before the clock says so.
    pub(super) fn begin_early(&mut self) -> Result<(), Error> {
        self.advance(self.newest.saturating_add(1))?;
        self.shift_schedule();
        Ok(())
    }

    /// Whether both windows have the same items at each age when their current generations have these numbers.
    pub(super) fn has_equal_generations(
        &self,
        other: &Window,
        [current, other_current]: [u64; 2],
        parallel: &ParallelFor<'_>,
    ) -> bool {
        if let (Some((mine, _)), Some((theirs, _))) =
            (self.generations().table(), other.generations().table())
        {
            return mine.has_same_items(theirs, [current, other_current], parallel);
        }
        fn of_age(window: &Window, current: u64, age: u64) -> Option<&Layer> {
            window.generations().ring(current).find(|(other, _)| *other == age).map(|(_, layer)| layer)
        }
        (0..self.span()).all(|age| match (of_age(self, current, age), of_age(other, other_current, age)) {
            (Some(a), Some(b)) => a.equal_in(b, parallel),
            (some, none) => some.or(none).is_none_or(|layer| layer.ones() == 0),
        })
    }

    /// Makes `number` the newest generation and returns the layers that were dropped. In a ring, every generation
    /// opened on the way gets an empty layer. Does nothing unless `number` is newer than the newest generation.
    pub(crate) fn advance(&mut self, number: u64) -> Result<Vec<Layer>, Error> {
        // Never create a window that couldn't be loaded again.
        if number > limits::MAX_GENERATION {
            return Err(Error::LastGeneration);
        }
        let span = self.span();
        let opened = number.saturating_sub(self.newest).min(span);
        let first = number - opened.saturating_sub(1);
        if let Some((_, tags)) = self.generations().table() {
            if opened > 0 {
                tags.open(number);
            }
            self.newest = self.newest.max(number);
            return Ok(Vec::new());
        }
        let slot = |number| (number % span) as usize;
        // Allocates everything first, so that a rotation that runs out of memory changes nothing.
        let fresh = (0..opened)
            .map(|i| {
                let old = &self.layers[slot(first + i)];
                // Reuses an empty layer. With 64 idle generations, this saves 64 allocations.
                if old.ones() == 0 { Ok(None) } else { Layer::new(old.shape()).map(Some) }
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let mut retired = Vec::new();
        for (number, layer) in (first..).zip(fresh) {
            if let Some(layer) = layer {
                retired.push(core::mem::replace(&mut self.layers[slot(number)], layer));
            }
        }
        self.newest = self.newest.max(number);
        Ok(retired)
    }

    /// Makes an empty window continue with the newest generation and the schedule of another window.
    pub(super) fn keep_step(&mut self, other: &Window) {
        (self.newest, self.schedule) = (other.newest, other.schedule);
        if let Some((_, tags)) = self.generations().table() {
            tags.set_newest(self.newest);
        }
    }

    /// Makes the window continue on another schedule; see [`Due::Schedule`].
    pub(super) fn set_schedule(&mut self, schedule: Schedule) {
        self.schedule = schedule;
    }

    /// The generations of `source` that have items and would be alive in a window in the state `standing`, each with
    /// its age in that window.
    pub(super) fn taken_from(standing: Standing, source: &Window) -> impl Iterator<Item = Generation<'_>> {
        let span = source.span();
        let ages_by = standing.ages_by(source.standing());
        source.alive(source.newest).filter_map(move |generation| {
            let age = u64::try_from((i128::from(generation.age) + ages_by).max(0)).ok()?;
            (age < span && generation.items > 0).then_some(Generation { age, ..generation })
        })
    }

    /// Whether a merge of `source` into a window in the state `standing` would lose items that are alive in `source`
    /// when `current` is its current generation.
    pub(crate) fn loses(standing: Standing, source: &Window, current: u64) -> bool {
        let taken = Window::taken_from(standing, source).count();
        taken < source.alive(current).filter(|generation| generation.items > 0).count()
    }

    /// Renumbers all generations if the number of the one with this age would be negative. Returns whether it did.
    pub(super) fn renumber_for(&mut self, age: u64) -> bool {
        if age <= self.newest {
            return false;
        }
        // Each generation keeps its slot.
        let more = match self.generations().table() {
            Some((_, tags)) => tags.renumber(),
            None => self.span(),
        };
        self.newest += more;
        self.schedule.rotations = (self.schedule.rotations + more).min(limits::MAX_GENERATION);
        true
    }

    /// In a ring of G layers, the layer of the generation with this age. The age must be below G.
    pub(super) fn of_age(&mut self, age: u64) -> &Layer {
        self.renumber_for(age);
        &self.layers[((self.newest - age) % self.layers.len() as u64) as usize]
    }

    /// Counts a manual or early rotation, which shifts the schedule by one generation.
    pub(crate) fn shift_schedule(&mut self) {
        self.schedule.rotations = (self.schedule.rotations + 1).min(limits::MAX_GENERATION);
    }
}
