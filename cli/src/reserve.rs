//! The options that describe a filter, named as those of BF.RESERVE and CF.RESERVE.

use crate::error::Failure;
use bloomery::filter::Origin;
use bloomery::{
    Cell, CuckooSpec, Error, Family, HashKind, LayoutChoice, Overflow, Seed, Spec, Tightening, limits,
};
use clap::ValueEnum;

/// Slots of a bucket, moves for one add and growth of a cuckoo filter: RedisBloom's defaults, and the module's.
const BUCKET_SIZE: u8 = 2;
const MAX_ITERATIONS: u16 = 20;
const CUCKOO_EXPANSION: u32 = 1;

/// Growth of a scaling filter: the same.
const EXPANSION: u32 = 2;

/// What a filter should be.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Filter (as BF.RESERVE has it; a scaling filter unless told otherwise)")]
pub(crate) struct Reserve {
    /// Items that it is sized for: 1000000, 1_000_000, 1M
    #[arg(short = 'n', long, value_name = "ITEMS", value_parser = parse_count)]
    pub(crate) capacity: Option<u64>,

    /// Share of absent items that may test positive: 0.01 or 1%
    #[arg(short, long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) error_rate: Option<f64>,

    /// Fixed capacity: a full filter refuses more
    #[arg(long)]
    nonscaling: bool,

    /// Growth of a scaling filter: each layer has so many times the capacity of the one before [default: 2]
    #[arg(long, value_name = "FACTOR")]
    expansion: Option<u32>,

    /// Share of the error rate of each layer over that of the one before, below 1 [default: by inverse squares]
    #[arg(long, value_name = "RATIO")]
    tightening: Option<f64>,

    /// Counters of so many bits, so that items can be deleted: 4, 8 or 16
    #[arg(long, value_name = "BITS", num_args = 0..=1, default_missing_value = "4", require_equals = true)]
    counting: Option<u32>,

    /// So many generations, the oldest of which is dropped on rotation; the capacity is that of one
    #[arg(long, value_name = "GENERATIONS")]
    window: Option<u8>,

    /// Milliseconds between rotations of a window
    #[arg(long, value_name = "MS", requires = "window", value_parser = parse_count)]
    every: Option<u64>,

    /// What an add to a full filter does
    #[arg(long, value_name = "WHAT", ignore_case = true)]
    on_full: Option<OnFull>,

    /// One cache line per item, or the least memory
    #[arg(long, ignore_case = true)]
    layout: Option<Layout>,

    /// Hash function: siphash where an adversary chooses the items
    #[arg(long, ignore_case = true)]
    hash: Option<Hash>,

    /// Independent arrays per layer, a power of two, for several writing threads
    #[arg(long, value_name = "N")]
    shards: Option<u32>,

    /// Key of the hash, in hexadecimal digits [default: random]
    #[arg(long, value_name = "HEX")]
    seed: Option<String>,

    /// A cuckoo filter: items can be deleted, a byte each; its error rate follows from the bucket size
    #[arg(long, conflicts_with_all = ["nonscaling", "tightening", "counting", "window", "on_full", "layout", "shards"])]
    cuckoo: bool,

    /// Slots of a bucket of a cuckoo filter [default: 2]
    #[arg(long, value_name = "SLOTS", requires = "cuckoo")]
    bucket_size: Option<u8>,

    /// Fingerprints that one add to a cuckoo filter may move [default: 20]
    #[arg(long, value_name = "N", requires = "cuckoo")]
    max_iterations: Option<u16>,
}

/// What an add to a full filter does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnFull {
    /// Refuse new items
    Error,
    /// Accept them; the error rate rises
    Saturate,
    /// Grow by a layer
    Scale,
}

/// As [`LayoutChoice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Layout {
    /// Blocked where that costs at most 15 % more memory
    Auto,
    /// One cache line per item
    Blocked,
    /// The least memory
    Classic,
}

/// As [`HashKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Hash {
    /// Fast
    Xxh3,
    /// Keyed so that nobody can find collisions without the seed
    Siphash,
}

