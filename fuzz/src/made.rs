//! Makes filters of our own, of a kind that the input chooses, and the items to add to them.

use crate::{Input, LARGE};
use bloomery::filter::Origin;
use bloomery::{
    Bloom, Cell, Cuckoo, CuckooSpec, Family, Filter, HashKind, Layout, Overflow, Seed, Spec, Tightening,
};

/// Number of items that an input can choose from.
pub const ITEMS: u8 = 64;

/// The item with this number, of 1 to 397 bytes.
pub fn item(number: u8) -> Vec<u8> {
    let number = number % ITEMS;
    vec![number; usize::from(number) * usize::from(number) / 10 + 1]
}

/// An empty Bloom filter, or `None` if the input ends, or if the filter would be invalid or too large.
pub fn bloom(input: &mut Input) -> Option<Bloom> {
    let [kind, capacity, rate, options, more] = input.take(5)?.try_into().ok()?;
    let overflow = match options & 1 {
        0 => Overflow::Error,
        _ if kind < 128 => Overflow::Saturate,
        _ => Overflow::Forget,
    };
    let generations = (u16::from(more % 63) + 2) * if kind < 128 { 1 } else { 15 };
    let (cell, family) = match kind % 5 {
        0 => (Cell::Bit, Family::Fixed(overflow)),
        1 => (
            [Cell::Counter4, Cell::Counter8, Cell::Counter16][usize::from(more) % 3],
            // Only a table of counters grows.
            if more < 128 { Family::Fixed(overflow) } else { scaling(more, Tightening::INVERSE_SQUARE) },
        ),
        2 => (Cell::Bit, Family::Window { generations, overflow, every_ms: u64::from(kind) }),
        3 => (Cell::Bit, scaling(more, Tightening::INVERSE_SQUARE)),
        _ => (Cell::Bit, scaling(more, Tightening::geometric(f64::from(rate).mul_add(0.003, 0.1)).ok()?)),
    };
    let spec = Spec {
        capacity: u64::from(capacity) + 1,
        error_rate: 0.5f64.powi(i32::from(rate % 40) + 1),
        seed: seed(kind, more),
        shards: 1 << (options >> 1 & 3),
        hash: if options >> 3 & 1 == 0 { HashKind::Xxh3 } else { HashKind::SipHash },
        layout: Layout::ALL.get(usize::from(options >> 4) % (Layout::ALL.len() + 1)).copied(),
        cell,
        family,
    };
    // What StaticBuilder makes isn't made from a spec alone.
    if spec.layout.is_some_and(Layout::is_built) {
        return None;
    }
    Bloom::bytes_for(&spec).ok().filter(|bytes| *bytes <= LARGE)?;
    Some(Bloom::new(spec).expect("a filter of this size was promised"))
}

fn scaling(expansion: u8, tightening: Tightening) -> Family {
    Family::Scaling { expansion: u32::from(expansion % 8) + 1, tightening }
}

fn seed(one: u8, other: u8) -> Seed {
    Seed::from(u128::from(one) << 64 | u128::from(other))
}

/// An empty cuckoo filter, or `None` if the input ends or its parameters aren't valid.
pub fn cuckoo(input: &mut Input) -> Option<Cuckoo> {
    let [capacity, bucket_size, iterations, expansion, options] = input.take(5)?.try_into().ok()?;
    let spec = CuckooSpec {
        capacity: u64::from(capacity) + 1,
        bucket_size,
        max_iterations: u16::from(iterations) + 1,
        expansion: [0, 1, 2, 4][usize::from(expansion) % 4],
        origin: [Origin::Bloomery, Origin::RedisBloom, Origin::RedisBloom1][usize::from(options >> 1) % 3],
        hash: if options & 1 == 0 { HashKind::Xxh3 } else { HashKind::SipHash },
        seed: seed(options, iterations),
    };
    spec.validate().ok()?;
    Some(Cuckoo::new(spec).expect("it is small"))
}

/// A Bloom or cuckoo filter with items that the input chooses, or a Bloom filter that is being rebuilt.
pub fn value(input: &mut Input) -> Option<Filter> {
    let kind = input.byte()?;
    if kind % 3 == 0 {
        let mut filter = cuckoo(input)?;
        while let Some(number) = input.byte() {
            let _ = insert(&mut filter, &item(number));
        }
        return Some(Filter::Cuckoo(filter));
    }
    let mut filter = bloom(input)?;
    let shadow = if kind % 3 == 1 { None } else { bloom(input) };
    while let Some(number) = input.byte() {
        if may_grow(&filter) {
            let _ = filter.add(filter.hash(&item(number)));
        }
        if number > 250
            && let Some(newest) = filter.window().map(|window| window.newest())
        {
            filter.rotate(newest + 1).expect("a generation of this size was there before");
        }
    }
    let shadow = shadow.map(|shadow| shadow.in_step_with(filter.window()));
    let mut value = Filter::Bloom(filter);
    if let Some(shadow) = shadow {
        value.begin_rebuild(shadow).expect("they keep step");
    }
    Some(value)
}

/// Whether the filter stays small if the next add gives it another layer.
pub fn may_grow(filter: &Bloom) -> bool {
    filter.next_shape().ok().flatten().is_none_or(|shape| filter.bytes() + shape.bytes() <= LARGE)
}

/// Adds an item to a cuckoo filter, which may grow as long as it stays small. Returns whether the item was added.
pub fn insert(filter: &mut Cuckoo, item: &[u8]) -> bool {
    let hash = filter.hash(item);
    if filter.insert(hash).is_ok() {
        return true;
    }
    let may_grow = filter.next_bytes().is_some_and(|bytes| filter.bytes() + bytes <= LARGE);
    if may_grow {
        filter.grow().expect("a small sub-filter");
        filter.insert(hash).expect("a new sub-filter has room");
    }
    may_grow
}
