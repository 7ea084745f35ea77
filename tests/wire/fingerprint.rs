//! Dumping fingerprint tables piece by piece, while the filter changes.

use crate::support::wire;
use bloomery::wire::{DecodeError, Decoder, Encoder};
use bloomery::{Bloom, Cell, Family, Layout, Overflow, Seed, Spec};

/// A counting filter of several chunks, filled to this percentage, and the number of items in it.
fn of_three_chunks(percent: u64) -> (Bloom, u64) {
    let capacity = 1_600_000;
    let spec =
        Spec { cell: Cell::Counter4, layout: Some(Layout::Fingerprint), ..Spec::fixed(capacity, 0.01) };
    let mut filter = Bloom::new(Spec { seed: Seed::from(1), ..spec }).unwrap();
    let items = capacity * percent / 100;
    (0..items).for_each(|item| _ = filter.add(item.to_le_bytes()).unwrap());
    (filter, items)
}

/// Requests a dump's pieces one by one, and loads them. Calls `change` after the first chunk.
fn dump(filter: &mut Bloom, change: impl FnOnce(&mut Bloom)) -> Result<Bloom, DecodeError> {
    dump_with(filter, 1, change)
}

/// Requests a dump's pieces one by one, and loads them. Calls `change` after this many chunks.
fn dump_with(filter: &mut Bloom, after: u64, change: impl FnOnce(&mut Bloom)) -> Result<Bloom, DecodeError> {
    let mut decoder = Decoder::new(Encoder::dump(&*filter).head()).unwrap();
    let (mut piece, mut offset, mut change) = (Vec::new(), 0, Some(change));
    let mut chunks = 0;
    while let Some(next) = Encoder::dump(&*filter).chunk(offset, &mut piece) {
        decoder.push(&piece)?;
        offset = next;
        chunks += 1;
        if chunks == after
            && let Some(change) = change.take()
        {
            change(filter);
        }
    }
    assert!(chunks >= 3);
    decoder.finish().map(|filter| filter.into_bloom().unwrap())
}

/// Items that are added during a dump don't force a restart, as long as no fingerprint moves.
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

/// A fingerprint that is moved, or deleted and added elsewhere, could be missing from the copy.
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

/// The number of bits in a cell.
fn width(filter: &Bloom) -> u64 {
    let layer = filter.newest_layer();
    layer.bytes() * 8 / layer.shape().cells
}

/// In the cell that lies across the boundary after `mib` MiB, the number of bits before this boundary.
fn bits_before(filter: &Bloom, mib: u64) -> u64 {
    (mib << 23) % width(filter)
}

/// A count may lie across the boundary between two pieces. An add can then carry from its bits before the boundary into
/// its bits after it. A copy with the old bits before the boundary and the new ones after it would have a count that is
/// too high.
#[test]
fn a_count_that_changes_between_two_pieces_is_whole() {
    let made = |error_rate| {
        let spec = Spec::fixed(900_000, error_rate);
        let spec = Spec { cell: Cell::Counter8, layout: Some(Layout::Fingerprint), ..spec };
        Bloom::new(Spec { seed: Seed::from(1), ..spec }).unwrap()
    };
    // Finds a piece that ends after the lowest bit of a count, or after its two lowest bits. The count is the last part
    // of a cell.
    let cut = |filter: &Bloom| {
        let mut ends = (1..=2).map(|mib| (mib, (bits_before(filter, mib) + 8).saturating_sub(width(filter))));
        ends.find(|(_, bits)| (1..=2).contains(bits))
    };
    let rates = [0.01, 0.007, 0.005, 0.003, 0.002, 0.001, 0.0005].into_iter();
    let cut = rates.map(made).find_map(|filter| cut(&filter).map(|cut| (filter, cut)));
    let (mut filter, (mib, bits)) = cut.unwrap();
    let items = 800_000u64;
    let add_all = |filter: &mut Bloom| {
        (0..items).for_each(|item| _ = filter.add(item.to_le_bytes()).unwrap());
    };
    (1..1 << bits).for_each(|_| add_all(&mut filter));
    let counts = |filter: &Bloom| -> Vec<u64> {
        (0..items).map(|item| filter.count(item.to_le_bytes()).unwrap()).collect()
    };
    let before = counts(&filter);
    let copy = dump_with(&mut filter, mib, add_all).unwrap();
    let all = before.iter().zip(counts(&copy)).zip(counts(&filter));
    let odd: Vec<_> = all.filter(|((before, copy), now)| copy < *before || copy > now).collect();
    assert!(odd.is_empty(), "{odd:?}");
}

/// Whether the cell that contains the boundary after `mib` MiB is in use.
fn is_used(filter: &Bloom, mib: u64) -> bool {
    let mut body = Vec::new();
    Encoder::new(filter).chunks(|_, chunk| body.extend_from_slice(&chunk[wire::CHUNK_PREFIX..]));
    let first = (mib << 23) - bits_before(filter, mib);
    (first..first + width(filter)).any(|bit| body[bit as usize / 8] >> (bit % 8) & 1 == 1)
}

/// An item of generation 1 is added again in generation 2. A copy with one bit of each number would have generation 3
/// or 0, neither of which is alive.
#[test]
fn an_item_that_changes_its_generation_between_two_pieces_is_there() {
    let family = Family::Window { generations: 2, every_ms: 0, overflow: Overflow::Error };
    let made = |error_rate, seed| {
        let spec = Spec { family, layout: Some(Layout::Fingerprint), ..Spec::fixed(560_000, error_rate) };
        Bloom::new(Spec { seed: Seed::from(seed), ..spec }).unwrap()
    };
    // Finds a piece that ends between the two bits of a cell's generation number, which are the last bits of the cell.
    let cut = |filter: &Bloom| (1..=3).find(|mib| bits_before(filter, *mib) == width(filter) - 1);
    let rates = [1e-6, 7e-7, 5e-7, 3e-7].into_iter();
    let (rate, mib) = rates.filter_map(|rate| Some((rate, cut(&made(rate, 1))?))).next().unwrap();
    let items = 500_000u64;
    let add_all = |filter: &mut Bloom| {
        (0..items).for_each(|item| _ = filter.add(item.to_le_bytes()).unwrap());
    };
    let mut filters = (1..20).map(|seed| {
        let mut filter = made(rate, seed);
        drop(filter.rotate(1).unwrap());
        add_all(&mut filter);
        filter
    });
    let mut filter = filters.find(|filter| is_used(filter, mib)).unwrap();
    drop(filter.rotate(2).unwrap());
    let copy = dump_with(&mut filter, mib, add_all).unwrap();
    let lost = (0..items).filter(|item| !copy.contains(item.to_le_bytes())).count();
    assert_eq!(lost, 0);
}
