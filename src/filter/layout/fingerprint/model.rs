//! Loom models of a reader running alongside the writer: an item that is present is always found, no matter what is
//! moved or counted at the same time.

use super::geometry::{Identity, Place};
use super::sizes::Sizes;
use super::table::{State, Table};
use crate::bits::Hits;
use crate::hash::ItemHash;
use crate::sync::{AtomicU64, explore, thread};
use std::sync::Arc;

/// Cells of 13 bits, some of which span two words.
const GEOMETRY: Sizes = Sizes { cells: 25, fingerprint: 7, payload: 4, generations: 0 };

/// An item with fingerprint 0 whose first place is cell 4. The highest bit of its count is in the next word.
const ADA: ItemHash = ItemHash { low: 3 << 60, high: 0 };

/// A table shared by a writer and a reader.
struct Shared {
    words: Vec<AtomicU64>,
    state: State,
}

impl Shared {
    fn new() -> Arc<Shared> {
        let words = (0..GEOMETRY.words()).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Shared { words, state: State::new(GEOMETRY) })
    }

    fn table(&self) -> Table<'_> {
        Table::new(&self.words, &self.state)
    }

    /// Checks that another thread finds the item while `write` runs, both by a single test and in a group.
    fn is_found_beside(self: &Arc<Shared>, write: impl FnOnce(Table<'_>)) {
        let reader = {
            let shared = Arc::clone(self);
            thread::spawn(move || {
                assert!(shared.table().contains(ADA));
                assert_eq!(shared.table().contains_many(&[ADA], Hits::first(1)), Hits::first(1));
            })
        };
        write(self.table());
        reader.join().unwrap();
        assert!(self.table().contains(ADA));
    }
}

fn places(identity: Identity) -> [Place; 4] {
    GEOMETRY.places(identity)
}

/// The item moves to its other window, and another item gets its cell.
#[test]
fn an_item_that_is_moved_is_found() {
    explore(|| {
        let shared = Shared::new();
        let ada = GEOMETRY.identity(ADA);
        let bob = Identity { fingerprint: ada.fingerprint ^ 1, ..ada };
        let (from, to) = (places(ada)[0], places(ada)[3]);
        shared.table().set(from.cell, from.key | shared.table().one());
        let chain = [places(bob)[0], to];
        shared.is_found_beside(|table| table.insert_along(&chain, table.one()));
        assert_eq!(shared.table().find(ada).map(|(cell, _)| cell), Some(to.cell));
    });
}

/// The count goes from 7 to 8 and back. On the way up, all bits of the cell are 0 between the stores to its two words.
#[test]
fn an_item_that_is_counted_is_found() {
    explore(|| {
        let shared = Shared::new();
        let place = places(GEOMETRY.identity(ADA))[0];
        assert_eq!((place, GEOMETRY.width()), (Place { cell: 4, key: 0 }, 13));
        shared.table().set(place.cell, 7 * shared.table().one());
        shared.is_found_beside(|table| {
            _ = table.insert(ADA);
            _ = table.remove(ADA);
        });
        assert_eq!(shared.table().count(ADA), 7);
    });
}
