//! The source or the target, and what it says about its filters.

use super::failed::Failed;
use super::payload as footer;
use crate::command::inspect::payload;
use crate::output::{self, Name, key};
use crate::server::connection::{Connection, Server};
use crate::server::family::{Family, SKETCHES, Sketch, value_types};
use crate::server::key::{FilterKey, temporary_key};
use crate::server::scan::Scan;
use anyhow::Context;
use bloomery::wire::Encoder;
use redis::{Cmd, FromRedisValue, RedisError, RedisResult, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use xxhash_rust::xxh3::Xxh3;

/// A filter or a sketch at the source.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::command) struct Key {
    pub(in crate::command) name: Vec<u8>,
    pub(in crate::command) held: Held,
    pub(in crate::command) key_type: &'static str,
    /// Bytes of memory that it needs at the source.
    pub(in crate::command) bytes: u64,
}

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::command) enum Held {
    Filter(&'static Family),
    Sketch(&'static Sketch),
}

impl Held {
    /// What keys of this type hold.
    pub(in crate::command) fn of_type(key_type: &str) -> Option<Held> {
        let sketch = || SKETCHES.iter().find(|sketch| sketch.key_type == key_type).map(Held::Sketch);
        Family::of_type(key_type).map(Held::Filter).or_else(sketch)
    }

    /// The filter's family.
    pub(in crate::command) fn family(self) -> Option<&'static Family> {
        match self {
            Held::Filter(family) => Some(family),
            Held::Sketch(_) => None,
        }
    }

    /// Name in sentences.
    pub(in crate::command) fn title(self) -> &'static str {
        match self {
            Held::Filter(family) => family.title,
            Held::Sketch(sketch) => sketch.title,
        }
    }
}

/// A piece of a filter as SCANDUMP returns it, with the iterator for LOADCHUNK.
pub(in crate::command) struct DumpPiece {
    pub(in crate::command) iterator: i64,
    pub(in crate::command) bytes: Vec<u8>,
}

/// One of the two servers, or one whose keys are backed up.
pub(in crate::command) struct Side {
    role: &'static str,
    pub(in crate::command) address: String,
    pub(in crate::command) connection: Connection,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {}, {}", self.role, self.address)
    }
}

/// Number of keys of each other type that are named.
const NAMED: usize = 5;

/// Number of bytes before the cells in a chunk in Bloomery's format. They identify the dump, so they can differ between
/// servers.
const CHUNK_PREFIX: usize = 20;

impl Side {
    pub(in crate::command) fn new(role: &'static str, address: String, connection: Connection) -> Side {
        Side { role, address, connection }
    }

    /// Connects, and checks that the server answers.
    pub(in crate::command) fn connect(role: &'static str, server: &Server) -> anyhow::Result<Side> {
        let address = server.address()?.addr().to_string();
        let connection = server.connect().with_context(|| format!("the {role}"))?;
        let mut side = Side::new(role, address, connection);
        redis::cmd("PING").query::<String>(&mut side.connection).with_context(|| format!("the {role}"))?;
        Ok(side)
    }

