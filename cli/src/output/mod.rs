//! What subcommands write: tables and text for people, JSON for programs, progress, and files.

pub(crate) mod file;
mod json;
pub(crate) mod progress;
mod table;
mod text;

pub(crate) use bloomery_plan::{bytes, count, percent};
pub(crate) use json::{json, report};
pub(crate) use table::Table;
pub(crate) use text::{Name, escaped, key, shorten, unescaped};
