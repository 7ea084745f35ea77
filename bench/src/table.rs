//! Prints the results as tables.

use crate::measure::{Series, Spread};
use crate::report::Measured;
use crate::rows::{Bound, ROWS, Section};

/// A number with three decimals if it is below 1, two if it is below 100, and otherwise none. Zero has none either.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        100.0.. => format!("{value:.0}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// `median (min–max)`, or only the median if the values don't vary.
pub fn spread(figure: &Spread) -> String {
    if figure.min == figure.max {
        return number(figure.median);
    }
    format!("{} ({}–{})", number(figure.median), number(figure.min), number(figure.max))
}

/// Prints a table. Each column is as wide as its widest cell.
pub fn print(title: &str, header: &[&str], lines: &[Vec<String>]) {
    let all = || {
        std::iter::once(header.iter().map(|cell| (*cell).to_owned()).collect()).chain(lines.iter().cloned())
    };
    let widths: Vec<usize> = (0..header.len())
        .map(|column| all().map(|line: Vec<String>| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let row = |line: &[String]| {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("| {} |", cells.collect::<Vec<_>>().join(" | "))
    };
    println!("\n{title}\n");
    let mut lines = all();
    if let Some(header) = lines.next() {
        println!("{}", row(&header));
        println!("|{}|", widths.iter().map(|width| "-".repeat(width + 2)).collect::<Vec<_>>().join("|"));
    }
    lines.for_each(|line| println!("{}", row(&line)));
}

/// Prints the cost of each side of a comparison, and its ratio to the cost of the side with index `base`.
pub fn sides<'a>(title: &str, base: usize, sides: impl IntoIterator<Item = &'a str>, series: &[Series]) {
    let names: Vec<&str> = sides.into_iter().collect();
    let lines: Vec<Vec<String>> = names
        .iter()
        .zip(series)
        .map(|(name, figures)| {
            vec![(*name).to_owned(), spread(&figures.spread()), spread(&figures.over(&series[base]))]
        })
        .collect();
    let over = format!("over {}", names[base]);
    print(title, &["", "ns of server CPU per item", &over], &lines);
}

/// Prints a section of the scoreboard.
pub fn scoreboard(section: Section, measured: &[Measured]) {
    let title = match section {
        Section::Speed => "SPEED",
        Section::Memory => "MEMORY",
    };
    let lines: Vec<Vec<String>> = ROWS
        .iter()
        .filter(|row| row.section == section)
        .filter_map(|row| measured.iter().find(|measured| measured.row.id == row.id))
        .map(|Measured { row, figure }| {
            let (sign, value) = match row.bound {
                Bound::AtMost(value) => ("≤", value),
                Bound::AtLeast(value) => ("≥", value),
            };
            let verdict = match figure {
                Ok(figure) if row.bound.holds(figure.median) => "ok",
                Ok(_) => "MISSED",
                Err(_) => "–",
            };
            vec![
                row.figure.to_owned(),
                format!("{sign} {} {}", number(value), row.unit),
                figure.as_ref().map_or_else(Clone::clone, spread),
                verdict.to_owned(),
            ]
        })
        .collect();
    if !lines.is_empty() {
        print(title, &["figure", "target", "measured: median (min–max)", ""], &lines);
    }
}
