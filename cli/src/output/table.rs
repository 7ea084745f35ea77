//! Tables for people to read.

use crate::printable::printable;
use unicode_width::UnicodeWidthStr;

/// A table: each column is as wide as its widest cell, with two spaces between columns.
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    /// For each column, whether its cells are right-aligned.
    right: Vec<bool>,
}

impl Table {
    /// Creates a table with these columns; `>` before a name right-aligns the column.
    pub(crate) fn new(columns: &[&str]) -> Table {
        Table {
            header: columns.iter().map(|name| name.trim_start_matches('>').to_owned()).collect(),
            right: columns.iter().map(|name| name.starts_with('>')).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell).into_owned()).collect());
    }

    /// Renders one line per row, without trailing spaces.
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
}
