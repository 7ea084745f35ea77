//! Writes whole filters to streams, and reads them, piece by piece.

use super::bytes::Saved;
use super::decode::Decoder;
use super::encode::Encoder;
use super::error::DecodeError;
use super::format::MAX_CHUNK;
use super::{chunk, head};
use crate::filter::{AtomicBloom, Bloom, Cuckoo, ExpiringBloom, Filter};
use std::io::{Error, ErrorKind, Read, Result, Write};

/// Maximum length of a head in bytes. This is more than enough: a filter that is being rebuilt may have 4096 layers or
/// links, and its shadow 4096 layers. Each needs at most 64 bytes.
const MOST_HEAD: usize = 1 << 20;

/// Implements the methods for these types.
macro_rules! as_streams {
    ($($type:ident),+) => {$(
        impl $type {
            /// Writes the bytes of [`to_bytes`](Self::to_bytes) to a file or another destination, in pieces of up to a
            /// MiB, so it needs no copy of the filter, and no buffer.
            pub fn write_to(&self, to: impl Write) -> Result<()> {
                self.encoded(|encoder| write(encoder, to))
            }

            /// Reads what [`write_to`](Self::write_to) or [`to_bytes`](Self::to_bytes) wrote, and nothing that follows.
            /// Untrusted input is safe: memory is allocated in proportion to the bytes that have come.
            ///
            /// # Errors
            /// [`ErrorKind::UnexpectedEof`] if the input ends too early, [`ErrorKind::InvalidData`] with a
            /// [`DecodeError`] if it isn't such a filter, and the errors of the input.
            pub fn read_from(from: impl Read) -> Result<$type> {
                read(from).and_then(|filter| Saved::of(filter).map_err(invalid))
            }
        }
    )+};
}

as_streams!(Bloom, AtomicBloom, ExpiringBloom, Cuckoo, Filter);

fn write(encoder: &Encoder<'_>, mut to: impl Write) -> Result<()> {
    to.write_all(encoder.head())?;
    let mut done = Ok(());
    encoder.chunks_from(0, |_, piece| {
        done = to.write_all(piece);
        done.is_ok()
    });
    done.and_then(|()| to.flush())
}

fn read(mut from: impl Read) -> Result<Filter> {
    let head = piece(&mut from, ("head", head::ENVELOPE, MOST_HEAD), head::len)?;
    let mut decoder = Decoder::new(&head).map_err(invalid)?.in_proportion();
    while !decoder.is_complete() {
        let piece = piece(&mut from, ("chunk", chunk::PREFIX, MAX_CHUNK), chunk::len)?;
        decoder.push(&piece).map_err(invalid)?;
    }
    decoder.finish().map_err(invalid)
}

/// Reads a piece with this name, whose first `fixed` bytes say how long it is: that long, and up to `most` bytes.
fn piece(
    from: &mut impl Read,
    (name, fixed, most): (&'static str, usize, usize),
    len: fn(&[u8]) -> std::result::Result<usize, DecodeError>,
) -> Result<Vec<u8>> {
    let mut piece = Vec::new();
    from.take(fixed as u64).read_to_end(&mut piece)?;
    let end = if piece.len() < fixed { fixed } else { len(&piece).map_err(invalid)? };
    if end > fixed.saturating_add(most) {
        return Err(invalid(DecodeError::Length(name)));
    }
    let rest = end.saturating_sub(piece.len()) as u64;
    from.take(rest).read_to_end(&mut piece)?;
    if piece.len() < end {
        let text = format!("the input ends inside a {name} of the filter");
        return Err(Error::new(ErrorKind::UnexpectedEof, text));
    }
    Ok(piece)
}

fn invalid(why: DecodeError) -> Error {
    let kind = match why {
        DecodeError::OutOfMemory { .. } => ErrorKind::OutOfMemory,
        _ => ErrorKind::InvalidData,
    };
    Error::new(kind, why)
}
