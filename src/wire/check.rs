//! Checks the pieces of a filter without building it.

use super::error::DecodeError;
use super::{chunk, head};

/// Checks that pieces are those of one filter, complete, in order and undamaged. It needs no memory for the filter, so
/// it can't say whether the cells are valid: only [`Decoder`](super::Decoder) can.
///
/// ```
/// use bloomery::wire::{Checker, Encoder};
/// use bloomery::{Bloom, Spec};
///
/// let filter = Bloom::new(Spec::fixed(1000, 0.01))?;
/// let mut pieces = Vec::new();
/// Encoder::new(&filter).pieces(|piece| pieces.push(piece.to_vec()));
///
/// let [head, chunks @ ..] = &pieces[..] else { unreachable!("the head is always there") };
/// let mut checker = Checker::new(head)?;
/// for chunk in chunks {
///     checker.push(chunk)?;
/// }
/// checker.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Checker {
    stamp: u32,
    /// Total length of all arrays.
    len: u64,
    /// How much of this length has been read.
    offset: u64,
}

impl Checker {
    /// Reads the head.
    ///
    /// # Errors
    /// What is wrong with the head.
    pub fn new(head: &[u8]) -> Result<Checker, DecodeError> {
        let (head, stamp) = head::decode(head)?;
        Ok(Checker { stamp, len: head.body_len().ok_or(DecodeError::Length("body"))?, offset: 0 })
    }

    /// Reads the next chunk.
    ///
    /// # Errors
    /// What is wrong with the chunk, or that it isn't the next one of this filter.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), DecodeError> {
        let (offset, stamp, data) = chunk::open(piece)?;
        if stamp != self.stamp {
            return Err(DecodeError::StampMismatch);
        }
        if offset != self.offset || offset >= self.len {
            return Err(DecodeError::Order { expected: self.offset, found: offset });
        }
        let end = offset.saturating_add(data.len() as u64);
        if end > self.len {
            return Err(DecodeError::Length("chunk"));
        }
        self.offset = end;
        Ok(())
    }

    /// Checks that there are no more chunks.
    ///
    /// # Errors
    /// [`DecodeError::Length`] if chunks are missing.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.offset == self.len { Ok(()) } else { Err(DecodeError::Length("body")) }
    }
}
