//! Parses option values from the command line.

use bloomery::spelling::is_whole;
use bloomery_plan::duration;

/// Parses a time from 0.1 to 86,400 seconds, and returns it in seconds.
pub(crate) fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = duration(text, 1e3).map(|ms| ms / 1e3);
    seconds
        .filter(|seconds| (0.1..=86_400.0).contains(seconds))
        .ok_or_else(|| format!("{text:?} is not a time from 0.1 to 86400 seconds: write 2, 500ms, 30s or 1h"))
}

/// Parses a time that is a whole number of seconds, and returns this number.
pub(crate) fn parse_whole_seconds(text: &str) -> Result<u64, String> {
    let seconds = duration(text, 1e3).map(|ms| ms / 1e3).filter(|seconds| is_whole(*seconds));
    seconds
        .map(|seconds| seconds as u64)
        .ok_or_else(|| format!("{text:?} is not a number of whole seconds: write 90, 90s, 15m, 1h or 7d"))
}

/// Parses the character between the columns of a CSV file: one ASCII character, `tab` or `\t`.
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
    fn times_may_have_units() {
        for (text, seconds) in [("2", 2.0), ("0.5", 0.5), ("500ms", 0.5), ("30s", 30.0), ("1h", 3600.0)] {
            assert_eq!(parse_seconds(text), Ok(seconds), "{text}");
        }
        for (text, seconds) in
            [("0", 0), ("90", 90), ("15m", 900), ("1.5h", 5400), ("7d", 604_800), ("1w", 604_800)]
        {
            assert_eq!(parse_whole_seconds(text), Ok(seconds), "{text}");
        }
        for text in ["", "h", "-1", "1y", "0.5ms", "1 h", "nan", "inf", "1e300d"] {
            assert!(parse_seconds(text).is_err() && parse_whole_seconds(text).is_err(), "{text}");
        }
    }
}
