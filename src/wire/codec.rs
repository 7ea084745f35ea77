//! Shared by the headers of all kinds: the numbers of the kinds, and the conversion of plain structs to bytes and back.

use super::error::DecodeError;
use bincode::Options;
use serde::{Deserialize, Serialize};

/// Kinds of filters, by their number in the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A Bloom filter with a single layer.
    Fixed = 1,
    /// A Bloom filter with a chain of layers.
    Chain = 2,
    /// A Bloom filter with a ring of generations.
    Window = 3,
    Cuckoo = 4,
    /// Another system's Bloom filter.
    Foreign = 5,
    /// A filter that is being rebuilt, and its shadow.
    Rebuild = 6,
}

impl Kind {
    pub(super) fn from_number(number: u8) -> Option<Kind> {
        use Kind::{Chain, Cuckoo, Fixed, Foreign, Rebuild, Window};
        [Fixed, Chain, Window, Cuckoo, Foreign, Rebuild].into_iter().find(|kind| *kind as u8 == number)
    }
}

/// Maximum encoded size of one bincode struct in bytes. This guards against hostile lengths, and is far more than our
/// structs need.
const BINCODE_LIMIT: u64 = 4096;

/// bincode 1.3 with everything pinned: fixed-size integers, little-endian. There is no limit for writing: with one,
/// bincode would measure each struct first, which takes as long as writing it.
fn codec() -> impl Options {
    bincode::DefaultOptions::new().with_fixint_encoding().with_little_endian()
}

/// Appends a struct.
pub(super) fn write<T: Serialize>(to: &mut Vec<u8>, value: &T) {
    // Writing plain integers into a vector cannot fail.
    let _ = codec().serialize_into(to, value);
}

/// The bytes of a struct. Structs are compared by their bytes, because 0 and −0 are equal as numbers.
pub(super) fn written<T: Serialize>(value: &T) -> Vec<u8> {
    // Most headers describe a filter with one layer, and fit into this capacity.
    let mut bytes = Vec::with_capacity(160);
    write(&mut bytes, value);
    bytes
}

/// Reads a struct off the front of `from`.
pub(super) fn read<T: Serialize + for<'a> Deserialize<'a>>(from: &mut &[u8]) -> Result<T, DecodeError> {
    let wrong = DecodeError::Length("header");
    // The caller reads several structs from one slice, and checks for trailing bytes itself.
    let limited = codec().with_limit(BINCODE_LIMIT).allow_trailing_bytes();
    let value: T = limited.deserialize(from).map_err(|_| wrong)?;
    // A plain struct of fixed-size integers has the same length when it is written as when it is read.
    let len = codec().serialized_size(&value).ok().and_then(|len| usize::try_from(len).ok()).ok_or(wrong)?;
    *from = from.get(len..).ok_or(wrong)?;
    Ok(value)
}

/// Takes `N` bytes off the front of `bytes`.
pub(super) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

/// Appends a number in groups of 7 bits per byte, lowest group first. The highest bit of a byte says whether another
/// byte follows.
pub(super) fn put_number(to: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return to.push(low);
        }
        to.push(low | 0x80);
    }
}

/// Takes a number off the front of `bytes`. Only the shortest encoding of a number is valid.
#[inline]
pub(super) fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..u64::BITS).step_by(7) {
        let [byte] = take(bytes)?;
        let bits = u64::from(byte & 0x7F);
        let placed = bits.checked_shl(shift)?;
        if placed.checked_shr(shift) != Some(bits) {
            return None;
        }
        number |= placed;
        if byte < 0x80 {
            return (byte > 0 || shift == 0).then_some(number);
        }
    }
    None
}

/// Appends fields, most of which are 0: first a number whose bit *i* says whether field *i* is nonzero, then the
/// nonzero fields.
pub(super) fn put_fields<const N: usize>(to: &mut Vec<u8>, fields: [u64; N]) {
    let mask = fields.iter().rev().fold(0, |mask, field| mask << 1 | u64::from(*field != 0));
    put_number(to, mask);
    fields.into_iter().filter(|field| *field != 0).for_each(|field| put_number(to, field));
}

/// Takes fields, as [`put_fields`] writes them, off the front of `bytes`.
pub(super) fn take_fields<const N: usize>(bytes: &mut &[u8]) -> Option<[u64; N]> {
    let mut mask = take_number(bytes)?;
    let mut fields = [0; N];
    for field in &mut fields {
        if mask & 1 == 1 {
            *field = take_number(bytes).filter(|field| *field != 0)?;
        }
        mask >>= 1;
    }
    (mask == 0).then_some(fields)
}
