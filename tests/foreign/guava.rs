//! Imports of Guava's files.

use super::recorded::{lies_at, positions};
use crate::support::rdb::hex;
use bloomery::filter::foreign::Encoding;
use bloomery::parallel::alone;
use bloomery::wire::import::{self};

/// A file without items.
pub(super) fn guava_blob(strategy: u8, probes: u8, words: u32) -> Vec<u8> {
    let mut blob = [&[strategy, probes][..], &words.to_be_bytes()].concat();
    blob.resize(6 + words as usize * 8, 0);
    blob
}

#[test]
fn guavas_items_are_where_it_puts_them() {
    let empty = |strategy, probes, words, encoding| {
        import::guava(&guava_blob(strategy, probes, words), encoding, &alone)
    };
    let text = |strategy, probes, words| empty(strategy, probes, words, Encoding::Bytes);
    lies_at(text(1, 7, 15), b"hello", [898, 91, 244, 525, 678, 831, 152]);
    lies_at(text(1, 10, 225), b"foo", [289, 14184, 13679, 13174, 12669, 12164, 11659, 11154, 10649, 10144]);
    lies_at(text(1, 3, 1), b"user:42", [40, 5, 34]);
    lies_at(empty(1, 7, 15, Encoding::Utf16), b"hello", [71, 395, 719, 83, 407, 731, 95]);
    lies_at(empty(1, 7, 15, Encoding::Long), b"42", [184, 376, 440, 632, 824, 56, 120]);
    lies_at(empty(1, 7, 15, Encoding::Int), b"42", [655, 869, 251, 465, 679, 893, 275]);
    lies_at(text(0, 7, 15), b"hello", [245, 535, 356, 78, 257, 436, 344]);
    lies_at(text(0, 10, 225), b"foo", [7623, 5744, 3865, 1986, 8788, 10667, 12546, 25, 12495, 10616]);
    lies_at(text(0, 3, 1), b"user:42", [60, 33, 57]);
    lies_at(text(0, 5, 12), b"", [0]);
}

#[test]
fn guavas_file_is_read() {
    let file = hex("0103000000010000010400000020");
    let filter = import::guava(&file, Encoding::Bytes, &alone).unwrap();
    assert!(filter.contains(b"user:42") && !filter.contains(b"user:43"));
    assert_eq!((positions(&filter), filter.cells(), filter.origin()), (vec![5, 34, 40], 64, "guava"));
    for len in (0..14).chain([15]) {
        let mut other = file.clone();
        other.resize(len, 0);
        assert!(import::guava(&other, Encoding::Bytes, &alone).is_err(), "{len}");
    }
    for (at, value) in [(0, 2), (0, 0xFF), (1, 0), (2, 0x80), (5, 0), (5, 2)] {
        let mut other = file.clone();
        other[at] = value;
        assert!(import::guava(&other, Encoding::Bytes, &alone).is_err(), "{value} at {at}");
    }
    let serialized = import::guava(&hex("aced0005737200"), Encoding::Bytes, &alone).unwrap_err().to_string();
    assert!(serialized.contains("writeTo"), "{serialized}");
}
