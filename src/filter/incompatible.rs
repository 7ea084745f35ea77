//! Why two filters cannot be combined.

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
    /// The chain would have more layers than [`MAX_LAYERS`](crate::limits::MAX_LAYERS).
    TooManyLayers,
    /// Finding the places of the sources' layers would require more than [`MAX_PAIRS`](crate::limits::MAX_PAIRS)
    /// comparisons.
    TooManyPairs,
}
