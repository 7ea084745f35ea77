//! What must hold for whole filters: commands in any order, saved and loaded in between, merged, and from hostile
//! bytes.

use super::leaf::MOST_CELLS;
use super::oracle::validate;
use super::pieces::{END, Loading};
use super::table::{Hash, Quotient};
use super::{Quotients, empty, hash, write};
use crate::Bloom;
use crate::bits::Single;
use crate::error::Error;
use crate::filter::layout::algorithm::Algorithm as _;
use crate::filter::layout::{Layer, Shape};
use crate::filter::{Body, Chain};
use crate::parallel::alone;
use crate::params::{Cell, Family, Layout, Overflow, Spec};
use crate::wire::{Decoder, Encoder};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashSet;

fn spec(capacity: u64, error_rate: f64, cell: Cell, generations: u16) -> Spec {
    let spec = Spec { cell, layout: Some(Layout::Quotient), ..Spec::scaling(capacity, error_rate) };
    match generations {
        0 => spec,
        _ => {
            Spec { family: Family::Window { generations, overflow: Overflow::Saturate, every_ms: 0 }, ..spec }
        }
    }
}

fn loaded(filter: &Bloom) -> Bloom {
    let bytes = Encoder::new(filter).to_vec();
    let loaded = Decoder::read(&bytes).map(|filter| filter.into_bloom().unwrap()).unwrap();
    assert!(Encoder::new(&loaded).to_vec() == bytes);
    loaded
}

fn layer_of(filter: &Bloom) -> &Layer {
    filter.newest_layer()
}

fn check(filter: &Bloom) {
    let layer = layer_of(filter);
    let table = layer.reading().unwrap();
    validate(&table);
    assert_eq!(layer.items(), table.items);
    assert!(table.items <= table.cells, "{} items, {} cells", table.items, table.cells);
    if let Some(generations) = &table.generations {
        assert_eq!((0..generations.span()).map(|slot| generations.items(slot)).sum::<u64>(), table.items);
    }
}

/// Runs the same random commands on a filter and on copies that were saved and loaded at random points.
#[test]
fn a_loaded_copy_continues_alike() {
    for (seed, capacity, rate, cell, generations) in [
        (1, 0, 0.5, Cell::Counter4, 0),
        (2, 100, 0.9, Cell::Counter4, 0),
        (3, 3000, 0.01, Cell::Bit, 0),
        (4, 10, 0.3, Cell::Bit, 3),
        (5, 2000, 0.01, Cell::Bit, 100),
    ] {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut filters =
            [(); 2].map(|()| Bloom::new(spec(capacity.max(1), rate, cell, generations)).unwrap());
        for step in 0..if cfg!(miri) { 300 } else { 25_000u32 } {
            let (action, most) = (random.random_range(0..2000), if random.random() { 6000 } else { 60 });
            let item: u32 = random.random_range(0..most);
            // Alternates between growth and shrinkage.
            let removes = if step / 4000 % 2 == 0 { 300 } else { 1300 };
            for filter in &mut filters {
                match action {
                    0..10 if generations > 0 => {
                        drop(filter.rotate(filter.window().unwrap().newest() + 1).unwrap())
                    }
                    10 => drop(filter.clear().unwrap()),
                    11.. if action < removes && filter.can_delete() => {
                        _ = filter.remove(item.to_le_bytes()).unwrap()
                    }
                    _ => _ = filter.add(item.to_le_bytes()).unwrap(),
                }
            }
            if random.random_ratio(1, 400) {
                filters.iter().for_each(check);
                let [a, b] = &filters;
                assert!(Encoder::new(a).to_vec() == Encoder::new(b).to_vec(), "{seed} {step}");
                assert_eq!((a.items(), a.saturated()), (b.items(), b.saturated()), "{seed} {step}");
                filters[1] = loaded(&filters[0]);
            }
        }
    }
}

