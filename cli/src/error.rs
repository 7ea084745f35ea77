//! How a subcommand ends: outcomes, failures, and the exit codes that `bloomery --help` lists.

use crate::output::shorten;
use crate::printable::printable;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// How a subcommand ended if it didn't fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Success, or the answer is yes: exit code 0.
    Done,
    /// The answer is no: exit code 1.
    No,
    /// The user interrupted the subcommand: exit code 130, as shells report SIGINT.
    Interrupted,
}

impl Outcome {
    pub(crate) fn code(self) -> u8 {
        match self {
            Outcome::Done => 0,
            Outcome::No => 1,
            Outcome::Interrupted => 130,
        }
    }

    /// This outcome, after it was printed. It is the same if nobody has read it: `bloomery inspect … | true`.
    pub(crate) fn printed(self, printed: anyhow::Result<()>) -> anyhow::Result<Outcome> {
        match printed {
            Err(error) if !is_unread(&error) => Err(error),
            _ => Ok(self),
        }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> ExitCode {
        ExitCode::from(outcome.code())
    }
}

/// The kind of a failure, which determines the exit code. Other errors count as `Server` if they come from the Redis
/// client, as `Usage` if they come from the operating system (a file), and as `Data` otherwise.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The data is missing, damaged or not what was expected: exit code 2.
    Data(String),
    /// The command line is not usable: exit code 2.
    Usage(String),
    /// The server refused, or its reply makes no sense: exit code 3.
    Server(String),
    /// Data that an earlier step stored on the server is gone, so continuing would lose items: exit code 3.
    Lost(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failure::Data(text) | Failure::Usage(text) | Failure::Server(text) | Failure::Lost(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for Failure {}

/// Returns this kind of failure, with a formatted text.
macro_rules! fail {
    ($kind:ident, $($text:tt)*) => {
        return Err($crate::error::Failure::$kind(format!($($text)*)).into())
    };
}
pub(crate) use fail;

/// The exit code for an error.
pub(crate) fn code(error: &anyhow::Error) -> u8 {
    error
        .chain()
        .find_map(|cause| match cause.downcast_ref::<Failure>() {
            Some(Failure::Data(_) | Failure::Usage(_)) => Some(2),
            Some(Failure::Server(_) | Failure::Lost(_)) => Some(3),
            None if cause.is::<redis::RedisError>() => Some(3),
            None if cause.is::<io::Error>() => Some(2),
            None => None,
        })
        .unwrap_or(2)
}

/// Prints the error and its causes to stderr. A pipe closed by its reader isn't an error: `bloomery … | head` ends
/// silently.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if is_unread(error) {
        return ExitCode::SUCCESS;
    }
    note(&text(error));
    ExitCode::from(code(error))
}

/// Whether the reader of a pipe has closed it.
fn is_unread(error: &anyhow::Error) -> bool {
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(closed) && !error.chain().any(|cause| cause.is::<redis::RedisError>())
}

/// What an error leaves behind, and what to do about it. It is the outermost context but is printed after the causes.
#[derive(Debug)]
pub(crate) struct Aftermath(pub(crate) String);

impl fmt::Display for Aftermath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The error and its causes, outermost first, followed by its [`Aftermath`]. The causes of a Redis client error are
/// left out because they only repeat it.
pub(crate) fn text(error: &anyhow::Error) -> String {
    let aftermath = error.downcast_ref::<Aftermath>();
    let mut parts = Vec::new();
    for cause in error.chain().skip(usize::from(aftermath.is_some())) {
        if let Some(error) = cause.downcast_ref::<redis::RedisError>() {
            parts.push(server_text(error));
            break;
        }
        parts.push(cause.to_string());
    }
    let text = parts.join(": ");
    match aftermath {
        Some(aftermath) => format!("{}. {aftermath}", text.trim_end_matches('.')),
        None => text,
    }
}

/// The server's error text, or the client library's if the server didn't reply.
pub(crate) fn server_text(error: &redis::RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some("ResponseError" | "ERR"), Some(detail)) => format!("ERR {detail}"),
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

/// Maximum length of a message, in columns.
const LONGEST: usize = 10_000;

/// Prints a message to stderr. Control characters are escaped, because the message might quote a server, a key or a
/// file. A stderr that can't be written, such as a log on a full disk, doesn't end a task.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "bloomery: {}", shorten(&printable(text), LONGEST));
}
