//! Converts whole filters to bytes and back. With the feature `serde`, filters are also serialised as these bytes.

use super::decode::Decoder;
use super::encode::Encoder;
use super::error::DecodeError;
use crate::filter::{AtomicBloom, Bloom, Cuckoo, ExpiringBloom, Filter};
use alloc::vec::Vec;

/// A type whose values are saved as filters.
pub(super) trait Saved: Sized {
    /// Calls `write` with an encoder of the filter.
    fn encoded<T>(&self, write: impl FnOnce(&Encoder<'_>) -> T) -> T;

    /// The filter as this type, if it is of its kind.
    fn of_kind(filter: Filter) -> Option<Self>;

    /// Like [`of_kind`](Saved::of_kind), with an error.
    fn of(filter: Filter) -> Result<Self, DecodeError> {
        Self::of_kind(filter).ok_or(DecodeError::Kind)
    }
}

/// Implements the conversions for one type.
macro_rules! as_bytes {
    ($type:ident, |$this:ident| $borrow:expr, $of_kind:expr) => {
        impl Saved for $type {
            fn encoded<T>(&self, write: impl FnOnce(&Encoder<'_>) -> T) -> T {
                let $this = self;
                write(&Encoder::native($borrow))
            }

            fn of_kind(filter: Filter) -> Option<$type> {
                $of_kind(filter)
            }
        }

        impl $type {
            /// Returns the filter in the wire format of docs/FORMAT.md.
            pub fn to_bytes(&self) -> Vec<u8> {
                self.encoded(|encoder| encoder.to_vec())
            }

            /// Reads what [`to_bytes`](Self::to_bytes) wrote. Untrusted bytes are safe, because they are validated
            /// before memory is allocated.
            pub fn from_bytes(bytes: &[u8]) -> Result<$type, DecodeError> {
                Decoder::read(bytes).and_then(Saved::of)
            }
        }

        #[cfg(feature = "serde")]
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_bytes(&self.to_bytes())
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                let bytes = deserializer.deserialize_byte_buf(Bytes)?;
                $type::from_bytes(&bytes).map_err(serde::de::Error::custom)
            }
        }
    };
}

as_bytes!(Bloom, |filter| filter, Filter::into_bloom);
as_bytes!(AtomicBloom, |filter| &filter.share(), |filter: Filter| filter.into_bloom()?.try_into().ok());
as_bytes!(ExpiringBloom, |filter| filter.get_ref(), |filter: Filter| filter.into_bloom()?.try_into().ok());
as_bytes!(Cuckoo, |filter| filter, Filter::into_cuckoo);
as_bytes!(Filter, |filter| filter, Some);

/// Accepts bytes in any form in which a serde format represents them. Text formats use a sequence of numbers.
#[cfg(feature = "serde")]
struct Bytes;

#[cfg(feature = "serde")]
impl<'de> serde::de::Visitor<'de> for Bytes {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the bytes of a filter")
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }

    fn visit_byte_buf<E: serde::de::Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
        Ok(bytes)
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut sequence: A) -> Result<Vec<u8>, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = sequence.next_element()? {
            bytes.push(byte);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_go_through_bytes_and_kinds_are_told_apart() {
        let (bloom, cuckoo) = (Bloom::from_iter(["ada"]), Cuckoo::from_iter(["ada"]));
        assert_eq!(Bloom::from_bytes(&bloom.to_bytes()), Ok(bloom.clone()));
        assert_eq!(Cuckoo::from_bytes(&cuckoo.to_bytes()), Ok(cuckoo.clone()));
        assert!(matches!(Bloom::from_bytes(&cuckoo.to_bytes()), Err(DecodeError::Kind)));
        assert!(Bloom::from_bytes(b"ada").is_err());
    }

    #[cfg(feature = "serde")]
    #[test]
    #[allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test, of bytes that it made")]
    fn filters_go_through_serde() {
        let bloom = Bloom::from_iter(["ada"]);
        let json = serde_json::to_string(&bloom).unwrap();
        assert_eq!(serde_json::from_str::<Bloom>(&json).unwrap(), bloom);
        assert_eq!(bincode::deserialize::<Bloom>(&bincode::serialize(&bloom).unwrap()).unwrap(), bloom);
    }
}
