//! Small filters as values of an RDB file: each is one string, the same in every version. Bytes that aren't a filter
//! are refused.

use super::corrupt::{any_survives, has_table};
use crate::support::alloc_counter::weighed;
use crate::support::golden::{all, bytes, names, path};
use crate::support::{describe, wire};
use bloomery::wire::{DecodeError, VERSION, value};
use bloomery::{Bloom, Cuckoo, Filter, Seed, Spec};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fs;

/// The names and the packed bytes of the small golden filters.
fn packed() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    all().into_iter().filter(|(_, filter)| wire::is_packed(filter)).map(|(name, _)| {
        let packed = fs::read(path(name, "packed")).unwrap_or_else(|why| panic!("{name}: {why}"));
        (name, packed)
    })
}

/// Corrects the checksum.
fn seal(packed: &mut [u8]) {
    let (sealed, crc) = packed.split_last_chunk_mut().unwrap();
    *crc = crc32c::crc32c(sealed).to_le_bytes();
}

/// Returns whether the bytes load. A filter that loads survives every operation, and is packed as it was read, because
/// each filter has only one encoding. Tables are [the exception](is_table).
fn refused_or_survives(packed: &[u8], name: &str) -> bool {
    match wire::unpack(packed) {
        Ok(filter) => {
            assert!(
                has_table(&filter) || wire::pack(&filter) == packed,
                "{name}: loads, but is written otherwise"
            );
            any_survives(filter, name);
            true
        }
        Err(why) => {
            assert!(!why.to_string().is_empty());
            false
        }
    }
}

#[test]
fn small_filters_are_packed_as_ever_and_large_ones_are_in_pieces() {
    let (mut small, mut large) = (0, 0);
    for (name, filter) in all() {
        let saved = wire::saved(&filter);
        assert!(has_table(&filter) || wire::is_packed(&filter) == (filter.bytes() <= wire::MOST_PACKED));
        if wire::is_packed(&filter) {
            assert!(wire::pack(&filter) == fs::read(path(name, "packed")).unwrap(), "{name}: other bytes");
            small += 1;
        } else {
            assert!(saved.0.iter().flatten().eq(&bytes(name)), "{name}: other pieces");
            large += 1;
        }
        let mut saved = saved;
        let read = value::decode(&mut saved, VERSION.into()).unwrap();
        assert_eq!(describe(&read), describe(&filter), "{name}");
        assert!(saved.0.is_empty() && wire::encode(&read) == bytes(name), "{name}");
        // Every filter can also be read from pieces, whether small or not.
        let pieces = bytes(name);
        let strings = wire::pieces(&pieces).into_iter().map(|at| pieces[at].to_vec()).collect();
        let read = value::decode(&mut wire::Strings(strings), VERSION.into()).unwrap();
        assert!(wire::encode(&read) == bytes(name), "{name}");
    }
    assert!(small >= names().count() - 5 && large > 0, "{small} of {}", names().count());
}

/// The packed form of a filter with default options is short, because a server may have a million of them. For such a
/// filter, RedisBloom writes 45 bytes, and 144 bytes of cells, which the server compresses.
#[test]
fn a_default_filter_is_short() {
    let spec = Spec { seed: Seed::from(u128::from(u64::MAX)), ..Spec::scaling(100, 0.01) };
    let mut filter = Bloom::new(spec).unwrap();
    for (items, most) in [(0, 39), (1, 60), (10, 125), (100, 40 + 136)] {
        (0..items).for_each(|item: u32| {
            let _ = filter.insert(item.to_le_bytes()).unwrap();
        });
        let len = wire::pack(&filter).len();
        assert!(len <= most, "{len} bytes with {items} items");
    }
}

#[test]
fn a_newer_encoding_is_refused() {
    let saved = || wire::saved(&Bloom::fixed(100, 0.01).unwrap());
    for encoding in [2, 255] {
        let refused = value::decode(&mut saved(), encoding);
        assert_eq!(refused.err(), Some(DecodeError::Version(encoding as u8)));
    }
    assert!(value::decode(&mut saved(), 0).is_ok() && value::decode(&mut saved(), 1).is_ok());
}

