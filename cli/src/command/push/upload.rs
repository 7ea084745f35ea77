//! Uploads a filter file to a temporary key, and puts it into its key.

use crate::error::fail;
use crate::filter::file::FilePieces;
use crate::input::open_file;
use crate::interrupt::Interrupted;
use crate::output::key;
use crate::server::connection::Connection;
use crate::server::family::{Family, key_types};
use crate::server::key::temporary_key;
use anyhow::Context;
use bloomery::wire::LONGEST;
use redis::RedisError;
use std::io::BufReader;
use std::path::PathBuf;

/// Renames the temporary key to the filter's key, if this is allowed, and returns the type that the key had. The time
/// to live is set on the temporary key first, and the rename keeps it. So if the server refuses the time, the filter's
/// key is unchanged.
///
/// - `KEYS[1]` and `KEYS[2]`: the temporary key and the filter's key.
/// - `ARGV[1]`: `1` if an existing key may be replaced, else `0`.
/// - `ARGV[2]` and `ARGV[3]`: `KEEP` for the time to live that the key has, or the command that sets it (or `PERSIST`),
///   and its argument.
/// - From `ARGV[4]`: the types of keys that may be replaced.
const SWAP: &str = "\
local held = redis.call('TYPE', KEYS[2]).ok
if held ~= 'none' then
  if ARGV[1] == '0' then return redis.error_reply('the key exists; use --replace to replace it') end
  local is_filter = false
  for i = 4, #ARGV do is_filter = is_filter or held == ARGV[i] end
  if not is_filter then return redis.error_reply('the key holds a ' .. held .. ', not a filter') end
end
redis.call('PERSIST', KEYS[1])
if ARGV[2] == 'KEEP' then
  local expires = redis.call('PEXPIRETIME', KEYS[2])
  if expires > 0 then redis.call('PEXPIREAT', KEYS[1], expires) end
elseif ARGV[2] ~= 'PERSIST' then
  redis.call(ARGV[2], KEYS[1], ARGV[3])
  if redis.call('TYPE', KEYS[1]).ok == 'none' then return 'expired' end
end
redis.call('RENAME', KEYS[1], KEYS[2])
return held";

/// Milliseconds until a complete temporary key expires, in case the program ends before it renames or merges the key.
/// This is longer than any merge takes.
const ABANDONED_MS: u64 = 3_600_000;

/// When the key expires.
#[derive(Clone, Copy)]
pub(in crate::command) enum Expiry {
    /// When the key that is replaced would have expired.
    Keep,
    Never,
    /// In this many milliseconds.
    In(u64),
    /// At this Unix time in milliseconds.
    At(u64),
}

/// How files are uploaded.
#[derive(Clone, Copy)]
pub(in crate::command) struct Rules {
    /// Whether a key that exists is replaced.
    pub(in crate::command) replace: bool,
    /// Whether the file is merged into the key.
    pub(in crate::command) merge: bool,
    pub(in crate::command) expiry: Expiry,
}

/// A file and the key that it is for.
pub(in crate::command) struct Upload {
    pub(in crate::command) path: PathBuf,
    pub(in crate::command) key: Vec<u8>,
    pub(in crate::command) family: &'static Family,
}

