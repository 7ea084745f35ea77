//! One batch to the server, and what it answers.

use super::state::{Account, State};
use crate::connect::{Connection, Server};
use crate::error::server_text;
use crate::items::{Batch, items_of};
use redis::{Cmd, RedisError, Value};

/// Items of a command that has one argument for each: a script can hand on fewer than 8000.
const MOST_ARGUMENTS: u64 = 4096;

/// By which command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// BF.BULKADD, all items in one argument.
    Bulk,
    /// BF.REBUILD key ADD.
    Rebuild,
    /// CF.INSERT.
    Cuckoo,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Where the batch begins in the input.
    pub(super) start: u64,
    /// And ends.
    pub(super) end: u64,
    /// Empty lines in it.
    pub(super) blank: u64,
    /// Items in front that had been taken before.
    pub(super) dropped: u64,
    /// Items that were taken: all, or the first ones.
    pub(super) done: u64,
    /// Those that were absent before.
    pub(super) new: u64,
    /// Why the others were not taken.
    pub(super) refused: Option<String>,
}

/// Runs a command and writes down, in the same step, how far the load has come: the account before the batch if only
/// its first items were taken, and the one behind it otherwise.
///
/// KEYS: the filter, the account. ARGV: the account before and behind, the command, its other arguments.
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

/// Sends to one filter.
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

    /// Whether the account is kept on the server, so that no batch is ever added twice.
    pub(super) fn is_exact(&self) -> bool {
        self.exact
    }

    pub(super) fn connect(&self) -> anyhow::Result<Connection> {
        self.server.connect()
    }

    /// Items of one command.
    pub(super) fn most_items(&self, wanted: u64) -> u64 {
        if self.how == How::Bulk { wanted } else { wanted.min(MOST_ARGUMENTS) }
    }

    /// Key of the account, in the slot of the filter.
    fn account_key(&self) -> Vec<u8> {
        [b"{", tag(&self.key), b"}:bloomery-load"].concat()
    }

    /// The account that an earlier load left on the server.
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

    /// Removes it: the load is complete.
    pub(super) fn forget(&self) -> anyhow::Result<()> {
        Ok(redis::cmd("DEL").arg(self.account_key()).query::<()>(&mut self.connect()?)?)
    }

    /// Sends a batch; `account` is that of this connection alone. An error is one of the connection, and what became of the batch is unknown.
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

    /// The command's name and the arguments behind the key.
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
        let mut behind = Account::new(account.state().clone());
        behind.add(answer);
        let (name, words) = self.words(batch);
        let mut command = redis::cmd("EVAL");
        command.arg(EXACT).arg(2).arg(&self.key).arg(self.account_key());
        command.arg(account.state().to_json()?).arg(behind.state().to_json()?).arg(name).arg(words);
        Ok(command)
    }
}

/// The part of a key that decides its slot in a cluster.
pub(crate) fn tag(key: &[u8]) -> &[u8] {
    let inside = key.iter().position(|byte| *byte == b'{').map(|open| &key[open + 1..]);
    let tag = inside.and_then(|rest| rest.iter().position(|byte| *byte == b'}').map(|close| &rest[..close]));
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// A number of new items, or an answer for each: 1 for a new one, -1 where there was no room.
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
                    "the filter is full: {refused} items between bytes {} and {} of the input found no room",
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

/// How many items of the batch went in, if the server says: `… 3 of 5 items went in`. None did if it refused the command
/// as such; then, and when the connection broke, the error ends the load.
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

    #[test]
    fn the_account_lies_in_the_slot_of_the_filter() {
        for (key, wanted) in [
            ("users", "users"),
            ("{a}b", "a"),
            ("x{a}{b}", "a"),
            ("{}a", "{}a"),
            ("{a", "{a"),
            ("a}b{c}", "c"),
        ] {
            assert_eq!(tag(key.as_bytes()), wanted.as_bytes(), "{key}");
        }
    }
}
