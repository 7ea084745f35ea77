//! From pieces to a filter.

use super::head::{self, Description, LayerDescription};
use super::{DecodeError, chunk};
use crate::error::Error;
use crate::filter::{Body, Chain, Filter, Layer, Window};
use crate::params::Family;
use std::sync::Arc;

/// Builds a filter from its pieces, in order. Until [`finish`](Decoder::finish) there is no filter that anyone could
/// ask, and a decoder that is dropped leaves nothing behind.
#[derive(Debug)]
pub struct Decoder {
    description: Description,
    layers: Vec<Layer>,
    /// Bytes of the body read so far.
    offset: u64,
    /// Bytes of the newest layer in `layers` read so far.
    inside: u64,
}

impl Decoder {
    /// Reads the head. Allocates nothing but what the head itself takes.
    ///
    /// # Errors
    /// What is wrong with the head.
    pub fn new(head: &[u8]) -> Result<Decoder, DecodeError> {
        Ok(Decoder { description: head::decode(head)?, layers: Vec::new(), offset: 0, inside: 0 })
    }

    /// Bytes of cells that the filter will have.
    pub fn body_len(&self) -> u64 {
        self.description.body_len
    }

    /// Bytes of cells read so far; chunks come in order.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether every chunk has come.
    pub fn is_complete(&self) -> bool {
        self.offset == self.description.body_len
    }

    /// Reads the next chunk. A layer's cells are allocated when its first chunk has proved sound, so that a head alone
    /// cannot ask for memory.
    ///
    /// # Errors
    /// What is wrong with the chunk; the decoder is as it was.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), DecodeError> {
        let (offset, stamp, data) = chunk::open(piece)?;
        if stamp != self.description.stamp {
            return Err(DecodeError::Stranger);
        }
        if offset != self.offset || self.is_complete() {
            return Err(DecodeError::Order { expected: self.offset, found: offset });
        }
        if self.layers.last().is_none_or(|layer| self.inside == layer.bytes()) {
            let next = self.description.layers.get(self.layers.len()).ok_or(DecodeError::Length("body"))?;
            if data.len() as u64 > next.shape.bytes() {
                return Err(DecodeError::Length("chunk"));
            }
            self.layers.push(Layer::new(next.shape).map_err(|error| match error {
                Error::OutOfMemory { bytes } => DecodeError::OutOfMemory { bytes },
                _ => DecodeError::Field("layer"),
            })?);
            self.inside = 0;
        }
        let Some(layer) = self.layers.last() else { return Err(DecodeError::Length("body")) };
        let end = self.inside.saturating_add(data.len() as u64);
        if end > layer.bytes() {
            return Err(DecodeError::Length("chunk"));
        }
        layer.write_words(self.inside / 8, data);
        self.inside = end;
        self.offset = self.offset.saturating_add(data.len() as u64);
        Ok(())
    }

    /// The finished filter.
    ///
    /// # Errors
    /// [`DecodeError::Length`] while chunks are missing.
    pub fn finish(self) -> Result<Filter, DecodeError> {
        if !self.is_complete() {
            return Err(DecodeError::Length("body"));
        }
        let Description { spec, schedule, newest, layers: described, .. } = self.description;
        let counted =
            self.layers.into_iter().zip(described).map(|(layer, LayerDescription { items, .. })| {
                layer.recount();
                layer.set_items(items);
                Arc::new(layer)
            });
        let body = match spec.family {
            Family::Fixed(_) => Body::Fixed(counted.last().ok_or(DecodeError::Length("body"))?),
            Family::Scaling { .. } => Body::Chain(Chain::from_layers(counted.collect())),
            Family::Window { .. } => {
                Body::Window(Box::new(Window::from_parts(counted.collect(), newest, schedule)))
            }
        };
        Ok(Filter::from_parts(spec, body))
    }

    /// Reads a filter whose pieces stand one behind the other, as in a file.
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
