//! Parses the values of options.

use bloomery::limits;
use bloomery::spelling::{self, is_whole};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Parses a count: a number whose digits may be separated by `_` or `,`, optionally followed by a unit: k, M, G or T
/// for 10^3, 10^6, 10^9 or 10^12. The result must be a whole number.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a number: write 1000000, 1_000_000, 1M or 1.5M");
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
    if is_whole(number) { Ok(number as u64) } else { Err(wrong()) }
}

/// Parses a number of items, which must be from 1 to 2^48.
pub(crate) fn parse_capacity(text: &str) -> Result<u64, String> {
    let items = parse_count(text)?;
    let fits = (1..=limits::MAX_CAPACITY).contains(&items);
    if fits { Ok(items) } else { Err(format!("{text:?} is not a number of items from 1 to 2^48")) }
}

/// Parses a whole number within bounds.
pub(crate) fn parse_whole<T: FromStr + PartialOrd + Display>(
    text: &str,
    bounds: RangeInclusive<T>,
) -> Result<T, String> {
    text.parse()
        .ok()
        .filter(|number| bounds.contains(number))
        .ok_or_else(|| format!("{text:?} is not a whole number from {} to {}", bounds.start(), bounds.end()))
}

/// Parses an error rate, such as 0.01, 1e-2 or 1%.
pub(crate) fn parse_rate(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number.trim_end(), 100.0),
        None => (text, 1.0),
    };
    let rate = number.parse::<f64>().ok().map(|number| number / unit);
    rate.filter(|rate| (limits::MIN_ERROR_RATE..1.0).contains(rate)).ok_or_else(|| {
        format!("{text:?} is not an error rate: expected a number from 1e-12 to below 1, such as 0.01 or 1%")
    })
}

/// Parses a time, and returns it in milliseconds. Its digits may be separated by `_` or `,`. Without a unit, the number
/// is multiplied by `plain`.
pub fn duration(text: &str, plain: f64) -> Option<f64> {
    spelling::duration(&text.replace(['_', ','], ""), plain)
}

/// Parses a time, with or without a unit, that is a whole number of milliseconds.
pub(crate) fn parse_ms(text: &str) -> Result<u64, String> {
    let ms = duration(text, 1.0).filter(|ms| is_whole(*ms));
    ms.map(|ms| ms as u64)
        .or_else(|| parse_count(text).ok())
        .ok_or_else(|| format!("{text:?} is not a time in milliseconds: write 60000, 60s, 15m, 1h or 7d"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_may_have_units() {
        for (text, ms) in
            [("60000", 60_000), ("60_000", 60_000), ("1m", 60_000), ("1M", 1_000_000), ("1h", 3_600_000)]
        {
            assert_eq!(parse_ms(text), Ok(ms), "{text}");
        }
        for text in ["", "h", "-1", "1y", "0.5ms", "1 h", "nan", "inf", "1e300d"] {
            assert!(parse_ms(text).is_err(), "{text}");
        }
        assert!(parse_ms("0").is_ok());
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
        for text in ["0", "281474976710657"] {
            assert!(parse_count(text).is_ok() && parse_capacity(text).is_err(), "{text}");
        }
        assert_eq!(parse_capacity("281474976710656"), Ok(limits::MAX_CAPACITY));
        assert_eq!((parse_whole("0", 0..=9), parse_whole("9", 0..=9)), (Ok(0), Ok(9)));
        for text in ["", "-1", "10", "x", "1.0"] {
            assert!(parse_whole::<u8>(text, 0..=9).is_err(), "{text}");
        }
        assert_eq!(parse_rate("1%"), Ok(0.01));
        assert_eq!(parse_rate("1e-3"), Ok(0.001));
        for text in ["", "0", "1", "100%", "-1", "x", "nan"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }
}
