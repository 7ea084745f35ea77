//! The table and the details as text.

use super::snapshot::{Row, Snapshot};
use crate::filter::lines::lines;
use crate::output::{Table, bytes, count, percent, shorten};
use crate::server::family::Sketch;

/// The name of each column, and whether its cells are right-aligned.
pub(super) const COLUMNS: [(&str, bool); 11] = [
    ("KEY", false),
    ("KIND", false),
    ("ITEMS", true),
    ("CAPACITY", true),
    ("FULL", false),
    ("PROMISED", true),
    ("NOW", true),
    ("OBSERVED", true),
    ("TESTS/S", true),
    ("ADDS/S", true),
    ("MEMORY", true),
];

/// Maximum width of the KEY column in plain text, where it is as wide as the longest name.
const NAME: usize = 48;

/// The cells of a row, with numbers in full.
pub(super) fn cells(row: &Row) -> [String; COLUMNS.len()] {
    written(row, shorten(row.key.short(), NAME).into_owned(), count, percent)
}

/// The cells of a row, with short numbers: `1.23M`, `0.597%`. The numbers always fit into the column widths in
/// [`frame`](super::frame).
pub(super) fn compact(row: &Row) -> [String; COLUMNS.len()] {
    written(row, row.key.to_string(), brief, brief_percent)
}

fn written(
    row: &Row,
    key: String,
    number: fn(u64) -> String,
    percent: fn(f64) -> String,
) -> [String; COLUMNS.len()] {
    let rate = |rate: Option<f64>| rate.map_or("-".into(), percent);
    let per_second = |rate: Option<f64>| rate.map_or("-".into(), |rate| number(rate.round() as u64));
    let info = &row.info;
    let full = row.full() * 100.0;
    // Of a sketch, only its memory is known.
    if Sketch::of_kind(&info.kind).is_some() {
        let mut cells = std::array::from_fn(|_| "-".to_owned());
        [cells[0], cells[1], cells[COLUMNS.len() - 1]] = [key, info.kind.to_string(), bytes(info.bytes())];
        return cells;
    }
    [
        key,
        info.kind.to_string(),
        number(info.items),
        number(info.capacity),
        if full < 9_999.5 { format!("{full:.0}%") } else { ">9999%".into() },
        rate(info.error_rate),
        percent(info.error_rate_now),
        rate(row.observed()),
        per_second(row.tests_per_second),
        per_second(row.adds_per_second),
        bytes(info.bytes()),
    ]
}

/// Formats a number with at most three significant digits and a unit, in at most 5 columns.
fn brief(number: u64) -> String {
    const UNITS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let (mut value, mut unit) = (number as f64, 0);
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let decimals = match value {
        _ if unit == 0 => 0,
        _ if value < 9.995 => 2,
        _ if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}{}", UNITS[unit])
}

/// Formats a fraction as a percentage, in at most 8 columns.
fn brief_percent(fraction: f64) -> String {
    let text = percent(fraction);
    if text.len() <= 7 { text } else { format!("{:.1e}%", fraction * 100.0) }
}

/// Everything that is known about a filter or sketch, as lines of text.
pub(super) fn detail(row: &Row) -> Vec<String> {
    let about = match Sketch::of_kind(&row.info.kind) {
        Some(sketch) => {
            vec![
                format!("kind                  {}", sketch.title),
                format!("memory                {}", bytes(row.info.bytes())),
            ]
        }
        None => lines(&row.info),
    };
    [vec![format!("server                {}", row.server)], about].concat()
}

/// The table and the advice as plain text.
pub(super) fn plain(snapshot: &Snapshot) -> String {
    let names: Vec<String> = COLUMNS
        .iter()
        .map(|(name, is_right)| {
            let name = name.to_lowercase();
            if *is_right || name == "full" { format!(">{name}") } else { name }
        })
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut table = Table::new(&names);
    snapshot.filters.iter().for_each(|row| table.row(cells(row)));
    let mut text = table.render();
    for row in &snapshot.filters {
        for advice in &row.info.advice {
            text.push_str(&format!("! {}: {advice}\n", row.key));
        }
    }
    if snapshot.hidden > 0 {
        let why = snapshot.hidden_by.as_deref().unwrap_or_default();
        text.push_str(&format!("{} filters are not shown: {why}\n", snapshot.hidden));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_numbers_keep_their_first_digits() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1.00k"),
            (12_345, "12.3k"),
            (999_499, "999k"),
            (999_500, "1.00M"),
            (1_073_741_824, "1.07G"),
        ] {
            assert_eq!(brief(number), text);
        }
        for (fraction, text) in
            [(0.01, "1%"), (0.00597, "0.597%"), (1e-9, "1.0e-7%"), (0.986, "98.6%"), (1.234e-5, "1.2e-3%")]
        {
            assert_eq!(brief_percent(fraction), text);
        }
    }
}
