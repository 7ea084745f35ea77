//! Imports of Redisson's bitmaps.

use super::guava::guava_blob;
use super::recorded::{add, lies_at, positions};
use bloomery::filter::foreign::Encoding;
use bloomery::parallel::alone;
use bloomery::wire::import::{self, bitmap};

#[test]
fn redissons_items_are_where_it_puts_them() {
    let empty = |bits, iterations, encoding| bitmap::redisson(bits, iterations, encoding, &[], &alone);
    let text = |bits, iterations| empty(bits, iterations, Encoding::Bytes);
    lies_at(text(958, 7), b"hello", [635, 186, 859, 410, 125, 634, 349]);
    lies_at(text(14_377, 10), b"foo", [13551, 2386, 3884, 7096, 8594, 11806, 13304, 2139, 1313, 6849]);
    lies_at(text(958, 7), b"", [879, 289, 248, 616, 575, 943, 864]);
    lies_at(
        text(401_414_246, 5),
        b"user:42",
        [280_914_879, 122_049_333, 42_751_052, 285_299_752, 206_001_471],
    );
    // The codec is given once, in the import command, and items come as text.
    lies_at(empty(958, 7, Encoding::Kryo5), b"hello", [634, 655, 369, 390, 104, 125, 797]);
    lies_at(text(958, 7), b"\x03hell\xef", [634, 655, 369, 390, 104, 125, 797]);
    let mut json = empty(958, 7, Encoding::Json).unwrap();
    let mut quoted = text(958, 7).unwrap();
    assert!(add(&mut json, b"he\"llo") && add(&mut quoted, b"\"he\\\"llo\""));
    assert_eq!(positions(&json), positions(&quoted));

    let mut bitmap = vec![0; 120];
    for bit in [635, 186, 859, 410, 125, 634, 349] {
        bitmap[bit / 8] |= 0x80 >> (bit % 8);
    }
    let filter = bitmap::redisson(958, 7, Encoding::Bytes, &bitmap, &alone).unwrap();
    assert!(filter.contains(b"hello") && !filter.contains(b"foo"));
    assert_eq!((filter.origin(), filter.ones()), ("redisson", 7));
}

/// An item that the original can't contain is absent, and can't be added.
#[test]
fn items_of_another_type_are_refused() {
    let mut filter = bitmap::redisson(958, 7, Encoding::Kryo5, &[0xFF; 119], &alone).unwrap();
    assert!(filter.contains("é".as_bytes()) && !filter.contains(b"\xff"));
    assert!(filter.try_add(b"\xff").is_err());
    let mut filter = import::guava(&guava_blob(1, 7, 15), Encoding::Int, &alone).unwrap();
    for item in ["", "x", "1.5", "2147483648", "-2147483649", " 1"] {
        assert!(filter.try_add(item.as_bytes()).is_err() && !filter.contains(item.as_bytes()));
    }
    assert!(add(&mut filter, b"-2147483648") && filter.ones() > 0);
}
