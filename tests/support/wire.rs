//! Takes the wire format apart and seals it again, so that tests can give the decoder wrong data under correct
//! checksums.

use bloomery::filter::FilterRef;
use bloomery::wire::{DecodeError, Decoder, Encoder, Sink, Source, VERSION, value};
use bloomery::{Bloom, Cell, Filter, ItemHash};
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

/// Whether a filter is packed: it is small, or a table with one leaf and few items.
pub(crate) fn is_packed<'a>(filter: impl Into<FilterRef<'a>>) -> bool {
    let Strings(strings) = saved(filter);
    strings.len() == 1
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

/// A filter's cells that aren't 0, each with its layer, its index and its value. The filter has no table.
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
        let width = shape.cell.bits();
        let cells = (0..shape.cells).map(|cell| (number, cell, bits(cell * u64::from(width), width)));
        all.extend(cells.filter(|(_, _, value)| *value > 0));
    }
    all
}

/// What a table has instead of cells with indices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prefix {
    /// The first bits of a hash, and their number.
    pub(crate) bits: u128,
    pub(crate) length: u32,
    /// The count, or the age in a window; `None` if the generation has expired. 1 in a filter of bits.
    pub(crate) value: Option<u64>,
}

impl Prefix {
    pub(crate) fn begins(&self, item: ItemHash) -> bool {
        let hash = u128::from(item.high) << 64 | u128::from(item.low);
        (hash ^ self.bits) & ((1 << self.length) - 1) == 0
    }
}

/// All prefixes of a table, from its bytes.
pub(crate) fn prefixes(filter: &Bloom) -> Vec<Prefix> {
    const END: u64 = 1 << 60;
    let body = body(filter);
    let mut words = body.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let window = filter.window().map(|window| (window.span(), window.newest()));
    let payload_bits = match window {
        Some((span, ..)) => (span + span.div_ceil(4)).next_power_of_two().ilog2(),
        None if filter.spec().cell == Cell::Bit => 0,
        None => filter.spec().cell.bits(),
    };
    let (mut all, mut position) = (Vec::new(), 0);
    while position < END {
        let head = words.next().unwrap();
        let [cells, width, marked, depth, log2] =
            [(0, 16), (16, 8), (24, 1), (32, 8), (40, 8)].map(|(at, bits)| head >> at & ((1 << bits) - 1));
        let leaf: u128 = (0..depth).map(|bit| u128::from(position >> (59 - bit) & 1) << bit).sum();
        position += END >> depth;
        let cleaned = if window.is_some() && cells > 0 { words.next().unwrap() } else { 0 };
        let mut take = |bits: u64| -> Vec<bool> {
            let words: Vec<u64> = words.by_ref().take(bits.div_ceil(64) as usize).collect();
            words.iter().flat_map(|word| (0..64).map(move |bit| word >> bit & 1 == 1)).collect()
        };
        let unary = take(if cells == 0 { 0 } else { (1 << log2) + cells });
        let list = take(cells * width);
        let quotients = unary.iter().scan(0u128, |quotient, is_cell| {
            let found = *quotient;
            *quotient += u128::from(!is_cell);
            Some(is_cell.then_some(found))
        });
        for (index, quotient) in quotients.flatten().enumerate() {
            let at = list.len() - (index + 1) * width as usize;
            let bits = |from: usize, to: usize| -> u64 {
                (from..to).map(|bit| u64::from(list[at + bit]) << (bit - from)).sum()
            };
            let stored = (width - u64::from(payload_bits)) as usize;
            let mut remainder = bits(0, stored);
            let length = if marked == 1 { remainder.ilog2() } else { stored as u32 };
            remainder &= (1 << length) - 1;
            let payload = bits(stored, width as usize);
            let value = match window {
                None => Some(payload.max(1)),
                Some((span, newest)) => {
                    let latest = cleaned + (1 << payload_bits) - span;
                    let age = (newest + (latest - payload) % (1 << payload_bits)).saturating_sub(latest);
                    (age < span).then_some(age)
                }
            };
            let address = (depth + log2) as u32;
            let bits = leaf | quotient << depth | u128::from(remainder) << address;
            all.push(Prefix { bits, length: address + length, value });
        }
    }
    assert_eq!(words.next(), None, "nothing follows the last leaf");
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
/// to 0, and the sizes of tables. For a filter that is being rebuilt, the CRC-32C of both filters' stamps. In a dump,
/// the stamp is XORed with the filter's dump number.
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
    if kind != FOREIGN && header.len() >= FILTER_HEADER {
        // The numbers of items in the generations of a table.
        header.truncate(FILTER_HEADER + LAYER_HEADER * (u32_at(&header, 88) as usize).min(1 << 16));
    }
    for part in (first..header.len()).step_by(len) {
        let clear = |header: &mut Vec<u8>, from: usize, to: usize| {
            let end = header.len().min(part + to);
            header[(part + from).min(end)..end].fill(0);
        };
        clear(&mut header, items, items + 8);
        if kind != FOREIGN && header.get(part + 36) == Some(&3) {
            // A table's numbers of leaves and quotients.
            clear(&mut header, 16, 24);
            clear(&mut header, 32, 36);
        }
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
