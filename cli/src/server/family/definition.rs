//! What a family of filters is.

use crate::server::connection::Connection;
use bloomery::Summary;
use bloomery::wire::DecodeError;
use bloomery::wire::redisbloom::Loader;
use redis::{Cmd, Value};
use std::fmt;

/// Tests the items of a blob in the filter of a key, and returns an answer for each.
type Test = fn(connection: &mut Connection, key: &[u8], blob: &[u8]) -> anyhow::Result<Vec<bool>>;

/// A family of filters.
pub(crate) struct Family {
    /// Name in options.
    pub(crate) name: &'static str,
    /// Name in sentences.
    pub(crate) title: &'static str,
    /// What the names of the commands begin with.
    pub(super) prefix: &'static str,
    /// Types of the keys, as the TYPE command returns them.
    pub(super) types: &'static [&'static str],
    /// Kinds of filters, as in [`Summary::kind`].
    pub(super) kinds: &'static [&'static str],
    /// The kinds that count every add, so that no add may be repeated.
    pub(super) counting: &'static [&'static str],
    /// Sets the statistics that the reply leaves out because they follow from others.
    pub(in crate::server) complete: fn(&mut Summary),
    pub(crate) test: Test,
    /// How items are added.
    pub(crate) add: &'static Adding,
    /// How items are added to the new filter of a rebuild; `None` if these filters can't be rebuilt.
    pub(crate) rebuild: Option<&'static Adding>,
    /// Whether filters can be merged.
    pub(crate) can_merge: bool,
    /// Begins to assemble the pieces of RedisBloom's SCANDUMP.
    pub(crate) loader: fn(&[u8]) -> Result<Loader, DecodeError>,
    /// Whether fingerprints can move from a later piece of RedisBloom's SCANDUMP to an earlier one without the pieces
    /// showing it.
    pub(crate) moves: bool,
}

/// A command that adds items. None of these commands creates a filter: if the key is deleted during a load,
/// the load must not continue with a new filter.
pub(crate) struct Adding {
    /// The name of the command.
    pub(crate) command: &'static str,
    /// The arguments after the key, for the items of a blob.
    pub(crate) words: for<'b> fn(&'b [u8]) -> Vec<&'b [u8]>,
    /// Reads from the reply for a number of items how many of them are in the filter now, and how many of these were
    /// absent before. `None` if the command never gives such a reply.
    pub(crate) added: fn(&Value, u64) -> Option<(u64, u64)>,
    /// Maximum number of items per command.
    pub(crate) most_items: u64,
    /// What to do if some items may have been added twice.
    pub(crate) start_again: &'static str,
}

impl Family {
    /// Whether filters of this kind count every add, so that no add may be repeated.
    pub(crate) fn counts(&self, kind: &str) -> bool {
        self.counting.contains(&kind)
    }

    /// The name of the command with this verb, such as `BF.INFO` for `INFO`.
    pub(crate) fn command(&self, verb: &str) -> String {
        format!("{}.{verb}", self.prefix)
    }

    /// The command that returns the statistics of a filter.
    pub(in crate::server) fn stats(&self, key: &[u8]) -> Cmd {
        let mut command = redis::cmd(&self.command("STATS"));
        command.arg(key);
        command
    }
}

impl PartialEq for Family {
    fn eq(&self, other: &Family) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
