//! Items from a column of a CSV file.

use super::source::{BUFFER, is_stdin, name, reaches, source};
use crate::error::Failure;
use std::io::Read;
use std::path::Path;

/// The form of a CSV file, and the column to read.
#[derive(Clone, Copy)]
pub(super) struct Csv<'o> {
    /// A name, or a number from 1.
    pub(super) column: &'o str,
    pub(super) delimiter: u8,
    /// Whether the first line is a header; a column that is named implies it.
    pub(super) header: bool,
}

impl Csv<'_> {
    fn reader(self, source: Box<dyn Read + Send>) -> csv::Reader<Box<dyn Read + Send>> {
        csv::ReaderBuilder::new()
            .delimiter(self.delimiter)
            .has_headers(false)
            .flexible(true)
            .buffer_capacity(BUFFER)
            .from_reader(source)
    }
}

/// Reads the fields of one column.
pub(super) struct Column {
    csv: csv::Reader<Box<dyn Read + Send>>,
    record: csv::ByteRecord,
    index: usize,
    /// Offset in the input where the reader started.
    base: u64,
}

impl Column {
    /// Opens the file, reads its header, and continues at `offset`.
    pub(super) fn open(path: &Path, form: Csv<'_>, offset: u64) -> anyhow::Result<Column> {
        let name = name(path);
        let number = form.column.parse::<usize>().ok();
        if number == Some(0) {
            return Err(Failure::Usage("--column: columns are numbered from 1".into()).into());
        }
        let mut csv = form.reader(source(path, 0)?);
        let mut record = csv::ByteRecord::new();
        let mut index = number.map(|number| number - 1);
        if form.header || number.is_none() {
            csv.read_byte_record(&mut record).map_err(|error| bad_csv(&name, &error))?;
            index = index.or_else(|| record.iter().position(|name| name == form.column.as_bytes()));
        }
        let Some(index) = index else {
            let names: Vec<_> = record.iter().map(String::from_utf8_lossy).collect();
            let text = format!("{name} has no column {:?}; it has: {}", form.column, names.join(", "));
            return Err(Failure::Usage(text).into());
        };
        let mut base = 0;
        if offset > csv.position().byte() {
            if is_stdin(path) {
                // What the reader has buffered cannot be given back, so it reads up to the offset.
                while csv.position().byte() < offset {
                    if !csv.read_byte_record(&mut record).map_err(|error| bad_csv(&name, &error))? {
                        reaches(csv.position().byte(), offset, &name)?;
                    }
                }
            } else {
                csv = form.reader(source(path, offset)?);
                base = offset;
            }
        }
        Ok(Column { csv, record, index, base })
    }

    /// The next field, and the offset where its record ends.
    pub(super) fn next(&mut self, name: &str) -> anyhow::Result<Option<(&[u8], u64)>> {
        if !self.csv.read_byte_record(&mut self.record).map_err(|error| bad_csv(name, &error))? {
            return Ok(None);
        }
        let end = self.base + self.csv.position().byte();
        match self.record.get(self.index) {
            Some(field) => Ok(Some((field, end))),
            None => {
                let text = format!(
                    "{name}: the record that ends at byte {end} has {} columns, so there is no column {}",
                    self.record.len(),
                    self.index + 1
                );
                Err(Failure::Data(text).into())
            }
        }
    }
}

fn bad_csv(name: &str, error: &csv::Error) -> anyhow::Error {
    Failure::Data(format!("{name} is not CSV: {error}")).into()
}
