//! The options of a Bloom filter, as BF.RESERVE and BF.REBUILD BEGIN spell them. Each is a row of [`OPTIONS`], and what
//! excludes what is a row of [`RULES`].
//!
//! Everything that knows options is made from these two tables: the parser of commands, COMMAND DOCS, what replicas
//! get, the flags of the program and of the calculator, and the table of the Python client. To add an option, add a
//! field to [`Options`] and a row to [`OPTIONS`].

use crate::error::Error;
use crate::hash::HashKind;
pub use crate::params::STATIC_ALONE;
use crate::params::{Cell, Family, Layout, Overflow, Spec, Steps, Tightening, limits};
use crate::spelling::{integer, number, spelling, unsigned};
use std::str::FromStr;

/// What a full filter does with new items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the row of ONFULL says what they mean")]
pub enum OnFull {
    Error,
    Saturate,
    Scale,
    Rotate,
}

spelling!(pub OnFull { Error = "ERROR", Saturate = "SATURATE", Scale = "SCALE", Rotate = "ROTATE" });

/// The options as given. What isn't given follows from the others, or from the configuration.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "they are described in their rows")]
pub struct Options {
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
    /// Milliseconds: a duration, or Unix time.
    Milliseconds {
        /// The value's name in documentation.
        name: &'static str,
        /// The smallest value.
        least: u64,
    },
    /// A number between 0 and 1, both excluded.
    Ratio,
    /// One of these words in lower case, each with its help text.
    Choice(&'static [(&'static str, &'static str)]),
    /// Up to this many hexadecimal digits.
    Hex(u64),
}

/// The options, in the order in which they are written.
pub const OPTIONS: &[OptionRow] = &[
    OptionRow {
        word: "EXPANSION",
        flag: ("expansion", "FACTOR"),
        value: Value::Integer { name: "expansion", bounds: (0, limits::MAX_EXPANSION as u64) },
        expected: "0 to 32768",
        help: "Growth of a scaling filter: capacity of each layer relative to the previous one [default: 2]",
        with: &[],
        parse: |options, value| set(&mut options.expansion, integer(value)),
        write: |options| text(options.expansion),
    },
    OptionRow {
        word: "NONSCALING",
        flag: ("nonscaling", ""),
        value: Value::Flag,
        expected: "",
        help: "Fixed capacity: a full filter refuses new items",
        with: &[],
        parse: |options, _| {
            options.nonscaling = true;
            Some(())
        },
        write: |options| options.nonscaling.then(String::new),
    },
    OptionRow {
        word: "TIGHTENING",
        flag: ("tightening", "RATIO"),
        value: Value::Ratio,
        expected: "a ratio between 0 and 1, both excluded",
        help: "Error rate of each layer relative to the previous one, below 1 [default: inverse squares]",
        with: &[],
        parse: |options, value| set(&mut options.tightening, Tightening::geometric(number(value)?).ok()),
        write: |options| text(options.tightening?.ratio()),
    },
    OptionRow {
        word: "WINDOW",
        flag: ("window", "GENERATIONS"),
        value: Value::Integer { name: "generations", bounds: (2, 1000) },
        expected: GENERATIONS,
        help: "Keep this many generations, and drop the oldest on rotation; the capacity is that of one generation",
        with: &[
            OptionRow {
                word: "EVERY",
                flag: ("every", "TIME"),
                value: Value::Milliseconds { name: "milliseconds", least: 1 },
                expected: "the milliseconds between rotations, at least 1",
                help: "Time between rotations of a window: milliseconds, or with a unit as in 1h",
                with: &[],
                parse: |options, value| set(&mut options.every_ms, unsigned(value).filter(|ms| *ms > 0)),
                write: |options| text(options.every_ms),
            },
            OptionRow {
                word: "SINCE",
                flag: ("", ""),
                value: Value::Milliseconds { name: "unix_milliseconds", least: 0 },
                expected: "a Unix time in milliseconds",
                help: "",
                with: &[],
                parse: |options, value| {
                    set(&mut options.since_ms, unsigned(value).filter(|ms| *ms <= limits::MAX_TIME_MS))
                },
                write: |options| text(options.since_ms),
            },
        ],
        parse: |options, value| {
            let generations = u16::try_from(unsigned(value)?).ok();
            let possible = |count: &u16| limits::GENERATIONS_IN_TABLE.contains(&u32::from(*count));
            set(&mut options.window, generations.filter(possible))
        },
        write: |options| text(options.window),
    },
    OptionRow {
        word: "TTL",
        flag: ("ttl", "TIME"),
        value: Value::Milliseconds { name: "ttl_milliseconds", least: 1 },
        expected: "the time for which an item is kept, in milliseconds, at least 1",
        help: "Forget items this long after their last add; the capacity is the number of items in that time: 24h",
        with: &[OptionRow {
            word: "STEPS",
            flag: ("steps", "N"),
            value: Value::Integer { name: "steps", bounds: (1, 999) },
            expected: "1 to 999 steps of a TTL",
            help: "Number of steps in which items expire; the more steps, the sooner after the TTL [default: 31]",
            with: &[],
            parse: |options, value| set(&mut options.steps, Steps::new(unsigned(value)?)),
            write: |options| text(options.steps.map(Steps::count)),
        }],
        parse: |options, value| set(&mut options.ttl_ms, unsigned(value).filter(|ms| *ms > 0)),
        write: |options| text(options.ttl_ms),
    },
    OptionRow {
        word: "ONFULL",
        flag: ("on-full", "WHAT"),
        value: Value::Choice(&[
            ("error", "Refuse new items"),
            ("saturate", "Accept new items; the error rate rises"),
            ("scale", "Add a layer"),
            ("rotate", "Drop the oldest generation early; only for windows of layout fingerprint"),
        ]),
        expected: "ERROR, SATURATE, SCALE or ROTATE",
        help: "What adding to a full filter does",
        with: &[],
        parse: |options, value| set(&mut options.on_full, choice(value)),
        write: |options| text(options.on_full),
    },
    OptionRow {
        word: "COUNTING",
        flag: ("counting", "BITS"),
        value: Value::Numbers { name: "bits", numbers: &["4", "8", "16"] },
        expected: "4, 8 or 16 bits per counter",
        help: "Use counters of 4, 8 or 16 bits, so that items can be deleted",
        with: &[],
        parse: |options, value| {
            let cells = [Cell::Counter4, Cell::Counter8, Cell::Counter16];
            let bits = unsigned(value)?;
            set(&mut options.counting, cells.into_iter().find(|cell| u64::from(cell.bits()) == bits))
        },
        write: |options| text(options.counting.map(Cell::bits)),
    },
    OptionRow {
        word: "SHARDS",
        flag: ("shards", "N"),
        value: Value::PowerOfTwo(limits::MAX_SHARDS as u64),
        expected: "a power of two from 1 to 1024",
        help: "Number of independent arrays per layer, for several writing threads; a power of two",
        with: &[],
        parse: |options, value| {
            let shards = u32::try_from(unsigned(value)?).ok();
            let possible = |shards: &u32| shards.is_power_of_two() && *shards <= limits::MAX_SHARDS;
            set(&mut options.shards, shards.filter(possible))
        },
        write: |options| text(options.shards),
    },
    OptionRow {
        word: "LAYOUT",
        flag: ("layout", "LAYOUT"),
        value: Value::Choice(Layout::CHOICES),
        expected: Layout::EXPECTED,
        help: "Use one cache line per item, or the least memory",
        with: &[],
        parse: |options, value| {
            let is_auto = value.eq_ignore_ascii_case(Layout::AUTO.as_bytes());
            set(&mut options.layout, if is_auto { Some(None) } else { choice(value).map(Some) })
        },
        write: |options| text(options.layout.map(|layout| layout.map_or(Layout::AUTO, Layout::as_str))),
    },
    OptionRow {
        word: "HASH",
        flag: ("hash", "HASH"),
        value: Value::Choice(&[
            ("xxh3", "Fast"),
            ("siphash", "Keyed: without the seed, nobody can find collisions"),
        ]),
        expected: "XXH3 or SIPHASH",
        help: "Hash function: use siphash if an adversary can choose the items",
        with: &[],
        parse: |options, value| set(&mut options.hash, choice(value)),
        write: |options| text(options.hash),
    },
    OptionRow {
        word: "SEED",
        flag: ("seed", "HEX"),
        value: Value::Hex(32),
        expected: "hexadecimal digits",
        help: "Key of the hash function, in hexadecimal [default: random]",
        with: &[],
        parse: |options, value| set(&mut options.seed, std::str::from_utf8(value).ok().map(str::to_owned)),
        write: |options| options.seed.clone(),
    },
];

/// The possible numbers of generations of a window, for error texts.
pub const GENERATIONS: &str = "2 to 64 generations, with LAYOUT FINGERPRINT 2 to 1000";

fn set<T>(field: &mut Option<T>, value: Option<T>) -> Option<()> {
    value.map(|value| *field = Some(value))
}

fn text(value: Option<impl ToString>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn choice<T: FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Every row, including those that need another option.
pub fn rows() -> impl Iterator<Item = &'static OptionRow> {
    OPTIONS.iter().flat_map(|row| std::iter::once(row).chain(row.with))
}

/// The option with this word, in any mix of upper and lower case.
pub fn find(word: &[u8]) -> Option<&'static OptionRow> {
    rows().find(|row| row.word.as_bytes().eq_ignore_ascii_case(word))
}

