//! The options that describe a filter. Most of them are named after the options of BF.RESERVE and CF.RESERVE.

use crate::arguments::{parse_capacity, parse_ms, parse_positive_ms, parse_rate, parse_whole};
use crate::refused::Refused;
use crate::wanted::{BUCKET_SIZE, CUCKOO_EXPANSION, EXPANSION, MAX_ITERATIONS, Wanted, command};
use bloomery::filter::Origin;
use bloomery::{Cell, CuckooSpec, Family, HashKind, Overflow, Seed, Spec, Steps, Tightening, limits};
use clap::ValueEnum;

/// Number of items that a static filter has room for before its list of items grows, if no number is given.
const STATIC_CAPACITY: u64 = 1 << 16;

/// The options that can't be combined with --static.
const NOT_STATIC: [&str; 10] = [
    "nonscaling",
    "expansion",
    "tightening",
    "counting",
    "window",
    "ttl",
    "on_full",
    "layout",
    "shards",
    "cuckoo",
];

/// The options, as they are on the command line; [`Reserve::wanted`] validates them.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Filter (the options of BF.RESERVE; by default, a scaling filter)")]
pub struct Reserve {
    /// Number of items to size the filter for: 1000000, 1_000_000, 1M
    #[arg(short = 'n', long, value_name = "ITEMS", value_parser = parse_capacity)]
    pub(crate) capacity: Option<u64>,

    /// False-positive rate: the share of absent items that may test positive, 0.01 or 1%
    #[arg(short, long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) error_rate: Option<f64>,

    /// Fixed capacity: a full filter refuses new items
    #[arg(long)]
    nonscaling: bool,

    /// Growth of a scaling filter: capacity of each layer relative to the previous one [default: 2]
    #[arg(long, value_name = "FACTOR", value_parser = parse_expansion)]
    expansion: Option<u32>,

    /// Error rate of each layer relative to the previous one, below 1 [default: inverse squares]
    #[arg(long, value_name = "RATIO")]
    tightening: Option<f64>,

    /// Use counters of 4, 8 or 16 bits, so that items can be deleted
    #[arg(long, value_name = "BITS", num_args = 0..=1, default_missing_value = "4", require_equals = true, value_parser = parse_counter)]
    counting: Option<Cell>,

    /// Keep this many generations, and drop the oldest on rotation; the capacity is that of one generation
    #[arg(long, value_name = "GENERATIONS", value_parser = parse_generations)]
    window: Option<u16>,

    /// Time between rotations of a window: milliseconds, or with a unit as in 1h
    #[arg(long, value_name = "TIME", requires = "window", value_parser = parse_ms)]
    every: Option<u64>,

    /// Forget items this long after their last add; the capacity is the number of items in that time: 24h
    #[arg(long, value_name = "TIME", value_parser = parse_positive_ms, conflicts_with_all = ["window", "every", "counting", "nonscaling", "expansion", "tightening", "shards"])]
    ttl: Option<u64>,

    /// Number of steps in which items expire; the more steps, the sooner after the TTL [default: 31]
    #[arg(long, value_name = "N", requires = "ttl", value_parser = parse_steps)]
    steps: Option<Steps>,

    /// What adding to a full filter does
    #[arg(long, value_name = "WHAT", ignore_case = true)]
    on_full: Option<OnFull>,

    /// Use one cache line per item, or the least memory
    #[arg(long, ignore_case = true)]
    layout: Option<Layout>,

    /// Hash function: use siphash if an adversary can choose the items
    #[arg(long, ignore_case = true)]
    hash: Option<Hash>,

    /// Number of independent arrays per layer, for several writing threads; a power of two
    #[arg(long, value_name = "N")]
    shards: Option<u32>,

    /// Key of the hash function, in hexadecimal [default: random]
    #[arg(long, value_name = "HEX")]
    pub(crate) seed: Option<String>,

    /// Cuckoo filter: a byte per item, and items can be deleted; the bucket size determines its error rate
    #[arg(long, conflicts_with_all = ["nonscaling", "tightening", "counting", "window", "ttl", "on_full", "layout", "shards"])]
    cuckoo: bool,