/// Merges and intersects filters of random sizes, and compares them with sets.
#[test]
fn unions_and_intersections_are_those_of_sets() {
    let mut random = SmallRng::seed_from_u64(7);
    for round in 0..if cfg!(miri) { 2 } else { 60 } {
        let (cell, generations) = [(Cell::Bit, 0), (Cell::Counter8, 0), (Cell::Bit, 5)][round % 3];
        let mut make = || {
            let turns = [0, 1, 3, 9][random.random_range(0..4)];
            let (items, capacity) = (1 << random.random_range(0..12), 1 << random.random_range(0..14));
            let rate = [0.9, 0.2, 0.01, 1e-6][random.random_range(0..4)];
            let mut filter = Bloom::new(spec(capacity, rate, cell, generations)).unwrap();
            let items: HashSet<u32> = (0..items).map(|_| random.random_range(0..3000)).collect();
            for (number, item) in items.iter().enumerate() {
                if number == items.len() / 2 && generations > 0 {
                    filter.rotate(filter.window().unwrap().newest() + turns).unwrap();
                }
                filter.add(item.to_le_bytes()).unwrap();
            }
            (filter, items)
        };
        let ((mut a, mine), (b, theirs)) = (make(), make());
        if generations == 0 {
            let common = a.intersection(&[&b], &alone).unwrap();
            assert!(mine.intersection(&theirs).all(|item| common.contains(item.to_le_bytes())), "{round}");
            for item in 0u32..5000 {
                let item = item.to_le_bytes();
                assert_eq!(common.contains(item), a.contains(item) && b.contains(item), "{round}");
            }
            check(&common);
            loaded(&common);
        }
        let before: Vec<bool> = (0u32..5000)
            .map(|item| a.contains(item.to_le_bytes()) || b.contains(item.to_le_bytes()))
            .collect();
        let ages = |filter: &Bloom| {
            match filter.window() {
                Some(window) => (0u32..5000)
                    .map(|item| window.age(filter.item_hash(&item.to_le_bytes()), window.newest())),
                None => return Vec::new(),
            }
            .collect::<Vec<_>>()
        };
        let least = ages(&a).into_iter().zip(ages(&b)).map(|(a, b)| a.into_iter().chain(b).min());
        let least: Vec<_> = least.collect();
        let changed = a.take_in_cells(&b, &alone).unwrap();
        for (age, least) in ages(&a).into_iter().zip(least) {
            // Items that share a cell from now on get the age of the youngest.
            assert!(age.is_some() == least.is_some() && age <= least, "{round}: {age:?} {least:?}");
        }
        assert!(changed || theirs.is_subset(&mine) || a.rate_now() > 0.1);
        let after: Vec<bool> = (0u32..5000).map(|item| a.contains(item.to_le_bytes())).collect();
        assert!(before == after, "{round}");
        check(&a);
        let saved = loaded(&a);
        assert_eq!((saved.items(), saved.saturated()), (a.items(), a.saturated()), "{round}");
        if cell == Cell::Bit {
            assert!(!a.take_in_cells(&b, &alone).unwrap(), "a repeated merge changes nothing");
        }
    }
}

/// A divided prefix is an item that has several cells, which are deleted and become younger one by one.
#[test]
#[cfg_attr(miri, ignore = "too many items")]
fn parts_of_divided_prefixes_do_not_distort_counts() {
    for rate in [0.5, 0.3, 0.1] {
        let empty = || Bloom::new(spec(1, rate, Cell::Bit, 4)).unwrap();
        let add = |filter: &mut Bloom, items: std::ops::Range<u32>| {
            items.for_each(|item| _ = filter.add(item.to_le_bytes()).unwrap());
        };
        let mut filter = empty();
        add(&mut filter, 0..3000);
        drop(filter.rotate(1).unwrap());
        add(&mut filter, 3000..30_000);
        (0..3000u32).for_each(|item| _ = filter.remove(item.to_le_bytes()).unwrap());
        check(&filter);
        add(&mut filter, 30_000..60_000);
        check(&filter);
        let (mut source, mut union) = (empty(), Bloom::new(spec(1_000_000, 0.01, Cell::Bit, 4)).unwrap());
        add(&mut source, 0..200);
        assert!(union.take_in_cells(&source, &alone).unwrap());
        (0..200u32).for_each(|item| _ = union.remove(item.to_le_bytes()).unwrap());
        check(&union);
        add(&mut union, 0..300_000);
        check(&union);
        assert_eq!(loaded(&union).items(), union.items());
    }
}

