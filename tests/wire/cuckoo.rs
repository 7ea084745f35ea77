//! What only cuckoo filters have on the wire: padding after the slots, sizes that follow from the parameters, and a
//! stamp that shows whether fingerprints have moved. golden.rs and corrupt.rs test what they share with other filters.

use crate::support::golden::{bytes, cuckoo, item};
use crate::support::wire;
use bloomery::filter::Origin;
use bloomery::wire::{CHUNK, DecodeError, Decoder, Encoder};
use bloomery::{Cuckoo, CuckooSpec, HashKind, Seed};

fn read(bytes: &[u8]) -> Result<Cuckoo, DecodeError> {
    Decoder::read(bytes).map(|value| value.into_cuckoo().unwrap())
}

/// If bytes after the last slot of a sub-filter were set, they would count as items that no command can delete.
#[test]
fn padding_that_is_set_is_refused() {
    let golden = bytes("cuckoo-padded");
    let pieces = wire::pieces(&golden);
    let with = |at: usize, value: u8| {
        let mut changed = golden.clone();
        changed[at] = value;
        wire::seal(&mut changed, &pieces);
        read(&changed).err()
    };
    for chunk in &pieces[1..] {
        let slots = chunk.start + wire::CHUNK_PREFIX..chunk.end - 4;
        assert_eq!(slots.len(), 12);
        for at in slots.end..chunk.end {
            for value in [1, 0x80, 0xFF] {
                assert_eq!(with(at, value), Some(DecodeError::Field("padding")), "{at}");
            }
        }
        for at in slots {
            assert_eq!(with(at, 0xFF), None, "a slot holds any fingerprint");
        }
    }
}

/// The number of items isn't written, because it equals the number of slots in use.
#[test]
fn items_are_counted_and_not_written() {
    let golden = bytes("cuckoo-siphash");
    let pieces = wire::pieces(&golden);
    let mut changed = golden.clone();
    let slot = pieces[2].start + wire::CHUNK_PREFIX + 9;
    changed[slot] = if changed[slot] == 0 { 7 } else { 0 };
    wire::seal(&mut changed, &pieces);
    assert_eq!(changed[pieces[0].clone()], golden[pieces[0].clone()]);
    let (before, after) = (read(&golden).unwrap().items(), read(&changed).unwrap().items());
    assert_eq!(after.abs_diff(before), 1);
}

/// The header has a fixed length, even if the envelope declares another length under a correct checksum.
#[test]
fn a_longer_or_shorter_header_is_refused() {
    let golden = bytes("cuckoo-full");
    let head = &golden[wire::pieces(&golden)[0].clone()];
    for len in (0..200).filter(|len| *len != head.len() - wire::ENVELOPE) {
        let mut other = head.to_vec();
        other.resize(wire::ENVELOPE + len, 0);
        other[8..12].copy_from_slice(&(len as u32).to_le_bytes());
        wire::seal_head(&mut other);
        assert_eq!(Decoder::new(&other).err(), Some(DecodeError::Length("header")), "{len}");
    }
}

/// A sealed head with these parameters and this body length.
fn head(capacity: u64, bucket_size: u8, expansion: u16, tables: u32, body: u64) -> Vec<u8> {
    let golden = bytes("cuckoo-empty");
    let mut head = golden[wire::pieces(&golden)[0].clone()].to_vec();
    head[12..20].copy_from_slice(&body.to_le_bytes());
    head[24..32].copy_from_slice(&capacity.to_le_bytes());
    head[65] = bucket_size;
    head[68..70].copy_from_slice(&expansion.to_le_bytes());
    head[72..76].copy_from_slice(&tables.to_le_bytes());
    wire::seal_head(&mut head);
    head
}

/// Whether a reader accepts these parameters according to docs/FORMAT.md, and the length of the body, even for
/// parameters that the reader refuses. Both are computed with numbers that don't overflow.
fn body_of(capacity: u64, bucket_size: u8, expansion: u16, tables: u32) -> (bool, u64) {
    let [capacity, slots, growth] = [u128::from(capacity), u128::from(bucket_size), u128::from(expansion)];
    let mut valid = slots >= 1
        && (2 * slots..=1 << 48).contains(&capacity)
        && (growth == 0 || growth.is_power_of_two() && growth <= 1 << 15)
        && (1..=65_536).contains(&tables)
        && (growth > 0 || tables == 1)
        && 2 * slots * u128::from(tables) <= 1 << 20;
    let (mut buckets, mut body) = ((capacity / slots.max(1)).next_power_of_two(), 0);
    for _ in 0..tables.min(70_000) {
        valid &= buckets * slots <= 1 << 46;
        body += (buckets * slots).next_multiple_of(8);
        // Far above the limits, the exact number doesn't matter.
        buckets = (buckets * growth.max(1)).min(1 << 100);
    }
    (valid, u64::try_from(body).unwrap_or(u64::MAX))
}

