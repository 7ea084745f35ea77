//! Code that the test crates share. Each crate compiles all of it, and uses only a part.

#![allow(dead_code, reason = "each crate uses its part")]

pub(crate) mod alloc_counter;
pub(crate) mod fake_server;
pub(crate) mod golden;
pub(crate) mod keys;
pub(crate) mod kinds;
pub(crate) mod naive;
pub(crate) mod rdb;
pub(crate) mod sketches;
pub(crate) mod wire;

use bloomery::filter::FilterRef;
use bloomery::{Bloom, ItemHash, Overflow, Seed, Spec};

/// The number in an environment variable, or `default`. Used to make a run longer or shorter, or to repeat it.
pub(crate) fn env(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

/// The spec with a seed made from this number.
pub(crate) fn seeded(spec: &Spec, seed: u64) -> Spec {
    let seed = u128::from(seed) << 64 | u128::from(seed.rotate_left(32));
    Spec { seed: Seed::from(seed), ..*spec }
}

/// The hash of a small item: a number of two bytes, padded to a length of 2 to 20 bytes, because both hash functions
/// treat items of different lengths differently.
pub(crate) fn hash(filter: &Bloom, item: u16) -> ItemHash {
    let mut bytes = [0xA5; 20];
    bytes[..2].copy_from_slice(&item.to_le_bytes());
    filter.hash(&bytes[..2 + usize::from(item % 19)]).into()
}

/// Adds the items. The filter grows if its kind can grow.
pub(crate) fn add_all(filter: &mut Bloom, items: &[u16]) {
    for item in items {
        filter.add(hash(filter, *item)).expect("this kind refuses nothing");
    }
}

/// A filter that holds the items.
pub(crate) fn filled(spec: &Spec, items: &[u16]) -> Bloom {
    let mut filter = Bloom::new(*spec).expect("every kind can be made");
    add_all(&mut filter, items);
    filter
}

/// Whether a filter of this spec refuses items beyond its capacity.
pub(crate) fn refuses(spec: &Spec) -> bool {
    use bloomery::Family::{Fixed, Scaling, Window};
    match spec.family {
        Fixed(overflow) | Window { overflow, .. } => overflow == Overflow::Error,
        Scaling { .. } => false,
    }
}

/// Everything that a Bloom filter says about itself, to compare two filters.
pub(crate) fn summary(filter: &Bloom) -> impl PartialEq + std::fmt::Debug + use<> {
    let layers = filter.layers();
    let of_layers: Vec<_> = layers.iter().map(|l| (l.shape(), l.items(), l.ones(), l.saturated())).collect();
    let window = filter.window().map(|window| (window.newest(), window.schedule()));
    // A table's blocks have room for more cells, depending on its past.
    let bytes = if filter.spec().is_table() { 0 } else { filter.bytes() };
    let counts = [filter.items(), filter.capacity(), filter.ones(), filter.cells(), bytes];
    (filter.spec(), counts, filter.estimate(), filter.rate_now(), of_layers, window)
}

/// Everything that a filter of any kind says about itself, to compare two filters.
pub(crate) fn describe<'a>(filter: impl Into<FilterRef<'a>>) -> String {
    match filter.into() {
        FilterRef::Bloom(filter) => format!("{:?}", summary(filter)),
        FilterRef::Cuckoo(filter) => {
            let tables: Vec<_> =
                filter.tables().iter().map(|table| (table.buckets(), table.bytes())).collect();
            let counts = [filter.items(), filter.deletes(), filter.moves(), filter.bytes()];
            format!("{:?}", (filter.spec(), counts, tables, filter.next_bytes(), filter.is_sparse()))
        }
        FilterRef::Foreign(filter) => {
            let links: Vec<_> =
                filter.links().iter().map(|link| (link.spec(), link.items(), link.ones())).collect();
            format!("{:?}", (filter.scheme(), filter.encoding(), filter.growth(), links))
        }
        FilterRef::Rebuild(rebuild) => {
            let shadow = summary(rebuild.shadow());
            format!("{} {shadow:?} {}", describe(rebuild.live()), rebuild.deletes_missed())
        }
    }
}
