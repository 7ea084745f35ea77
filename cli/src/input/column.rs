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

impl Csv<'_> {
    fn reader(self, source: HashedInput) -> csv::Reader<HashedInput> {
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
    csv: csv::Reader<HashedInput>,
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
        let mut csv = form.reader(HashedInput::open(path, of_text)?);
        let mut record = csv::ByteRecord::new();
        let mut index = number.map(|number| number - 1);
        if form.header || number.is_none() {
            csv.read_byte_record(&mut record).map_err(|error| bad_csv(&name, &error))?;
            index = index.or_else(|| record.iter().position(|name| name == form.column.as_bytes()));
        }
        let Some(index) = index else {
            let names: Vec<_> = record.iter().map(String::from_utf8_lossy).collect();
            fail!(Usage, "{name} has no column {:?}; it has: {}", form.column, names.join(", "));
        };
        Ok(Column { csv, record, index })
    }

    pub(super) fn source(&mut self) -> &mut HashedInput {
        self.csv.get_mut()
    }

    /// Returns the column's field in the next record. The item ends where the record ends.
    pub(super) fn next(&mut self, name: &str) -> anyhow::Result<Option<Item<'_>>> {
        if !self.csv.read_byte_record(&mut self.record).map_err(|error| bad_csv(name, &error))? {
            return Ok(None);
        }
        let end = self.csv.position().byte();
        // The reader returns a record as soon as it has read the record's line end. So if the source has ended, this
        // record has no line end.
        let is_open = self.csv.get_ref().ended();
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
}

fn bad_csv(name: &str, error: &csv::Error) -> anyhow::Error {
    let text = match error.kind() {
        csv::ErrorKind::Io(error) => format!("cannot read {name}: {error}"),
        _ => format!("{name} is not CSV: {error}"),
    };
    Failure::Data(text).into()
}
