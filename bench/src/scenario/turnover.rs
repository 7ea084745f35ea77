//! The library without a server: adds to tables that are half full or full, each after a delete, and unions
//! of tables.

use crate::bench::Bench;
use crate::clock::cpu_ns;
use crate::filters::fixed;
use crate::items::{BULK_WIDTH, item};
use crate::table;
use anyhow::{Context, Result, ensure};
use bloomery::{Bloom, Cell, Family, Layout, Overflow, Spec};
use fastrand::Rng;

/// How many times each item is replaced, on average.
const TURNOVERS: u64 = 10;

pub fn run(bench: &mut Bench) -> Result<()> {
    let capacity = bench.scale.items / 10;
    let spec = |rate, cell| Spec { cell, ..fixed(capacity, rate, Some(Layout::Quotient)) };
    let family = Family::Window { generations: 8, overflow: Overflow::Error, every_ms: 0 };
    let window = Spec { family, capacity: capacity / 8, ..spec(0.01, Cell::Bit) };
    let mut lines = Vec::new();
    for (name, spec) in [
        ("COUNTING 4 at 1%", spec(0.01, Cell::Counter4)),
        ("COUNTING 4 at 0.1%", spec(0.001, Cell::Counter4)),
        ("COUNTING 16 at 0.0001%", spec(1e-6, Cell::Counter16)),
        ("WINDOW 8 at 1%", window),
    ] {
        for percent in [50, 100] {
            let mut times = replace(spec, capacity * percent / 100).with_context(|| name.to_owned())?;
            times.sort_unstable_by(f64::total_cmp);
            let at = |part: f64| table::number(times[((times.len() - 1) as f64 * part) as usize]);
            let full = format!("{percent}% full");
            lines.push(vec![name.to_owned(), full, at(0.5), at(0.99), at(0.999), at(1.0)]);
        }
    }
    let title = format!(
        "Adds to tables for {capacity} items, each after a delete, {TURNOVERS} times as many as items"
    );
    table::print(&title, &["", "", "median, ns", "p99", "p99.9", "worst"], &lines);
    let mut lines = Vec::new();
    for (name, spec) in
        [("fixed at 1%", spec(0.01, Cell::Bit)), ("COUNTING 4 at 1%", spec(0.01, Cell::Counter4))]
    {
        for percent in [10, 50, 90] {
            let mut times = Vec::new();
            for _ in 0..bench.rounds {
                times.push(unite(spec, capacity * percent / 100)?);
            }
            times.sort_unstable_by(f64::total_cmp);
            lines.push(vec![
                name.to_owned(),
                format!("{percent}% of the items"),
                table::number(times[times.len() / 2]),
            ]);
        }
    }
    table::print(
        "Unions with a filter that has the other items",
        &["", "of the source", "ns per item"],
        &lines,
    );
    Ok(())
}

/// Nanoseconds of processor time of a union, per item in the source. The source contains the first `items` items, and
/// the target contains the others, up to the capacity.
fn unite(spec: Spec, items: u64) -> Result<f64> {
    let (mut into, mut from) = (Bloom::new(spec)?, Bloom::new(spec)?);
    for number in 0..spec.capacity {
        let filter = if number < items { &mut from } else { &mut into };
        filter.add(item::<BULK_WIDTH>(number))?;
    }
    let (ns, united) = cpu_ns(|| into.union(&from))?;
    united?;
    Ok(ns / items as f64)
}

/// Nanoseconds of processor time of each add when all `items` items are replaced [`TURNOVERS`] times on average. No
/// add may be refused.
fn replace(spec: Spec, items: u64) -> Result<Vec<f64>> {
    let mut filter = Bloom::new(spec)?;
    for number in 0..items {
        filter.add(item::<BULK_WIDTH>(number))?;
    }
    let mut empty = (0..1001).map(|_| Ok(cpu_ns(|| ())?.0)).collect::<Result<Vec<_>>>()?;
    empty.sort_unstable_by(f64::total_cmp);
    let clock = empty[empty.len() / 2];
    let (mut live, mut rng): (Vec<u64>, _) = ((0..items).collect(), Rng::with_seed(items));
    let mut times = Vec::with_capacity((items * TURNOVERS) as usize);
    for number in items..items * (TURNOVERS + 1) {
        let gone = std::mem::replace(&mut live[rng.usize(..items as usize)], number);
        // In a window, items that can't be told apart are deleted together.
        let is_gone = filter.remove(item::<BULK_WIDTH>(gone))?.present;
        ensure!(is_gone || filter.window().is_some(), "{gone} is missing");
        let (ns, added) = cpu_ns(|| filter.add(item::<BULK_WIDTH>(number)))?;
        added?;
        times.push((ns - clock).max(0.0));
    }
    Ok(times)
}
