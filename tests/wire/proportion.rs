//! Loading needs memory in proportion to the bytes that have arrived, whatever the head declares.

use crate::support::alloc_counter::{live, weighed};
use crate::support::golden;
use bloomery::filter::Filter;
use bloomery::wire::redisbloom::Loader;
use bloomery::wire::{DecodeError, Decoder, Encoder};
use bloomery::{Bloom, Cuckoo, Spec};

/// Bytes for a map, a list or an error, however little data has arrived.
const CONSTANT: u64 = 4096;

/// Bytes of a command in addition to the piece: its name, the key, the iterator, and their lengths.
const COMMAND: u64 = 60;

/// The maximum number of bytes of memory that reading a head may need for each of its bytes.
const HEAD: u64 = 4;

/// Pushes pieces, and after each compares the allocated bytes with the bytes that have arrived.
fn watch<L>(
    name: &str,
    head: &[u8],
    begin: impl FnOnce(&[u8]) -> L,
    chunks: &[(u64, Vec<u8>)],
    push: impl Fn(&mut L, u64, &[u8]),
    held: impl Fn(&L) -> u64,
) {
    let before = live();
    let (mut loader, taken) = weighed(|| begin(head));
    let head = head.len() as u64;
    assert!(taken as u64 <= HEAD * head + CONSTANT, "{name}: {taken} bytes for a head of {head}");
    let mut came = 0;
    for (end, chunk) in chunks {
        push(&mut loader, *end, chunk);
        came += chunk.len() as u64 + COMMAND;
        let taken = (live() - before) as u64;
        assert!(taken <= HEAD * head + 3 * came + CONSTANT, "{name}: {taken} bytes for {came}");
        // The number in INFO, which is compared with the limits, isn't too low.
        assert!(
            taken <= HEAD * head + held(&loader) + CONSTANT,
            "{name}: {taken} bytes, and {} told",
            held(&loader)
        );
    }
}

fn large() -> Vec<(&'static str, Filter)> {
    let bloom = |spec| Filter::Bloom(Bloom::new(spec).unwrap());
    let mut found = vec![
        ("fixed", bloom(Spec::fixed(4_000_000, 0.01))),
        ("counting", bloom(Spec::counting(1_000_000, 0.01))),
        ("window", bloom(Spec::window(1_000_000, 0.01, 3))),
        ("cuckoo", Filter::Cuckoo(Cuckoo::with_capacity(4_000_000).unwrap())),
    ];
    found.extend(golden::all());
    found
}

#[test]
fn heads_and_chunks_take_what_they_bring() {
    for (name, filter) in large() {
        for size in [8, 1 << 10, 1 << 16, 1 << 20] {
            // In Bloomery's format. The chunks are cut further, so that at most `size` bytes come at a time.
            let encoder = Encoder::native(&filter);
            let (stamp, mut chunks) = (std::cell::Cell::new([0; 4]), Vec::new());
            encoder.chunks(|end, chunk| {
                stamp.set(chunk[12..16].try_into().unwrap());
                let start = end - (chunk.len() as u64 - 20);
                for (index, data) in chunk[20..].chunks(size).take(2000).enumerate() {
                    let offset = start + (index * size) as u64;
                    chunks.push((offset + data.len() as u64, sealed(offset, stamp.get(), data)));
                }
            });
            // Only chunks without a gap before them, because the others would be refused.
            let in_order = chunks.iter().scan(0, |at, (end, chunk)| {
                let fits = *end - (chunk.len() as u64 - 20) == *at;
                *at = *end;
                fits.then(|| (*end, chunk.clone()))
            });
            watch(
                &format!("{name} by {size}"),
                encoder.head(),
                |head| Decoder::new(head).unwrap().in_proportion(),
                &in_order.collect::<Vec<_>>(),
                |decoder, _, chunk| decoder.push(chunk).unwrap(),
                Decoder::held,
            );
            let theirs = Encoder::new(&filter);
            if theirs.head().starts_with(b"BLMY") {
                continue;
            }
            // In RedisBloom's format, starting from the end.
            let mut chunks = Vec::new();
            theirs.chunks(|end, chunk| {
                let mut end = end;
                for data in chunk.rchunks(size).take(2000) {
                    chunks.push((end, data.to_vec()));
                    end -= data.len() as u64;
                }
            });
            let cuckoo = matches!(filter, Filter::Cuckoo(_));
            watch(
                &format!("RedisBloom's {name} by {size}"),
                theirs.head(),
                |head| if cuckoo { Loader::cuckoo(head) } else { Loader::bloom(head) }.unwrap(),
                &chunks,
                |loader, end, chunk| loader.push(end, chunk).unwrap(),
                Loader::held,
            );
        }
    }
}

