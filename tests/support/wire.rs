//! Takes the wire format apart and seals it again, so that tests can give the decoder wrong data under correct
//! checksums.

use super::naive::{mix, scale};
use bloomery::filter::FilterRef;
use bloomery::wire::{DecodeError, Decoder, Encoder, Sink, Source, VERSION, value};
use bloomery::{Bloom, Filter, Layout};
use std::collections::VecDeque;
use std::ops::Range;

/// Bytes of the envelope before the header.
pub(crate) const ENVELOPE: usize = 24;
/// Bytes of the filter's header.
pub(crate) const FILTER_HEADER: usize = 96;
/// Bytes of each layer's header.
pub(crate) const LAYER_HEADER: usize = 40;
/// The kind byte in the head of a cuckoo filter.
pub(crate) const CUCKOO: u8 = 4;
/// The kind byte in the head of another system's filter.
pub(crate) const FOREIGN: u8 = 5;
/// Bytes of the header of another system's filter.
pub(crate) const FOREIGN_HEADER: usize = 64;
/// Bytes of the header of each link in another system's filter.
pub(crate) const LINK_HEADER: usize = 64;
/// The kind byte in the head of a filter that is being rebuilt.
pub(crate) const REBUILD: u8 = 6;
/// Bytes of a rebuild's own header, before the headers of its two filters.
pub(crate) const REBUILD_HEADER: usize = 16;
/// Bytes before the data of a chunk.
pub(crate) const CHUNK_PREFIX: usize = 20;
/// The maximum number of cell bytes in a packed filter.
pub(crate) const MOST_PACKED: u64 = 2048;

/// The bytes of a filter's file.
pub(crate) fn encode<'a>(filter: impl Into<FilterRef<'a>>) -> Vec<u8> {
    Encoder::native(filter).to_vec()
}

/// A Bloom filter from its file.
pub(crate) fn decode(bytes: &[u8]) -> Result<Bloom, DecodeError> {
    Decoder::read(bytes).map(|value| value.into_bloom().expect("no cuckoo filter"))
}

/// The strings of a value in an RDB file.
#[derive(Default)]
pub(crate) struct Strings(pub(crate) VecDeque<Vec<u8>>);

impl Sink for Strings {
    fn unsigned(&mut self, _: u64) {
        unreachable!("a value of our type has strings alone");
    }

    fn double(&mut self, _: f64) {
        unreachable!("a value of our type has strings alone");
    }

    fn string(&mut self, bytes: &[u8]) {
        self.0.push_back(bytes.to_vec());
    }
}

impl Source for Strings {
    fn unsigned(&mut self) -> Option<u64> {
        None
    }

    fn double(&mut self) -> Option<f64> {
        None
    }

    fn string<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.0.pop_front().map(|bytes| read(&bytes))
    }
}

/// The strings of a filter in an RDB file.
pub(crate) fn saved<'a>(filter: impl Into<FilterRef<'a>>) -> Strings {
    let mut strings = Strings::default();
    value::save(&mut strings, filter);
    strings
}

/// The only string of a small filter in an RDB file.
pub(crate) fn pack<'a>(filter: impl Into<FilterRef<'a>>) -> Vec<u8> {
    let Strings(mut strings) = saved(filter);
    assert_eq!(strings.len(), 1, "it is packed");
    strings.remove(0).unwrap()
}

/// The reverse of [`pack`].
pub(crate) fn unpack(bytes: &[u8]) -> Result<Filter, DecodeError> {
    value::decode(&mut Strings([bytes.to_vec()].into()), VERSION.into())
}

/// The cells of a filter as they are written, without heads and checksums.
pub(crate) fn body<'a>(filter: impl Into<FilterRef<'a>>) -> Vec<u8> {
    let bytes = encode(filter);
    pieces(&bytes).into_iter().skip(1).flat_map(|at| bytes[at][CHUNK_PREFIX..].to_vec()).collect()
}

