//! Writes other systems' filters as the exact bytes that those systems write and [`import`] reads.

use super::import;
use crate::filter::Foreign;
use crate::filter::foreign::{BitOrder, Growth, Link, Scheme};
use crate::mem::Words;
use alloc::vec::Vec;

/// The bytes of a filter, generated as they are read.
pub struct Export<'f> {
    parts: Vec<Part<'f>>,
}

/// One part of the bytes.
enum Part<'f> {
    Fields(Vec<u8>),
    /// The first bytes of a link's bits. The number says how many.
    Bits(&'f Link, BitOrder, u64),
}

impl Part<'_> {
    fn len(&self) -> u64 {
        match self {
            Part::Fields(bytes) => bytes.len() as u64,
            Part::Bits(_, _, len) => *len,
        }
    }

    /// Appends `count` bytes from `offset` onwards. They must exist.
    fn read(&self, offset: u64, count: usize, to: &mut Vec<u8>) {
        let at = |offset| usize::try_from(offset).unwrap_or(usize::MAX);
        match self {
            Part::Fields(bytes) => to.extend(bytes.iter().skip(at(offset)).take(count)),
            Part::Bits(link, order, _) => {
                let skipped = at(offset % 8);
                let mut words = vec![0; skipped.saturating_add(count).next_multiple_of(8)];
                Words::read_bytes(link.words(), at(offset / 8), &mut words);
                match order {
                    BitOrder::Lowest => {}
                    BitOrder::Highest => words.iter_mut().for_each(|byte| *byte = byte.reverse_bits()),
                    BitOrder::BigEndianWords => words.chunks_exact_mut(8).for_each(<[u8]>::reverse),
                }
                to.extend(words.iter().skip(skipped).take(count));
            }
        }
    }
}

impl<'f> Export<'f> {
    /// Prepares to write the filter. Returns `None` for RedisBloom's filters, which are written in pieces: see
    /// [`redisbloom`](super::redisbloom).
    pub fn new(filter: &'f Foreign) -> Option<Export<'f>> {
        let link = filter.links().first()?;
        let spec = link.spec();
        // A server's bitmap, without the bytes that round it up to whole words.
        let bitmap = || vec![Part::Bits(link, BitOrder::Highest, spec.bytes)];
        let file = |fields, order| vec![Part::Fields(fields), Part::Bits(link, order, link.words().bytes())];
        let parts = match filter.scheme() {
            Scheme::RedisBloom(_) => return None,
            Scheme::ValkeyBloom { seed } => valkey_bloom(filter, seed)?,
            Scheme::GoZero | Scheme::Redisson => bitmap(),
            Scheme::BloomV3 => file(import::bloom_v3_fields(spec), BitOrder::BigEndianWords),
            Scheme::GuavaMitz32 => file(import::guava_fields(0, spec), BitOrder::BigEndianWords),
            Scheme::GuavaMitz64 => file(import::guava_fields(1, spec), BitOrder::BigEndianWords),
            Scheme::Sbbf => file(import::sbbf_fields(spec), BitOrder::Lowest),
        };
        Some(Export { parts })
    }

    /// Number of bytes.
    #[allow(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> u64 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(part.len()))
    }

    /// Returns `count` bytes from byte `offset` onwards, or fewer at the end.
    pub fn read(&self, offset: u64, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut before = 0u64;
        for part in &self.parts {
            let within = offset.saturating_sub(before);
            let missing = count.saturating_sub(bytes.len());
            let rest = usize::try_from(part.len().saturating_sub(within)).unwrap_or(usize::MAX);
            part.read(within.min(part.len()), missing.min(rest), &mut bytes);
            before = before.saturating_add(part.len());
        }
        bytes
    }
}

/// The payload of valkey-bloom's BF.LOAD.
fn valkey_bloom<'f>(filter: &'f Foreign, seed: &[u8; 32]) -> Option<Vec<Part<'f>>> {
    let Growth::ValkeyBloom { expansion, error_rate, tightening, is_seed_random } = filter.growth() else {
        return None;
    };
    let count = filter.links().len() as u64;
    let mut parts =
        vec![Part::Fields(import::payload_fields(expansion, error_rate, tightening, is_seed_random, count))];
    for link in filter.links() {
        let [before, after] = import::payload_fields_of(link, seed);
        parts.extend([
            Part::Fields(before),
            Part::Bits(link, BitOrder::Lowest, link.spec().bytes),
            Part::Fields(after),
        ]);
    }
    Some(parts)
}
