//! The options of a filter, as commands spell them. Each is a row of [`BLOOM`] or [`CUCKOO`], and what excludes what is
//! a row of [`RULES`].
//!
//! Everything that knows options is made from these tables: the parser of commands, COMMAND DOCS, what replicas get,
//! the flags of the program and of the calculator, and the types of the clients. To add an option, add a field to
//! [`Options`] and a row to the table.

mod bloom;
mod cuckoo;
mod rules;

pub use bloom::{BLOOM, GENERATIONS, INSERT, SIZE, TIGHTENING};
pub use cuckoo::{CUCKOO, CUCKOO_INSERT};
pub use rules::{DEFAULT_EXPANSION, Kind, NONSCALING_EXPANDS, RULES, Rule};

use crate::hash::HashKind;
pub use crate::params::STATIC_ALONE;
use crate::params::{Cell, Family, Layout, Overflow, SIZES, Spec, Steps, Tightening};
use crate::spelling::{spelling, unsigned};
use alloc::{
    borrow::ToOwned,
    string::{String, ToString},
    vec::Vec,
};
use core::str::FromStr;

/// What a full filter does with new items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the row of ONFULL says what they mean")]
pub enum OnFull {
    Error,
    Saturate,
    Scale,
    Forget,
}

spelling!(pub OnFull { Error = "ERROR", Saturate = "SATURATE", Scale = "SCALE", Forget = "FORGET" });

/// The options as given. What isn't given follows from the others, or from the configuration.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "they are described in their rows")]
pub struct Options {
    pub capacity: Option<u64>,
    pub error_rate: Option<f64>,
    pub nocreate: bool,
    pub expansion: Option<i64>,
    pub nonscaling: bool,
    pub tightening: Option<Tightening>,
    pub counting: Option<Cell>,
    pub window: Option<u16>,
    pub every_ms: Option<u64>,
    pub since_ms: Option<u64>,
    pub ttl_ms: Option<u64>,
    pub steps: Option<Steps>,
    pub on_full: Option<OnFull>,
    /// The inner `None` is AUTO.
    pub layout: Option<Option<Layout>>,
    pub hash: Option<HashKind>,
    pub shards: Option<u32>,
    /// Hexadecimal digits. How many there may be depends on the hash.
    pub seed: Option<String>,
    pub sizes: Option<u16>,
    pub bucket_size: Option<u8>,
    pub max_iterations: Option<u16>,
}

/// One option.
#[derive(Debug)]
pub struct OptionRow {
    /// Its word.
    pub word: &'static str,
    /// The program's flag, without dashes, and the name of its value. Empty if the program doesn't have the option.
    pub flag: (&'static str, &'static str),
    /// What follows the word.
    pub value: Value,
    /// What follows the word, as the error text says it.
    pub expected: &'static str,
    /// What it does, for `--help`.
    pub help: &'static str,
    /// The options that need this one.
    pub with: &'static [OptionRow],
    /// Reads the value.
    pub parse: fn(&mut Options, &[u8]) -> Option<()>,
    /// Writes the value; `None` if the option isn't given.
    pub write: fn(&Options) -> Option<String>,
}

/// A row that says nothing.
const PLAIN: OptionRow = OptionRow {
    word: "",
    flag: ("", ""),
    value: Value::Flag,
    expected: "",
    help: "",
    with: &[],
    parse: |_, _| None,
    write: |_| None,
};

/// What follows an option's word.
#[derive(Debug)]
pub enum Value {
    /// Nothing.
    Flag,
    /// A whole number within bounds.
    Integer {
        /// The value's name in documentation.
        name: &'static str,
        /// The smallest and the largest value.
        bounds: (u64, u64),
    },
    /// One of these numbers, or nothing, which means the first.
    Numbers {
        /// The value's name in documentation.
        name: &'static str,
        /// The numbers.
        numbers: &'static [&'static str],
    },
    /// A power of two up to this one.
    PowerOfTwo(u64),
    /// A time of at least 1 ms: milliseconds, or a number with a unit.
    Duration {
        /// The value's name in documentation.
        name: &'static str,
    },
    /// A Unix time in milliseconds.
    UnixTime {
        /// The value's name in documentation.
        name: &'static str,
    },
    /// A number between 0 and 1, both excluded.
    Ratio,
    /// One of these words in lower case, each with its help text.
    Choice(&'static [(&'static str, &'static str)]),
    /// Up to this many hexadecimal digits.
    Hex(u64),
}

