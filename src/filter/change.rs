//! What an add and a delete did to a filter.

/// What an add did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// The item was absent before.
    pub added: bool,
    /// The filter changed. A window records an item again, and counters count, even if the item was present.
    pub changed: bool,
}

/// What a delete did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// The item tested present. An absent item is left alone.
    pub present: bool,
    /// Some counter changed. None does when all are saturated.
    pub changed: bool,
}
