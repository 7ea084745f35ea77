//! Shows what is known about a filter, as text for people.

use super::info::FilterInfo;
use crate::output::{Table, bytes, count, percent};

/// Everything that is known about a filter: the advice, a line per field, and a table of the layers.
pub(crate) fn lines(info: &FilterInfo) -> Vec<String> {
    let mut lines: Vec<String> = info.advice.iter().map(|advice| format!("! {advice}")).collect();
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            lines.push(format!("{name:<22}{value}"));
        }
    };
    let rate = |rate: Option<f64>| rate.map(percent);
    line("kind", Some(format!("{} ({})", info.kind, info.origin).replace(" ()", "")));
    line("items", Some(count(info.items)));
    line("estimated", info.approximate_items.map(count));
    line(
        "capacity",
        info.capacity.map(|capacity| format!("{} ({:.0}% full)", count(capacity), info.full() * 100.0)),
    );
    line("error rate, promised", rate(info.error_rate));
    line("error rate, now", rate(info.error_rate_now));
    if let Some(feedback) = &info.feedback {
        for (name, span) in [("minute", &feedback.minute), ("hour", &feedback.hour), ("life", &feedback.life)]
        {
            let observed = rate(span.observed_error_rate).unwrap_or("-".into());
            let text =
                format!("{observed} ({} of {} checked were false)", count(span.r#false), count(span.checked));
            line(&format!("error rate, {name}"), Some(text));
        }
    }
    line("fill", rate(info.fill));
    line("tests: yes", info.tests_yes.map(count));
    line("tests: no", info.tests_no.map(count));
    line("adds", info.adds.map(count));
    line("deletes", info.deletes.map(count));
    line("memory", Some(bytes(info.bytes())));
    line("layout", info.layout.clone());
    line("hash", info.hash.clone());
    line("shards", info.shards.map(count));
    line("bits per cell", info.bits_per_cell.map(count));
    line("when full", info.on_full.clone());
    line("generation", info.generation.map(count));
    line("next rotation", info.next_rotation_ms.map(|ms| format!("in {} s", count(ms / 1000))));
    line("saturated counters", info.saturated_counters.map(count));
    if let Some(rebuild) = &info.rebuild {
        let items = rebuild.items.map_or("-".into(), count);
        let capacity = rebuild.capacity.map_or("-".into(), count);
        line("rebuild", Some(format!("{}: {items} of {capacity} items", rebuild.status)));
    }
    lines.push(String::new());
    let mut table = Table::new(&[
        "layer",
        ">items",
        ">capacity",
        ">fill",
        ">error rate",
        ">now",
        ">cells",
        ">probes",
        "layout",
    ]);
    for (index, layer) in info.layers.iter().enumerate() {
        let number = layer.age.map_or(index.to_string(), |age| format!("age {age}"));
        let dash = || "-".to_owned();
        table.row([
            number,
            count(layer.items),
            layer.capacity.map_or_else(dash, count),
            rate(layer.fill).unwrap_or_else(dash),
            rate(layer.error_rate).unwrap_or_else(dash),
            rate(layer.error_rate_now).unwrap_or_else(dash),
            layer.cells.map_or_else(dash, count),
            layer.probes.map_or_else(dash, count),
            layer.layout.clone().unwrap_or_else(dash),
        ]);
    }
    if !info.layers.is_empty() {
        lines.extend(table.render().lines().map(str::to_owned));
    }
    lines
}
