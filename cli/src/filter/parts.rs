//! One logical Bloom filter that is split into parts, which are spread over the nodes of a cluster. Each part is a
//! filter under its own key, and every item belongs to one part. docs/CLUSTER.md has the rules, with test vectors; the
//! Python package's `SpreadBloom` follows the same rules.

use crate::error::{Failure, fail};
use bloomery::Spec;
use bloomery_plan::Wanted;
use crc::{CRC_16_XMODEM, Crc};
use ring::digest::{SHA256, digest};
use std::path::{Path, PathBuf};

/// Number of slots in a cluster.
const SLOTS: usize = 16_384;

/// Maximum probability that any part gets more items than it is sized for when the whole filter is full.
const OVERFLOW: f64 = 1e-9;

/// The part that an item belongs to: the first 8 bytes of its SHA-256, as a fraction of 2^64, multiplied by the number
/// of parts and rounded down.
pub(crate) fn part_of(item: &[u8], parts: usize) -> usize {
    if parts == 1 {
        return 0;
    }
    let hash = digest(&SHA256, item);
    let first = hash.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    ((u128::from(first) * parts as u128) >> 64) as usize
}

/// The slot of a key with this hash tag.
pub(crate) fn slot(tag: &[u8]) -> usize {
    usize::from(Crc::<u16>::new(&CRC_16_XMODEM).checksum(tag)) % SLOTS
}

/// The key of a part. Each part has a range of the slots. The hash tag ends in the first number that brings the key
/// into that range.
fn part_key(name: &str, part: usize, parts: usize) -> String {
    let slots = SLOTS * part / parts..SLOTS * (part + 1) / parts;
    let tag = |number: u64| format!("{name}:{part}/{parts}:{number}");
    let fits = |tag: &String| slots.contains(&slot(tag.as_bytes()));
    (0..).map(tag).find(fits).map(|tag| format!("{{{tag}}}")).unwrap_or_default()
}

/// The capacity of a part: its share, plus a margin for chance (Bernstein's inequality).
fn part_capacity(capacity: u64, parts: usize) -> u64 {
    if parts == 1 {
        return capacity;
    }
    let (mean, log) = (capacity as f64 / parts as f64, (parts as f64 / OVERFLOW).ln());
    let slack = log / 3.0 + (log * log / 9.0 + 2.0 * log * mean).sqrt();
    capacity.min((mean + slack).ceil() as u64)
}

/// The keys of all parts.
pub(crate) fn part_keys(name: &str, parts: u16) -> anyhow::Result<Vec<String>> {
    if name.is_empty() || name.contains(['{', '}']) {
        fail!(
            Usage,
            "with --spread, the key is a name that stands between braces in the keys of the parts: it cannot be empty \
             or have braces"
        );
    }
    let parts = usize::from(parts);
    Ok((0..parts).map(|part| part_key(name, part, parts)).collect())
}

/// The parameters that the filter of each part must have, given those of the whole filter.
pub(crate) fn part_wanted(whole: Wanted, parts: usize) -> anyhow::Result<Wanted> {
    match whole {
        Wanted::Bloom(spec) if !spec.cell.counts() => {
            Ok(Wanted::Bloom(Spec { capacity: part_capacity(spec.capacity, parts), ..spec }))
        }
        _ => Err(Failure::Usage("--spread is for Bloom filters without counters".into()).into()),
    }
}

/// The file of a part.
pub(crate) fn part_file(file: &Path, part: usize, parts: usize) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{part}-of-{parts}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors in docs/CLUSTER.md.
    #[test]
    fn items_and_keys_are_those_of_other_clients() {
        for (item, parts, part, key) in [
            (&b""[..], 64, 56, "{users:56/64:11}"),
            (b"ada", 64, 63, "{users:63/64:30}"),
            (b"user:1", 64, 42, "{users:42/64:29}"),
            ("na\u{ef}ve".as_bytes(), 1000, 970, "{users:970/1000:37}"),
            (b"user:2", 100, 0, "{users:0/100:151}"),
            (b"\xff\x00", 7, 6, "{users:6/7:1}"),
        ] {
            assert_eq!(part_of(item, parts), part);
            assert_eq!(part_key("users", part, parts), key);
        }
    }
}
