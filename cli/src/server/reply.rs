//! Reads the replies of `BF.STATS key` and `CF.STATS key` into a [`Summary`], whose table has the names of the fields.
//! The connections use RESP2, where maps are flat arrays and doubles are text.

use crate::output::shorten;
use crate::printable::printable;
use bloomery::Summary;
use bloomery::filter::record::{Record, Value as Field};
use redis::{RedisError, RedisResult, Value};
use std::io;

/// Reads the reply of BF.STATS or CF.STATS. One without any known field is refused.
pub(super) fn summary(reply: &Value) -> RedisResult<Summary> {
    let summary = Summary::read(field(reply)).filter(|summary| *summary != Summary::default());
    summary.ok_or_else(|| unexpected("BF.STATS or CF.STATS", reply))
}

/// A value in a reply. Texts are made safe to print.
fn field(value: &Value) -> Field {
    match value {
        Value::Int(number) => u64::try_from(*number).map_or(Field::Null, Field::Count),
        Value::BulkString(bytes) => text(&String::from_utf8_lossy(bytes)),
        Value::SimpleString(word) => text(word),
        Value::Array(list) => Field::List(list.iter().map(field).collect()),
        _ => Field::Null,
    }
}

/// Maximum length of a text in a reply, in columns. What a server says of a filter is much shorter.
const LONGEST: usize = 1000;

fn text(text: &str) -> Field {
    Field::Word(shorten(&printable(text), LONGEST).into_owned().into())
}

/// The error for a reply of an unexpected type.
pub(crate) fn unexpected(command: &str, reply: &Value) -> RedisError {
    let kind = match reply {
        Value::Nil => "nil",
        Value::Int(_) => "a number",
        Value::BulkString(_) => "a string",
        Value::Array(_) => "an array",
        Value::SimpleString(_) | Value::Okay => "a status",
        Value::ServerError(_) => "an error",
        _ => "a value of another type",
    };
    let text = format!("unexpected reply to {command}: {kind}");
    io::Error::new(io::ErrorKind::InvalidData, text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn what_is_missing_is_none() {
        let info = summary(&Value::Array(vec![bulk("Kind"), bulk("fixed"), bulk("stray")])).unwrap();
        let mut expected = Summary::default();
        expected.kind = "fixed".into();
        assert_eq!(expected, info);
        for reply in [Value::Nil, Value::Okay, Value::Int(1), bulk("x"), Value::Array(vec![])] {
            assert!(summary(&reply).is_err(), "{reply:?}");
        }
    }
}