fn set<T>(field: &mut Option<T>, value: Option<T>) -> Option<()> {
    value.map(|value| *field = Some(value))
}

fn text(value: Option<impl ToString>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn choice<T: FromStr>(word: &[u8]) -> Option<T> {
    core::str::from_utf8(word).ok()?.parse().ok()
}

/// Every row of a table, including those that need another option.
pub fn rows(table: &'static [OptionRow]) -> impl Iterator<Item = &'static OptionRow> {
    table.iter().flat_map(|row| core::iter::once(row).chain(row.with))
}

/// The option of a table with this word, in any mix of upper and lower case.
pub fn find(table: &'static [OptionRow], word: &[u8]) -> Option<&'static OptionRow> {
    rows(table).find(|row| row.word.as_bytes().eq_ignore_ascii_case(word))
}

impl OptionRow {
    /// Reads a value within the bounds of the row.
    pub fn read(&self, options: &mut Options, value: &[u8]) -> Option<()> {
        if let Value::Integer { bounds: (least, most), .. } = self.value {
            unsigned(value).filter(|number| (least..=most).contains(number))?;
        }
        (self.parse)(options, value)
    }
}

impl Options {
    /// The options with which BF.RESERVE creates a filter of this spec, whatever the server's configuration. A window
    /// by the clock begins at `since_ms`.
    pub fn of(spec: &Spec, since_ms: u64) -> Options {
        let mut options = Options {
            capacity: Some(spec.capacity),
            error_rate: Some(spec.error_rate),
            counting: spec.cell.counts().then_some(spec.cell),
            layout: Some(spec.layout),
            hash: Some(spec.hash),
            shards: Some(spec.shards),
            seed: Some(format!("{:x}", u128::from(spec.seed))),
            sizes: Some(SIZES).filter(|sizes| *sizes > 0),
            ..Options::default()
        };
        match spec.family {
            // Only a rebuild creates a static filter, and its kind follows from the layout.
            _ if spec.is_static() => {}
            Family::Fixed(overflow) => options.on_full = Some(overflow.into()),
            Family::Scaling { expansion, tightening } => {
                options.expansion = Some(expansion.into());
                options.tightening = Some(tightening);
            }
            Family::Window { generations, overflow, every_ms } => {
                options.window = Some(generations);
                options.on_full =
                    Some(if spec.grows() && spec.is_table() { OnFull::Scale } else { overflow.into() });
                if every_ms > 0 {
                    (options.every_ms, options.since_ms) = (Some(every_ms), Some(since_ms));
                }
            }
        }
        options
    }

    /// The values of SHARDS, LAYOUT and HASH without these options, whatever the server's configuration.
    pub fn usual() -> Options {
        let Spec { shards, layout, hash, .. } = Spec::fixed(1, 0.5);
        Options { shards: Some(shards), layout: Some(layout), hash: Some(hash), ..Options::default() }
    }

    /// The words of the options of a table, without the options that have their `usual` value.
    pub fn words_unlike(&self, usual: &Options, table: &'static [OptionRow]) -> Vec<String> {
        let given = rows(table).filter_map(|row| Some((row, (row.write)(self)?)));
        let unlike = given.filter(|(row, value)| (row.write)(usual).as_ref() != Some(value));
        let words = unlike.flat_map(|(row, value)| [row.word.to_owned(), value]);
        words.filter(|word| !word.is_empty()).collect()
    }

    /// The words of the options of a table.
    pub fn words(&self, table: &'static [OptionRow]) -> Vec<String> {
        self.words_unlike(&Options::default(), table)
    }

    fn scales(&self) -> bool {
        self.expansion.is_some_and(|expansion| expansion > 0)
            || self.tightening.is_some()
            || self.on_full == Some(OnFull::Scale)
    }

    /// Whether any option determines the kind of filter.
    pub fn name_a_kind(&self) -> bool {
        let Options {
            expansion,
            nonscaling,
            tightening,
            counting,
            window,
            every_ms,
            since_ms,
            ttl_ms,
            on_full,
            ..
        } = self;
        *nonscaling
            || expansion.is_some()
            || tightening.is_some()
            || counting.is_some()
            || window.is_some()
            || every_ms.is_some()
            || since_ms.is_some()
            || ttl_ms.is_some()
            || on_full.is_some()
    }
}

impl From<Overflow> for OnFull {
    fn from(overflow: Overflow) -> OnFull {
        match overflow {
            Overflow::Error => OnFull::Error,
            Overflow::Saturate => OnFull::Saturate,
            Overflow::Forget => OnFull::Forget,
        }
    }
}
