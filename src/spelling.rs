//! Numbers and words as commands spell them. The words for choices, such as layouts, hashes and policies. Each word is
//! spelled once, next to its type. Commands, replies, the command-line program and its files all use this spelling.

use std::fmt;

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

impl std::error::Error for UnknownChoice {}

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

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $type {
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

/// Parses a number. NaN is refused.
pub fn number(bytes: &[u8]) -> Option<f64> {
    std::str::from_utf8(bytes).ok()?.parse().ok().filter(|value: &f64| !value.is_nan())
}

/// Parses a non-negative integer in the server's syntax.
pub fn unsigned(bytes: &[u8]) -> Option<u64> {
    u64::try_from(integer(bytes)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
