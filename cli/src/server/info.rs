//! Asks servers for information about their filters and sketches.

use super::family::{FAMILIES, Family, Sketch};
use super::key::FilterKey;
use super::reply::summary;
use crate::error::{Failure, fail};
use crate::output;
use bloomery::Summary;
use redis::{ConnectionLike, Pipeline, RedisResult, Value};

/// Number of keys per round trip. For 256 windows with up to a thousand generations, the server was blocked for 14 ms.
const BATCH: usize = 64;

/// Fetches information about the filter or sketch of each key, [`BATCH`] keys at a time. A key that is gone or not
/// readable yields an error.
pub(crate) fn fetch(
    server: &mut impl ConnectionLike,
    keys: &[FilterKey],
) -> RedisResult<Vec<RedisResult<Summary>>> {
    let mut all = Vec::with_capacity(keys.len());
    for keys in keys.chunks(BATCH) {
        let family = |key: &FilterKey| Family::of_type(key.key_type).unwrap_or(FAMILIES[0]);
        let mut pipeline = Pipeline::new();
        for key in keys {
            pipeline.add_command(match Sketch::of_type(key.key_type) {
                Some(_) => Sketch::memory(&key.name),
                None => family(key).stats(&key.name),
            });
        }
        let replies: Vec<RedisResult<Value>> = pipeline.ignore_errors().query(server)?;
        let replies = replies.into_iter().zip(keys);
        all.extend(replies.map(|(reply, key)| {
            reply.and_then(|reply| match Sketch::of_type(key.key_type) {
                Some(sketch) => sketch.summary(reply),
                None => read(family(key), &reply),
            })
        }));
    }
    Ok(all)
}

/// Fetches information about the filter of one key, whatever its kind. Returns `None` if the key doesn't exist.
pub(crate) fn describe(server: &mut impl ConnectionLike, key: &[u8]) -> RedisResult<Option<Summary>> {
    let mut refused = None;
    for family in FAMILIES {
        match family.stats(key).query::<Value>(server) {
            Ok(reply) => return read(family, &reply).map(Some),
            Err(error) if error.is_io_error() => return Err(error),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    match refused {
        Some(error) if !error.to_string().contains("not found") => Err(error),
        _ => Ok(None),
    }
}

/// Fetches information about the filter of one key. Fails if the key doesn't exist.
pub(crate) fn existing(server: &mut impl ConnectionLike, key: &[u8]) -> anyhow::Result<Summary> {
    let missing = || Failure::Data(format!("there is no filter {}", output::key(key)));
    Ok(describe(server, key)?.ok_or_else(missing)?)
}

/// Fails if another rebuild of the key is running than the one with this identity. If none is running, the next command
/// is refused.
pub(crate) fn check_rebuild(
    server: &mut impl ConnectionLike,
    key: &[u8],
    identity: &str,
) -> anyhow::Result<()> {
    let running = describe(server, key)?.and_then(|filter| filter.rebuild);
    if running.is_some_and(|running| running.identity != identity) {
        fail!(Lost, "another rebuild has begun");
    }
    Ok(())
}

fn read(family: &Family, reply: &Value) -> RedisResult<Summary> {
    let mut summary = summary(reply)?;
    (family.complete)(&mut summary);
    Ok(summary)
}
