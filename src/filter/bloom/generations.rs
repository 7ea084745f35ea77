//! Where the generations of a window are stored: in a ring of G layers, with generation n in slot n mod G; or all in
//! one table, where each cell contains its generation's number.

use super::layers::contains_many;
use crate::bits::Hits;
use crate::filter::layout::Layer;
use crate::filter::layout::quotient::Tags;
use crate::hash::ItemHash;

/// The generations of a window, given its layers and the number of its newest generation.
#[derive(Clone, Copy)]
pub(super) struct Generations<'w> {
    layers: &'w [Layer],
    newest: u64,
}

/// A generation that is alive.
pub struct Generation<'w> {
    /// Number of generations that have begun since this one; 0 for the current generation.
    pub age: u64,
    /// Number of items in the generation.
    pub items: u64,
    /// The generation's layer, which it may share with other generations.
    pub layer: &'w Layer,
}

impl Generation<'_> {
    /// Number of items that the generation is sized for.
    pub fn capacity(&self) -> u64 {
        self.layer.capacity() / share(self.layer)
    }

    /// The generation's share of the window's error rate.
    pub fn error_rate(&self) -> f64 {
        self.layer.error_rate() / share(self.layer) as f64
    }

    /// Fraction of the cells that the generation's items have set.
    pub fn fill(&self) -> f64 {
        match self.layer.tags() {
            Some(_) => self.items as f64 / self.layer.cells() as f64,
            None => self.layer.fill(),
        }
    }

    /// The generation's share of the window's error rate at the generation's current fill.
    pub fn rate_now(&self) -> f64 {
        match self.layer.tags() {
            Some(_) => self.layer.rate_now() * self.items as f64 / self.layer.items().max(1) as f64,
            None => self.layer.shape().rate_now(self.fill()),
        }
    }
}

/// Number of generations in a layer; 1 if it isn't shared.
fn share(layer: &Layer) -> u64 {
    u64::from(layer.generations()).max(1)
}

impl<'w> Generations<'w> {
    pub(super) fn new(layers: &'w [Layer], newest: u64) -> Generations<'w> {
        Generations { layers, newest }
    }

    /// The layer that all generations share, and its cells; `None` if each generation has its own layer.
    #[inline(always)]
    pub(super) fn table(self) -> Option<(&'w Layer, Tags<'w>)> {
        match self.layers {
            [layer] => layer.tags().map(|tags| (layer, tags)),
            _ => None,
        }
    }

    /// Number of generations that are alive at once.
    pub(super) fn span(self) -> u64 {
        self.layers.iter().map(share).sum()
    }

    /// The layer of the newest generation.
    #[inline(always)]
    pub(super) fn current(self) -> &'w Layer {
        &self.layers[(self.newest % self.layers.len() as u64) as usize]
    }

    /// Whether any generation that is alive when `current` is the current one may contain the item.
    #[inline]
    pub(super) fn contains(self, item: ItemHash, current: u64) -> bool {
        match self.table() {
            Some((_, tags)) => tags.contains(item, current),
            None => self.ring(current).any(|(_, layer)| layer.contains(item)),
        }
    }

    /// Which of up to 64 items may be in a generation that is alive when `current` is the current one.
    #[inline]
    pub(super) fn contains_many(self, items: &[ItemHash], current: u64) -> Hits {
        match self.table() {
            Some((_, tags)) => tags.contains_many(items, current),
            None => contains_many(self.ring(current).map(|(_, layer)| layer), items),
        }
    }

    /// Number of generations since the item was last added: 0 if it was last added in generation `current`. `None` if
    /// it is absent.
    pub(super) fn age(self, item: ItemHash, current: u64) -> Option<u64> {
        match self.table() {
            Some((_, tags)) => tags.age(item, current),
            None => self.ring(current).find(|(_, layer)| layer.contains(item)).map(|(age, _)| age),
        }
    }

    /// The generations that are alive when `current` is the current one, newest first.
    pub(super) fn alive(self, current: u64) -> impl Iterator<Item = Generation<'w>> {
        let behind = current.saturating_sub(self.newest);
        (0..self.count(self.span(), behind)).map(move |before| {
            let (age, number) = (behind + before, self.newest - before);
            match self.table() {
                Some((layer, tags)) => Generation { age, items: tags.items(number), layer },
                None => {
                    let layer = Generations { newest: number, ..self }.current();
                    Generation { age, items: layer.items(), layer }
                }
            }
        })
    }

    /// Number of generations that have been opened and are still alive, when the newest one is `behind` generations
    /// older than the current one.
    #[inline(always)]
    fn count(self, span: u64, behind: u64) -> u64 {
        span.min(self.newest.saturating_add(1)).min(span.saturating_sub(behind))
    }

    /// The ring's layers whose generations are alive when `current` is the current one, newest first, as (age, layer).
    #[inline]
    pub(super) fn ring(self, current: u64) -> impl Iterator<Item = (u64, &'w Layer)> {
        let span = self.layers.len() as u64;
        let behind = current.saturating_sub(self.newest);
        let (younger, older) = self.layers.split_at((self.newest % span) as usize + 1);
        younger
            .iter()
            .rev()
            .chain(older.iter().rev())
            .take(self.count(span, behind) as usize)
            .zip(behind..)
            .map(|(layer, age)| (age, layer))
    }
}
