//! Bloom filters: native, RedisBloom's, and those of other systems.

use super::definition::{Adding, Family};
use crate::input::items_of;
use crate::server::connection::Connection;
use crate::server::reply::unexpected;
use anyhow::Context;
use bloomery::wire::redisbloom::Loader;
use redis::Value;

pub(super) static FAMILY: Family = Family {
    name: "bloom",
    title: "Bloom",
    prefix: "BF",
    types: &["bloomery1", "MBbloom--", "bloomfltr"],
    kinds: &["fixed", "counting", "scaling", "window", "static"],
    counting: &["counting"],
    complete: |_| (),
    test,
    add: &Adding {
        command: "BF.BULKADD",
        words: |blob| vec![b"NOCREATE", b"PREFIXED", blob],
        added: |reply, items| match reply {
            Value::Int(new) => Some((items, u64::try_from(*new).ok()?)),
            _ => None,
        },
        most_items: u64::MAX,
        start_again: "start again in a new key, or in a rebuild (BF.REBUILD BEGIN, load --rebuild, BF.REBUILD COMMIT)",
    },
    rebuild: Some(&REBUILD),
    can_merge: true,
    loader: Loader::bloom,
    moves: false,
};

/// Adds to the new filter of a rebuild.
pub(crate) static REBUILD: Adding = Adding {
    command: "BF.REBUILD",
    words: |blob| vec![b"ADDBULK", b"PREFIXED", blob],
    added: |reply, items| (*reply == Value::Okay).then_some((items, 0)),
    most_items: u64::MAX,
    start_again: "start again in another rebuild (BF.REBUILD ABORT, BEGIN)",
};

fn test(connection: &mut Connection, key: &[u8], blob: &[u8]) -> anyhow::Result<Vec<bool>> {
    let count = items_of(blob).count();
    let mut command = redis::cmd("BF.BULKTEST");
    command.arg(key).arg("PREFIXED").arg(blob);
    match command.query::<Value>(connection).context("cannot test")? {
        Value::BulkString(bitmap) if bitmap.len() == count.div_ceil(8) => {
            Ok((0..count).map(|index| bitmap[index / 8] >> (7 - index % 8) & 1 == 1).collect())
        }
        reply => Err(unexpected("BF.BULKTEST", &reply).into()),
    }
}
