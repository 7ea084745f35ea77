//! Rebuilds that ended by themselves, because their shadow could not follow.

use std::collections::VecDeque;

/// Why the last few rebuilds that ended by themselves did so, for clients that come to commit.
#[derive(Default)]
pub struct AbortedRebuilds {
    last: VecDeque<(i32, Vec<u8>, String)>,
}

/// Number of rebuilds that are remembered.
const REMEMBERED: usize = 64;

impl AbortedRebuilds {
    /// Remembers why the rebuild of a key ended.
    pub(super) fn note(&mut self, database: i32, key: &[u8], why: String) {
        self.forget(database, key);
        self.last.truncate(REMEMBERED.saturating_sub(1));
        self.last.push_front((database, key.to_vec(), why));
    }

    /// Forgets a key: a new rebuild begins.
    pub(super) fn forget(&mut self, database: i32, key: &[u8]) {
        self.last.retain(|(other, name, _)| (*other, name.as_slice()) != (database, key));
    }

    /// Why the last rebuild of a key ended.
    pub(super) fn reason(&self, database: i32, key: &[u8]) -> Option<String> {
        let mut last = self.last.iter();
        last.find(|(other, name, _)| (*other, name.as_slice()) == (database, key))
            .map(|(.., why)| why.clone())
    }

    /// Forgets the keys of this database, or all: they have been flushed.
    pub fn flush(&mut self, database: Option<i32>) {
        self.last.retain(|(own, ..)| database.is_some_and(|database| *own != database));
    }
}
