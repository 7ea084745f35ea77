//! What an add or a delete did to a filter.

/// What an add did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// The item was absent before.
    pub added: bool,
    /// The filter changed. Adding an item that is already present can also change it: windows record the item again,
    /// and counters count it again.
    pub changed: bool,
}

/// What a delete did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// The item tested positive before the delete.
    pub present: bool,
    /// The filter changed. A delete changes nothing if the item tests negative, or if all of its counters are
    /// saturated.
    pub changed: bool,
}
