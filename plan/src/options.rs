//! The options that describe a filter. Those of a Bloom filter come from the library's table of the options of
//! BF.RESERVE.

use crate::arguments::{parse_capacity, parse_ms, parse_rate, parse_whole};
use crate::refused::Refused;
use crate::wanted::{Wanted, command};
use bloomery::options::{
    BLOOM, CUCKOO, DEFAULT_EXPANSION, Kind, OptionRow, Options, SIZE, STATIC_ALONE, Value, find, rows,
};
use bloomery::{CuckooSpec, HashKind, Layout, Seed, Spec};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command};

/// Number of items that a static filter has room for before its list of items grows, if no number is given.
const STATIC_CAPACITY: u64 = 1 << 16;

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

    #[command(flatten)]
    pub(crate) flags: Flags,
}

/// A flag for each row of the library's tables of options.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) options: Options,
    cuckoo: bool,
}

/// The rows of a table that have a flag.
fn flags(table: &'static [OptionRow]) -> impl Iterator<Item = &'static OptionRow> {
    rows(table).filter(|row| !row.flag.0.is_empty())
}

/// The rows that only cuckoo filters have.
fn cuckoo_flags() -> impl Iterator<Item = &'static OptionRow> {
    flags(CUCKOO).filter(|row| find(BLOOM, row.word.as_bytes()).is_none())
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        let cuckoo = Arg::new("cuckoo").long("cuckoo").action(ArgAction::SetTrue).help(
            "Cuckoo filter: a byte per item, and items can be deleted; the bucket size determines its error rate",
        );
        let only_cuckoo = cuckoo_flags().map(|row| argument(row).requires("cuckoo"));
        command.args(flags(BLOOM).map(argument)).arg(cuckoo).args(only_cuckoo)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::augment_args(command)
    }
}

fn argument(row: &'static OptionRow) -> Arg {
    let (long, value_name) = row.flag;
    let argument = Arg::new(long).long(long).help(row.help).value_name(value_name);
    match row.value {
        Value::Flag => argument.action(ArgAction::SetTrue),
        Value::Choice(list) => argument.ignore_case(true).value_parser(words(list)),
        Value::Numbers { numbers, .. } => argument
            .num_args(0..=1)
            .default_missing_value(numbers[0])
            .require_equals(true)
            .value_parser(parser(row)),
        _ => argument.value_parser(parser(row)),
    }
}

/// Checks a value, and converts it to the server's spelling.
fn parser(row: &'static OptionRow) -> ValueParser {
    ValueParser::new(move |text: &str| -> Result<String, String> {
        let value = match row.value {
            Value::Duration { .. } => parse_ms(text)?.to_string(),
            Value::Integer { bounds: (least, most), .. } if row.expected.is_empty() => {
                parse_whole(text, least..=most)?.to_string()
            }
            _ => text.to_owned(),
        };
        match row.read(&mut Options::default(), value.as_bytes()) {
            Some(()) => Ok(value),
            None => Err(format!("{text:?} is not possible: expected {}", row.expected)),
        }
    })
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Flags, clap::Error> {
        let mut flags = Flags::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.cuckoo = matches.get_flag("cuckoo");
        for row in flags(BLOOM).chain(cuckoo_flags()) {
            let given = match row.value {
                Value::Flag => matches.get_flag(row.flag.0).then_some(""),
                _ => matches.get_one::<String>(row.flag.0).map(String::as_str),
            };
            if let Some(value) = given {
                // The argument's parser has accepted the value.
                let _ = (row.parse)(&mut self.options, value.as_bytes());
            }
        }
        Ok(())
    }
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
        value_parser = words(Layout::STATIC_CHOICES).try_map(|word| word.parse::<Layout>())
    )]
    pub layout: Option<Layout>,
}

