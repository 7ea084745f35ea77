//! Items from a file, a pipe, or a column of a CSV file, in batches of bounded size: nothing here grows with the input.
//!
//! A batch is a blob as BF.BULKADD PREFIXED takes it, and knows where in the input it begins and ends.

use crate::error::Failure;
use anyhow::Context;
use clap::builder::Resettable;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes that are read at a time.
const BUFFER: usize = 1 << 18;

/// Where items come from.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Items")]
pub(crate) struct Input {
    /// File with an item per line; - is stdin
    #[arg(default_value = "-", value_name = "FILE", help_heading = Resettable::Reset)]
    pub(crate) file: PathBuf,

    /// The file is CSV: take the items from this column, a name or a number from 1
    #[arg(long, value_name = "COLUMN")]
    pub(crate) column: Option<String>,

    /// What parts the columns: one character, or tab [default: ,]
    #[arg(long, value_name = "CHAR", requires = "column", value_parser = parse_delimiter)]
    pub(crate) delimiter: Option<u8>,

    /// The first line of the CSV file has the names of the columns; a column that is named implies it
    #[arg(long, requires = "column")]
    pub(crate) header: bool,

    /// Items end with a NUL byte instead of a newline, as `find -print0` writes them
    #[arg(short = '0', long, conflicts_with = "column")]
    pub(crate) null: bool,

    /// Take empty lines as items; they are left out otherwise
    #[arg(long)]
    pub(crate) keep_blank: bool,
}

pub(crate) fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => Err(format!("{text:?} is no delimiter: it takes one character, or tab")),
    }
}

/// Items that follow each other in the input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// Each item behind its length, u32, little-endian.
    pub(crate) blob: Vec<u8>,
    /// Items in the blob.
    pub(crate) items: u64,
    /// Items that stood before these, and were dropped.
    pub(crate) dropped: u64,
    /// Empty lines that were left out.
    pub(crate) blank: u64,
    /// Where it begins in the input, in bytes.
    pub(crate) start: u64,
    /// And where it ends: items from there on are in later batches.
    pub(crate) end: u64,
}

/// How large a batch may be. One item always fits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Items.
    pub(crate) items: u64,
    /// Bytes of the blob.
    pub(crate) bytes: usize,
}

/// The items of a blob.
pub(crate) fn items_of(blob: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = blob;
    std::iter::from_fn(move || {
        let (length, behind) = rest.split_first_chunk()?;
        let (item, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        rest = behind;
        Some(item)
    })
}

/// A blob of these items.
pub(crate) fn blob<'i>(items: impl IntoIterator<Item = &'i [u8]>) -> Result<Vec<u8>, Failure> {
    let mut batch = Batch::default();
    items.into_iter().try_for_each(|item| batch.push(item))?;
    Ok(batch.blob)
}

impl Batch {
    fn push(&mut self, item: &[u8]) -> Result<(), Failure> {
        let length = u32::try_from(item.len())
            .map_err(|_| Failure::Data(format!("an item of {} bytes: 4 GiB is the most", item.len())))?;
        self.blob.extend_from_slice(&length.to_le_bytes());
        self.blob.extend_from_slice(item);
        self.items += 1;
        Ok(())
    }

    /// Drops the first items, which were loaded before.
    pub(crate) fn drop_first(&mut self, count: u64) {
        self.dropped = count.min(self.items);
        let dropped: usize = items_of(&self.blob)
            .take(usize::try_from(count).unwrap_or(usize::MAX))
            .map(|item| size_of::<u32>() + item.len())
            .sum();
        self.blob.drain(..dropped);
        self.items -= self.dropped;
    }

    fn is_full(&self, limits: Limits) -> bool {
        self.items >= limits.items || self.blob.len() >= limits.bytes
    }
}

impl Input {
    /// What it is called in messages.
    pub(crate) fn name(&self) -> String {
        if self.is_stdin() { "stdin".into() } else { self.file.display().to_string() }
    }

