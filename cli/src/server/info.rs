//! Asks servers for information about their filters.

use super::key::{FilterKey, KeyType};
use super::reply::filter_info;
use crate::filter::info::FilterInfo;
use redis::{Cmd, ConnectionLike, Pipeline, RedisResult, Value};

/// Fetches information about the filter of each key, [`BATCH`] keys at a time. A key that is gone or not readable
/// yields an error.
pub(crate) fn fetch(
    server: &mut impl ConnectionLike,
    keys: &[FilterKey],
) -> RedisResult<Vec<RedisResult<FilterInfo>>> {
    let mut all = Vec::with_capacity(keys.len());
    for keys in keys.chunks(BATCH) {
        let mut replies = ask(server, keys.iter().map(|key| (key, command(key))))?;
        // A key of Bloomery's type can hold a cuckoo filter, for which only CF.STATS works.
        let is_other = |reply: &RedisResult<FilterInfo>| {
            reply.as_ref().is_err_and(|error| error.code() == Some("WRONGTYPE"))
        };
        let other: Vec<usize> = (0..keys.len()).filter(|&index| is_other(&replies[index])).collect();
        let cuckoo =
            ask(server, other.iter().map(|&index| (&keys[index], named("CF.STATS", &keys[index].name))))?;
        for (index, reply) in other.into_iter().zip(cuckoo) {
            replies[index] = reply;
        }
        all.extend(replies);
    }
    Ok(all)
}

/// Fetches information about the filter of one key, whatever its kind. Returns `None` if the key doesn't exist.
pub(crate) fn describe(server: &mut impl ConnectionLike, key: &[u8]) -> RedisResult<Option<FilterInfo>> {
    let refused = match named("BF.STATS", key).query::<Value>(server) {
        Ok(reply) => return filter_info(&reply).map(Some),
        Err(error) if error.is_io_error() => return Err(error),
        Err(error) => error,
    };
    match named("CF.STATS", key).query::<Value>(server) {
        Ok(reply) => filter_info(&reply).map(Some),
        Err(error) if error.is_io_error() => Err(error),
        Err(_) if refused.to_string().contains("not found") => Ok(None),
        Err(_) => Err(refused),
    }
}

/// Number of keys per round trip.
const BATCH: usize = 256;

fn ask<'k>(
    server: &mut impl ConnectionLike,
    commands: impl Iterator<Item = (&'k FilterKey, Cmd)>,
) -> RedisResult<Vec<RedisResult<FilterInfo>>> {
    let mut pipeline = Pipeline::new();
    for (_, command) in commands {
        pipeline.add_command(command);
    }
    if pipeline.is_empty() {
        return Ok(Vec::new());
    }
    let replies: Vec<RedisResult<Value>> = pipeline.ignore_errors().query(server)?;
    Ok(replies.into_iter().map(|reply| reply.and_then(|value| filter_info(&value))).collect())
}

fn command(key: &FilterKey) -> Cmd {
    match key.key_type {
        KeyType::BloomeryCuckoo | KeyType::RedisBloomCuckoo => named("CF.STATS", &key.name),
        _ => named("BF.STATS", &key.name),
    }
}

fn named(command: &str, key: &[u8]) -> Cmd {
    let mut command = redis::cmd(command);
    command.arg(key);
    command
}
