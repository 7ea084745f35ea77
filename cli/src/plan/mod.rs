//! `bloomery plan`: what a filter will cost, before there is one.

mod chart;

use crate::error::{Failure, Outcome};
use crate::info::cuckoo_rate;
use crate::output::{self, Table, bytes, count, percent};
use crate::reserve::{Reserve, Wanted, command};
use anyhow::Context;
use bloomery::{Cell, CuckooSpec, Family, Layout, Overflow, Spec};
use clap::ValueEnum;
use serde::Serialize;
use std::path::PathBuf;

/// Say what a filter for so many items costs, compare the kinds, and print the command that makes it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery plan -n 10M -e 1%
  bloomery plan -n 10M -e 0.1% --counting=8
  bloomery plan -n 10k -e 1% --grow 1000         # what it costs to start small
  bloomery plan -n 10M -e 1% --svg memory.svg
  bloomery plan -n 10M -e 1% --json | jq '.kinds[] | {kind, memory_bytes}'")]
pub(crate) struct Options {
    /// Growth of a scaling filter that is shown: up to so many times the capacity
    #[arg(long, value_name = "TIMES", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    grow: u64,

    /// Draw a chart into this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// What to draw
    #[arg(long, requires = "svg", default_value = "memory")]
    chart: Chart,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reserve: Reserve,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Chart {
    /// Memory of each kind by the error rate
    Memory,
    /// Memory of a scaling filter as it grows
    Growth,
}

/// Generations of the window in the comparison.
const GENERATIONS: u8 = 4;

/// How full buckets of two and of four slots get before an add may fail (Fan et al., CoNEXT 2014, table 2: 84 %, 95 %).
const CUCKOO_LOADS: [(u8, f64); 2] = [(2, 0.84), (4, 0.95)];

/// What one filter costs.
#[derive(Debug, Serialize)]
struct Cost {
    kind: String,
    command: String,
    /// Items that all layers are sized for.
    capacity: u64,
    /// Items that surely find room in what the memory is.
    room: u64,
    memory_bytes: u64,
    bits_per_item: f64,
    /// When it is full.
    error_rate: f64,
    cells: u64,
    bits_per_cell: u32,
    /// Probes of an item in each layer; slots that a test of a cuckoo filter looks at.
    probes: u32,
    layout: &'static str,
    layers: u64,
    /// Cache lines that a test of an item that is there looks at, at most.
    cache_lines: u64,
    deletes: bool,
    when_full: &'static str,
}

/// A scaling filter that has grown to so many layers.
#[derive(Debug, Serialize)]
struct Growth {
    layers: u64,
    capacity: u64,
    memory_bytes: u64,
    bits_per_item: f64,
    /// Of all layers, full.
    error_rate: f64,
    /// A filter that was made for this capacity.
    fixed_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Plan {
    filter: Cost,
    growth: Vec<Growth>,
    kinds: Vec<Cost>,
}

/// Plans.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let wanted = options.reserve.wanted()?;
    let plan = Plan {
        filter: Cost { command: options.reserve.command(&wanted, "KEY").join(" "), ..cost(&wanted)? },
        growth: growth(&wanted, options.grow)?,
        kinds: kinds(&wanted)?,
    };
    if let Some(path) = &options.svg {
        let drawing = match (options.chart, &wanted) {
            (Chart::Memory, Wanted::Bloom(spec)) => chart::memory(spec)?,
            (Chart::Growth, Wanted::Bloom(spec)) if !plan.growth.is_empty() => {
                chart::growth(spec, &plan.growth)?
            }
            (Chart::Growth, _) => {
                return Err(Failure::Usage("--chart growth is for scaling filters, which grow".into()).into());
            }
            (Chart::Memory, Wanted::Cuckoo(_)) => {
                let text = "--chart memory needs an --error-rate: plan a Bloom filter, cuckoo filters are in its chart";
                return Err(Failure::Usage(text.into()).into());
            }
        };
        std::fs::write(path, drawing).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if options.json {
        output::json(&plan)?;
    } else {
        print(&plan)?;
    }
    Ok(Outcome::Done)
}

fn print(plan: &Plan) -> anyhow::Result<()> {
    let filter = &plan.filter;
    let mut text = format!("{} for {} items\n\n", in_words(&filter.kind), count(filter.capacity));
    let mut line = |name: &str, value: String| text.push_str(&format!("  {name:<14}{value}\n"));
    line("memory", format!("{}, {:.2} bits per item", bytes(filter.memory_bytes), filter.bits_per_item));
    line("error rate", format!("{} when full", percent(filter.error_rate)));
    line("a test", format!("{}, {} {}", lines(filter.cache_lines), probes(filter), place(filter)));
    line("when full", filter.when_full.into());
    if filter.room < filter.capacity {
        line("room", format!("for about {} items, and then it is full", count(filter.room)));
    }
    line("make it", filter.command.clone());
    if !plan.growth.is_empty() {
        text.push_str("\nAs it grows\n\n");
        let mut table = Table::new(&[
            ">items",
            ">layers",
            ">memory",
            ">bits per item",
            ">error rate",
            ">made for it at once",
        ]);
        for step in &plan.growth {
            table.row([
                count(step.capacity),
                step.layers.to_string(),
                bytes(step.memory_bytes),
                format!("{:.2}", step.bits_per_item),
                percent(step.error_rate),
                bytes(step.fixed_bytes),
            ]);
        }
        text.push_str(&indented(&table.render()));
    }
    text.push_str("\nThe kinds, each for as many items\n\n");
    let mut table = Table::new(&[
        "kind",
        ">memory",
        ">bits per item",
        ">error rate",
        ">cache lines",
        "deletes",
        "when full",
    ]);
    for kind in &plan.kinds {
        table.row([
            kind.kind.clone(),
            bytes(kind.memory_bytes),
            format!("{:.2}", kind.bits_per_item),
            percent(kind.error_rate),
            kind.cache_lines.to_string(),
            if kind.deletes { "yes" } else { "no" }.into(),
            kind.when_full.into(),
        ]);
    }
    text.push_str(&indented(&table.render()));
    text.push('\n');
    let mut table = Table::new(&["kind", "make it"]);
    plan.kinds.iter().for_each(|kind| table.row([kind.kind.clone(), kind.command.clone()]));
    text.push_str(&indented(&table.render()));
    std::io::Write::write_all(&mut std::io::stdout().lock(), text.as_bytes())?;
    Ok(())
}

/// `counting 8` as the beginning of a sentence.
fn in_words(kind: &str) -> String {
    match kind.split_once(' ') {
        Some(("counting", bits)) => format!("A counting filter with {bits} bits a counter"),
        Some(("window", generations)) => format!("A window of {generations} generations"),
        Some(("cuckoo", slots)) => format!("A cuckoo filter with {slots} slots a bucket"),
        _ => format!("A {kind} filter"),
    }
}

fn lines(number: u64) -> String {
    format!("{number} cache line{}", if number == 1 { "" } else { "s" })
}

fn probes(cost: &Cost) -> String {
    let what = if cost.kind.starts_with("cuckoo") { "slots" } else { "probes" };
    match cost.layers {
        1 => format!("{} {what}", cost.probes),
        layers => format!("{} {what} in each of {layers} layers", cost.probes),
    }
}

fn place(cost: &Cost) -> &'static str {
    match cost.layout {
        "BLOCKED" => "in one block of 512 bits (BLOCKED)",
        "CLASSIC" => "all over the layer (CLASSIC)",
        _ => "in two buckets",
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// What a new filter of this kind costs.
fn cost(wanted: &Wanted) -> anyhow::Result<Cost> {
    match wanted {
        Wanted::Bloom(spec) => bloom(spec),
        Wanted::Cuckoo(spec) => Ok(cuckoo(spec, spec.capacity)),
    }
}

fn bloom(spec: &Spec) -> anyhow::Result<Cost> {
    let shape = spec.next_shape(&[]).map_err(|error| Failure::Usage(error.to_string()))?;
    let (kind, layers, when_full) = match spec.family {
        Family::Fixed(overflow) => {
            let kind =
                if spec.cell.counts() { format!("counting {}", spec.cell.bits()) } else { "fixed".into() };
            (kind, 1, on_full(overflow))
        }
        Family::Scaling { .. } => ("scaling".into(), 1, "grows by a layer"),
        Family::Window { generations, overflow, .. } => {
            (format!("window {generations}"), generations.into(), on_full(overflow))
        }
    };
    let capacity = shape.capacity.saturating_mul(layers);
    let memory_bytes = shape.bytes().saturating_mul(layers);
    let one = shape.rate_at(shape.capacity as f64);
    let lines = match shape.layout {
        Layout::Blocked => 1,
        Layout::Classic => shape.probes.into(),
    };
    Ok(Cost {
        kind,
        command: command(&Wanted::Bloom(*spec), "KEY").join(" "),
        capacity,
        room: capacity,
        memory_bytes,
        bits_per_item: memory_bytes as f64 * 8.0 / capacity as f64,
        error_rate: 1.0 - (1.0 - one).powi(i32::try_from(layers).unwrap_or(i32::MAX)),
        cells: shape.cells.saturating_mul(layers),
        bits_per_cell: shape.cell.bits(),
        probes: shape.probes,
        layout: match shape.layout {
            Layout::Blocked => "BLOCKED",
            Layout::Classic => "CLASSIC",
        },
        layers,
        cache_lines: layers * lines,
        deletes: spec.cell.counts(),
        when_full,
    })
}

fn on_full(overflow: Overflow) -> &'static str {
    match overflow {
        Overflow::Error => "refuses new items",
        Overflow::Saturate => "error rate rises",
    }
}

/// A cuckoo filter that holds `items` items.
fn cuckoo(spec: &CuckooSpec, items: u64) -> Cost {
    let buckets = spec.first_buckets();
    let slots = spec.slots_of(buckets);
    let memory_bytes = spec.bytes_of(buckets);
    let fill = (items as f64 / slots as f64).min(1.0);
    let seen = 2 * u32::from(spec.bucket_size);
    Cost {
        kind: format!("cuckoo {}", spec.bucket_size),
        command: command(&Wanted::Cuckoo(*spec), "KEY").join(" "),
        capacity: items,
        room: items.min((load(spec.bucket_size) * slots as f64) as u64),
        memory_bytes,
        bits_per_item: memory_bytes as f64 * 8.0 / items as f64,
        error_rate: cuckoo_rate(spec.bucket_size.into(), 1, fill),
        cells: slots,
        bits_per_cell: 8,
        probes: seen,
        layout: "BUCKETS",
        layers: 1,
        cache_lines: 2,
        deletes: true,
        when_full: if spec.expansion == 0 { "refuses new items" } else { "grows by a sub-filter" },
    }
}

/// How full buckets of so many slots get: larger ones at least as full as those of four; of one slot, half.
fn load(bucket_size: u8) -> f64 {
    match bucket_size {
        1 => 0.5,
        2 | 3 => CUCKOO_LOADS[0].1,
        _ => CUCKOO_LOADS[1].1,
    }
}

/// The cuckoo filter of this bucket size that takes `items` items before its first sub-filter is full.
fn roomy_cuckoo(items: u64, bucket_size: u8, load: f64, like: &Spec) -> CuckooSpec {
    let spec = |capacity: u64| CuckooSpec {
        capacity: capacity.max(2 * u64::from(bucket_size)),
        bucket_size,
        max_iterations: 20,
        expansion: 1,
        origin: bloomery::filter::Origin::Bloomery,
        hash: like.hash,
        seed: like.seed,
    };
    let slots = |spec: &CuckooSpec| spec.slots_of(spec.first_buckets());
    let has_room = |spec: &CuckooSpec| items as f64 <= load * slots(spec) as f64;
    // Buckets are a power of two: most capacities leave room enough, and twice the slots always do.
    let tight = spec(items);
    let candidates = [tight, spec((items as f64 / load).ceil() as u64)];
    candidates.into_iter().find(has_room).unwrap_or_else(|| spec(2 * slots(&tight)))
}

/// Every kind for the items and the error rate of this filter.
fn kinds(wanted: &Wanted) -> anyhow::Result<Vec<Cost>> {
    let (items, base) = match wanted {
        Wanted::Bloom(spec) => {
            let generations = match spec.family {
                Family::Window { generations, .. } => generations.into(),
                _ => 1,
            };
            (spec.capacity.saturating_mul(generations), *spec)
        }
        // At the error rate that it has when it is full.
        Wanted::Cuckoo(spec) => {
            let rate = cuckoo(spec, spec.slots_of(spec.first_buckets())).error_rate;
            (spec.capacity, Spec { hash: spec.hash, ..Spec::scaling(spec.capacity, rate) })
        }
    };
    let Spec { hash, layout, shards, seed, .. } = base;
    let spec = |like: Spec| Spec { hash, layout, shards, seed, capacity: items, ..like };
    let rate = base.error_rate;
    let mut specs = vec![spec(Spec::fixed(items, rate)), spec(Spec::scaling(items, rate))];
    for cell in [Cell::Counter4, Cell::Counter8, Cell::Counter16] {
        specs.push(Spec { cell, ..spec(Spec::counting(items, rate)) });
    }
    let window = Spec::window(items, rate, GENERATIONS);
    specs.push(Spec { capacity: items.div_ceil(GENERATIONS.into()), ..spec(window) });
    // One that no size makes possible is no reason to hide the others.
    let mut costs: Vec<Cost> = specs.iter().filter_map(|spec| bloom(spec).ok()).collect();
    costs.extend(
        CUCKOO_LOADS.iter().map(|&(slots, load)| cuckoo(&roomy_cuckoo(items, slots, load, &base), items)),
    );
    Ok(costs)
}

/// How a scaling filter grows to `times` its capacity, a line per layer.
fn growth(wanted: &Wanted, times: u64) -> anyhow::Result<Vec<Growth>> {
    let Wanted::Bloom(spec) = wanted else { return Ok(Vec::new()) };
    if !matches!(spec.family, Family::Scaling { .. }) {
        return Ok(Vec::new());
    }
    let (mut capacities, mut steps) = (Vec::new(), Vec::new());
    let (mut capacity, mut memory_bytes, mut none_lies) = (0u64, 0u64, 1.0f64);
    let target = spec.capacity.saturating_mul(times);
    // More layers than this say nothing that fewer do not: it grows by the same capacity again and again.
    while capacity < target && steps.len() < 64 {
        let Ok(shape) = spec.next_shape(&capacities) else { break };
        capacities.push(shape.capacity);
        capacity = capacity.saturating_add(shape.capacity);
        memory_bytes = memory_bytes.saturating_add(shape.bytes());
        none_lies *= 1.0 - shape.rate_at(shape.capacity as f64);
        let fixed = Spec { family: Family::Fixed(Overflow::Error), capacity, ..*spec };
        steps.push(Growth {
            layers: capacities.len() as u64,
            capacity,
            memory_bytes,
            bits_per_item: memory_bytes as f64 * 8.0 / capacity as f64,
            error_rate: 1.0 - none_lies,
            fixed_bytes: fixed.next_shape(&[]).map_or(0, |shape| shape.bytes()),
        });
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bloomery::{Bloom, Filter};

    #[test]
    fn the_costs_are_those_of_real_filters() {
        for (spec, kind) in [
            (Spec::fixed(10_000, 0.01), "fixed"),
            (Spec::counting(10_000, 0.001), "counting 4"),
            (Spec::window(10_000, 0.01, 5), "window 5"),
        ] {
            let cost = bloom(&spec).unwrap();
            let real = Bloom::new(spec).unwrap();
            assert_eq!(
                (cost.kind.as_str(), cost.memory_bytes, cost.cells),
                (kind, real.bytes(), real.cells())
            );
            assert_eq!(cost.capacity, real.capacity());
            assert!(
                cost.error_rate <= spec.error_rate && cost.error_rate > 0.9 * spec.error_rate,
                "{cost:?}"
            );
        }
        let spec = roomy_cuckoo(10_000, 4, 0.95, &Spec::fixed(1, 0.1));
        let real = bloomery::Cuckoo::new(spec).unwrap();
        assert_eq!(cuckoo(&spec, 10_000).memory_bytes, Filter::Cuckoo(Box::new(real)).bytes());
    }

    #[test]
    fn the_room_of_a_cuckoo_filter_is_found() {
        let like = Spec::fixed(1, 0.1);
        for (slots, load) in CUCKOO_LOADS {
            // Tight: a capacity that is all but all of its slots.
            let spec = CuckooSpec { capacity: 1 << 14, ..roomy_cuckoo(1 << 14, slots, load, &like) };
            let cost = cuckoo(&spec, spec.capacity);
            assert!(cost.room < spec.capacity);
            let mut real = bloomery::Cuckoo::new(CuckooSpec { expansion: 0, ..spec }).unwrap();
            for item in 0..cost.room {
                let hash = real.hash(&item.to_le_bytes());
                assert!(real.insert(hash).is_ok(), "{item} of {}", cost.room);
            }
        }
    }

    #[test]
    fn growth_is_that_of_a_filter_that_grew() {
        let spec = Spec::scaling(1000, 0.01);
        let steps = growth(&Wanted::Bloom(spec), 10).unwrap();
        let mut real = Bloom::new(spec).unwrap();
        for step in &steps {
            assert_eq!((step.capacity, step.memory_bytes), (real.capacity(), real.bytes()));
            assert!(step.error_rate <= 0.01);
            real.grow().unwrap();
        }
        assert!(steps.last().unwrap().capacity >= 10_000 && steps[steps.len() - 2].capacity < 10_000);
    }

    #[test]
    fn a_cuckoo_filter_for_the_items_has_room_for_them() {
        for items in [4, 1000, 55_000, 65_000, 1 << 20, 10_000_000] {
            for (slots, load) in CUCKOO_LOADS {
                let spec = roomy_cuckoo(items, slots, load, &Spec::fixed(1, 0.1));
                assert!(items as f64 <= load * spec.slots_of(spec.first_buckets()) as f64, "{items} {slots}");
                assert_eq!(cuckoo(&spec, items).room, items);
            }
        }
    }
}
