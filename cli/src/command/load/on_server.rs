//! The account of a load on the server: a hash next to the filter, which scripts change together with the filter.
//!
//! So whatever happens between two steps (a killed program, a broken connection, a server that is killed, restored or
//! replaced by its replica), the account says what is in the filter. Before each batch, a script checks that
//!
//! - the account's position is that of the batch or, if the filter doesn't count adds, is before the batch. So a batch
//!   that is sent twice, by any client, is counted once;
//! - the filter is the one that has been filled so far: it has the same identity and, unless items were deleted or
//!   generations ended, no fewer items than after the last batch, among them a sample of that batch.

use super::sample::Sample;
use super::state::{Mark, State};
use super::taken::Taken;
use crate::error::Failure;
use crate::input::Span;
use crate::output;
use crate::server::connection::Connection;
use crate::server::key::neighbour;
use crate::server::reply::unexpected;
use redis::{Cmd, Value};
use std::collections::HashMap;

/// The beginning of both scripts.
///
/// - `KEYS[1]` and `KEYS[2]`: the filter and the account.
/// - `ARGV[1]`: what the load fills, as in [`Kind::word`].
/// - `ARGV[2]`: the position that the account must have.
/// - `ARGV[3]`: the filter's number of deletes and rotations before the items of the sample were added.
/// - `ARGV[4]`: the number of items in the sample.
/// - From `ARGV[5]`: the items of the sample. The script's own arguments come after them, and are read with `arg`.
const COMMON: &str = "\
local function fields(flat)
  local map = {}
  for i = 1, #flat, 2 do map[flat[i].ok or flat[i]] = flat[i + 1] end
  return map
end

local is_cuckoo, sampled = ARGV[1] == 'cuckoo', tonumber(ARGV[4])
local function arg(index) return ARGV[4 + sampled + index] end

local function describe()
  local info = redis.pcall(is_cuckoo and 'CF.STATS' or 'BF.STATS', KEYS[1])
  if info.err then return info end
  info = fields(info)
  local removed = (info['Deletes'] or info['Number of items deleted'] or 0) + (info['Generation'] or 0)
    + (info['Early rotations'] or 0)
  local generations = info['Generations']
  if ARGV[1] == 'rebuild' then
    if not info['Rebuild'] then return redis.error_reply('ERR no rebuild is running') end
    info = fields(info['Rebuild'])
  end
  return {
    identity = info['Identity'] or '', count = info['Number of items inserted'], removed = removed,
    generations = generations,
  }
end

-- How many items the filter may lack, if it has dropped what it should since then: a delete takes one, and a window all
-- that came in n generations ago.
local function may_lack(filter, since, generations)
  local removed = math.max(filter.removed - tonumber(since), 0)
  if not filter.generations then return removed end
  return removed >= generations and math.huge or 0
end

-- Why the filter isn't the one that was filled so far; nothing if it is. The number of items of a cuckoo filter says
-- nothing, because a compaction forgets how many were deleted. The shadow of a rebuild can't be asked for items.
local function other(filter, identity, count, removed)
  if filter.identity ~= identity then return 'it is another one' end
  if removed == '' then return nil end
  if not is_cuckoo and tonumber(count) - filter.count > may_lack(filter, removed, 1) then
    return 'it has ' .. filter.count .. ' items; there were ' .. count .. ' after the last batch'
  end
  if ARGV[1] == 'rebuild' or sampled == 0 then return nil end
  local absent = 0
  for i = 5, 4 + sampled do
    absent = absent + 1 - redis.call(is_cuckoo and 'CF.EXISTS' or 'BF.EXISTS', KEYS[1], ARGV[i])
  end
  if absent > may_lack(filter, ARGV[3], filter.generations) then
    return absent .. ' of ' .. sampled .. ' items of the last batch are not in it'
  end
end

local function position()
  local at = redis.call('HMGET', KEYS[2], 'offset', 'taken', 'part')
  return at[1] and table.concat(at, ':') or '', tonumber(at[1])
end
";

