//! From pieces to a value.

use super::head::{self, Description};
use super::{DecodeError, chunk};
use crate::filter::Filter;
use crate::mem::Words;

/// Builds a value from its pieces, in order. Until [`finish`](Decoder::finish) there is no filter that anyone could
/// ask, and a decoder that is dropped leaves nothing behind.
#[derive(Debug)]
pub struct Decoder {
    description: Description,
    /// Bytes of each array of cells.
    lens: Vec<u64>,
    /// The arrays that have begun.
    arrays: Vec<Filled>,
    /// Bytes of the body read so far.
    offset: u64,
    /// Bytes of the newest array read so far.
    inside: u64,
}

/// An array of cells that is being filled.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) words: Words,
    /// Ones, counted chunk by chunk while each is in the cache: counting them at the end would read all again.
    pub(super) ones: u64,
}

impl Decoder {
    /// Reads the head. Allocates nothing but what the head itself takes.
    ///
    /// # Errors
    /// What is wrong with the head.
    pub fn new(head: &[u8]) -> Result<Decoder, DecodeError> {
        let description = head::decode(head)?;
        let lens = description.arrays();
        Ok(Decoder { description, lens, arrays: Vec::new(), offset: 0, inside: 0 })
    }

    /// Whether the pieces are those of a cuckoo filter, and not of a Bloom filter.
    pub fn is_cuckoo(&self) -> bool {
        matches!(self.description, Description::Cuckoo(_))
    }

    /// Bytes of cells that the filter will have.
    pub fn body_len(&self) -> u64 {
        // The head's length of the body has been compared with this sum.
        self.lens.iter().fold(0, |sum, len| sum.saturating_add(*len))
    }

    /// Bytes of cells that have not been allocated yet.
    pub fn unallocated(&self) -> u64 {
        self.lens.iter().skip(self.arrays.len()).fold(0, |sum, len| sum.saturating_add(*len))
    }

    /// Bytes of cells read so far; chunks come in order.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether every chunk has come.
    pub fn is_complete(&self) -> bool {
        self.arrays.len() == self.lens.len() && self.inside == self.current_len()
    }

    /// Bytes of the newest array that has begun.
    fn current_len(&self) -> u64 {
        self.arrays.len().checked_sub(1).and_then(|index| self.lens.get(index)).copied().unwrap_or(0)
    }

    /// Reads the next chunk. An array is allocated when its first chunk has proved sound, so that a head alone cannot
    /// ask for memory.
    ///
    /// # Errors
    /// What is wrong with the chunk; the decoder is as it was.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), DecodeError> {
        let (offset, stamp, data) = chunk::open(piece)?;
        if stamp != self.description.stamp() {
            return Err(DecodeError::Stranger);
        }
        if offset != self.offset || self.is_complete() {
            return Err(DecodeError::Order { expected: self.offset, found: offset });
        }
        let len = data.len() as u64;
        if self.inside == self.current_len() {
            let next = *self.lens.get(self.arrays.len()).ok_or(DecodeError::Length("body"))?;
            if len > next {
                return Err(DecodeError::Length("chunk"));
            }
            self.arrays.push(Filled { words: Words::zeroed(next / 8)?, ones: 0 });
            self.inside = 0;
        }
        let end = self.inside.saturating_add(len);
        if end > self.current_len() {
            return Err(DecodeError::Length("chunk"));
        }
        let first = usize::try_from(self.inside / 8).map_err(|_| DecodeError::Length("body"))?;
        let array = self.arrays.last_mut().ok_or(DecodeError::Length("body"))?;
        array.ones = array.ones.saturating_add(array.words.write_bytes(first, data));
        self.inside = end;
        self.offset = self.offset.saturating_add(len);
        Ok(())
    }

    /// The finished value.
    ///
    /// # Errors
    /// [`DecodeError::Length`] while chunks are missing; [`DecodeError::Field`] where cells are set that none of the
    /// filter's operations sets.
    pub fn finish(self) -> Result<Filter, DecodeError> {
        if !self.is_complete() {
            return Err(DecodeError::Length("body"));
        }
        self.description.build(self.arrays)
    }

    /// Reads a value whose pieces stand one behind the other, as in a file.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn read(bytes: &[u8]) -> Result<Filter, DecodeError> {
        let head_len = head::len(bytes)?;
        let (head, mut rest) = bytes.split_at_checked(head_len).ok_or(DecodeError::Length("head"))?;
        let mut decoder = Decoder::new(head)?;
        while !decoder.is_complete() {
            let piece_len = chunk::len(rest)?;
            let (piece, behind) = rest.split_at_checked(piece_len).ok_or(DecodeError::Length("chunk"))?;
            decoder.push(piece)?;
            rest = behind;
        }
        if rest.is_empty() { decoder.finish() } else { Err(DecodeError::Length("body")) }
    }
}
