//! Batches of items, of bounded size.

use crate::error::Failure;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use xxhash_rust::xxh3::xxh3_64;

/// An item in the input.
pub(super) struct Item<'f> {
    pub(super) bytes: &'f [u8],
    /// Offset after the item and its line end.
    pub(super) end: u64,
    /// Whether the input ended before the item's line end.
    pub(super) is_open: bool,
}

/// The position of a batch in the input, and a digest of the input up to the end of the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Span {
    /// Offset of the batch's first byte.
    pub(crate) start: u64,
    /// Offset after the batch's last byte.
    pub(crate) end: u64,
    /// XXH3-64 of the input's bytes before `end`.
    pub(crate) digest: u64,
    /// XXH3-64 of the batch's last item, if the input ends without a line end. Such an item is open: it may grow.
    pub(crate) open: Option<u64>,
}

/// `start:end:digest:open`, where `open` may be empty.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{:016x}:", self.start, self.end, self.digest)?;
        self.open.map_or(Ok(()), |open| write!(f, "{open:016x}"))
    }
}

impl FromStr for Span {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Span, Failure> {
        let number = |text: &str, radix| u64::from_str_radix(text, radix).ok();
        let parts: Vec<&str> = text.split(':').collect();
        let span = match parts[..] {
            [start, end, digest, open] => (number(start, 10).zip(number(end, 10)).zip(number(digest, 16)))
                .filter(|_| open.is_empty() || number(open, 16).is_some())
                .map(|((start, end), digest)| Span { start, end, digest, open: number(open, 16) }),
            _ => None,
        };
        span.ok_or_else(|| {
            Failure::Data(format!("the account of the load is damaged: {text:?} is not a part of an input"))
        })
    }
}

impl TryFrom<String> for Span {
    type Error = Failure;

    fn try_from(text: String) -> Result<Span, Failure> {
        text.parse()
    }
}

impl From<Span> for String {
    fn from(span: Span) -> String {
        span.to_string()
    }
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
    pub(crate) span: Span,
    /// What the batch contains before its last item or empty line.
    pub(crate) before_last: Count,
}

/// What the first part of a batch contains, and where it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Offset of the part's end.
    pub(crate) offset: u64,
    pub(crate) items: u64,
    /// Number of empty lines.
    pub(crate) blank: u64,
}

/// Size at which a batch is full. The item that reaches a limit is the last one of the batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
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
        Batch { span: Span { start: offset, end: offset, ..Span::default() }, ..Batch::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.span.end == self.span.start
    }

    /// XXH3-64 of the last item, or of an empty string if the last line is empty.
    pub(crate) fn digest_of_last(&self) -> u64 {
        let is_item = self.items > self.before_last.items;
        xxh3_64(items_of(&self.blob).last().filter(|_| is_item).unwrap_or_default())
    }

    pub(super) fn push(&mut self, item: &[u8]) -> Result<(), Failure> {
        let length = u32::try_from(item.len())
            .map_err(|_| Failure::Data(format!("an item has {} bytes; the maximum is 4 GiB", item.len())))?;
        self.blob.extend_from_slice(&length.to_le_bytes());
        self.blob.extend_from_slice(item);
        self.items += 1;
        Ok(())
    }

    /// Drops the items that an earlier run loaded: item i if `taken[i]` is true. Items after the end of `taken` stay.
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
