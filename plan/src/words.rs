//! A plan in words.

use crate::cost::Cost;
use crate::growth::Growth;
use crate::numbers::{bytes, count, percent};
use crate::plan::Plan;
use serde::Serialize;

/// A plan as text for people, in the order in which it is shown.
#[derive(Debug, Serialize)]
pub struct Words {
    /// The kind of the filter, and its number of items.
    pub title: String,
    /// The description of the filter: names and values.
    pub filter: Vec<(&'static str, String)>,
    /// The growth of the filter; no rows if it doesn't grow.
    pub growth: Rows,
    /// What each kind costs, including RedisBloom's.
    pub kinds: Rows,
    /// The commands that create filters of these kinds.
    pub commands: Rows,
}

/// A table. `>` before the name of a column right-aligns it.
#[derive(Debug, Serialize)]
pub struct Rows {
    /// Names of the columns.
    pub columns: &'static [&'static str],
    /// Cells, by row.
    pub rows: Vec<Vec<String>>,
}

impl Plan {
    /// The plan in words.
    pub fn words(&self) -> Words {
        let filter = &self.filter;
        let mut lines = vec![
            ("memory", format!("{}, {:.2} bits per item", bytes(filter.memory_bytes), filter.bits_per_item)),
            ("error rate", format!("{} when full", percent(filter.error_rate))),
            ("a test", format!("{}, {} {}", cache_lines(filter), probes(filter), place(filter))),
            ("when full", filter.when_full.into()),
        ];
        if filter.room < filter.capacity {
            let room = format!("for about {} items, then the filter is full", count(filter.room));
            lines.push(("room", room));
        }
        if let Some(smaller) = &self.smaller {
            let memory =
                format!("{}, {:.2} bits per item", bytes(smaller.memory_bytes), smaller.bits_per_item);
            lines.push(("smaller", format!("{memory}, with LAYOUT QUOTIENT")));
        }
        if let Some(items) = self.items_in_gib {
            lines.push(("1 GiB holds", format!("{} items, if it is created for them", count(items))));
        }
        lines.push(("command", filter.command.clone()));
        let all = || self.kinds.iter().chain(&self.redisbloom);
        Words {
            title: format!("{} for {} items", in_words(&filter.kind), count(filter.capacity)),
            filter: lines,
            growth: Rows {
                columns: &[
                    ">items",
                    ">layers",
                    ">memory",
                    ">bits per item",
                    ">error rate",
                    ">fixed filter",
                    ">RedisBloom",
                ],
                rows: self.growth.iter().map(growth_row).collect(),
            },
            kinds: Rows {
                columns: &[
                    "kind",
                    "layout",
                    ">memory",
                    ">bits per item",
                    ">error rate",
                    ">cache lines",
                    "deletes",
                    "when full",
                ],
                rows: all().map(kind_row).collect(),
            },
            commands: Rows {
                columns: &["kind", "command"],
                rows: all().map(|kind| vec![kind.kind.clone(), kind.command.clone()]).collect(),
            },
        }
    }
}

fn growth_row(step: &Growth) -> Vec<String> {
    vec![
        count(step.capacity),
        step.layers.to_string(),
        bytes(step.memory_bytes),
        format!("{:.2}", step.bits_per_item),
        percent(step.error_rate),
        bytes(step.fixed_bytes),
        step.redisbloom_bytes.map_or("-".into(), bytes),
    ]
}

fn kind_row(kind: &Cost) -> Vec<String> {
    vec![
        kind.kind.clone(),
        kind.layout.into(),
        bytes(kind.memory_bytes),
        format!("{:.2}", kind.bits_per_item),
        percent(kind.error_rate),
        kind.cache_lines.to_string(),
        if kind.deletes { "yes" } else { "no" }.into(),
        kind.when_full.into(),
    ]
}

/// The kind as the start of a title, such as `A counting filter …` for `counting 8`.
fn in_words(kind: &str) -> String {
    match kind.split_once(' ') {
        Some(("counting", bits)) => format!("A counting filter with {bits} bits per counter"),
        Some(("window", generations)) => format!("A window of {generations} generations"),
        Some(("cuckoo", slots)) => format!("A cuckoo filter with {slots} slots per bucket"),
        _ => format!("A {kind} filter"),
    }
}

fn cache_lines(cost: &Cost) -> String {
    format!("{} cache line{}", cost.cache_lines, if cost.cache_lines == 1 { "" } else { "s" })
}

fn probes(cost: &Cost) -> String {
    let what = match cost.layout {
        "FUSE" | "RIBBON" => "bits a fingerprint",
        "QUOTIENT" => "prefix",
        _ if cost.kind.starts_with("cuckoo") => "slots",
        _ => "probes",
    };
    match cost.layers {
        1 => format!("{} {what}", cost.probes),
        layers => format!("{} {what} in each of {layers} layers", cost.probes),
    }
}

fn place(cost: &Cost) -> String {
    match cost.layout.parse::<bloomery::Layout>() {
        Ok(layout) => format!("{} ({layout})", layout.place()),
        Err(_) => "in two buckets".into(),
    }
}