/// The refusal of RedisBloom for options that ask for a fixed capacity and for growth.
pub const NONSCALING_EXPANDS: &str = "Nonscaling filters cannot expand";

/// Options that can't be given together.
#[derive(Debug)]
pub struct Rule {
    /// The word of the option to blame.
    pub option: &'static str,
    /// Both are true for these options.
    both: [fn(&Given<'_>) -> bool; 2],
    /// What is wrong, and what to do.
    pub why: &'static str,
}

/// The options, and the layout that follows from them.
struct Given<'o> {
    options: &'o Options,
    layout: Option<Layout>,
}

impl Given<'_> {
    /// Whether any option asks for a filter that scales. EXPANSION 0 doesn't: it is RedisBloom's other spelling of
    /// NONSCALING.
    fn scales(&self) -> bool {
        self.options.scales()
    }

    fn is_window(&self) -> bool {
        self.options.window.is_some() || self.options.ttl_ms.is_some()
    }

    fn counts(&self) -> bool {
        self.options.counting.is_some()
    }

    fn has_every(&self) -> bool {
        self.options.every_ms.is_some()
    }

    fn has_other_cells(&self) -> bool {
        self.layout != Some(Layout::Fingerprint)
    }

    /// Whether any option asks for a fixed capacity.
    fn is_fixed(&self) -> bool {
        self.options.nonscaling
            || self.options.expansion == Some(0)
            || self.options.on_full.is_some_and(|on_full| on_full != OnFull::Scale)
    }

