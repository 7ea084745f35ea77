//! Imports of go-zero's bitmaps.

use super::recorded::{add, answers_alike, fixture, json, lies_at, number, numbers, positions};
use crate::support::rdb::numbered;
use crate::support::wire;
use bloomery::filter::foreign::Encoding;
use bloomery::parallel::alone;
use bloomery::wire::DecodeError;
use bloomery::wire::import::bitmap;

#[test]
fn go_zeros_items_are_where_it_puts_them() {
    let empty = |bits| bitmap::go_zero(bits, bitmap::GO_ZERO_PROBES, &[], &alone);
    lies_at(empty(1024), b"hello", [307, 802, 866, 915, 983, 770, 138, 576, 596, 224, 781, 153, 819, 373]);
    lies_at(
        empty(20_000),
        b"foo",
        [12514, 17347, 5654, 1262, 17090, 7647, 4157, 15033, 19037, 19019, 8107, 1911, 12734, 8262],
    );
    lies_at(empty(64), b"", [53, 22, 50, 25, 45, 56, 51, 23, 62, 37, 24, 39, 49, 38]);
    lies_at(
        empty(1_048_576),
        b"user:42",
        [
            165_956, 608_074, 397_751, 386_418, 59_477, 811_646, 785_177, 502_524, 946_757, 253_209, 472_982,
            919_840, 38_211, 961_183,
        ],
    );
    let manifest = json("go-zero/manifest.json");
    for (item, offsets) in manifest["offsets"].as_object().unwrap() {
        let mut filter = empty(number(&manifest["bits"])).unwrap();
        add(&mut filter, item.as_bytes());
        let mut offsets: Vec<_> = numbers(offsets).into_iter().map(|offset| offset as usize).collect();
        offsets.sort_unstable();
        assert_eq!(positions(&filter), offsets, "{item}");
    }
}

#[test]
fn go_zeros_bitmap_answers_as_go_zero() {
    let manifest = json("go-zero/manifest.json");
    let bits = number(&manifest["bits"]);
    let maps = u32::try_from(number(&manifest["maps"])).unwrap();
    assert_eq!(maps, bitmap::GO_ZERO_PROBES);
    let bytes = fixture("go-zero/bitmap.bin");
    let filter = bitmap::go_zero(bits, maps, &bytes, &alone).unwrap();
    let found = numbers(&manifest["absent_answered_yes"]);
    assert!(!found.is_empty());
    answers_alike(|item| filter.contains(item), "order", 0..2000, 10_000_000..10_200_000, &found);
    assert_eq!((filter.origin(), filter.cells(), filter.links().len()), ("go-zero", bits, 1));
    assert!((1900..2100).contains(&filter.items()), "the fill suggests {}", filter.items());
    // The filter also adds items as the original does: the same items, added to an empty filter, give the same filter.
    let mut made = bitmap::go_zero(bits, maps, &[], &alone).unwrap();
    for i in 0..2000 {
        add(&mut made, &numbered("order", i));
    }
    assert_eq!(wire::body(&made), wire::body(&filter));
}

/// go-zero's string ends with the byte that contains its last set bit.
#[test]
fn a_bitmap_may_be_shorter_than_the_filter_and_not_longer() {
    // `hello` in a filter of 1024 bits: SETBIT makes a string of 123 bytes.
    let mut bitmap = vec![0; 123];
    for bit in [307, 802, 866, 915, 983, 770, 138, 576, 596, 224, 781, 153, 819, 373] {
        bitmap[bit / 8] |= 0x80 >> (bit % 8);
    }
    let filter = bitmap::go_zero(1024, 14, &bitmap, &alone).unwrap();
    assert!(filter.contains(b"hello") && !filter.contains(b"foo"));
    assert!(bitmap::go_zero(983, 14, &bitmap, &alone).is_ok());
    assert!(matches!(bitmap::go_zero(976, 14, &bitmap, &alone), Err(DecodeError::Length(_))));
    let empty = bitmap::go_zero(1024, 14, &[], &alone).unwrap();
    assert!(!empty.contains(b"hello") && empty.items() == 0);
    for (bits, maps) in [(0, 14), (1 << 50, 14), (u64::MAX, 14), (1024, 0), (1024, 257)] {
        assert!(bitmap::go_zero(bits, maps, &[], &alone).is_err(), "{bits} {maps}");
    }
    for (bits, iterations) in [(0, 5), (1 << 50, 5), (1024, 0), (1024, 10_001)] {
        assert!(
            bitmap::redisson(bits, iterations, Encoding::Bytes, &[], &alone).is_err(),
            "{bits} {iterations}"
        );
    }
}