/// A filter takes in prefixes that are too long for the remainders of a small one.
#[test]
#[cfg_attr(miri, ignore = "too many items")]
fn an_empty_table_takes_in_the_longest_prefixes() {
    for generations in [0, 1000] {
        let spec = spec(1, 1e-12, if generations == 0 { Cell::Counter16 } else { Cell::Bit }, generations);
        let filled = |items: std::ops::Range<u32>| {
            let mut filter = Bloom::new(spec).unwrap();
            items.for_each(|item| _ = filter.add(item.to_le_bytes()).unwrap());
            filter
        };
        let many = filled(0..3000);
        let mut union = filled(5000..5001);
        assert!(union.take_in_cells(&many, &alone).unwrap());
        check(&union);
        assert!((0u32..3000).chain([5000]).all(|item| union.contains(item.to_le_bytes())));
        for first in if generations == 0 { &[2000, 2990][..] } else { &[] } {
            let common = filled(*first..*first + 3000).intersection(&[&many], &alone).unwrap();
            check(&common);
            let count = u64::from(3000 - first);
            assert_eq!((common.items(), common.contains(2999u32.to_le_bytes())), (count, true));
            let few = filled(*first..3000).intersection(&[&many], &alone).unwrap();
            check(&few);
            assert_eq!((few.items(), few.contains(2999u32.to_le_bytes())), (count, true));
        }
    }
}

/// A short prefix has cells in many quotients of a large table, but not in one leaf of their intersection.
#[test]
#[cfg_attr(miri, ignore = "too many items")]
fn short_prefixes_meet_long_ones() {
    let filled = |rate, capacity, items: std::ops::Range<u32>| {
        let mut filter = Bloom::new(spec(capacity, rate, Cell::Bit, 0)).unwrap();
        items.for_each(|item| _ = filter.add(item.to_le_bytes()).unwrap());
        filter
    };
    let (short, mut long) = (filled(0.9, 1, 0..20_000), filled(0.01, 8_000_000, 19_000..21_000));
    long.take_in_cells(&short, &alone).unwrap();
    for (a, b) in [(&short, &long), (&long, &short)] {
        let common = a.intersection(&[b], &alone).unwrap();
        check(&common);
        for item in 0..10_000u32 {
            let item = item.to_le_bytes();
            assert_eq!(common.contains(item), short.contains(item) && long.contains(item));
        }
    }
}

/// A source with few items doesn't make a table large, whatever it was planned for.
#[test]
fn planned_leaves_are_not_taken_over() {
    let planned = Bloom::new(spec(40_000_000, 0.01, Cell::Bit, 0)).unwrap();
    let mut small = Bloom::new(spec(1, 0.5, Cell::Bit, 0)).unwrap();
    (0u32..1000).for_each(|item| _ = small.add(item.to_le_bytes()).unwrap());
    let before = small.bytes();
    small.take_in_cells(&planned, &alone).unwrap();
    assert_eq!(small.bytes(), before);
}