    pub(in crate::command) fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        command.query(&mut self.connection)
    }

    /// Sends a command whose only argument is the key.
    pub(in crate::command) fn of_key<T: FromRedisValue>(
        &mut self,
        command: &str,
        key: &[u8],
    ) -> RedisResult<T> {
        self.ask(redis::cmd(command).arg(key))
    }

    /// Whether the server knows a command. Finds out by trying it on a missing key.
    pub(in crate::command) fn knows(&mut self, command: &str) -> anyhow::Result<bool> {
        let nobody = temporary_key(b"migrate", "nobody")?;
        match self.ask::<Value>(redis::cmd(command).arg(nobody).arg(0)) {
            Err(error) if is_unknown(&error) => Ok(false),
            Err(error) if error.code() == Some("NOPERM") || error.is_io_error() => {
                Err(error).with_context(|| format!("the {}", self.role))
            }
            _ => Ok(true),
        }
    }

    /// All filters and sketches whose keys match the pattern, or only the filters of one family.
    pub(in crate::command) fn keys(
        &mut self,
        pattern: &str,
        family: Option<&'static Family>,
    ) -> RedisResult<Vec<Key>> {
        let mut keys = Vec::new();
        for FilterKey { name, key_type } in Scan::of(pattern, value_types()).collect(&mut self.connection)? {
            let Some(held) = Held::of_type(key_type) else { continue };
            // `None` for a key that has expired in the meantime.
            let size: Option<u64> =
                self.ask(redis::cmd("MEMORY").arg("USAGE").arg(&*name).arg("SAMPLES").arg(0))?;
            if let Some(bytes) = size.filter(|_| family.is_none() || held.family() == family) {
                keys.push(Key { name: name.to_vec(), held, key_type, bytes });
            }
        }
        Ok(keys)
    }

    /// Counts the keys that match the pattern and hold something else, by type, and returns the first names of each.
    pub(in crate::command) fn others(
        &mut self,
        pattern: &str,
    ) -> RedisResult<BTreeMap<String, (u64, Vec<Name>)>> {
        let mut others: BTreeMap<String, (u64, Vec<Name>)> = BTreeMap::new();
        Scan::new(pattern).each(&mut self.connection, |name, its| {
            // A key that has expired in the meantime has no type.
            if Held::of_type(&its).is_none() && its != "none" {
                let (count, names) = others.entry(key(its.as_bytes())).or_default();
                *count += 1;
                if names.len() < NAMED {
                    names.push(Name::new(&name));
                }
            }
        })?;
        Ok(others)
    }

    pub(in crate::command) fn has(&mut self, name: &[u8]) -> RedisResult<bool> {
        self.of_key("EXISTS", name)
    }

    /// The fields of BF.INFO or CF.INFO.
    pub(in crate::command) fn info(
        &mut self,
        family: &'static Family,
        name: &[u8],
    ) -> RedisResult<Vec<(Value, Value)>> {
        let fields: Vec<Value> = self.of_key(&family.command("INFO"), name)?;
        Ok(fields.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
    }

    /// Number of items in a filter; `None` if the server doesn't say.
    pub(in crate::command) fn items(
        &mut self,
        family: &'static Family,
        name: &[u8],
    ) -> RedisResult<Option<u64>> {
        let fields = self.info(family, name)?;
        let items = fields.iter().find(|(name, _)| text(name) == "Number of items inserted");
        Ok(items.and_then(|(_, items)| text(items).parse().ok()))
    }

    /// The Unix time in milliseconds at which a key expires, by the server's own clock; 0 for never. `None` if the key
    /// is gone.
    pub(in crate::command) fn expiry(&mut self, name: &[u8]) -> RedisResult<Option<u64>> {
        match self.of_key::<i64>("PTTL", name)? {
            -2 => Ok(None),
            -1 => Ok(Some(0)),
            left => Ok(Some(self.now()?.saturating_add_signed(left))),
        }
    }

    /// The Unix time in milliseconds, by the server's own clock.
    pub(in crate::command) fn now(&mut self) -> RedisResult<u64> {
        let (seconds, micros): (u64, u32) = self.ask(&redis::cmd("TIME"))?;
        Ok(Duration::new(seconds, micros.saturating_mul(1000)).as_millis() as u64)
    }

    /// An RDB version that the server reads: the one that it writes.
    pub(in crate::command) fn rdb_version(&mut self) -> anyhow::Result<u16> {
        let probe = temporary_key(b"migrate", "probe")?;
        let mut read = || {
            self.ask::<()>(redis::cmd("SET").arg(&probe).arg(1).arg("PX").arg(60_000))?;
            let payload: Vec<u8> = self.of_key("DUMP", &probe)?;
            self.of_key::<()>("DEL", &probe)?;
            RedisResult::Ok(footer::version(&payload))
        };
        let version = read();
        version
            .with_context(|| format!("{self}, takes no keys"))?
            .with_context(|| format!("{self}, gives no payload by DUMP"))
    }

    /// The piece of a filter that follows `iterator`, which is 0 for the first piece; `None` at the end.
    pub(in crate::command) fn piece(
        &mut self,
        family: &'static Family,
        name: &[u8],
        iterator: i64,
    ) -> RedisResult<Option<DumpPiece>> {
        let mut command = redis::cmd(&family.command("SCANDUMP"));
        let (iterator, bytes): (i64, Vec<u8>) = self.ask(command.arg(name).arg(iterator))?;
        Ok((iterator != 0).then_some(DumpPiece { iterator, bytes }))
    }

    /// A hash of all bits of the filter, which doesn't depend on where the pieces are cut. The header isn't included.
    pub(in crate::command) fn digest(&mut self, family: &'static Family, name: &[u8]) -> RedisResult<u128> {
        let mut digest = Xxh3::new();
        let Some(DumpPiece { mut iterator, bytes: head }) = self.piece(family, name, 0)? else {
            return Ok(0);
        };
        let skipped = if head.starts_with(b"BLMY") { CHUNK_PREFIX } else { 0 };
        digest.update(&[skipped as u8]);
        while let Some(piece) = self.piece(family, name, iterator)? {
            digest.update(piece.bytes.get(skipped..).unwrap_or_default());
            iterator = piece.iterator;
        }
        Ok(digest.digest128())
    }

    /// What DUMP returns: a filter as a file would contain it, or a sketch's fields. `None` if this program can't read
    /// it. The payloads of equal filters may differ, because servers compress them or not.
    pub(in crate::command) fn value(&mut self, key: &Key) -> RedisResult<Option<Vec<u8>>> {
        let dumped: Option<Vec<u8>> = self.of_key("DUMP", &key.name)?;
        let dumped = dumped.unwrap_or_default();
        if key.held.family().is_none() {
            return Ok(payload::sketch(&dumped).ok().flatten());
        }
        let found = payload::found(&dumped).ok().flatten();
        let filter = found.and_then(|(_, found)| found.value?.ok());
        Ok(filter.map(|filter| Encoder::native(&filter).to_vec()))
    }

    /// For each of the items, whether the filter has it.
    pub(in crate::command) fn answers(
        &mut self,
        family: &'static Family,
        name: &[u8],
        items: &[Vec<u8>],
    ) -> Result<Vec<bool>, Failed> {
        let mut command = redis::cmd(&family.command("MEXISTS"));
        match self.ask(command.arg(name).arg(items)) {
            // Old versions of RedisBloom have no CF.MEXISTS.
            Err(error) if is_unknown(&error) => items
                .iter()
                .map(|item| Ok(self.ask(redis::cmd(&family.command("EXISTS")).arg(name).arg(item))?))
                .collect(),
            answers => Ok(answers?),
        }
    }
}

fn is_unknown(error: &RedisError) -> bool {
    error.to_string().contains("unknown command")
}

pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Int(number) => number.to_string(),
        Value::SimpleString(text) => text.clone(),
        Value::BulkString(bytes) => output::key(bytes),
        Value::Nil => "none".into(),
        other => format!("{other:?}"),
    }
}
