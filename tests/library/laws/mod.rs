//! Every law for every kind of filter: a table of kinds and the groups of laws that each has to keep.
//!
//! PROPTEST_CASES sets the number of cases per law (1000), PROPTEST_RNG_SEED repeats a run.

mod battery;

use bloomery::{Cell, HashKind, Layer, LayerSpec, LayoutChoice, Seed, Shape};

battery::battery! {
    bits_auto: every, bits, unordered;
    bits_classic: every, bits, unordered;
    bits_blocked: every, bits, unordered;
    bits_classic_sharded: every, bits, unordered;
    bits_blocked_sharded: every, bits, unordered;
    bits_classic_siphash: every, bits, unordered;
    bits_blocked_siphash: every, bits, unordered;
    bits_refusing: every, full;
    counter4_classic: every, counting;
    counter4_blocked: every, counting;
    counter8_classic: every, counting;
    counter8_blocked: every, counting;
    counter16_classic: every, counting;
    counter16_blocked: every, counting;
    counter4_classic_sharded: every, counting;
    counter8_blocked_sharded: every, counting;
    counter4_refusing: every, full;
    scaling_classic: every, bits, scaling;
    scaling_blocked: every, bits, scaling;
    scaling_by_1: every, bits, scaling;
    scaling_by_4: every, bits, scaling;
    scaling_from_1: every, bits, scaling;
    scaling_tightening: every, bits, scaling;
    scaling_tightening_blocked: every, bits, scaling;
    scaling_sharded_siphash: every, bits, scaling;
    window_classic: every, bits, window;
    window_blocked: every, bits, window;
    window_sharded: every, bits, window;
    window_siphash: every, bits, window;
    window_timed: every, bits, window;
    window_refusing: every, full;
}

/// The usual numbers of probes have code of their own, for one item and for many. A count takes the plain way over all
/// cells of an item, whatever their number, and of bits it is 0 or 1.
#[test]
fn every_number_of_probes_gives_the_plain_answers() {
    let hasher = HashKind::Xxh3.hasher(Seed::from(5));
    let hashes: Vec<_> = (0..4096u32).map(|item| hasher.hash(&item.to_le_bytes())).collect();
    for (layout, cell, shards) in [
        (LayoutChoice::Blocked, Cell::Bit, 1),
        (LayoutChoice::Blocked, Cell::Bit, 4),
        (LayoutChoice::Classic, Cell::Bit, 1),
        (LayoutChoice::Classic, Cell::Bit, 4),
        (LayoutChoice::Blocked, Cell::Counter4, 2),
        (LayoutChoice::Classic, Cell::Counter8, 1),
    ] {
        for probes in 1..=20 {
            let spec = LayerSpec { layout, cell, shards, ..LayerSpec::new(1000, 0.02) };
            let layer = Layer::new(Shape { probes, ..spec.shape().unwrap() }).unwrap();
            // Filled so far that absent items find many of their cells, and some find all.
            let added = (13_000 / probes as usize).min(1000);
            hashes.iter().take(added).for_each(|item| _ = layer.insert(*item));
            let plain: Vec<_> = hashes.iter().map(|item| layer.count(*item) > 0).collect();
            let found = plain.iter().filter(|yes| **yes).count();
            assert!((added + 10..4000).contains(&found), "{spec:?} {probes}: {found} of {added}");
            for (items, plain) in hashes.chunks(64).zip(plain.chunks(64)) {
                let many = layer.contains_many(items, u64::MAX);
                for (index, (item, yes)) in items.iter().zip(plain).enumerate() {
                    assert_eq!(layer.contains(*item), *yes, "{spec:?} {probes}");
                    assert_eq!(many >> index & 1 == 1, *yes, "{spec:?} {probes}");
                }
            }
        }
    }
}
