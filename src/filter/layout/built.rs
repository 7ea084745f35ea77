//! What the layouts of static filters have in common: FUSE and RIBBON, which are built from all their items at once,
//! and LIST, in which the items wait for that.

use super::layer::{Census, Layer};
use super::shape::{LayerSpec, Shape};
use crate::error::Error;
use crate::filter::change::Added;
use crate::params::{Cell, Layout, limits};
use crate::sync::Ordering::Relaxed;

/// The shape with this number of cells and of fingerprint bits, and whether it has at most [`limits::MAX_BYTES`].
pub(super) fn shape(
    spec: &LayerSpec,
    layout: Layout,
    (cells, bits): (u64, u32),
    words: impl Fn(&Shape) -> u64,
) -> Result<Shape, Error> {
    let shape = LayerSpec { generations: 0, ..*spec }.shaped(layout, cells, bits);
    let words = words(&shape);
    if words > limits::MAX_BYTES / 8 {
        return Err(Error::OutOfMemory { bytes: words.saturating_mul(8) });
    }
    Ok(shape)
}

/// Checks a shape whose number of cells is valid if `is_valid`.
pub(super) fn check(shape: &Shape, is_valid: bool) -> Result<(), &'static str> {
    if is_valid && shape.shards == 1 && shape.cell == Cell::Bit { Ok(()) } else { Err("cells") }
}

/// Number of items in a layer whose cells don't show it. Its fill is defined by the items.
pub(super) fn items_at(shape: &Shape, fill: f64) -> f64 {
    libm::round(fill * shape.cells as f64)
}

/// The last word of a static filter, which describes its cells.
#[inline(always)]
pub(super) fn description(layer: &Layer) -> u64 {
    layer.words()[layer.words().len() - 1].load(Relaxed)
}

/// The number of items, and the census, of a layer whose cells are valid if `is_valid`. The cells don't show the number
/// of items.
pub(super) fn admitted(items: u64, is_valid: bool) -> Option<(u64, Census)> {
    is_valid.then_some((items, Census::of_set(items)))
}

/// Refuses a new item.
#[inline(always)]
pub(super) fn insert(is_present: bool) -> Result<Added, Error> {
    if is_present { Ok(Added::default()) } else { Err(Error::Static) }
}
