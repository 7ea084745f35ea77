//! Items as filters see them: strings of bytes.

use alloc::borrow::{Cow, ToOwned};
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::{boxed::Box, string::String, vec::Vec};
use core::hash::Hash;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use siphasher::sip128::{Hasher128, SipHasher13};
use smallvec::SmallVec;

/// A value with one obvious string of bytes, which is the item. The server's commands take the same bytes, so a filter
/// that was filled here answers there.
///
/// | value | bytes |
/// | --- | --- |
/// | text, bytes | themselves |
/// | an integer of up to 64 bits | 8 bytes, the lowest first. The type doesn't matter: `7u8` and `7i64` are one item, but so are `u64::MAX` and `-1i64`. `BF.BULKADD key FIXED 8` takes these bytes; a client that sends `7` as text asks for another item |
/// | `u128`, `i128` | 16 bytes, the lowest first |
/// | an IP address | 4 or 16 bytes, as in a packet |
/// | a tuple of 2 to 6 of these | for each part, the number of its bytes as an integer of 8 bytes, then its bytes. So `("ab", "c")` and `("a", "bc")` are two items. In Python: `b"".join(struct.pack("<Q", len(part)) + part for part in parts)` |
///
/// What implements [`Hash`] is not an item by itself, because the hashed bytes may change between
/// versions and machines; for filters that are never saved, there is [`StdHash`]. A type of your own can implement this
/// trait:
///
/// ```
/// use bloomery::{Bloom, ItemBytes};
///
/// struct Session { user: u32, device: u32 }
///
/// impl ItemBytes for Session {
///     fn item_bytes(&self) -> impl AsRef<[u8]> {
///         (u64::from(self.user) << 32 | u64::from(self.device)).to_le_bytes()
///     }
/// }
///
/// let mut seen = Bloom::growing(0.01)?;
/// seen.insert(Session { user: 3, device: 9 })?;
/// assert!(seen.contains(Session { user: 3, device: 9 }) && seen.contains(3u64 << 32 | 9));
/// # Ok::<(), bloomery::Error>(())
/// ```
pub trait ItemBytes {
    /// The bytes.
    fn item_bytes(&self) -> impl AsRef<[u8]>;
}

/// Implements the trait for types whose bytes are `$bytes`.
macro_rules! items {
    ($($(@[$($parameters:tt)+])? $type:ty),+ => |$item:ident| $bytes:expr) => {
        $(impl $(<$($parameters)+>)? ItemBytes for $type {
            #[inline(always)]
            fn item_bytes(&self) -> impl AsRef<[u8]> {
                let $item = self;
                $bytes
            }
        })+
    };
}

items!([u8] => |item| item);
items!(str, String => |item| item.as_bytes());
items!(Vec<u8>, @[const N: usize] [u8; N] => |item| item.as_slice());
items!(u8, u16, u32, usize, i8, i16, i32, i64, isize => |item| (*item as u64).to_le_bytes());
items!(u64, u128, i128 => |item| item.to_le_bytes());
items!(Ipv4Addr, Ipv6Addr => |item| item.octets());
items!(
    @[T: ItemBytes + ?Sized] &T, @[T: ItemBytes + ?Sized] &mut T, @[T: ItemBytes + ?Sized] Box<T>,
    @[T: ItemBytes + ?Sized] Rc<T>, @[T: ItemBytes + ?Sized] Arc<T>,
    @[T: ItemBytes + ToOwned + ?Sized] Cow<'_, T>
    => |item| (**item).item_bytes()
);

impl ItemBytes for IpAddr {
    fn item_bytes(&self) -> impl AsRef<[u8]> {
        let (mut bytes, len) = match self {
            IpAddr::V4(address) => (address.to_ipv6_compatible().octets(), 4),
            IpAddr::V6(address) => (address.octets(), 16),
        };
        // The four bytes of a version 4 address are the last ones of its compatible address.
        bytes.rotate_left(16 - len);
        SmallVec::<[u8; 16]>::from_buf_and_len(bytes, len)
    }
}