/// A filter that can be made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wanted {
    /// A Bloom filter of any family.
    Bloom(Spec),
    /// A cuckoo filter.
    Cuckoo(CuckooSpec),
}

impl Reserve {
    /// Whether the options name a size, so that a filter can be made.
    pub(crate) fn is_given(&self) -> bool {
        self.capacity.is_some()
    }

    /// The filter that the options describe.
    pub(crate) fn wanted(&self) -> anyhow::Result<Wanted> {
        let Some(capacity) = self.capacity else {
            return Err(
                Failure::Usage("--capacity is missing: how many items is the filter for?".into()).into()
            );
        };
        if self.cuckoo {
            if self.error_rate.is_some() {
                let text = "a cuckoo filter has no --error-rate: it follows from --bucket-size";
                return Err(Failure::Usage(text.into()).into());
            }
            return self.cuckoo(capacity).map(Wanted::Cuckoo);
        }
        let Some(error_rate) = self.error_rate else {
            let text = "--error-rate is missing: which share of absent items may test positive?";
            return Err(Failure::Usage(text.into()).into());
        };
        let spec = Spec {
            capacity,
            error_rate,
            seed: self.seed()?,
            shards: self.shards.unwrap_or(1),
            hash: self.hash(),
            layout: match self.layout {
                None | Some(Layout::Auto) => LayoutChoice::Auto,
                Some(Layout::Blocked) => LayoutChoice::Blocked,
                Some(Layout::Classic) => LayoutChoice::Classic,
            },
            cell: match self.counting {
                None => Cell::Bit,
                Some(4) => Cell::Counter4,
                Some(8) => Cell::Counter8,
                Some(16) => Cell::Counter16,
                Some(bits) => {
                    return Err(
                        Failure::Usage(format!("--counting takes 4, 8 or 16 bits, not {bits}")).into()
                    );
                }
            },
            family: self.family()?,
        };
        spec.validate().map_err(refused)?;
        Ok(Wanted::Bloom(spec))
    }

    fn family(&self) -> anyhow::Result<Family> {
        let usage = |text: &str| Err(Failure::Usage(text.into()).into());
        let scales = self.expansion.is_some_and(|factor| factor > 0)
            || self.tightening.is_some()
            || self.on_full == Some(OnFull::Scale);
        let overflow = match self.on_full {
            Some(OnFull::Error) => Some(Overflow::Error),
            Some(OnFull::Saturate) => Some(Overflow::Saturate),
            Some(OnFull::Scale) | None => None,
        };
        if let Some(generations) = self.window {
            if scales || self.counting.is_some() {
                return usage(
                    "--window does not go with --counting, --expansion, --tightening or --on-full scale",
                );
            }
            // A stream should not stop because one hour was busier than planned.
            let overflow = overflow.unwrap_or(Overflow::Saturate);
            return Ok(Family::Window { generations, overflow, every_ms: self.every.unwrap_or(0) });
        }
        if self.nonscaling || self.counting.is_some() || self.expansion == Some(0) || overflow.is_some() {
            if scales {
                return usage(
                    "a filter of fixed capacity (--nonscaling, --counting, --on-full error or saturate) does not go \
                     with --expansion, --tightening or --on-full scale",
                );
            }
            return Ok(Family::Fixed(overflow.unwrap_or_default()));
        }
        let tightening = match self.tightening {
            None => Tightening::INVERSE_SQUARE,
            Some(ratio) => Tightening::geometric(ratio).map_err(refused)?,
        };
        Ok(Family::Scaling { expansion: self.expansion.unwrap_or(EXPANSION), tightening })
    }

    fn cuckoo(&self, capacity: u64) -> anyhow::Result<CuckooSpec> {
        let spec = CuckooSpec {
            capacity,
            bucket_size: self.bucket_size.unwrap_or(BUCKET_SIZE),
            max_iterations: self.max_iterations.unwrap_or(MAX_ITERATIONS),
            expansion: CuckooSpec::expansion_for(self.expansion.unwrap_or(CUCKOO_EXPANSION)),
            origin: Origin::Bloomery,
            hash: self.hash(),
            seed: self.seed()?,
        };
        spec.validate().map_err(refused)?;
        Ok(spec)
    }