    /// Whether it is stdin.
    pub(crate) fn is_stdin(&self) -> bool {
        self.file.as_os_str() == "-"
    }

    /// Bytes of the input, where they are known.
    pub(crate) fn len(&self) -> Option<u64> {
        if self.is_stdin() {
            return None;
        }
        std::fs::metadata(&self.file).ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
    }

    /// What decides where items begin and end: a load that is resumed must have the same.
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

    /// Opens it at this offset, which must be one where a batch ended, or 0.
    pub(crate) fn open(&self, offset: u64) -> anyhow::Result<Items> {
        let form = match &self.column {
            None => {
                let source = self.source(offset)?;
                Form::Lines(Lines::new(source, if self.null { 0 } else { b'\n' }))
            }
            Some(column) => Form::Column(Box::new(self.column(column, offset)?)),
        };
        Ok(Items { form, offset, keep_blank: self.keep_blank, name: self.name() })
    }

    fn source(&self, offset: u64) -> anyhow::Result<Box<dyn Read + Send>> {
        if self.is_stdin() {
            let mut stdin = io::stdin();
            let skipped = io::copy(&mut Read::by_ref(&mut stdin).take(offset), &mut io::sink())?;
            too_short(skipped, offset, "stdin")?;
            return Ok(Box::new(stdin));
        }
        let mut file = open_file(&self.file)?;
        if offset > 0 {
            let length = file.metadata()?.len();
            too_short(length, offset, &self.name())?;
            file.seek(SeekFrom::Start(offset))?;
        }
        Ok(Box::new(file))
    }

    fn column(&self, column: &str, offset: u64) -> anyhow::Result<Column> {
        let number = column.parse::<usize>().ok();
        if number == Some(0) {
            return Err(Failure::Usage("--column: columns are numbered from 1".into()).into());
        }
        let has_header = self.header || number.is_none();
        let reader = |source| {
            csv::ReaderBuilder::new()
                .delimiter(self.delimiter.unwrap_or(b','))
                .has_headers(false)
                .flexible(true)
                .buffer_capacity(BUFFER)
                .from_reader(source)
        };
        let mut csv = reader(self.source(0)?);
        let mut record = csv::ByteRecord::new();
        let mut index = number.map(|number| number - 1);
        if has_header {
            csv.read_byte_record(&mut record).map_err(|error| bad_csv(&self.name(), &error))?;
            index = index.or_else(|| record.iter().position(|name| name == column.as_bytes()));
        }
        let Some(index) = index else {
            let names: Vec<_> = record.iter().map(String::from_utf8_lossy).collect();
            let text = format!("{} has no column {column:?}; it has: {}", self.name(), names.join(", "));
            return Err(Failure::Usage(text).into());
        };
        let mut base = 0;
        let behind_header = csv.position().byte();
        if offset > behind_header {
            if self.is_stdin() {
                // What the reader has buffered cannot be given back: it reads on up to the offset.
                while csv.position().byte() < offset {
                    if !csv.read_byte_record(&mut record).map_err(|error| bad_csv("stdin", &error))? {
                        too_short(csv.position().byte(), offset, "stdin")?;
                    }
                }
            } else {
                csv = reader(self.source(offset)?);
                base = offset;
            }
        }
        Ok(Column { csv, record, index, base })
    }
}

/// Opens a file for reading.
pub(crate) fn open_file(path: &Path) -> anyhow::Result<File> {
    File::open(path).with_context(|| format!("cannot read {}", path.display()))
}

fn too_short(length: u64, offset: u64, name: &str) -> anyhow::Result<()> {
    if length >= offset {
        return Ok(());
    }
    let text =
        format!("{name} has {length} bytes, but {offset} were loaded before: it is not the same input");
    Err(Failure::Data(text).into())
}

fn bad_csv(name: &str, error: &csv::Error) -> anyhow::Error {
    Failure::Data(format!("{name} is not CSV: {error}")).into()
}

