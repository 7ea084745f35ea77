//! Bytes that aren't a filter: cut short, flipped, forged or out of order. All are either refused, or load as a filter
//! that satisfies every law. Checksums detect accidents. But an attacker corrects them, and so do these tests.

use crate::support::alloc_counter::weighed;
use crate::support::golden::{bytes, item, names};
use crate::support::{describe, summary, wire};
use bloomery::filter::{Array, FilterRef, Foreign, Live};
use bloomery::wire::{Checker, DecodeError, Decoder, Encoder, MAX_CHUNK};
use bloomery::{Added, Bloom, Cell, Cuckoo, Error, Filter, ItemHash, Layout, limits};

/// Performs every operation on a filter. It may be full or saturated, but it must not panic, hang, lose an item or
/// become unwritable.
fn survives(mut filter: Bloom, name: &str) {
    let canonical = wire::encode(&filter);
    let copy =
        wire::decode(&canonical).unwrap_or_else(|why| panic!("{name}: loaded, written, refused: {why}"));
    assert_eq!(summary(&copy), summary(&filter), "{name}");
    let hashes = [ItemHash::default(), filter.hash(item(3)).into(), filter.hash(b"stranger").into()];
    for hash in hashes {
        filter.prefetch(hash);
        let before = filter.contains(hash);
        if filter.add(hash).is_ok_and(|done| done.changed) {
            assert!(filter.contains(hash), "{name}");
        } else {
            assert_eq!(filter.contains(hash), before, "{name}");
        }
        let is_table = filter.window().is_some() && filter.spec().is_table();
        assert_eq!(filter.remove(hash).is_ok(), is_table || filter.spec().cell != Cell::Bit, "{name}");
        let _ = filter.count(hash);
    }
    (1000..1020).for_each(|i| {
        assert!(filter.add(filter.hash(item(i))).is_ok() || filter.layers().len() == 1, "{name}")
    });
    let _ = (filter.estimate(), filter.rate_now(), filter.fill(), filter.next_shape().is_ok());
    let union = filter.snapshot().unwrap().union(&filter);
    let is_full = filter.spec().is_table() && union == Err(Error::Full);
    assert!(is_full || union.is_ok() != filter.spec().is_static(), "{name}: {union:?}");
    if let Some(window) = filter.window() {
        let next = window.newest() + 1;
        let _ = (
            window.number_at(u64::MAX),
            [0, u64::MAX].map(|now| (window.standing().next_in(now), window.due(now))),
            window.age(hashes[0], u64::MAX),
        );
        assert!(!filter.contains_as_of(hashes[1], u64::MAX), "{name}");
        assert_eq!(filter.rotate(next).is_ok(), next <= limits::MAX_GENERATION, "{name}");
    }
    let written = wire::encode(&filter);
    let read =
        wire::decode(&written).unwrap_or_else(|why| panic!("{name}: changed, written, refused: {why}"));
    let again = wire::encode(&read);
    // Items of generations that are still to come, which only an attacker writes, count in the newest one.
    let stable = if filter.has_table() { wire::encode(&wire::decode(&again).unwrap()) } else { written };
    assert!(again == stable, "{name}");
    filter.clear().unwrap();
    assert_eq!((filter.ones(), filter.items()), (0, 0), "{name}");
}

