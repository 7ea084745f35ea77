//! Why two filters cannot be combined.

/// Why two filters cannot be combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incompatible {
    /// They differ in the property that the text names, so an item would have different cells in the two.
    Differs(&'static str),
    /// The source is a window with items that the destination would already have dropped: the clock was ahead when the
    /// destination, or another source, was last written to.
    ClockBehind,
    /// An intersection of more than one layer: an item may be in different layers of the two filters, and would be
    /// lost.
    Layers,
    /// One of them has [`LayoutChoice::Fingerprint`](crate::LayoutChoice::Fingerprint), in which an item may be in any
    /// of four cells, or is static; and they aren't two fingerprint filters of fixed size in a merge.
    Fingerprints,
    /// The chain would have more layers than [`MAX_LAYERS`](crate::limits::MAX_LAYERS).
    TooManyLayers,
    /// Finding the places of the sources' layers would take more than [`MAX_PAIRS`](crate::limits::MAX_PAIRS)
    /// comparisons.
    TooManyPairs,
}
