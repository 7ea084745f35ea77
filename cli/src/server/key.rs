//! Filter keys: their hash tags, and temporary keys.

use crate::filter::parts::slot;
use bloomery::{HashKind, Seed};
use std::borrow::Cow;
use std::sync::Arc;

/// A key that holds a filter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FilterKey {
    /// The key's name: any bytes, not necessarily text.
    pub(crate) name: Arc<[u8]>,
    /// The key's type, as the TYPE command returns it.
    pub(crate) key_type: &'static str,
}

/// The hash tag: the part of a key that determines its cluster slot.
pub(crate) fn tag(key: &[u8]) -> &[u8] {
    let inside = key.iter().position(|byte| *byte == b'{').map(|open| &key[open + 1..]);
    let tag = inside.and_then(|rest| rest.iter().position(|byte| *byte == b'}').map(|close| &rest[..close]));
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// Another key in the cluster slot of `name`. It ends in `end`.
pub(crate) fn neighbour(name: &[u8], end: &str) -> Vec<u8> {
    let mut tag = Cow::Borrowed(tag(name));
    if tag.is_empty() || tag.contains(&b'}') {
        // A key such as `a}b` can't be the hash tag of another one, but a number with the same slot can.
        let number =
            (0u32..).map(|number| number.to_string()).find(|number| slot(number.as_bytes()) == slot(&tag));
        tag = Cow::Owned(number.unwrap_or_default().into_bytes());
    }
    [b"{", &*tag, b"}", end.as_bytes()].concat()
}

/// Generates a key that no other client uses, in the same slot as `name`.
pub(crate) fn temporary_key(name: &[u8], purpose: &str) -> anyhow::Result<Vec<u8>> {
    let random = Seed::random(HashKind::Xxh3)?;
    Ok(neighbour(name, &format!(":bloomery-{purpose}:{:x}", u128::from(random))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_is_what_a_cluster_hashes() {
        for (key, wanted) in [
            ("users", "users"),
            ("{a}b", "a"),
            ("x{a}{b}", "a"),
            ("{}a", "{}a"),
            ("{a", "{a"),
            ("a}b{c}", "c"),
        ] {
            assert_eq!(tag(key.as_bytes()), wanted.as_bytes(), "{key}");
        }
    }
    #[test]
    fn a_neighbour_is_in_the_slot_of_its_key() {
        for key in ["users", "{a}b", "a}b{c}", "a}b", "{}a", "{a", "}", ""] {
            let other = neighbour(key.as_bytes(), ":end");
            assert_eq!(slot(tag(&other)), slot(tag(key.as_bytes())), "{key}");
            assert!(other.ends_with(b"}:end"));
        }
        assert_eq!(neighbour(b"x{a}b", ":end"), b"{a}:end");
    }
}
