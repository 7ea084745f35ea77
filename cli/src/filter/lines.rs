//! Shows what is known about a filter, as text for people.

use crate::output::{Table, bytes, count, percent};
use bloomery::Summary;
use bloomery::filter::record::{Record, Row, Unit, Value};

/// The fields that come first. All others with a name for lines follow in the table's order.
const FIRST: [&str; 13] = [
    "Kind",
    "Number of items inserted",
    "Approximate number of items",
    "Capacity",
    "Error rate",
    "Error rate now",
    "Feedback",
    "Fill",
    "Tests answered yes",
    "Tests answered no",
    "Adds",
    "Deletes",
    "Memory",
];

/// Everything that is known about a filter: the advice, a line per field, and a table of the layers.
pub(crate) fn lines(info: &Summary) -> Vec<String> {
    let mut lines: Vec<String> = info.advice.iter().map(|advice| format!("! {advice}")).collect();
    let place = |row: &&Row<Summary>| FIRST.iter().position(|name| *name == row.name).unwrap_or(FIRST.len());
    let mut rows: Vec<&Row<Summary>> = Summary::ROWS.iter().collect();
    rows.sort_by_key(place);
    for row in rows {
        let Some(name) = row.line else { continue };
        match (row.name, &info.feedback) {
            ("Feedback", None) => {}
            ("Feedback", Some(feedback)) => lines.extend(feedback.spans().map(|(span, observed)| {
                let rate = observed.observed_error_rate.map_or("-".into(), percent);
                let (wrong, checked) = (count(observed.r#false), count(observed.checked));
                line(&format!("{name}, {span}"), &format!("{rate} ({wrong} of {checked} checked were false)"))
            })),
            _ => lines.extend(value(info, row).map(|value| line(name, &value))),
        }
    }
    lines.push(String::new());
    if !info.layers.is_empty() {
        lines.extend(layers(info).render().lines().map(str::to_owned));
    }
    lines
}

fn line(name: &str, value: &str) -> String {
    format!("{name:<22}{value}")
}

/// The text of a field; `None` if the filter doesn't have it.
fn value(info: &Summary, row: &Row<Summary>) -> Option<String> {
    Some(match (row.name, (row.get)(info), row.unit) {
        ("Kind", ..) => format!("{} ({})", info.kind, info.origin).replace(" ()", ""),
        ("Capacity", ..) => format!("{} ({:.0}% full)", count(info.capacity), info.full() * 100.0),
        ("Memory", ..) => bytes(info.bytes()),
        ("Rebuild", ..) => {
            let rebuild = info.rebuild.as_ref()?;
            format!("{}: {} of {} items", rebuild.status, count(rebuild.items), count(rebuild.capacity))
        }
        ("Adds refused", ..) => {
            let by_reason = info.refused.as_ref()?.by_reason();
            let counts = by_reason.iter().filter(|(_, items)| *items > 0);
            let counts = counts.map(|(why, items)| format!("{} ({why})", count(*items)));
            Some(counts.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())?
        }
        (_, Value::Count(size), Unit::Bytes) => bytes(size),
        (_, Value::Count(ms), Unit::Milliseconds) => format!("in {} s", count(ms / 1000)),
        (_, Value::Count(number), _) => count(number),
        (_, Value::Ratio(ratio), _) => percent(ratio),
        (_, Value::Word(word), _) => word.into_owned(),
        _ => return None,
    })
}

fn layers(info: &Summary) -> Table {
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
        table.row([
            layer.age.map_or(index.to_string(), |age| format!("age {age}")),
            count(layer.items),
            count(layer.capacity),
            percent(layer.fill),
            percent(layer.error_rate),
            percent(layer.error_rate_now),
            count(layer.cells),
            count(layer.probes),
            layer.layout.as_deref().unwrap_or("-").to_owned(),
        ]);
    }
    table
}
