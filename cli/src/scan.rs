//! The keys of a server that hold filters, slice by slice: no server waits for a walk over all its keys.

use redis::{ConnectionLike, RedisResult, Value};

/// Keys that the server looks at in one slice.
const SLICE: u32 = 1000;

/// Types of keys that hold filters, as the servers' TYPE names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KeyType {
    /// Bloomery's own, Bloom and cuckoo.
    Bloomery,
    /// RedisBloom's Bloom filters.
    RedisBloom,
    /// RedisBloom's cuckoo filters.
    RedisBloomCuckoo,
    /// valkey-bloom's.
    ValkeyBloom,
}

impl KeyType {
    /// All of them.
    pub(crate) const ALL: [KeyType; 4] =
        [KeyType::Bloomery, KeyType::RedisBloom, KeyType::RedisBloomCuckoo, KeyType::ValkeyBloom];

    /// The name that TYPE replies.
    pub(crate) fn name(self) -> &'static str {
        match self {
            KeyType::Bloomery => "bloomery1",
            KeyType::RedisBloom => "MBbloom--",
            KeyType::RedisBloomCuckoo => "MBbloomCF",
            KeyType::ValkeyBloom => "bloomfltr",
        }
    }
}

/// A key that holds a filter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FilterKey {
    /// Its name, which need not be text.
    pub(crate) name: Vec<u8>,
    /// Its type.
    pub(crate) key_type: KeyType,
}

/// A walk over the filters of one server. SCAN may name a key twice, and a key that is made or deleted meanwhile may
/// or may not be seen.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    pattern: String,
    /// Types that are still to be walked over; the first one is being.
    types: &'static [KeyType],
    cursor: u64,
}

impl Scan {
    /// Of the keys that match the glob-style pattern, as in KEYS.
    pub(crate) fn new(pattern: &str) -> Scan {
        Scan { pattern: pattern.to_owned(), types: &ALL, cursor: 0 }
    }

    /// The next slice, which may be empty; `None` at the end.
    pub(crate) fn next_slice(
        &mut self,
        server: &mut impl ConnectionLike,
    ) -> RedisResult<Option<Vec<FilterKey>>> {
        let Some(&key_type) = self.types.first() else { return Ok(None) };
        let mut command = redis::cmd("SCAN");
        command.arg(self.cursor).arg("COUNT").arg(SLICE).arg("TYPE").arg(key_type.name());
        if self.pattern != "*" {
            command.arg("MATCH").arg(&self.pattern);
        }
        let (cursor, names): (u64, Vec<Vec<u8>>) = match command.query::<Value>(server) {
            Ok(reply) => redis::from_redis_value(reply)?,
            // A type that this server does not know: it has no such keys.
            Err(error) if error.to_string().contains("unknown type") => (0, Vec::new()),
            Err(error) => return Err(error),
        };
        self.cursor = cursor;
        if cursor == 0 {
            self.types = &self.types[1..];
        }
        Ok(Some(names.into_iter().map(|name| FilterKey { name, key_type }).collect()))
    }

    /// All that is left, sorted, each key once.
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

static ALL: [KeyType; 4] = KeyType::ALL;
