//! The format of computed numbers.

use std::fmt::Write;

/// A number in the format of C's `%g`: six significant digits, no trailing zeros, and an exponent if the number is
/// very small or large.
pub(super) fn general(value: f64) -> String {
    const DIGITS: i32 = 6;
    let mut text = String::with_capacity(24);
    let _ = write!(text, "{value:.5e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS).contains(&exponent) {
        let decimals = usize::try_from(DIGITS.saturating_sub(1).saturating_sub(exponent)).unwrap_or(0);
        text.clear();
        let _ = write!(text, "{value:.decimals$}");
        if text.contains('.') {
            text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
        }
        return text;
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_does() {
        for (value, text) in [
            (0.01, "0.01"),
            (0.000625, "0.000625"),
            (0.00005, "5e-05"),
            (0.000_123_456_789, "0.000123457"),
            (1.25e-5, "1.25e-05"),
            (6.1035e-105, "6.1035e-105"),
            (0.5, "0.5"),
            (1.0, "1"),
            (1_234_567.0, "1.23457e+06"),
            (123_456.0, "123456"),
        ] {
            assert_eq!(general(value), text);
        }
    }
}
