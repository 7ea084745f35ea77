//! valkey-bloom's filters: payloads and fields as it wrote them, read and written again, and growth by its rules.
//!
//! Vectors were recorded from the original.

use super::redisbloom::{Link, TODAY, add, chain, load, save, unsigned};
use crate::support::rdb::{Field, Fields, hex};
use bloomery::Error;
use bloomery::filter::Foreign;
use bloomery::filter::foreign::LinkSpec;
use bloomery::parallel::alone;
use bloomery::wire::{DecodeError, Encoder, import};

pub(super) const FIXED_SEED: &str = "590ff522ea7811daa714d8093b3e7bd91d898a733e988887307f97cd28073383";

/// A payload with expansion 2, error rate 0.01, tightening 0.5, the fixed seed, and one filter for 10 items that
/// contains `hello`.
fn payload() -> Vec<u8> {
    hex(&format!(
        "01 02000000 7b14ae47e17a843f 000000000000e03f 00 0100000000000000 3900000000000000 01 0c00000000000000 07000000 \
         {FIXED_SEED} 000000000000000080240922 0100000000000000 0a00000000000000"
    ))
}

/// The fields of a chain of one filter without items.
pub(super) fn valkey_fields(
    expansion: u64,
    rate: f64,
    tightening: f64,
    seed: &[u8],
    capacity: u64,
    k: u32,
    bits: u64,
) -> Fields {
    let mut blob = vec![1];
    blob.extend_from_slice(&(bits / 8).to_le_bytes());
    blob.extend_from_slice(&k.to_le_bytes());
    blob.extend_from_slice(seed);
    blob.resize(blob.len() + bits as usize / 8, 0);
    Fields::from([
        unsigned(1),
        unsigned(expansion),
        Field::Double(rate),
        Field::Double(tightening),
        unsigned(0),
        unsigned(capacity),
        unsigned(0),
        Field::String(blob),
    ])
}

pub(super) fn load_valkey(mut fields: Fields) -> Foreign {
    let filter = import::load_valkey_bloom(&mut fields, 1).unwrap();
    assert!(fields.0.is_empty(), "fields are left");
    filter
}

pub(super) fn save_valkey(filter: &Foreign) -> Fields {
    let mut fields = Fields::default();
    import::save_valkey_bloom(&mut fields, filter);
    fields
}

#[test]
fn valkeys_payload_is_read() {
    assert_eq!(payload().len(), 111);
    let read = import::valkey_bloom_payload(&payload(), &alone).unwrap();
    assert!(read.contains(b"hello") && !read.contains(b"foo"));
    assert_eq!((read.items(), read.capacity(), read.cells(), read.ones()), (1, 10, 96, 7));
    assert_eq!(read.origin(), "valkey-bloom");
    // Bytes after the payload are ignored, as in the original.
    let more = import::valkey_bloom_payload(&[&payload()[..], b"more"].concat(), &alone).unwrap();
    assert_eq!(save_valkey(&more), save_valkey(&read));
    for len in 0..111 {
        assert!(import::valkey_bloom_payload(&payload()[..len], &alone).is_err(), "{len}");
    }
    // The same filter, created empty from its fields.
    let mut made = load_valkey(valkey_fields(2, 0.01, 0.5, &hex(FIXED_SEED), 10, 7, 96));
    assert!(add(&mut made, b"hello") && !add(&mut made, b"hello"));
    assert_eq!(save_valkey(&made), save_valkey(&read));
    let Some(Field::String(blob)) = save_valkey(&made).0.pop_back() else { panic!() };
    assert_eq!(blob, payload()[38..38 + 57]);
    assert_eq!(Encoder::new(&made).to_vec(), Encoder::new(&load_valkey(save_valkey(&made))).to_vec());
}

#[test]
fn items_lie_where_valkey_puts_them() {
    let fixed = hex(FIXED_SEED);
    let counted: Vec<u8> = (0..32).collect();
    #[rustfmt::skip] // a table
    let vectors = [
        (&fixed, 100, 7, 960, &b"hello"[..], vec![953, 573, 179, 752, 365, 938, 551]),
        (&fixed, 1000, 10, 14_384, b"foo", vec![1775, 74, 8835, 12365, 1511, 5041, 8571, 12101, 12175, 1321]),
        (&fixed, 100, 7, 960, b"", vec![598, 580, 798, 418, 38, 618, 238]),
        (&counted, 100, 7, 960, b"hello", vec![845, 632, 893, 309, 941, 613, 29]),
        (&counted, 3, 4, 16, b"user:42", vec![1, 13, 11, 8]),
    ];
    for (seed, capacity, k, bits, item, mut expected) in vectors {
        let mut filter = load_valkey(valkey_fields(2, 0.01, 0.5, seed, capacity, k, bits));
        assert!(add(&mut filter, item));
        let Some(Field::String(blob)) = save_valkey(&filter).0.pop_back() else { panic!() };
        let bitmap = &blob[45..];
        expected.sort_unstable();
        let is_set = |bit: &u64| bitmap[(bit / 8) as usize] >> (bit % 8) & 1 == 1;
        assert_eq!((0..bits).filter(is_set).collect::<Vec<_>>(), expected, "{item:?}");
    }
}

