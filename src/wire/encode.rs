//! From a value to pieces.

use super::{CHUNK, chunk, head, redisbloom};
use crate::filter::foreign::Scheme;
use crate::filter::{FilterRef, Origin};
use crate::mem::Words;

/// Writes a value piece by piece. It keeps no position: any chunk can be asked for at any time, which is what a dump
/// over several commands needs.
///
/// What came from RedisBloom is written as RedisBloom writes it, unless [`native`](Encoder::native) is asked for.
pub struct Encoder<'a> {
    value: FilterRef<'a>,
    head: Vec<u8>,
    format: Format,
}

/// Whose pieces.
#[derive(Clone, Copy)]
enum Format {
    /// Ours; each chunk carries the stamp.
    Native {
        stamp: u32,
    },
    RedisBloom,
}

/// An array of cells, and how many bytes of it are written.
#[derive(Clone, Copy)]
struct Array<'a> {
    words: &'a Words,
    bytes: u64,
}

impl<'a> Encoder<'a> {
    /// Prepares to write a filter of any kind, in the format of its origin.
    pub fn new(value: impl Into<FilterRef<'a>>) -> Encoder<'a> {
        let value = value.into();
        let head = match value {
            FilterRef::Foreign(filter) if matches!(filter.scheme(), Scheme::RedisBloom(_)) => {
                redisbloom::bloom_head(filter)
            }
            FilterRef::Cuckoo(filter) if filter.spec().origin != Origin::Bloomery => {
                redisbloom::cuckoo_head(filter)
            }
            _ => return Encoder::native(value),
        };
        Encoder { value, head, format: Format::RedisBloom }
    }

    /// Prepares to write a filter of any kind in our format.
    pub fn native(value: impl Into<FilterRef<'a>>) -> Encoder<'a> {
        let value = value.into();
        let (head, stamp) = head::encode(value);
        Encoder { value, head, format: Format::Native { stamp } }
    }

    /// The first piece.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Puts the chunk that begins at `offset` of the body into `piece` and returns the offset behind it, or `None` at
    /// the end of the body and, in our format, at offsets where no word begins. A chunk holds at most [`CHUNK`] bytes
    /// of one array, in RedisBloom's format [`redisbloom::MAX_PIECE`].
    pub fn chunk(&self, offset: u64, piece: &mut Vec<u8>) -> Option<u64> {
        if matches!(self.format, Format::Native { .. }) && !offset.is_multiple_of(8) {
            return None;
        }
        // The array that holds the offset, and the offset inside it.
        let mut inside = offset;
        let array = self.arrays().find(|array| match inside.checked_sub(array.bytes) {
            Some(behind) => {
                inside = behind;
                false
            }
            None => true,
        })?;
        self.write(array, offset, inside, piece)
    }

    /// Puts the chunk at `offset` of the body, which is byte `inside` of `array`, into `piece`; returns the offset
    /// behind.
    fn write(&self, array: Array<'_>, offset: u64, inside: u64, piece: &mut Vec<u8>) -> Option<u64> {
        let (prefix, most) = match self.format {
            Format::Native { .. } => (chunk::PREFIX, CHUNK as u64),
            Format::RedisBloom => (0, redisbloom::MAX_PIECE),
        };
        let len = array.bytes.saturating_sub(inside).min(most);
        // Words are read whole; what is before the offset in the first of them, and behind the end in the last, goes.
        let skipped = usize::try_from(inside % 8).ok()?;
        let end = usize::try_from(len).ok()?.checked_add(skipped)?;
        piece.clear();
        piece.resize(prefix.checked_add(end.next_multiple_of(8))?, 0);
        array.words.read_bytes(usize::try_from(inside / 8).ok()?, piece.get_mut(prefix..)?);
        piece.truncate(prefix.checked_add(end)?);
        piece.drain(prefix..prefix.checked_add(skipped)?);
        if let Format::Native { stamp } = self.format {
            chunk::seal(piece, offset, stamp);
        }
        offset.checked_add(len)
    }

    /// Hands every chunk to `sink` in order, with the offset behind it.
    pub fn chunks(&self, mut sink: impl FnMut(u64, &[u8])) {
        let (mut start, mut piece) = (0u64, Vec::new());
        for array in self.arrays() {
            let end = start.saturating_add(array.bytes);
            let mut offset = start;
            while offset < end {
                let Some(next) = self.write(array, offset, offset.saturating_sub(start), &mut piece) else {
                    return;
                };
                sink(next, &piece);
                offset = next;
            }
            start = end;
        }
    }

    /// Hands every piece to `sink` in order.
    pub fn pieces(&self, mut sink: impl FnMut(&[u8])) {
        sink(&self.head);
        self.chunks(|_, piece| sink(piece));
    }

    /// The arrays as they are written.
    fn arrays(&self) -> impl Iterator<Item = Array<'a>> {
        let (value, format) = (self.value, self.format);
        value.arrays().enumerate().map(move |(index, words)| {
            let bytes = match (format, value) {
                (Format::RedisBloom, FilterRef::Foreign(filter)) => {
                    filter.links().get(index).map(|link| link.spec().bytes)
                }
                (Format::RedisBloom, FilterRef::Cuckoo(filter)) => {
                    filter.tables().get(index).map(|table| filter.spec().slots_of(table.buckets()))
                }
                _ => None,
            };
            Array { words, bytes: bytes.unwrap_or(words.bytes()) }
        })
    }

    /// All pieces in one vector, as in a file.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.pieces(|piece| bytes.extend_from_slice(piece));
        bytes
    }
}
