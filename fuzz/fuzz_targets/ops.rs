//! Operations on filters of our own, in any order, compared with a model: whatever was added and not removed must be
//! present.

#![no_main]

use bloomery::wire::{Decoder, Encoder};
use bloomery::{Bloom, Cell};
use bloomery_fuzz::made::{self, ITEMS, insert, item, may_grow};
use bloomery_fuzz::{Input, LARGE};
use libfuzzer_sys::fuzz_target;

/// What the model knows about an item: the number of its adds minus the number of its deletes, and the latest
/// generation to which it was added.
#[derive(Clone, Copy, Default)]
struct Known {
    count: u64,
    generation: u64,
}

fn bloom(input: &mut Input) -> Option<()> {
    let mut filter = made::bloom(input)?;
    let mut known = [Known::default(); ITEMS as usize];
    while let (Some(operation), Some(number)) = (input.byte(), input.byte()) {
        let hash = filter.hash(&item(number));
        let entry = &mut known[usize::from(number % ITEMS)];
        match operation % 8 {
            0..=2 if may_grow(&filter) => {
                let result = if operation % 8 == 2 { filter.add_if_absent(hash) } else { filter.add(hash) };
                if let Ok(done) = result {
                    assert!(filter.contains(hash), "item {number} is there now");
                    entry.count += u64::from(done.changed || filter.spec().cell == Cell::Bit);
                    // What is present in an older generation isn't added again if only absent items are.
                    if operation % 8 != 2 || done.changed {
                        entry.generation = filter.window().map_or(0, |window| window.newest());
                    }
                }
            }
            3 | 4 if filter.spec().cell.counts() && entry.count > 0 => {
                assert!(filter.remove(hash).expect("it counts").present);
                entry.count -= 1;
            }
            5 => {
                if let Some(newest) = filter.window().map(|window| window.newest()) {
                    filter.rotate(newest + 1 + u64::from(number % 4)).expect("not the last generation");
                }
            }
            6 if number == 0 => {
                filter.clear().expect("its memory was there before");
                known.fill(Known::default());
            }
            7 => {
                filter =
                    Decoder::read(&Encoder::new(&filter).to_vec()).expect("it was written").into_bloom()?
            }
            _ => {}
        }
        assert!(filter.bytes() <= LARGE);
        must_have(&filter, number, known[usize::from(number % ITEMS)]);
    }
    (0..ITEMS).for_each(|number| must_have(&filter, number, known[usize::from(number)]));
    Some(())
}

fn must_have(filter: &Bloom, number: u8, known: Known) {
    let alive = filter.window().is_none_or(|window| window.newest() - known.generation < window.span());
    let forgets = filter.spec().on_full() == "FORGET";
    if known.count == 0 || !alive || forgets {
        return;
    }
    let hash = filter.hash(&item(number));
    assert!(filter.contains(hash), "item {number} is lost");
    assert_eq!(
        filter.contains_many(&[hash.into()], filter.window().map_or(0, |window| window.newest())),
        bloomery::Hits(1)
    );
    if filter.spec().cell.counts() {
        let most = (1u64 << filter.spec().cell.bits()) - 1;
        assert!(
            filter.count(hash).expect("it counts") >= known.count.min(most),
            "item {number} is not counted"
        );
    }
}

fn cuckoo(input: &mut Input) -> Option<()> {
    let mut filter = made::cuckoo(input)?;
    let mut counts = [0u64; ITEMS as usize];
    while let (Some(operation), Some(number)) = (input.byte(), input.byte()) {
        let count = &mut counts[usize::from(number % ITEMS)];
        match operation % 8 {
            0..=3 => *count += u64::from(insert(&mut filter, &item(number))),
            // With several sub-filters, a delete may remove another item's fingerprint, if both items have the same
            // fingerprint in one of the sub-filters.
            4 | 5 if *count > 0 && filter.spec().expansion == 0 => {
                assert!(filter.remove(filter.hash(&item(number))), "item {number} is lost");
                *count -= 1;
            }
            6 => drop(filter.compact(number & 1 == 0)),
            7 => {
                filter = Decoder::read(&Encoder::native(&filter).to_vec())
                    .expect("it was written")
                    .into_cuckoo()?
            }
            _ => {}
        }
    }
    for number in 0..ITEMS {
        let (hash, count) = (filter.hash(&item(number)), counts[usize::from(number)]);
        assert!(count == 0 || filter.contains(hash), "item {number} is lost");
        assert!(filter.count(hash) >= count, "item {number} is not counted");
    }
    assert_eq!(filter.items(), counts.iter().sum::<u64>());
    Some(())
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let _ = match input.byte() {
        Some(choice) if choice % 3 == 0 => cuckoo(&mut input),
        _ => bloom(&mut input),
    };
});
