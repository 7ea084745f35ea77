//! What a command replies, independent of the protocol.

use super::error::CommandError;
use smallvec::SmallVec;

/// A reply. `module::reply` is the only place that turns it into RESP2 or RESP3.
#[derive(Debug, PartialEq)]
pub enum Reply {
    /// `+OK`
    Ok,
    /// An integer.
    Integer(i64),
    /// `:1`/`:0` in RESP2, a boolean in RESP3.
    Bool(bool),
    /// A bulk string with a number in RESP2, a double in RESP3.
    Double(f64),
    /// A bulk string.
    Bulk(Vec<u8>),
    /// Null.
    Null,
    /// An array.
    Array(Vec<Reply>),
    /// A flat array in RESP2, a map in RESP3; keys are simple strings.
    Map(Vec<(&'static str, Reply)>),
    /// One field of a map: an array of its value in RESP2, a map of one entry in RESP3.
    Entry(&'static str, Box<Reply>),
    /// One answer per item.
    Answers(Answers),
    /// The same, where an item is refused for lack of room: `:1`/`:-1` in RESP2, a boolean in RESP3.
    Inserted(SmallVec<[Answer; 64]>),
    /// The same, where an item may also be present: `:1`, `:0` or `:-1`.
    InsertedIfAbsent(SmallVec<[Answer; 64]>),
    /// Sent when the pool has computed it ([`Call::offload`](super::Call::offload)).
    Later,
}

/// The answer for one of several items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Answer {
    /// No: absent, or not added.
    No,
    /// Yes.
    Yes,
    /// The error of [`Answers::error`].
    Refused,
}

impl From<bool> for Answer {
    #[inline(always)]
    fn from(yes: bool) -> Answer {
        if yes { Answer::Yes } else { Answer::No }
    }
}

/// One answer per item, in order. Up to 64 need no allocation, more need a single one.
#[derive(Debug, Default, PartialEq)]
pub struct Answers {
    /// The answers. There are fewer than items if the first refusal ended the command.
    pub answers: SmallVec<[Answer; 64]>,
    /// Why the refused ones were refused.
    pub error: Option<CommandError>,
}

impl Reply {
    /// Whether a full filter of fixed size has ended the command before its last item.
    pub fn ends_early(&self) -> bool {
        matches!(self, Reply::Answers(Answers { error: Some(CommandError::Full), .. }))
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Reply {
        Reply::Bulk(text.as_bytes().to_vec())
    }
}

impl From<u64> for Reply {
    fn from(value: u64) -> Reply {
        Reply::Integer(i64::try_from(value).unwrap_or(i64::MAX))
    }
}