/// Leaves that are united whole are as if their cells had been added one by one.
#[test]
fn whole_leaves_are_united_like_cells() {
    let mut random = SmallRng::seed_from_u64(17);
    for round in 0..if cfg!(miri) { 2 } else { 60 } {
        let (cell, most) = [(Cell::Bit, 0), (Cell::Counter4, 15)][round % 2];
        let rate = [0.9, 0.3, 0.01][round % 3];
        let shape = spec(1, rate, cell, 0).next_shape(&[]).unwrap();
        let most_items = 1 << random.random_range(1..14);
        let size: u64 = random.random_range(1..most_items);
        let make = |items: std::ops::Range<u64>| {
            let mut table = empty(&shape).unwrap();
            table.set_room(u64::MAX);
            for item in items {
                let more = |_: &_, count: Option<u64>| Some(most.min(count.unwrap_or(0) + 1 + item % 9));
                table.change(hash_of(item), more).unwrap();
            }
            let layer = Layer::from_table(&shape, table, true).unwrap();
            write(&layer).set_room(u64::MAX);
            layer
        };
        let other = make(size / 2..size * 3 / 2);
        let [(whole, has_changed), single] = [true, false].map(|grows| {
            let layer = make(0..size);
            let changed = layer.unite(&other, 0, grows, &alone).unwrap();
            (layer, changed)
        });
        validate(&whole.reading().unwrap());
        assert!(whole.has_same_items(&single.0, [0, 0], &alone), "{round}");
        let numbers =
            |layer: &Layer| (layer.items(), layer.reading().map(|table| (table.rate(), table.saturated)));
        assert_eq!((numbers(&whole), has_changed), (numbers(&single.0), single.1), "{round}");
    }
}

fn shape(capacity: u64, generations: u16) -> Shape {
    spec(capacity, 0.01, Cell::Bit, generations).next_shape(&[]).unwrap()
}

fn hash_of(item: u64) -> Hash {
    let filter = Bloom::new(spec(1, 0.01, Cell::Bit, 0)).unwrap();
    hash(filter.item_hash(&item.to_le_bytes()))
}

fn words(table: &Quotient) -> Vec<u64> {
    let mut words = Vec::new();
    assert_eq!(table.write(0, usize::MAX, &mut words), Some(END));
    words
}

fn counts(table: &Quotient) -> (u64, Vec<u64>) {
    let generations = table.generations.as_ref().unwrap();
    let counts = (0..generations.span()).map(|slot| generations.items(slot)).collect();
    (table.newest(), counts)
}

#[test]
fn a_word_stands_for_few_leaves() {
    let mut loading = Loading::new(&shape(100, 0), 1 << 22, 10);
    assert!(loading.read(&[10 << 40]).is_err());
}

/// Nor for many cells: here, each of 4096 leaves would get copies of 400, which takes long.
#[test]
fn a_word_stands_for_few_cells() {
    let shape = Shape { error_rate: 0.5, ..shape(1000, 0) };
    let mut table = empty(&shape).unwrap();
    (0..400).for_each(|item| _ = table.change(hash_of(item), |_, _| Some(0)));
    let words = words(&table);
    let load = |leaves| Loading::new(&shape, leaves, 10).read(&words);
    assert_eq!((load(1), load(1 << 4), load(1 << 12)), (Ok(()), Ok(()), Err(Error::Foreign("cells"))));
}

/// Nor for much memory: here, leaves that are almost empty need ten times the words.
#[test]
#[cfg_attr(miri, ignore = "too many items")]
fn a_load_needs_little_more_than_its_words() {
    let shape = shape(200_000, 0);
    let mut table = empty(&shape).unwrap();
    (0..200_000).for_each(|item| _ = table.change(hash_of(item), |_, _| Some(0)).unwrap());
    let load = |times| Loading::new(&shape, table.leaves() * times, 10).read(&words(&table));
    assert_eq!((load(2), load(64)), (Ok(()), Err(Error::Foreign("cells"))));
}

