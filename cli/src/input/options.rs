//! The options that say where items come from.

use super::column::{Column, Csv};
use super::items::{Form, Items};
use super::lines::Lines;
use super::source::{is_stdin, name, source};
use crate::arguments::parse_delimiter;
use clap::builder::Resettable;
use std::path::PathBuf;

/// The options that say where items come from.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Items")]
pub(crate) struct Input {
    /// File with one item per line; - is stdin
    #[arg(default_value = "-", value_name = "FILE", help_heading = Resettable::Reset)]
    pub(crate) file: PathBuf,

    /// Read CSV, and take the items from this column: a name, or a number from 1
    #[arg(long, value_name = "COLUMN")]
    pub(crate) column: Option<String>,

    /// Character between the columns, or tab [default: ,]
    #[arg(long, value_name = "CHAR", requires = "column", value_parser = parse_delimiter)]
    pub(crate) delimiter: Option<u8>,

    /// The first line of the CSV file is a header; implied if --column is a name
    #[arg(long, requires = "column")]
    pub(crate) header: bool,

    /// Items end with a NUL byte instead of a newline, as from `find -print0`
    #[arg(short = '0', long, conflicts_with = "column")]
    pub(crate) null: bool,

    /// Treat empty lines as items instead of skipping them
    #[arg(long)]
    pub(crate) keep_blank: bool,
}

impl Input {
    /// Its name in messages.
    pub(crate) fn name(&self) -> String {
        name(&self.file)
    }

    /// Bytes of the input, if known.
    pub(crate) fn len(&self) -> Option<u64> {
        if is_stdin(&self.file) {
            return None;
        }
        std::fs::metadata(&self.file).ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
    }

    /// The options that decide where items start and end. A resumed load must have the same.
    pub(crate) fn form(&self) -> String {
        match &self.column {
            Some(column) => {
                format!(
                    "csv column {column}, delimiter {:?}, header {}",
                    self.delimiter.map(char::from),
                    self.header
                )
            }
            None if self.null => "NUL-separated".into(),
            None => "lines".into(),
        }
    }

    /// Opens the input at an offset where a batch ended, or at 0.
    pub(crate) fn open(&self, offset: u64) -> anyhow::Result<Items> {
        let form = match &self.column {
            None => Form::Lines(Lines::new(source(&self.file, offset)?, if self.null { 0 } else { b'\n' })),
            Some(column) => {
                let format = Csv { column, delimiter: self.delimiter.unwrap_or(b','), header: self.header };
                Form::Column(Box::new(Column::open(&self.file, format, offset)?))
            }
        };
        Ok(Items::new(form, offset, self.keep_blank, name(&self.file)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::batch::{Batch, Limits, items_of};
    use crate::input::source::BUFFER;
    use clap::Parser;
    use std::io::Write;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        input: Input,
    }

    const SMALL: Limits = Limits { items: 2, bytes: 1 << 20 };

    fn input(content: &[u8], options: &[&str]) -> (tempfile::NamedTempFile, Input) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        let line = Line::try_parse_from([&["x", &path], options].concat()).unwrap();
        (file, line.input)
    }

    /// Reads all items, and checks that reading can continue at the end of every batch.
    fn all(content: &[u8], options: &[&str]) -> Vec<String> {
        let (_file, input) = input(content, options);
        let read = |offset| {
            let mut items = input.open(offset).unwrap();
            std::iter::from_fn(|| items.next_batch(SMALL).unwrap()).collect::<Vec<Batch>>()
        };
        let batches = read(0);
        for (index, batch) in batches.iter().enumerate() {
            assert_eq!(read(batch.end), batches[index + 1..], "from {}", batch.end);
        }
        // A CSV reader stops within CR LF.
        let end = batches.last().map_or(0, |batch| batch.end) as usize;
        assert!(matches!(&content[end..], b"" | b"\n"), "{end}");
        let text = |item: &[u8]| String::from_utf8_lossy(item).into_owned();
        batches.iter().flat_map(|batch| items_of(&batch.blob).map(text).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn lines_are_read_without_their_ends() {
        assert_eq!(all(b"ada\ngrace\r\n\nedsger", &[]), ["ada", "grace", "edsger"]);
        assert_eq!(all(b"ada\ngrace\r\n\nedsger\n", &["--keep-blank"]), ["ada", "grace", "", "edsger"]);
        assert_eq!(all(b"a\nb\0\0c\r\0", &["--null"]), ["a\nb", "c\r"]);
        assert_eq!(all(b"\r\nx\r\r\n\r", &[]), ["x\r", "\r"]);
        assert!(all(b"", &[]).is_empty());
    }

    #[test]
    fn a_line_may_be_longer_than_the_buffer() {
        let long = "x".repeat(3 * BUFFER + 7);
        let content = format!("a\n{long}\nb\n");
        assert_eq!(all(content.as_bytes(), &[]), ["a", &long, "b"]);
    }

    #[test]
    fn columns_are_found_by_number_or_name() {
        let csv = b"id,name\n1,ada\n2,\"grace, or\n\"\"hopper\"\"\"\n3,\n4,edsger\n";
        let names = ["ada", "grace, or\n\"hopper\"", "edsger"];
        assert_eq!(all(csv, &["--column", "name"]), names);
        assert_eq!(all(csv, &["--column", "2", "--header"]), names);
        assert_eq!(all(csv, &["--column", "1"]), ["id", "1", "2", "3", "4"]);
        assert_eq!(all(b"a;b\r\nc;d\r\n", &["--column", "2", "--delimiter", ";"]), ["b", "d"]);
        assert_eq!(all(b"a\tb\n", &["--column", "2", "--delimiter", "tab"]), ["b"]);
    }

    #[test]
    fn a_column_that_is_not_there_is_named() {
        let (_file, missing) = input(b"id,name\n1,ada\n", &["--column", "nam"]);
        let error = missing.open(0).err().unwrap();
        assert_eq!(crate::error::code(&error), 2);
        assert!(error.to_string().ends_with("has no column \"nam\"; it has: id, name"), "{error}");
        let (_file, short) = input(b"1,ada\n2\n", &["--column", "2"]);
        let error = short.open(0).unwrap().next_batch(SMALL).unwrap_err();
        assert_eq!(crate::error::code(&error), 1);
        assert!(
            error.to_string().contains("ends at byte 8 has 1 columns, so there is no column 2"),
            "{error}"
        );
    }

    #[test]
    fn an_input_that_became_shorter_is_refused() {
        for options in [&[][..], &["--column", "1"]] {
            let (_file, input) = input(b"ada\n", options);
            let error = input.open(5).err().unwrap();
            assert!(error.to_string().contains("has 4 bytes, but 5 were loaded before"), "{error}");
        }
    }

    #[test]
    fn batches_keep_to_their_limits() {
        let (_file, input) = input("0123456789\n".repeat(100).as_bytes(), &[]);
        let mut items = input.open(0).unwrap();
        let batch = items.next_batch(Limits { items: 1000, bytes: 100 }).unwrap().unwrap();
        // Items of 14 bytes; the one that reaches the limit is the last.
        assert_eq!((batch.items, batch.blob.len(), batch.end), (8, 112, 88));
    }
}