    /// Whether any option contradicts the window that a TTL creates.
    fn has_a_window_of_its_own(&self) -> bool {
        let Options { window, every_ms, since_ms, layout, .. } = self.options;
        window.is_some()
            || every_ms.is_some()
            || since_ms.is_some()
            || layout.is_some_and(|layout| layout != Some(Layout::Fingerprint))
    }
}

/// The options that exclude each other. The first rule that is broken is the one that users see. [`Spec::validate`]
/// checks what layouts exclude.
pub const RULES: &[Rule] = &[
    Rule {
        option: "STEPS",
        both: [|given| given.options.steps.is_some(), |given| given.options.ttl_ms.is_none()],
        why: "STEPS belongs to TTL milliseconds",
    },
    Rule {
        option: "TTL",
        both: [|given| given.options.ttl_ms.is_some(), |given| given.has_a_window_of_its_own()],
        why: "TTL creates a window of LAYOUT FINGERPRINT with its own generations, so WINDOW, EVERY, SINCE and other \
              layouts cannot be given",
    },
    Rule {
        option: "EXPANSION",
        both: [|given| given.options.nonscaling, |given| given.options.expansion.is_some()],
        why: NONSCALING_EXPANDS,
    },
    Rule {
        option: "EVERY",
        both: [|given| given.has_every(), |given| !given.is_window()],
        why: "EVERY belongs to WINDOW generations",
    },
    Rule {
        option: "SINCE",
        both: [|given| given.options.since_ms.is_some(), |given| !given.has_every()],
        why: "SINCE belongs to WINDOW generations EVERY milliseconds",
    },
    Rule {
        option: "WINDOW",
        both: [|given| given.counts(), |given| given.is_window()],
        why: "COUNTING and WINDOW exclude each other: a window's items leave with their generation, not one by one",
    },
    Rule {
        option: "EXPANSION",
        both: [|given| given.scales() && given.counts(), |given| given.has_other_cells()],
        why: "a filter of counters has a fixed capacity: a delete could not tell which layer holds the item, so COUNTING \
              with EXPANSION, TIGHTENING or ONFULL SCALE needs LAYOUT FINGERPRINT",
    },
    Rule {
        option: "WINDOW",
        both: [|given| given.scales(), |given| given.is_window()],
        why: "a window's generations have a fixed capacity, so EXPANSION, TIGHTENING and ONFULL SCALE cannot be combined \
              with WINDOW",
    },
    Rule {
        option: "EXPANSION",
        both: [|given| given.scales(), |given| given.is_fixed() && !given.is_window()],
        why: NONSCALING_EXPANDS,
    },
];