/// Writes the account, at the start of a run.
///
/// - `ARGV[2]`: empty if there must be no account yet.
/// - `arg(1)`: the filter's recorded identity, or empty.
/// - `arg(2)`: its recorded number of items, or empty.
/// - `arg(3)`: its recorded number of deletes and rotations, or empty.
/// - From `arg(4)`: the fields of the account, each followed by its value.
const BEGIN: &str = "\
local at, offset = position()
if at ~= ARGV[2] then return {'elsewhere', offset or 0} end
local filter = describe()
if filter.err then return filter end
local why = arg(2) ~= '' and other(filter, arg(1), arg(2), arg(3))
if why then return {'other', why} end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], 'identity', filter.identity, 'count', filter.count, 'removed', filter.removed,
  unpack(ARGV, 8 + sampled))
return {'taken', 0, ARGV[3]}
";

/// Adds a batch.
///
/// - `arg(1)`: `1` if batches must come in order, else `0`.
/// - `arg(2)`: the account's offset after the batch.
/// - `arg(3)`: which items after that offset are in the filter after the batch.
/// - `arg(4)`: the span of the batch.
/// - `arg(5)`: `1` if an earlier run added some of the batch's items, else `0`.
/// - `arg(6)`: the number of items still to add.
/// - `arg(7)`: the number of empty lines.
/// - From `arg(8)`: the command, and its arguments after the key; absent if there is nothing to add.
const BATCH: &str = "\
local at, offset = position()
if not offset then return {'gone'} end
local start = tonumber(string.match(ARGV[2], '^%d+'))
if at ~= ARGV[2] and (arg(1) == '1' or start <= offset) then return {'elsewhere', offset} end
local filter = describe()
if filter.err then return filter end
local noted = redis.call('HMGET', KEYS[2], 'identity', 'count', 'removed')
local why = other(filter, noted[1], noted[2], noted[3])
if why then return {'other', why} end
-- As it is before the batch: a window may open a generation at any time.
local removed = tostring(filter.removed)
local since = arg(5) == '1' and ARGV[3] or removed

local items, new, part = tonumber(arg(6)), 0, ''
if arg(8) then
  local reply = redis.pcall(arg(8), KEYS[1], unpack(ARGV, 13 + sampled))
  if type(reply) == 'number' then
    new = reply
  elseif type(reply) ~= 'table' then
    return redis.error_reply('ERR unexpected reply to ' .. arg(8))
  elseif reply.err then
    part = string.match(reply.err, '(%d+)[ of%d]* items were added')
    if not part then return reply end
    items, why = tonumber(part), reply.err
  elseif not reply.ok then
    local runs, run, is_in, done = {}, 0, true, 0
    for i = 1, items do
      if (reply[i] == 1) ~= is_in then
        runs[#runs + 1] = run
        run, is_in = 0, not is_in
      end
      run = run + 1
      if is_in then done = done + 1 end
    end
    if done < items then
      if is_in then runs[#runs + 1] = run end
      why, part = 'the filter is full: no room for ' .. items - done .. ' items', table.concat(runs, ',')
    end
    items, new = done, done
  end
end

filter = describe()
redis.call('HSET', KEYS[2], 'identity', filter.identity, 'count', filter.count, 'removed', filter.removed)
local function add(items, new, blank)
  redis.call('HINCRBY', KEYS[2], 'items', items)
  redis.call('HINCRBY', KEYS[2], 'new', new)
  redis.call('HINCRBY', KEYS[2], 'blank', blank)
end
if why then
  if at == ARGV[2] then
    add(items, new, 0)
    redis.call('HSET', KEYS[2], 'part', part, 'last', arg(4), 'then', since)
  end
  return {'refused', why, part, new}
end
if at ~= ARGV[2] then
  local early = table.concat({arg(2), arg(3), items, new, arg(7), removed, arg(4)}, ' ')
  redis.call('HSET', KEYS[2], 'early:' .. start, early)
  return {'taken', new, removed}
end
add(items, new, arg(7))
local to, taken, last, added = arg(2), arg(3), arg(4), new
while true do
  local early = redis.call('HGET', KEYS[2], 'early:' .. to)
  if not early then break end
  redis.call('HDEL', KEYS[2], 'early:' .. to)
  to, taken, items, new, blank, since, last = string.match(early, '^(%d+) ([%d,]*) (%d+) (%d+) (%d+) (%d+) (.*)$')
  add(items, new, blank)
end
redis.call('HSET', KEYS[2], 'offset', to, 'taken', taken, 'last', last, 'then', since)
return {'taken', added, removed}
";

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

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Bloom => "bloom",
            Kind::Rebuild => "rebuild",
            Kind::Cuckoo => "cuckoo",
        }
    }
}

