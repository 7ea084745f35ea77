//! Compares tables with a plain map, and checks every law of a table after each step.

use super::generations::{Generations, payload};
use super::leaf::{Cell, Leaf, length, order};
use super::table::{Hash, Quotient, depth_in};
use crate::bits::Hits;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;

/// Checks everything that is true of every table.
pub(super) fn validate(table: &Quotient) {
    let (mut cells, mut bytes, mut sum) = (0, 0, 0f64);
    for index in 0..table.leaves() {
        let leaf = table.leaf(index);
        let list: Vec<Cell> = leaf.list(table.form).collect();
        assert_eq!(list.len(), leaf.cells());
        let key = |cell: &Cell| (cell.quotient, order(cell.remainder));
        for pair in list.windows(2) {
            assert!(key(&pair[0]) < key(&pair[1]), "in order");
            let [a, b] = [pair[0].remainder, pair[1].remainder];
            let shorter = length(a).min(length(b));
            assert!(pair[0].quotient < pair[1].quotient || (a ^ b).trailing_zeros() < shorter, "no prefix");
        }
        for cell in &list {
            assert!((cell.quotient as usize) < table.form.quotients());
            sum += f64::from(-(table.prefix_of(index, cell.remainder) as i32)).exp2();
            let run = leaf.run(table.form, cell.quotient as usize);
            let found = leaf.find(table.form, run, cell.remainder ^ 1 << length(cell.remainder));
            assert_eq!(
                found.map(|(_, remainder, payload)| (remainder, payload)),
                Some((cell.remainder, cell.payload))
            );
        }
        cells += list.len() as u64;
        bytes += leaf.bytes();
        assert_eq!(depth_in(table.leaves(), index), table.depth_of(index));
        let same = Leaf::build(table.form, &list, leaf.cleaned()).unwrap();
        assert!(same.list(table.form).eq(list));
    }
    assert_eq!(cells, table.cells);
    assert!(bytes <= table.bytes() && bytes + 16 * table.leaves().next_power_of_two() >= table.bytes());
    assert!((table.rate() - sum).abs() <= sum * 1e-9, "{} is {sum}", table.rate());
}

/// A hash of which only some bits aren't 0, so that prefixes collide.
fn hash(random: &mut SmallRng, bits: u32) -> Hash {
    Hash::from(random.random::<u64>() & ((1 << bits) - 1)) * 0x9E37_79B9_7F4A_7C15 % (1 << 70)
}

#[test]
fn counts_are_those_of_a_map() {
    for (seed, bits, payload, planned, rate) in [
        (1, 12, 4, 0, 0.01),
        (2, 6, 8, 0, 0.3),
        (3, 16, 16, 3000, 1e-6),
        (4, 14, 0, 0, 1e-9),
        (5, 20, 4, 0, 1e-3),
    ] {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut table = Quotient::new(rate, payload, planned, None).unwrap();
        // The prefixes that the table should have aren't known, but each item meets the same one until it is gone.
        let mut truth: HashMap<Hash, u64> = HashMap::new();
        let most = (1u64 << payload) - 1;
        let steps = if cfg!(miri) { 200 } else { 40_000 };
        let mut grows = true;
        for step in 0..steps {
            if step % 5000 == 0 {
                grows = !grows;
            }
            if random.random_ratio(if grows { 3 } else { 1 }, 4) {
                let item = hash(&mut random, bits);
                let added = table
                    .change(item, |_, before| Some(before.map_or(most.min(1), |count| most.min(count + 1))));
                added.unwrap();
                *truth.entry(item).or_default() += 1;
            } else if let Some(item) =
                truth.keys().nth(random.random_range(0..truth.len().clamp(1, 50))).copied()
            {
                let deletes = table.change(item, |_, before| match before {
                    Some(count) if count == most && most > 0 => Some(count),
                    count => count.map(|count| count.saturating_sub(1)).filter(|count| *count > 0),
                });
                let (before, after) = deletes.unwrap();
                assert!(before.is_some(), "{seed}: an item is missing");
                if before != after || payload == 0 {
                    let left = truth[&item] - 1;
                    if left == 0 {
                        truth.remove(&item)
                    } else {
                        truth.insert(item, left)
                    };
                }
                if payload == 0 {
                    // Without counts, an item's cell may have been another's.
                    truth.retain(|item, _| table.find(*item).is_some());
                }
            }
            if step % 97 == 0 || step + 1 == steps {
                validate(&table);
                for (item, count) in &truth {
                    let found = table.find(*item).map(|(_, payload)| payload);
                    assert!(
                        found.is_some_and(|found| payload == 0 || found >= (*count).min(most)),
                        "{seed} {step}"
                    );
                }
                assert!(table.rate() <= rate * (1.0 + 1e-12) || bits < 10, "{seed} {step}: {}", table.rate());
                validate(&table.copy().unwrap());
            }
        }
        let mut random = SmallRng::seed_from_u64(seed);
        let items: Vec<Hash> = (0..64).map(|_| hash(&mut random, bits)).collect();
        let mut found = [None; 64];
        table.find_many(
            Hits::first(64),
            |number| items[number],
            |number, _, payload| found[number] = Some(payload),
        );
        let singly: Vec<_> = items.iter().map(|item| table.find(*item).map(|(_, payload)| payload)).collect();
        assert_eq!(found.to_vec(), singly);
        for item in truth.keys() {
            while table
                .change(*item, |_, count| count.map(|count| count.saturating_sub(1)).filter(|c| *c > 0))
                .unwrap()
                .1
                .is_some()
            {}
        }
        validate(&table);
    }
}

