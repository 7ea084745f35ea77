//! From pieces to a filter.

use super::arrival::{Allocation, Arrival, Filled};
use super::error::DecodeError;
use super::format::CHUNK;
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
    /// The stamp that its chunks carry.
    stamp: u32,
    /// Bytes of all arrays.
    body_len: u64,
    /// Bytes of the largest array.
    largest: u64,
    allocation: Allocation,
    /// The arrays that are complete.
    arrays: Vec<Filled>,
    /// Bytes of the complete arrays.
    filled: u64,
    /// The array that has begun.
    current: Option<Box<Arrival>>,
}

impl Decoder {
    /// Reads the head. Allocates no cells.
    ///
    /// # Errors
    /// What is wrong with the head.
    pub fn new(head: &[u8]) -> Result<Decoder, DecodeError> {
        let (head, stamp) = head::decode(head)?;
        let body_len = head.body_len().ok_or(DecodeError::Length("body"))?;
        let largest = (0..).map_while(|index| head.array(index)).max().unwrap_or(0);
        let allocation = Allocation::AtOnce;
        Ok(Decoder {
            head,
            stamp,
            body_len,
            largest,
            allocation,
            arrays: Vec::new(),
            filled: 0,
            current: None,
        })
    }

    /// Makes the decoder allocate memory in proportion to the chunks that have arrived, at most three times as much,
    /// rather than a whole array with its first chunk. When half of an array has arrived, the memory for the whole
    /// array is allocated in addition to that half, so both together need one and a half times the array. Meant for
    /// senders that may not send all chunks.
    #[must_use]
    pub fn in_proportion(self) -> Decoder {
        Decoder { allocation: Allocation::InProportion, ..self }
    }

    /// Whether the pieces belong to a cuckoo filter rather than a Bloom filter.
    pub fn is_cuckoo(&self) -> bool {
        matches!(self.head, Head::Cuckoo(_))
    }

    /// Bytes of cells that the filter will have.
    pub fn body_len(&self) -> u64 {
        self.body_len
    }

    /// Approximate maximum of the bytes of memory that its chunks need, if it allocates [in
    /// proportion](Decoder::in_proportion): all arrays, and half of the largest in addition.
    pub fn most_held(&self) -> u64 {
        self.body_len.saturating_add(self.largest / 2)
    }

    /// Approximate bytes of memory that the chunks read so far occupy.
    pub fn held(&self) -> u64 {
        self.filled.saturating_add(self.current.as_ref().map_or(0, |current| current.held()))
    }

    /// Bytes of cells that a chunk with `len` bytes of them would have allocated in addition: an array, or 0.
    pub fn would_allocate(&self, len: u64) -> u64 {
        match &self.current {
            Some(current) => current.would_allocate(current.arrived(), len),
            None => self.next_array().map_or(0, |next| next.would_allocate(0, len)),
        }
    }

    /// Bytes of cells read so far. Chunks arrive in order.
    pub fn offset(&self) -> u64 {
        self.filled.saturating_add(self.inside())
    }

    /// Bytes of the current array that have been read so far.
    fn inside(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.arrived())
    }

    /// Whether every chunk has been read.
    pub fn is_complete(&self) -> bool {
        self.filled == self.body_len
    }

    /// The array after the complete ones, if there is one.
    fn next_array(&self) -> Option<Box<Arrival>> {
        let index = self.arrays.len();
        let len = self.head.array(index)?;
        Some(Box::new(Arrival::new(len, self.allocation, self.head.place(index))))
    }

    /// Reads the next chunk. An array is allocated once its first chunk has been checked, so that a head alone cannot
    /// ask for memory. See also [`in_proportion`](Decoder::in_proportion).
    ///
    /// # Errors
    /// What is wrong with the chunk. The decoder is unchanged then.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), DecodeError> {
        let (offset, stamp, data) = chunk::open(piece)?;
        if stamp != self.stamp {
            return Err(DecodeError::StampMismatch);
        }
        let expected = self.offset();
        if offset != expected || self.is_complete() {
            return Err(DecodeError::Order { expected, found: offset });
        }
        let current = match self.current.take() {
            Some(current) => current,
            None => self.next_array().ok_or(DecodeError::Length("body"))?,
        };
        let current = self.current.insert(current);
        let inside = current.arrived();
        if data.len() as u64 > current.len().saturating_sub(inside) {
            return Err(DecodeError::Length("chunk"));
        }
        current.take(inside, data)?;
        if let Some(mut whole) = self.current.take_if(|current| current.is_complete()) {
            self.filled = self.filled.saturating_add(whole.len());
            self.arrays.extend(whole.finish());
        }
        Ok(())
    }

    /// Hands the data of the chunks that have been read to `sink`, possibly cut into other chunks. A decoder of the
    /// same head that reads them is in the same state as this one.
    pub fn chunks(&self, mut sink: impl FnMut(&[u8])) {
        let mut start = 0u64;
        for filled in &self.arrays {
            let words = &filled.words;
            self.write(start, words.bytes(), &mut sink, |inside, bytes| {
                Words::read_bytes(words, usize::try_from(inside / 8).unwrap_or(usize::MAX), bytes);
            });
            start = start.saturating_add(words.bytes());
        }
        if let Some(current) = &self.current {
            self.write(start, current.arrived(), &mut sink, |inside, bytes| current.read(inside, bytes));
        }
    }

    /// Hands the chunks with the first `len` bytes of an array to `sink`, which begins at byte `start` of the body.
    fn write(&self, start: u64, len: u64, sink: &mut impl FnMut(&[u8]), read: impl Fn(u64, &mut [u8])) {
        let mut piece = Vec::new();
        for inside in (0..len).step_by(CHUNK) {
            let bytes = usize::try_from(len.saturating_sub(inside)).unwrap_or(CHUNK).min(CHUNK);
            piece.resize(chunk::PREFIX.saturating_add(bytes), 0);
            read(inside, piece.get_mut(chunk::PREFIX..).unwrap_or_default());
            chunk::seal(&mut piece, start.saturating_add(inside), self.stamp);
            sink(&piece);
        }
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