    /// Slots per bucket of a cuckoo filter [default: 2]
    #[arg(long, value_name = "SLOTS", requires = "cuckoo", value_parser = parse_bucket_size)]
    bucket_size: Option<u8>,

    /// Number of fingerprints that one add to a cuckoo filter may move [default: 20]
    #[arg(long, value_name = "N", requires = "cuckoo")]
    max_iterations: Option<u16>,
}

/// What adding to a full filter does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnFull {
    /// Refuse new items
    Error,
    /// Accept new items; the error rate rises
    Saturate,
    /// Add a layer
    Scale,
    /// Drop the oldest generation early; only for windows of layout fingerprint
    Rotate,
}

/// The values of [`bloomery::Layout`] for filters that accept adds, each with its help text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Layout {
    /// Blocked above 512 KiB if that costs at most 15% more memory, else classic; fingerprint if only that supports the
    /// options
    Auto,
    /// One cache line per item
    Blocked,
    /// The least memory
    Classic,
    /// Two cache lines per item; the least memory for counting, and for error rates below 0.1%
    Fingerprint,
    /// Like classic, but each probe has a slice of its own
    Partitioned,
}

/// The constructions of a static filter, each with its help text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StaticLayout {
    /// Three cache lines per item
    Fuse,
    /// A tenth less memory at 1%; a test needs more time
    Ribbon,
}

/// Whether the filter is static.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Static {
    /// Make it static: the least memory, and no adds afterwards
    #[arg(
        id = "static",
        long = "static",
        value_name = "LAYOUT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "fuse",
        ignore_case = true,
        conflicts_with_all = NOT_STATIC
    )]
    pub layout: Option<StaticLayout>,
}

/// The values of [`HashKind`], each with its help text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Hash {
    /// Fast
    Xxh3,
    /// Keyed: without the seed, nobody can find collisions
    Siphash,
}

impl Reserve {
    /// Whether the options name a size, and so describe a filter to create.
    pub fn is_given(&self) -> bool {
        self.capacity.is_some()
    }

    /// Validates the options, and returns the filter they describe.
    ///
    /// # Errors
    /// The first option that doesn't fit.
    pub fn wanted(&self) -> Result<Wanted, Refused> {
        let Some(capacity) = self.capacity else {
            return Err(Refused::new("capacity", "missing; give the number of items to size the filter for"));
        };
        if self.cuckoo {
            if self.error_rate.is_some() {
                return Err(Refused::new(
                    "error-rate",
                    "not for cuckoo filters; --bucket-size determines it",
                ));
            }
            return self.cuckoo(capacity).map(Wanted::Cuckoo);
        }
        let Some(error_rate) = self.error_rate else {
            let text = "missing; give the share of absent items that may test positive, such as 1%";
            return Err(Refused::new("error-rate", text));
        };
        let spec = Spec {
            capacity: if self.ttl.is_some() { self.steps().capacity(capacity) } else { capacity },
            error_rate,
            seed: self.seed()?,
            shards: self.shards.unwrap_or(1),
            hash: self.hash(),
            layout: self.layout(),
            cell: self.counting.unwrap_or_default(),
            family: self.family()?,
        };
        spec.validate()?;
        Ok(Wanted::Bloom(spec))
    }

    /// The static filter that the options describe. A capacity is only an estimate, because the list of items grows as
    /// needed.
    ///
    /// # Errors
    /// The errors of [`Reserve::wanted`].
    pub fn wanted_static(&self, layout: StaticLayout) -> Result<Spec, Refused> {
        let capacity = self.capacity.unwrap_or(STATIC_CAPACITY);
        let spec = Reserve { capacity: Some(capacity), nonscaling: true, ..self.clone() };
        let layout = match layout {
            StaticLayout::Fuse => Some(bloomery::Layout::Fuse),
            StaticLayout::Ribbon => Some(bloomery::Layout::Ribbon),
        };
        match spec.wanted()? {
            Wanted::Bloom(spec) => Ok(Spec { layout, ..spec }),
            Wanted::Cuckoo(_) => Err(Refused::new("cuckoo", "cannot be combined with --static")),
        }
    }