#[test]
fn ages_are_those_of_a_map() {
    for (seed, span, bits) in [(1, 2, 12), (2, 8, 14), (3, 60, 10), (4, 1000, 13)] {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut table = Quotient::new(0.01, payload(span), 0, Generations::new(span).ok()).unwrap();
        let mut truth: HashMap<Hash, u64> = HashMap::new();
        let mut newest = 0u64;
        for step in 0..if cfg!(miri) { 200 } else { 30_000 } {
            match random.random_range(0..1000) {
                0 => {
                    newest += random.random_range(1..=u64::from(span) + 3);
                    table.open(newest);
                }
                1..20 => {
                    newest += 1;
                    table.open(newest);
                }
                20..100 => {
                    if let Some(item) = truth.keys().next().copied() {
                        let was = table.expire(item);
                        let due = truth[&item] + u64::from(span) <= newest;
                        assert!(was || due);
                        truth.retain(|item, _| table.age(*item, newest).is_some());
                    }
                }
                _ => {
                    let item = hash(&mut random, bits);
                    table.refresh(item, false).unwrap();
                    truth.insert(item, newest);
                }
            }
            truth.retain(|_, added| *added + u64::from(span) > newest);
            if step % 101 == 0 {
                validate(&table);
                for (item, added) in &truth {
                    let age = table.age(*item, newest);
                    assert!(age.is_some_and(|age| age <= newest - added), "{seed} {step}: {age:?}");
                }
                let generations = table.generations.as_ref().unwrap();
                let sum: u64 =
                    (0..u64::from(span)).map(|age| generations.items(newest + u64::from(span) - age)).sum();
                assert_eq!(sum, table.items);
                assert!(table.items <= table.cells);
            }
        }
    }
}

/// In a full table, a new item takes the place of one item in its leaf, which is as old as any other in it.
#[test]
fn a_full_table_forgets_the_oldest_in_a_leaf() {
    for (seed, span, room, rate) in
        [(1, 2, 40, 1e-6), (2, 8, 700, 0.01), (3, 60, 5000, 0.001), (4, 1000, 3000, 0.1)]
    {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut table = Quotient::new(rate, payload(span), room, Generations::new(span).ok()).unwrap();
        table.set_room(room);
        let (mut newest, mut forgotten) = (0u64, 0u64);
        for step in 0..if cfg!(miri) { 100 } else { 10 * room } {
            if random.random_ratio(1, (3 * room / u64::from(span)) as u32) {
                newest += 1;
                table.open(newest);
            }
            let item = hash(&mut random, 40);
            let leaf = table.address(item).leaf;
            let ages = |table: &Quotient| -> Vec<u64> {
                let cells = table.list(leaf).0;
                let age = |cell: &Cell| table.age_of(table.leaf(leaf), cell.payload, newest).unwrap();
                let mut ages: Vec<u64> = cells.iter().map(age).collect();
                ages.sort_unstable();
                ages
            };
            let (before, was_there, items) = (ages(&table), table.age(item, newest), table.items);
            let leaves = table.leaves();
            table.refresh(item, true).unwrap();
            if step % 101 == 0 {
                validate(&table);
            }
            if was_there.is_none() && items >= room && table.leaves() == leaves {
                let rest = &before[..before.len() - 1];
                assert_eq!(ages(&table), [&[0], rest].concat(), "{seed} {step}");
                assert_eq!(table.items, items);
                forgotten += 1;
            }
            assert!(table.age(item, newest) == Some(0) && table.items <= room.max(items));
        }
        assert!(forgotten >= if cfg!(miri) { 0 } else { room }, "{forgotten}");
    }
}
