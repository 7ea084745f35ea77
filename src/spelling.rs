//! Numbers and words as commands spell them. The words for choices, such as layouts, hashes and policies. Each word is
//! spelled once, next to its type. Commands, replies, the command-line program and its files all use this spelling.

use core::fmt;

/// The error for a word that doesn't name a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownChoice {
    /// The words that name a choice.
    pub choices: &'static [&'static str],
}

impl fmt::Display for UnknownChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected one of {}", self.choices.join(", "))
    }
}

impl core::error::Error for UnknownChoice {}

/// Gives an enum its words: `as_str`, `Display` and a case-insensitive `FromStr`. The choices after a semicolon have
/// words, but users can't make them.
macro_rules! spelling {
    ($visible:vis $type:ident { $($variant:ident = $word:literal),+ $(; $($hidden:ident = $name:literal),+)? $(,)? }) => {
        impl $type {
            /// Every choice that users can make, in the order in which users see them.
            $visible const ALL: &'static [$type] = &[$($type::$variant),+];

            /// The word for this choice.
            $visible const fn as_str(self) -> &'static str {
                match self {
                    $($type::$variant => $word,)+
                    $($($type::$hidden => $name,)+)?
                }
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl core::str::FromStr for $type {
            type Err = $crate::spelling::UnknownChoice;

            fn from_str(word: &str) -> Result<$type, Self::Err> {
                let known = $type::ALL.iter().copied().find(|choice| choice.as_str().eq_ignore_ascii_case(word));
                known.ok_or($crate::spelling::UnknownChoice { choices: &[$($word),+] })
            }
        }
    };
}

pub(crate) use spelling;

/// Parses an integer in the server's syntax: no sign but `-`, no leading zeros, no blanks.
pub fn integer(bytes: &[u8]) -> Option<i64> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let canonical = match digits {
        [b'0'] => bytes.len() == 1,
        [b'1'..=b'9', ..] => true,
        _ => false,
    };
    // Computes with negative numbers, because there is one more of them than of positive ones.
    let subtract = |number: i64, digit: &u8| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_sub(digit.into())
    };
    let below = digits.iter().try_fold(0, subtract).filter(|_| canonical)?;
    if digits.len() < bytes.len() { Some(below) } else { below.checked_neg() }
}

/// Parses a number as C does, in decimal or hexadecimal digits. Refuses NaN, and numbers that no double can express,
/// such as 1e400 and 1e-400.
pub fn number(bytes: &[u8]) -> Option<f64> {
    let text = core::str::from_utf8(bytes).ok()?;
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if let Some(digits) = digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        let value = hexadecimal(digits)?;
        return Some(if text.starts_with('-') { -value } else { value });
    }
    let value: f64 = text.parse().ok()?;
    let mantissa = || digits.split(['e', 'E']).next().unwrap_or_default();
    let is_too_large = value.is_infinite() && mantissa().contains(|letter: char| letter.is_ascii_digit());
    let is_too_small = value == 0.0 && mantissa().contains(|letter| ('1'..='9').contains(&letter));
    (!value.is_nan() && !is_too_large && !is_too_small).then_some(value)
}

/// Parses a number in C's hexadecimal notation, without the 0x: hexadecimal digits and an optional power of two, as in
/// `1.8p-7`.
fn hexadecimal(text: &str) -> Option<f64> {
    let (digits, power) = text
        .split_once(['p', 'P'])
        .map_or((text, Some(0)), |(digits, power)| (digits, power.parse::<i32>().ok()));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = whole.bytes().chain(fraction.bytes());
    let value =
        all.clone().try_fold(0.0, |sum, digit| Some(sum * 16.0 + f64::from(char::from(digit).to_digit(16)?)));
    let fraction_bits = i32::try_from(fraction.len()).ok()?.checked_mul(4)?;
    all.count().checked_sub(1)?;
    Some(libm::ldexp(value?, power?.checked_sub(fraction_bits)?))
}