impl Upload {
    /// Uploads the file, and replaces the key or merges the file into it. Returns the type that the key had, or `None`
    /// if interrupted. If the key's time has come, returns `expired`, and the key is unchanged. Calls `sent` with the
    /// number of bytes of each piece.
    pub(in crate::command) fn run(
        &self,
        rules: Rules,
        connection: &mut Connection,
        interrupted: &Interrupted,
        mut sent: impl FnMut(u64),
    ) -> anyhow::Result<Option<String>> {
        let name = &*self.key;
        if interrupted.is_set() {
            return Ok(None);
        }
        if rules.merge && std::fs::metadata(&self.path)?.len() <= LONGEST as u64 {
            let data = std::fs::read(&self.path)?;
            let held = merge(connection, name, &[b"BLOB", &data])?;
            sent(data.len() as u64);
            return Ok(Some(held));
        }
        let (load, temporary) = (self.family.command("LOADCHUNK"), temporary_key(name, "push")?);
        let mut pieces = FilePieces::new(BufReader::with_capacity(1 << 18, open_file(&self.path)?));
        let mut upload = || -> anyhow::Result<Option<String>> {
            let (mut next, mut body_len) = (pieces.next()?, 0);
            while let Some(piece) = next {
                next = pieces.next()?;
                // LOADCHUNK expects 1 with the head, and with a chunk 1 plus where it ends.
                let end = match &next {
                    _ if piece.at == 0 => 0,
                    Some(after) => after.start(),
                    None => body_len,
                };
                if piece.at == 0 {
                    body_len = piece.body_len();
                }
                if interrupted.is_set() {
                    return Ok(None);
                }
                redis::cmd(&load)
                    .arg(&temporary)
                    .arg(end.saturating_add(1))
                    .arg(&piece.bytes)
                    .query::<()>(connection)
                    .with_context(|| format!("{} is unchanged", key(name)))?;
                sent(piece.bytes.len() as u64);
            }
            // If this process ended now, nobody else would delete the key.
            redis::cmd("PEXPIRE").arg(&temporary).arg(ABANDONED_MS).query::<()>(connection)?;
            if !rules.merge {
                return swap(connection, rules, name, &temporary).map(Some);
            }
            let held = merge(connection, name, &[&temporary])?;
            // The merge is done. If removing the temporary key fails, the key expires.
            let _ = redis::cmd("UNLINK").arg(&temporary).query::<()>(connection);
            Ok(Some(held))
        };
        let held = upload();
        if !matches!(held, Ok(Some(_))) {
            give_up(connection, &load, &temporary);
        }
        held
    }
}

/// Removes what was uploaded: the load or, if it was complete, the temporary key. If this fails, the server drops the
/// load after five minutes, and the key after an hour.
fn give_up(connection: &mut Connection, load: &str, temporary: &[u8]) {
    // Nothing can be done about an error: probably the connection failed.
    let _ = redis::cmd(load).arg(temporary).arg(0).arg("").query::<()>(connection);
    let _ = redis::cmd("UNLINK").arg(temporary).query::<()>(connection);
}

/// Fails if the key exists and may not be changed: only a key of one of the `replaceable` types may. This happens
/// before anything is sent; the server checks again at the end.
pub(in crate::command) fn refuse_early(
    connection: &mut Connection,
    name: &[u8],
    replaceable: Option<&[&str]>,
) -> anyhow::Result<()> {
    let held: String = redis::cmd("TYPE").arg(name).query(connection)?;
    let may_change = |types: &[&str]| types.contains(&&*held);
    if held == "none" || replaceable.is_some_and(may_change) {
        return Ok(());
    }
    if replaceable.is_some() {
        fail!(Usage, "{} holds a {held}, not a filter; delete it first", key(name));
    }
    fail!(Usage, "{} exists; use --replace to replace it", key(name))
}

/// Says whether the last command, which failed, has changed the key. If there was no reply, the server may have
/// executed the command.
fn state_after(error: &RedisError, name: &[u8]) -> String {
    let name = key(name);
    match error.is_io_error() {
        false => format!("{name} is unchanged"),
        true => format!("it isn't known whether {name} has changed"),
    }
}

/// Merges a source into the key, and returns the type that the key had. `source` is given as in BF.MERGE: a key, or
/// BLOB and a payload. If the server refuses, the key is unchanged.
fn merge(connection: &mut Connection, key: &[u8], source: &[&[u8]]) -> anyhow::Result<String> {
    let held = redis::cmd("TYPE").arg(key).query(connection)?;
    redis::cmd("BF.MERGE").arg(key).arg(source).query::<()>(connection).map_err(|error| {
        let state = state_after(&error, key);
        anyhow::Error::new(error).context(state)
    })?;
    Ok(held)
}

/// Ends the upload by renaming the temporary key; returns the type that the key had.
fn swap(connection: &mut Connection, rules: Rules, key: &[u8], temporary: &[u8]) -> anyhow::Result<String> {
    let (expire, when) = match rules.expiry {
        Expiry::Keep => ("KEEP", 0),
        Expiry::Never => ("PERSIST", 0),
        Expiry::In(ms) => ("PEXPIRE", ms),
        Expiry::At(ms) => ("PEXPIREAT", ms),
    };
    let mut command = redis::cmd("EVAL");
    command.arg(SWAP).arg(2).arg(temporary).arg(key).arg(u8::from(rules.replace)).arg(expire).arg(when);
    command.arg(key_types());
    command.query(connection).map_err(|error: RedisError| {
        let state = state_after(&error, key);
        anyhow::Error::new(error).context(format!("the filter was uploaded, but {state}"))
    })
}