/// A filter's cells that aren't 0, each with its layer, its index and its value. For fingerprints, the identities in
/// order, each with its count. In a window, only the identities that are alive, each with its age. An identity consists
/// of an item's first window of cells and its fingerprint.
pub(crate) fn cells(filter: &Bloom) -> Vec<(usize, u64, u64)> {
    let body = body(filter);
    let mut rest = &body[..];
    let mut all = Vec::new();
    for (number, layer) in filter.layers().iter().enumerate() {
        let (bytes, after) = rest.split_at(layer.bytes() as usize);
        rest = after;
        let shape = layer.shape();
        let bit = |at: u64| u64::from(bytes[(at / 8) as usize] >> (at % 8) & 1);
        let bits = |at: u64, width: u32| (0..u64::from(width)).map(|i| bit(at + i) << i).sum::<u64>();
        if shape.layout != Layout::Fingerprint {
            let width = shape.cell.bits();
            let cells = (0..shape.cells).map(|cell| (number, cell, bits(cell * u64::from(width), width)));
            all.extend(cells.filter(|(_, _, value)| *value > 0));
            continue;
        }
        let payload = shape.cell_bits() - shape.probes - 2;
        let width = u64::from(shape.cell_bits());
        let span = filter.window().map(|window| (window.span(), window.newest(), window.floor()));
        // The cells are followed by a word of zeros, and one word for each sector.
        let cleaned = |cell: u64| bits(((shape.cells * width).div_ceil(64) + 1 + cell / 2048) * 64, 64);
        let mut identities = Vec::new();
        for cell in 0..shape.cells {
            let at = cell * width;
            let fingerprint = bits(at, shape.probes);
            let is_second = bit(at + u64::from(shape.probes)) == 1;
            let place = bit(at + u64::from(shape.probes) + 1);
            let count = bits(at + u64::from(shape.probes) + 2, payload);
            let is_counted = payload > 0 && span.is_none();
            if (fingerprint, count) == (0, 0) || (is_counted && count == 0) {
                assert_eq!(bits(at, width as u32), 0, "a free cell is 0");
                continue;
            }
            let (window, windows) = (cell - place, shape.cells - 1);
            let distance = 2 + scale(mix(mix(fingerprint)), windows - 3);
            let first = if is_second { (window + windows - distance) % windows } else { window };
            let value = match span {
                None => count.max(1),
                Some((span, newest, floor)) => {
                    let latest = cleaned(cell) + (1 << payload) - span;
                    let generation = (0..=latest).rev().find(|n| n % (1 << payload) == count);
                    let age = newest - generation.expect("a number below 2^t");
                    if age >= span || newest - age < floor {
                        continue;
                    }
                    age
                }
            };
            identities.push((number, first << shape.probes | fingerprint, value));
        }
        identities.sort_unstable();
        all.extend(identities);
    }
    all
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// The positions of a file's pieces: the head, then the chunks.
pub(crate) fn pieces(bytes: &[u8]) -> Vec<Range<usize>> {
    let head = ENVELOPE + u32_at(bytes, 8) as usize;
    let (mut pieces, mut at, mut end) = (Vec::new(), 0, head);
    loop {
        pieces.push(at..end);
        if end >= bytes.len() {
            return pieces;
        }
        at = end;
        end += CHUNK_PREFIX + u32_at(bytes, at + 8) as usize;
    }
}

/// The stamp of a head: the CRC-32C of its header, layers and links, with the numbers of items of layers and links set
/// to 0. For a filter that is being rebuilt, the CRC-32C of both filters' stamps. In a dump, the stamp is XORed with
/// the filter's dump number.
pub(crate) fn stamp(head: &[u8]) -> u32 {
    stamp_of(head[5], &head[ENVELOPE..]) ^ u32::from(u16::from_le_bytes([head[6], head[7]]))
}

fn stamp_of(kind: u8, header: &[u8]) -> u32 {
    let (first, len, items) = match kind {
        REBUILD => {
            let filters = header.get(REBUILD_HEADER..).unwrap_or_default();
            let live_len = header.get(8..12).map_or(0, |_| u32_at(header, 8) as usize);
            let (live, shadow) = filters.split_at(live_len.min(filters.len()));
            let kind = |at: usize| header.get(at).copied().unwrap_or(0).min(FOREIGN);
            let stamps = [stamp_of(kind(12), live), stamp_of(kind(13), shadow)];
            return crc32c::crc32c(&stamps.map(u32::to_le_bytes).concat());
        }
        CUCKOO => return crc32c::crc32c(header),
        FOREIGN => (FOREIGN_HEADER, LINK_HEADER, 32),
        _ => (FILTER_HEADER, LAYER_HEADER, 24),
    };
    let mut header = header.to_vec();
    for part in (first..header.len()).step_by(len) {
        let end = header.len().min(part + items + 8);
        header[(part + items).min(end)..end].fill(0);
    }
    crc32c::crc32c(&header)
}

/// Corrects the checksum of a head.
pub(crate) fn seal_head(head: &mut [u8]) {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..20]), &head[ENVELOPE..]);
    head[20..24].copy_from_slice(&crc.to_le_bytes());
}

/// Corrects the checksum of a chunk.
pub(crate) fn seal_chunk(chunk: &mut [u8]) {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&chunk[..16]), &chunk[CHUNK_PREFIX..]);
    chunk[16..20].copy_from_slice(&crc.to_le_bytes());
}

/// Corrects all checksums, and sets the chunks' stamps to the head's. `at` contains the positions that the pieces had
/// before the test changed their lengths.
pub(crate) fn seal(bytes: &mut [u8], at: &[Range<usize>]) {
    let (head, chunks) = at.split_first().expect("a file has a head");
    seal_head(&mut bytes[head.clone()]);
    let stamp = stamp(&bytes[head.clone()]);
    for chunk in chunks {
        bytes[chunk.start + 12..chunk.start + 16].copy_from_slice(&stamp.to_le_bytes());
        seal_chunk(&mut bytes[chunk.clone()]);
    }
}

/// Corrects all checksums without changing the stamps, for tests that change a stamp itself.
pub(crate) fn seal_checksums(bytes: &mut [u8], at: &[Range<usize>]) {
    seal_head(&mut bytes[at[0].clone()]);
    at[1..].iter().for_each(|chunk| seal_chunk(&mut bytes[chunk.clone()]));
}
