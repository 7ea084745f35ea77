//! Sends items to the server, and reads its replies.

use crate::error::fail;
use crate::input::Batch;
use crate::server::connection::{Connection, Server};
use crate::server::family::Adding;
use crate::server::info::check_rebuild;
use crate::server::reply::unexpected;
use redis::Value;

/// Opens connections to a filter. Each result adds a batch, and returns how many of its items were absent before. If
/// the identity of a `rebuild` is given, nothing is added to another one.
pub(super) fn senders(
    server: &Server,
    key: &[u8],
    adding: &'static Adding,
    rebuild: Option<&str>,
    count: u8,
) -> anyhow::Result<Vec<impl FnMut(&Batch) -> anyhow::Result<u64>>> {
    let open = |_| {
        let mut connection = server.connect()?;
        Ok(move |batch: &Batch| {
            // Costs 2% of the time of a full batch.
            rebuild.map_or(Ok(()), |identity| check_rebuild(&mut connection, key, identity))?;
            add(adding, &mut connection, key, &batch.blob, batch.items)
        })
    };
    (0..count).map(open).collect()
}

/// Adds the items of a blob, and returns how many of them were absent before. After an error, it is unknown how many
/// the server added.
pub(super) fn add(
    adding: &Adding,
    connection: &mut Connection,
    key: &[u8],
    blob: &[u8],
    items: u64,
) -> anyhow::Result<u64> {
    if items == 0 {
        return Ok(0);
    }
    let reply = redis::cmd(adding.command).arg(key).arg((adding.words)(blob)).query::<Value>(connection)?;
    let (added, new) = (adding.added)(&reply, items).ok_or_else(|| unexpected(adding.command, &reply))?;
    if added < items {
        fail!(Server, "the filter is full: no room for {} items", items - added);
    }
    Ok(new)
}
