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
    /// The item tested positive. Deleting an item that tests negative changes nothing.
    pub present: bool,
    /// The filter changed. It doesn't if all of the item's counters are saturated.
    pub changed: bool,
}
