//! What an inspection found.

use crate::output::Name;
use bloomery::Summary;
use serde::Serialize;
use std::path::PathBuf;

/// What a file contains.
#[derive(Default, Serialize)]
pub(super) struct Report {
    pub(super) file: PathBuf,
    /// `filter`, `dump`, `rdb` or `backup`.
    pub(super) format: &'static str,
    /// Version of the format.
    pub(super) version: Option<u32>,
    /// Server that wrote an RDB file.
    pub(super) server: Option<String>,
    /// Number of keys of all types in an RDB file.
    pub(super) keys: Option<u64>,
    /// Whether the file has a checksum.
    pub(super) checksum: bool,
    /// What is damaged in the file itself.
    pub(super) error: Option<String>,
    /// What is wrong with the files of a backup.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) problems: Vec<String>,
    pub(super) filters: Vec<Entry>,
}

/// One filter or sketch.
#[derive(Default, Serialize)]
pub(super) struct Entry {
    pub(super) database: Option<u64>,
    pub(super) key: Option<Name>,
    pub(super) key_type: Option<&'static str>,
    pub(super) expires_ms: Option<u64>,
    /// Offset of the filter in the file.
    pub(super) at_byte: u64,
    /// What is damaged in the filter.
    pub(super) error: Option<String>,
    pub(super) filter: Option<Summary>,
}
