//! One logical Bloom filter that is spread over the nodes of a cluster. Each of its parts is a filter under its own key, and every
//! item belongs to one part. docs/CLUSTER.md has the rules, with vectors; the Python package's `SpreadBloom` follows the same.

use super::connection::{Connection, Server};
use crate::error::Failure;
use crate::input::items_of;
use crc::{CRC_16_XMODEM, Crc};
use ring::digest::{SHA256, digest};
use std::thread;

/// Slots of a cluster.
const SLOTS: usize = 16_384;

/// The chance that any part gets more items than it is sized for when the whole filter is full.
const OVERFLOW: f64 = 1e-9;

/// Parts that are asked at the same time.
const TOGETHER: usize = 8;

/// The part of an item: the first 8 bytes of its SHA-256, as a fraction of 2^64, of the number of parts.
fn part_of(item: &[u8], parts: usize) -> usize {
    let hash = digest(&SHA256, item);
    let first = hash.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    ((u128::from(first) * parts as u128) >> 64) as usize
}

/// The key of a part. Each part has a range of the slots. The hash tag ends in the first number that brings it there.
fn part_key(name: &str, part: usize, parts: usize) -> String {
    let slots = SLOTS * part / parts..SLOTS * (part + 1) / parts;
    let crc = Crc::<u16>::new(&CRC_16_XMODEM);
    let tag = |number: u64| format!("{name}:{part}/{parts}:{number}");
    let fits = |tag: &String| slots.contains(&(usize::from(crc.checksum(tag.as_bytes())) % SLOTS));
    (0..).map(tag).find(fits).map(|tag| format!("{{{tag}}}")).unwrap_or_default()
}

/// The capacity of a part: its share, plus what chance may add (Bernstein's inequality).
pub(crate) fn part_capacity(capacity: u64, parts: usize) -> u64 {
    if parts == 1 {
        return capacity;
    }
    let (mean, log) = (capacity as f64 / parts as f64, (parts as f64 / OVERFLOW).ln());
    let slack = log / 3.0 + (log * log / 9.0 + 2.0 * log * mean).sqrt();
    capacity.min((mean + slack).ceil() as u64)
}

/// Such a filter, and a connection for each part.
pub(crate) struct Spread {
    parts: Vec<(String, Connection)>,
}

/// Items of one part.
#[derive(Clone, Default)]
pub(crate) struct Share {
    /// Their places among all items.
    pub(crate) places: Vec<usize>,
    /// The items, each after its length.
    pub(crate) blob: Vec<u8>,
}

impl Spread {
    /// Connects to the nodes of all parts.
    pub(crate) fn connect(server: &Server, name: &str, parts: u16) -> anyhow::Result<Spread> {
        if name.is_empty() || name.contains(['{', '}']) {
            let text = "with --spread, the key is a name that stands between braces in the keys of the parts: it cannot be \
                        empty or have braces";
            return Err(Failure::Usage(text.into()).into());
        }
        let parts = usize::from(parts);
        let connect = |part| Ok((part_key(name, part, parts), server.connect()?));
        Ok(Spread { parts: (0..parts).map(connect).collect::<anyhow::Result<_>>()? })
    }

    /// Number of parts.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// The items of a blob, by the part that they belong to.
    pub(crate) fn shares(&self, blob: &[u8]) -> Vec<Share> {
        let mut shares = vec![Share::default(); self.len()];
        for (place, item) in items_of(blob).enumerate() {
            let share = &mut shares[part_of(item, self.len())];
            share.places.push(place);
            share.blob.extend_from_slice(&(item.len() as u32).to_le_bytes());
            share.blob.extend_from_slice(item);
        }
        shares
    }

    /// Does the same work for every part, several at a time, and returns the results in the order of the parts. All
    /// parts are tried; the first error is returned.
    pub(crate) fn each<T: Send>(
        &mut self,
        work: impl Fn(usize, &str, &mut Connection) -> anyhow::Result<T> + Sync,
    ) -> anyhow::Result<Vec<T>> {
        let size = self.len().div_ceil(TOGETHER);
        let work = &work;
        let of_chunk = |first: usize, parts: &mut [(String, Connection)]| {
            let numbered = (first..).zip(parts);
            numbered.map(|(part, (key, connection))| work(part, key, connection)).collect::<Vec<_>>()
        };
        let results = thread::scope(|scope| {
            let chunks = self.parts.chunks_mut(size).enumerate();
            let threads: Vec<_> =
                chunks.map(|(index, parts)| scope.spawn(move || of_chunk(index * size, parts))).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, Vec<anyhow::Result<T>>>| {
                thread.join().unwrap_or_else(|_| vec![Err(anyhow::anyhow!("a thread has panicked"))])
            };
            threads.into_iter().flat_map(join).collect::<Vec<_>>()
        });
        results.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of docs/CLUSTER.md.
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

    #[test]
    fn parts_have_room_for_chance() {
        assert_eq!(part_capacity(1000, 1), 1000);
        assert_eq!(part_capacity(10, 64), 10);
        assert_eq!(part_capacity(1_000_000_000, 64), 15_652_894);
    }
}
