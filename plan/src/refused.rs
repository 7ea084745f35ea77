//! Why there is no plan.

use bloomery::Error;
use bloomery::options::{BLOOM, RULES, find};
use std::fmt;

/// An option that is missing, has an impossible value, or can't be combined with the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The option's name, without dashes.
    pub option: &'static str,
    /// What is wrong with the option, and often what to do.
    pub text: String,
}

impl Refused {
    pub(crate) fn new(option: &'static str, text: impl Into<String>) -> Refused {
        Refused { option, text: text.into() }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--{}: {}", self.option, self.text)
    }
}

impl std::error::Error for Refused {}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        let option = match error {
            Error::Shards(_) => "shards",
            Error::Expansion(_) => "expansion",
            Error::Tightening(_) => "tightening",
            Error::Generations(_) => "window",
            Error::Period(_) => "every",
            Error::Cuckoo(_) => "bucket-size",
            Error::Exclusive(why) => {
                let rule = RULES.iter().find(|rule| rule.why == why);
                rule.and_then(|rule| find(BLOOM, rule.option.as_bytes())).map_or("layout", |row| row.flag.0)
            }
            Error::ErrorRate(_) | Error::Unreachable { .. } => "error-rate",
            _ => "capacity",
        };
        Refused::new(option, error.to_string())
    }
}
