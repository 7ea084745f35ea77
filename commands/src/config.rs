//! The options of the module: names, defaults, ranges. The server passes their values as text; this file defines what
//! the text means.
//!
//! RedisBloom's options keep their names, defaults and error texts. Every range is constant. If the range of an option
//! depended on the value of another, the server might be unable to read a file that CONFIG REWRITE wrote, because the
//! options in it can have any order. So options that contradict each other are accepted, and [`Settings::bucket_size`]
//! reconciles them where they are used. Whatever their values, a cuckoo filter that an add creates has at least two
//! buckets.

use crate::tenants::Tenants;
use bloomery::params::{Family, Overflow, Tightening, limits};
use std::ops::RangeInclusive;

/// The settings in force.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Error rate of a filter that an add creates, in (0, 1).
    pub error_rate: f64,
    /// Capacity of a filter that an add creates.
    pub initial_size: u64,
    /// Expansion of a filter that is created without one; 0 for a filter that doesn't scale.
    pub expansion: u32,
    /// Slots per bucket of a cuckoo filter that is created without BUCKETSIZE, as configured.
    /// [`bucket_size`](Settings::bucket_size) is the value that is used.
    pub cuckoo_bucket_size: u8,
    /// Capacity of a cuckoo filter that an add creates.
    pub cuckoo_initial_size: u64,
    /// Maximum number of moves that make room for one item in a cuckoo filter that is created without MAXITERATIONS.
    pub cuckoo_max_iterations: u16,
    /// Expansion of a cuckoo filter that is created without one; 0 for a filter that doesn't grow.
    pub cuckoo_expansion: u32,
    /// Maximum number of sub-filters of a cuckoo filter.
    pub cuckoo_max_expansions: u32,
    /// Whether an add to a missing key creates a filter of the configured size.
    pub auto_create: bool,
    /// Number of threads in addition to the main thread. `None` means one for each core except the main thread's, but
    /// at least one and at most [`MAX_THREADS`].
    pub threads: Option<usize>,
    /// Minimum number of items for which BF.BULKTEST runs on the pool, so that only its client waits, not the server.
    pub offload_min_items: u64,
    /// Maximum number of bytes in the arguments of all commands that wait for the pool or run on it. If there are no
    /// such commands, the next one may exceed the maximum.
    pub offload_max_bytes: u64,
    /// Whether huge pages are requested for filters of 2 MiB or more.
    pub huge_pages: bool,
    /// Maximum size of one filter's cells in bytes; 0 for the size of the machine's memory.
    pub max_filter_bytes: u64,
    /// Maximum number of items in one command, at least [`MIN_ITEMS_LIMIT`]; 0 for as many as the server accepts.
    pub max_items_per_command: u64,
    /// Limits for the filters under key prefixes.
    pub tenants: Tenants,
}

impl Settings {
    /// The defaults: RedisBloom's, for the options that it also has.
    pub const DEFAULT: Settings = Settings {
        error_rate: 0.01,
        initial_size: 100,
        expansion: 2,
        cuckoo_bucket_size: 2,
        cuckoo_initial_size: 1024,
        cuckoo_max_iterations: 20,
        cuckoo_expansion: 1,
        cuckoo_max_expansions: 32,
        auto_create: true,
        threads: None,
        offload_min_items: 16_384,
        offload_max_bytes: 128 << 20,
        huge_pages: false,
        max_filter_bytes: 0,
        max_items_per_command: 0,
        tenants: Tenants::NONE,
    };

    /// The family of a filter with this expansion. With 0, the filter doesn't scale, as in RedisBloom.
    pub fn family_for(expansion: u32) -> Family {
        match expansion {
            0 => Family::Fixed(Overflow::Error),
            expansion => Family::Scaling { expansion, tightening: Tightening::INVERSE_SQUARE },
        }
    }

    /// The largest bucket size at which a cuckoo filter of the configured capacity has at least two buckets.
    pub fn max_bucket_size(&self) -> u8 {
        u8::try_from(self.cuckoo_initial_size / 2).unwrap_or(u8::MAX)
    }

    /// Slots per bucket of a cuckoo filter that is created without BUCKETSIZE.
    pub fn bucket_size(&self) -> u8 {
        self.cuckoo_bucket_size.min(self.max_bucket_size())
    }

    /// Maximum number of sub-filters of a cuckoo filter.
    pub fn max_tables(&self) -> usize {
        self.cuckoo_max_expansions as usize
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::DEFAULT
    }
}

/// Why a text isn't a valid value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The value isn't a number.
    Invalid,
    /// The value isn't valid; the text says what the option accepts.
    Expected(&'static str),
    /// The value is outside this range.
    Range(String),
}

impl Refusal {
    /// The error text for users, in RedisBloom's words. `name` is the name of the option.
    pub fn text(&self, name: &str) -> String {
        match self {
            Refusal::Invalid => format!("Invalid value for `{name}`"),
            Refusal::Expected(what) => format!("Invalid value for `{name}`: expected {what}"),
            Refusal::Range(range) => format!("Value for `{name}` must be in the range {range}"),
        }
    }
}

