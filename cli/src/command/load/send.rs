//! Sends batches to the server, and reads its replies.

use super::account::Answer;
use super::on_server::{Kind, OnServer, Outcome, Step};
use super::sample::Sample;
use super::taken::Taken;
use crate::error::server_text;
use crate::input::{Batch, items_of};
use crate::server::connection::{Connection, Server};
use crate::server::reply::unexpected;
use redis::{RedisError, Value};

/// Maximum number of items in a command with one argument per item. A script can pass on fewer than 8000 arguments.
const MOST_ARGUMENTS: u64 = 4096;

/// A batch without the items that an earlier run has added.
pub(super) struct Part {
    batch: Batch,
    /// Whether an earlier run has added some of the batch's items.
    is_rest: bool,
    /// The account's position before the batch is added: an offset, and which items after it are in the filter.
    from: (u64, Taken),
    /// The account's position once the batch has been added. An open item may grow, so the offset stays before it.
    to: (u64, Taken),
    /// Number of empty lines between the offsets `from` and `to`.
    blank: u64,
    /// Number of empty lines after the offset `to`.
    open_blank: u64,
}

impl Part {
    pub(super) fn whole(batch: Batch) -> Part {
        let from = (batch.span.start, Taken::default());
        Part::left(batch, from, &[])
    }

    /// The rest of a batch; `taken` says which of its items are in the filter already.
    pub(super) fn left(mut batch: Batch, from: (u64, Taken), taken: &[bool]) -> Part {
        let before = batch.before_last;
        let counted = if from.0 > batch.span.start { before.blank } else { 0 };
        let (to, blank) = match batch.span.open {
            Some(_) => ((before.offset, Taken::first(batch.items - before.items)), before.blank),
            None => ((batch.span.end, Taken::default()), batch.blank),
        };
        let is_rest = taken.contains(&true);
        batch.drop_taken(taken);
        Part { is_rest, open_blank: batch.blank - blank, blank: blank - counted, batch, from, to }
    }
}

/// Sends items to one filter.
pub(super) struct Sender {
    server: Server,
    key: Vec<u8>,
    kind: Kind,
    /// The account on the server, if the load can be resumed.
    account: Option<OnServer>,
}

impl Sender {
    pub(super) fn new(server: Server, key: &[u8], kind: Kind) -> Sender {
        Sender { server, key: key.to_vec(), kind, account: None }
    }

    /// Makes the sender keep this account on the server.
    pub(super) fn with_account(self, account: OnServer) -> Sender {
        Sender { account: Some(account), ..self }
    }

    pub(super) fn connect(&self) -> anyhow::Result<Connection> {
        self.server.connect()
    }

    /// Maximum number of items per command; `wanted` is the user's maximum.
    pub(super) fn most_items(&self, wanted: u64) -> u64 {
        if self.kind == Kind::Cuckoo { wanted.min(MOST_ARGUMENTS) } else { wanted }
    }

    /// Sends a batch. After a connection error, it is unknown whether the server added the batch. If there is an
    /// account, the filter must contain the items of `sample`, which come from the previous batch. Afterwards, `sample`
    /// contains items of this batch.
    pub(super) fn send(
        &self,
        connection: &mut Connection,
        part: &Part,
        sample: &mut Sample,
    ) -> anyhow::Result<Answer> {
        let Part { batch, is_rest, from, to, blank, open_blank } = part;
        let command = (batch.items > 0).then(|| self.words(batch));
        let outcome = match (&self.account, command) {
            (Some(account), command) => account.add(
                connection,
                &Step {
                    from,
                    to,
                    last: batch.span,
                    is_rest: *is_rest,
                    items: batch.items,
                    blank: *blank,
                    command,
                },
                sample,
            )?,
            (None, Some((name, words))) => {
                let mut command = redis::cmd(name);
                command.arg(&self.key).arg(words);
                match command.query::<Value>(connection) {
                    Ok(reply) => self.outcome(name, &reply, batch.items)?,
                    Err(error) => {
                        let Some(done) = taken(&error) else { return Err(error.into()) };
                        Outcome::Refused { why: server_text(&error), taken: Taken::first(done), new: 0 }
                    }
                }
            }
            (None, None) => taken_all(0),
        };
        let (done, new, refused) = match outcome {
            Outcome::Taken { new, then } => {
                if self.account.is_some() && batch.items > 0 {
                    *sample = Sample::of(&batch.blob, Taken::first(batch.items).flags(), then);
                }
                (batch.items, new, None)
            }
            Outcome::Refused { why, taken, new } => (taken.count(), new, Some((why, from.1.fill(&taken)))),
        };
        let (last, blank, open_blank) = (batch.span, *blank, *open_blank);
        Ok(Answer { from: from.0, to: to.clone(), last, blank, open_blank, done, new, refused })
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

    /// Reads the reply to the command `name`. A reply that the command never gives is an error.
    fn outcome(&self, name: &str, reply: &Value, items: u64) -> anyhow::Result<Outcome> {
        let outcome = match (self.kind, reply) {
            (Kind::Bloom, Value::Int(new)) => u64::try_from(*new).ok().map(taken_all),
            (Kind::Rebuild, Value::Okay) => Some(taken_all(0)),
            (Kind::Cuckoo, Value::Array(answers)) if answers.len() as u64 == items => {
                answers.iter().map(is_in).collect::<Option<Vec<bool>>>().map(|flags| of_flags(flags, items))
            }
            _ => None,
        };
        outcome.ok_or_else(|| unexpected(name, reply).into())
    }
}

/// The outcome of a command that added every item.
fn taken_all(new: u64) -> Outcome {
    Outcome::Taken { new, then: String::new() }
}

/// The outcome of a CF.INSERT.
fn of_flags(flags: Vec<bool>, items: u64) -> Outcome {
    let taken = Taken::of(flags);
    let new = taken.count();
    if new == items {
        return taken_all(new);
    }
    Outcome::Refused { why: format!("the filter is full: no room for {} items", items - new), taken, new }
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
fn taken(error: &RedisError) -> Option<u64> {
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
        assert_eq!(taken(&error("ERR non scaling filter is full; 3 of 5 items were added")), Some(3));
        assert_eq!(taken(&error("ERR non scaling filter is full; 0 of 32768 items were added")), Some(0));
        assert_eq!(
            taken(&error(
                "ERR the items end early: item 3 needs 9 bytes, and 2 are left; 3 items were added"
            )),
            Some(3)
        );
        assert_eq!(taken(&error("WRONGTYPE Operation against a key")), None);
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
                assert!(sender(kind).outcome("X", reply, 2).is_err(), "{kind:?} {reply:?}");
            }
        }
        assert!(sender(Kind::Bloom).outcome("X", &Value::Okay, 2).is_err());
        assert!(sender(Kind::Rebuild).outcome("X", &Value::Int(2), 2).is_err());
        let reply = Value::Array([1, -1, 1].map(Value::Int).to_vec());
        let Ok(Outcome::Refused { taken, new, .. }) = sender(Kind::Cuckoo).outcome("X", &reply, 3) else {
            panic!()
        };
        assert_eq!((taken.to_string().as_str(), new), ("1,1,1", 2));
    }
}
