//! Checks the pieces of a filter without building it.

use super::error::DecodeError;
use super::{chunk, head};

/// Checks that pieces belong to one filter, complete, in order and undamaged. It needs no memory for the filter, so
/// it can't say whether the cells are valid: only [`Decoder`](super::Decoder) can.
///
/// ```
/// use bloomery::wire::{Checker, Encoder};
/// use bloomery::{Bloom, Spec};
///
/// let filter = Bloom::new(Spec::fixed(1000, 0.01))?;
/// let encoder = Encoder::new(&filter);
/// let mut checker = Checker::new(encoder.head())?;
/// let (mut offset, mut chunk) = (0, Vec::new());
/// while let Some(end) = encoder.chunk(offset, &mut chunk) {
///     checker.push(&chunk, end)?;
///     offset = end;
/// }
/// checker.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Checker {
    stamp: u32,
    /// Total length of all arrays.
    len: u64,
    /// Where the next chunk begins.
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

    /// Reads the next chunk, and where the one after it begins: only a decoder can tell that from the cells of a table.
    ///
    /// # Errors
    /// What is wrong with the chunk, or that it isn't the next one of this filter.
    pub fn push(&mut self, piece: &[u8], end: u64) -> Result<(), DecodeError> {
        let (offset, stamp, _) = chunk::open(piece)?;
        if stamp != self.stamp {
            return Err(DecodeError::StampMismatch);
        }
        if offset != self.offset {
            return Err(DecodeError::Order { expected: self.offset, found: offset });
        }
        if end <= offset || end > self.len {
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
