//! Imports of bits-and-blooms' files.

use super::recorded::{add, answers_alike, fixture, json, lies_at, number, numbers, positions};
use crate::support::rdb::{hex, numbered};
use crate::support::wire;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use bloomery::parallel::alone;
use bloomery::wire::import::{self};
use serde_json::Value as Json;

/// A file without items.
fn bloom_v3_blob(bits: u64, probes: u64) -> Vec<u8> {
    let mut blob = [bits, probes, bits].map(u64::to_be_bytes).concat();
    blob.resize(24 + bits.div_ceil(64) as usize * 8, 0);
    blob
}

#[test]
fn bits_and_blooms_items_are_where_it_puts_them() {
    let empty = |bits, probes| import::bloom_v3(&bloom_v3_blob(bits, probes), &alone);
    lies_at(empty(959, 7), b"hello", [98, 653, 896, 577, 366, 331, 574]);
    lies_at(empty(14_378, 10), b"foo", [2329, 2483, 6763, 160, 7885, 11351, 1253, 5716, 10727, 3127]);
    lies_at(empty(959, 7), b"", [0, 123, 246, 23, 827, 632, 755]);
    lies_at(empty(959, 7), b"0123456789abcde", [268, 645, 407, 240, 617, 923, 685]);
    lies_at(empty(959, 7), b"0123456789abcdef", [200, 11, 395, 679, 901, 401, 297]);
    let manifest = json("bits-and-blooms/manifest.json");
    for (item, raw) in manifest["raw_hash_locations_before_mod_m"].as_object().unwrap() {
        let mut filter = empty(number(&manifest["m_bits"]), number(&manifest["k"])).unwrap();
        add(&mut filter, item.as_bytes());
        let mut expected: Vec<_> = numbers(raw).iter().map(|at| (at % 143_776) as usize).collect();
        expected.sort_unstable();
        assert_eq!(positions(&filter), expected, "{item}");
    }
}

/// The files contain `user:42` in a filter for 10 items at 10%.
#[test]
fn bits_and_blooms_files_are_read_in_either_byte_order() {
    let big = "0000000000000030 0000000000000004 0000000000000030 0000000109020000";
    let little = "0000000000000030 0000000000000004 3000000000000000 0000020901000000";
    for file in [big, little] {
        let filter = import::bloom_v3(&hex(file), &alone).unwrap();
        assert_eq!(positions(&filter), [17, 24, 27, 32], "{file}");
        assert!(filter.contains(b"user:42") && !filter.contains(b"user:43"));
        assert_eq!((filter.cells(), filter.origin()), (48, "bits-and-blooms"));
        for len in 0..32 {
            assert!(import::bloom_v3(&hex(file)[..len], &alone).is_err(), "{len}");
        }
        assert!(import::bloom_v3(&[&hex(file)[..], &[0]].concat(), &alone).is_err());
    }
    let json: Json = serde_json::from_str(r#"{"m":48,"k":4,"b":"AAAAAAAAADAAAAABCQIAAA=="}"#).unwrap();
    assert_eq!(of_json(&json), hex(big));
}

/// The binary form of a JSON file. The file's bitset is the end of the binary form, in base64.
fn of_json(json: &Json) -> Vec<u8> {
    let bitset = URL_SAFE.decode(json["b"].as_str().unwrap()).unwrap();
    [&number(&json["m"]).to_be_bytes()[..], &number(&json["k"]).to_be_bytes(), &bitset].concat()
}

#[test]
fn bits_and_blooms_files_answer_as_it_does() {
    let manifest = json("bits-and-blooms/manifest.json");
    let file = fixture("bits-and-blooms/filter.bin");
    assert_eq!(file, fixture("bits-and-blooms/filter.writeto"));
    assert_eq!(file, of_json(&json("bits-and-blooms/filter.json")));
    let filter = import::bloom_v3(&file, &alone).unwrap();
    let found = numbers(&manifest["absent_answered_yes"]);
    assert!(!found.is_empty());
    answers_alike(|item| filter.contains(item), "user", 0..10_000, 10_000_000..10_020_000, &found);
    assert!((9900..10_100).contains(&filter.items()), "the fill suggests {}", filter.items());
    let mut made =
        import::bloom_v3(&bloom_v3_blob(number(&manifest["m_bits"]), number(&manifest["k"])), &alone)
            .unwrap();
    for i in 0..10_000 {
        add(&mut made, &numbered("user", i));
    }
    assert_eq!(wire::body(&made), wire::body(&filter));
}

/// `From` and `FromWithM` create bitsets that are shorter or longer than the filter. Bits beyond the filter's end
/// belong to no item, even if they are set.
#[test]
fn a_bitset_may_have_another_length_than_the_filter() {
    let blob = |bits: u64, probes: u64, length: u64, words: &[u64]| {
        let numbers = [bits, probes, length].map(u64::to_be_bytes).concat();
        import::bloom_v3(
            &[numbers, words.iter().flat_map(|word| word.to_be_bytes()).collect()].concat(),
            &alone,
        )
    };
    let longer = blob(48, 4, 128, &[0x0902_0000 | 1 << 32, u64::MAX]).unwrap();
    assert!(longer.contains(b"user:42") && longer.rate_now() <= 1.0);
    // The bits of `hello` are between 98 and 896 of 959. The bitset has only the first 500.
    let shorter = blob(959, 7, 500, &[u64::MAX; 8]).unwrap();
    assert!(!shorter.contains(b"hello"));
    let mut shorter = shorter;
    assert!(add(&mut shorter, b"hello"));
    for (bits, probes, length, words) in [
        (0, 4, 64, 1),
        (48, 0, 64, 1),
        (48, 10_001, 64, 1),
        (48, 1 << 32, 64, 1),
        (1 << 40, 4, 64, 1),
        (48, 4, 65, 1),
        (48, 4, 64, 2),
        (48, 4, u64::MAX, 1),
        (u64::MAX, 4, 64, 1),
    ] {
        assert!(blob(bits, probes, length, &vec![0; words]).is_err(), "{bits} {probes} {length} {words}");
    }
}
