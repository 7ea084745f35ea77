//! Sends batches to the server, and reads its replies.

use super::acks::Ack;
use crate::error::Failure;
use crate::input::{Batch, items_of};
use crate::server::connection::{Connection, Server};
use crate::server::reply::unexpected;
use redis::Value;

/// Maximum number of items in a command with one argument per item. A script can pass on fewer than 8000 arguments.
const MOST_ARGUMENTS: u64 = 4096;

/// What a load fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetKind {
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
    kind: TargetKind,
}

impl Sender {
    pub(super) fn new(server: Server, key: &[u8], kind: TargetKind) -> Sender {
        Sender { server, key: key.to_vec(), kind }
    }

    pub(super) fn connect(&self) -> anyhow::Result<Connection> {
        self.server.connect()
    }

    /// Maximum number of items per command; `wanted` is the user's maximum.
    pub(super) fn most_items(&self, wanted: u64) -> u64 {
        if self.kind == TargetKind::Cuckoo { wanted.min(MOST_ARGUMENTS) } else { wanted }
    }

    /// Sends a batch. After an error, it is unknown how many of its items the server added.
    pub(super) fn send(&self, connection: &mut Connection, batch: &Batch) -> anyhow::Result<Ack> {
        let Batch { items, blank, span, .. } = *batch;
        if items == 0 {
            return Ok(Ack { span, blank, items, new: 0 });
        }
        let (name, words) = self.words(batch);
        let reply = redis::cmd(name).arg(&self.key).arg(words).query::<Value>(connection)?;
        Ok(Ack { span, blank, items, new: self.new_items(name, &reply, items)? })
    }

    /// The name of the command, and its arguments after the key. None of the commands creates a filter: if the key is
    /// deleted during the load, the load must not continue with a new filter.
    fn words<'b>(&self, batch: &'b Batch) -> (&'static str, Vec<&'b [u8]>) {
        match self.kind {
            TargetKind::Bloom => ("BF.BULKADD", vec![b"NOCREATE", b"PREFIXED", &batch.blob]),
            TargetKind::Rebuild => ("BF.REBUILD", vec![b"ADDBULK", b"PREFIXED", &batch.blob]),
            TargetKind::Cuckoo => {
                let words: [&[u8]; 2] = [b"NOCREATE", b"ITEMS"];
                ("CF.INSERT", words.into_iter().chain(items_of(&batch.blob)).collect())
            }
        }
    }

    /// Reads from the reply to the command `name` how many of the items were absent before. Fails if the server refused
    /// some of them, or if the command never gives such a reply.
    fn new_items(&self, name: &str, reply: &Value, items: u64) -> anyhow::Result<u64> {
        let new = match (self.kind, reply) {
            (TargetKind::Bloom, Value::Int(new)) => u64::try_from(*new).ok(),
            (TargetKind::Rebuild, Value::Okay) => Some(0),
            (TargetKind::Cuckoo, Value::Array(answers)) if answers.len() as u64 == items => {
                let added: Option<Vec<bool>> = answers.iter().map(is_in).collect();
                added.map(|added| added.into_iter().filter(|is_in| *is_in).count() as u64)
            }
            _ => None,
        };
        match new.ok_or_else(|| unexpected(name, reply))? {
            new if self.kind == TargetKind::Cuckoo && new < items => {
                let text = format!("the filter is full: no room for {} items", items - new);
                Err(Failure::Server(text).into())
            }
            new => Ok(new),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

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
        for kind in [TargetKind::Bloom, TargetKind::Rebuild, TargetKind::Cuckoo] {
            for reply in &strange {
                assert!(sender(kind).new_items("X", reply, 2).is_err(), "{kind:?} {reply:?}");
            }
        }
        assert!(sender(TargetKind::Bloom).new_items("X", &Value::Okay, 2).is_err());
        assert!(sender(TargetKind::Rebuild).new_items("X", &Value::Int(2), 2).is_err());
        let reply = Value::Array([1, -1, 1].map(Value::Int).to_vec());
        let refused = sender(TargetKind::Cuckoo).new_items("X", &reply, 3).unwrap_err();
        assert_eq!(refused.to_string(), "the filter is full: no room for 1 items");
    }
}