#[test]
fn heads_of_impossible_size_are_refused_or_ask_for_nothing() {
    let capacities = (0..64).flat_map(|power| [(1u64 << power) - 1, 1 << power, (1 << power) + 1, u64::MAX]);
    let capacities = capacities.enumerate();
    let (mut taken, mut refused) = (0, 0);
    for (index, capacity) in capacities {
        for bucket_size in [0, 1, 2, 3, 4, 7, 128, 255] {
            for expansion in [0, 1, 2, 3, 4, 1 << 14, 1 << 15, (1 << 15) + 1, u16::MAX] {
                for tables in [0, 1, 2, 3, 47, 48, 65_536, 65_537, u32::MAX] {
                    // Checking 65,536 or more sub-filters takes a while, so only every sixteenth capacity does it.
                    if tables >= 65_536 && index % 16 != 1 {
                        continue;
                    }
                    let name = format!("{capacity} {bucket_size} {expansion} {tables}");
                    let (valid, body) = body_of(capacity, bucket_size, expansion, tables);
                    let decoded = Decoder::new(&head(capacity, bucket_size, expansion, tables, body));
                    assert_eq!(decoded.is_ok(), valid, "{name}: {decoded:?}");
                    *if valid { &mut taken } else { &mut refused } += 1;
                    let Ok(decoder) = decoded else { continue };
                    let state = (decoder.body_len(), decoder.offset(), decoder.is_complete());
                    assert_eq!(state, (body, 0, false), "{name}");
                    for other in [0, body - 8, body + 8, u64::MAX] {
                        let head = head(capacity, bucket_size, expansion, tables, other);
                        assert_eq!(Decoder::new(&head).err(), Some(DecodeError::Length("body")), "{name}");
                    }
                }
            }
        }
    }
    assert!(taken > 500 && refused > 500, "{taken} {refused}");
}

/// Field values that no command writes are refused, even if the filter would work with them. Otherwise one filter could
/// have two encodings.
#[test]
fn what_no_command_could_have_made_is_refused() {
    let golden = bytes("cuckoo-full");
    let changes: [(usize, &[u8], &str); 10] = [
        (40, &[1], "seed"),
        (47, &[0x80], "seed"),
        (55, &[0x80], "counts"),
        (63, &[0x80], "counts"),
        (64, &[0], "hash"),
        (64, &[5], "hash"),
        (66, &[0, 0], "parameters"),
        (70, &[1], "reserved"),
        (71, &[0x80], "reserved"),
        (79, &[0x80], "reserved"),
    ];
    for (at, value, field) in changes {
        let mut head = golden[wire::pieces(&golden)[0].clone()].to_vec();
        head[at..at + value.len()].copy_from_slice(value);
        wire::seal_head(&mut head);
        assert_eq!(Decoder::new(&head).err(), Some(DecodeError::Field(field)), "{value:?} at {at}");
    }
}

/// RedisBloom's hashes have no key, so a filter created with a key is the same as one without, and can be read again.
#[test]
fn a_key_that_the_hash_does_not_have_is_left_out() {
    for origin in [Origin::RedisBloom, Origin::RedisBloom1] {
        let bare = CuckooSpec {
            origin,
            seed: Seed::default(),
            hash: HashKind::default(),
            ..cuckoo("cuckoo-full").spec()
        };
        let keyed = CuckooSpec { seed: Seed::from(7), hash: HashKind::SipHash, ..bare };
        let filter = Cuckoo::new(keyed).unwrap();
        assert_eq!(filter.spec(), bare);
        assert_eq!(read(&wire::encode(&filter)).unwrap().spec(), filter.spec());
    }
}

/// A filter with one sub-filter in three chunks, filled to this percentage, and the number of its items.
fn of_three_chunks(percent: u64) -> (Cuckoo, u32) {
    let slots = 3 * CHUNK as u64;
    let (hash, seed) = (HashKind::Xxh3, Seed::from(7));
    let spec = CuckooSpec {
        capacity: slots,
        bucket_size: 3,
        max_iterations: 20,
        expansion: 1,
        origin: Origin::Bloomery,
        hash,
        seed,
    };
    let mut filter = Cuckoo::new(spec).unwrap();
    assert_eq!((filter.tables()[0].buckets(), filter.bytes()), (CHUNK as u64, slots));
    let items = u32::try_from(slots * percent / 100).unwrap();
    (0..items).for_each(|i| filter.try_insert(filter.hash(&i.to_le_bytes())).unwrap());
    (filter, items)
}

fn has(filter: &Cuckoo, i: u32) -> bool {
    filter.contains(filter.hash(&i.to_le_bytes()))
}

/// Dumps a filter with several commands, and changes it after the head and after each chunk. If stamps are `forged`,
/// every chunk seems to belong to the head.
fn dump(
    filter: &mut Cuckoo,
    forged: bool,
    mut between: impl FnMut(&mut Cuckoo),
) -> Result<Cuckoo, DecodeError> {
    let head = Encoder::new(&*filter).head().to_vec();
    let mut decoder = Decoder::new(&head)?;
    let (mut offset, mut piece) = (0, Vec::new());
    between(filter);
    while let Some(next) = Encoder::new(&*filter).chunk(offset, &mut piece) {
        if forged {
            piece[12..16].copy_from_slice(&wire::stamp(&head).to_le_bytes());
            wire::seal_chunk(&mut piece);
        }
        decoder.push(&piece)?;
        offset = next;
        between(filter);
    }
    decoder.finish().map(|value| value.into_cuckoo().unwrap())
}