/// Whatever came before them: a server that has saved and loaded the upload in between doesn't know that.
#[test]
#[cfg_attr(miri, ignore = "too many items")]
fn words_pay_only_for_what_is_made_of_them() {
    let shape = Shape { error_rate: 1e-9, ..shape(200_000, 0) };
    let mut table = empty(&shape).unwrap();
    (0..200_000).for_each(|item| _ = table.change(hash_of(item), |_, _| Some(0)).unwrap());
    let (mut dense, mut position) = (Vec::new(), 0);
    while position < END / 2 {
        position = table.write(position, dense.len() + 1, &mut dense).unwrap();
    }
    let mut few = empty(&Shape { error_rate: 0.5, ..self::shape(1000, 0) }).unwrap();
    (0..400).for_each(|item| _ = few.change(hash_of(item), |_, _| Some(0)));
    let mut greedy = Vec::new();
    assert_eq!(few.write(END / 2, usize::MAX, &mut greedy), Some(END));
    let mut loading = Loading::new(&shape, 1 << 11, 10);
    loading.read(&dense).unwrap();
    assert_eq!(loading.position(), END / 2);
    assert!(loading.read(&greedy).is_err());
}

/// A dump during which one leaf was split or joined: the others are as they were, and more than a mebibyte.
#[test]
#[cfg_attr(miri, ignore = "too many items")]
fn a_large_table_that_has_grown_or_shrunk_a_little_loads() {
    let shape = Shape { error_rate: 1e-9, ..shape(400_000, 0) };
    let mut table = empty(&shape).unwrap();
    (0..400_000).for_each(|item| _ = table.change(hash_of(item), |_, _| Some(0)).unwrap());
    for leaves in [table.leaves() - 1, table.leaves() + 1] {
        let mut loading = Loading::new(&shape, leaves, table.form.log2_quotients);
        loading.read(&words(&table)).unwrap();
        let loaded = loading.finish(table.items, (0, &[])).unwrap();
        validate(&loaded);
        assert!((0..400_000).all(|item| loaded.find(hash_of(item)).is_some()));
    }
}

#[test]
fn expired_cells_stay_expired_when_loaded_into_fewer_leaves() {
    let shape = shape(100, 2);
    let mut table = empty(&shape).unwrap();
    table.set_room(u64::MAX);
    (0..3000).for_each(|item| _ = table.refresh(hash_of(item), false).unwrap());
    table.open(10);
    table.refresh(hash_of(0), false).unwrap();
    assert!(table.leaves() > 2);
    let mut loading = Loading::new(&shape, 1, 10);
    loading.read(&words(&table)).unwrap();
    let (newest, counts) = counts(&table);
    let loaded = loading.finish(0, (newest, &counts)).unwrap();
    validate(&loaded);
    let found = (0..3000).filter(|item| loaded.age(hash_of(*item), newest).is_some()).count();
    assert!((1..100).contains(&found), "{found}");
}

#[test]
fn a_window_loads_although_items_were_deleted_during_the_dump() {
    let shape = shape(100, 2);
    let mut table = empty(&shape).unwrap();
    (0..50).for_each(|item| _ = table.refresh(hash_of(item), false).unwrap());
    let (newest, counts) = counts(&table);
    assert!(table.expire(hash_of(7)));
    let mut loading = Loading::new(&shape, 1, table.form.log2_quotients);
    loading.read(&words(&table)).unwrap();
    let loaded = loading.finish(0, (newest, &counts)).unwrap();
    assert_eq!(loaded.items, table.items);
}