/// One option: how its text is read and written.
pub struct Setting {
    /// Name in CONFIG, without a leading `bf-` or `bf.`. A load argument may also be written with `_` instead of `-`.
    pub name: &'static str,
    /// Returns the value as text.
    pub get: fn(&Settings) -> String,
    /// Sets the value from text. An error leaves the value unchanged.
    pub set: fn(&mut Settings, &str) -> Result<(), Refusal>,
}

/// Parses an integer, which must be in `range`.
fn integer<T: TryFrom<i64>>(text: &str, range: RangeInclusive<i64>) -> Result<T, Refusal> {
    let value: i64 = text.parse().map_err(|_| Refusal::Invalid)?;
    let out = || Refusal::Range(format!("[{}, {}]", range.start(), range.end()));
    if range.contains(&value) { T::try_from(value).map_err(|_| out()) } else { Err(out()) }
}

/// Parses an error rate: a number in (0, 1), and not below [`limits::MIN_ERROR_RATE`].
fn error_rate(text: &str) -> Result<f64, Refusal> {
    let rate: f64 = text.parse().ok().filter(|rate: &f64| !rate.is_nan()).ok_or(Refusal::Invalid)?;
    if !(rate > 0.0 && rate < 1.0) {
        return Err(Refusal::Range("(0.000000, 1.000000)".to_owned()));
    }
    if rate < limits::MIN_ERROR_RATE {
        return Err(Refusal::Range(format!("[{:e}, 1.000000)", limits::MIN_ERROR_RATE)));
    }
    Ok(rate)
}

/// Maximum number of threads besides the main thread.
pub const MAX_THREADS: usize = 8;

/// The smallest limit that can be set on the number of items in a command. Commands with no more items than this aren't
/// checked against the limit.
pub const MIN_ITEMS_LIMIT: i64 = 1000;

/// The largest capacity that can be set as the default, as in RedisBloom. For BF.RESERVE, memory is the limit.
const MAX_INITIAL_SIZE: i64 = 1 << 30;

/// A setting that is an integer in a range.
macro_rules! integer_setting {
    ($name:literal, $field:ident, $range:expr) => {
        Setting {
            name: $name,
            get: |settings| settings.$field.to_string(),
            set: |settings, text| integer(text, $range).map(|value| settings.$field = value),
        }
    };
}

/// A setting that is yes or no.
macro_rules! switch_setting {
    ($name:literal, $field:ident) => {
        Setting {
            name: $name,
            get: |settings| if settings.$field { "yes" } else { "no" }.to_owned(),
            set: |settings, text| {
                settings.$field = match text.to_ascii_lowercase().as_str() {
                    "yes" => true,
                    "no" => false,
                    _ => return Err(Refusal::Expected("yes or no")),
                };
                Ok(())
            },
        }
    };
}

/// A setting that is a number of bytes. The text says what it accepts.
macro_rules! bytes_setting {
    ($name:literal, $field:ident, $expected:literal) => {
        Setting {
            name: $name,
            get: |settings| settings.$field.to_string(),
            set: |settings, text| {
                bytes(text).map(|bytes| settings.$field = bytes).ok_or(Refusal::Expected($expected))
            },
        }
    };
}

/// All options.
pub const OPTIONS: &[Setting] = &[
    Setting {
        name: "error-rate",
        get: |settings| settings.error_rate.to_string(),
        set: |settings, text| error_rate(text).map(|rate| settings.error_rate = rate),
    },
    integer_setting!("initial-size", initial_size, 1..=MAX_INITIAL_SIZE),
    integer_setting!("expansion-factor", expansion, 0..=limits::MAX_EXPANSION.into()),
    integer_setting!("cf-bucket-size", cuckoo_bucket_size, 1..=u8::MAX.into()),
    integer_setting!("cf-initial-size", cuckoo_initial_size, 2..=MAX_INITIAL_SIZE),
    integer_setting!("cf-max-iterations", cuckoo_max_iterations, 1..=65_535),
    integer_setting!("cf-expansion-factor", cuckoo_expansion, 0..=limits::MAX_EXPANSION.into()),
    integer_setting!("cf-max-expansions", cuckoo_max_expansions, 1..=65_536),
    switch_setting!("auto-create", auto_create),
    Setting {
        name: "threads",
        get: |settings| settings.threads.map_or("auto".to_owned(), |threads| threads.to_string()),
        set: |settings, text| {
            let number = || integer(text, 0..=MAX_THREADS as i64).map(Some);
            let threads = if text.eq_ignore_ascii_case("auto") { Ok(None) } else { number() };
            threads.map(|threads| settings.threads = threads)
        },
    },
    integer_setting!("offload-min-items", offload_min_items, 1..=i64::MAX),
    bytes_setting!("offload-max-bytes", offload_max_bytes, "a number of bytes, optionally with kb, mb or gb"),
    switch_setting!("huge-pages", huge_pages),
    bytes_setting!(
        "max-filter-bytes",
        max_filter_bytes,
        "a number of bytes, optionally with kb, mb or gb; 0 for as many as the machine has"
    ),
    Setting {
        name: "max-items-per-command",
        get: |settings| settings.max_items_per_command.to_string(),
        set: |settings, text| {
            let expected = Refusal::Expected("0 for no limit, or a number of 1000 or more");
            let items = if text == "0" { Ok(0) } else { integer(text, MIN_ITEMS_LIMIT..=i64::MAX) };
            items.map(|items| settings.max_items_per_command = items).map_err(|_| expected)
        },
    },
    Setting {
        name: "tenants",
        get: |settings| settings.tenants.text(),
        set: |settings, text| Tenants::parse(text).map(|tenants| settings.tenants = tenants),
    },
    #[cfg(failpoints)]
    Setting {
        name: "failpoint",
        get: |_| crate::failpoint::armed(),
        set: |_, text| {
            crate::failpoint::arm(text);
            Ok(())
        },
    },
];

