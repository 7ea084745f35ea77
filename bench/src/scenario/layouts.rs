//! The library without a server: compares the cost of LAYOUT AUTO and LAYOUT QUOTIENT, for several uses and sizes.

use super::core::test_in_groups;
use crate::bench::Bench;
use crate::clock::cpu_ns;
use crate::filters::{self, GROUP, fixed};
use crate::items::{BULK_WIDTH, Mix, item};
use crate::measure::{Series, Spread};
use crate::table;
use anyhow::{Result, ensure};
use bloomery::{Bloom, Cell, Family, ItemHash, Layout, Overflow, Spec};
use fastrand::Rng;
use std::ops::Range;

/// Number of items that a round tests, and minimum number of items that it adds.
const LEAST: u64 = 500_000;

/// Percentages of the capacity. The adds in a round fill a filter up to one of them.
const FULL: [u64; 2] = [50, 100];

/// The adds in a round are the last 1/n of the filter's items, for this n.
const PART: u64 = 10;

pub fn run(bench: &mut Bench) -> Result<()> {
    for capacity in [bench.scale.items / 1000, bench.scale.items / 10, bench.scale.items] {
        compare(bench.rounds, capacity)?;
    }
    Ok(())
}

/// The uses that are compared: specs of filters for this many items, with LAYOUT AUTO.
fn uses(capacity: u64) -> Vec<(&'static str, Spec)> {
    let of = |rate, cell| Spec { cell, ..fixed(capacity, rate, None) };
    let family = Family::Window { generations: 8, overflow: Overflow::Error, every_ms: 0 };
    vec![
        ("COUNTING 4 at 1%", of(0.01, Cell::Counter4)),
        ("COUNTING 4 at 0.01%", of(1e-4, Cell::Counter4)),
        ("COUNTING 16 at 1%", of(0.01, Cell::Counter16)),
        ("WINDOW 8 at 1%", Spec { family, capacity: capacity / 8, ..of(0.01, Cell::Bit) }),
        ("fixed at 1%", of(0.01, Cell::Bit)),
        ("fixed at 0.1%", of(0.001, Cell::Bit)),
        ("fixed at 0.01%", of(1e-4, Cell::Bit)),
        ("fixed at 0.0001%", of(1e-6, Cell::Bit)),
    ]
}

/// What one filter costs.
struct Measured {
    bits: f64,
    /// Times of a test and of an add, for each of [`FULL`].
    times: Vec<Series>,
}

fn compare(rounds: u64, capacity: u64) -> Result<()> {
    let mut lines = Vec::new();
    for (name, spec) in uses(capacity) {
        let both = [spec, Spec { layout: Some(Layout::Quotient), ..spec }];
        let mut measured = both
            .iter()
            .map(|spec| {
                let bits = Bloom::bytes_for(spec)? as f64 * 8.0 / capacity as f64;
                Ok(Measured { bits, times: vec![Series(Vec::new()); 2 * FULL.len()] })
            })
            .collect::<Result<Vec<_>>>()?;
        for (number, full) in FULL.into_iter().enumerate() {
            let items = capacity * full / 100;
            let before = items - items / PART;
            let filled = both
                .iter()
                .map(|spec| filters::filled_in_turn::<BULK_WIDTH>(*spec, before, items))
                .collect::<Result<Vec<_>>>()?;
            for round in 0..=rounds {
                let numbers = Mix::Half.numbers(LEAST, before, &mut Rng::with_seed(round));
                let tested: Vec<_> = numbers.into_iter().map(item).collect();
                for (filter, Measured { times, .. }) in filled.iter().zip(&mut measured) {
                    let (ns, _) = cpu_ns(|| test_in_groups(filter, &tested))?;
                    let add = add(filter, before..items)?;
                    if round > 0 {
                        times[2 * number].0.push(ns / LEAST as f64);
                        times[2 * number + 1].0.push(add);
                    }
                }
            }
        }
        for (layout, figures) in ["AUTO", "QUOTIENT"].into_iter().zip(&measured) {
            let mut line = vec![name.to_owned(), layout.to_owned(), table::number(figures.bits)];
            line.extend(figures.times.iter().map(|times| table::number(times.spread().median)));
            lines.push(line);
        }
        let over = |number: usize| measured[1].times[number].over(&measured[0].times[number]);
        let mut line = vec![String::new(), "ratio".to_owned()];
        line.push(table::number(measured[1].bits / measured[0].bits));
        line.extend((0..2 * FULL.len()).map(over).map(|ratio: Spread| table::spread(&ratio)));
        lines.push(line);
    }
    let title = format!("Layouts, {capacity} items, ns of CPU per item, in groups of {GROUP}");
    let header =
        ["", "", "bits per item", "test, half full", "add, half full", "test, 90% full", "add, to full"];
    table::print(&title, &header, &lines);
    Ok(())
}

/// Adds items in groups to one copy of the filter after another, until at least [`LEAST`] have been added. A window
/// gets them in its newest generation. Returns nanoseconds per add.
fn add(filter: &Bloom, numbers: Range<u64>) -> Result<f64> {
    let items: Vec<_> = numbers.clone().map(item::<BULK_WIDTH>).collect();
    let (mut ns, mut done) = (0.0, 0);
    while done < LEAST {
        let mut copy = filter.snapshot()?;
        let (once, refused) = cpu_ns(|| {
            let mut refused = 0;
            for group in items.chunks(GROUP) {
                let mut hashes = [ItemHash::default(); GROUP];
                for (hash, item) in hashes.iter_mut().zip(group) {
                    *hash = copy.hash(item).into();
                    copy.prefetch(*hash);
                }
                refused += hashes[..group.len()].iter().filter(|hash| copy.add(**hash).is_err()).count();
            }
            refused
        })?;
        ensure!(refused == 0, "{refused} adds were refused");
        (ns, done) = (ns + once, done + items.len() as u64);
    }
    Ok(ns / done as f64)
}
