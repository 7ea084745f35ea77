//! A filter as a value of the data type `bloomery1`, or `bloomeryC` for a cuckoo filter: the strings that RDB files and
//! DUMP payloads contain.

use super::decode::Decoder;
use super::encode::Encoder;
use super::error::DecodeError;
use super::format::{MAGIC, VERSION};
use super::packed;
use super::stream::{Sink, Source};
use crate::filter::{Filter, FilterRef};

/// Writes a filter: as one string if it is small, otherwise as one string per piece.
pub fn save<'a>(sink: &mut impl Sink, filter: impl Into<FilterRef<'a>>) {
    let filter = filter.into();
    if packed::fits(filter) {
        sink.string(&packed::pack(filter));
    } else {
        Encoder::native(filter).pieces(|piece| sink.string(piece));
    }
}

/// Reads a filter. A small filter may also come in pieces.
///
/// # Errors
/// What is wrong with the bytes. [`DecodeError::Length`] if they end early.
pub fn decode(source: &mut impl Source, encoding: u32) -> Result<Filter, DecodeError> {
    if encoding > VERSION.into() {
        return Err(DecodeError::Version(u8::try_from(encoding).unwrap_or(u8::MAX)));
    }
    let cut = DecodeError::Length("payload");
    let begun = source.string(|first| match first.starts_with(&MAGIC) {
        true => Decoder::new(first).map(Err),
        false => packed::unpack(first).map(Ok),
    });
    let mut decoder = match begun.ok_or(cut)?? {
        Ok(filter) => return Ok(filter),
        Err(decoder) => decoder,
    };
    while !decoder.is_complete() {
        source.string(|piece| decoder.push(piece)).ok_or(cut)??;
    }
    decoder.finish()
}
