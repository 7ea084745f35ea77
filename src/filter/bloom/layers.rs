//! Tests a group of items against several layers in one pass.

use crate::bits::Hits;
use crate::filter::layout::Layer;
use crate::hash::ItemHash;

/// Which of up to 64 items may be in at least one of the layers. The items' cache lines in the first layer should have
/// been prefetched. While each layer is tested, the cache lines of the next one are fetched for the items that haven't
/// been found yet.
#[inline]
pub(super) fn contains_many<'l>(layers: impl Iterator<Item = &'l Layer>, items: &[ItemHash]) -> Hits {
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