#[test]
fn a_value_that_is_cut_is_refused() {
    let filter = Bloom::fixed(10_000, 0.01).unwrap();
    let strings = wire::saved(&filter).0;
    assert_eq!(strings.len(), 2);
    for len in 0..strings.len() {
        let mut cut = wire::Strings(strings.iter().take(len).cloned().collect());
        assert_eq!(value::decode(&mut cut, 1).err(), Some(DecodeError::Length("payload")), "{len} strings");
    }
    for (name, packed) in packed() {
        (0..packed.len())
            .for_each(|len| assert!(wire::unpack(&packed[..len]).is_err(), "{name} cut to {len}"));
        for tail in [vec![0], vec![0; 8], packed.clone()] {
            assert!(wire::unpack(&[packed.clone(), tail].concat()).is_err(), "{name} with more");
        }
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    for (name, mut packed) in packed() {
        for bit in 0..packed.len() * 8 {
            packed[bit / 8] ^= 1 << (bit % 8);
            assert!(wire::unpack(&packed).is_err(), "{name}, bit {bit}");
            packed[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// If the checksum is correct, only validation stands between a flipped bit and a bad filter.
#[test]
fn every_flipped_bit_under_a_true_checksum_is_refused_or_harmless() {
    for (name, packed) in packed() {
        let (mut loaded, mut refused) = (0, 0);
        for bit in 0..(packed.len() - 4) * 8 {
            let mut flipped = packed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            seal(&mut flipped);
            *if refused_or_survives(&flipped, name) { &mut loaded } else { &mut refused } += 1;
        }
        println!("{name}: {loaded} flips loaded, {refused} refused");
        assert!(refused > 40, "{name}: {refused}");
    }
}

/// Packed filters with bytes changed, inserted, removed or cut off, but a correct checksum, are refused or harmless,
/// and need no more memory than a small filter.
#[test]
fn noise_is_refused_and_takes_little() {
    let mut random = StdRng::seed_from_u64(11);
    let all: Vec<_> = packed().collect();
    let mut loaded = 0;
    for _ in 0..30_000 {
        let (_, mut noise) = all[random.random_range(0..all.len())].clone();
        noise.truncate(noise.len() - 4);
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..noise.len());
            match random.random_range(0..4) {
                0 => noise[at] = random.random(),
                1 => noise.insert(at, random.random()),
                2 if noise.len() > 1 => drop(noise.remove(at)),
                _ => noise.truncate(at.max(2)),
            }
        }
        noise.extend([0; 4]);
        seal(&mut noise);
        let (_, taken) = weighed(|| wire::unpack(&noise));
        // A foreign filter's head has about as many bytes for each link as the link needs in memory, so a short head
        // can't describe many links.
        assert!(taken <= 64 << 10, "{taken} bytes for {}", noise.len());
        loaded += u32::from(refused_or_survives(&noise, "noise"));
    }
    assert!(loaded > 100, "{loaded}");
}

/// An encoding that could be shorter is refused. Otherwise a filter would have two encodings.
#[test]
fn what_can_be_shorter_is_refused() {
    let empty = Bloom::new(Spec { seed: Seed::from(7u128), ..Spec::fixed(8, 0.5) }).unwrap();
    let packed = wire::pack(&empty);
    // Kind, form, length of the header; mask, capacity 8, error rate in nine bytes, seed 7, hash, cell, shards, layers;
    // mask, 64 cells, one probe, CLASSIC.
    let start =
        [1, 1, 20, 0x7F, 8, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0xF0, 0x3F, 7, 1, 1, 1, 1, 7, 64, 1, 1];
    assert_eq!(packed[..packed.len() - 4], start);
    let of = |bytes: &[u8]| {
        let mut other = [bytes, &[0; 4]].concat();
        seal(&mut other);
        wire::unpack(&other)
    };
    assert!(of(&start).is_ok());
    let with = |range: std::ops::Range<usize>, other: &[u8]| {
        let mut bytes = start.to_vec();
        bytes[2] = bytes[2] + other.len() as u8 - range.len() as u8;
        bytes.splice(range, other.iter().copied());
        of(&bytes)
    };
    let length = Some(DecodeError::Length("header"));
    assert_eq!(with(14..15, &[0x87, 0]).err(), length, "a number with a zero behind it");
    assert_eq!(with(14..15, &[0]).err(), length, "a zero that need not be there");
    assert_eq!(with(14..15, &[0xFF; 10]).err(), length, "a number above 64 bits");
    assert_eq!(with(3..4, &[0xFF, 0x80, 0x10]).err(), length, "a field that there is not");
    let explicit = [&[0x37, 64, 1, 1, 8], &start[5..14]].concat();
    assert_eq!(with(19..23, &explicit).err(), Some(DecodeError::Field("layer")), "what follows by itself");
    assert!(
        with(19..23, &[&[0x37, 64, 1, 1, 8], &start[5..13], &[0x3E]].concat()).is_ok(),
        "another error rate"
    );
    let whole = [&[1, 0], &start[2..], &[0; 8]].concat();
    assert_eq!(of(&whole).err(), Some(DecodeError::Field("form")));
    let positions = [&start[..], &[0; 8]].concat();
    assert_eq!(of(&positions).err(), Some(DecodeError::Field("form")), "eight bits in eight bytes");
    let beyond = [&start[..], &[64]].concat();
    assert_eq!(of(&beyond).err(), Some(DecodeError::Length("body")));
    assert!(of(&[&start[..], &[63]].concat()).is_ok());
}

/// After a merge, a chain can have layers of any capacity.
#[test]
fn a_layer_that_was_not_planned_is_kept() {
    let mut file = bytes("chain-by-2");
    let pieces = wire::pieces(&file);
    let capacity = wire::ENVELOPE + wire::FILTER_HEADER + wire::LAYER_HEADER;
    file[capacity] += 1;
    wire::seal(&mut file, &pieces);
    let merged = wire::decode(&file).unwrap();
    assert!(merged.layers().len() > 2);
    let read = wire::unpack(&wire::pack(&merged)).unwrap();
    assert!(wire::encode(&read) == file);
}

/// Whatever a head declares, a packed filter is small.
#[test]
fn large_filters_are_not_packed() {
    for filter in
        [Filter::Bloom(Bloom::fixed(1700, 0.01).unwrap()), Filter::from(Cuckoo::with_capacity(2000).unwrap())]
    {
        assert!(filter.bytes() <= wire::MOST_PACKED);
        let packed = wire::pack(&filter);
        assert!(wire::unpack(&packed).is_ok());
    }
    let small = wire::pack(&Bloom::new(Spec { seed: Seed::from(7u128), ..Spec::fixed(8, 0.5) }).unwrap());
    // 2^14 bits are allowed, and 64 more are not.
    for (cells, is_allowed) in [([0x80, 0x80, 1], true), ([0xC0, 0x80, 1], false)] {
        let mut other = small.clone();
        other[2] += 2;
        other.splice(20..21, cells);
        seal(&mut other);
        assert_eq!(wire::unpack(&other).is_ok(), is_allowed);
        assert_eq!(wire::unpack(&other).err(), (!is_allowed).then_some(DecodeError::Length("body")));
    }
}
