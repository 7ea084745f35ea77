//! What a command replies, in a form that doesn't depend on the protocol.

use super::error::CommandError;
use bloomery::filter::record::{Record, Replies, Value};
use smallvec::SmallVec;
use std::ffi::CStr;

/// A reply. `module::reply` is the only place that turns it into RESP2 or RESP3.
#[derive(Debug, PartialEq)]
pub enum Reply {
    /// `+OK`
    Ok,
    /// An integer.
    Integer(i64),
    /// `:1`/`:0` in RESP2, a boolean in RESP3.
    Bool(bool),
    /// A number: a bulk string in RESP2, a double in RESP3.
    Double(f64),
    /// A number with as many digits as the server writes: the replies of RedisBloom's sketches differ between servers.
    ServersDouble(f64),
    /// A bulk string.
    Bulk(Vec<u8>),
    /// Null.
    Null,
    /// An array.
    Array(Vec<Reply>),
    /// A flat array in RESP2, a map in RESP3; keys are simple strings.
    Map(Vec<(&'static str, Reply)>),
    /// A map of numbers.
    Numbers(Numbers),
    /// One field of a map of numbers: an array of its value in RESP2, a map of one entry in RESP3.
    Entry(&'static CStr, Option<u64>),
    /// A piece of a dump: an array of the next piece's iterator and the bytes, which may be null.
    Piece(u64, Option<Vec<u8>>),
    /// One answer per item.
    Answers(Answers),
    /// One answer per item, for CF.INSERT. In RESP2, `:1` if the item was added, or `:-1` if there was no room for it;
    /// in RESP3, a boolean.
    Inserted(SmallVec<[Answer; 64]>),
    /// One answer per item, for CF.INSERTNX: `:1` if the item was added, `:0` if it was present, `:-1` if there was no
    /// room for it.
    InsertedIfAbsent(SmallVec<[Answer; 64]>),
    /// One count per item. If there is a text, it is the error that stands for the largest count.
    Counts(Vec<u32>, Option<&'static str>),
    /// An item, or null, for each item.
    Items(Vec<Option<Box<[u8]>>>),
    /// A reply that is sent later, after work in the background; see for example
    /// [`Call::offload`](super::Call::offload).
    Later,
}

/// The answer for one of several items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Answer {
    /// No: absent, or not added.
    No,
    /// Yes: present, or added.
    Yes,
    /// The item was refused. In [`Answers`], `error` says why.
    Refused,
}

impl From<bool> for Answer {
    #[inline(always)]
    fn from(yes: bool) -> Answer {
        if yes { Answer::Yes } else { Answer::No }
    }
}

/// One answer per item, in order. Up to 64 answers need no allocation.
#[derive(Debug, Default, PartialEq)]
pub struct Answers {
    /// The answers. There are fewer than items if the first refusal ended the command.
    pub answers: SmallVec<[Answer; 64]>,
    /// Why the refused items were refused.
    pub error: Option<CommandError>,
}

/// Numbers and their names. A map of these needs no allocation, and its names are sent unchanged. Without this type,
/// BF.INFO took an eighth longer than in RedisBloom.
#[derive(Debug, PartialEq)]
pub struct Numbers {
    names: &'static [&'static CStr],
    /// The first values belong to the names, in order. A negative value stands for null. With an `Option` for each
    /// value, a reply would be so large that every command would copy it with a call to memcpy.
    values: [i64; Numbers::MOST],
}

impl Numbers {
    const MOST: usize = 8;

    /// Combines names with their values.
    pub(super) fn new<const N: usize>(
        names: &'static [&'static CStr; N],
        values: [Option<u64>; N],
    ) -> Numbers {
        const { assert!(N <= Numbers::MOST) };
        let mut all = [-1; Numbers::MOST];
        for (to, value) in all.iter_mut().zip(values) {
            *to = value.map_or(-1, |value| i64::try_from(value).unwrap_or(i64::MAX));
        }
        Numbers { names, values: all }
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// The fields, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static CStr, Option<u64>)> {
        self.names.iter().copied().zip(self.values.iter().map(|value| u64::try_from(*value).ok()))
    }

    /// Converts the fields to those of a [`Reply::Map`].
    pub fn fields(&self) -> Vec<(&'static str, Reply)> {
        self.iter().map(|(name, value)| (name.to_str().unwrap_or_default(), value.into())).collect()
    }
}

/// A record as the fields of a [`Reply::Map`].
pub(super) fn fields<R: Record>(record: &R, family: Replies) -> Vec<(&'static str, Reply)> {
    record.fields(family).map(|(name, value)| (name, value.into())).collect()
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

/// A number in RESP2. Servers differ in how many digits they print; the shortest text that reads back as the same
/// number is the same everywhere. As in C, small numbers have an exponent.
pub fn double_text(number: f64) -> String {
    if number != 0.0 && number.abs() < 1e-4 { format!("{number:e}") } else { number.to_string() }
}

impl From<u64> for Reply {
    fn from(value: u64) -> Reply {
        Reply::Integer(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<Option<u64>> for Reply {
    fn from(value: Option<u64>) -> Reply {
        value.map_or(Reply::Null, Reply::from)
    }
}

impl From<Value> for Reply {
    fn from(value: Value) -> Reply {
        match value {
            Value::Null => Reply::Null,
            Value::Word(word) => Reply::from(&*word),
            Value::Count(count) => count.into(),
            Value::Ratio(ratio) => Reply::Double(ratio),
            Value::List(list) => Reply::Array(list.into_iter().map(Reply::from).collect()),
            Value::Map(fields) => {
                Reply::Map(fields.into_iter().map(|(name, value)| (name, value.into())).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_read_back() {
        for (number, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.01, "0.01"),
            (1e-4, "0.0001"),
            (1e-5, "1e-5"),
            (0.1 + 0.2, "0.30000000000000004"),
        ] {
            assert_eq!(double_text(number), text);
        }
        for number in [5.76536757207294e-98, f64::MIN_POSITIVE, 2.5e-324, 1.0 - f64::EPSILON] {
            let text = double_text(number);
            assert!(text.len() <= 24 && text.parse() == Ok(number), "{text}");
        }
    }
}
