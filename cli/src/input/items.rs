//! Items from lines or from a column, in batches of bounded size: memory doesn't grow with the input.

use super::batch::{Batch, Limits};
use super::column::Column;
use super::lines::Lines;
use super::source::BUFFER;
use anyhow::Context;

/// Reads items in batches.
pub(crate) struct Items {
    form: Form,
    /// Offset of the next item.
    offset: u64,
    keep_blank: bool,
    name: String,
}

/// Where items start and end.
pub(super) enum Form {
    Lines(Lines),
    Column(Box<Column>),
}

impl Items {
    pub(super) fn new(form: Form, offset: u64, keep_blank: bool, name: String) -> Items {
        Items { form, offset, keep_blank, name }
    }

    /// Returns the next batch; `None` at the end.
    pub(crate) fn next_batch(&mut self, limits: Limits) -> anyhow::Result<Option<Batch>> {
        let mut batch = Batch { start: self.offset, end: self.offset, ..Batch::default() };
        // Most batches are as large as the limits allow.
        batch.blob.reserve(limits.bytes.min(BUFFER * 4));
        while !batch.is_full(limits) {
            let (item, end) = match &mut self.form {
                Form::Lines(lines) => {
                    match lines.next().with_context(|| format!("cannot read {}", self.name))? {
                        Some((line, length)) => (line, self.offset + length),
                        None => break,
                    }
                }
                Form::Column(column) => match column.next(&self.name)? {
                    Some((field, end)) => (field, end),
                    None => break,
                },
            };
            if item.is_empty() && !self.keep_blank {
                batch.blank += 1;
            } else {
                batch.push(item)?;
            }
            self.offset = end;
        }
        batch.end = self.offset;
        Ok((batch.end > batch.start || batch.items > 0).then_some(batch))
    }
}
