//! Shared by the headers of all kinds: the numbers of the kinds, and the conversion of plain structs to bytes and back.

use super::error::DecodeError;
use alloc::vec::Vec;

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

/// Declares the headers of one kind. Their fields are written in order, as little-endian numbers of a fixed size.
macro_rules! headers {
    ($($(#[$about:meta])* struct $header:ident { $($(#[$of_field:meta])* $field:ident: $type:ty,)+ })+) => {
        $($(#[$about])*
        #[derive(Clone, Copy, Default)]
        #[cfg_attr(feature = "bincode", derive(serde::Serialize, serde::Deserialize))]
        struct $header {
            $($(#[$of_field])* $field: $type,)+
        }

        #[cfg(any(test, not(feature = "bincode")))]
        impl crate::wire::codec::plain::Header for $header {
            fn put(&self, to: &mut Vec<u8>) {
                $(crate::wire::codec::plain::Header::put(&self.$field, to);)+
            }

            fn take(from: &mut &[u8]) -> Option<$header> {
                Some($header { $($field: crate::wire::codec::plain::Header::take(from)?,)+ })
            }
        })+

        #[cfg(all(test, feature = "bincode"))]
        #[test]
        fn headers_are_those_of_bincode() {
            $(crate::wire::codec::compare::<$header>();)+
        }
    };
}
pub(super) use headers;

#[cfg(feature = "bincode")]
use bincoded as chosen;
#[cfg(not(feature = "bincode"))]
use plain as chosen;

pub(super) use chosen::{read, write};

/// The bytes of a struct. Structs are compared by their bytes, because 0 and −0 are equal as numbers.
pub(super) fn written(value: &impl chosen::Header) -> Vec<u8> {
    // Most headers describe a filter with one layer, and fit into this capacity.
    let mut bytes = Vec::with_capacity(160);
    write(&mut bytes, value);
    bytes
}

/// Headers with bincode 1.3 and everything pinned: fixed-size integers, little-endian.
#[cfg(feature = "bincode")]
mod bincoded {
    use super::DecodeError;
    use bincode::Options;
    use serde::Deserialize;
    pub(in crate::wire) use serde::Serialize as Header;

    /// Maximum encoded size of one bincode struct in bytes. This guards against hostile lengths, and is far more than
    /// our structs need.
    const BINCODE_LIMIT: u64 = 4096;

    /// There is no limit for writing: with one, bincode would measure each struct first, which takes as long as
    /// writing it.
    fn codec() -> impl Options {
        bincode::DefaultOptions::new().with_fixint_encoding().with_little_endian()
    }

    /// Appends a struct.
    pub(in crate::wire) fn write<T: Header>(to: &mut Vec<u8>, value: &T) {
        // Writing plain integers into a vector cannot fail.
        let _ = codec().serialize_into(to, value);
    }

    /// Reads a struct off the front of `from`.
    pub(in crate::wire) fn read<T: Header + for<'a> Deserialize<'a>>(
        from: &mut &[u8],
    ) -> Result<T, DecodeError> {
        let wrong = DecodeError::Length("header");
        // The caller reads several structs from one slice, and checks for trailing bytes itself.
        let limited = codec().with_limit(BINCODE_LIMIT).allow_trailing_bytes();
        let value: T = limited.deserialize(from).map_err(|_| wrong)?;
        // A plain struct of fixed-size integers has the same length when it is written as when it is read.
        let len = codec().serialized_size(&value).ok().and_then(|len| usize::try_from(len).ok());
        *from = len.and_then(|len| from.get(len..)).ok_or(wrong)?;
        Ok(value)
    }
}

/// Headers without bincode. The bytes are the same.
#[cfg(any(test, not(feature = "bincode")))]
pub(super) mod plain {
    use super::DecodeError;
    use alloc::vec::Vec;

    /// A number, or some of them in a fixed order.
    pub(in crate::wire) trait Header: Sized {
        fn put(&self, to: &mut Vec<u8>);

        fn take(from: &mut &[u8]) -> Option<Self>;
    }

    /// Not inlined: headers have dozens of fields, and each would be compiled with the code that makes room for it.
    #[inline(never)]
    fn append(to: &mut Vec<u8>, bytes: &[u8]) {
        to.extend_from_slice(bytes);
    }

    macro_rules! numbers {
        ($($number:ty)+) => {
            $(impl Header for $number {
                fn put(&self, to: &mut Vec<u8>) {
                    append(to, &self.to_le_bytes());
                }

                fn take(from: &mut &[u8]) -> Option<$number> {
                    super::take(from).map(<$number>::from_le_bytes)
                }
            })+
        };
    }

    numbers! { u8 u16 u32 u64 f64 }

    impl<T: Header + Copy + Default, const N: usize> Header for [T; N] {
        fn put(&self, to: &mut Vec<u8>) {
            self.iter().for_each(|one| one.put(to));
        }

        fn take(from: &mut &[u8]) -> Option<[T; N]> {
            let mut all = [T::default(); N];
            for one in &mut all {
                *one = T::take(from)?;
            }
            Some(all)
        }
    }

    /// Appends a struct.
    pub(in crate::wire) fn write<T: Header>(to: &mut Vec<u8>, value: &T) {
        value.put(to);
    }

    /// Reads a struct off the front of `from`.
    pub(in crate::wire) fn read<T: Header>(from: &mut &[u8]) -> Result<T, DecodeError> {
        let mut rest = *from;
        let value = T::take(&mut rest).ok_or(DecodeError::Length("header"))?;
        *from = rest;
        Ok(value)
    }
}

/// Checks that a header is read and written alike with and without bincode, and that both refuse every shorter one.
#[cfg(all(test, feature = "bincode"))]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test")]
pub(super) fn compare<T>()
where
    T: plain::Header + serde::Serialize + for<'a> serde::Deserialize<'a>,
{
    use rand::{RngCore, SeedableRng};
    let mut random = rand::rngs::SmallRng::seed_from_u64(1);
    for _ in 0..100 {
        let mut bytes = [0; 256];
        random.fill_bytes(&mut bytes);
        let (mut rest, mut rest_of_bincode) = (&bytes[..], &bytes[..]);
        let header: T = plain::read(&mut rest).unwrap();
        let header_of_bincode: T = bincoded::read(&mut rest_of_bincode).unwrap();
        assert_eq!(rest, rest_of_bincode);
        let len = bytes.len() - rest.len();
        for header in [header, header_of_bincode] {
            let (mut written, mut written_by_bincode) = (Vec::new(), Vec::new());
            plain::write(&mut written, &header);
            bincoded::write(&mut written_by_bincode, &header);
            assert_eq!((&written[..], &written_by_bincode[..]), (&bytes[..len], &bytes[..len]));
        }
        for short in 0..len {
            let (mut rest, mut rest_of_bincode) = (&bytes[..short], &bytes[..short]);
            let refused =
                (plain::read::<T>(&mut rest).err(), bincoded::read::<T>(&mut rest_of_bincode).err());
            assert_eq!(refused, (Some(DecodeError::Length("header")), Some(DecodeError::Length("header"))));
            assert_eq!((rest, rest_of_bincode), (&bytes[..short], &bytes[..short]));
        }
    }
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