/// Implements the trait for a tuple of these types, and for the tuples that begin with its second and with later types,
/// down to pairs.
macro_rules! tuples {
    ($last:ident) => {};
    ($first:ident $($more:ident)+) => {
        impl<$first: ItemBytes, $($more: ItemBytes),+> ItemBytes for ($first, $($more),+) {
            fn item_bytes(&self) -> impl AsRef<[u8]> {
                #[allow(non_snake_case, reason = "each part is named like its type")]
                let ($first, $($more),+) = self;
                let mut bytes = SmallVec::<[u8; 64]>::new();
                append($first.item_bytes().as_ref(), &mut bytes);
                $(append($more.item_bytes().as_ref(), &mut bytes);)+
                bytes
            }
        }
        tuples!($($more)+);
    };
}

tuples!(A B C D E F);

/// Appends a part of a tuple.
fn append(part: &[u8], to: &mut SmallVec<[u8; 64]>) {
    to.extend_from_slice(&(part.len() as u64).to_le_bytes());
    to.extend_from_slice(part);
}

/// Makes an item of any value that implements [`Hash`]. For filters of this process only: never save them or unite them
/// with those of another process, because what a type hashes may change with its version, the compiler's, and the
/// machine.
///
/// ```
/// use bloomery::{Bloom, StdHash};
///
/// let mut seen = Bloom::growing(0.01)?;
/// seen.insert(StdHash(&Some(['a', 'b'])))?;
/// assert!(seen.contains(StdHash(&Some(['a', 'b']))) && !seen.contains(StdHash(&None::<[char; 2]>)));
/// # Ok::<(), bloomery::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct StdHash<T>(pub T);

/// The bytes are SipHash-1-3-128 of what the value hashes. Two values are as unlikely to have the same bytes as their
/// items are to have the same hash.
impl<T: Hash> ItemBytes for StdHash<T> {
    fn item_bytes(&self) -> impl AsRef<[u8]> {
        let mut hasher = SipHasher13::new();
        self.0.hash(&mut hasher);
        hasher.finish128().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(item: impl ItemBytes) -> Vec<u8> {
        item.item_bytes().as_ref().to_vec()
    }

    #[test]
    fn every_value_has_the_bytes_that_are_documented() {
        let text = String::from("ada");
        for item in
            [bytes(&text), bytes("ada"), bytes(b"ada"), bytes(Cow::from("ada")), bytes(text.into_bytes())]
        {
            assert_eq!(item, b"ada");
        }
        let seven = &7i64;
        for item in [bytes(7u8), bytes(7i16), bytes(7usize), bytes(seven), bytes(Box::new(7u32))] {
            assert_eq!(item, [7, 0, 0, 0, 0, 0, 0, 0]);
        }
        for item in [bytes(-1i8), bytes(-1i64), bytes(-1isize), bytes(u64::MAX)] {
            assert_eq!(item, [255; 8]);
        }
        assert_eq!(bytes(1u128 << 120), [[0; 15].as_slice(), &[1]].concat());
        let [v4, v6] = ["10.0.0.7", "2001:db8::7"].map(|address| address.parse::<IpAddr>().unwrap());
        assert_eq!(
            (bytes(v4), bytes(v6).len(), bytes(v6)[..4].to_vec()),
            (vec![10, 0, 0, 7], 16, vec![32, 1, 13, 184])
        );
        assert_eq!(bytes(Ipv4Addr::new(10, 0, 0, 7)), bytes(v4));
    }

    #[test]
    fn parts_of_a_tuple_are_kept_apart() {
        let two = [[2, 0, 0, 0, 0, 0, 0, 0].as_slice(), b"ab", &[1, 0, 0, 0, 0, 0, 0, 0], b"c"].concat();
        assert_eq!(bytes(("ab", b"c")), two);
        assert_ne!(bytes(("a", "bc")), two);
        let parts = ("ab", 7u8, String::from("c"), Ipv4Addr::LOCALHOST, "", (-1i8, "d"));
        let (outer, inner) = (6 * 8 + 2 + 8 + 1 + 4, 2 * 8 + 8 + 1);
        let many = bytes(parts);
        assert_eq!(many.len(), outer + inner);
        assert_eq!(many[outer - 8..outer], [25, 0, 0, 0, 0, 0, 0, 0], "a tuple can be a part");
        assert_ne!(bytes(("", "a")), bytes(("a", "")));
    }

    #[test]
    fn what_hashes_alike_is_one_item() {
        assert_eq!(bytes(StdHash("ada")), bytes(StdHash(String::from("ada"))));
        assert_ne!(bytes(StdHash(("ab", "c"))), bytes(StdHash(("a", "bc"))));
        assert_eq!(bytes(StdHash(7u8)).len(), 16);
    }
}
