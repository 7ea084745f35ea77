//! Values of options, from the text on the command line.

use bloomery::limits;

/// A count: digits, optionally separated by `_` or `,`, and optionally a unit: k, M, G or T for 10^3, 10^6, 10^9,
/// 10^12.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
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
    // Beyond 2^53 a double no longer holds every whole number.
    if number.fract() == 0.0 && (0.0..=9e15).contains(&number) { Ok(number as u64) } else { Err(wrong()) }
}

/// An error rate: 0.01, 1e-2 or 1%.
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

/// Seconds between two repetitions of something.
pub(crate) fn parse_seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.1..=86_400.0).contains(seconds))
        .ok_or("expected a number of seconds from 0.1 to 86400".into())
}

/// The character between the columns of a CSV file.
pub(crate) fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => Err(format!("{text:?} is not a delimiter: expected one ASCII character, or tab")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
