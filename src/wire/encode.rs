//! Writes a filter as pieces.

use super::format::CHUNK;
use super::{chunk, head, redisbloom};
use crate::filter::foreign::Scheme;
use crate::filter::{Array, FilterRef, Origin};
use crate::mem::Words;
use alloc::vec::Vec;
use core::cell::OnceCell;

/// Writes a filter piece by piece. The encoder keeps no position, so a caller can request any chunk at any time, as a
/// dump over several commands does.
///
/// Filters from RedisBloom are written as RedisBloom writes them, unless [`native`](Encoder::native) is used.
///
/// ```
/// use bloomery::wire::{Decoder, Encoder, MAGIC};
/// use bloomery::{Bloom, Spec};
///
/// let filter = Bloom::new(Spec::scaling(1000, 0.01))?;
/// let encoder = Encoder::new(&filter);
/// assert!(encoder.head().starts_with(&MAGIC));
///
/// // Each chunk says where the next one begins.
/// let (mut bytes, mut piece, mut offset) = (encoder.head().to_vec(), Vec::new(), 0);
/// while let Some(next) = encoder.chunk(offset, &mut piece) {
///     bytes.extend_from_slice(&piece);
///     offset = next;
/// }
/// assert_eq!(bytes, encoder.to_vec());
/// # Ok::<(), bloomery::Error>(())
/// ```
pub struct Encoder<'a> {
    filter: FilterRef<'a>,
    format: Format,
    dump_number: u16,
    /// Computed on request, as is the stamp. Each command of a dump creates a new encoder, and computing the head or
    /// the stamp takes as long as opening the key.
    head: OnceCell<Vec<u8>>,
    /// The stamp that each chunk carries in our format.
    stamp: OnceCell<u32>,
}

/// The format of the pieces.
#[derive(Clone, Copy, PartialEq)]
enum Format {
    /// Our own format.
    Native,
    RedisBloom,
}

/// An array of cells, and how many of its bytes are written.
#[derive(Clone, Copy)]
struct Part<'a> {
    array: Array<'a>,
    /// The number of bytes or, for a table, of positions.
    len: u64,
}

