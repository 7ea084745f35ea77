//! The bookmark of a load: a key next to the filter that says up to which byte of the input all items are in the
//! filter.
//!
//! It moves after the server has added the items. So whatever happens between two steps, the filter has every item
//! before the bookmark; items after it may be added again, which changes nothing. If a server loses its latest writes
//! (in a crash or a failover), it loses the bookmark together with the items. So the bookmark moves only if it is still
//! where this program left it.

use super::acks::Position;
use super::options::Options;
use crate::error::{Aftermath, Failure, fail};
use crate::output;
use crate::server::connection::Connection;
use crate::server::key::neighbour;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// Replaces the value `ARGV[1]` of the key by `ARGV[2]`. An empty value means that there is no key.
const MOVE: &str = "\
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
if ARGV[2] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[2]) end
return 1";

/// What the key says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Saved {
    /// Name of the input; only for people to read.
    input: String,
    /// The filter's identity.
    pub(super) identity: String,
    #[serde(flatten)]
    pub(super) position: Position,
}

/// The bookmark of one load: of one input, read in one way, into one key.
pub(super) struct Bookmark {
    key: Vec<u8>,
    input: String,
    /// The key's value, as far as this program knows it; empty if there is no key.
    value: String,
}

impl Bookmark {
    pub(super) fn new(options: &Options) -> Bookmark {
        let input = options.input.name();
        let load = format!("{}\n{input}\n{}", options.input.form(), options.rebuild);
        let end = format!(":bloomery-load:{:016x}", xxh3_64(load.as_bytes()));
        Bookmark { key: neighbour(options.key.as_bytes(), &end), input, value: String::new() }
    }

    /// How to load everything again, if the load can't continue.
    pub(super) fn way_out(&self) -> Aftermath {
        Aftermath(format!("To load everything again, delete the key {}", output::key(&self.key)))
    }

    /// Reads the bookmark; `None` if there is none.
    pub(super) fn read(&mut self, connection: &mut Connection) -> anyhow::Result<Option<Saved>> {
        let value: Option<String> = redis::cmd("GET").arg(&self.key).query(connection)?;
        let Some(value) = value else { return Ok(None) };
        let saved = serde_json::from_str(&value)
            .map_err(|error| Failure::Data(error.to_string()))
            .with_context(|| format!("{} is not the bookmark of a load", output::key(&self.key)))?;
        self.value = value;
        Ok(Some(saved))
    }

    /// Moves the bookmark to this position in the input.
    pub(super) fn move_to(
        &mut self,
        connection: &mut Connection,
        identity: &str,
        position: &Position,
    ) -> anyhow::Result<()> {
        let (input, identity) = (self.input.clone(), identity.to_owned());
        let saved = Saved { input, identity, position: position.clone() };
        self.replace(connection, serde_json::to_string(&saved)?)
    }

    /// Removes the bookmark: the load is complete.
    pub(super) fn remove(&mut self, connection: &mut Connection) -> anyhow::Result<()> {
        self.replace(connection, String::new())
    }

    fn replace(&mut self, connection: &mut Connection, value: String) -> anyhow::Result<()> {
        let mut command = redis::cmd("EVAL");
        command.arg(MOVE).arg(1).arg(&self.key).arg(&self.value).arg(&value);
        if command.query::<u8>(connection)? != 1 {
            fail!(
                Lost,
                "the server has lost its latest writes, or another program continues this load; \
                 run the same command to continue"
            );
        }
        self.value = value;
        Ok(())
    }
}