/// Performs every operation on a cuckoo filter. It must not panic, hang, lose an item or become unwritable.
fn cuckoo_survives(mut filter: Cuckoo, name: &str) {
    let canonical = wire::encode(&filter);
    let copy =
        Decoder::read(&canonical).unwrap_or_else(|why| panic!("{name}: loaded, written, refused: {why}"));
    assert_eq!(describe(&copy), describe(&filter), "{name}");
    let hashes: Vec<_> = (1000..1020).map(|i| filter.hash(&item(i))).collect();
    for hash in &hashes {
        let (items, count) = (filter.items(), filter.count(*hash));
        assert_eq!(filter.contains(*hash), count > 0, "{name}");
        // Sub-filters of more than 1 MiB aren't created.
        let may_grow = filter.next_bytes().is_some_and(|bytes| bytes <= 1 << 20);
        if filter.try_insert(*hash).is_ok()
            || (may_grow && filter.grow().is_ok() && filter.try_insert(*hash).is_ok())
        {
            assert!(filter.contains(*hash) && filter.count(*hash) > count, "{name}");
            assert_eq!(filter.items(), items + 1, "{name}");
        } else {
            assert!(!may_grow, "{name}: no room in a new sub-filter");
            assert_eq!((filter.items(), filter.count(*hash)), (items, count), "{name}");
        }
    }
    let written = wire::encode(&filter.snapshot().unwrap());
    assert!(written == wire::encode(&filter), "{name}");
    for hash in &hashes {
        let (items, present) = (filter.items(), filter.contains(*hash));
        assert_eq!(filter.remove(*hash), present, "{name}");
        assert_eq!(filter.items(), items - u64::from(present), "{name}");
    }
    let _ = (filter.is_sparse(), filter.allocated());
    let items = filter.items();
    let rereads = |filter: &Cuckoo| {
        let written = wire::encode(filter);
        let read =
            Decoder::read(&written).unwrap_or_else(|why| panic!("{name}: changed, written, refused: {why}"));
        assert!(wire::encode(&read) == written, "{name}");
    };
    rereads(&filter);
    // There are two calls, because the first stops at a sub-filter that can't be emptied.
    filter.compact(false);
    filter.compact(true);
    assert_eq!((filter.items(), filter.deletes()), (items, 0), "{name}");
    rereads(&filter);
}

/// Performs every operation on another system's filter. It must not panic, lose an item or become unwritable.
fn foreign_survives(mut filter: Foreign, name: &str) {
    for i in 0..50 {
        let item = item(i);
        let before = filter.contains(&item);
        let may_grow = matches!(filter.next_link(), Ok(Some(link)) if link.bytes <= 1 << 20);
        let added = match filter.try_add(&item) {
            Err(Error::Full) if may_grow && filter.grow().is_ok() => filter.try_add(&item),
            added => added,
        };
        assert!(!before || added == Ok(Added::default()), "{name}");
        assert!(added.is_err() || filter.contains(&item), "{name}");
    }
    let _ = (filter.items(), filter.capacity(), filter.estimate(), filter.rate_now(), filter.allocated());
    let written = wire::encode(&filter.snapshot().unwrap());
    assert!(written == wire::encode(&filter), "{name}");
    let read =
        Decoder::read(&written).unwrap_or_else(|why| panic!("{name}: changed, written, refused: {why}"));
    assert!(wire::encode(&read) == written, "{name}");
}

/// Performs every operation on both filters of a rebuild, and ends the rebuild in both ways.
fn rebuild_survives(value: Filter, name: &str) {
    let Some(rebuild) = value.rebuild() else { panic!("{name}: it is being rebuilt") };
    // A list only exists as a shadow.
    let is_list = rebuild.shadow().newest_layer().shape().layout == Layout::List;
    if !is_list {
        survives(rebuild.shadow().snapshot().unwrap(), name);
    }
    match rebuild.live().snapshot().unwrap() {
        Live::Bloom(filter) => survives(filter, name),
        Live::Foreign(filter) => foreign_survives(*filter, name),
    }
    let commit = |filter: &mut Filter| filter.commit_rebuild().map(Filter::from);
    let abort = |filter: &mut Filter| filter.abort_rebuild().map(Filter::from);
    for end in [commit, abort] {
        let mut ended = value.snapshot().unwrap();
        assert!(wire::encode(&ended) == wire::encode(&value), "{name}: a copy differs");
        assert_eq!(ended.bytes(), value.bytes(), "{name}");
        let Some(dropped) = end(&mut ended) else {
            assert!(is_list && wire::encode(&ended) == wire::encode(&value), "{name}: not ended");
            continue;
        };
        assert_eq!(ended.bytes() + dropped.bytes(), value.bytes(), "{name}");
        assert!(refused_or_survives(&wire::encode(&ended), name), "{name}: ended, written, refused");
    }
}

