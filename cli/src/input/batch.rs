//! Batches of items, of bounded size.

use crate::error::Failure;

/// An item in the input.
pub(super) struct Item<'f> {
    pub(super) bytes: &'f [u8],
    /// Offset after the item and its line end.
    pub(super) end: u64,
    /// Whether the input ended before the item's line end.
    pub(super) is_open: bool,
}

/// The position of a batch in the input, and a digest of the input up to the end of the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ByteSpan {
    /// Offset of the batch's first byte.
    pub(crate) start: u64,
    /// Offset after the batch's last byte.
    pub(crate) end: u64,
    /// XXH3-64 of the input's bytes before `end`.
    pub(crate) digest: u64,
    /// Whether the input ends without a line end. The last item is then open: it may grow.
    pub(crate) is_open: bool,
}

/// Consecutive items of the input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// The items, each after its length (u32, little-endian): the argument of BF.BULKADD PREFIXED.
    pub(crate) blob: Vec<u8>,
    /// Number of items in the blob.
    pub(crate) items: u64,
    /// Number of empty lines that were skipped.
    pub(crate) blank: u64,
    pub(crate) span: ByteSpan,
}

/// Size at which a batch is full. The item that reaches a limit is the last one of the batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLimits {
    /// Number of items.
    pub(crate) items: u64,
    /// Size of the blob in bytes.
    pub(crate) bytes: usize,
}

/// The items of a blob.
pub(crate) fn items_of(blob: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = blob;
    std::iter::from_fn(move || {
        let (length, behind) = rest.split_first_chunk()?;
        let (item, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        rest = behind;
        Some(item)
    })
}

/// Packs these items into a blob.
pub(crate) fn blob<'i>(items: impl IntoIterator<Item = &'i [u8]>) -> Result<Vec<u8>, Failure> {
    let mut batch = Batch::default();
    items.into_iter().try_for_each(|item| batch.push(item))?;
    Ok(batch.blob)
}

impl Batch {
    /// An empty batch at this offset.
    pub(super) fn at(offset: u64) -> Batch {
        Batch { span: ByteSpan { start: offset, end: offset, ..ByteSpan::default() }, ..Batch::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.span.end == self.span.start
    }

    pub(super) fn push(&mut self, item: &[u8]) -> Result<(), Failure> {
        let length = u32::try_from(item.len())
            .map_err(|_| Failure::Data(format!("an item has {} bytes; the maximum is 4 GiB", item.len())))?;
        self.blob.extend_from_slice(&length.to_le_bytes());
        self.blob.extend_from_slice(item);
        self.items += 1;
        Ok(())
    }

    pub(super) fn is_full(&self, limits: BatchLimits) -> bool {
        self.items >= limits.items || self.blob.len() >= limits.bytes
    }
}
