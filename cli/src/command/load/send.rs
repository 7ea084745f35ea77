//! Sends batches to the server, and reads its replies.

use super::answers::Answer;
use crate::error::server_text;
use crate::input::{Batch, items_of};
use crate::server::connection::{Connection, Server};
use crate::server::reply::unexpected;
use redis::{RedisError, Value};

/// Maximum number of items in a command with one argument per item. A script can pass on fewer than 8000 arguments.
const MOST_ARGUMENTS: u64 = 4096;

/// What a load fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A Bloom filter.
    Bloom,
    /// The shadow of a rebuild.
    Rebuild,
    /// A cuckoo filter.
    Cuckoo,
}

/// Sends items to one filter.
pub(super) struct Sender {
    server: Server,
    key: Vec<u8>,
    kind: Kind,
}

impl Sender {
    pub(super) fn new(server: Server, key: &[u8], kind: Kind) -> Sender {
        Sender { server, key: key.to_vec(), kind }
    }

    pub(super) fn connect(&self) -> anyhow::Result<Connection> {
        self.server.connect()
    }

    /// Maximum number of items per command; `wanted` is the user's maximum.
    pub(super) fn most_items(&self, wanted: u64) -> u64 {
        if self.kind == Kind::Cuckoo { wanted.min(MOST_ARGUMENTS) } else { wanted }
    }

    /// Sends a batch. After a connection error, it is unknown whether the server added the batch.
    pub(super) fn send(&self, connection: &mut Connection, batch: &Batch) -> anyhow::Result<Answer> {
        let answer =
            |items, new, refused| Answer { span: batch.span, blank: batch.blank, items, new, refused };
        if batch.items == 0 {
            return Ok(answer(0, 0, None));
        }
        let (name, words) = self.words(batch);
        let mut command = redis::cmd(name);
        command.arg(&self.key).arg(words);
        match command.query::<Value>(connection) {
            Ok(reply) => {
                let (items, new) = self.added(name, &reply, batch.items)?;
                let without_room = batch.items - items;
                let refused = format!("the filter is full: no room for {without_room} items");
                Ok(answer(items, new, (without_room > 0).then_some(refused)))
            }
            Err(error) => {
                let Some(items) = added_before(&error) else { return Err(error.into()) };
                Ok(answer(items, 0, Some(server_text(&error))))
            }
        }
    }

    /// The name of the command, and its arguments after the key. None of the commands creates a filter: if the key is
    /// deleted during the load, the load must not continue with a new filter.
    fn words<'b>(&self, batch: &'b Batch) -> (&'static str, Vec<&'b [u8]>) {
        match self.kind {
            Kind::Bloom => ("BF.BULKADD", vec![b"NOCREATE", b"PREFIXED", &batch.blob]),
            Kind::Rebuild => ("BF.REBUILD", vec![b"ADDBULK", b"PREFIXED", &batch.blob]),
            Kind::Cuckoo => {
                let words: [&[u8]; 2] = [b"NOCREATE", b"ITEMS"];
                ("CF.INSERT", words.into_iter().chain(items_of(&batch.blob)).collect())
            }
        }
    }

    /// Reads from the reply to the command `name` how many of the items are in the filter now, and how many of these
    /// were absent before. A reply that the command never gives is an error.
    fn added(&self, name: &str, reply: &Value, items: u64) -> anyhow::Result<(u64, u64)> {
        let added = match (self.kind, reply) {
            (Kind::Bloom, Value::Int(new)) => u64::try_from(*new).ok().map(|new| (items, new)),
            (Kind::Rebuild, Value::Okay) => Some((items, 0)),
            (Kind::Cuckoo, Value::Array(answers)) if answers.len() as u64 == items => {
                let flags: Option<Vec<bool>> = answers.iter().map(is_in).collect();
                flags
                    .map(|flags| flags.iter().filter(|is_in| **is_in).count() as u64)
                    .map(|added| (added, added))
            }
            _ => None,
        };
        added.ok_or_else(|| unexpected(name, reply).into())
    }
}

/// Whether the item that this answer is for was added. 1 or true means yes; -1, false or an error means that there was
/// no room.
fn is_in(answer: &Value) -> Option<bool> {
    match answer {
        Value::Int(1) | Value::Boolean(true) => Some(true),
        Value::Int(-1) | Value::Boolean(false) | Value::ServerError(_) => Some(false),
        _ => None,
    }
}

/// Reads from the end of an error how many items of the batch the server added before it refused one: `…; 3 of 5 items
/// were added`, or `…; 3 items were added` if it hasn't counted a large batch. `None` if the server refused the whole
/// command or the connection broke; then the error ends the load.
fn added_before(error: &RedisError) -> Option<u64> {
    let text = error.to_string();
    let (before, _) = text.split_once(" items were added")?;
    let (_, count) = before.rsplit_once("; ")?;
    count.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_words_say_how_many_items_went_in() {
        let error = |text: &'static str| RedisError::from((redis::ErrorKind::Extension, text));
        assert_eq!(added_before(&error("ERR non scaling filter is full; 3 of 5 items were added")), Some(3));
        assert_eq!(
            added_before(&error("ERR non scaling filter is full; 0 of 32768 items were added")),
            Some(0)
        );
        assert_eq!(
            added_before(&error(
                "ERR the items end early: item 3 needs 9 bytes, and 2 are left; 3 items were added"
            )),
            Some(3)
        );
        assert_eq!(added_before(&error("WRONGTYPE Operation against a key")), None);
    }

    /// A reply that the command never gives says nothing about the items.
    #[test]
    fn other_replies_are_errors() {
        let sender = |kind| Sender::new(Server::default(), b"k", kind);
        let strange = [
            Value::Nil,
            Value::Double(1.0),
            Value::BulkString(b"1".into()),
            Value::SimpleString("QUEUED".into()),
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![Value::Int(1), Value::Int(0)]),
            Value::Array(vec![Value::Int(1), Value::Nil]),
            Value::Int(-1),
        ];
        for kind in [Kind::Bloom, Kind::Rebuild, Kind::Cuckoo] {
            for reply in &strange {
                assert!(sender(kind).added("X", reply, 2).is_err(), "{kind:?} {reply:?}");
            }
        }
        assert!(sender(Kind::Bloom).added("X", &Value::Okay, 2).is_err());
        assert!(sender(Kind::Rebuild).added("X", &Value::Int(2), 2).is_err());
        let reply = Value::Array([1, -1, 1].map(Value::Int).to_vec());
        assert_eq!(sender(Kind::Cuckoo).added("X", &reply, 3).unwrap(), (2, 2));
    }
}