/// The worst order and length of pieces: individual bytes without neighbours, and runs of two bytes that come one by
/// one. A load never needs more memory than about one and a half times its filter, plus a constant.
#[test]
fn scattered_bytes_take_no_more_than_the_filter_justifies() {
    const CELLS: u64 = 1 << 20;
    // Buckets of two slots, in one sub-filter.
    let head = cuckoo_head([0, CELLS / 2, 0, 1], [2, 20, 1]);
    let bound = (CELLS + CELLS / 2 + CELLS / 32) + (64 << 10) + CONSTANT;
    for (name, step, run) in [("bytes", 2, 1), ("pairs", 3, 2), ("blocks", 4097, 4096), ("far", 4096, 1)] {
        for descends in [false, true] {
            let (before, mut loader) = (live(), Loader::cuckoo(&head).unwrap());
            let mut refused = false;
            for index in 0..CELLS / step {
                let start = if descends { CELLS / step - 1 - index } else { index } * step;
                for byte in start..start + run {
                    let pushed = loader.push(byte + 1, &[0xFF]);
                    refused |= pushed == Err(DecodeError::Scattered);
                    assert!(refused || pushed.is_ok(), "{name}: {pushed:?}");
                    let taken = (live() - before) as u64;
                    assert!(taken <= bound && loader.held() <= bound, "{name}: {taken}, {}", loader.held());
                }
            }
            // Bytes or pairs close to each other are refused. Blocks of 4096 bytes, or bytes that far apart, aren't.
            assert_eq!(refused, run < 4096 && step < 4096, "{name}");
        }
    }
}

/// A chunk in Bloomery's format.
fn sealed(offset: u64, stamp: [u8; 4], data: &[u8]) -> Vec<u8> {
    let mut chunk = offset.to_le_bytes().to_vec();
    chunk.extend_from_slice(&(data.len() as u32).to_le_bytes());
    chunk.extend_from_slice(&stamp);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&chunk), data);
    chunk.extend_from_slice(&crc.to_le_bytes());
    chunk.extend_from_slice(data);
    chunk
}

/// The overhead of arrays with only a few bytes is also counted.
#[test]
fn many_small_sub_filters_are_told_in_full() {
    let head = cuckoo_head([5, 4, 0, 10_000], [1, 20, 1]);
    for order in [true, false] {
        let (loader, taken) = weighed(|| {
            let mut loader = Loader::cuckoo(&head).unwrap();
            let mut push = |index: u64| loader.push((index + 1) * 4, &[1; 4]).unwrap();
            if order {
                (0..10_000).for_each(push)
            } else {
                (0..10_000).rev().for_each(&mut push)
            }
            loader
        });
        let (taken, told) = (taken as u64, loader.held());
        assert!(taken <= told && told <= 2 * taken, "{taken} bytes, and {told} told");
    }
}

/// The head of a RedisBloom cuckoo filter: items, buckets, deletes, sub-filters; bucket size, iterations, expansion.
fn cuckoo_head(words: [u64; 4], halves: [u16; 3]) -> Vec<u8> {
    let words = words.into_iter().flat_map(u64::to_le_bytes);
    words.chain(halves.into_iter().flat_map(u16::to_le_bytes)).collect()
}

/// Reading a head of a few bytes that declares 65,536 sub-filters doesn't create a list of them.
#[test]
fn the_number_of_sub_filters_costs_nothing() {
    let theirs = cuckoo_head([5, 8, 0, 65_536], [2, 20, 1]);
    let (loader, taken) = weighed(|| Loader::cuckoo(&theirs).unwrap());
    assert_eq!(loader.body_len(), 65_536 * 16);
    assert!(taken < 1000, "{taken} bytes");
    let mut ours = Encoder::native(
        &Cuckoo::new(bloomery::CuckooSpec { expansion: 1, ..bloomery::CuckooSpec::new(8) }).unwrap(),
    )
    .head()
    .to_vec();
    ours[72..76].copy_from_slice(&65_536u32.to_le_bytes());
    let body = u64::from_le_bytes(ours[12..20].try_into().unwrap()) * 65_536;
    ours[12..20].copy_from_slice(&body.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&ours[..20]), &ours[24..]);
    ours[20..24].copy_from_slice(&crc.to_le_bytes());
    let (decoder, taken) = weighed(|| Decoder::new(&ours).unwrap());
    assert_eq!(decoder.body_len(), body);
    assert!(taken < 1000, "{taken} bytes");
}
