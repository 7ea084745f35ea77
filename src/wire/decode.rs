//! Builds a filter from pieces.

use super::arrival::{Allocation, Arrival};
use super::error::DecodeError;
use super::format::CHUNK;
use super::kind::{Head, Whole};
use super::{chunk, head};
use crate::filter::Filter;
use crate::filter::layout::quotient::Loading;
use crate::mem::Words;
use alloc::{boxed::Box, vec::Vec};

/// Builds a filter from its pieces, in order. There is no filter until [`finish`](Decoder::finish) is called. Dropping
/// a decoder frees everything.
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
    /// The stamp that the filter's chunks carry.
    stamp: u32,
    /// Total length of all arrays.
    len: u64,
    /// Bytes of memory of all arrays, and of the largest.
    bytes: u64,
    largest: u64,
    allocation: Allocation,
    /// The arrays that are complete.
    arrays: Vec<Whole>,
    /// Total length of the complete arrays, and their bytes of memory.
    filled: u64,
    filled_bytes: u64,
    /// The array that has arrived in part.
    current: Option<Box<Current>>,
}

/// An array that has arrived in part.
#[derive(Debug)]
enum Current {
    Cells(Arrival),
    Table(Loading),
}

impl Current {
    /// How much of the array's length has arrived.
    fn arrived(&self) -> u64 {
        match self {
            Current::Cells(arrival) => arrival.arrived(),
            Current::Table(loading) => loading.position(),
        }
    }

    fn held(&self) -> u64 {
        match self {
            Current::Cells(arrival) => arrival.held(),
            Current::Table(loading) => loading.held(),
        }
    }

    /// Bytes that a chunk of `len` bytes would newly allocate.
    fn would_allocate(&self, len: u64) -> u64 {
        match self {
            Current::Cells(arrival) => arrival.would_allocate(arrival.arrived(), len),
            Current::Table(_) => 0,
        }
    }

    fn take(&mut self, data: &[u8]) -> Result<(), DecodeError> {
        match self {
            Current::Cells(arrival) => {
                let inside = arrival.arrived();
                if data.len() as u64 > arrival.len().saturating_sub(inside) {
                    return Err(DecodeError::Length("chunk"));
                }
                Ok(arrival.take(inside, data)?)
            }
            Current::Table(loading) => Ok(loading.read(&words_of(data))?),
        }
    }

    /// The array if it is complete, and its length.
    fn finish(self: Box<Current>, len: u64) -> Result<Whole, Box<Current>> {
        match *self {
            Current::Table(loading) if loading.position() == len => Ok(Whole::Table(Box::new(loading))),
            Current::Cells(mut arrival) if arrival.is_complete() => {
                arrival.finish().map(Whole::Cells).ok_or_else(|| Box::new(Current::Cells(arrival)))
            }
            current => Err(Box::new(current)),
        }
    }
}

