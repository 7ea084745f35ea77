//! What a backup has: which file is for which key.

use crate::command::migrate::Skipped;
use crate::command::migrate::side::Side;
use serde::{Deserialize, Serialize};

/// The version of the manifest.
pub(super) const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
pub(in crate::command) struct Manifest {
    pub(in crate::command) format: u32,
    /// Version of the program that wrote the backup.
    pub(super) program: String,
    /// Unix times in milliseconds, by the clock of the machine that wrote the backup.
    pub(super) began_ms: u64,
    pub(super) ended_ms: u64,
    /// Pattern of the names of keys.
    pub(super) r#match: String,
    pub(super) servers: Vec<Origin>,
    pub(in crate::command) keys: Vec<Saved>,
    /// Keys that could not be saved.
    pub(in crate::command) failed: Vec<Unsaved>,
    /// Keys that are neither filters nor sketches.
    #[serde(skip_deserializing)]
    pub(super) skipped: Vec<Skipped>,
}

/// A server whose keys the backup has.
#[derive(Serialize, Deserialize)]
pub(super) struct Origin {
    address: String,
    /// Names and versions of the server and the module; `null` if the user has no permission to run INFO.
    server: Option<String>,
    module: Option<String>,
}

/// A key that was saved.
#[derive(Serialize, Deserialize)]
pub(in crate::command) struct Saved {
    /// The name, with bytes that aren't printable text as `\x..`, and a backslash as `\\`.
    pub(in crate::command) key: String,
    /// The type, as the TYPE command returns it.
    pub(in crate::command) r#type: String,
    pub(in crate::command) file: String,
    pub(in crate::command) bytes: u64,
    /// Number of items when the download began; `null` for a sketch.
    pub(super) items: Option<u64>,
    /// Unix time in milliseconds at which the key expires.
    pub(in crate::command) expires_ms: Option<u64>,
}

/// A key that could not be saved, and why.
#[derive(Serialize, Deserialize)]
pub(in crate::command) struct Unsaved {
    pub(in crate::command) key: String,
    pub(in crate::command) why: String,
}

impl Origin {
    /// Asks a server for the versions of itself, and of the module that is loaded under this name.
    pub(super) fn of(side: &mut Side, module: &str) -> Origin {
        let info = side.ask::<String>(redis::cmd("INFO").arg("server").arg("modules")).unwrap_or_default();
        let after = |start: &str| info.lines().find_map(|line| line.strip_prefix(start));
        let valkey = after("valkey_version:").map(|version| format!("Valkey {version}"));
        let server = valkey.or_else(|| after("redis_version:").map(|version| format!("Redis {version}")));
        let module = after(&format!("module:name={module},ver="))
            .and_then(|rest| rest.split(',').next())
            .map(|version| format!("{module} {version}"));
        Origin { address: side.address.clone(), server, module }
    }
}