/// Performs every operation on a filter of any kind.
pub(crate) fn any_survives(value: Filter, name: &str) {
    match value {
        Filter::Bloom(filter) => survives(filter, name),
        Filter::Cuckoo(filter) => cuckoo_survives(filter, name),
        Filter::Foreign(filter) => foreign_survives(*filter, name),
        value @ Filter::Rebuild(_) => rebuild_survives(value, name),
    }
}

/// Whether the filter has a table. A head may declare more items than the table's cells can have, because items may be
/// deleted during a dump, so several files are read as the same table.
pub(crate) fn has_table(value: &Filter) -> bool {
    FilterRef::from(value).arrays().any(|array| matches!(array, Array::Table(_)))
}

/// Returns whether the bytes load. A filter that loads survives every operation, and is written as it was read, apart
/// from its dump number, because each filter has only one encoding. [Tables](has_table) are the exception.
fn refused_or_survives(bytes: &[u8], name: &str) -> bool {
    match Decoder::read(bytes) {
        Ok(value) => {
            let (mut plain, pieces) = (bytes.to_vec(), wire::pieces(bytes));
            plain[6..8].fill(0);
            wire::seal(&mut plain, &pieces);
            assert!(
                has_table(&value) || wire::encode(&value) == plain,
                "{name}: loads, but is written otherwise"
            );
            any_survives(value, name);
            true
        }
        Err(why) => {
            assert!(!why.to_string().is_empty());
            false
        }
    }
}

/// The control, without which the other tests prove nothing: a golden file that is sealed again is unchanged, and
/// loads.
#[test]
fn a_resealed_golden_loads() {
    for name in names() {
        let golden = bytes(name);
        let mut sealed = golden.clone();
        wire::seal(&mut sealed, &wire::pieces(&golden));
        assert!(sealed == golden, "{name}: these tests seal otherwise than the encoder");
        assert!(refused_or_survives(&golden, name), "{name}");
    }
}

#[test]
fn every_truncation_is_refused() {
    for name in names() {
        let golden = bytes(name);
        for len in 0..golden.len() {
            assert!(Decoder::read(&golden[..len]).is_err(), "{name} cut to {len}");
        }
        let head = wire::pieces(&golden)[0].end;
        for len in 0..head {
            assert!(Decoder::new(&golden[..len]).is_err(), "head of {name} cut to {len}");
        }
    }
}