impl<'a> Encoder<'a> {
    /// Prepares to write a filter of any kind, in the format of its origin.
    pub fn new(filter: impl Into<FilterRef<'a>>) -> Encoder<'a> {
        Encoder::with(filter.into(), 0)
    }

    /// Like [`new`](Encoder::new), but for a dump whose pieces are requested one by one. A number in the pieces
    /// identifies this filter. If another filter of the same shape replaces it during the dump, loading refuses the
    /// mixture. A filter that fits into one chunk doesn't need the number, and RedisBloom's pieces have no field for
    /// it.
    pub fn dump(filter: impl Into<FilterRef<'a>>) -> Encoder<'a> {
        let filter = filter.into();
        let is_short = |array: Array<'_>| match array {
            Array::Cells(words) => Words::bytes_of(words) <= CHUNK as u64,
            Array::Table(layer) => layer.bytes() <= CHUNK as u64 / 4,
        };
        let mut arrays = filter.arrays();
        let is_one_chunk = arrays.next().is_none_or(is_short) && arrays.next().is_none();
        Encoder::with(filter, if is_one_chunk { 0 } else { filter.dump_number() })
    }

    fn with(filter: FilterRef<'a>, dump_number: u16) -> Encoder<'a> {
        let is_redisblooms = match filter {
            FilterRef::Foreign(filter) => matches!(filter.scheme(), Scheme::RedisBloom(_)),
            FilterRef::Cuckoo(filter) => filter.spec().origin != Origin::Bloomery,
            _ => false,
        };
        let format = if is_redisblooms { Format::RedisBloom } else { Format::Native };
        Encoder { format, dump_number, ..Encoder::native(filter) }
    }

    /// Prepares to write a filter of any kind in our format.
    pub fn native(filter: impl Into<FilterRef<'a>>) -> Encoder<'a> {
        let (head, stamp) = Default::default();
        Encoder { filter: filter.into(), format: Format::Native, dump_number: 0, head, stamp }
    }

    /// The first piece.
    pub fn head(&self) -> &[u8] {
        self.head.get_or_init(|| self.write_head())
    }

    /// The first piece, for callers that need no other piece.
    pub fn into_head(mut self) -> Vec<u8> {
        self.head.take().unwrap_or_else(|| self.write_head())
    }

    fn write_head(&self) -> Vec<u8> {
        match (self.format, self.filter) {
            (Format::RedisBloom, FilterRef::Foreign(filter)) => redisbloom::bloom_head(filter),
            (Format::RedisBloom, FilterRef::Cuckoo(filter)) => redisbloom::cuckoo_head(filter),
            (_, filter) => head::encode(filter, self.dump_number),
        }
    }

    /// Writes the chunk that begins at `offset` in the body to `piece`, and returns the offset of the next chunk.
    /// Returns `None` at the end of the body or, in our format, if `offset` isn't a multiple of 8. A chunk contains at
    /// most [`CHUNK`] bytes of one array, or some leaves of a table. RedisBloom's own chunks are 16 times as long, and
    /// it accepts any length.
    pub fn chunk(&self, offset: u64, piece: &mut Vec<u8>) -> Option<u64> {
        if self.format == Format::Native && !offset.is_multiple_of(8) {
            return None;
        }
        // The array that contains the offset, and the offset inside that array.
        let mut inside = offset;
        let array = self.arrays().find(|array| match inside.checked_sub(array.len) {
            Some(rest) => {
                inside = rest;
                false
            }
            None => true,
        })?;
        self.write(array, offset, inside, piece)
    }

    /// Writes to `piece` the chunk that starts at `offset` in the body, which is byte `inside` of `array`. Returns the
    /// offset of the next chunk.
    fn write(&self, part: Part<'_>, offset: u64, inside: u64, piece: &mut Vec<u8>) -> Option<u64> {
        let prefix = match self.format {
            Format::Native => chunk::PREFIX,
            Format::RedisBloom => 0,
        };
        let words = match part.array {
            Array::Cells(words) => words,
            Array::Table(layer) => {
                let mut words = Vec::new();
                let end = layer.reading()?.write(inside, chunk::TABLE_WORDS, &mut words)?;
                piece.clear();
                piece.resize(prefix, 0);
                chunk::put_words(piece, &words);
                self.seal(piece, offset);
                return offset.checked_add(end.checked_sub(inside)?);
            }
        };
        let end = inside.checked_add(CHUNK as u64)?.min(part.len);
        let len = end.checked_sub(inside)?;
        // Whole words are read. Then the first word's bytes before the offset and the last word's bytes after the end
        // are removed.
        let skipped = usize::try_from(inside % 8).ok()?;
        let end = usize::try_from(len).ok()?.checked_add(skipped)?;
        piece.clear();
        piece.resize(prefix.checked_add(end.next_multiple_of(8))?, 0);
        Words::read_bytes(words, usize::try_from(inside / 8).ok()?, piece.get_mut(prefix..)?);
        piece.truncate(prefix.checked_add(end)?);
        piece.drain(prefix..prefix.checked_add(skipped)?);
        if self.format == Format::Native {
            self.seal(piece, offset);
        }
        offset.checked_add(len)
    }

    fn seal(&self, piece: &mut [u8], offset: u64) {
        let stamp = self.stamp.get_or_init(|| head::stamp(self.filter, self.dump_number));
        chunk::seal(piece, offset, *stamp);
    }

    /// Hands every chunk to `sink` in order, each with the offset of the next one.
    pub fn chunks(&self, mut sink: impl FnMut(u64, &[u8])) {
        self.chunks_from(0, |next, piece| {
            sink(next, piece);
            true
        });
    }

    /// Hands chunks to `sink` in order, each with the offset of the next one, from offset `first` until `sink` returns
    /// false. Going in order avoids a search for the array of each chunk.
    pub fn chunks_from(&self, first: u64, mut sink: impl FnMut(u64, &[u8]) -> bool) {
        let (mut start, mut piece) = (0u64, Vec::new());
        for array in self.arrays() {
            let end = start.saturating_add(array.len);
            let mut offset = start.max(first);
            while offset < end {
                match self.write(array, offset, offset.saturating_sub(start), &mut piece) {
                    Some(next) if sink(next, &piece) => offset = next,
                    _ => return,
                }
            }
            start = end;
        }
    }

    /// The offset at which the last chunk ends: the number of cell bytes in all chunks, if there are no tables.
    pub fn body_len(&self) -> u64 {
        self.arrays().fold(0, |sum, array| array.len.saturating_add(sum))
    }

    /// Hands every piece to `sink` in order.
    pub fn pieces(&self, mut sink: impl FnMut(&[u8])) {
        sink(self.head());
        self.chunks(|_, piece| sink(piece));
    }

    /// The arrays, with the lengths that are written.
    fn arrays(&self) -> impl Iterator<Item = Part<'a>> {
        let (filter, format) = (self.filter, self.format);
        filter.arrays().enumerate().map(move |(index, array)| {
            let bytes = match (format, filter) {
                (Format::RedisBloom, FilterRef::Foreign(filter)) => {
                    filter.links().get(index).map(|link| link.spec().bytes)
                }
                (Format::RedisBloom, FilterRef::Cuckoo(filter)) => {
                    filter.tables().get(index).map(|table| filter.spec().slots_of(table.buckets()))
                }
                _ => None,
            };
            Part { array, len: bytes.unwrap_or(array.len()) }
        })
    }

    /// All pieces in one vector, as in a file.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.pieces(|piece| bytes.extend_from_slice(piece));
        bytes
    }
}
