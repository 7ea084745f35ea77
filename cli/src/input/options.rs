//! The options that say where items come from.

use super::column::{Column, Csv};
use super::items::{ItemReader, Items};
use super::lines::Lines;
use super::source::{HashedInput, name};
use super::text::Form;
use crate::arguments::parse_delimiter;
use std::path::PathBuf;

/// The options that say where items come from.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Input {
    /// File with one item per line; - is stdin
    #[arg(default_value = "-", value_name = "FILE")]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) format: InputFormat,
}

/// The options that say what counts as an item.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Items")]
pub(crate) struct InputFormat {
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

    /// Read the bytes as they are: don't decompress gzip or zstd data, and accept what isn't text
    #[arg(long)]
    pub(crate) binary: bool,
}

impl Input {
    /// The input's name in messages.
    pub(crate) fn name(&self) -> String {
        name(&self.file)
    }

    /// The options that determine the items, as text. A resumed load must have the same text.
    pub(crate) fn form(&self) -> String {
        let InputFormat { column, delimiter, header, null, keep_blank, binary } = &self.format;
        let form = match column {
            Some(column) => {
                format!("csv column {column}, delimiter {:?}, header {header}", delimiter.map(char::from))
            }
            None if *null => "NUL-separated".into(),
            None => "lines".into(),
        };
        form + if *keep_blank { ", with empty ones" } else { "" } + if *binary { ", binary" } else { "" }
    }

    /// Opens the input.
    pub(crate) fn open(&self) -> anyhow::Result<Items> {
        let InputFormat { column, delimiter, header, null, keep_blank, binary } = &self.format;
        let of_text = match (binary, null) {
            (true, _) => Form::Binary,
            (_, true) => Form::NulSeparated,
            _ => Form::Text,
        };
        let form = match column {
            None => {
                let terminator = if *null { 0 } else { b'\n' };
                ItemReader::Lines(Box::new(Lines::new(HashedInput::open(&self.file, of_text)?, terminator)))
            }
            Some(column) => {
                let format = Csv { column, delimiter: delimiter.unwrap_or(b','), header: *header };
                ItemReader::Column(Box::new(Column::open(&self.file, format, of_text)?))
            }
        };
        Ok(Items::new(form, *keep_blank, name(&self.file)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::batch::{Batch, BatchLimits, items_of};
    use crate::input::source::BUFFER;
    use clap::Parser;
    use std::io::Write;
    use xxhash_rust::xxh3::xxh3_64;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        input: Input,
    }

    const SMALL: BatchLimits = BatchLimits { items: 2, bytes: 1 << 20 };

    fn input(content: &[u8], options: &[&str]) -> (tempfile::NamedTempFile, Input) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        let line = Line::try_parse_from([&["x", &path], options].concat()).unwrap();
        (file, line.input)
    }

    fn rest(items: &mut Items) -> Vec<Batch> {
        std::iter::from_fn(|| items.next_batch(SMALL).unwrap()).collect()
    }

    /// Reads all items, and checks that reading can continue after every batch.
    fn all(content: &[u8], options: &[&str]) -> Vec<String> {
        let (_file, input) = input(content, options);
        let batches = rest(&mut input.open().unwrap());
        for (index, batch) in batches.iter().enumerate() {
            let mut items = input.open().unwrap();
            items.skip_to(batch.span.end, batch.span.digest).unwrap();
            assert_eq!(rest(&mut items), batches[index + 1..], "after {:?}", batch.span);
            assert_eq!(batch.span.digest, xxh3_64(&content[..batch.span.end as usize]));
        }
        // A batch from a CSV file may end between CR and LF.
        let end = batches.last().map_or(0, |batch| batch.span.end) as usize;
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
        let error = missing.open().err().unwrap();
        assert_eq!(crate::error::code(&error), 2);
        assert!(error.to_string().ends_with("has no column \"nam\"; it has: id, name"), "{error}");
        let (_file, short) = input(b"1,ada\n2\n", &["--column", "2"]);
        let error = short.open().unwrap().next_batch(SMALL).unwrap_err();
        assert_eq!(crate::error::code(&error), 2);
        assert!(
            error.to_string().contains("ends at byte 8 has 1 columns, so there is no column 2"),
            "{error}"
        );
    }

    #[test]
    fn a_stray_quote_is_refused() {
        let (open, text) = (" never ends", " has text after its closing quote");
        for (csv, line, why) in [
            (&b"id,name\n1,ada\n2,\"grace\n3,edsger\n4,barbara\n"[..], 3, open),
            (b"id,name\n\"1\n\",\"ada\"\n2,\"grace \"\"\n3\"\"", 4, open),
            (b"id,name\n\"2\n\",\"grace", 3, open),
            (b"id,\"name\n1,ada\n", 1, open),
            (b"id,name\r\n1,\"ada\r\n2,\"grace\r\n3,edsger\r\n", 2, text),
            (b"id,name\n1,\"a\nd\"\"a\"\n2,\"grace\" \n", 4, text),
            (b"id,name\n\n\"1\" ,ada\n", 3, text),
            (b"\"id\"s,name\n", 1, text),
        ] {
            let (_file, unclosed) = input(csv, &["--column", "2", "--header"]);
            let read = unclosed.open().and_then(|mut items| {
                while items.next_batch(SMALL)?.is_some() {}
                Ok(())
            });
            let error = read.unwrap_err();
            assert_eq!(crate::error::code(&error), 2);
            let text = format!(": the quoted field that begins in line {line}{why}");
            assert!(error.to_string().contains(&text), "{error}");
        }
        let quotes = b"id,name\n1,5\" pipe\n2,\"\"\"ada\"\"\"\r\n\n3,\"\"\n\"4\",\"gr,\nace\"\r";
        let names = ["5\" pipe", "\"ada\"", "gr,\nace"];
        assert_eq!(all(quotes, &["--column", "name"]), names);
        assert_eq!(all(&quotes[..quotes.len() - 1], &["--column", "name"]), names);
    }

    /// Wherever compressed data ends too early, reading fails.
    #[test]
    fn compressed_data_that_ends_early_is_damaged() {
        let text = "ada\ngrace\n".repeat(9);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text.as_bytes()).unwrap();
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        for whole in [gzip.finish().unwrap(), ruzstd::encoding::compress_to_vec(text.as_bytes(), level)] {
            for end in 4..whole.len() {
                let (_file, cut) = input(&whole[..end], &[]);
                let read = cut.open().and_then(|mut items| {
                    while items.next_batch(SMALL)?.is_some() {}
                    Ok(())
                });
                let error = crate::error::text(&read.unwrap_err());
                assert!(error.contains("is damaged, or ends early"), "{end}: {error}");
            }
        }
    }

    #[test]
    fn batches_keep_to_their_limits() {
        let (_file, input) = input("0123456789\n".repeat(100).as_bytes(), &[]);
        let mut items = input.open().unwrap();
        let batch = items.next_batch(BatchLimits { items: 1000, bytes: 100 }).unwrap().unwrap();
        // Items of 14 bytes; the one that reaches the limit is the last.
        assert_eq!((batch.items, batch.blob.len(), batch.span.end), (8, 112, 88));
    }
}
