//! The documents and the clients list the statistics of filters as the table does. A failure prints the text that
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

/// A client's types: of a word, a number with a fraction, messages, layers, and any other number.
type Types = [&'static str; 5];

fn type_of<R>(row: &Row<R>, [word, ratio, lines, layers, number]: Types) -> &'static str {
    match (row.unit, row.name) {
        (Unit::Word, _) => word,
        (Unit::Ratio, _) => ratio,
        (Unit::Lines, _) => lines,
        (Unit::Record, "Layers") => layers,
        (Unit::Record, "Rebuild") => "Rebuild",
        (Unit::Record, "Feedback") => "Feedbacks",
        (Unit::Record, "Adds refused") => "Refused",
        (Unit::Record, _) => "Feedback",
        _ => number,
    }
}

/// The fields of a class. `line` gets a row, and whether the field is null, and whether it is missing, in the reply for
/// one of `records`.
fn fields<R: Record>(family: Replies, records: &[R], line: impl Fn(&Row<R>, bool, bool) -> String) -> String {
    let rows = R::ROWS.iter().filter(|row| row.replies.includes(family));
    let has_none = |row: &Row<R>, null| {
        records.iter().any(|record| (row.get)(record) == Value::Null && (row.null)(record) == null)
    };
    rows.map(|row| line(row, has_none(row, true), has_none(row, false))).collect()
}

fn camel_case(name: &str) -> String {
    let mut words = name.split(' ');
    let first = words.next().unwrap_or_default().to_lowercase();
    words.fold(first, |text, word| text + &word[..1].to_uppercase() + &word[1..])
}

/// What the class in Python and the interface in TypeScript contain.
fn classes<R: Record>(family: Replies, records: &[R]) -> [String; 2] {
    let python = fields(family, records, |row, is_null, _| {
        let name = row.name.to_lowercase().replace(' ', "_");
        let kind = type_of(row, ["str", "float", "list[str]", "list[Layer]", "int"]);
        format!("    {name}: {kind}{}\n", if is_null { " | None" } else { "" })
    });
    let typescript = fields(family, records, |row, is_null, is_missing| {
        let kind = type_of(row, ["string", "number", "string[]", "Layer[]", "number"]);
        let (mark, or_null) = (if is_missing { "?" } else { "" }, if is_null { " | null" } else { "" });
        format!("    {}{mark}: {kind}{or_null};\n", camel_case(row.name))
    });
    [format!("\"\"\"\n\n{python}\n"), format!(" {{\n{typescript}}}\n")]
}

fn fractions<R: Record>() -> Vec<String> {
    let rows = R::ROWS.iter().filter(|row| row.unit == Unit::Ratio);
    rows.map(|row| format!("    \"{}\",\n", camel_case(row.name))).collect()
}

#[test]
fn classes_in_clients() {
    let mut window = Summary::default();
    (window.origin, window.expansion_rate, window.generations) = ("bloomery".into(), Some(2), Some(2));
    let mut fixed = Summary::default();
    (fixed.origin, fixed.error_rate) = ("bloomery".into(), Some(0.01));
    let mut foreign = Summary::default();
    foreign.origin = "guava".into();
    let mut cuckoo = Summary::default();
    (cuckoo.error_rate, cuckoo.expansion_rate) = (Some(0.03), Some(0));
    for [class, interface] in [
        classes(Replies::Bloom, &[window, fixed, foreign]),
        classes(Replies::Cuckoo, &[cuckoo]),
        classes(Replies::Both, &[Refused::default()]),
        classes(Replies::Both, &[Feedback::default()]),
        classes(Replies::Both, &[Observed::default()]),
        classes(Replies::Both, &[LayerSummary::default()]),
        classes(Replies::Both, &[RebuildSummary::default()]),
    ] {
        has("clients/python/bloomery_redis/_stats.py", &class);
        has("clients/javascript/stats.d.ts", &interface);
    }
    let mut names = [fractions::<Summary>(), fractions::<Observed>(), fractions::<LayerSummary>()].concat();
    names.sort();
    names.dedup();
    has("clients/javascript/replies.js", &format!("new Set([\n{}]);", names.concat()));
}