fn words(words: &'static [(&str, &str)]) -> PossibleValuesParser {
    PossibleValuesParser::new(words.iter().map(|(word, help)| PossibleValue::new(*word).help(*help)))
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
        if self.flags.cuckoo {
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
        let options = &self.flags.options;
        let Kind { family, layout, steps } = options.kind(None, DEFAULT_EXPANSION)?;
        let spec = Spec {
            capacity: steps.capacity(capacity),
            error_rate,
            seed: self.seed()?,
            shards: options.shards.unwrap_or(1),
            hash: options.hash.unwrap_or_default(),
            layout,
            cell: options.counting.unwrap_or_default(),
            family,
        };
        spec.validate()?;
        Ok(Wanted::Bloom(spec))
    }

    /// The static filter that the options describe. A capacity is only an estimate, because the list of items grows as
    /// needed.
    pub fn wanted_static(&self, layout: Layout) -> Result<Spec, Refused> {
        self.check_static()?;
        let mut reserve = self.clone();
        reserve.capacity.get_or_insert(STATIC_CAPACITY);
        reserve.flags.options.nonscaling = true;
        match reserve.wanted()? {
            Wanted::Bloom(spec) => Ok(Spec { layout: Some(layout), ..spec }),
            Wanted::Cuckoo(_) => Err(Refused::new("cuckoo", "cannot be combined with --static")),
        }
    }

    /// Refuses the options that a static filter doesn't have.
    fn check_static(&self) -> Result<(), Refused> {
        let Options { layout, shards, .. } = &self.flags.options;
        let is_alone = !self.flags.options.name_a_kind() && layout.is_none() && shards.is_none();
        if is_alone { Ok(()) } else { Err(Refused::new("static", STATIC_ALONE)) }
    }

    fn cuckoo(&self, capacity: u64) -> Result<CuckooSpec, Refused> {
        let options = &self.flags.options;
        let mut of_bloom = rows(BLOOM).filter(|row| find(CUCKOO, row.word.as_bytes()).is_none());
        if of_bloom.any(|row| (row.write)(options).is_some()) {
            return Err(Refused::new(
                "cuckoo",
                "only --expansion, --hash and --seed can be combined with it",
            ));
        }
        let spec = CuckooSpec { seed: self.seed()?, ..options.cuckoo(CuckooSpec::new(capacity)) };
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

    /// The seed given, or a random one.
    fn seed(&self) -> Result<Seed, Refused> {
        let hash: HashKind = self.flags.options.hash.unwrap_or_default();
        let Some(hex) = &self.flags.options.seed else {
            return Seed::random(hash).map_err(|error| Refused::new("seed", error.to_string()));
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
    /// If the options are for a cuckoo filter, which can't be rebuilt, or can't be combined with a static layout.
    pub fn begin(&self, static_layout: Option<Layout>) -> Result<Vec<String>, Refused> {
        if self.flags.cuckoo {
            return Err(Refused::new("cuckoo", "cuckoo filters cannot be rebuilt"));
        }
        let (capacity, error_rate) = (self.capacity, self.error_rate);
        let mut options = Options { capacity, error_rate, ..self.flags.options.clone() };
        if let Some(layout) = static_layout {
            self.check_static()?;
            options.layout = Some(Some(layout));
        }
        Ok([SIZE, BLOOM].into_iter().flat_map(|table| options.words(table)).collect())
    }

    /// The words of the command that creates this filter. They include the seed only if the user gave one: without it,
    /// the server chooses its own.
    pub fn command(&self, wanted: &Wanted, key: &str) -> Vec<String> {
        match wanted {
            Wanted::Bloom(spec) if !spec.is_static() => {
                // With a TTL, the options name the number of items in that time, and the spec that of one step.
                let items =
                    self.capacity.filter(|_| self.flags.options.ttl_ms.is_some()).unwrap_or(spec.capacity);
                let words = ["BF.RESERVE".into(), key.into(), spec.error_rate.to_string(), items.to_string()];
                words.into_iter().chain(self.flags.options.words(BLOOM)).collect()
            }
            _ => {
                let mut words = command(wanted, key);
                if let Some(seed) = &self.flags.options.seed {
                    words.extend(["SEED".into(), seed.clone()]);
                }
                words
            }
        }
    }
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
                "-n 1000 -e 0.001 --counting=8 --expansion 2 --layout quotient",
                "BF.RESERVE k 0.001 1000 EXPANSION 2 COUNTING 8 LAYOUT QUOTIENT",
            ),
            (
                "-n 1000 -e 0.001 --counting --tightening 0.5",
                "BF.RESERVE k 0.001 1000 TIGHTENING 0.5 COUNTING 4",
            ),
            ("-n 1000 -e 0.001 --window 65", "BF.RESERVE k 0.001 1000 WINDOW 65"),
            (
                "-n 1000 -e 0.001 --window 7 --on-full forget",
                "BF.RESERVE k 0.001 1000 WINDOW 7 ONFULL FORGET",
            ),
            ("-n 1000 -e 0.001 --window 7 --every 60000", "BF.RESERVE k 0.001 1000 WINDOW 7 EVERY 60000"),
            ("-n 1000 -e 0.001 --window 7 --on-full ERROR", "BF.RESERVE k 0.001 1000 WINDOW 7 ONFULL ERROR"),
            (
                "-n 1000 -e 0.5 --expansion 4 --tightening 0.9",
                "BF.RESERVE k 0.5 1000 EXPANSION 4 TIGHTENING 0.9",
            ),
            (
                "-n 1000 -e 0.5 --shards 8 --layout classic --hash siphash --seed 2a",
                "BF.RESERVE k 0.5 1000 SHARDS 8 LAYOUT CLASSIC HASH SIPHASH SEED 2a",
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
        use Layout::{Fuse, Ribbon};
        for (options, layout, words) in [
            ("", None, ""),
            ("-n 1M -e 0.1% --seed 2a", Some(Fuse), "CAPACITY 1000000 ERROR 0.001 LAYOUT FUSE SEED 2a"),
            ("-e 1%", Some(Ribbon), "ERROR 0.01 LAYOUT RIBBON"),
            (
                "--counting=8 --layout quotient --hash siphash",
                None,
                "COUNTING 8 LAYOUT QUOTIENT HASH SIPHASH",
            ),
            (
                "--window 4 --every 1m --on-full forget --shards 2",
                None,
                "WINDOW 4 EVERY 60000 ONFULL FORGET SHARDS 2",
            ),
            ("-n 1000 --ttl 1h --steps 4", None, "CAPACITY 1000 TTL 3600000 STEPS 4"),
            ("--expansion 2 --tightening 0.5 --nonscaling", None, "EXPANSION 2 NONSCALING TIGHTENING 0.5"),
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
            ("-n 100 -e 0.01 --ttl 1h --on-full saturate", "on-full"),
            ("-n 100 -e 0.01 --window 65 --layout blocked", "window"),
            ("-n 100 -e 0.01 --window 65 --on-full saturate", "on-full"),
            ("-n 100 -e 0.01 --nonscaling --expansion 2", "expansion"),
            ("-n 100 --cuckoo --counting", "cuckoo"),
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
            "-n 100 -e 0.01 --shards 3",
            "-n 100 -e 0.01 --tightening 1.5",
        ] {
            assert!(reserve(options).is_err(), "{options}");
        }
    }
}