#[test]
fn trailing_bytes_are_refused() {
    for name in names() {
        let golden = bytes(name);
        let chunk = golden[wire::pieces(&golden)[1].clone()].to_vec();
        for tail in [vec![0], vec![0; 8], vec![0; 100], chunk, golden.clone()] {
            assert!(
                Decoder::read(&[&golden[..], &tail].concat()).is_err(),
                "{name} with {} bytes more",
                tail.len()
            );
        }
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    for name in names() {
        let mut golden = bytes(name);
        for bit in 0..golden.len() * 8 {
            golden[bit / 8] ^= 1 << (bit % 8);
            assert!(Decoder::read(&golden).is_err(), "{name}, bit {bit}");
            golden[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// If checksums and stamps are corrected, only validation stands between a flipped bit and a bad filter.
#[test]
fn every_flipped_bit_under_a_true_checksum_is_refused_or_harmless() {
    for name in names() {
        let golden = bytes(name);
        let pieces = wire::pieces(&golden);
        let (mut loaded, mut refused) = (0, 0);
        for bit in 0..golden.len() * 8 {
            let mut flipped = golden.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            wire::seal(&mut flipped, &pieces);
            // Sealing undoes the flip of a checksum or a stamp.
            if flipped != golden {
                *if refused_or_survives(&flipped, name) { &mut loaded } else { &mut refused } += 1;
            }
        }
        println!("{name}: {loaded} flips loaded, {refused} refused");
        assert!(refused > 400, "{name}: the head alone has more bits than that to refuse");
    }
}

/// A chunk whose stamp is changed, under a correct checksum, belongs to no head.
#[test]
fn chunks_of_another_head_are_refused() {
    for name in names() {
        let golden = bytes(name);
        let pieces = wire::pieces(&golden);
        for bit in 0..32 {
            let mut flipped = golden.clone();
            flipped[pieces[1].start + 12 + bit / 8] ^= 1 << (bit % 8);
            wire::seal_checksums(&mut flipped, &pieces);
            assert_eq!(Decoder::read(&flipped).err(), Some(DecodeError::StampMismatch), "{name}");
        }
    }
}

/// A field of a head: its name, its offset, and its length.
type Field = (&'static str, usize, usize);

#[rustfmt::skip] // a table
const ENVELOPE_FIELDS: &[Field] = &[
    ("version", 4, 1), ("kind", 5, 1), ("dump number", 6, 2), ("header length", 8, 4), ("body length", 12, 8),
];

#[rustfmt::skip] // a table
const BLOOM_FIELDS: &[Field] = &[
    ("capacity", 24, 8), ("error rate", 32, 8), ("seed low", 40, 8), ("seed high", 48, 8), ("hash", 56, 1),
    ("layout", 57, 1), ("cell", 58, 1), ("overflow", 59, 1), ("shards", 60, 2), ("sizes", 62, 2),
    ("expansion", 64, 4), ("generations", 68, 4), ("tightening", 72, 8), ("every", 80, 8), ("since", 88, 8),
    ("rotations", 96, 8), ("newest", 104, 8), ("layers", 112, 4), ("dropped", 116, 4), ("layer capacity", 120, 8),
    ("layer error rate", 128, 8), ("layer cells", 136, 8), ("layer items", 144, 8), ("layer probes", 152, 4),
    ("layer layout", 156, 4),
];

#[rustfmt::skip] // a table
const CUCKOO_FIELDS: &[Field] = &[
    ("capacity", 24, 8), ("seed low", 32, 8), ("seed high", 40, 8), ("deletes", 48, 8), ("moves", 56, 8),
    ("hash", 64, 1), ("bucket size", 65, 1), ("max iterations", 66, 2), ("expansion", 68, 2),
    ("reserved", 70, 2), ("tables", 72, 4), ("reserved too", 76, 4),
];

#[rustfmt::skip] // a table
const FOREIGN_FIELDS: &[Field] = &[
    ("scheme", 24, 1), ("plan", 25, 1), ("random seed", 26, 1), ("encoding", 27, 1), ("links", 28, 4),
    ("options", 32, 4), ("growth", 36, 4), ("seed", 40, 8), ("seed's end", 64, 8), ("error rate", 72, 8),
    ("tightening", 80, 8), ("link modulus", 88, 8), ("link bits", 96, 8), ("link bytes", 104, 8),
    ("link capacity", 112, 8), ("link items", 120, 8), ("link error rate", 128, 8),
    ("link bits per item", 136, 8), ("link probes", 144, 4), ("link log2", 148, 4),
];

#[rustfmt::skip] // a table
const REBUILD_FIELDS: &[Field] = &[
    ("deletes missed", 24, 8), ("length of the live header", 32, 4), ("live kind", 36, 1), ("shadow kind", 37, 1),
    ("reserved", 38, 2),
];

/// Bytes that a decoder may need in addition to the body that a head declares. A decoder lists the sizes of a cuckoo
/// filter's sub-filters. The list's length depends only on their number, which is bounded.
fn overhead(head: &[u8]) -> u64 {
    let tables = match head[5] {
        wire::CUCKOO => u32::from_le_bytes(head[72..76].try_into().unwrap()).into(),
        _ => 0,
    };
    (64 << 10) + 24 * u64::min(tables, limits::MAX_TABLES as u64)
}

/// Sets every field of the head to values at which programs typically break. Whether the bytes load or not, reading
/// them needs hardly more memory than the head declares.
#[test]
fn header_fields_at_their_edges_are_refused_or_harmless() {
    let floats =
        [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, f64::MIN_POSITIVE / 2.0, 5e-324, 1.0, -1.0, 2.0];
    let numbers = [0, 1, 2, 3, 4, 5, 63, 64, 65, 72, 73, 255, 1024, 1025, 4096, 4097, 32_768, 32_769];
    let powers = (8..64).flat_map(|power| [(1u64 << power) - 1, 1 << power, (1 << power) + 1]);
    let values: Vec<u64> = floats
        .map(f64::to_bits)
        .into_iter()
        .chain(numbers)
        .chain(powers)
        .chain([u64::MAX - 1, u64::MAX])
        .collect();
    for name in names() {
        let golden = bytes(name);
        let pieces = wire::pieces(&golden);
        let of_kind = match golden[5] {
            wire::CUCKOO => CUCKOO_FIELDS,
            wire::FOREIGN => FOREIGN_FIELDS,
            wire::REBUILD => REBUILD_FIELDS,
            _ => BLOOM_FIELDS,
        };
        for (field, at, len) in ENVELOPE_FIELDS.iter().chain(of_kind) {
            for value in &values {
                let mut edge = golden.clone();
                edge[*at..at + len].copy_from_slice(&value.to_le_bytes()[..*len]);
                wire::seal(&mut edge, &pieces);
                let what = format!("{name}, {field} = {value:#x}");
                let declared = u64::from_le_bytes(edge[12..20].try_into().unwrap());
                let (_, taken) = weighed(|| Decoder::read(&edge));
                assert!(
                    taken as u64 <= declared.saturating_add(overhead(&edge)),
                    "{what} takes {taken} bytes"
                );
                refused_or_survives(&edge, &what);
                // The head alone needs little memory, and is either refused or valid, but isn't a filter.
                let (decoder, taken) = weighed(|| Decoder::new(&edge[pieces[0].clone()]));
                assert!(taken as u64 <= overhead(&edge), "{what}: the head alone takes {taken} bytes");
                if let Ok(decoder) = decoder {
                    assert!(decoder.finish().is_err(), "{what}: a head is no filter");
                }
            }
        }
    }
}

/// Parameters that no command creates are also refused when they are loaded, even if they would do no harm at once: a
/// chain may be loaded today and grow tomorrow.
#[test]
fn parameters_that_no_command_makes_are_refused() {
    let rates = [0.0, -0.0, 5e-324, 1.0, 2.0, -1.0, f64::INFINITY, f64::NAN].map(f64::to_bits);
    let ratios = [-0.0, 1.0, 1.5, 2.0, -0.5, f64::INFINITY, f64::NAN].map(f64::to_bits);
    let cases: [(&str, &str, &[u64]); 28] = [
        ("bits-classic", "capacity", &[0, (1 << 48) + 1, u64::MAX]),
        ("bits-classic", "error rate", &rates),
        ("bits-classic", "hash", &[0, 3, 255]),
        ("bits-classic", "layout", &[3, 4, 5, 6, 8, 255]),
        ("bits-classic", "layer layout", &[0, 3, 4, 5, 6, 8, 255]),
        // Slices are whole words of each shard.
        ("bits-partitioned", "layer cells", &[0, 64, 4480 - 128, 4480 + 64, 9 << 49, u64::MAX]),
        ("bits-partitioned", "layer probes", &[0, 6, 8, 73, u64::MAX]),
        ("bits-classic", "cell", &[0, 2, 3, 5, 32]),
        ("bits-classic", "overflow", &[2, 255]),
        ("bits-classic", "shards", &[0, 3, 2048, u64::MAX]),
        ("bits-classic", "sizes", &[1, u64::MAX]),
        ("bits-classic", "dropped", &[1]),
        ("quotient", "dropped", &[1]),
        ("quotient-window", "dropped", &[3, u64::MAX]),
        ("quotient", "layer cells", &[0, 2, 1 << 41, u64::MAX]),
        ("quotient-leaves", "layer cells", &[0, 1 << 41, u64::MAX]),
        ("quotient", "layer probes", &[11, u64::MAX]),
        ("quotient-leaves", "layer probes", &[0, 9, 11, u64::MAX]),
        ("quotient", "overflow", &[1, 2, 255]),
        ("quotient", "shards", &[0, 2, u64::MAX]),
        ("quotient", "layout", &[0, 1, 2, 4, 255]),
        ("quotient", "layer layout", &[0, 1, 2, 4, 255]),
        ("chain-by-2", "layer layout", &[0, 3, 5]),
        ("quotient-after-bits", "layer layout", &[3, 4]),
        ("quotient-after-bits", "layout", &[3, 4]),
        ("chain-tightening", "tightening", &ratios),
        ("chain-tightening", "expansion", &[0, 32_769, u64::MAX]),
        ("window-rotated", "generations", &[0, 1, 65, 258, u64::MAX]),
    ];
    for (name, field, values) in cases {
        let (_, at, len) = BLOOM_FIELDS.iter().find(|(known, ..)| *known == field).unwrap();
        let golden = bytes(name);
        let pieces = wire::pieces(&golden);
        for value in values {
            let mut odd = golden.clone();
            odd[*at..at + len].copy_from_slice(&value.to_le_bytes()[..*len]);
            wire::seal(&mut odd, &pieces);
            assert!(Decoder::read(&odd).is_err(), "{name}, {field} = {value:#x}");
        }
    }
}

/// No leaf was cleaned after the newest generation, and no generation has more items than cells. Otherwise a full table
/// would drop empty generations again and again, and an add would never end.
#[test]
fn generations_of_impossible_numbers_are_refused_or_corrected() {
    let golden = bytes("quotient-window");
    let pieces = wire::pieces(&golden);
    let filter = wire::decode(&golden).unwrap();
    let newest = filter.window().unwrap().newest();
    let with = |at: usize, value: u64| {
        let mut odd = golden.clone();
        odd[at..at + 8].copy_from_slice(&value.to_le_bytes());
        wire::seal(&mut odd, &pieces);
        wire::decode(&odd)
    };
    let cleaned = pieces[1].start + wire::CHUNK_PREFIX + 8;
    for (value, is_fine) in [(newest, true), (0, true), (newest + 1, false), (u64::MAX, false)] {
        assert_eq!(with(cleaned, value).is_ok(), is_fine, "cleaned at {value}");
    }
    let counts = wire::ENVELOPE + wire::FILTER_HEADER + wire::LAYER_HEADER;
    for generation in newest - 2..=newest {
        let right = golden[counts + generation as usize % 3 * 8];
        for (value, corrected) in [(0, 0), (u64::from(right), right), (1 << 40, right), (u64::MAX, right)] {
            let Ok(read) = with(counts + generation as usize % 3 * 8, value) else {
                assert!(value > 1 << 32);
                continue;
            };
            let items = filter.items() - u64::from(right) + u64::from(corrected);
            assert_eq!(read.items(), items, "{value} in {generation}");
        }
    }
}

/// Leaves that no operations leave behind.
#[test]
fn impossible_leaves_are_refused() {
    type Change = fn(&mut [u64]);
    // The first leaf has 64 bits of head, then the unary part.
    let changes: [(&str, Change); 10] = [
        ("more cells", |words| words[0] += 1),
        ("fewer cells", |words| words[0] -= 1),
        ("wider cells", |words| words[0] += 1 << 16),
        ("narrower cells", |words| words[0] -= 1 << 16),
        ("reserved", |words| words[0] |= 1 << 25),
        ("reserved at the end", |words| words[0] |= 1 << 63),
        ("deeper", |words| words[0] += 1 << 32),
        ("beyond all depths", |words| words[0] |= 0xff << 32),
        ("more quotients", |words| words[0] += 1 << 40),
        ("a cell after the last one", |words| words[1] |= u64::MAX),
    ];
    for name in ["quotient", "quotient-counting", "quotient-scaling", "quotient-leaves"] {
        let golden = bytes(name);
        let pieces = wire::pieces(&golden);
        let body = pieces[1].start + wire::CHUNK_PREFIX..pieces[1].end;
        for (what, change) in changes {
            let mut words: Vec<u64> = golden[body.clone()]
                .chunks(8)
                .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
                .collect();
            change(&mut words);
            let mut odd = golden.clone();
            odd[body.clone()]
                .copy_from_slice(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
            wire::seal(&mut odd, &pieces);
            assert!(Decoder::read(&odd).is_err(), "{name}: {what}");
        }
    }
}

/// A head that declares more cells than a filter may have is refused, even if the body length matches. A head within
/// the limit is accepted without allocating the cells.
#[test]
fn heads_of_impossible_size_are_refused_or_ask_for_nothing() {
    let golden = bytes("bits-classic");
    let head_end = wire::pieces(&golden)[0].end;
    for cells in (6..64).flat_map(|power| [1u64 << power, (1 << power) + 64, u64::MAX << power]) {
        let mut head = golden[..head_end].to_vec();
        head[136..144].copy_from_slice(&cells.to_le_bytes());
        head[12..20].copy_from_slice(&(cells / 8).to_le_bytes());
        wire::seal_head(&mut head);
        let decoded = Decoder::new(&head);
        // 2^46 bytes is the limit for a filter.
        assert_eq!(decoded.is_ok(), cells <= 1 << 49 && cells % 64 == 0, "{cells}");
        if let Ok(decoder) = decoded {
            assert_eq!((decoder.body_len(), decoder.offset(), decoder.is_complete()), (cells / 8, 0, false));
        }
    }
}

fn pieces_of(name: &str) -> Vec<Vec<u8>> {
    let golden = bytes(name);
    wire::pieces(&golden).into_iter().map(|at| golden[at].to_vec()).collect()
}

/// A refused piece leaves the decoder and the checker unchanged, so the correct one is still accepted.
#[test]
fn chunks_in_the_wrong_order_are_refused_and_do_no_harm() {
    chunks_in_the_wrong_order_of("chain-by-2", "chain-tightening");
    chunks_in_the_wrong_order_of("cuckoo-siphash", "cuckoo-full");
}

fn chunks_in_the_wrong_order_of(name: &str, other: &str) {
    let pieces = pieces_of(name);
    let (head, chunks) = pieces.split_first().unwrap();
    let stranger = &pieces_of(other)[1];
    assert!(chunks.len() >= 3);
    let mut decoder = Decoder::new(head).unwrap();
    let mut checker = Checker::new(head).unwrap();
    assert_eq!(Checker::new(head).unwrap().finish(), Err(DecodeError::Length("body")));
    for (i, chunk) in chunks.iter().enumerate() {
        let offset = decoder.offset();
        for (j, other) in chunks.iter().enumerate().filter(|(j, _)| *j != i) {
            let found = u64::from_le_bytes(other[..8].try_into().unwrap());
            let refused = decoder.push(other);
            assert_eq!(refused, Err(DecodeError::Order { expected: offset, found }), "{j} instead of {i}");
            assert_eq!(checker.push(other, found + 8), refused, "{j} instead of {i}");
        }
        assert_eq!(checker.push(stranger, offset + 8), Err(DecodeError::StampMismatch));
        assert!(checker.push(&chunk[..chunk.len() - 1], offset + 8).is_err());
        assert!([offset, u64::MAX].iter().all(|end| checker.push(chunk, *end).is_err()));
        assert_eq!(decoder.push(stranger), Err(DecodeError::StampMismatch));
        assert_eq!(decoder.push(head).is_err(), decoder.push(&[]).is_err());
        assert!(decoder.push(&chunk[..chunk.len() - 1]).is_err());
        assert_eq!((decoder.offset(), decoder.is_complete()), (offset, false));
        decoder.push(chunk).unwrap();
        checker.push(chunk, decoder.offset()).unwrap();
    }
    assert!(decoder.is_complete());
    assert_eq!(checker.finish(), Ok(()));
    assert!(matches!(decoder.push(&chunks[0]), Err(DecodeError::Order { .. })));
    assert!(wire::encode(&decoder.finish().unwrap()) == bytes(name));
}

/// Chunks with offsets and lengths that only an attacker would write.
#[test]
fn chunks_that_lie_about_their_place_are_refused() {
    let pieces = pieces_of("chain-by-2");
    let of_offset = |offset: u64| {
        let mut chunk = pieces[1].clone();
        chunk[..8].copy_from_slice(&offset.to_le_bytes());
        wire::seal_chunk(&mut chunk);
        chunk
    };
    let with_data = |len: usize| {
        let mut chunk = pieces[1][..wire::CHUNK_PREFIX].to_vec();
        chunk[8..12].copy_from_slice(&(len as u32).to_le_bytes());
        chunk.resize(wire::CHUNK_PREFIX + len, 0xFF);
        wire::seal_chunk(&mut chunk);
        chunk
    };
    let first_layer = pieces[1].len() - wire::CHUNK_PREFIX;
    let mut decoder = Decoder::new(&pieces[0]).unwrap();
    for offset in [1, 8, 1 << 32, 1 << 63, u64::MAX] {
        assert!(decoder.push(&of_offset(offset)).is_err());
    }
    // Chunks that are empty, aren't a whole number of words, extend beyond the end of their layer, or are larger than a
    // chunk may be.
    for len in [0, 1, 7, 9, first_layer + 8, MAX_CHUNK + 8] {
        assert!(decoder.push(&with_data(len)).is_err(), "{len}");
        assert_eq!(decoder.offset(), 0);
    }
    // A layer can come in many small chunks instead of one.
    for offset in (0..first_layer as u64).step_by(8) {
        let mut word = with_data(8);
        word[..8].copy_from_slice(&offset.to_le_bytes());
        wire::seal_chunk(&mut word);
        decoder.push(&word).unwrap();
    }
    assert_eq!(decoder.offset(), first_layer as u64);
    pieces[2..].iter().for_each(|piece| decoder.push(piece).unwrap());
    let filter = decoder.finish().unwrap().into_bloom().unwrap();
    assert_eq!(filter.layers()[0].ones(), filter.layers()[0].cells());
}

/// If items are added between the commands of a dump, its chunks still belong to the head. After growth they don't.
#[test]
fn a_dump_notices_growth_and_not_adds() {
    let golden = wire::decode(&bytes("chain-by-2")).unwrap();
    let mut filter = golden.snapshot().unwrap();
    let mut decoder = Decoder::new(Encoder::new(&filter).head()).unwrap();
    let mut piece = Vec::new();
    let mut offset = Encoder::new(&filter).chunk(0, &mut piece).unwrap();
    decoder.push(&piece).unwrap();
    filter.add(filter.hash(b"added during the dump")).unwrap();
    offset = Encoder::new(&filter).chunk(offset, &mut piece).unwrap();
    decoder.push(&piece).unwrap();
    filter.grow().unwrap();
    Encoder::new(&filter).chunk(offset, &mut piece).unwrap();
    assert_eq!(decoder.push(&piece), Err(DecodeError::StampMismatch));
    assert!(golden.layers().len() > 2);
}

/// Random bytes in a golden file, under correct checksums, are refused or harmless.
#[test]
fn noise_is_refused() {
    use rand::{Rng, SeedableRng, rngs::StdRng};
    let mut rng = StdRng::seed_from_u64(7);
    let goldens: Vec<_> = names().map(bytes).collect();
    for _ in 0..20_000 {
        let mut noise = goldens[rng.random_range(0..goldens.len())].clone();
        let at = rng.random_range(0..noise.len());
        let pieces = wire::pieces(&noise);
        for _ in 0..rng.random_range(1..4) {
            let i = (at + rng.random_range(0..16)).min(noise.len() - 1);
            noise[i] = rng.random();
        }
        if rng.random_bool(0.1) {
            noise.truncate(at);
            assert!(Decoder::read(&noise).is_err());
            continue;
        }
        wire::seal(&mut noise, &pieces);
        refused_or_survives(&noise, "noise");
    }
}