/// Adds that find a free slot don't disturb a dump: the copy has every item that was in the filter when the head was
/// written.
#[test]
fn a_dump_under_adds_holds_what_the_head_saw() {
    let (mut filter, items) = of_three_chunks(10);
    let mut added = items;
    let copy = dump(&mut filter, false, |filter| {
        for _ in 0..10_000 {
            filter.try_insert(filter.hash(&added.to_le_bytes())).unwrap();
            added += 1;
        }
        assert_eq!(filter.moves(), 0, "so empty a filter needs no moves");
    });
    let copy = copy.unwrap();
    assert!((0..items).all(|i| has(&copy, i)));
    // The copy has some of the items that were added in the meantime.
    let there = (items..added).filter(|i| has(&copy, *i)).count();
    let of = (added - items) as usize;
    assert!((of / 10..of * 9 / 10).contains(&there), "{there} of {of}");
}

/// Suppose an item is added again into a chunk that was already dumped, and then deleted from one that wasn't. It would
/// be missing from the copy, though it was in the filter all the time.
#[test]
fn a_dump_during_which_an_item_was_deleted_is_refused() {
    let (mut filter, items) = of_three_chunks(70);
    let again = |filter: &mut Cuckoo, items: u32| {
        for i in 0..items {
            let item = filter.hash(&i.to_le_bytes());
            assert!(filter.try_insert(item).is_err() || filter.remove(item));
        }
    };
    let refused = dump(&mut filter, false, |filter| again(filter, 1));
    assert_eq!(refused.err(), Some(DecodeError::StampMismatch));
    // The refusal is justified: with forged stamps, the copy loses items.
    let copy = dump(&mut filter, true, |filter| again(filter, items)).unwrap();
    assert!((0..items).all(|i| has(&filter, i)));
    assert!((0..items).any(|i| !has(&copy, i)));
}

/// A fingerprint that moved from a chunk not yet dumped into one already dumped would be missing from the copy.
#[test]
fn a_dump_during_which_a_fingerprint_was_moved_is_refused() {
    let move_one = |filter: &mut Cuckoo, next: &mut u32| {
        let moves = filter.moves();
        while filter.moves() == moves {
            filter.try_insert(filter.hash(&next.to_le_bytes())).unwrap();
            *next += 1;
        }
    };
    let (mut filter, items) = of_three_chunks(90);
    assert!(filter.moves() > 0);
    let mut next = items;
    let refused = dump(&mut filter, false, |filter| move_one(filter, &mut next));
    assert_eq!(refused.err(), Some(DecodeError::StampMismatch));
    // After the moves, a dump works.
    let copy = dump(&mut filter, false, |_| ()).unwrap();
    assert!(wire::encode(&copy) == wire::encode(&filter));
    // The refusal is justified: with forged stamps, the copy loses items.
    let before = next;
    let copy =
        dump(&mut filter, true, |filter| (0..10_000).for_each(|_| move_one(filter, &mut next))).unwrap();
    assert!((0..before).all(|i| has(&filter, i)));
    assert!((0..before).any(|i| !has(&copy, i)));
}

/// Sub-filters that come and go, and fingerprints that move between them, are also detected.
#[test]
fn a_dump_during_which_the_filter_grew_or_was_compacted_is_refused() {
    let grow: fn(&mut Cuckoo) = |filter| filter.grow().unwrap();
    let compact: fn(&mut Cuckoo) = |filter| {
        let moves = filter.moves();
        assert!((0..30).all(|i| filter.remove(filter.hash(&item(i)))));
        assert!(filter.compact(true).is_empty() && filter.moves() > moves);
    };
    // Nothing is moved, but all sub-filters that the dump hasn't reached are empty, and are removed.
    let empty: fn(&mut Cuckoo) = |filter| {
        let moves = filter.moves();
        assert!((0..300).all(|i| filter.remove(filter.hash(&item(i)))));
        assert!(!filter.compact(true).is_empty());
        assert_eq!((filter.items(), filter.moves()), (0, moves));
    };
    let (stranger, incomplete) = (DecodeError::StampMismatch, DecodeError::Length("body"));
    for (disturb, why) in [(grow, stranger), (compact, stranger), (empty, incomplete)] {
        let mut filter = cuckoo("cuckoo-siphash");
        let mut calls = 0;
        let refused = dump(&mut filter, false, |filter| {
            calls += 1;
            // After the head and the first chunk.
            if calls == 2 {
                disturb(filter);
            }
        });
        assert_eq!((refused.err(), calls), (Some(why), 2));
        assert!(dump(&mut filter, false, |_| ()).is_ok());
    }
}
