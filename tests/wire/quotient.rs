//! Dumping tables piece by piece, while they grow and shrink.

use crate::support::{seeded, wire};
use bloomery::wire::{DecodeError, Decoder, Encoder};
use bloomery::{Bloom, Cell, Family, Layout, Overflow, Spec};

fn table(spec: Spec) -> Bloom {
    Bloom::new(seeded(&Spec { layout: Some(Layout::Quotient), ..spec }, 1)).unwrap()
}

fn add(filter: &mut Bloom, items: std::ops::Range<u64>) {
    items.for_each(|item| _ = filter.add(item.to_le_bytes()).unwrap());
}

fn missing(filter: &Bloom, mut items: impl Iterator<Item = u64>) -> Option<u64> {
    items.find(|item| !filter.contains(item.to_le_bytes()))
}

/// Requests a dump's pieces one by one, and loads them. Calls `change` after each chunk with the number of chunks so
/// far.
fn dump(filter: &mut Bloom, mut change: impl FnMut(&mut Bloom, u64)) -> Result<Bloom, DecodeError> {
    let mut decoder = Decoder::new(Encoder::dump(&*filter).head()).unwrap();
    let (mut piece, mut offset, mut chunks) = (Vec::new(), 0, 0);
    while let Some(next) = Encoder::dump(&*filter).chunk(offset, &mut piece) {
        decoder.push(&piece)?;
        offset = next;
        chunks += 1;
        change(filter, chunks);
    }
    assert!(chunks >= 3, "{chunks}");
    decoder.finish().map(|filter| filter.into_bloom().unwrap())
}

const SCALING: Spec = Spec {
    family: Family::Scaling { expansion: 2, tightening: bloomery::Tightening::INVERSE_SQUARE },
    cell: Cell::Counter4,
    capacity: 100,
    error_rate: 0.01,
    seed: bloomery::Seed { low: 0, high: 0 },
    shards: 1,
    hash: bloomery::HashKind::Xxh3,
    layout: Some(Layout::Quotient),
};

/// Enough items for several chunks.
const ITEMS: u64 = 1_500_000;

/// A table that becomes ten times as large during the dump. The copy has all items that were there at the beginning,
/// whatever came during the dump.
#[test]
fn a_dump_during_which_the_table_grows_holds_what_the_head_saw() {
    for cell in [Cell::Bit, Cell::Counter4] {
        let mut filter = table(Spec { cell, ..SCALING });
        let items = ITEMS / 5;
        add(&mut filter, 0..items);
        let mut next = items;
        let copy = dump(&mut filter, |filter, _| {
            let end = (next + 3 * items).min(10 * items);
            add(filter, next..end);
            next = end;
        });
        let copy = copy.unwrap();
        assert!(next > 3 * items);
        assert_eq!(missing(&copy, 0..items), None);
        assert_eq!(wire::encode(&wire::decode(&wire::encode(&copy)).unwrap()), wire::encode(&copy));
        let strangers = (0..100_000u64).filter(|item| copy.contains((item | 1 << 60).to_le_bytes())).count();
        assert!(strangers <= 1100, "{strangers}");
    }
}

/// The same while items are deleted: the copy has the items that weren't, with at least their counts.
#[test]
fn a_dump_during_which_the_table_shrinks_holds_what_stayed() {
    let mut filter = table(SCALING);
    add(&mut filter, 0..ITEMS);
    add(&mut filter, 0..ITEMS / 20);
    let is_kept = |item: &u64| item.is_multiple_of(20);
    let mut rest = (0..ITEMS).filter(|item| !is_kept(item));
    let copy = dump(&mut filter, |filter, _| {
        for item in rest.by_ref().take(ITEMS as usize / 2) {
            assert!(filter.remove(item.to_le_bytes()).unwrap().present);
        }
    });
    let copy = copy.unwrap();
    assert!(rest.next().is_none_or(|item| item > ITEMS / 2), "most are gone");
    assert_eq!(missing(&copy, (0..ITEMS).filter(is_kept)), None);
    for item in (0..ITEMS).filter(is_kept) {
        let count = copy.count(item.to_le_bytes()).unwrap();
        assert!(count > u64::from(item < ITEMS / 20), "{item}: {count}");
    }
    assert!(copy.items() < ITEMS);
    assert_eq!(wire::encode(&wire::decode(&wire::encode(&copy)).unwrap()), wire::encode(&copy));
}

/// A window whose items are refreshed and deleted during the dump.
#[test]
fn a_dump_of_a_window_holds_what_stayed() {
    let family = Family::Window { generations: 4, overflow: Overflow::Saturate, every_ms: 0 };
    // A delete also removes other items that share the prefix, so the rate is low.
    let mut filter = table(Spec { family, cell: Cell::Bit, error_rate: 1e-9, ..SCALING });
    for generation in 0..3 {
        drop(filter.rotate(generation).unwrap());
        add(&mut filter, generation * ITEMS / 3..(generation + 1) * ITEMS / 3);
    }
    let mut chunks = 0;
    let copy = dump(&mut filter, |filter, number| {
        chunks = number;
        for item in (0..ITEMS).filter(|item| item % 10 == number) {
            assert!(filter.remove(item.to_le_bytes()).unwrap().present);
        }
        // These are now in the newest generation.
        (0..1000u64).for_each(|item| _ = filter.add((item * 10).to_le_bytes()).unwrap());
    });
    let copy = copy.unwrap();
    let window = copy.window().unwrap();
    for item in (0..ITEMS).filter(|item| item % 10 == 0 || item % 10 > chunks) {
        let age = window.age(copy.hash(item.to_le_bytes()).into(), 2);
        let truth = 2 - item / (ITEMS / 3);
        assert!(age.is_some_and(|age| age <= truth), "{item}: {age:?} of {truth}");
    }
    assert!(copy.items() <= ITEMS);
    // A rotation in between is noticed.
    let refused = dump(&mut filter, |filter, number| drop(filter.rotate(2 + number).unwrap()));
    assert_eq!(refused.err(), Some(DecodeError::StampMismatch));
}

/// An upload that has arrived in part is written again, for example into an append-only file. A decoder that reads this
/// continues as the first one does, even if the last leaf of the head hasn't arrived completely.
#[test]
fn an_upload_that_is_written_again_continues() {
    let mut filter = table(SCALING);
    add(&mut filter, 0..ITEMS / 2);
    let (head, mut piece, mut offset) = (Encoder::dump(&filter).head().to_vec(), Vec::new(), 0);
    let mut decoder = Decoder::new(&head).unwrap();
    let mut number = 0;
    // The pieces come from a table that is four times as large as the head says, or four times as small.
    add(&mut filter, ITEMS / 2..2 * ITEMS);
    while let Some(next) = Encoder::dump(&filter).chunk(offset, &mut piece) {
        decoder.push(&piece).unwrap();
        offset = next;
        number += 1;
        let mut again = Decoder::new(&head).unwrap();
        decoder.chunks(|chunk| again.push(chunk).unwrap());
        assert_eq!((again.offset(), again.is_complete()), (decoder.offset(), decoder.is_complete()));
        decoder = again;
        if number == 2 {
            (ITEMS / 8..2 * ITEMS).for_each(|item| _ = filter.remove(item.to_le_bytes()).unwrap());
        }
    }
    assert!(number > 2);
    let copy = decoder.finish().unwrap().into_bloom().unwrap();
    assert_eq!(missing(&copy, 0..ITEMS / 8), None);
}
