//! Every law for every kind of filter: a table of kinds, and the groups of laws that each kind has to satisfy.
//!
//! PROPTEST_CASES sets the number of cases per law (400 by default), and PROPTEST_RNG_SEED repeats a run.

mod counting;
mod every;
mod scaling;
mod tables;
mod windows;

use crate::support::{kinds, seeded};
use bloomery::{Bloom, Cell, Family, HashKind, Hits, Layer, LayerSpec, Layout, Overflow, Seed, Shape, Spec};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};

/// What a law is tried on: two lists of items, which overlap, and the seed of the filter.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) a: Vec<u16>,
    pub(crate) b: Vec<u16>,
    pub(crate) seed: u64,
}

/// A law that every filter of a spec satisfies.
pub(crate) type Law = fn(&Spec, &Case) -> TestCaseResult;

/// Tries a law on random cases. PROPTEST_CASES sets their number, and PROPTEST_RNG_SEED chooses them. A failure prints
/// the smallest case found, so nothing is stored in files.
pub(crate) fn hold(law: Law, spec: &Spec) {
    let default = Config::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 400 };
    let config = Config { cases, failure_persistence: None, ..default };
    let mut runner = TestRunner::new(config);
    // There are few enough different items that the lists overlap and contain repetitions. The lists can be long enough
    // to fill a filter for 60 items twice.
    let items = || vec(0u16..240, 0..120);
    let case = (items(), items(), any::<u64>()).prop_map(|(a, b, seed)| Case { a, b, seed });
    if let Err(why) = runner.run(&case, |case| law(&seeded(spec, case.seed), &case)) {
        panic!("{why}");
    }
}

/// Defines a module for each kind, with a test for each law of its groups.
macro_rules! laws {
    ($($kind:ident: $($group:ident),+;)+) => {
        $(mod $kind {
            use super::{hold, kinds};

            $(laws!(@$group $kind);)+
        })+
    };
    (@every $kind:ident) => {
        laws!(@each $kind);
        laws!(@combined $kind);
        laws!(@laws $kind every: tallies_equal_a_recount,);
    };
    (@combined $kind:ident) => { laws!(@laws $kind every:
        union_is_a_superset,
        intersection_keeps_the_common,
    ); };
    (@each $kind:ident) => { laws!(@laws $kind every:
        no_false_negative,
        a_duplicate_adds_nothing,
        clear_empties,
        equal_means_equal_cells,
        a_snapshot_is_equal_and_independent,
        a_reader_answers_the_same,
        many_at_a_time_are_answered_as_one_by_one,
        encoding_and_decoding_changes_nothing,
        a_decoded_copy_goes_on_alike,
        add_if_absent_adds_what_is_absent,
        prefetch_changes_nothing,
    ); };
    (@bits $kind:ident) => { laws!(@laws $kind every:
        bits_neither_count_nor_delete,
    ); };
    (@unordered $kind:ident) => { laws!(@laws $kind every:
        sets_of_bits_know_no_order,
    ); };
    (@full $kind:ident) => { laws!(@laws $kind every:
        a_full_filter_refuses_new_items_only,
    ); };
    (@united $kind:ident) => { laws!(@laws $kind every:
        the_union_of_tables_is_whole_or_nothing,
    ); };
    (@counting $kind:ident) => {
        laws!(@counts $kind);
        laws!(@laws $kind counting: a_removed_item_is_absent_or_a_false_positive, the_union_adds_counts_up,);
    };
    (@counts $kind:ident) => { laws!(@laws $kind counting:
        counts_are_upper_bounds,
        counts_of_a_sparse_filter_are_exact,
        removing_what_was_added_keeps_the_rest,
        counters_saturate_and_stay_there,
        an_absent_item_is_left_alone,
    ); };
    (@scaling $kind:ident) => { laws!(@laws $kind scaling:
        layers_follow_the_spec,
        a_layer_is_opened_when_the_newest_is_full,
        without_growth_a_full_chain_refuses,
        growing_keeps_every_answer,
    ); };
    (@outgrown $kind:ident) => {
        laws!(@each $kind);
        laws!(@combined $kind);
        laws!(@laws $kind scaling: a_full_filter_adds_one_table, without_growth_a_full_chain_refuses,);
    };
    (@window $kind:ident) => { laws!(@laws $kind windows:
        an_item_lives_for_its_generations,
        ages_count_generations,
        add_if_absent_counts_from_the_first_add,
        skipping_generations_drops_those_between,
        reads_ignore_what_the_clock_has_dropped,
        a_clock_that_steps_back_changes_nothing,
        a_rotation_by_hand_shifts_the_schedule,
        dropped_layers_are_handed_over,
    ); };
    (@table $kind:ident) => {
        laws!(@each $kind);
        laws!(@laws $kind tables: answers_follow_from_the_prefixes, the_union_is_whole_or_nothing,
            the_intersection_is_what_both_have,);
    };
    (@aging $kind:ident) => { laws!(@laws $kind windows:
        an_item_lives_for_its_generations,
        ages_count_generations,
        add_if_absent_counts_from_the_first_add,
        skipping_generations_drops_those_between,
        reads_ignore_what_the_clock_has_dropped,
        a_clock_that_steps_back_changes_nothing,
        a_rotation_by_hand_shifts_the_schedule,
        a_deleted_item_leaves_all_generations,
    ); };
    (@laws $kind:ident $group:ident: $($law:ident,)+) => {
        $(#[test]
        fn $law() {
            hold(super::$group::$law, &kinds::$kind());
        })+
    };
}

