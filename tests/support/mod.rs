//! What the tests in Rust share: every kind of filter there is ([`kinds`]), the plainest model of one ([`naive`]), the
//! wire format taken apart by hand ([`wire`]), keys of several shapes ([`keys`]), and the laws themselves.

#![allow(dead_code, unused_macros, unused_imports)] // each test is a crate of its own and uses its part

pub(crate) mod counting;
pub(crate) mod every;
pub(crate) mod golden;
pub(crate) mod keys;
pub(crate) mod kinds;
pub(crate) mod naive;
pub(crate) mod scaling;
pub(crate) mod windows;
pub(crate) mod wire;

use bloomery::filter::FilterRef;
use bloomery::{Bloom, ItemHash, Overflow, Seed, Spec};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};

/// A number from the environment, to make a run longer, shorter, or the same again.
pub(crate) fn env(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

/// What a law is tried on: two lists of items, which overlap, and a seed that places them.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) a: Vec<u16>,
    pub(crate) b: Vec<u16>,
    pub(crate) seed: u64,
}

/// A law that every filter of a spec keeps.
pub(crate) type Law = fn(&Spec, &Case) -> TestCaseResult;

/// Tries a law on random cases; PROPTEST_CASES says how many and PROPTEST_RNG_SEED which. A failure prints the smallest
/// case found, so nothing is kept in files.
pub(crate) fn hold(law: Law, spec: &Spec) {
    let default = Config::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 1000 };
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..default });
    // Few enough items that lists overlap and repeat, enough that a filter of 60 is filled twice over.
    let items = || vec(0u16..240, 0..120);
    let case = (items(), items(), any::<u64>()).prop_map(|(a, b, seed)| Case { a, b, seed });
    if let Err(why) = runner.run(&case, |case| law(&seeded(spec, case.seed), &case)) {
        panic!("{why}");
    }
}

/// The spec with the seed of a case.
pub(crate) fn seeded(spec: &Spec, seed: u64) -> Spec {
    let seed = u128::from(seed) << 64 | u128::from(seed.rotate_left(32));
    Spec { seed: Seed::from(seed), ..*spec }
}

/// The hash of a small item: two bytes and as many again as make lengths of 2 to 20, for both hashes treat them
/// differently.
pub(crate) fn hash(filter: &Bloom, item: u16) -> ItemHash {
    let mut bytes = [0xA5; 20];
    bytes[..2].copy_from_slice(&item.to_le_bytes());
    filter.hash(&bytes[..2 + usize::from(item % 19)])
}

/// Adds the items, growing where the kind grows.
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

/// Whether a filter of this spec takes items beyond its capacity.
pub(crate) fn refuses(spec: &Spec) -> bool {
    use bloomery::Family::{Fixed, Scaling, Window};
    match spec.family {
        Fixed(overflow) | Window { overflow, .. } => overflow == Overflow::Error,
        Scaling { .. } => false,
    }
}

/// The INFO figures: all that a filter says about itself.
pub(crate) fn figures(filter: &Bloom) -> impl PartialEq + std::fmt::Debug + use<> {
    let layers = filter.layers();
    let of_layers: Vec<_> = layers.iter().map(|l| (l.shape(), l.items(), l.ones(), l.saturated())).collect();
    let window = filter.window().map(|window| (window.newest(), window.schedule()));
    let counts = [filter.items(), filter.capacity(), filter.ones(), filter.cells(), filter.bytes()];
    (*filter.spec(), counts, filter.estimate(), filter.rate_now(), of_layers, window)
}

/// The same of a filter of any kind, cuckoo filters among them.
pub(crate) fn portrait<'a>(filter: impl Into<FilterRef<'a>>) -> String {
    match filter.into() {
        FilterRef::Bloom(filter) => format!("{:?}", figures(filter)),
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
            let shadow = figures(rebuild.shadow());
            format!("{} {shadow:?} {}", portrait(rebuild.live()), rebuild.deletes_missed())
        }
    }
}

/// A battery: for each kind, a module with one test per law of the groups it belongs to.
///
/// `tests/laws.rs` holds the table of kinds and groups.
macro_rules! battery {
    ($($kind:ident: $($group:ident),+;)+) => {
        $(mod $kind {
            $(crate::battery::battery!(@$group $kind);)+
        })+
    };
    (@every $kind:ident) => { crate::battery::battery!(@laws $kind every:
        no_false_negative,
        a_duplicate_adds_nothing,
        clear_empties,
        union_is_a_superset,
        intersection_keeps_the_common,
        equal_means_equal_cells,
        a_snapshot_is_equal_and_independent,
        a_reader_answers_the_same,
        many_at_a_time_are_answered_as_one_by_one,
        encoding_and_decoding_changes_nothing,
        a_decoded_copy_goes_on_alike,
        tallies_equal_a_recount,
        add_if_absent_adds_what_is_absent,
        prefetch_changes_nothing,
    ); };
    (@bits $kind:ident) => { crate::battery::battery!(@laws $kind every:
        bits_neither_count_nor_delete,
    ); };
    (@unordered $kind:ident) => { crate::battery::battery!(@laws $kind every:
        sets_of_bits_know_no_order,
    ); };
    (@full $kind:ident) => { crate::battery::battery!(@laws $kind every:
        a_full_filter_refuses_new_items_only,
    ); };
    (@counting $kind:ident) => { crate::battery::battery!(@laws $kind counting:
        counts_are_upper_bounds,
        counts_of_a_sparse_filter_are_exact,
        a_removed_item_is_absent_or_a_false_positive,
        removing_what_was_added_keeps_the_rest,
        counters_saturate_and_stay_there,
        an_absent_item_is_left_alone,
        the_union_adds_counts_up,
    ); };
    (@scaling $kind:ident) => { crate::battery::battery!(@laws $kind scaling:
        layers_follow_the_spec,
        a_layer_is_opened_when_the_newest_is_full,
        without_growth_a_full_chain_refuses,
        growing_keeps_every_answer,
    ); };
    (@window $kind:ident) => { crate::battery::battery!(@laws $kind windows:
        an_item_lives_for_its_generations,
        ages_count_generations,
        add_if_absent_counts_from_the_first_add,
        skipping_generations_drops_those_between,
        reads_ignore_what_the_clock_has_dropped,
        a_clock_that_steps_back_changes_nothing,
        a_rotation_by_hand_shifts_the_schedule,
        dropped_layers_are_handed_over,
    ); };
    (@laws $kind:ident $group:ident: $($law:ident,)+) => {
        $(#[test]
        fn $law() {
            crate::battery::hold(crate::battery::$group::$law, &crate::battery::kinds::$kind());
        })+
    };
}
pub(crate) use battery;
