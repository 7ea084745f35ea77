//! What a load has done.

use crate::output::{self, Name, count};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Report {
    pub(super) key: Name,
    pub(super) items_read: u64,
    /// Items that were absent before; `None` with --rebuild, where the server doesn't report them.
    pub(super) items_new: Option<u64>,
    pub(super) blank_lines: u64,
    pub(super) input_bytes: u64,
    pub(super) resumed_from: u64,
    pub(super) seconds: f64,
}

impl Report {
    pub(super) fn print(&self, json: bool) -> anyhow::Result<()> {
        let mut text = format!("{}: {} items in", self.key, count(self.items_read));
        if let Some(new) = self.items_new {
            text.push_str(&format!(", {} of them new", count(new)));
        }
        if self.blank_lines > 0 {
            text.push_str(&format!(", {} empty lines skipped", count(self.blank_lines)));
        }
        output::report(self, json, format!("{text}, in {:.1} s", self.seconds))
    }
}