/// A leaf isn't split if the table is planned for more. If it has no place for another cell, a window forgets one, or
/// refuses it without cleaning the leaf.
#[test]
#[cfg_attr(miri, ignore = "too many items")]
fn a_crowded_leaf_forgets_an_item_or_refuses_one() {
    let mut table = empty(&shape(1_000_000, 4)).unwrap();
    let hash_in_first = |item: u32| Hash::from(item) << table.depth_of(0);
    let hashes: Vec<Hash> = (0..MOST_CELLS as u32 + 1).map(hash_in_first).collect();
    let (last, rest) = hashes.split_last().unwrap();
    rest.iter().for_each(|hash| _ = table.refresh(*hash, false).unwrap());
    table.open(3);
    let before = words(&table);
    assert!(matches!(table.refresh(*last, false), Err(Error::Full)));
    assert!(words(&table) == before);
    assert_eq!(table.refresh(*last, true).unwrap(), None);
    let found = hashes.iter().filter(|hash| table.age(**hash, 3).is_some()).count();
    assert_eq!((found, table.items, table.age(*last, 3)), (MOST_CELLS, MOST_CELLS as u64, Some(0)));
    validate(&table);
    // Expired cells leave at once, although the leaf would be cleaned only later.
    table.open(4);
    assert_eq!(table.leaf(0).cells(), MOST_CELLS);
    let new = Hash::from(3 * MOST_CELLS as u32) << table.depth_of(0);
    assert_eq!(table.refresh(new, false).unwrap(), None);
    validate(&table);
}

/// Otherwise, BF.CLEAR would need more memory than the load.
#[test]
fn a_load_has_the_leaves_that_a_table_begins_with() {
    for capacity in [1, 500, 200_000] {
        let shape = shape(capacity, 0);
        let (leaves, form) = {
            let table = empty(&shape).unwrap();
            (table.leaves(), table.form)
        };
        let is_possible = |leaves, log2| Loading::is_possible(&shape, leaves, log2);
        assert!(is_possible(leaves, form.log2_quotients) && is_possible(4 * leaves, 10));
        assert!(leaves == 1 || !is_possible(leaves - 1, form.log2_quotients));
        assert!(form.log2_quotients == 0 || !is_possible(leaves, form.log2_quotients - 1));
    }
}

#[test]
fn fewer_quotients_and_leaves_than_planned_are_enough() {
    for (capacity, leaves, log2_quotients) in [(1_000_000, 1, 2), (1_000_000, 3, 10), (500, 1, 0)] {
        let shape = shape(capacity, 0);
        let mut loading = Loading::new(&shape, leaves, log2_quotients);
        let empty = [0, 1, 1]
            .map(|depth| if leaves == 1 { 0 } else { 2 - depth } << 32 | u64::from(log2_quotients) << 40);
        let empty = if leaves == 1 { &empty[..1] } else { &[empty[0], empty[0], empty[1]] };
        loading.read(empty).unwrap();
        let layer = Layer::from_table(&shape, loading.finish(0, (0, &[])).unwrap(), true).unwrap();
        let mut table = write(&layer);
        for item in 0..200 {
            table.change(hash_of(item), |_, _| Some(0)).unwrap();
        }
        for item in 0..200 {
            table.change(hash_of(item), |_, _| None).unwrap();
        }
        validate(&table);
        assert_eq!(table.cells, 0);
    }
}

#[test]
fn a_refused_item_changes_nothing() {
    let mut table = empty(&shape(100, 2)).unwrap();
    (0..50).for_each(|item| _ = table.refresh(hash_of(item), false).unwrap());
    table.open(2);
    (50..80).for_each(|item| _ = table.refresh(hash_of(item), false).unwrap());
    table.open(3);
    table.set_room(table.items);
    let before = words(&table);
    assert!(matches!(table.refresh(hash_of(1000), false), Err(Error::Full)));
    assert!(words(&table) == before);
}

#[test]
fn items_are_never_negative() {
    let shape = shape(100, 0);
    let mut table = empty(&shape).unwrap();
    table.change(hash_of(1), |_, _| Some(0)).unwrap();
    let mut loading = Loading::new(&shape, 1, table.form.log2_quotients);
    loading.read(&words(&table)).unwrap();
    let layer = Layer::from_table(&shape, loading.finish(0, (0, &[])).unwrap(), true).unwrap();
    let item = Bloom::new(spec(1, 0.01, Cell::Bit, 0)).unwrap().item_hash(&1u64.to_le_bytes());
    Quotients::remove_as::<Single>(&layer, item);
    assert_eq!(layer.items(), 0);
}

