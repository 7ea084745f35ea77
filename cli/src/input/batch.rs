//! Batches of items, of bounded size.

use crate::error::Failure;

/// Consecutive items of the input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// The items, each after its length (u32, little-endian): the argument of BF.BULKADD PREFIXED.
    pub(crate) blob: Vec<u8>,
    /// Items in the blob.
    pub(crate) items: u64,
    /// Items that [`drop_first`](Batch::drop_first) removed.
    pub(crate) dropped: u64,
    /// Empty lines that were skipped.
    pub(crate) blank: u64,
    /// Offset of its first byte in the input.
    pub(crate) start: u64,
    /// Offset where the next batch starts.
    pub(crate) end: u64,
}

/// Maximum size of a batch. One item always fits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Number of items.
    pub(crate) items: u64,
    /// Bytes of the blob.
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

/// A blob of these items.
pub(crate) fn blob<'i>(items: impl IntoIterator<Item = &'i [u8]>) -> Result<Vec<u8>, Failure> {
    let mut batch = Batch::default();
    items.into_iter().try_for_each(|item| batch.push(item))?;
    Ok(batch.blob)
}

impl Batch {
    pub(super) fn push(&mut self, item: &[u8]) -> Result<(), Failure> {
        let length = u32::try_from(item.len())
            .map_err(|_| Failure::Data(format!("an item has {} bytes; the maximum is 4 GiB", item.len())))?;
        self.blob.extend_from_slice(&length.to_le_bytes());
        self.blob.extend_from_slice(item);
        self.items += 1;
        Ok(())
    }

    /// Drops the first `count` items, which an earlier run loaded.
    pub(crate) fn drop_first(&mut self, count: u64) {
        self.dropped = count.min(self.items);
        let dropped: usize = items_of(&self.blob)
            .take(usize::try_from(count).unwrap_or(usize::MAX))
            .map(|item| size_of::<u32>() + item.len())
            .sum();
        self.blob.drain(..dropped);
        self.items -= self.dropped;
    }

    pub(super) fn is_full(&self, limits: Limits) -> bool {
        self.items >= limits.items || self.blob.len() >= limits.bytes
    }
}