    /// The layout. AUTO becomes FINGERPRINT if no other layout supports the options, as in BF.RESERVE.
    fn layout(&self) -> Option<bloomery::Layout> {
        let needs_fingerprints = self.ttl.is_some()
            || self.counting.is_some() && self.scales()
            || self.window.is_some_and(|generations| !limits::GENERATIONS.contains(&generations.into()))
            || self.on_full == Some(OnFull::Rotate);
        match self.layout {
            None | Some(Layout::Auto) if needs_fingerprints => Some(bloomery::Layout::Fingerprint),
            None | Some(Layout::Auto) => None,
            Some(Layout::Blocked) => Some(bloomery::Layout::Blocked),
            Some(Layout::Classic) => Some(bloomery::Layout::Classic),
            Some(Layout::Fingerprint) => Some(bloomery::Layout::Fingerprint),
            Some(Layout::Partitioned) => Some(bloomery::Layout::Partitioned),
        }
    }

    fn scales(&self) -> bool {
        self.expansion.is_some_and(|factor| factor > 0)
            || self.tightening.is_some()
            || self.on_full == Some(OnFull::Scale)
    }

    fn family(&self) -> Result<Family, Refused> {
        let refuse = |option, text: &str| Err(Refused::new(option, text));
        let (scales, is_table) = (self.scales(), self.layout() == Some(bloomery::Layout::Fingerprint));
        let overflow = match self.on_full {
            Some(OnFull::Error) => Some(Overflow::Error),
            Some(OnFull::Saturate) => Some(Overflow::Saturate),
            Some(OnFull::Rotate) => Some(Overflow::Rotate),
            Some(OnFull::Scale) | None => None,
        };
        if let Some(ttl_ms) = self.ttl {
            if scales || self.layout.is_some_and(|layout| layout != Layout::Fingerprint) {
                return refuse(
                    "ttl",
                    "this is a window of fingerprints, which cannot be combined with --on-full scale or another --layout",
                );
            }
            let steps = self.steps();
            return Ok(Family::Window {
                generations: steps.generations(),
                overflow: overflow.unwrap_or(Overflow::Rotate),
                every_ms: steps.every_ms(ttl_ms),
            });
        }
        if let Some(generations) = self.window {
            if scales || self.counting.is_some() {
                return refuse(
                    "window",
                    "cannot be combined with --counting, --expansion, --tightening or --on-full scale",
                );
            }
            // A stream should not stop because one hour was busier than planned. So by default, a full window accepts
            // new items. A table has no room for them, so it drops its oldest generation.
            let overflow = overflow.unwrap_or(if is_table { Overflow::Rotate } else { Overflow::Saturate });
            return Ok(Family::Window { generations, overflow, every_ms: self.every.unwrap_or(0) });
        }
        // Without fingerprints, a delete can't find out which layer holds an item. So in other layouts, a filter with
        // counters doesn't grow.
        let has_counters = self.counting.is_some() && !(scales && is_table);
        if self.nonscaling || has_counters || self.expansion == Some(0) || overflow.is_some() {
            if scales && has_counters {
                return refuse("expansion", "a filter with counters grows only in --layout fingerprint");
            }
            if scales {
                return refuse(
                    "expansion",
                    "a fixed capacity (--nonscaling, --on-full error or saturate) cannot be combined with --expansion, \
                     --tightening or --on-full scale",
                );
            }
            return Ok(Family::Fixed(overflow.unwrap_or_default()));
        }
        let tightening = match self.tightening {
            None => Tightening::INVERSE_SQUARE,
            Some(ratio) => Tightening::geometric(ratio)?,
        };
        Ok(Family::Scaling { expansion: self.expansion.unwrap_or(EXPANSION), tightening })
    }

