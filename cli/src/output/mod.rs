//! What subcommands write: tables and numbers for people, JSON for programs, progress, and files.

pub(crate) mod file;
mod json;
pub(crate) mod progress;
mod table;
mod text;

pub(crate) use json::json;
pub(crate) use table::Table;
pub(crate) use text::{bytes, count, key, percent, shorten};