/// valkey-bloom's option names, each with ours. Load arguments can use valkey-bloom's names. If the server puts the
/// module's name before option names, CONFIG can use them too, so configuration files for valkey-bloom still work.
pub const VALKEY_NAMES: [(&str, &str); 4] = [
    ("bloom-capacity", "initial-size"),
    ("bloom-expansion", "expansion-factor"),
    ("bloom-fp-rate", "error-rate"),
    ("bloom-memory-usage-limit", "max-filter-bytes"),
];

/// Parses a number of bytes in the syntax of redis.conf: `kb` is 1024, `k` is 1000, and so on.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_reads_back_its_default_and_refuses_nonsense() {
        for option in OPTIONS {
            let mut settings = Settings::DEFAULT;
            let text = (option.get)(&settings);
            assert_eq!((option.set)(&mut settings, &text), Ok(()), "{}", option.name);
            for nonsense in ["", "x", "-1", "1.5x", "nan", "99999999999999999999999"] {
                assert!((option.set)(&mut settings, nonsense).is_err(), "{} {nonsense}", option.name);
            }
            assert_eq!(settings, Settings::DEFAULT);
        }
    }

    /// A server can read what CONFIG REWRITE writes, whatever the order of the lines. CONFIG SET can set several
    /// options in any order and, if one is refused, restore them in any order.
    #[test]
    fn any_settings_can_be_written_and_read_in_any_order() {
        let texts = "0 1 2 3 7 255 256 1000 65536 1073741824 0.5 1e-12 yes auto";
        let texts: Vec<&str> = texts.split(' ').collect();
        let mut chance = 1u64;
        let mut below = |most: usize| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (chance >> 33) as usize % most
        };
        for _ in 0..2000 {
            let mut settings = Settings::DEFAULT;
            for _ in 0..20 {
                _ = (OPTIONS[below(OPTIONS.len())].set)(&mut settings, texts[below(texts.len())]);
            }
            let mut lines: Vec<_> = OPTIONS.iter().map(|option| (option, (option.get)(&settings))).collect();
            (1..lines.len()).rev().for_each(|last| lines.swap(last, below(last + 1)));
            let mut read = Settings::DEFAULT;
            for (option, text) in lines {
                assert_eq!((option.set)(&mut read, &text), Ok(()), "{} {text}, of {settings:?}", option.name);
            }
            assert_eq!(read, settings);
        }
    }

    /// Whatever the configuration, a cuckoo filter that an add creates has at least two buckets.
    #[test]
    fn the_bucket_size_in_force_fits_the_capacity() {
        for (cuckoo_bucket_size, cuckoo_initial_size, used) in [
            (2, 1024, 2),
            (255, 510, 255),
            (255, 509, 254),
            (4, 7, 3),
            (4, 2, 1),
            (1, 2, 1),
            (255, 1 << 30, 255),
        ] {
            let settings = Settings { cuckoo_bucket_size, cuckoo_initial_size, ..Settings::DEFAULT };
            assert_eq!(settings.bucket_size(), used);
            assert!(u64::from(used) * 2 <= cuckoo_initial_size);
        }
    }

    #[test]
    fn valkey_blooms_names_are_those_of_options() {
        for (theirs, ours) in VALKEY_NAMES {
            assert_eq!(OPTIONS.iter().filter(|option| option.name == ours).count(), 1, "{theirs}");
        }
    }

    #[test]
    fn bytes_are_read_as_in_the_servers_configuration() {
        assert_eq!(
            ["4gb", "1kb", "2k", "17", "0"].map(bytes),
            [Some(4 << 30), Some(1024), Some(2000), Some(17), Some(0)]
        );
        assert_eq!(["", "gb", "4tb", "4 gb", "99999999999gb"].map(bytes), [None; 5]);
    }
}