/// The words in these bytes.
fn words_of(data: &[u8]) -> Vec<u64> {
    data.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

impl Decoder {
    /// Reads the head. Allocates no cells.
    pub fn new(head: &[u8]) -> Result<Decoder, DecodeError> {
        let (head, stamp) = head::decode(head)?;
        let len = head.body_len().ok_or(DecodeError::Length("body"))?;
        let sizes = || (0..).map_while(|index| head.bytes(index));
        let (bytes, largest) = (sizes().fold(0, u64::saturating_add), sizes().max().unwrap_or(0));
        let allocation = Allocation::AtOnce;
        let (arrays, filled, filled_bytes, current) = Default::default();
        Ok(Decoder { head, stamp, len, bytes, largest, allocation, arrays, filled, filled_bytes, current })
    }

    /// Makes the decoder allocate memory in proportion to the chunks that have arrived (at most three times as much),
    /// instead of a whole array when its first chunk arrives. When half of an array has arrived, the decoder allocates
    /// the whole array in addition to that half, so the two together need one and a half times the array's size. Meant
    /// for senders that might not send all chunks.
    #[must_use]
    pub fn in_proportion(self) -> Decoder {
        Decoder { allocation: Allocation::InProportion, ..self }
    }

    /// Whether the filter has a table, whose size in memory is only estimated.
    pub(super) fn has_table(&self) -> bool {
        (0..)
            .map_while(|index| self.head.array(index).map(|_| index))
            .any(|index| self.head.loading(index).is_some())
    }

    /// Whether the pieces belong to a cuckoo filter rather than a Bloom filter.
    pub fn is_cuckoo(&self) -> bool {
        matches!(self.head, Head::Cuckoo(_))
    }

    /// Number of bytes that the filter's cells will occupy, approximately for tables.
    pub fn body_len(&self) -> u64 {
        self.bytes
    }

    /// Like [`body_len`](Decoder::body_len), including the cells that tables may still need for items up to their
    /// capacity.
    pub fn reserved_bytes(&self) -> u64 {
        (0..).map_while(|index| self.head.reserved_bytes(index)).fold(0, u64::saturating_add)
    }

    /// Approximate upper bound, in bytes, on the memory that the chunks need if the decoder allocates [in
    /// proportion](Decoder::in_proportion): all arrays, plus half of the largest.
    pub fn most_held(&self) -> u64 {
        self.bytes.saturating_add(self.largest / 2)
    }

    /// Approximate memory in bytes that the chunks read so far occupy.
    pub fn held(&self) -> u64 {
        self.filled_bytes.saturating_add(self.current.as_ref().map_or(0, |current| current.held()))
    }

    /// Number of bytes that reading a chunk with `len` bytes of cells would newly allocate: the size of an array, or 0.
    pub fn would_allocate(&self, len: u64) -> u64 {
        match &self.current {
            Some(current) => current.would_allocate(len),
            None => self.next_array().map_or(0, |next| next.would_allocate(len)),
        }
    }

    /// How much of the body's length has been read. Chunks arrive in order.
    pub fn offset(&self) -> u64 {
        self.filled.saturating_add(self.inside())
    }

    /// How much of the current array's length has been read.
    fn inside(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.arrived())
    }

    /// Whether every chunk has been read.
    pub fn is_complete(&self) -> bool {
        self.filled == self.len
    }

    /// The array that follows the complete ones, if any.
    fn next_array(&self) -> Option<Box<Current>> {
        let index = self.arrays.len();
        let len = self.head.array(index)?;
        Some(Box::new(match self.head.loading(index) {
            Some(loading) => Current::Table(loading),
            None => Current::Cells(Arrival::new(len, self.allocation, self.head.place(index))),
        }))
    }

    /// Reads the next chunk. An array is allocated only after its first chunk has been checked, so a head alone can't
    /// make the decoder allocate memory. See also [`in_proportion`](Decoder::in_proportion).
    ///
    /// # Errors
    /// What is wrong with the chunk. An error leaves the decoder unchanged.
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
        self.current.insert(current).take(data)?;
        let len = self.head.array(self.arrays.len()).unwrap_or(0);
        if let Some(current) = self.current.take() {
            let held = current.held();
            match current.finish(len) {
                Ok(whole) => {
                    self.filled = self.filled.saturating_add(len);
                    self.filled_bytes = self.filled_bytes.saturating_add(held);
                    self.arrays.push(whole);
                }
                Err(current) => self.current = Some(current),
            }
        }
        Ok(())
    }

    /// Hands the cells that have been read to `sink` as chunks, whose boundaries may differ from the original ones. A
    /// decoder that starts from the same head and reads these chunks reaches the same state as this one.
    pub fn chunks(&self, mut sink: impl FnMut(&[u8])) {
        let mut start = 0u64;
        for (index, whole) in self.arrays.iter().enumerate() {
            match whole {
                Whole::Cells(filled) => {
                    let words = &filled.words;
                    self.write(start, words.bytes(), &mut sink, |inside, bytes| {
                        Words::read_bytes(words, usize::try_from(inside / 8).unwrap_or(usize::MAX), bytes);
                    });
                }
                Whole::Table(loading) => self.write_table(start, loading, &mut sink),
            }
            start = start.saturating_add(self.head.array(index).unwrap_or(0));
        }
        match self.current.as_deref() {
            None => {}
            Some(Current::Cells(arrival)) => {
                self.write(start, arrival.arrived(), &mut sink, |inside, bytes| arrival.read(inside, bytes));
            }
            Some(Current::Table(loading)) => self.write_table(start, loading, &mut sink),
        }
    }

    /// Hands what a table has read to `sink` as chunks. The table begins at `start` in the body.
    fn write_table(&self, start: u64, loading: &Loading, sink: &mut impl FnMut(&[u8])) {
        loading.write(chunk::TABLE_WORDS, |position, words| {
            let mut piece = vec![0; chunk::PREFIX];
            chunk::put_words(&mut piece, words);
            chunk::seal(&mut piece, start.saturating_add(position), self.stamp);
            sink(&piece);
        });
    }

    /// Hands the first `len` bytes of an array to `sink` as chunks. The array begins at byte `start` of the body.
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
    /// [`DecodeError::Length`] if chunks are missing, or [`DecodeError::Field`] if a cell is set that no operation on
    /// the filter could have set.
    pub fn finish(self) -> Result<Filter, DecodeError> {
        if !self.is_complete() {
            return Err(DecodeError::Length("body"));
        }
        self.head.build(self.arrays)
    }

    /// Reads a filter from concatenated pieces, as in a file.
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
