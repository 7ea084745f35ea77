//! Items from lines or from a column, in batches of bounded size: memory doesn't grow with the input.

use super::batch::{Batch, BatchLimits, Item};
use super::column::Column;
use super::lines::Lines;
use super::source::{BUFFER, HashedInput};
use crate::error::Failure;
use anyhow::Context;

/// Reads items in batches.
pub(crate) struct Items {
    form: ItemReader,
    /// Offset of the next item.
    offset: u64,
    keep_blank: bool,
    name: String,
}

/// The form of the input.
pub(super) enum ItemReader {
    Lines(Box<Lines>),
    Column(Box<Column>),
}

impl ItemReader {
    fn source(&mut self) -> &mut HashedInput {
        match self {
            ItemReader::Lines(lines) => lines.source(),
            ItemReader::Column(column) => column.source(),
        }
    }
}

impl Items {
    pub(super) fn new(form: ItemReader, keep_blank: bool, name: String) -> Items {
        Items { form, offset: 0, keep_blank, name }
    }

    /// Length of the text in bytes, if known.
    pub(crate) fn length(&mut self) -> Option<u64> {
        self.form.source().length()
    }

    /// Returns the next batch; `None` at the end.
    pub(crate) fn next_batch(&mut self, limits: BatchLimits) -> anyhow::Result<Option<Batch>> {
        let mut batch = self.read_until(|batch| batch.is_full(limits), limits.bytes)?;
        if batch.is_empty() {
            return Ok(None);
        }
        batch.span.digest = self.form.source().digest(batch.span.end);
        Ok(Some(batch))
    }

    /// Skips what an earlier run has loaded: everything before `offset`, the end of an item. Refuses an input whose
    /// bytes before `offset` have another digest.
    pub(crate) fn skip_to(&mut self, offset: u64, digest: u64) -> anyhow::Result<()> {
        while self.offset < offset {
            // In parts, because it may be long.
            let is_whole =
                |part: &Batch| part.span.end >= offset || part.blob.len() + part.blank as usize >= BUFFER;
            if self.read_until(is_whole, BUFFER)?.is_empty() {
                break;
            }
        }
        let (name, source) = (&self.name, self.form.source());
        let length = source.read_so_far();
        let why = if length < offset {
            format!("{name} has {length} bytes, but {offset} were loaded before")
        } else if source.digest(offset) != digest {
            format!("the first {offset} bytes of {name} are not those that were loaded before")
        } else {
            return Ok(());
        };
        Err(Failure::Data(format!("{why}: it is not the same input")).into())
    }

    /// Reads items until `is_whole` returns true, or to the end of the input. The digest of the batch's span isn't
    /// computed yet.
    fn read_until(&mut self, is_whole: impl Fn(&Batch) -> bool, bytes: usize) -> anyhow::Result<Batch> {
        let mut batch = Batch::at(self.offset);
        // Most batches are as large as the limits allow, so their memory is reserved at once.
        batch.blob.reserve(bytes.min(BUFFER * 4));
        while !is_whole(&batch) {
            let next = match &mut self.form {
                ItemReader::Lines(lines) => {
                    lines.next().with_context(|| format!("cannot read {}", self.name))?
                }
                ItemReader::Column(column) => column.next(&self.name)?,
            };
            let Some(Item { bytes, end, is_open }) = next else { break };
            if bytes.is_empty() && !self.keep_blank {
                batch.blank += 1;
            } else {
                batch.push(bytes)?;
            }
            batch.span.end = end;
            self.offset = end;
            self.form.source().use_until(end);
            if is_open {
                batch.span.is_open = true;
                break;
            }
        }
        Ok(batch)
    }
}