    fn hash(&self) -> HashKind {
        match self.hash {
            None | Some(Hash::Xxh3) => HashKind::Xxh3,
            Some(Hash::Siphash) => HashKind::SipHash,
        }
    }

    /// The seed that was given, or one that nobody can guess.
    fn seed(&self) -> anyhow::Result<Seed> {
        let hash = self.hash();
        let Some(hex) = &self.seed else {
            return Seed::random(hash)
                .map_err(|error| anyhow::anyhow!("no randomness for a seed: {error:?}"));
        };
        let digits = hash.seed_bits() as usize / 4;
        let is_hex = (1..=digits).contains(&hex.len()) && hex.bytes().all(|digit| digit.is_ascii_hexdigit());
        match u128::from_str_radix(hex, 16) {
            Ok(seed) if is_hex => Ok(Seed::from(seed)),
            _ => {
                Err(Failure::Usage(format!("--seed takes 1 to {digits} hexadecimal digits for this hash"))
                    .into())
            }
        }
    }

    /// The words of the command that makes this filter, without a seed unless one was given.
    pub(crate) fn command(&self, wanted: &Wanted, key: &str) -> Vec<String> {
        let mut words = command(wanted, key);
        if let Some(seed) = &self.seed {
            words.extend(["SEED".into(), seed.clone()]);
        }
        words
    }
}

/// A mistake of the command line, in the words of the library.
fn refused(error: Error) -> anyhow::Error {
    Failure::Usage(error.to_string()).into()
}

/// The words of BF.RESERVE or CF.RESERVE that make such a filter, options that have their default left out.
pub(crate) fn command(wanted: &Wanted, key: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut add = |word: &str, value: Option<String>| {
        words.push(word.into());
        words.extend(value);
    };
    let hash = match wanted {
        Wanted::Bloom(spec) => {
            add("BF.RESERVE", Some(key.into()));
            add(&spec.error_rate.to_string(), Some(spec.capacity.to_string()));
            let saturate = |overflow| overflow == Overflow::Saturate;
            match spec.family {
                Family::Fixed(overflow) => {
                    if spec.cell.counts() {
                        add("COUNTING", Some(spec.cell.bits().to_string()));
                    }
                    match (saturate(overflow), spec.cell.counts()) {
                        (true, _) => add("ONFULL", Some("SATURATE".into())),
                        (false, false) => add("NONSCALING", None),
                        (false, true) => {}
                    }
                }
                Family::Scaling { expansion, tightening } => {
                    if expansion != EXPANSION {
                        add("EXPANSION", Some(expansion.to_string()));
                    }
                    if let Some(ratio) = tightening.ratio() {
                        add("TIGHTENING", Some(ratio.to_string()));
                    }
                }
                Family::Window { generations, overflow, every_ms } => {
                    add("WINDOW", Some(generations.to_string()));
                    if every_ms > 0 {
                        add("EVERY", Some(every_ms.to_string()));
                    }
                    if !saturate(overflow) {
                        add("ONFULL", Some("ERROR".into()));
                    }
                }
            }
            match spec.layout {
                LayoutChoice::Auto => {}
                LayoutChoice::Blocked => add("LAYOUT", Some("BLOCKED".into())),
                LayoutChoice::Classic => add("LAYOUT", Some("CLASSIC".into())),
            }
            if spec.shards != 1 {
                add("SHARDS", Some(spec.shards.to_string()));
            }
            spec.hash
        }
        Wanted::Cuckoo(spec) => {
            add("CF.RESERVE", Some(key.into()));
            words.push(spec.capacity.to_string());
            let mut add = |word: &str, value: String| words.extend([word.to_owned(), value]);
            if spec.bucket_size != BUCKET_SIZE {
                add("BUCKETSIZE", spec.bucket_size.to_string());
            }
            if spec.max_iterations != MAX_ITERATIONS {
                add("MAXITERATIONS", spec.max_iterations.to_string());
            }
            if spec.expansion != CuckooSpec::expansion_for(CUCKOO_EXPANSION) {
                add("EXPANSION", spec.expansion.to_string());
            }
            spec.hash
        }
    };
    if hash == HashKind::SipHash {
        words.extend(["HASH".into(), "SIPHASH".into()]);
    }
    words
}