/// What a script replied, unless it was an error.
pub(super) enum Outcome {
    /// All items were added. `new` of them were absent before. `then` is the filter's number of deletes and rotations
    /// before the items were added.
    Taken { new: u64, then: String },
    /// Some items were refused.
    Refused { why: String, taken: Taken, new: u64 },
}

/// A batch, in the form that the script needs.
pub(super) struct Step<'s> {
    /// The position that the account must have: an offset, and which items after it are in the filter.
    pub(super) from: &'s (u64, Taken),
    /// The position of the account after the batch.
    pub(super) to: &'s (u64, Taken),
    pub(super) last: Span,
    /// Whether an earlier run added some of the batch's items.
    pub(super) is_rest: bool,
    pub(super) items: u64,
    pub(super) blank: u64,
    /// Name of the command, and its arguments after the key; `None` if there are no items.
    pub(super) command: Option<(&'static str, Vec<&'s [u8]>)>,
}

/// The account of one load.
#[derive(Clone)]
pub(super) struct OnServer {
    kind: Kind,
    filter: Vec<u8>,
    key: Vec<u8>,
    /// Whether batches must come in order, because the filter counts adds.
    in_order: bool,
}

/// An account that was found on the server.
pub(super) struct Found {
    /// The state, including the outcome of a batch that the server accepted only partly.
    pub(super) state: State,
    pub(super) filter: Mark,
    position: String,
}

impl OnServer {
    /// The account of the load with this number, in the slot of the filter.
    pub(super) fn new(kind: Kind, filter: &[u8], load: &str, in_order: bool) -> OnServer {
        let key = neighbour(filter, &format!(":bloomery-load:{load}"));
        OnServer { kind, filter: filter.to_vec(), key, in_order }
    }

    /// The error if the account is missing: it says why the load can't continue.
    pub(super) fn gone(&self) -> Failure {
        Failure::Lost(format!(
            "the account of this load, {}, is no longer on the server: the database was emptied or restored from an \
             older copy, or the key was deleted. So it is not known which items are in the filter; delete the file of \
             --resume to load everything again",
            output::key(&self.key)
        ))
    }

    /// Reads the account; `None` if there is none.
    pub(super) fn find(&self, connection: &mut Connection) -> anyhow::Result<Option<Found>> {
        let fields: HashMap<String, String> = redis::cmd("HGETALL").arg(&self.key).query(connection)?;
        if fields.is_empty() {
            return Ok(None);
        }
        let text = |name: &str| fields.get(name).cloned().unwrap_or_default();
        let number = |name: &str| -> Result<u64, Failure> {
            let wrong =
                |_| Failure::Data(format!("the account of the load is damaged: its {name} is not a number"));
            text(name).parse().map_err(wrong)
        };
        let (taken, part): (Taken, Taken) = (text("taken").parse()?, text("part").parse()?);
        Ok(Some(Found {
            state: State {
                offset: number("offset")?,
                taken: taken.fill(&part),
                last: text("last").parse()?,
                items: number("items")?,
                new: number("new")?,
                blank: number("blank")?,
                open_blank: 0,
            },
            filter: Mark {
                identity: text("identity"),
                count: number("count")?,
                removed: text("removed"),
                then: text("then"),
            },
            position: [text("offset"), text("taken"), text("part")].join(":"),
        }))
    }

