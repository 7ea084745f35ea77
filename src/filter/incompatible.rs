//! Why two filters cannot be combined.

use core::fmt;

/// Why two filters cannot be combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incompatible {
    /// The filters differ in the property that the text names. The property determines an item's cells, an item's
    /// generation in a window, or how another system's filter grows.
    Differs(&'static str),
    /// The source is a window with items that the destination would already have dropped, because the clock was ahead
    /// when the destination or another source was last written to.
    ClockBehind,
    /// The filters are to be intersected, and at least one of them has several layers. An item could be in different
    /// layers of the two filters, and would be lost.
    Layers,
    /// At least one of the filters is static, or only one of them has [`Layout::Quotient`](crate::Layout::Quotient).
    Layouts,
    /// The source is a table with so high an error rate for its size that it has too many cells in the destination,
    /// which is a larger table.
    ErrorRate,
    /// The chain would have more layers than [`MAX_LAYERS`](crate::limits::MAX_LAYERS).
    TooManyLayers,
    /// Finding the places of the sources' layers would require more than [`MAX_PAIRS`](crate::limits::MAX_PAIRS)
    /// comparisons.
    TooManyPairs,
}

impl fmt::Display for Incompatible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Incompatible::Differs(what) => write!(f, "the filters differ in {what}"),
            Incompatible::ClockBehind => f.write_str("the window has items that the clock has not reached"),
            Incompatible::Layers => f.write_str("a filter of several layers cannot be intersected"),
            Incompatible::Layouts => f.write_str("filters of these layouts cannot be combined"),
            Incompatible::ErrorRate => f.write_str("the error rate is too high for so large a table"),
            Incompatible::TooManyLayers => f.write_str("the union would have too many layers"),
            Incompatible::TooManyPairs => f.write_str("the filters have too many layers to be compared"),
        }
    }
}

impl core::error::Error for Incompatible {}
