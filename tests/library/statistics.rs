//! The documents and the Python client list the statistics of filters as the table does. A failure prints the text that
//! belongs there.

use bloomery::Summary;
use bloomery::filter::record::{Record, Replies, Row, Unit, Value};
use bloomery::filter::{Feedback, LayerSummary, Observed, RebuildSummary, Refused};
use std::fs;

#[track_caller]
fn has(file: &str, text: &str) {
    let found = fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    assert!(found.contains(text), "{file} must contain this text:\n{text}");
}

/// The table of a command's page. Consecutive fields with the same meaning share a line.
fn page(family: Replies) -> String {
    let mut text = "| field | metric | meaning |\n| --- | --- | --- |\n".to_owned();
    let rows: Vec<_> = Summary::ROWS.iter().filter(|row| row.replies.includes(family)).collect();
    for rows in rows.chunk_by(|one, other| one.docs == other.docs) {
        let names: Vec<_> = rows.iter().map(|row| row.name).collect();
        let metrics = rows.iter().flat_map(|row| row.metrics);
        let metrics: Vec<_> = metrics
            .map(|metric| format!("`{}{}`", metric.name, if metric.is_counter { "_total" } else { "" }))
            .collect();
        let metrics = if metrics.is_empty() { "–".to_owned() } else { metrics.join(", ") };
        text += &format!("| {} | {metrics} | {} |\n", names.join(", "), rows[0].docs.trim());
    }
    text + "\n"
}

#[test]
fn pages_of_commands() {
    has("docs/commands/bf.stats.md", &page(Replies::Bloom));
    has("docs/commands/cf.stats.md", &page(Replies::Cuckoo));
}

/// The fields of a class in Python. A field may be None if it is null in the reply for one of
/// `records`.
fn class<R: Record>(family: Replies, records: &[R]) -> String {
    let line = |row: &Row<R>| {
        let kind = match (row.unit, row.name) {
            (Unit::Word, _) => "str",
            (Unit::Ratio, _) => "float",
            (Unit::Lines, _) => "list[str]",
            (Unit::Record, "Layers") => "list[Layer]",
            (Unit::Record, "Rebuild") => "Rebuild",
            (Unit::Record, "Feedback") => "Feedbacks",
            (Unit::Record, "Adds refused") => "Refused",
            (Unit::Record, _) => "Feedback",
            _ => "int",
        };
        let or_none = if records.iter().any(|record| (row.get)(record) == Value::Null && (row.null)(record)) {
            " | None"
        } else {
            ""
        };
        format!("    {}: {kind}{or_none}\n", row.name.to_lowercase().replace(' ', "_"))
    };
    let rows = R::ROWS.iter().filter(|row| row.replies.includes(family)).map(line);
    format!("\"\"\"\n\n{}\n", rows.collect::<String>())
}

#[test]
fn classes_in_python() {
    let mut window = Summary::default();
    (window.origin, window.expansion_rate, window.generations) = ("bloomery".into(), Some(2), Some(2));
    let mut foreign = Summary::default();
    foreign.origin = "guava".into();
    let mut cuckoo = Summary::default();
    (cuckoo.error_rate, cuckoo.expansion_rate) = (Some(0.03), Some(0));
    for class in [
        class(Replies::Bloom, &[window, foreign]),
        class(Replies::Cuckoo, &[cuckoo]),
        class(Replies::Both, &[Refused::default()]),
        class(Replies::Both, &[Feedback::default()]),
        class(Replies::Both, &[Observed::default()]),
        class(Replies::Both, &[LayerSummary::default()]),
        class(Replies::Both, &[RebuildSummary::default()]),
    ] {
        has("clients/python/bloomery_redis/_stats.py", &class);
    }
}
