//! Finds the keys that hold filters, in slices, so that a search over the whole keyspace never blocks the server for
//! long.

use super::family::key_types;
use super::key::FilterKey;
use redis::{ConnectionLike, RedisResult, Value};

/// Number of keys that the server examines per slice (SCAN COUNT).
const SLICE: u32 = 1000;

/// A search for the filters on one server. SCAN can return a key twice. A key created or deleted during the search may
/// or may not be found.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    pattern: String,
    /// Types still to search for; the last is the current one.
    types: Vec<&'static str>,
    cursor: u64,
}

impl Scan {
    /// A search for the filters whose keys match a glob-style pattern, as in KEYS.
    pub(crate) fn new(pattern: &str) -> Scan {
        Scan { pattern: pattern.to_owned(), types: key_types(), cursor: 0 }
    }

    /// Returns the next slice, which may be empty; `None` at the end.
    pub(crate) fn next_slice(
        &mut self,
        server: &mut impl ConnectionLike,
    ) -> RedisResult<Option<Vec<FilterKey>>> {
        let Some(&key_type) = self.types.last() else { return Ok(None) };
        let mut command = redis::cmd("SCAN");
        command.arg(self.cursor).arg("COUNT").arg(SLICE).arg("TYPE").arg(key_type);
        if self.pattern != "*" {
            command.arg("MATCH").arg(&self.pattern);
        }
        let (cursor, names): (u64, Vec<Vec<u8>>) = match command.query::<Value>(server) {
            Ok(reply) => redis::from_redis_value(reply)?,
            // The server doesn't know the type, so it has no such keys.
            Err(error) if error.to_string().contains("unknown type") => (0, Vec::new()),
            Err(error) => return Err(error),
        };
        self.cursor = cursor;
        if cursor == 0 {
            self.types.pop();
        }
        Ok(Some(names.into_iter().map(|name| FilterKey { name, key_type }).collect()))
    }

    /// Returns all remaining keys, sorted and without duplicates.
    pub(crate) fn collect(mut self, server: &mut impl ConnectionLike) -> RedisResult<Vec<FilterKey>> {
        let mut keys = Vec::new();
        while let Some(slice) = self.next_slice(server)? {
            keys.extend(slice);
        }
        keys.sort();
        keys.dedup();
        Ok(keys)
    }
}
