//! Batches of items, of bounded size.

use crate::error::Failure;

/// Consecutive items of the input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// The items, each after its length (u32, little-endian): the argument of BF.BULKADD PREFIXED.
    pub(crate) blob: Vec<u8>,
    /// Items in the blob.
    pub(crate) items: u64,
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

    /// Drops the items that an earlier run loaded: those of the first ones whose flag is set.
    pub(crate) fn drop_taken(&mut self, taken: &[bool]) {
        if !taken.contains(&true) {
            return;
        }
        let blob = std::mem::take(&mut self.blob);
        self.items = 0;
        let mut taken = taken.iter();
        for item in items_of(&blob).filter(|_| taken.next() != Some(&true)) {
            self.blob.extend_from_slice(&(item.len() as u32).to_le_bytes());
            self.blob.extend_from_slice(item);
            self.items += 1;
        }
    }

    pub(super) fn is_full(&self, limits: Limits) -> bool {
        self.items >= limits.items || self.blob.len() >= limits.bytes
    }
}
