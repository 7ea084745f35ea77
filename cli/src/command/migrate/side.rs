//! The source or the target, and what it says about its filters.

use super::failed::Failed;
use crate::command::inspect::payload;
use crate::output::{Name, key};
use crate::server::connection::{Connection, Server};
use crate::server::family::{Family, SKETCHES, Sketch, key_types};
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
pub(super) struct Key {
    pub(super) name: Vec<u8>,
    pub(super) held: Held,
    /// Bytes of memory that it needs at the source.
    pub(super) bytes: u64,
}

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Held {
    Filter(&'static Family),
    Sketch(&'static Sketch),
}

impl Held {
    /// What keys of this type hold.
    pub(super) fn of_type(key_type: &str) -> Option<Held> {
        let sketch = || SKETCHES.iter().find(|sketch| sketch.key_type == key_type).map(Held::Sketch);
        Family::of_type(key_type).map(Held::Filter).or_else(sketch)
    }

    /// The filter's family.
    pub(super) fn family(self) -> Option<&'static Family> {
        match self {
            Held::Filter(family) => Some(family),
            Held::Sketch(_) => None,
        }
    }

    /// Name in sentences.
    pub(super) fn title(self) -> &'static str {
        match self {
            Held::Filter(family) => family.title,
            Held::Sketch(sketch) => sketch.title,
        }
    }
}

/// A piece of a filter as SCANDUMP returns it, with the iterator for LOADCHUNK.
pub(super) struct DumpPiece {
    pub(super) iterator: i64,
    pub(super) bytes: Vec<u8>,
}

/// One of the two servers.
pub(super) struct Side {
    role: &'static str,
    address: String,
    connection: Connection,
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
    /// Connects, and checks that the server answers.
    pub(super) fn connect(role: &'static str, server: &Server) -> anyhow::Result<Side> {
        let address = server.address()?.addr().to_string();
        let connection = server.connect().with_context(|| format!("the {role}"))?;
        let mut side = Side { role, address, connection };
        redis::cmd("PING").query::<String>(&mut side.connection).with_context(|| format!("the {role}"))?;
        Ok(side)
    }

    pub(super) fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        command.query(&mut self.connection)
    }

    /// Sends a command whose only argument is the key.
    pub(super) fn of_key<T: FromRedisValue>(&mut self, command: &str, key: &[u8]) -> RedisResult<T> {
        self.ask(redis::cmd(command).arg(key))
    }

    /// Whether the server knows a command. Finds out by trying it on a missing key.
    pub(super) fn knows(&mut self, command: &str) -> anyhow::Result<bool> {
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
    pub(super) fn keys(&mut self, pattern: &str, family: Option<&'static Family>) -> RedisResult<Vec<Key>> {
        let (mut types, mut keys) = (key_types(), Vec::new());
        types.extend(SKETCHES.iter().map(|sketch| sketch.key_type));
        for FilterKey { name, key_type } in Scan::of(pattern, types).collect(&mut self.connection)? {
            let Some(held) = Held::of_type(key_type) else { continue };
            // `None` for a key that has expired in the meantime.
            let size: Option<u64> =
                self.ask(redis::cmd("MEMORY").arg("USAGE").arg(&*name).arg("SAMPLES").arg(0))?;
            if let Some(bytes) = size.filter(|_| family.is_none() || held.family() == family) {
                keys.push(Key { name: name.to_vec(), held, bytes });
            }
        }
        Ok(keys)
    }

    /// Counts the keys that match the pattern and hold something else, by type, and returns the first names of each.
    pub(super) fn others(&mut self, pattern: &str) -> RedisResult<BTreeMap<String, (u64, Vec<Name>)>> {
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

    pub(super) fn has(&mut self, name: &[u8]) -> RedisResult<bool> {
        self.of_key("EXISTS", name)
    }

    /// The fields of BF.INFO or CF.INFO.
    pub(super) fn info(&mut self, family: &'static Family, name: &[u8]) -> RedisResult<Vec<(Value, Value)>> {
        let fields: Vec<Value> = self.of_key(&family.command("INFO"), name)?;
        Ok(fields.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
    }

    /// The Unix time in milliseconds at which a key expires, by the server's own clock; 0 for never.
    pub(super) fn expiry(&mut self, name: &[u8]) -> RedisResult<u64> {
        let left: i64 = self.of_key("PTTL", name)?;
        let Ok(left) = u64::try_from(left) else { return Ok(0) };
        let (seconds, micros): (u64, u32) = self.ask(&redis::cmd("TIME"))?;
        let now = Duration::new(seconds, micros.saturating_mul(1000));
        Ok((now.as_millis() as u64).saturating_add(left))
    }

    /// The piece of a filter that follows `iterator`, which is 0 for the first piece; `None` at the end.
    pub(super) fn piece(
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
    pub(super) fn digest(&mut self, family: &'static Family, name: &[u8]) -> RedisResult<u128> {
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
    pub(super) fn value(&mut self, key: &Key) -> RedisResult<Option<Vec<u8>>> {
        let dumped: Option<Vec<u8>> = self.of_key("DUMP", &key.name)?;
        let dumped = dumped.unwrap_or_default();
        if key.held.family().is_none() {
            return Ok(payload::sketch(&dumped).ok().flatten());
        }
        let found = payload::filter(&dumped).ok().flatten();
        Ok(found.and_then(|(_, found)| found.value.ok()).map(|filter| Encoder::native(&filter).to_vec()))
    }

    /// For each of the items, whether the filter has it.
    pub(super) fn answers(
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