    fn cuckoo(&self, capacity: u64) -> Result<CuckooSpec, Refused> {
        let spec = CuckooSpec {
            capacity,
            bucket_size: self.bucket_size.unwrap_or(BUCKET_SIZE),
            max_iterations: self.max_iterations.unwrap_or(MAX_ITERATIONS),
            expansion: CuckooSpec::expansion_for(self.expansion.unwrap_or(CUCKOO_EXPANSION)),
            origin: Origin::Bloomery,
            hash: self.hash(),
            seed: self.seed()?,
        };
        let least = 2 * u64::from(spec.bucket_size);
        if capacity < least {
            return Err(Refused::new(
                "capacity",
                format!("a cuckoo filter has two buckets, so at least {least} items"),
            ));
        }
        spec.validate()?;
        Ok(spec)
    }

    fn steps(&self) -> Steps {
        let steps = self.steps.unwrap_or_default();
        self.ttl.map_or(steps, |ttl_ms| steps.within(ttl_ms))
    }

    fn hash(&self) -> HashKind {
        match self.hash {
            None | Some(Hash::Xxh3) => HashKind::Xxh3,
            Some(Hash::Siphash) => HashKind::SipHash,
        }
    }

    /// The seed given, or a random one.
    fn seed(&self) -> Result<Seed, Refused> {
        let hash = self.hash();
        let Some(hex) = &self.seed else {
            return Seed::random(hash).map_err(|error| {
                Refused::new("seed", format!("give one, as there is no randomness: {error:?}"))
            });
        };
        let digits = hash.seed_bits() as usize / 4;
        let is_hex = (1..=digits).contains(&hex.len()) && hex.bytes().all(|digit| digit.is_ascii_hexdigit());
        match u128::from_str_radix(hex, 16) {
            Ok(seed) if is_hex => Ok(Seed::from(seed)),
            _ => Err(Refused::new(
                "seed",
                format!("not 1 to {digits} hexadecimal digits, which this hash function needs"),
            )),
        }
    }

    /// The options that were given, as words for BF.REBUILD BEGIN. The others stay as they are in the filter that is
    /// rebuilt.
    ///
    /// # Errors
    /// If the options are for a cuckoo filter, which can't be rebuilt.
    pub fn begin(&self, static_layout: Option<StaticLayout>) -> Result<Vec<String>, Refused> {
        if self.cuckoo {
            return Err(Refused::new("cuckoo", "cuckoo filters cannot be rebuilt"));
        }
        let number = |number: Option<u32>| number.map(|number| number.to_string());
        let layout = word(static_layout).or_else(|| word(self.layout));
        let options = [
            ("CAPACITY", self.capacity.map(|items| items.to_string())),
            ("ERROR", self.error_rate.map(|rate| rate.to_string())),
            ("EXPANSION", number(self.expansion)),
            ("TIGHTENING", self.tightening.map(|ratio| ratio.to_string())),
            ("COUNTING", number(self.counting.map(Cell::bits))),
            ("WINDOW", number(self.window.map(u32::from))),
            ("EVERY", self.every.map(|ms| ms.to_string())),
            ("TTL", self.ttl.map(|ms| ms.to_string())),
            ("STEPS", self.steps.map(|steps| (steps.generations() - 1).to_string())),
            ("ONFULL", word(self.on_full)),
            ("LAYOUT", layout),
            ("HASH", word(self.hash)),
            ("SHARDS", number(self.shards)),
            ("SEED", self.seed.clone()),
        ];
        let given = options.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?]));
        Ok(given.flatten().chain(self.nonscaling.then(|| "NONSCALING".into())).collect())
    }

    /// The words of the command that creates a window with this time to live, without its seed.
    fn with_ttl(&self, spec: &Spec, ttl_ms: u64, key: &str) -> Vec<String> {
        let items = self.capacity.unwrap_or(spec.capacity);
        let mut words = vec!["BF.RESERVE".into(), key.into(), spec.error_rate.to_string(), items.to_string()];
        let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
        add("TTL", ttl_ms.to_string());
        if self.steps.is_some() {
            add("STEPS", (self.steps().generations() - 1).to_string());
        }
        if spec.on_full() != Overflow::Rotate.as_str() {
            add("ONFULL", spec.on_full().into());
        }
        if spec.hash != HashKind::Xxh3 {
            add("HASH", spec.hash.as_str().into());
        }
        words
    }

    /// The words of the command that creates this filter. They include the seed only if the user gave one: without it,
    /// the server chooses its own.
    pub fn command(&self, wanted: &Wanted, key: &str) -> Vec<String> {
        let mut words = match (wanted, self.ttl) {
            (Wanted::Bloom(spec), Some(ttl_ms)) => self.with_ttl(spec, ttl_ms, key),
            _ => command(wanted, key),
        };
        if let Some(seed) = &self.seed {
            words.extend(["SEED".into(), seed.clone()]);
        }
        words
    }
}

