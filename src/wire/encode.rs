//! From a value to pieces.

use super::{CHUNK, chunk, head};
use crate::filter::ValueRef;
use crate::mem::Words;

/// Writes a value piece by piece. It keeps no position: any chunk can be asked for at any time, which is what a dump
/// over several commands needs.
pub struct Encoder<'a> {
    value: ValueRef<'a>,
    head: Vec<u8>,
    stamp: u32,
}

impl<'a> Encoder<'a> {
    /// Prepares to write a filter of any kind.
    pub fn new(value: impl Into<ValueRef<'a>>) -> Encoder<'a> {
        let value = value.into();
        let (head, stamp) = head::encode(value);
        Encoder { value, head, stamp }
    }

    /// The first piece.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Puts the chunk that begins at `offset` of the body into `piece` and returns the offset behind it, or `None` at
    /// the end of the body and at offsets where no word begins. A chunk holds at most [`CHUNK`] bytes of one layer or
    /// sub-filter.
    pub fn chunk(&self, offset: u64, piece: &mut Vec<u8>) -> Option<u64> {
        if !offset.is_multiple_of(8) {
            return None;
        }
        // The array that holds the offset, and the offset inside it.
        let mut inside = offset;
        let words = self.value.arrays().find(|words| match inside.checked_sub(words.bytes()) {
            Some(behind) => {
                inside = behind;
                false
            }
            None => true,
        })?;
        self.write(words, offset, inside, piece)
    }

    /// Puts the chunk at `offset` of the body, which is byte `inside` of `words`, into `piece`; returns the offset behind.
    fn write(&self, words: &Words, offset: u64, inside: u64, piece: &mut Vec<u8>) -> Option<u64> {
        let len = words.bytes().saturating_sub(inside).min(CHUNK as u64);
        piece.clear();
        piece.resize(chunk::PREFIX.saturating_add(usize::try_from(len).ok()?), 0);
        words.read_bytes(usize::try_from(inside / 8).ok()?, piece.get_mut(chunk::PREFIX..)?);
        chunk::seal(piece, offset, self.stamp);
        offset.checked_add(len)
    }

    /// Hands every chunk to `sink` in order, with the offset behind it.
    pub fn chunks(&self, mut sink: impl FnMut(u64, &[u8])) {
        let (mut start, mut piece) = (0u64, Vec::new());
        for words in self.value.arrays() {
            let end = start.saturating_add(words.bytes());
            let mut offset = start;
            while offset < end {
                let Some(next) = self.write(words, offset, offset.saturating_sub(start), &mut piece) else {
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

    /// All pieces in one vector, as in a file.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.pieces(|piece| bytes.extend_from_slice(piece));
        bytes
    }
}
