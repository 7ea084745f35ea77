//! Reads the replies of `BF.STATS key` and `CF.STATS key` into a [`Summary`], whose table has the names of the fields.
//! RESP2 (where maps are flat arrays and doubles are text) and RESP3 give the same result.

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

/// A value in a reply. Maps become lists of names and values by turns. Texts are made safe to print.
fn field(value: &Value) -> Field {
    match value {
        Value::Int(number) => u64::try_from(*number).map_or(Field::Null, Field::Count),
        Value::Double(number) => Field::Ratio(*number),
        Value::BulkString(bytes) => text(&String::from_utf8_lossy(bytes)),
        Value::SimpleString(word) | Value::VerbatimString { text: word, .. } => text(word),
        Value::Array(list) => Field::List(list.iter().map(field).collect()),
        Value::Map(pairs) => {
            Field::List(pairs.iter().flat_map(|(name, value)| [field(name), field(value)]).collect())
        }
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

    /// The same reply in RESP3 and in RESP2.
    fn both(fields: &[(&str, Value)]) -> [Value; 2] {
        let flat = |value: &Value| match value {
            Value::Map(pairs) => {
                Value::Array(pairs.iter().flat_map(|(key, value)| [key.clone(), value.clone()]).collect())
            }
            Value::Double(number) => bulk(&number.to_string()),
            other => other.clone(),
        };
        let pairs: Vec<(Value, Value)> =
            fields.iter().map(|(name, value)| (bulk(name), value.clone())).collect();
        let flattened = pairs.iter().flat_map(|(key, value)| [key.clone(), flat(value)]).collect();
        [Value::Map(pairs), Value::Array(flattened)]
    }

    #[test]
    fn both_protocols_read_alike() {
        let minute = Value::Map(vec![
            (bulk("Checked"), Value::Int(200)),
            (bulk("False"), Value::Int(3)),
            (bulk("Share false"), bulk("0.015")),
            (bulk("Observed error rate"), Value::Nil),
        ]);
        for reply in both(&[
            ("Kind", bulk("window")),
            ("Error rate", Value::Double(0.01)),
            ("Capacity", Value::Int(1000)),
            ("Number of items inserted", Value::Int(7)),
            ("Fill", Value::Double(0.25)),
            ("Generation", Value::Int(4)),
            ("Rotates every ms", Value::Nil),
            ("Tests answered yes", Value::Int(2)),
            ("Tests answered no", Value::Int(3)),
            ("Feedback", Value::Map(vec![(bulk("Minute"), minute)])),
            ("Rebuild", Value::Nil),
            ("Advice", Value::Array(vec![bulk("over capacity")])),
        ]) {
            let info = summary(&reply).unwrap();
            assert_eq!(info.kind, "window");
            assert_eq!(info.error_rate, Some(0.01));
            assert_eq!((info.capacity, info.items, info.fill), (1000, 7, 0.25));
            assert_eq!((info.generation, info.rotates_every_ms), (Some(4), None));
            assert_eq!(info.tests(), Some(5));
            let minute = info.feedback.unwrap().minute;
            assert_eq!((minute.checked, minute.r#false, minute.share_false), (200, 3, Some(0.015)));
            assert_eq!((minute.observed_error_rate, info.rebuild), (None, None));
            assert_eq!(info.advice, ["over capacity"]);
        }
    }

    #[test]
    fn what_is_missing_is_none() {
        let info = summary(&Value::Array(vec![bulk("Kind"), bulk("fixed"), bulk("stray")])).unwrap();
        assert_eq!(Summary { kind: "fixed".into(), ..Summary::default() }, info);
        for reply in [Value::Nil, Value::Okay, Value::Int(1), bulk("x"), Value::Array(vec![])] {
            assert!(summary(&reply).is_err(), "{reply:?}");
        }
    }
}