#[test]
fn valkeys_filters_grow_as_the_original() {
    let mut filter = load_valkey(valkey_fields(2, 0.01, 0.5, &hex(FIXED_SEED), 100, 7, 960));
    (0..3).for_each(|_| assert_eq!(filter.grow(), Ok(true)));
    let links: Vec<_> = filter.links().iter().map(|link| *link.spec()).collect();
    let of = |link: &LinkSpec| (link.modulus, link.probes, link.capacity);
    assert_eq!(
        links.iter().map(of).collect::<Vec<_>>(),
        [(960, 7, 100), (2208, 8, 200), (4992, 9, 400), (11_136, 10, 800)]
    );
    let fixed = load_valkey(valkey_fields(0, 0.01, 0.5, &hex(FIXED_SEED), 100, 7, 960));
    assert_eq!(fixed.next_link(), Ok(None));
    // A chain grows until its error rate is no longer a normal floating-point number.
    let mut tiny = load_valkey(valkey_fields(1, 1e-300, 1e-5, &hex(FIXED_SEED), 1, 7, 960));
    assert_eq!((tiny.grow(), tiny.grow()), (Ok(true), Err(Error::TooManyLayers)));
    let mut large = load_valkey(valkey_fields(2, 0.01, 0.5, &hex(FIXED_SEED), 1 << 62, 7, 960));
    assert_eq!(large.grow(), Err(Error::TooManyLayers));
}

/// After saving and loading, a filter that grew has the same bits, and its links have the same error rates.
#[test]
fn a_filter_that_grew_is_the_same_after_a_restart() {
    for tightening in [0.5, 0.3, 0.7, 0.85, 0.999] {
        let mut filter = load_valkey(valkey_fields(2, 0.013, tightening, &hex(FIXED_SEED), 10, 7, 96));
        for i in 0..5000u32 {
            add(&mut filter, &i.to_le_bytes());
        }
        assert!(filter.links().len() > 8);
        let loaded = load_valkey(save_valkey(&filter));
        assert!(Encoder::new(&loaded).to_vec() == Encoder::new(&filter).to_vec(), "{tightening}");
    }
    let mut filter = load(4, chain(4, TODAY, 2, &[Link::empty(10, 0.003, 9, 128)]));
    for i in 0..5000u32 {
        add(&mut filter, &i.to_le_bytes());
    }
    assert!(Encoder::native(&load(4, save(&filter))).to_vec() == Encoder::native(&filter).to_vec());
}

#[test]
fn valkeys_fields_are_refused_by_name() {
    let error = |bytes: &[u8]| import::valkey_bloom_payload(bytes, &alone).err();
    let with = |at: usize, value: &[u8]| {
        let mut bytes = payload();
        bytes[at..at + value.len()].copy_from_slice(value);
        error(&bytes)
    };
    let field = |name| Some(DecodeError::Field(name));
    let short = Some(DecodeError::Length("payload"));
    assert_eq!(with(0, &[1]), None);
    assert_eq!(with(0, &[2]), field("version"));
    for ratio in [0.0, -0.5, 1.0, 2.0, f64::NAN] {
        assert_eq!(with(5, &f64::to_le_bytes(ratio)), field("fp_rate"), "{ratio}");
        assert_eq!(with(13, &f64::to_le_bytes(ratio)), field("tightening_ratio"), "{ratio}");
    }
    assert_eq!(with(22, &0u64.to_le_bytes()), field("number of filters"));
    for count in [2, u64::MAX] {
        assert_eq!(with(22, &count.to_le_bytes()), short, "{count}");
    }
    for len in [72 + 1, u64::MAX] {
        assert_eq!(with(30, &len.to_le_bytes()), short, "{len}");
    }
    assert_eq!(with(30, &44u64.to_le_bytes()), Some(DecodeError::Length("filter")));
    assert_eq!(with(38, &[2]), field("version of the filter"));
    for len in [0, 11, 13, u64::MAX] {
        assert_eq!(with(39, &u64::to_le_bytes(len)), Some(DecodeError::Length("bitmap")), "{len}");
    }
    for k in [0, 2049, u32::MAX] {
        assert_eq!(with(47, &u32::to_le_bytes(k)), field("number of hashes"), "{k}");
    }
    for items in [11, 1 << 63, u64::MAX] {
        assert_eq!(with(95, &u64::to_le_bytes(items)), field("num_items"), "{items}");
    }
    for capacity in [0, 1 << 63, u64::MAX] {
        assert_eq!(with(103, &u64::to_le_bytes(capacity)), field("capacity"), "{capacity}");
    }
    // Filters of one chain share their seed.
    let of = |filter: usize| payload()[30 + filter..].to_vec();
    let mut two = payload();
    two[22] = 2;
    two.extend(of(0));
    assert_eq!(error(&two), None);
    two[111 + 8 + 13] ^= 1;
    assert_eq!(error(&two), field("seed"));
    for encoding in [0, 2, 1023] {
        let mut fields = valkey_fields(2, 0.01, 0.5, &hex(FIXED_SEED), 10, 7, 96);
        assert!(import::load_valkey_bloom(&mut fields, encoding).is_err(), "{encoding}");
    }
}
