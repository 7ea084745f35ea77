//! Items from lines or from a column, in batches of bounded size: memory doesn't grow with the input.

use super::batch::{Batch, Count, Item, Limits, Span};
use super::column::Column;
use super::lines::Lines;
use super::source::{BUFFER, Source};
use crate::error::Failure;
use anyhow::Context;

/// Reads items in batches.
pub(crate) struct Items {
    form: Form,
    /// Offset of the next item.
    offset: u64,
    keep_blank: bool,
    name: String,
}

/// The form of the input.
pub(super) enum Form {
    Lines(Box<Lines>),
    Column(Box<Column>),
}

impl Form {
    fn source(&mut self) -> &mut Source {
        match self {
            Form::Lines(lines) => lines.source(),
            Form::Column(column) => column.source(),
        }
    }
}

impl Items {
    pub(super) fn new(form: Form, keep_blank: bool, name: String) -> Items {
        Items { form, offset: 0, keep_blank, name }
    }

    /// Returns the next batch; `None` at the end.
    pub(crate) fn next_batch(&mut self, limits: Limits) -> anyhow::Result<Option<Batch>> {
        let mut batch = self.read_until(|batch| batch.is_full(limits), limits.bytes)?;
        if batch.is_empty() {
            return Ok(None);
        }
        batch.span.digest = self.form.source().digest(batch.span.end);
        Ok(Some(batch))
    }

    /// Reads the last batch of an earlier run again. Refuses an input that differs before the end of that batch. If the
    /// batch ends with an open item, the item may have grown.
    pub(crate) fn again(&mut self, before: &Span) -> anyhow::Result<Batch> {
        while self.offset < before.start {
            // The input before the batch is read in parts, because it may be long.
            let is_whole = |part: &Batch| {
                part.span.end >= before.start || part.blob.len() + part.blank as usize >= BUFFER
            };
            if self.read_until(is_whole, BUFFER)?.is_empty() {
                break;
            }
        }
        let mut batch = self.read_until(|batch| batch.span.end >= before.end, BUFFER)?;
        let source = self.form.source();
        let (name, end, length) = (&self.name, before.end, source.read_so_far());
        let same = if length < end {
            Err(format!("{name} has {length} bytes, but {end} were loaded before"))
        } else if end > 0 && source.digest(end) != before.digest {
            Err(format!("the first {end} bytes of {name} are not those that were loaded before"))
        } else {
            Ok(())
        };
        same.map_err(|why| {
            Failure::Data(format!(
                "{why}: it is not the same input. Delete the file of --resume to load it from its start"
            ))
        })?;
        batch.span.digest = source.digest(batch.span.end);
        Ok(batch)
    }

    /// Reads items until `is_whole` returns true, or to the end of the input. The digest of the batch's span isn't
    /// computed yet.
    fn read_until(&mut self, is_whole: impl Fn(&Batch) -> bool, bytes: usize) -> anyhow::Result<Batch> {
        let mut batch = Batch::at(self.offset);
        // Most batches are as large as the limits allow, so their memory is reserved at once.
        batch.blob.reserve(bytes.min(BUFFER * 4));
        while !is_whole(&batch) {
            let next = match &mut self.form {
                Form::Lines(lines) => lines.next().with_context(|| format!("cannot read {}", self.name))?,
                Form::Column(column) => column.next(&self.name)?,
            };
            let Some(Item { bytes, end, is_open }) = next else { break };
            batch.before_last = Count { offset: batch.span.end, items: batch.items, blank: batch.blank };
            if bytes.is_empty() && !self.keep_blank {
                batch.blank += 1;
            } else {
                batch.push(bytes)?;
            }
            batch.span.end = end;
            self.offset = end;
            self.form.source().use_until(end);
            if is_open {
                batch.span.open = Some(batch.digest_of_last());
                break;
            }
        }
        Ok(batch)
    }
}
