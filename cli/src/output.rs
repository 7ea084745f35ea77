//! What subcommands print: tables for people, JSON for programs.

use serde::Serialize;
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Prints one JSON document and a newline.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}

/// A table: columns as wide as their widest cell, two spaces between them. Numbers stand to the right.
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Columns whose cells stand to the right.
    right: Vec<bool>,
}

impl Table {
    /// A table with these columns; a `>` in front of a name puts the column's cells to the right.
    pub(crate) fn new(columns: &[&str]) -> Table {
        Table {
            header: columns.iter().map(|name| name.trim_start_matches('>').to_owned()).collect(),
            right: columns.iter().map(|name| name.starts_with('>')).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The text, one line per row, without spaces at the ends of lines.
    pub(crate) fn render(&self) -> String {
        let lines = || std::iter::once(&self.header).chain(&self.rows);
        let width =
            |column: usize| lines().filter_map(|line| line.get(column)).map(|cell| cell.width()).max();
        let widths: Vec<usize> = (0..self.header.len()).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for line in lines() {
            let mut row = String::new();
            for ((cell, width), right) in line.iter().zip(&widths).zip(&self.right) {
                let space = " ".repeat(width - cell.width());
                let padded = if *right { [&space, cell.as_str()] } else { [cell.as_str(), &space] };
                row.push_str(&padded.concat());
                row.push_str("  ");
            }
            text.push_str(row.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Bytes in units of 1024, three digits: `11.4 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ if value < 9.995 => format!("{value:.2} {}", UNITS[unit]),
        _ if value < 99.95 => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.0} {}", UNITS[unit]),
    }
}

/// A number with its thousands apart: `10,000,000`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A fraction in percent, three digits that mean something: `1 %`, `0.0123 %`.
pub(crate) fn percent(fraction: f64) -> String {
    let value = fraction * 100.0;
    if !value.is_finite() {
        return "-".into();
    }
    if value == 0.0 {
        return "0 %".into();
    }
    let behind = (2 - value.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{value:.behind$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} %")
}

/// A key as text: what is not printable ASCII or UTF-8 is written `\x..`, as redis-cli does.
pub(crate) fn key(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '\\' {
                text.push_str("\\\\"); // or a name that has \x.. in it would look like another
            } else if character.is_control() {
                text.extend(character.to_string().bytes().map(|byte| format!("\\x{byte:02x}")));
            } else {
                text.push(character);
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["kind", ">bytes"]);
        table.row(["fixed".into(), "7".into()]);
        table.row(["é".into(), "1234567".into()]);
        assert_eq!(table.render(), "kind     bytes\nfixed        7\né      1234567\n");
    }

    #[test]
    fn numbers_have_three_digits_that_mean_something() {
        for (value, text) in [(0, "0 B"), (999, "999 B"), (1024, "1.00 KiB"), (12_582_912, "12.0 MiB")] {
            assert_eq!(bytes(value), text);
        }
        assert_eq!(bytes(1023 * 1024), "1.00 MiB");
        for (value, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (10_000_000, "10,000,000")] {
            assert_eq!(count(value), text);
        }
        for (value, text) in
            [(0.01, "1 %"), (1.0, "100 %"), (0.000_123_456, "0.0123 %"), (0.0, "0 %"), (0.5012, "50.1 %")]
        {
            assert_eq!(percent(value), text);
        }
    }

    #[test]
    fn keys_that_are_no_text_are_escaped() {
        assert_eq!(key("größe".as_bytes()), "größe");
        assert_eq!(key(b"a\x00\xffb\n"), "a\\x00\\xffb\\x0a");
        assert_eq!(key(br"\xff"), r"\\xff");
    }
}
