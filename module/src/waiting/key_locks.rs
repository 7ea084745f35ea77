//! An index of the commands in the queue that hold a key, by the key's name and by the filter in the key. The queue
//! itself would be slow to search: a command may name tens of thousands of keys, and every write command looks up its
//! key.

use std::collections::{BTreeMap, BTreeSet};

/// The keys and filters that commands hold. Commands are identified by their numbers.
pub(super) struct KeyLocks {
    /// For each key name, the commands that hold the key, each as the key's database and the command's number.
    names: BTreeMap<Box<[u8]>, BTreeSet<(i32, u64)>>,
    /// For each filter, by the address of its cells, the numbers of the commands that hold it.
    filters: BTreeMap<usize, BTreeSet<u64>>,
}

impl KeyLocks {
    pub(super) const fn new() -> KeyLocks {
        KeyLocks { names: BTreeMap::new(), filters: BTreeMap::new() }
    }

    /// Records that a command holds a key. A command that names the key several times holds it once.
    pub(super) fn hold_name(&mut self, number: u64, database: i32, name: &[u8]) {
        match self.names.get_mut(name) {
            Some(holders) => _ = holders.insert((database, number)),
            None => _ = self.names.insert(name.into(), BTreeSet::from([(database, number)])),
        }
    }

    pub(super) fn hold_filter(&mut self, number: u64, address: usize) {
        self.filters.entry(address).or_default().insert(number);
    }

    pub(super) fn free_name(&mut self, number: u64, database: i32, name: &[u8]) {
        if let Some(holders) = self.names.get_mut(name) {
            holders.remove(&(database, number));
            if holders.is_empty() {
                self.names.remove(name);
            }
        }
    }

    pub(super) fn free_filter(&mut self, number: u64, address: usize) {
        if let Some(holders) = self.filters.get_mut(&address) {
            holders.remove(&number);
            if holders.is_empty() {
                self.filters.remove(&address);
            }
        }
    }

    /// The numbers of the commands that hold the key of this name, in ascending order.
    pub(super) fn by_name(&self, database: i32, name: &[u8]) -> impl Iterator<Item = u64> {
        let holders = self.names.get(name).into_iter();
        holders
            .flat_map(move |all| all.range((database, 0)..=(database, u64::MAX)))
            .map(|(_, number)| *number)
    }

    /// The numbers of the commands that hold a filter at this address, in ascending order.
    pub(super) fn by_filter(&self, address: usize) -> impl Iterator<Item = u64> {
        self.filters.get(&address).into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_held_until_all_have_freed_it() {
        let mut held = KeyLocks::new();
        for number in [1, 2] {
            held.hold_name(number, 0, b"k");
            held.hold_filter(number, 64);
        }
        // A command may name a key twice.
        held.hold_name(2, 0, b"k");
        held.hold_name(3, 5, b"k");
        assert_eq!(held.by_name(0, b"k").collect::<Vec<_>>(), [1, 2]);
        assert_eq!(held.by_name(5, b"k").collect::<Vec<_>>(), [3]);
        assert_eq!(held.by_name(0, b"l").count(), 0);
        held.free_name(2, 0, b"k");
        held.free_name(2, 0, b"k");
        held.free_filter(1, 64);
        assert_eq!(held.by_name(0, b"k").collect::<Vec<_>>(), [1]);
        assert_eq!(held.by_filter(64).collect::<Vec<_>>(), [2]);
        held.free_name(1, 0, b"k");
        held.free_name(3, 5, b"k");
        held.free_filter(2, 64);
        assert!(held.names.is_empty() && held.filters.is_empty());
    }
}