/// Parses a time as a whole number of milliseconds: an integer in the server's syntax, or a decimal number with a unit.
pub fn milliseconds(bytes: &[u8]) -> Option<u64> {
    let with_unit = || {
        let text = core::str::from_utf8(bytes).ok()?;
        duration(text, f64::NAN).filter(|ms| is_whole(*ms)).map(|ms| ms as u64)
    };
    unsigned(bytes).or_else(with_unit)
}

/// Parses a time, and returns it in milliseconds. Its unit is ms, s, m, h, d or w. Without a unit, the number is
/// multiplied by `plain`.
pub fn duration(text: &str, plain: f64) -> Option<f64> {
    let end = text.find(|character: char| character.is_ascii_lowercase()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let ms = match unit {
        "" => plain,
        "ms" => 1.0,
        "s" => 1e3,
        "m" => 60e3,
        "h" => 3.6e6,
        "d" => 86.4e6,
        "w" => 604.8e6,
        _ => return None,
    };
    let is_decimal = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        && number.starts_with(|first: char| first.is_ascii_digit())
        && !number.ends_with('.');
    let value = is_decimal.then(|| number.parse::<f64>().ok()).flatten()? * ms;
    // In doubles, 0.7 × 86.4e6 isn't a whole number.
    let near = libm::round(value);
    Some(if (value - near).abs() < near * 1e-12 { near } else { value })
}

/// Whether this is a whole number from 0 to 9e15. Above 2^53 (about 9.007e15), a double can't hold every whole number.
pub fn is_whole(number: f64) -> bool {
    number == libm::trunc(number) && (0.0..=9e15).contains(&number)
}

/// Parses a non-negative integer in the server's syntax.
pub fn unsigned(bytes: &[u8]) -> Option<u64> {
    u64::try_from(integer(bytes)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, value) in [
            ("0.01", 0.01),
            ("+.5", 0.5),
            ("1.e-2", 0.01),
            ("5e-324", 5e-324),
            ("0e9", 0.0),
            ("-inf", f64::NEG_INFINITY),
            ("0x1p-7", 0.007_812_5),
            ("0X.8", 0.5),
            ("-0x1.8P-4", -0.093_75),
            ("0x0.00001p+10", 0.000_976_562_5),
        ] {
            assert_eq!(number(text.as_bytes()), Some(value), "{text}");
        }
        for text in
            ["", "nan", "1e400", "-1e400", "1e-400", " 0.1", "0.1 ", "+-1", "0x", "0x.", "0x1q", "0x+1p-4"]
        {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn times_may_have_units() {
        for (text, ms) in [
            ("0", 0),
            ("9223372036854775807", i64::MAX as u64),
            ("250ms", 250),
            ("1.5s", 1500),
            ("1.001s", 1001),
            ("4.1m", 246_000),
            ("2.2h", 7_920_000),
            ("0.7d", 60_480_000),
            ("15m", 900_000),
            ("1h", 3_600_000),
            ("7d", 604_800_000),
            ("2w", 1_209_600_000),
        ] {
            assert_eq!(milliseconds(text.as_bytes()), Some(ms), "{text}");
        }
        for text in [
            "", "h", "1.5", "01", "-1", "-1h", "+1h", ".5h", "1.h", "1E3s", "1.0001s", "0.5ms", "1y", "1H",
            "1 h", "1_000", "nan", "inf", "NAN", "1e300d",
        ] {
            assert_eq!(milliseconds(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn integers_are_read_as_the_server_reads_them() {
        for (text, value) in [
            ("0", 0),
            ("-5", -5),
            ("100", 100),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(integer(text.as_bytes()), Some(value));
        }
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            " 1",
            "1 ",
            "1.5",
            "1e3",
            "0x10",
            "9223372036854775808",
            "-9223372036854775809",
            "1:",
            "1/",
            "abc",
        ] {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
    }
}