/// A walk over the items.
pub(crate) struct Items {
    form: Form,
    /// Where the next item begins.
    offset: u64,
    keep_blank: bool,
    name: String,
}

enum Form {
    Lines(Lines),
    Column(Box<Column>),
}

struct Column {
    csv: csv::Reader<Box<dyn Read + Send>>,
    record: csv::ByteRecord,
    index: usize,
    /// Where the reader began.
    base: u64,
}

impl Items {
    /// The next batch; `None` at the end.
    pub(crate) fn next_batch(&mut self, limits: Limits) -> anyhow::Result<Option<Batch>> {
        let mut batch = Batch { start: self.offset, end: self.offset, ..Batch::default() };
        // Most batches are as full as the limits allow.
        batch.blob.reserve(limits.bytes.min(BUFFER * 4));
        while !batch.is_full(limits) {
            let (item, end) = match &mut self.form {
                Form::Lines(lines) => {
                    match lines.next().with_context(|| format!("cannot read {}", self.name))? {
                        Some((line, length)) => (line, self.offset + length),
                        None => break,
                    }
                }
                Form::Column(column) => match column.next(&self.name)? {
                    Some((field, end)) => (field, end),
                    None => break,
                },
            };
            if item.is_empty() && !self.keep_blank {
                batch.blank += 1;
            } else {
                batch.push(item)?;
            }
            self.offset = end;
        }
        batch.end = self.offset;
        Ok((batch.end > batch.start || batch.items > 0).then_some(batch))
    }
}

impl Column {
    fn next(&mut self, name: &str) -> anyhow::Result<Option<(&[u8], u64)>> {
        if !self.csv.read_byte_record(&mut self.record).map_err(|error| bad_csv(name, &error))? {
            return Ok(None);
        }
        let end = self.base + self.csv.position().byte();
        match self.record.get(self.index) {
            Some(field) => Ok(Some((field, end))),
            None => {
                let text = format!(
                    "{name}: the record that ends at byte {end} has {} columns, and column {} was asked for",
                    self.record.len(),
                    self.index + 1
                );
                Err(Failure::Data(text).into())
            }
        }
    }
}

/// Lines of any length, without what ends them: a newline, with or without a carriage return before it.
struct Lines {
    source: Box<dyn Read + Send>,
    terminator: u8,
    buffer: Vec<u8>,
    /// What has been read and not given out yet.
    from: usize,
    to: usize,
    /// Bytes from `from` on that are known to have no terminator.
    searched: usize,
    ended: bool,
}

impl Lines {
    fn new(source: Box<dyn Read + Send>, terminator: u8) -> Lines {
        Lines { source, terminator, buffer: vec![0; BUFFER], from: 0, to: 0, searched: 0, ended: false }
    }

    /// The next line, and how many bytes of the input it took.
    fn next(&mut self) -> io::Result<Option<(&[u8], u64)>> {
        loop {
            let unseen = &self.buffer[self.from + self.searched..self.to];
            if let Some(index) = memchr::memchr(self.terminator, unseen) {
                let start = self.from;
                let end = start + self.searched + index;
                self.from = end + 1;
                self.searched = 0;
                let line = &self.buffer[start..end];
                let line =
                    if self.terminator == b'\n' { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
                return Ok(Some((line, (end + 1 - start) as u64)));
            }
            self.searched = self.to - self.from;
            if self.ended {
                // The last line may lack its terminator.
                let line = self.from..self.to;
                self.from = self.to;
                self.searched = 0;
                let length = line.len() as u64;
                return Ok((length > 0).then(|| (&self.buffer[line], length)));
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.from..self.to, 0);
        self.to -= self.from;
        self.from = 0;
        if self.to == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        loop {
            match self.source.read(&mut self.buffer[self.to..]) {
                Ok(read) => {
                    self.to += read;
                    self.ended = read == 0;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    /// All items; and every batch's end is a place to go on from.
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
            error.to_string().contains("ends at byte 8 has 1 columns, and column 2 was asked for"),
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
