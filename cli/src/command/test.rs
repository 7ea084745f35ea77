//! `bloomery test`: tests whether items are in a filter, on a server or in a file.

use crate::arguments::parse_delimiter;
use crate::error::{Failure, Outcome, fail};
use crate::filter::file;
use crate::input::{BatchLimits, Input, InputFormat, Items, blob, items_of};
use crate::output::count;
use crate::server::connection::{Connection, Server};
use crate::server::family::{FAMILIES, Family};
use crate::server::info;
use crate::server::spread::{Share, Spread};
use bloomery::Filter;
use bloomery::filter::LiveRef;
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Test items against a filter on a server, or in a filter file.
///
/// Prints "yes" or "no" before each item. "yes" may be a false positive, at the error rate of the filter; "no" is
/// certain. With one item, the exit code is the answer, as with grep: 0 for yes, 1 for no.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery test users ada grace
  bloomery test users ada --quiet && echo known
  bloomery test --filter users.bloom ada             # without a server
  bloomery test users --from ids.txt --count
  bloomery test users --from log.csv --column user --only no   # items that were never added")]
pub(crate) struct Options {
    /// The filter's key; with --filter, this argument is an item
    #[arg(required_unless_present = "filter")]
    key: Option<String>,

    /// Items
    items: Vec<String>,

    /// Test against this filter file instead of a server
    #[arg(long, value_name = "FILE")]
    filter: Option<PathBuf>,

    /// Print how many items there are, and how many test positive
    #[arg(short, long)]
    count: bool,

    /// Print nothing; the exit code is 0 if all items test positive, else 1
    #[arg(short, long, conflicts_with_all = ["count", "json"])]
    quiet: bool,

    /// Print only the items with this answer
    #[arg(long, value_name = "ANSWER", conflicts_with_all = ["count", "json", "quiet"])]
    only: Option<Only>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Test against one filter that is spread over a cluster in N parts; the key is its name
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), conflicts_with = "filter")]
    spread: Option<u16>,

    #[command(flatten)]
    input: From,

    #[command(flatten)]
    server: Server,
}

/// [`Input`], with an option for the file, because arguments are items here.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Items from a file")]
struct From {
    /// File with one item per line; - is stdin
    #[arg(long, value_name = "FILE", conflicts_with = "items")]
    from: Option<PathBuf>,

    /// Read CSV, and take the items from this column: a name, or a number from 1
    #[arg(long, value_name = "COLUMN", requires = "from")]
    column: Option<String>,

    /// Character between the columns, or tab [default: ,]
    #[arg(long, value_name = "CHAR", requires = "column", value_parser = parse_delimiter)]
    delimiter: Option<u8>,

    /// The first line of the CSV file is a header; implied if --column is a name
    #[arg(long, requires = "column")]
    header: bool,

    /// Items end with a NUL byte instead of a newline
    #[arg(short = '0', long, conflicts_with = "column", requires = "from")]
    null: bool,

    /// Read the bytes as they are: don't decompress gzip or zstd data, and accept what isn't text
    #[arg(long, requires = "from")]
    binary: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Only {
    /// Items that test positive
    Yes,
    /// Items that are certainly absent
    No,
}

/// Maximum size of a command. A server tests 16384 items or more on worker threads.
const BATCH: BatchLimits = BatchLimits { items: 16_384, bytes: 1 << 20 };

#[derive(Serialize)]
struct Tally {
    items: u64,
    yes: u64,
    no: u64,
}

/// An item and its answer. The item is text, or the hexadecimal digits of its bytes if these aren't UTF-8, so that no
/// two items look the same.
#[derive(Serialize)]
struct ItemAnswer<'i> {
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<&'i str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    item_hex: Option<String>,
    answer: bool,
}

impl ItemAnswer<'_> {
    fn new(item: &[u8], answer: bool) -> ItemAnswer<'_> {
        let text = std::str::from_utf8(item).ok();
        let hex = || item.iter().map(|byte| format!("{byte:02x}")).collect();
        ItemAnswer { item: text, item_hex: text.is_none().then(hex), answer }
    }
}

