//! Cuckoo filters, native and RedisBloom's.

use super::definition::{Adding, Family};
use crate::input::items_of;
use crate::server::connection::Connection;
use crate::server::reply::unexpected;
use anyhow::Context;
use bloomery::wire::redisbloom::Loader;
use redis::Value;

pub(super) static FAMILY: Family = Family {
    name: "cuckoo",
    title: "cuckoo",
    prefix: "CF",
    types: &["bloomeryC", "MBbloomCF"],
    kinds: &["cuckoo"],
    counting: &["cuckoo"],
    complete: |summary| {
        summary.kind = "cuckoo".into();
        (summary.cells, summary.cells_set) = (summary.capacity, summary.items);
    },
    test,
    add: &Adding {
        command: "CF.INSERT",
        words: |blob| {
            let words: [&[u8]; 2] = [b"NOCREATE", b"ITEMS"];
            words.into_iter().chain(items_of(blob)).collect()
        },
        added,
        most_items: 4096,
        start_again: "start again in a new key",
    },
    rebuild: None,
    can_merge: false,
    loader: Loader::cuckoo,
    moves: true,
};

/// Number of items per CF.MEXISTS.
const TESTED: usize = 1024;

fn test(connection: &mut Connection, key: &[u8], blob: &[u8]) -> anyhow::Result<Vec<bool>> {
    let items: Vec<&[u8]> = items_of(blob).collect();
    let mut answers = Vec::with_capacity(items.len());
    for items in items.chunks(TESTED) {
        let mut command = redis::cmd("CF.MEXISTS");
        command.arg(key).arg(items);
        match command.query::<Value>(connection).context("cannot test")? {
            Value::Array(found) if found.len() == items.len() => {
                let found: Vec<bool> = redis::from_redis_value(Value::Array(found))?;
                answers.extend(found);
            }
            reply => return Err(unexpected("CF.MEXISTS", &reply).into()),
        }
    }
    Ok(answers)
}

/// An item that was added is new, as far as the server says. 1 means that it was added; -1 or an error means that there
/// was no room.
fn added(reply: &Value, items: u64) -> Option<(u64, u64)> {
    let Value::Array(answers) = reply else { return None };
    let mut added = 0;
    for answer in answers {
        match answer {
            Value::Int(1) => added += 1,
            Value::Int(-1) | Value::ServerError(_) => {}
            _ => return None,
        }
    }
    (answers.len() as u64 == items).then_some((added, added))
}
