//! The options of the module: names, defaults, ranges. The server holds the texts; this says what they mean.

use crate::params::{Family, Overflow, Tightening, limits};

/// The values in force.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Error rate of a filter that an add creates, in (0, 1).
    pub error_rate: f64,
    /// Capacity of a filter that an add creates.
    pub initial_size: u64,
    /// Expansion of a filter that is created without one, 0 for a filter that does not scale.
    pub expansion: u32,
    /// Bytes of cells that one filter may have; 0 for as many as the machine has memory.
    pub max_filter_bytes: u64,
}

impl Settings {
    /// RedisBloom's defaults.
    pub const DEFAULT: Settings =
        Settings { error_rate: 0.01, initial_size: 100, expansion: 2, max_filter_bytes: 0 };

    /// The family that an expansion means: 0 does not scale, as in RedisBloom.
    pub fn family_for(expansion: u32) -> Family {
        match expansion {
            0 => Family::Fixed(Overflow::Error),
            expansion => Family::Scaling { expansion, tightening: Tightening::INVERSE_SQUARE },
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::DEFAULT
    }
}

/// One option: how its text is read and written.
pub struct Setting {
    /// Its name in CONFIG, behind the module's.
    pub name: &'static str,
    /// Its name as a load argument.
    pub argument: &'static str,
    /// What it takes, for error messages.
    pub takes: &'static str,
    /// Reads its value as text.
    pub get: fn(&Settings) -> String,
    /// Sets it from text; `Err` leaves it as it was.
    pub set: fn(&mut Settings, &str) -> Result<(), ()>,
}

/// All options.
pub const OPTIONS: &[Setting] = &[
    Setting {
        name: "error-rate",
        argument: "ERROR_RATE",
        takes: "a number from 1e-12 to below 1",
        get: |settings| settings.error_rate.to_string(),
        set: |settings, text| {
            let rate = text.parse().ok().filter(|rate| (limits::MIN_ERROR_RATE..1.0).contains(rate));
            settings.error_rate = rate.ok_or(())?;
            Ok(())
        },
    },
    Setting {
        name: "initial-size",
        argument: "INITIAL_SIZE",
        takes: "a number of items from 1 to 281474976710656",
        get: |settings| settings.initial_size.to_string(),
        set: |settings, text| {
            let items = text.parse().ok().filter(|items| (1..=limits::MAX_CAPACITY).contains(items));
            settings.initial_size = items.ok_or(())?;
            Ok(())
        },
    },
    Setting {
        name: "expansion-factor",
        argument: "EXPANSION_FACTOR",
        takes: "a number from 0 to 32768, where 0 means filters that do not scale",
        get: |settings| settings.expansion.to_string(),
        set: |settings, text| {
            settings.expansion =
                text.parse().ok().filter(|value| *value <= limits::MAX_EXPANSION).ok_or(())?;
            Ok(())
        },
    },
    Setting {
        name: "max-filter-bytes",
        argument: "MAX_FILTER_BYTES",
        takes: "a number of bytes, with kb, mb or gb if you like; 0 for as many as the machine has",
        get: |settings| settings.max_filter_bytes.to_string(),
        set: |settings, text| {
            settings.max_filter_bytes = bytes(text).ok_or(())?;
            Ok(())
        },
    },
];

/// A number of bytes as in redis.conf: `kb` is 1024, `k` 1000, and so on.
fn bytes(text: &str) -> Option<u64> {
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
                assert_eq!((option.set)(&mut settings, nonsense), Err(()), "{} {nonsense}", option.name);
            }
            assert_eq!(settings, Settings::DEFAULT);
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