/// A number of things: digits, which `_` or `,` may part, and k, M, G or T for thousands, millions and so on.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no number: write 1000000, 1_000_000, 1M or 1.5M");
    let (digits, unit) = match text.char_indices().next_back() {
        Some((end, 'k' | 'K')) => (&text[..end], 1e3),
        Some((end, 'm' | 'M')) => (&text[..end], 1e6),
        Some((end, 'g' | 'G')) => (&text[..end], 1e9),
        Some((end, 't' | 'T')) => (&text[..end], 1e12),
        _ => (text, 1.0),
    };
    let digits: String = digits.chars().filter(|character| !matches!(character, '_' | ',')).collect();
    if unit == 1.0
        && let Ok(number) = digits.parse()
    {
        return Ok(number);
    }
    let number = digits.parse::<f64>().map_err(|_| wrong())? * unit;
    // Beyond 2^53 a double no longer holds every whole number.
    if number.fract() == 0.0 && (0.0..=9e15).contains(&number) { Ok(number as u64) } else { Err(wrong()) }
}

/// A share: 0.01, 1e-2 or 1%.
pub(crate) fn parse_rate(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number.trim_end(), 100.0),
        None => (text, 1.0),
    };
    let rate = number.parse::<f64>().ok().map(|number| number / unit);
    rate.filter(|rate| (limits::MIN_ERROR_RATE..1.0).contains(rate)).ok_or_else(|| {
        format!("{text:?} is no error rate: it takes a share between 1e-12 and 1, as 0.01 or 1%")
    })
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

    fn reserve(words: &str) -> anyhow::Result<Reserve> {
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
            ("-n 1000 --cuckoo --bucket-size 4", "CF.RESERVE k 1000 BUCKETSIZE 4"),
        ] {
            let reserve = reserve(options).unwrap();
            assert_eq!(reserve.command(&reserve.wanted().unwrap(), "k").join(" "), command, "{options}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_as_a_mistake_of_use() {
        for options in [
            "-e 0.01",
            "-n 100",
            "-n 100 -e 0.01 --counting=5",
            "-n 100 -e 0.01 --counting --expansion 2",
            "-n 100 -e 0.01 --window 7 --counting",
            "-n 100 -e 0.01 --window 1",
            "-n 100 -e 0.01 --nonscaling --expansion 2",
            "-n 100 -e 0.01 --shards 3",
            "-n 100 -e 0.01 --tightening 1.5",
            "-n 100 -e 0.01 --seed xyz",
            "-n 100 -e 0.01 --cuckoo",
            "-n 1 --cuckoo",
        ] {
            let error = reserve(options).unwrap().wanted().unwrap_err();
            assert_eq!(crate::error::code(&error), 2, "{options}: {error}");
        }
        assert!(reserve("-n 100 -e 2").is_err());
        assert!(reserve("-n 100 --cuckoo --counting").is_err());
    }

    #[test]
    fn numbers_may_have_units() {
        for (text, number) in [
            ("0", 0),
            ("1_000", 1000),
            ("10,000", 10_000),
            ("1.5M", 1_500_000),
            ("2G", 2_000_000_000),
            ("1e6", 1_000_000),
        ] {
            assert_eq!(parse_count(text), Ok(number), "{text}");
        }
        for text in ["", "M", "1.5", "-1", "1x", "1e99", "nan"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
        assert_eq!(parse_rate("1%"), Ok(0.01));
        assert_eq!(parse_rate("1e-3"), Ok(0.001));
        for text in ["", "0", "1", "100%", "-1", "x", "nan"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }
}