#[test]
fn high_error_rates_can_be_planned() {
    for rate in [0.999_999, 0.99, 0.9, 0.5, 1e-12] {
        for planned in (1..3000).step_by(7) {
            Quotient::new(rate, 0, planned, None).unwrap();
        }
    }
}

#[test]
fn clearing_a_layer_needs_no_second_lock() {
    let filter = Bloom::new(spec(100, 0.01, Cell::Bit, 0)).unwrap();
    layer_of(&filter).clear();
    assert_eq!(filter.items(), 0);
}

/// A reader that already has the lock would wait for a writer that waits for that reader.
#[test]
#[cfg_attr(miri, ignore)]
fn a_filter_is_compared_with_itself_beside_a_writer() {
    let mut filter = Bloom::new(spec(100, 0.01, Cell::Bit, 0)).unwrap();
    (0..5000u32).for_each(|item| _ = filter.add(item.to_le_bytes()).unwrap());
    let shared = filter.share();
    let compared = std::thread::spawn(move || (0..20).for_each(|_| assert!(shared.equal(&shared))));
    let mut item = 0u32;
    while !compared.is_finished() {
        filter.add((item % 5000).to_le_bytes()).unwrap();
        item += 1;
    }
    compared.join().unwrap();
}

/// A leaf that has as many cells as it can have refuses items, however often the table grows.
#[test]
fn a_full_leaf_refuses_items() {
    let spec = spec(820, 0.01, Cell::Bit, 0);
    let shape = spec.next_shape(&[]).unwrap();
    let mut table = empty(&shape).unwrap();
    for cell in 0..1 << 14 {
        let run = table.leaf(0).run(table.form, cell as usize % 1024);
        table.insert(0, run, (1 << 10 | cell >> 10, 0)).unwrap();
        table.spend(20);
    }
    validate(&table);
    let layer = Layer::from_table(&shape, table, true).unwrap();
    let mut filter = Bloom::from_parts(spec, Body::Chain(Chain::from_layers([layer].into_iter().collect())));
    let refused = (0..100u32).map(|item| filter.add(item.to_le_bytes())).filter(|added| added.is_err());
    assert!(refused.map(|added| assert!(matches!(added, Err(Error::Full)))).count() > 90);
}

/// Damaged words are refused, or are a table on which everything works.
#[test]
fn damaged_words_are_harmless() {
    let (mut random, mut loads) = (SmallRng::seed_from_u64(11), 0);
    for round in 0..if cfg!(miri) { 20 } else { 2000u64 } {
        let (generations, capacity) = ([0, 3][round as usize % 2], [1, 100, 5000][random.random_range(0..3)]);
        let shape = shape(capacity, generations);
        let mut table = empty(&shape).unwrap();
        table.set_room(u64::MAX);
        for step in 0..random.random_range(0..3000 / capacity + 20) {
            let item = hash_of(random.random_range(0..5000));
            match generations {
                0 => _ = table.change(item, |_, _| Some(0)).unwrap(),
                _ => _ = table.refresh(item, false).unwrap(),
            }
            if step % 50 == 0 && generations > 0 {
                table.open(table.newest() + 1);
            }
        }
        let mut words = words(&table);
        for _ in 0..random.random_range(0..4) {
            let at = random.random_range(0..words.len());
            let head = u64::from(random.random_range(0..4u32)) << 32
                | u64::from(random.random_range(0..11u32)) << 40;
            match random.random_range(0..5) {
                0 => words[at] ^= 1 << random.random_range(0..64),
                1 => words[at] = random.random(),
                2 => words.insert(at, head),
                3 => words.push(head),
                _ => words.truncate(at + 1),
            }
        }
        let leaves = if random.random() { table.leaves() } else { random.random_range(1..9) };
        let log2_quotients = if leaves == 1 { random.random_range(0..11) } else { 10 };
        let mut loading = Loading::new(&shape, leaves, log2_quotients);
        let split =
            if random.random_ratio(1, 8) { random.random_range(0..=words.len()) } else { words.len() };
        if loading.read(&words[..split]).is_err() | loading.read(&words[split..]).is_err() {
            continue;
        }
        let (newest, counts) = table.generations.as_ref().map_or_else(Default::default, |_| counts(&table));
        let Ok(mut loaded) = loading.finish(random.random_range(0..100), (newest, &counts)) else {
            continue;
        };
        validate(&loaded);
        loads += 1;
        loaded.set_room(u64::MAX);
        for _ in 0..200 {
            let item = hash_of(random.random_range(0..5000));
            match (generations, random.random()) {
                (0, true) => _ = loaded.change(item, |_, _| Some(0)),
                (0, false) => _ = loaded.change(item, |_, _| None),
                (_, true) => _ = loaded.refresh(item, false),
                (_, false) => _ = loaded.expire(item),
            }
        }
        validate(&loaded);
    }
    assert!(loads > 200 || cfg!(miri), "{loads} loads");
}