/// The word that stands for a choice in a command.
fn word(choice: Option<impl ValueEnum>) -> Option<String> {
    choice?.to_possible_value().map(|value| value.get_name().to_uppercase())
}

/// Parses the number of steps of a TTL.
fn parse_steps(text: &str) -> Result<Steps, String> {
    text.parse()
        .ok()
        .and_then(Steps::new)
        .ok_or_else(|| format!("{text:?} is not a number of steps from 1 to 999"))
}

fn parse_expansion(text: &str) -> Result<u32, String> {
    parse_whole(text, 0..=limits::MAX_EXPANSION)
}

fn parse_generations(text: &str) -> Result<u16, String> {
    parse_whole(text, 2..=1000)
}

fn parse_bucket_size(text: &str) -> Result<u8, String> {
    parse_whole(text, 1..=u8::MAX)
}

/// Parses the width of a counter.
fn parse_counter(text: &str) -> Result<Cell, String> {
    let cells = [Cell::Counter4, Cell::Counter8, Cell::Counter16];
    let cell = cells.into_iter().find(|cell| cell.bits().to_string() == text);
    cell.ok_or_else(|| format!("{text:?} is not a width of counters: expected 4, 8 or 16"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        reserve: Reserve,
    }

    fn reserve(words: &str) -> Result<Reserve, clap::Error> {
        Ok(Line::try_parse_from(std::iter::once("x").chain(words.split_whitespace()))?.reserve)
    }

    #[test]
    fn options_become_the_command_that_makes_the_filter() {
        for (options, command) in [
            ("-n 1M -e 1%", "BF.RESERVE k 0.01 1000000"),
            ("-n 1000 -e 0.001 --nonscaling", "BF.RESERVE k 0.001 1000 NONSCALING"),
            ("-n 1000 -e 0.001 --on-full saturate", "BF.RESERVE k 0.001 1000 ONFULL SATURATE"),
            ("-n 1000 -e 0.001 --counting", "BF.RESERVE k 0.001 1000 COUNTING 4"),
            ("-n 1000 -e 0.001 --counting=16", "BF.RESERVE k 0.001 1000 COUNTING 16"),
            (
                "-n 1000 -e 0.001 --counting=8 --expansion 2 --layout fingerprint",
                "BF.RESERVE k 0.001 1000 COUNTING 8 EXPANSION 2 LAYOUT FINGERPRINT",
            ),
            (
                "-n 1000 -e 0.001 --counting --tightening 0.5",
                "BF.RESERVE k 0.001 1000 COUNTING 4 EXPANSION 2 TIGHTENING 0.5 LAYOUT FINGERPRINT",
            ),
            ("-n 1000 -e 0.001 --window 65", "BF.RESERVE k 0.001 1000 WINDOW 65 LAYOUT FINGERPRINT"),
            (
                "-n 1000 -e 0.001 --window 7 --on-full rotate",
                "BF.RESERVE k 0.001 1000 WINDOW 7 LAYOUT FINGERPRINT",
            ),
            ("-n 1000 -e 0.001 --window 7 --every 60000", "BF.RESERVE k 0.001 1000 WINDOW 7 EVERY 60000"),
            ("-n 1000 -e 0.001 --window 7 --on-full ERROR", "BF.RESERVE k 0.001 1000 WINDOW 7 ONFULL ERROR"),
            (
                "-n 1000 -e 0.5 --expansion 4 --tightening 0.9",
                "BF.RESERVE k 0.5 1000 EXPANSION 4 TIGHTENING 0.9",
            ),
            (
                "-n 1000 -e 0.5 --shards 8 --layout classic --hash siphash --seed 2a",
                "BF.RESERVE k 0.5 1000 LAYOUT CLASSIC SHARDS 8 HASH SIPHASH SEED 2a",
            ),
            (
                "-n 1000 -e 0.01 --window 3 --layout partitioned",
                "BF.RESERVE k 0.01 1000 WINDOW 3 LAYOUT PARTITIONED",
            ),
            ("-n 1000 --cuckoo --bucket-size 4", "CF.RESERVE k 1000 BUCKETSIZE 4"),
            ("-n 1000 -e 0.001 --ttl 24h", "BF.RESERVE k 0.001 1000 TTL 86400000"),
            (
                "-n 1000 -e 0.001 --ttl 60000 --steps 4 --on-full error --hash siphash --seed 2a",
                "BF.RESERVE k 0.001 1000 TTL 60000 STEPS 4 ONFULL ERROR HASH SIPHASH SEED 2a",
            ),
        ] {
            let reserve = reserve(options).unwrap();
            assert_eq!(reserve.command(&reserve.wanted().unwrap(), "k").join(" "), command, "{options}");
        }
    }

    #[test]
    fn a_rebuild_begins_with_the_options_that_were_given() {
        use StaticLayout::{Fuse, Ribbon};
        for (options, layout, words) in [
            ("", None, ""),
            ("-n 1M -e 0.1% --seed 2a", Some(Fuse), "CAPACITY 1000000 ERROR 0.001 LAYOUT FUSE SEED 2a"),
            ("-e 1%", Some(Ribbon), "ERROR 0.01 LAYOUT RIBBON"),
            (
                "--counting=8 --layout fingerprint --hash siphash",
                None,
                "COUNTING 8 LAYOUT FINGERPRINT HASH SIPHASH",
            ),
            (
                "--window 4 --every 1m --on-full rotate --shards 2",
                None,
                "WINDOW 4 EVERY 60000 ONFULL ROTATE SHARDS 2",
            ),
            ("-n 1000 --ttl 1h --steps 4", None, "CAPACITY 1000 TTL 3600000 STEPS 4"),
            ("--expansion 2 --tightening 0.5 --nonscaling", None, "EXPANSION 2 TIGHTENING 0.5 NONSCALING"),
        ] {
            assert_eq!(reserve(options).unwrap().begin(layout).unwrap().join(" "), words, "{options}");
        }
        assert!(reserve("--cuckoo").unwrap().begin(None).is_err());
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_option_to_blame() {
        for (options, option) in [
            ("-e 0.01", "capacity"),
            ("-n 100", "error-rate"),
            ("-n 100 -e 0.01 --counting --expansion 2 --layout classic", "expansion"),
            ("-n 100 -e 0.01 --window 7 --counting", "window"),
            ("-n 100 -e 0.01 --ttl 1h --layout blocked", "ttl"),
            ("-n 100 -e 0.01 --ttl 1h --on-full scale", "ttl"),
            ("-n 100 -e 0.01 --ttl 1h --on-full saturate", "layout"),
            ("-n 100 -e 0.01 --window 65 --layout blocked", "window"),
            ("-n 100 -e 0.01 --window 65 --on-full saturate", "layout"),
            ("-n 100 -e 0.01 --nonscaling --expansion 2", "expansion"),
            ("-n 100 -e 0.01 --shards 3", "shards"),
            ("-n 100 -e 0.01 --tightening 1.5", "tightening"),
            ("-n 100 -e 0.01 --seed xyz", "seed"),
            ("-n 100 -e 0.01 --cuckoo", "error-rate"),
            ("-n 3 --cuckoo", "capacity"),
        ] {
            assert_eq!(reserve(options).unwrap().wanted().unwrap_err().option, option, "{options}");
        }
        for options in [
            "-n 100 -e 2",
            "-n 0 -e 1%",
            "-n 100 -e 0.01 --counting=5",
            "-n 100 -e 0.01 --window 1",
            "-n 100 -e 0.01 --expansion 32769",
            "-n 100 --cuckoo --counting",
        ] {
            assert!(reserve(options).is_err(), "{options}");
        }
    }
}