laws! {
    bits_auto: every, bits, unordered;
    bits_classic: every, bits, unordered;
    bits_blocked: every, bits, unordered;
    bits_partitioned: every, bits, unordered;
    bits_classic_sharded: every, bits, unordered;
    bits_blocked_sharded: every, bits, unordered;
    bits_partitioned_sharded: every, bits, unordered;
    bits_classic_siphash: every, bits, unordered;
    bits_blocked_siphash: every, bits, unordered;
    bits_refusing: every, full;
    counter4_classic: every, counting;
    counter4_blocked: every, counting;
    counter8_classic: every, counting;
    counter8_blocked: every, counting;
    counter8_partitioned: every, counting;
    counter16_classic: every, counting;
    counter16_blocked: every, counting;
    counter4_classic_sharded: every, counting;
    counter8_blocked_sharded: every, counting;
    counter4_refusing: every, full;
    scaling_classic: every, bits, scaling;
    scaling_blocked: every, bits, scaling;
    scaling_partitioned: every, bits, scaling;
    scaling_by_1: every, bits, scaling;
    scaling_by_4: every, bits, scaling;
    scaling_from_1: every, bits, scaling;
    scaling_auto: every, bits, scaling;
    scaling_tightening: every, bits, scaling;
    scaling_tightening_blocked: every, bits, scaling;
    scaling_sharded_siphash: every, bits, scaling;
    window_classic: every, bits, window;
    window_blocked: every, bits, window;
    window_partitioned: every, bits, window;
    window_sharded: every, bits, window;
    window_siphash: every, bits, window;
    window_timed: every, bits, window;
    window_refusing: every, full;
    quotient_fixed: table, full;
    quotient_counting8: table, full, counts;
    quotient_scaling: table, bits;
    outgrown: outgrown, bits;
    outgrown_from_1: outgrown, bits;
    quotient_from_1: table, bits;
    quotient_siphash: table, bits;
    quotient_long: table, bits;
    quotient_short: table, counts;
    quotient_scaling_counting4: table, counts;
    quotient_scaling_counting16: table, counts;
    quotient_window: table, aging;
    quotient_window_refusing: table, full;
    quotient_window_rotating: aging;
    quotient_window_long: table, aging;
}

