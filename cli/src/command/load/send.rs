//! Sends batches to the server, and reads its replies.

use super::account::{Account, Answer};
use super::state::State;
use crate::error::server_text;
use crate::input::{Batch, items_of};
use crate::server::connection::{Connection, Server};
use crate::server::key::tag;
use redis::{Cmd, RedisError, Value};

/// Maximum items of a command with one argument per item: a script can pass on fewer than 8000.
const MOST_ARGUMENTS: u64 = 4096;

/// The command to send items with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// BF.BULKADD: all items in one argument.
    Bulk,
    /// BF.REBUILD key ADD.
    Rebuild,
    /// CF.INSERT.
    Cuckoo,
}

/// Runs a command and, atomically with it, saves the account: the one before the batch if the server took only the
/// first items, else the one after it.
///
/// KEYS: the filter, the account. ARGV: the account before, the account after, the command, its other arguments.
const EXACT: &str = "\
local reply = redis.pcall(ARGV[3], KEYS[1], unpack(ARGV, 4))
local state, skip = ARGV[2], 0
if type(reply) == 'table' and reply.err then
  local done = string.match(reply.err, '(%d+) of %d+ items went in')
  if not done then return reply end
  state, skip = ARGV[1], done
end
redis.call('HSET', KEYS[2], 'state', state, 'skip', skip)
return reply";

/// Sends items to one filter.
pub(super) struct Sender {
    server: Server,
    key: Vec<u8>,
    how: How,
    exact: bool,
}

impl Sender {
    pub(super) fn new(server: Server, key: &[u8], how: How, exact: bool) -> Sender {
        Sender { server, key: key.to_vec(), how, exact }
    }

    /// Whether the account is on the server, so that no batch is ever added twice.
    pub(super) fn is_exact(&self) -> bool {
        self.exact
    }

    pub(super) fn connect(&self) -> anyhow::Result<Connection> {
        self.server.connect()
    }

    /// Maximum items per command.
    pub(super) fn most_items(&self, wanted: u64) -> u64 {
        if self.how == How::Bulk { wanted } else { wanted.min(MOST_ARGUMENTS) }
    }

    /// Key of the account, in the slot of the filter.
    fn account_key(&self) -> Vec<u8> {
        [b"{", tag(&self.key), b"}:bloomery-load"].concat()
    }

    /// The account that an interrupted load left on the server.
    pub(super) fn account(&self) -> anyhow::Result<Option<State>> {
        let mut command = redis::cmd("HMGET");
        command.arg(self.account_key()).arg("state").arg("skip");
        let (state, skip): (Option<String>, Option<u64>) = command.query(&mut self.connect()?)?;
        let Some(state) = state else { return Ok(None) };
        let mut state = State::parse(&state)?;
        let skip = skip.unwrap_or(0);
        state.skip += skip;
        state.items += skip;
        Ok(Some(state))
    }

    /// Removes the account: the load is complete.
    pub(super) fn forget(&self) -> anyhow::Result<()> {
        Ok(redis::cmd("DEL").arg(self.account_key()).query::<()>(&mut self.connect()?)?)
    }

    /// Sends a batch. `account` is the account of this connection only. After an error (of the connection), it is
    /// unknown whether the server took the batch.
    pub(super) fn send(
        &self,
        connection: &mut Connection,
        batch: Batch,
        account: &mut Account,
    ) -> anyhow::Result<Answer> {
        let mut answer = Answer {
            start: batch.start,
            end: batch.end,
            blank: batch.blank,
            dropped: batch.dropped,
            done: batch.items,
            new: 0,
            refused: None,
        };
        if batch.items == 0 {
            account.add(&answer);
            return Ok(answer);
        }
        let command =
            if self.exact { self.exact_command(&batch, &answer, account)? } else { self.command(&batch) };
        match command.query::<Value>(connection) {
            Ok(reply) => read_reply(&reply, &mut answer),
            Err(error) => {
                let Some(done) = taken(&error) else { return Err(error.into()) };
                answer.done = done;
                answer.refused = Some(server_text(&error));
            }
        }
        account.add(&answer);
        Ok(answer)
    }

    /// The name of the command, and its arguments after the key.
    fn words<'b>(&self, batch: &'b Batch) -> (&'static str, Vec<&'b [u8]>) {
        let items = |word: &'static [u8]| std::iter::once(word).chain(items_of(&batch.blob)).collect();
        match self.how {
            How::Bulk => ("BF.BULKADD", vec![b"PREFIXED", &batch.blob]),
            How::Rebuild => ("BF.REBUILD", items(b"ADD")),
            How::Cuckoo => ("CF.INSERT", items(b"ITEMS")),
        }
    }

    fn command(&self, batch: &Batch) -> Cmd {
        let (name, words) = self.words(batch);
        let mut command = redis::cmd(name);
        command.arg(&self.key).arg(words);
        command
    }

    fn exact_command(&self, batch: &Batch, answer: &Answer, account: &Account) -> anyhow::Result<Cmd> {
        let mut after = Account::new(account.state().clone());
        after.add(answer);
        let (name, words) = self.words(batch);
        let mut command = redis::cmd("EVAL");
        command.arg(EXACT).arg(2).arg(&self.key).arg(self.account_key());
        command.arg(account.state().to_json()?).arg(after.state().to_json()?).arg(name).arg(words);
        Ok(command)
    }
}

/// Reads a reply: the number of new items, or one answer per item, 1 for a new item and -1 if there was no room.
fn read_reply(reply: &Value, answer: &mut Answer) {
    match reply {
        Value::Int(new) => answer.new = u64::try_from(*new).unwrap_or(0),
        Value::Array(answers) => {
            let of = |wanted| answers.iter().filter(|answer| is(answer, wanted)).count() as u64;
            answer.new = of(1);
            let refused = of(-1);
            if refused > 0 {
                answer.done -= refused;
                answer.refused = Some(format!(
                    "the filter is full: no room for {refused} items between bytes {} and {} of the input",
                    answer.start, answer.end
                ));
            }
        }
        _ => {}
    }
}

fn is(answer: &Value, wanted: i64) -> bool {
    match answer {
        Value::Int(number) => *number == wanted,
        Value::Boolean(added) => *added == (wanted == 1),
        _ => false,
    }
}

/// How many items of the batch the server added before it refused one: `… 3 of 5 items went in`. `None` if it refused
/// the whole command or the connection broke; then the error ends the load.
fn taken(error: &RedisError) -> Option<u64> {
    let text = error.to_string();
    let (before, _) = text.split_once(" items went in")?;
    let (before, _) = before.rsplit_once(" of ")?;
    before.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_words_say_how_many_items_went_in() {
        let error = |text: &'static str| RedisError::from((redis::ErrorKind::Extension, text));
        assert_eq!(taken(&error("ERR non scaling filter is full; 3 of 5 items went in")), Some(3));
        assert_eq!(taken(&error("ERR non scaling filter is full; 0 of 32768 items went in")), Some(0));
        assert_eq!(taken(&error("WRONGTYPE Operation against a key")), None);
    }
}
