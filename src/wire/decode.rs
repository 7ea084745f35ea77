//! From pieces to a filter.

use super::codec::Filled;
use super::error::DecodeError;
use super::kind::Head;
use super::{chunk, head};
use crate::filter::Filter;
use crate::mem::Words;

/// Builds a filter from its pieces, in order. There is no filter before [`finish`](Decoder::finish), and dropping a
/// decoder frees everything.
///
/// ```
/// use bloomery::wire::{Decoder, Encoder};
/// use bloomery::{Bloom, Spec};
///
/// let filter = Bloom::new(Spec::fixed(1000, 0.01))?;
/// let mut pieces = Vec::new();
/// Encoder::new(&filter).pieces(|piece| pieces.push(piece.to_vec()));
///
/// let [head, chunks @ ..] = &pieces[..] else { unreachable!("the head is always there") };
/// let mut decoder = Decoder::new(head)?;
/// for chunk in chunks {
///     decoder.push(chunk)?;
/// }
/// assert!(decoder.is_complete());
/// assert!(decoder.finish()?.into_bloom().is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    head: Head,
    /// Bytes of each array of cells.
    lens: Vec<u64>,
    /// The arrays that have begun.
    arrays: Vec<Filled>,
    /// Bytes of the body read so far.
    offset: u64,
    /// Bytes of the newest array read so far.
    inside: u64,
}

impl Decoder {
    /// Reads the head. Allocates no cells.
    ///
    /// # Errors
    /// What is wrong with the head.
    pub fn new(head: &[u8]) -> Result<Decoder, DecodeError> {
        let head = head::decode(head)?;
        let lens = head.arrays();
        Ok(Decoder { head, lens, arrays: Vec::new(), offset: 0, inside: 0 })
    }

    /// Whether the pieces belong to a cuckoo filter rather than a Bloom filter.
    pub fn is_cuckoo(&self) -> bool {
        matches!(self.head, Head::Cuckoo(_))
    }

    /// Bytes of cells that the filter will have.
    pub fn body_len(&self) -> u64 {
        // Equals the body length in the head, which was compared with this sum.
        self.lens.iter().fold(0, |sum, len| sum.saturating_add(*len))
    }

    /// Bytes of cells that have not been allocated yet.
    pub fn unallocated(&self) -> u64 {
        self.lens.iter().skip(self.arrays.len()).fold(0, |sum, len| sum.saturating_add(*len))
    }

    /// Bytes of cells read so far. Chunks come in order.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether every chunk has been read.
    pub fn is_complete(&self) -> bool {
        self.arrays.len() == self.lens.len() && self.inside == self.current_len()
    }

    /// Bytes of the array that is being filled.
    fn current_len(&self) -> u64 {
        self.arrays.len().checked_sub(1).and_then(|index| self.lens.get(index)).copied().unwrap_or(0)
    }

    /// Reads the next chunk. An array is allocated once its first chunk has been checked, so that a head alone cannot
    /// ask for memory.
    ///
    /// # Errors
    /// What is wrong with the chunk. The decoder is unchanged then.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), DecodeError> {
        let (offset, stamp, data) = chunk::open(piece)?;
        if stamp != self.head.stamp() {
            return Err(DecodeError::StampMismatch);
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

    /// The finished filter.
    ///
    /// # Errors
    /// [`DecodeError::Length`] if chunks are missing, [`DecodeError::Field`] if cells are set that no operation of the
    /// filter sets.
    pub fn finish(self) -> Result<Filter, DecodeError> {
        if !self.is_complete() {
            return Err(DecodeError::Length("body"));
        }
        self.head.build(self.arrays)
    }

    /// Reads a filter whose pieces follow each other, as in a file.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn read(bytes: &[u8]) -> Result<Filter, DecodeError> {
        let head_len = head::len(bytes)?;
        let (head, mut rest) = bytes.split_at_checked(head_len).ok_or(DecodeError::Length("head"))?;
        let mut decoder = Decoder::new(head)?;
        while !decoder.is_complete() {
            let piece_len = chunk::len(rest)?;
            let (piece, next) = rest.split_at_checked(piece_len).ok_or(DecodeError::Length("chunk"))?;
            decoder.push(piece)?;
            rest = next;
        }
        if rest.is_empty() { decoder.finish() } else { Err(DecodeError::Length("body")) }
    }
}