#[test]
fn a_chain_has_no_second_table() {
    let spec = spec(100, 0.01, Cell::Bit, 0);
    let layers = || (0..2).map(|_| Layer::new(spec.next_shape(&[]).unwrap()).unwrap()).collect();
    let filter = Bloom::from_parts(spec, Body::Chain(Chain::from_layers(layers())));
    assert!(Decoder::read(&Encoder::new(&filter).to_vec()).is_err());
}

/// A dump contains every item that stays, whatever happens to the table between its pieces.
#[test]
fn a_dump_goes_on_while_the_table_changes() {
    let mut random = SmallRng::seed_from_u64(13);
    for round in 0..if cfg!(miri) { 2 } else { 60u64 } {
        let generations = [0, 3][round as usize % 2];
        let shape = shape(1 + round, generations);
        let mut table = empty(&shape).unwrap();
        table.set_room(u64::MAX);
        let put = |table: &mut Quotient, item| match generations {
            0 => _ = table.change(hash_of(item), |_, _| Some(0)).unwrap(),
            _ => _ = table.refresh(hash_of(item), false).unwrap(),
        };
        let stays = 2000..2000 + random.random_range(1..1500);
        let others = 10_000..10_000 + random.random_range(1..6000);
        others.clone().filter(|_| round % 4 < 2).for_each(|item| put(&mut table, item));
        if generations > 0 {
            table.open(round % 7);
        }
        stays.clone().for_each(|item| put(&mut table, item));
        let head = (table.leaves(), table.form.log2_quotients);
        let mut loading = Loading::new(&shape, head.0, head.1);
        let (mut position, mut left) = (0, others);
        while position < END {
            let mut words = Vec::new();
            position = table.write(position, 1, &mut words).unwrap();
            loading.read(&words).unwrap();
            // Some partial uploads are saved and loaded in between.
            if random.random_ratio(1, 4) {
                let mut again = Loading::new(&shape, head.0, head.1);
                loading.write(1, |_, words| again.read(words).unwrap());
                assert_eq!(again.position(), loading.position());
                loading = again;
            }
            for item in left.by_ref().take(500) {
                if round % 4 < 2 {
                    table.change(hash_of(item), |_, before| before.and(None)).unwrap();
                } else {
                    put(&mut table, item);
                }
            }
        }
        let numbers = table.generations.as_ref().map_or_else(Default::default, |_| counts(&table));
        let loaded = loading.finish(0, (numbers.0, &numbers.1)).unwrap();
        validate(&loaded);
        // An item whose cell was another's is gone with it.
        for item in stays.map(hash_of).filter(|item| table.find(*item).is_some()) {
            assert!(loaded.find(item).is_some(), "{round}");
            assert!(generations == 0 || loaded.age(item, numbers.0) == Some(0), "{round}");
        }
    }
}
