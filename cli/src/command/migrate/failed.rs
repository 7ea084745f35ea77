//! Failures of a migration.

use crate::error::{self, Failure};
use redis::RedisError;

/// Why one filter, or all of them, can't be copied to the target.
#[derive(Debug)]
pub(in crate::command) enum Failed {
    /// This filter can't be copied.
    Filter(String),
    /// This filter couldn't be copied this time: it may have grown during the copy, so the next round tries again.
    ThisTime(String),
    /// The whole run fails: a connection broke, the login failed, or a permission is missing.
    Run(anyhow::Error),
}

impl From<anyhow::Error> for Failed {
    fn from(error: anyhow::Error) -> Failed {
        match error.downcast::<RedisError>() {
            Ok(error) => error.into(),
            Err(error) if error.is::<Failure>() => Failed::Filter(error::text(&error)),
            Err(error) => Failed::Run(error),
        }
    }
}

impl From<RedisError> for Failed {
    fn from(error: RedisError) -> Failed {
        let ends = ["NOPERM", "NOAUTH", "WRONGPASS"];
        if error.is_io_error() || error.code().is_some_and(|code| ends.contains(&code)) {
            Failed::Run(error.into())
        } else {
            Failed::ThisTime(error.to_string())
        }
    }
}
