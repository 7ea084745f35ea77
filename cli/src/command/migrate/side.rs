//! The source or the target, and what it says about its filters.

use super::failed::Failed;
use crate::command::inspect::rdb;
use crate::output::{Name, key};
use crate::server::connection::{Connection, Server};
use crate::server::family::Family;
use crate::server::key::{FilterKey, temporary_key};
use crate::server::scan::Scan;
use anyhow::Context;
use bloomery::wire::Encoder;
use redis::{Cmd, FromRedisValue, RedisError, RedisResult, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use xxhash_rust::xxh3::Xxh3;

/// A filter at the source.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    pub(super) name: Vec<u8>,
    pub(super) family: &'static Family,
    /// Bytes of memory that the filter needs at the source.
    pub(super) bytes: u64,
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

    /// All filters whose keys match the pattern, of the given family or of both.
    pub(super) fn filters(
        &mut self,
        pattern: &str,
        family: Option<&'static Family>,
    ) -> RedisResult<Vec<Key>> {
        let mut filters = Vec::new();
        for FilterKey { name, key_type } in Scan::new(pattern).collect(&mut self.connection)? {
            let Some(its) = Family::of_type(key_type) else { continue };
            // `None` for a key that has expired in the meantime.
            let size: Option<u64> =
                self.ask(redis::cmd("MEMORY").arg("USAGE").arg(&*name).arg("SAMPLES").arg(0))?;
            if let Some(bytes) = size.filter(|_| family.is_none_or(|family| family == its)) {
                filters.push(Key { name: name.to_vec(), family: its, bytes });
            }
        }
        Ok(filters)
    }

    /// Counts the keys that match the pattern and aren't filters, by type, and returns the first names of each.
    pub(super) fn others(&mut self, pattern: &str) -> RedisResult<BTreeMap<String, (u64, Vec<Name>)>> {
        let mut others: BTreeMap<String, (u64, Vec<Name>)> = BTreeMap::new();
        Scan::new(pattern).each(&mut self.connection, |name, its| {
            // A key that has expired in the meantime has no type.
            if Family::of_type(&its).is_none() && its != "none" {
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
    pub(super) fn info(&mut self, key: &Key) -> RedisResult<Vec<(Value, Value)>> {
        let fields: Vec<Value> = self.of_key(&key.family.command("INFO"), &key.name)?;
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
    pub(super) fn piece(&mut self, key: &Key, iterator: i64) -> RedisResult<Option<DumpPiece>> {
        let mut command = redis::cmd(&key.family.command("SCANDUMP"));
        let (iterator, bytes): (i64, Vec<u8>) = self.ask(command.arg(&key.name).arg(iterator))?;
        Ok((iterator != 0).then_some(DumpPiece { iterator, bytes }))
    }

    /// A hash of all bits of the filter, which doesn't depend on where the pieces are cut. The header isn't included.
    pub(super) fn digest(&mut self, key: &Key) -> RedisResult<u128> {
        let mut digest = Xxh3::new();
        let Some(DumpPiece { mut iterator, bytes: head }) = self.piece(key, 0)? else { return Ok(0) };
        let skipped = if head.starts_with(b"BLMY") { CHUNK_PREFIX } else { 0 };
        digest.update(&[skipped as u8]);
        while let Some(piece) = self.piece(key, iterator)? {
            digest.update(piece.bytes.get(skipped..).unwrap_or_default());
            iterator = piece.iterator;
        }
        Ok(digest.digest128())
    }

    /// The filter that DUMP returns, as a file would contain it; `None` if this program can't read it. The payloads of
    /// equal filters may differ, because servers compress them or not.
    pub(super) fn value(&mut self, key: &Key) -> RedisResult<Option<Vec<u8>>> {
        let payload: Option<Vec<u8>> = self.of_key("DUMP", &key.name)?;
        let found = rdb::payload(&payload.unwrap_or_default()).ok().flatten();
        Ok(found.and_then(|(_, found)| found.value.ok()).map(|filter| Encoder::native(&filter).to_vec()))
    }

    /// For each of the items, whether the filter has it.
    pub(super) fn answers(&mut self, key: &Key, items: &[Vec<u8>]) -> Result<Vec<bool>, Failed> {
        let mut command = redis::cmd(&key.family.command("MEXISTS"));
        match self.ask(command.arg(&key.name).arg(items)) {
            // Old versions of RedisBloom have no CF.MEXISTS.
            Err(error) if is_unknown(&error) => items
                .iter()
                .map(|item| Ok(self.ask(redis::cmd(&key.family.command("EXISTS")).arg(&key.name).arg(item))?))
                .collect(),
            answers => Ok(answers?),
        }
    }
}

fn is_unknown(error: &RedisError) -> bool {
    error.to_string().contains("unknown command")
}
