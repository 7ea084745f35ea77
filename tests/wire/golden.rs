//! Golden bytes: a file for every kind of filter, which every future version reads and writes unchanged.
//!
//! `BLOOMERY_BLESS=1 cargo test --test wire golden::bless` writes missing files, and never changes an existing one. If
//! a file no longer matches, it isn't outdated: the code breaks the format.

use super::corrupt::has_table;
use crate::support::golden::{all, answers, bloom, bytes, cuckoo, item, items, path};
use crate::support::{describe, wire};
use bloomery::filter::FilterRef;
use bloomery::wire::{DecodeError, Decoder, Encoder, VERSION};
use bloomery::{Cuckoo, Filter};
use std::fs;

#[test]
fn bless() {
    if std::env::var_os("BLOOMERY_BLESS").is_none() {
        return;
    }
    let write = |name, extension, content: &[u8]| {
        let path = path(name, extension);
        if !path.exists() {
            fs::write(path, content).unwrap();
        }
    };
    write("items", "json", items().as_bytes());
    for (name, filter) in all() {
        write(name, "bin", &wire::encode(&filter));
        write(name, "json", answers(&filter).as_bytes());
        if wire::is_packed(&filter) {
            write(name, "packed", &wire::pack(&filter));
        }
    }
}

/// Today's code makes the same filters and writes the same bytes.
#[test]
fn filters_are_written_as_ever() {
    for (name, filter) in all() {
        let golden = bytes(name);
        assert!(golden.len() <= 4096, "{name} has {} bytes; the tests flip every bit of it", golden.len());
        assert!(wire::encode(&filter) == golden, "{name}: other bytes");
    }
}

/// Today's code reads the old bytes, and gives the same answers.
#[test]
fn filters_are_read_as_ever() {
    for (name, made) in all() {
        let read = Decoder::read(&bytes(name)).unwrap();
        if let (Filter::Bloom(read), Filter::Bloom(made)) = (&read, &made) {
            assert!(read.equal(made), "{name}");
        }
        assert_eq!(describe(&read), describe(&made), "{name}");
        assert!(wire::encode(&read) == bytes(name), "{name}: written otherwise than read");
        let json = fs::read_to_string(path(name, "json")).unwrap();
        assert!(answers(&read) == json, "{name}: other answers");
        // The answers include both yes and no. An empty filter never answers yes.
        let of = |digit: &str| json.split('"').find(|s| s.len() == 600).unwrap().matches(digit).count();
        assert!(of("0") >= 50, "{name}");
        assert!(of("1") >= 50 || name.ends_with("-empty"), "{name}");
    }
    assert!(fs::read_to_string(path("items", "json")).unwrap() == items());
}

/// The recipes cover what they claim to.
#[test]
fn the_golden_filters_are_in_interesting_states() {
    assert!(bloom("counter4-classic").layers()[0].saturated() > 0);
    assert!(bloom("counter4-blocked").layers()[0].saturated() > 0);
    assert!(bloom("chain-by-2").layers().len() == 4);
    assert!(bloom("chain-by-1-sharded").layers().len() >= 4);
    assert!(bloom("chain-tightening").layers().len() == 3);
    let window = bloom("window-rotated");
    let window = window.window().unwrap();
    assert_eq!((window.newest(), window.schedule().rotations), (6, 4));
    let ages: Vec<_> = window.alive(6).map(|one| (one.age, one.items > 0)).collect();
    assert_eq!(ages, [(0, true), (1, true), (2, false), (3, true)]);
    let counts = |filter: &Cuckoo| (filter.tables().len(), filter.items(), filter.deletes());
    assert_eq!(counts(&cuckoo("cuckoo-full")), (1, 128, 0));
    assert!(cuckoo("cuckoo-full").moves() > 0);
    let padded = cuckoo("cuckoo-padded");
    assert_eq!((counts(&padded).1, counts(&padded).2), (90, 20));
    assert!(padded.moves() > 0);
    assert!(padded.tables().len() >= 8 && padded.tables().iter().all(|table| table.bytes() == 16));
    assert_eq!(counts(&cuckoo("cuckoo-siphash")).0, 3);
    // Item 0 was added 202 times. Its two buckets happen to be the same one, so each add counts twice.
    let wide = cuckoo("cuckoo-wide");
    assert_eq!(wide.count(wide.hash(&item(0))), 404);
    assert_eq!((item(8).len(), item(0).len(), item(1)), (296, 1, b"1".to_vec()));
}

/// A golden file with this version and a corrected checksum.
fn of_version(version: u8) -> Vec<u8> {
    let mut golden = bytes("bits-classic");
    let at = wire::pieces(&golden);
    golden[4] = version;
    wire::seal(&mut golden, &at);
    golden
}

/// A newer format is refused, with an error that names its version, before anything is read that the format may have
/// changed.
#[test]
fn a_newer_version_is_refused_with_a_clear_error() {
    for version in [VERSION + 1, 2, 100, 255] {
        let mut newer = of_version(version);
        assert_eq!(wire::decode(&newer).err(), Some(DecodeError::Version(version)));
        assert_eq!(Decoder::new(&newer[..6]).err(), Some(DecodeError::Version(version)));
        newer[20] ^= 1;
        assert_eq!(wire::decode(&newer).err(), Some(DecodeError::Version(version)), "whatever its checksum");
        let text = DecodeError::Version(version).to_string();
        assert!(text.contains(&version.to_string()) && text.contains(&VERSION.to_string()), "{text}");
    }
    assert_eq!(wire::decode(&of_version(0)).err(), Some(DecodeError::Field("version")));
    assert!(wire::decode(&of_version(VERSION)).is_ok());
}

/// Any chunk can be requested at any time, and a chunk may begin in the middle of a layer.
#[test]
fn chunks_can_begin_at_any_word() {
    for (name, filter) in all() {
        let encoder = Encoder::native(&filter);
        let body = wire::body(&filter);
        let mut piece = Vec::new();
        if has_table(&filter) && FilterRef::from(&filter).arrays().count() > 1 {
            continue;
        }
        if has_table(&filter) {
            // A chunk of a table begins with any leaf, whatever the size of the table.
            for (bits, offset) in
                (0..12).flat_map(|bits| (0..1 << bits).map(move |n| (bits, n << (51 - bits))))
            {
                let end = encoder.chunk(offset, &mut piece).unwrap();
                assert_eq!(end, 1 << 51, "{name} at {offset} of {bits} bits");
            }
            for offset in [1 << 51, u64::MAX] {
                assert_eq!(encoder.chunk(offset, &mut piece), None, "{name} at {offset}");
            }
            continue;
        }
        for offset in (0..filter.bytes()).step_by(8) {
            let end = encoder.chunk(offset, &mut piece).unwrap();
            assert_eq!(
                piece[wire::CHUNK_PREFIX..],
                body[offset as usize..end as usize],
                "{name} at {offset}"
            );
            assert_eq!(wire::pieces(encoder.head()).len(), 1);
        }
        for offset in [1, 7, filter.bytes(), filter.bytes() + 8, u64::MAX - 7, u64::MAX] {
            assert_eq!(encoder.chunk(offset, &mut piece), None, "{name} at {offset}");
        }
    }
}
