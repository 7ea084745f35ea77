//! The entries of all commands in one table.

use super::{Entry, bloom, cuckoo};

/// Number of commands.
const COUNT: usize = bloom::TABLE.len().saturating_add(cuckoo::TABLE.len());

/// All commands.
#[allow(clippy::indexing_slicing, reason = "evaluated by the compiler")]
pub const TABLE: [Entry; COUNT] = {
    let mut table = [bloom::TABLE[0]; COUNT];
    let (bloom, rest) = table.split_at_mut(bloom::TABLE.len());
    bloom.copy_from_slice(bloom::TABLE);
    rest.copy_from_slice(cuckoo::TABLE);
    table
};
