//! Prints a plan for people.

use super::cost::{Cost, Plan};
use crate::output::{Table, bytes, count, percent};

pub(super) fn print(plan: &Plan) -> anyhow::Result<()> {
    let filter = &plan.filter;
    let mut text = format!("{} for {} items\n\n", in_words(&filter.kind), count(filter.capacity));
    let mut line = |name: &str, value: String| text.push_str(&format!("  {name:<14}{value}\n"));
    line("memory", format!("{}, {:.2} bits per item", bytes(filter.memory_bytes), filter.bits_per_item));
    line("error rate", format!("{} when full", percent(filter.error_rate)));
    line("a test", format!("{}, {} {}", lines(filter.cache_lines), probes(filter), place(filter)));
    line("when full", filter.when_full.into());
    if filter.room < filter.capacity {
        line("room", format!("for about {} items, then the filter is full", count(filter.room)));
    }
    line("command", filter.command.clone());
    if !plan.growth.is_empty() {
        text.push_str("\nAs it grows\n\n");
        let mut table =
            Table::new(&[">items", ">layers", ">memory", ">bits per item", ">error rate", ">fixed filter"]);
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
    text.push_str("\nThe kinds, each for the same number of items\n\n");
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
    let mut table = Table::new(&["kind", "command"]);
    plan.kinds.iter().for_each(|kind| table.row([kind.kind.clone(), kind.command.clone()]));
    text.push_str(&indented(&table.render()));
    std::io::Write::write_all(&mut std::io::stdout().lock(), text.as_bytes())?;
    Ok(())
}

/// The kind as the start of a sentence, such as `A counting filter …` for `counting 8`.
pub(super) fn in_words(kind: &str) -> String {
    match kind.split_once(' ') {
        Some(("counting", bits)) => format!("A counting filter with {bits} bits per counter"),
        Some(("window", generations)) => format!("A window of {generations} generations"),
        Some(("cuckoo", slots)) => format!("A cuckoo filter with {slots} slots per bucket"),
        _ => format!("A {kind} filter"),
    }
}

pub(super) fn lines(number: u64) -> String {
    format!("{number} cache line{}", if number == 1 { "" } else { "s" })
}

pub(super) fn probes(cost: &Cost) -> String {
    let what = match cost.layout {
        "FINGERPRINT" | "FUSE" => "bits a fingerprint",
        _ if cost.kind.starts_with("cuckoo") => "slots",
        _ => "probes",
    };
    match cost.layers {
        1 => format!("{} {what}", cost.probes),
        layers => format!("{} {what} in each of {layers} layers", cost.probes),
    }
}

pub(super) fn place(cost: &Cost) -> &'static str {
    match cost.layout {
        "BLOCKED" => "in one block of 512 bits (BLOCKED)",
        "CLASSIC" => "across the layer (CLASSIC)",
        "FUSE" => "across three cells (FUSE)",
        "FINGERPRINT" => "in one of two pairs of cells (FINGERPRINT)",
        _ => "in two buckets",
    }
}

pub(super) fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}