/// The kind of filter that options describe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kind {
    /// Fixed, scaling or window.
    pub family: Family,
    /// The layout; `None` for AUTO, unless only one layout supports the options.
    pub layout: Option<Layout>,
    /// Among how many steps the items of a TTL are divided; 1 without a TTL.
    pub steps: Steps,
}

impl Options {
    /// The options with which BF.RESERVE creates a filter of this spec, whatever the server's configuration. A window
    /// by the clock begins at `since_ms`.
    pub fn of(spec: &Spec, since_ms: u64) -> Options {
        let mut options = Options {
            counting: spec.cell.counts().then_some(spec.cell),
            layout: Some(spec.layout),
            hash: Some(spec.hash),
            shards: Some(spec.shards),
            seed: Some(format!("{:x}", u128::from(spec.seed))),
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
                options.on_full = Some(overflow.into());
                if every_ms > 0 {
                    (options.every_ms, options.since_ms) = (Some(every_ms), Some(since_ms));
                }
            }
        }
        options
    }

    /// Leaves out SHARDS, LAYOUT and HASH if they have BF.RESERVE's defaults, which don't depend on the configuration.
    pub fn without_defaults(mut self) -> Options {
        let default = Spec::fixed(1, 0.5);
        self.shards = self.shards.filter(|shards| *shards != default.shards);
        self.layout = self.layout.filter(|layout| *layout != default.layout);
        self.hash = self.hash.filter(|hash| *hash != default.hash);
        self
    }

    /// The words of the options, in the order of [`OPTIONS`].
    pub fn words(&self) -> Vec<String> {
        let given = rows().filter_map(|row| Some((row, (row.write)(self)?)));
        let words = given.flat_map(|(row, value)| [row.word.to_owned(), value]);
        words.filter(|word| !word.is_empty()).collect()
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

    /// The kind of filter that the options describe. `otherwise` is the layout if none is given, and `expansion` the
    /// configured growth, 0 for filters that don't scale.
    ///
    /// # Errors
    /// [`Error::Exclusive`] with the text of a [rule](RULES), [`Error::Expansion`], [`Error::Generations`].
    pub fn kind(&self, otherwise: Option<Layout>, expansion: u32) -> Result<Kind, Error> {
        let layout = self.layout_or(otherwise);
        let given = Given { options: self, layout };
        if let Some(expansion) = self.expansion.filter(|_| !self.nonscaling)
            && !(0..=i64::from(limits::MAX_EXPANSION)).contains(&expansion)
        {
            return Err(Error::Expansion(expansion.unsigned_abs()));
        }
        if let Some(rule) = RULES.iter().find(|rule| rule.both.iter().all(|holds| holds(&given))) {
            return Err(Error::Exclusive(rule.why));
        }
        let is_table = layout == Some(Layout::Fingerprint);
        let (steps, window, every_ms) = match self.ttl_ms {
            None => (Steps::ONE, self.window, self.every_ms.unwrap_or(0)),
            Some(ttl_ms) => {
                let steps = self.steps.unwrap_or_default().within(ttl_ms);
                (steps, Some(steps.generations()), steps.every_ms(ttl_ms))
            }
        };
        let overflow = match self.on_full {
            Some(OnFull::Error) => Some(Overflow::Error),
            Some(OnFull::Saturate) => Some(Overflow::Saturate),
            Some(OnFull::Rotate) => Some(Overflow::Rotate),
            Some(OnFull::Scale) | None => None,
        };
        let family = if let Some(generations) = window {
            if !is_table && !limits::GENERATIONS.contains(&generations.into()) {
                return Err(Error::Generations(generations.into()));
            }
            // By default, no items are refused: a stream should not stop because one hour was busier than planned. A
            // table has no room beyond its capacity, so it rotates.
            let default = if is_table { Overflow::Rotate } else { Overflow::Saturate };
            Family::Window { generations, overflow: overflow.unwrap_or(default), every_ms }
        } else {
            let own = self.expansion.and_then(|expansion| u32::try_from(expansion).ok());
            let expansion = match own.unwrap_or(expansion) {
                // The options ask for a filter that scales, but the configured expansion is 0.
                0 if self.scales() => DEFAULT_EXPANSION,
                expansion => expansion,
            };
            if given.is_fixed() || given.counts() && !self.scales() || expansion == 0 {
                Family::Fixed(overflow.unwrap_or_default())
            } else {
                Family::Scaling {
                    expansion,
                    tightening: self.tightening.unwrap_or(Tightening::INVERSE_SQUARE),
                }
            }
        };
        Ok(Kind { family, layout, steps })
    }

    /// The requested layout, or `otherwise` if none is requested. AUTO chooses FINGERPRINT for options that no other
    /// layout supports.
    fn layout_or(&self, otherwise: Option<Layout>) -> Option<Layout> {
        let needs_fingerprints = self.counting.is_some() && self.scales()
            || self.window.is_some_and(|generations| !limits::GENERATIONS.contains(&generations.into()))
            || self.on_full == Some(OnFull::Rotate);
        match self.layout.unwrap_or(otherwise) {
            _ if self.ttl_ms.is_some() => Some(Layout::Fingerprint),
            None if needs_fingerprints => Some(Layout::Fingerprint),
            layout => layout,
        }
    }
}

/// Growth of a scaling filter: the default of RedisBloom.
pub const DEFAULT_EXPANSION: u32 = 2;

impl From<Overflow> for OnFull {
    fn from(overflow: Overflow) -> OnFull {
        match overflow {
            Overflow::Error => OnFull::Error,
            Overflow::Saturate => OnFull::Saturate,
            Overflow::Rotate => OnFull::Rotate,
        }
    }
}
