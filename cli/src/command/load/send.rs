//! Sends batches to the server, and reads its replies.

use super::acks::Ack;
use crate::error::Failure;
use crate::input::Batch;
use crate::server::connection::{Connection, Server};
use crate::server::family::Adding;
use crate::server::reply::unexpected;
use redis::Value;

/// Sends items to one filter.
pub(super) struct Sender {
    server: Server,
    key: Vec<u8>,
    adding: &'static Adding,
}

impl Sender {
    pub(super) fn new(server: Server, key: &[u8], adding: &'static Adding) -> Sender {
        Sender { server, key: key.to_vec(), adding }
    }

    pub(super) fn connect(&self) -> anyhow::Result<Connection> {
        self.server.connect()
    }

    /// Maximum number of items per command; `wanted` is the user's maximum.
    pub(super) fn most_items(&self, wanted: u64) -> u64 {
        wanted.min(self.adding.most_items)
    }

    /// Sends a batch. After an error, it is unknown how many of its items the server added.
    pub(super) fn send(&self, connection: &mut Connection, batch: &Batch) -> anyhow::Result<Ack> {
        let Batch { items, blank, span, .. } = *batch;
        if items == 0 {
            return Ok(Ack { span, blank, items, new: 0 });
        }
        let Adding { command: name, words, added, .. } = self.adding;
        let reply = redis::cmd(name).arg(&self.key).arg(words(batch)).query::<Value>(connection)?;
        let (added, new) = added(&reply, items).ok_or_else(|| unexpected(name, &reply))?;
        if added < items {
            let text = format!("the filter is full: no room for {} items", items - added);
            return Err(Failure::Server(text).into());
        }
        Ok(Ack { span, blank, items, new })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::family::{FAMILIES, REBUILD};

    /// A reply that the command never gives says nothing about the items.
    #[test]
    fn other_replies_are_errors() {
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
        let [bloom, cuckoo] = FAMILIES;
        for adding in [bloom.add, &REBUILD, cuckoo.add] {
            for reply in &strange {
                assert_eq!((adding.added)(reply, 2), None, "{} {reply:?}", adding.command);
            }
        }
        assert_eq!((bloom.add.added)(&Value::Okay, 2), None);
        assert_eq!((REBUILD.added)(&Value::Int(2), 2), None);
        let reply = Value::Array([1, -1, 1].map(Value::Int).to_vec());
        assert_eq!((cuckoo.add.added)(&reply, 3), Some((2, 2)));
    }
}
