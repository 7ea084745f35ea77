//! Finds the keys that hold filters, in slices, so that a search over the whole keyspace never blocks the server for
//! long.

use super::family::key_types;
use super::key::FilterKey;
use redis::{ConnectionLike, Pipeline, RedisResult};
use std::thread;
use std::time::Instant;

/// Number of keys that the server examines per slice (SCAN COUNT).
const SLICE: u32 = 1000;

/// A server that works for a program in the background gets a pause after each step, of this multiple of the step's
/// duration. So the program uses at most a fifth of the server's time.
const REST: u32 = 4;

/// Pauses after a step that began at this time.
pub(crate) fn rest_since(start: Instant) {
    thread::sleep(start.elapsed() * REST);
}

/// A search for the filters on one server. SCAN can return a key twice. A key created or deleted during the search may
/// or may not be found.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    pattern: String,
    /// Types still to search for; the last is the current one.
    types: Vec<&'static str>,
    cursor: u64,
    /// Number of names that the connection has left out because they are too long.
    pub(crate) left_out: u64,
}

impl Scan {
    /// A search for the filters whose keys match a glob-style pattern, as in KEYS.
    pub(crate) fn new(pattern: &str) -> Scan {
        Scan::of(pattern, key_types())
    }

    /// A search for keys of these types.
    pub(crate) fn of(pattern: &str, types: Vec<&'static str>) -> Scan {
        Scan { pattern: pattern.to_owned(), types, cursor: 0, left_out: 0 }
    }

    /// Returns the next slice, which may be empty; `None` at the end.
    pub(crate) fn next_slice(
        &mut self,
        server: &mut impl ConnectionLike,
    ) -> RedisResult<Option<Vec<FilterKey>>> {
        let Some(&key_type) = self.types.last() else { return Ok(None) };
        let names = match self.names(server, Some(key_type)) {
            // The server doesn't know the type, so it has no such keys.
            Err(error) if error.to_string().contains("unknown type") => Vec::new(),
            names => names?,
        };
        if self.cursor == 0 {
            self.types.pop();
        }
        let key = |name: Vec<u8>| FilterKey { name: name.into(), key_type };
        Ok(Some(names.into_iter().map(key).collect()))
    }

    /// Returns the names of the next keys of any type, or of this one. After the last ones, the cursor is 0.
    fn names(
        &mut self,
        server: &mut impl ConnectionLike,
        key_type: Option<&str>,
    ) -> RedisResult<Vec<Vec<u8>>> {
        let mut command = redis::cmd("SCAN");
        command.arg(self.cursor).arg("COUNT").arg(SLICE);
        if let Some(key_type) = key_type {
            command.arg("TYPE").arg(key_type);
        }
        if self.pattern != "*" {
            command.arg("MATCH").arg(&self.pattern);
        }
        self.cursor = 0;
        let (cursor, names): (u64, Vec<Option<Vec<u8>>>) = command.query(server)?;
        self.cursor = cursor;
        self.left_out += names.iter().filter(|name| name.is_none()).count() as u64;
        Ok(names.into_iter().flatten().collect())
    }

    /// Calls `found` with the name and the type of each remaining key, of whatever type.
    pub(crate) fn each(
        mut self,
        server: &mut impl ConnectionLike,
        mut found: impl FnMut(Vec<u8>, String),
    ) -> RedisResult<()> {
        loop {
            let names = self.names(server, None)?;
            let mut pipeline = Pipeline::new();
            for name in &names {
                pipeline.cmd("TYPE").arg(name);
            }
            let types: Vec<String> = if names.is_empty() { Vec::new() } else { pipeline.query(server)? };
            names.into_iter().zip(types).for_each(|(name, key_type)| found(name, key_type));
            if self.cursor == 0 {
                return Ok(());
            }
        }
    }

    /// Returns all remaining keys, sorted and without duplicates.
    pub(crate) fn collect(&mut self, server: &mut impl ConnectionLike) -> RedisResult<Vec<FilterKey>> {
        let mut keys = Vec::new();
        while let Some(slice) = self.next_slice(server)? {
            keys.extend(slice);
        }
        keys.sort();
        keys.dedup();
        Ok(keys)
    }
}