/// Where the filter is: on a server, spread over a cluster, or in a file.
enum TestedFilter {
    Server { connection: Box<Connection>, key: Vec<u8>, family: &'static Family },
    Spread(Spread),
    File { value: Box<Filter>, now_ms: u64 },
}

/// Tests the items, and prints the answers.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let (mut filter, given) = open(options)?;
    let mut source = match &options.input.from {
        Some(file) => TestedItems::Input(Box::new(options.input.input(file).open()?)),
        None if given.is_empty() => {
            fail!(Usage, "no items: give some as arguments, or use --from FILE (- is stdin)");
        }
        None => TestedItems::Given(given),
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let mut counts = Tally { items: 0, yes: 0, no: 0 };
    let mut answers_so_far = false;
    if options.json && !options.count {
        write!(out, "[")?;
    }
    while let Some(blob) = source.next()? {
        let answers = filter.test(&blob)?;
        for (item, yes) in items_of(&blob).zip(answers) {
            counts.items += 1;
            *(if yes { &mut counts.yes } else { &mut counts.no }) += 1;
            if options.count || options.quiet {
                continue;
            }
            if options.json {
                out.write_all(if answers_so_far { b",\n  " } else { b"\n  " })?;
                answers_so_far = true;
                serde_json::to_writer(&mut out, &ItemAnswer::new(item, yes)).map_err(io::Error::from)?;
                continue;
            }
            match options.only {
                Some(only) if yes != (only == Only::Yes) => continue,
                Some(_) => {}
                None => out.write_all(if yes { b"yes " } else { b"no  " })?,
            }
            out.write_all(item)?;
            out.write_all(if options.input.null { b"\0" } else { b"\n" })?;
        }
    }
    match (options.json, options.count) {
        (true, true) => {
            serde_json::to_writer(&mut out, &counts).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        (true, false) => writeln!(out, "\n]")?,
        (false, true) => {
            writeln!(out, "{} of {} items test positive", count(counts.yes), count(counts.items))?
        }
        (false, false) => {}
    }
    // The answers decide the exit code with --quiet, or if there is one item and neither --only nor --count.
    let asked = options.quiet || counts.items == 1 && options.only.is_none() && !options.count;
    let outcome = if asked && counts.no > 0 { Outcome::No } else { Outcome::Done };
    outcome.printed(out.flush().map_err(Into::into))
}

/// Opens the filter. Returns it, and those of the arguments that are items.
fn open(options: &Options) -> anyhow::Result<(TestedFilter, Vec<String>)> {
    if let Some(path) = &options.filter {
        let value = Box::new(file::read_file(path)?);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        return Ok((
            TestedFilter::File { value, now_ms },
            options.key.iter().chain(&options.items).cloned().collect(),
        ));
    }
    let name = options.key.clone().unwrap_or_default();
    if let Some(parts) = options.spread {
        let mut spread = Spread::connect(&options.server, &name, parts)?;
        spread.each(|_, part, connection| match info::describe(connection, part.as_bytes())? {
            Some(_) => Ok(()),
            None => Err(Failure::Data("it is missing, so its items would test absent".into()).into()),
        })?;
        return Ok((TestedFilter::Spread(spread), options.items.clone()));
    }
    let name = name.into_bytes();
    let mut connection = Box::new(options.server.connect()?);
    let family = Family::of(&info::existing(&mut *connection, &name)?);
    Ok((TestedFilter::Server { connection, key: name, family }, options.items.clone()))
}

impl From {
    fn input(&self, file: &std::path::Path) -> Input {
        let format = InputFormat {
            column: self.column.clone(),
            delimiter: self.delimiter,
            header: self.header,
            null: self.null,
            keep_blank: false,
            binary: self.binary,
        };
        Input { file: file.to_owned(), format }
    }
}

enum TestedItems {
    Given(Vec<String>),
    Input(Box<Items>),
}

impl TestedItems {
    fn next(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        match self {
            TestedItems::Given(items) if items.is_empty() => Ok(None),
            TestedItems::Given(items) => {
                Ok(Some(blob(std::mem::take(items).iter().map(|item| item.as_bytes()))?))
            }
            TestedItems::Input(items) => Ok(items.next_batch(BATCH)?.map(|batch| batch.blob)),
        }
    }
}

impl TestedFilter {
    /// Returns an answer for each item of the blob.
    fn test(&mut self, blob: &[u8]) -> anyhow::Result<Vec<bool>> {
        match self {
            TestedFilter::File { value, now_ms } => {
                Ok(items_of(blob).map(|item| holds(value, item, *now_ms)).collect())
            }
            TestedFilter::Spread(spread) => {
                let shares = spread.shares(blob);
                let found = spread.each(|part, key, connection| {
                    let Share { blob, places } = &shares[part];
                    if places.is_empty() {
                        Ok(Vec::new())
                    } else {
                        (FAMILIES[0].test)(connection, key.as_bytes(), blob)
                    }
                })?;
                let mut answers = vec![false; items_of(blob).count()];
                let places = shares.iter().flat_map(|share| &share.places);
                places.zip(found.into_iter().flatten()).for_each(|(place, answer)| answers[*place] = answer);
                Ok(answers)
            }
            TestedFilter::Server { connection, key, family } => (family.test)(connection, key, blob),
        }
    }
}

/// Whether the filter contains the item. In a window, `now_ms` determines the current generation.
fn holds(filter: &Filter, item: &[u8], now_ms: u64) -> bool {
    match (filter.live(), filter.cuckoo()) {
        (Some(LiveRef::Bloom(filter)), _) => {
            filter.contains_as_of(filter.hash(item), filter.generation_at(now_ms))
        }
        // Some filters of other systems hold only items of one form, such as integers. Other items are absent.
        (Some(LiveRef::Foreign(filter)), _) => filter.contains(item),
        (None, cuckoo) => cuckoo.is_some_and(|filter| filter.contains(filter.hash(item))),
    }
}
