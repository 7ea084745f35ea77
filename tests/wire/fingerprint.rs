//! Dumps of fingerprints piece by piece, while the filter changes.

use crate::support::wire;
use bloomery::wire::{DecodeError, Decoder, Encoder};
use bloomery::{Bloom, Cell, LayoutChoice, Seed, Spec};

/// A counting filter of several chunks, and the number of items in it.
fn of_three_chunks(percent: u64) -> (Bloom, u64) {
    let capacity = 1_600_000;
    let spec =
        Spec { cell: Cell::Counter4, layout: LayoutChoice::Fingerprint, ..Spec::fixed(capacity, 0.01) };
    let mut filter = Bloom::new(Spec { seed: Seed::from(1), ..spec }).unwrap();
    let items = capacity * percent / 100;
    (0..items).for_each(|item| _ = filter.add(item.to_le_bytes()).unwrap());
    (filter, items)
}

/// A dump whose pieces are asked for one by one, and loaded; `change` comes after the first chunk.
fn dump(filter: &mut Bloom, change: impl FnOnce(&mut Bloom)) -> Result<Bloom, DecodeError> {
    let mut decoder = Decoder::new(Encoder::dump(&*filter).head()).unwrap();
    let (mut piece, mut offset, mut change) = (Vec::new(), 0, Some(change));
    let mut chunks = 0;
    while let Some(next) = Encoder::dump(&*filter).chunk(offset, &mut piece) {
        decoder.push(&piece)?;
        offset = next;
        chunks += 1;
        if let Some(change) = change.take() {
            change(filter);
        }
    }
    assert!(chunks >= 3);
    decoder.finish().map(|filter| filter.into_bloom().unwrap())
}

/// Items that are added meanwhile are no reason to begin again, as long as nothing moves.
#[test]
fn a_dump_under_adds_holds_what_the_head_saw() {
    let (mut filter, items) = of_three_chunks(3);
    let moves = wire::encode(&filter)[116..120].to_vec();
    let copy = dump(&mut filter, |filter| {
        (items..items + 1000).for_each(|item| _ = filter.add(item.to_le_bytes()).unwrap());
    });
    assert_eq!(wire::encode(&filter)[116..120], moves, "so empty a filter needs no moves");
    let copy = copy.unwrap();
    assert!((0..items).all(|item| copy.contains(item.to_le_bytes())));
    assert!(copy.items() > items && copy.items() < filter.items());
}

/// A fingerprint that is moved, or deleted and added again elsewhere, could be missing in the copy.
#[test]
fn a_dump_during_which_a_fingerprint_moved_or_left_is_refused() {
    let (mut filter, items) = of_three_chunks(90);
    let refused = dump(&mut filter, |filter| {
        (items..items + 1000).for_each(|item| _ = filter.add(item.to_le_bytes()).unwrap());
    });
    assert_eq!(refused.err(), Some(DecodeError::StampMismatch));
    let refused = dump(&mut filter, |filter| assert!(filter.remove(7u64.to_le_bytes()).unwrap().changed));
    assert_eq!(refused.err(), Some(DecodeError::StampMismatch));
    let copy = dump(&mut filter, |_| ()).unwrap();
    assert_eq!(wire::encode(&copy), wire::encode(&filter));
}
