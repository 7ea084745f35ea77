//! Items from a column of a CSV file.

use super::batch::Item;
use super::source::{BUFFER, HashedInput, name};
use super::text::Form;
use crate::error::{Failure, fail};
use std::path::Path;

/// The form of a CSV file, and the column to read.
#[derive(Clone, Copy)]
pub(super) struct Csv<'o> {
    /// The column's name, or its number, counted from 1.
    pub(super) column: &'o str,
    pub(super) delimiter: u8,
    /// Whether the first line is a header. A name in `column` implies it.
    pub(super) header: bool,
}

/// Reads the fields of one column.
pub(super) struct Column {
    csv: csv::Reader<HashedInput>,
    delimiter: u8,
    record: csv::ByteRecord,
    index: usize,
}

impl Column {
    /// Opens the file, and reads its header if it has one.
    pub(super) fn open(path: &Path, form: Csv<'_>, of_text: Form) -> anyhow::Result<Column> {
        let name = name(path);
        let number = form.column.parse::<usize>().ok();
        if number == Some(0) {
            fail!(Usage, "--column: columns are numbered from 1");
        }
        let csv = csv::ReaderBuilder::new()
            .delimiter(form.delimiter)
            .has_headers(false)
            .flexible(true)
            .buffer_capacity(BUFFER)
            .from_reader(HashedInput::open(path, of_text)?);
        let record = csv::ByteRecord::new();
        let mut column = Column { csv, delimiter: form.delimiter, record, index: number.unwrap_or(1) - 1 };
        if form.header || number.is_none() {
            column.read(&name)?;
        }
        if number.is_none() {
            let names = &column.record;
            let Some(index) = names.iter().position(|name| name == form.column.as_bytes()) else {
                let names: Vec<_> = names.iter().map(String::from_utf8_lossy).collect();
                fail!(Usage, "{name} has no column {:?}; it has: {}", form.column, names.join(", "));
            };
            column.index = index;
        }
        Ok(column)
    }

    pub(super) fn source(&mut self) -> &mut HashedInput {
        self.csv.get_mut()
    }

    /// Returns the column's field in the next record. The item ends where the record ends.
    pub(super) fn next(&mut self, name: &str) -> anyhow::Result<Option<Item<'_>>> {
        if !self.read(name)? {
            return Ok(None);
        }
        let end = self.csv.position().byte();
        let is_open = self.is_open();
        match self.record.get(self.index) {
            Some(bytes) => Ok(Some(Item { bytes, end, is_open })),
            None => {
                fail!(
                    Data,
                    "{name}: the record that ends at byte {end} has {} columns, so there is no column {}",
                    self.record.len(),
                    self.index + 1
                )
            }
        }
    }

    /// Reads the next record. Returns false at the end. Refuses a quoted field that never ends, or after which there is
    /// more text: the reader would return it with all lines between two stray quotes as one field.
    fn read(&mut self, name: &str) -> anyhow::Result<bool> {
        let start = self.csv.position().byte();
        if !self.csv.read_byte_record(&mut self.record).map_err(|error| bad_csv(name, &error))? {
            return Ok(false);
        }
        let end = self.csv.position();
        let text = self.csv.get_ref().read_since(start);
        let text = &text[..text.len().min((end.byte() - start) as usize)];
        if let Some((field, why)) = badly_quoted(text, self.delimiter) {
            let line = end.line() - memchr::memchr_iter(b'\n', &text[field..]).count() as u64;
            fail!(Data, "{name}: the quoted field that begins in line {line} {why}");
        }
        Ok(true)
    }

    /// Whether the record has no line end: the reader returns a record as soon as it has read the line end, so the
    /// source has only ended if there is none.
    fn is_open(&self) -> bool {
        self.csv.get_ref().ended()
    }
}

/// Where the first quoted field of a record begins that doesn't end with its closing quote, and what is wrong with it.
fn badly_quoted(record: &[u8], delimiter: u8) -> Option<(usize, &'static str)> {
    memchr::memchr(b'"', record)?;
    // The end of the previous line, and empty lines.
    let mut at = record.iter().position(|byte| !b"\r\n".contains(byte))?;
    loop {
        if record.get(at) == Some(&b'"') {
            let field = at;
            // A quote within a field is written twice.
            while record.get(at) == Some(&b'"') {
                let Some(length) = memchr::memchr(b'"', &record[at + 1..]) else {
                    return Some((field, "never ends; close its quote"));
                };
                at += length + 2;
            }
            if record.get(at).is_some_and(|byte| *byte != delimiter && !b"\r\n".contains(byte)) {
                return Some((field, "has text after its closing quote; write a quote within a field twice"));
            }
        }
        at += memchr::memchr(delimiter, record.get(at..)?)? + 1;
    }
}

fn bad_csv(name: &str, error: &csv::Error) -> anyhow::Error {
    let text = match error.kind() {
        csv::ErrorKind::Io(error) => format!("cannot read {name}: {error}"),
        _ => format!("{name} is not CSV: {error}"),
    };
    Failure::Data(text).into()
}
