//! What an add or a delete did to a filter.

/// What an add did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// The item was absent before.
    pub added: bool,
    /// The filter changed. Windows record a present item again, and counters count it again.
    pub changed: bool,
}

/// What a delete did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// The item tested present. An absent item is left alone.
    pub present: bool,
    /// Some counter changed. If all are saturated, none does.
    pub changed: bool,
}
