//! Several layers asked as one.

use super::layer::Layer;
use crate::bits::Hits;
use crate::hash::ItemHash;
use std::sync::Arc;

/// Which of up to 64 items some layer may hold. The lines of the first layer are on their way. Those of each further
/// layer are fetched while the one before it is tested, for the items that have not been found by then.
#[inline]
pub(super) fn contains_many<'l>(layers: impl Iterator<Item = &'l Arc<Layer>>, items: &[ItemHash]) -> Hits {
    let mut layers = layers.peekable();
    let mut asked = Hits::first(items.len());
    let mut found = Hits::default();
    while let (Some(layer), false) = (layers.next(), asked.is_empty()) {
        if let Some(next) = layers.peek() {
            asked.for_each(|index| next.prefetch(items[index]));
        }
        found |= layer.contains_many(items, asked);
        asked = asked & !found;
    }
    found
}
