//! RedisBloom's sketches. The program carries them from one server to another, and doesn't look inside.

use bloomery::Summary;
use redis::{ErrorKind, FromRedisValue, RedisError, RedisResult, Value};

/// A type of sketches.
#[derive(Debug, PartialEq)]
pub(crate) struct Sketch {
    /// Name in sentences.
    pub(crate) title: &'static str,
    /// Name in tables.
    pub(crate) kind: &'static str,
    /// Type of the keys, as the TYPE command returns it.
    pub(crate) key_type: &'static str,
}

/// The type of Top-K sketches.
pub(crate) const TOP_K: &str = "TopK-TYPE";

/// All types of sketches.
pub(crate) static SKETCHES: [Sketch; 3] = [
    Sketch { title: "count-min sketch", kind: "cms", key_type: "CMSk-TYPE" },
    Sketch { title: "Top-K", kind: "topk", key_type: TOP_K },
    Sketch { title: "t-digest", kind: "tdigest", key_type: "TDIS-TYPE" },
];

impl Sketch {
    /// The type of sketches in keys of this type.
    pub(crate) fn of_type(key_type: &str) -> Option<&'static Sketch> {
        SKETCHES.iter().find(|sketch| sketch.key_type == key_type)
    }

    /// The type of sketches that tables call this.
    pub(crate) fn of_kind(kind: &str) -> Option<&'static Sketch> {
        SKETCHES.iter().find(|sketch| sketch.kind == kind)
    }

    /// The command that asks for the memory of a sketch.
    pub(crate) fn memory(key: &[u8]) -> redis::Cmd {
        let mut command = redis::cmd("MEMORY");
        command.arg("USAGE").arg(key).arg("SAMPLES").arg(0);
        command
    }

    /// The kind and the memory of a sketch, by the server's reply.
    pub(crate) fn summary(&self, reply: Value) -> RedisResult<Summary> {
        let gone = || RedisError::from((ErrorKind::Extension, "not found"));
        let size = Option::<u64>::from_redis_value(reply)?.ok_or_else(gone)?;
        let mut summary = Summary::default();
        (summary.kind, summary.size) = (self.kind.into(), size);
        Ok(summary)
    }
}