    /// Writes the account. It replaces the one that was `found`, if any. If `filter` is given, the key must still hold
    /// that filter, and the filter must contain the items of `sample`.
    pub(super) fn write(
        &self,
        connection: &mut Connection,
        state: &State,
        found: Option<&Found>,
        filter: Option<&Mark>,
        sample: &Sample,
    ) -> anyhow::Result<()> {
        let mut command = self.script(BEGIN, found.map_or("", |found| &found.position), sample);
        match filter {
            Some(mark) => command.arg(&mark.identity).arg(mark.count).arg(&mark.removed),
            None => command.arg("").arg("").arg(""),
        };
        command.arg("offset").arg(state.offset).arg("taken").arg(state.taken.to_string()).arg("part").arg("");
        command.arg("last").arg(state.last.to_string()).arg("then").arg(&sample.then);
        command.arg("items").arg(state.items).arg("new").arg(state.new).arg("blank").arg(state.blank);
        self.run(connection, &command).map(drop)
    }

    /// Adds a batch. After a connection error, only the account says whether the server added the batch.
    pub(super) fn add(
        &self,
        connection: &mut Connection,
        step: &Step<'_>,
        sample: &Sample,
    ) -> anyhow::Result<Outcome> {
        let mut command = self.script(BATCH, &format!("{}:{}:", step.from.0, step.from.1), sample);
        command.arg(u8::from(self.in_order)).arg(step.to.0).arg(step.to.1.to_string());
        command.arg(step.last.to_string()).arg(u8::from(step.is_rest)).arg(step.items).arg(step.blank);
        if let Some((name, words)) = &step.command {
            command.arg(name).arg(words);
        }
        self.run(connection, &command)
    }

    /// Removes the account: the load is complete, and the file says so.
    pub(super) fn remove(&self, connection: &mut Connection) -> anyhow::Result<()> {
        Ok(redis::cmd("DEL").arg(&self.key).query::<()>(connection)?)
    }

    fn script(&self, body: &str, position: &str, sample: &Sample) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg([COMMON, body].concat()).arg(2).arg(&self.filter).arg(&self.key);
        command.arg(self.kind.word()).arg(position).arg(&sample.then);
        command.arg(sample.items.len()).arg(&sample.items);
        command
    }

    fn run(&self, connection: &mut Connection, command: &Cmd) -> anyhow::Result<Outcome> {
        let reply = command.query::<Value>(connection)?;
        self.outcome(&reply).ok_or_else(|| unexpected("the script", &reply))?
    }

    fn outcome(&self, reply: &Value) -> Option<anyhow::Result<Outcome>> {
        let reply = reply.as_sequence()?;
        let text = |index: usize| redis::from_redis_value_ref::<String>(reply.get(index)?).ok();
        let number = |index: usize| redis::from_redis_value_ref::<u64>(reply.get(index)?).ok();
        let failed = |why: Failure| Some(Err(why.into()));
        match text(0)?.as_str() {
            "taken" => Some(Ok(Outcome::Taken { new: number(1)?, then: text(2)? })),
            "refused" => {
                let taken = text(2)?.parse().ok()?;
                Some(Ok(Outcome::Refused { why: text(1)?, taken, new: number(3)? }))
            }
            "gone" => failed(self.gone()),
            "elsewhere" => failed(Failure::Server(format!(
                "the account of this load is at byte {} by now: another program continues it, or did",
                number(1)?
            ))),
            "other" => failed(Failure::Lost(format!(
                "{} is not the filter that this load has filled so far, or was emptied or restored from an older copy: \
                 {}. Delete the file of --resume to load everything again",
                output::key(&self.filter),
                text(1)?
            ))),
            _ => None,
        }
    }
}

/// Fails if the server has an account that an older version kept for a load into this filter. The key of such an
/// account is the same for all filters with the same hash tag.
pub(super) fn refuse_older(connection: &mut Connection, filter: &[u8]) -> anyhow::Result<()> {
    #[derive(serde::Deserialize)]
    struct Older {
        key: String,
    }
    let account = neighbour(filter, ":bloomery-load");
    let state: Option<String> = redis::cmd("HGET").arg(&account).arg("state").query(connection)?;
    let older = state.and_then(|state| serde_json::from_str::<Older>(&state).ok());
    if older.is_none_or(|older| older.key != output::key(filter)) {
        return Ok(());
    }
    let text = format!(
        "an older version has begun to load {}, and left its account in {}; finish that load with the older version, \
         or delete the account to load everything again",
        output::key(filter),
        output::key(&account)
    );
    Err(Failure::Usage(text).into())
}