/// Items come and go for a long time, and the oldest go first: the number of items stays nearly correct, nothing is
/// refused below the capacity, and when all are deleted there is as much room as at the start.
#[test]
fn the_number_of_items_does_not_drift() {
    for (capacity, layout, cell, shards) in [
        (100, None, Cell::Counter4, 1),
        (100, Some(Layout::Classic), Cell::Counter8, 4),
        (1000, Some(Layout::Blocked), Cell::Counter16, 1),
        (1000, Some(Layout::Partitioned), Cell::Counter4, 2),
        (7, None, Cell::Counter4, 1),
        (1000, Some(Layout::Quotient), Cell::Counter4, 1),
    ] {
        let family = Family::Fixed(Overflow::Error);
        let spec = Spec { layout, cell, shards, family, ..Spec::fixed(capacity, 0.05) };
        let mut filter = Bloom::new(seeded(&spec, capacity)).unwrap();
        let live = capacity * 9 / 10;
        let spread = 8.0 * (capacity as f64).sqrt() + 2.0;
        for item in 0..live + 60_000 {
            filter.add(filter.hash(item.to_le_bytes())).unwrap();
            if item >= live {
                let oldest = filter.hash((item - live).to_le_bytes());
                assert!(filter.remove(oldest).unwrap().present);
                assert!(
                    filter.items() <= live && filter.items() as f64 > live as f64 - spread,
                    "{}",
                    filter.items()
                );
            }
        }
        (60_000..60_000 + live).for_each(|item| _ = filter.remove(filter.hash(item.to_le_bytes())).unwrap());
        if filter.saturated() == 0 {
            assert_eq!((filter.items(), filter.ones()), (0, 0), "{spec:?}");
        }
        for item in 0..capacity {
            filter.add(filter.hash((item | 1 << 40).to_le_bytes())).unwrap();
        }
    }
}

/// Common numbers of probes have code of their own, for one item and for many. It gives the same answers as a count,
/// which uses the plain loop over all cells of an item. For bits, the count is 0 or 1.
#[test]
fn every_number_of_probes_gives_the_plain_answers() {
    let hasher = HashKind::Xxh3.hasher(Seed::from(5));
    let hashes: Vec<_> = (0..4096u32).map(|item| hasher.hash(&item.to_le_bytes())).collect();
    for (layout, cell, shards) in [
        (Some(Layout::Blocked), Cell::Bit, 1),
        (Some(Layout::Blocked), Cell::Bit, 4),
        (Some(Layout::Classic), Cell::Bit, 1),
        (Some(Layout::Classic), Cell::Bit, 4),
        (Some(Layout::Blocked), Cell::Counter4, 2),
        (Some(Layout::Classic), Cell::Counter8, 1),
        (Some(Layout::Partitioned), Cell::Bit, 1),
        (Some(Layout::Partitioned), Cell::Bit, 4),
        (Some(Layout::Partitioned), Cell::Counter16, 1),
    ] {
        for probes in 1..=20 {
            let spec = LayerSpec { layout, cell, shards, ..LayerSpec::new(1000, 0.02) };
            let shape = spec.shape().unwrap();
            // Slices consist of whole words.
            let slices = u64::from(if layout == Some(Layout::Partitioned) { probes } else { 1 });
            let stride = u64::from(64 / cell.bits() * shards) * slices;
            let cells = if slices > 1 { shape.cells.next_multiple_of(stride) } else { shape.cells };
            let layer = Layer::new(Shape { probes, cells, ..shape }).unwrap();
            // The layer is full enough that absent items find many of their cells set, and some find all of them set.
            let added = (layer.cells() as usize * 8 / 5 / probes as usize).min(1000);
            hashes.iter().take(added).for_each(|item| _ = layer.insert(*item));
            let plain: Vec<_> = hashes.iter().map(|item| layer.count(*item) > 0).collect();
            let found = plain.iter().filter(|yes| **yes).count();
            assert!((added + 10..4000).contains(&found), "{spec:?} {probes}: {found} of {added}");
            for (items, plain) in hashes.chunks(64).zip(plain.chunks(64)) {
                let many = layer.contains_many(items, Hits(u64::MAX));
                for (index, (item, yes)) in items.iter().zip(plain).enumerate() {
                    assert_eq!(layer.contains(*item), *yes, "{spec:?} {probes}");
                    assert_eq!(many.has(index), *yes, "{spec:?} {probes}");
                }
            }
        }
    }
}
