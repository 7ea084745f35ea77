//! The words for choices, such as layouts, hashes and policies. Each word is spelled once, next to its type. Commands,
//! replies, the command-line program and its files all use this spelling.

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
