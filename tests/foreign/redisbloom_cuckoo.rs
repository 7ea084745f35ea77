//! RedisBloom's cuckoo filters: whole objects as it wrote them, read and written again, and growth by its rules.
//!
//! Vectors were recorded from the original, in every version that is named.

use super::redisbloom::unsigned;
use crate::support::rdb::{Dump, Field, Fields, hex};
use bloomery::filter::Origin;
use bloomery::wire::redisbloom::{self, Loader};
use bloomery::wire::{DecodeError, Decoder, Encoder};
use bloomery::{Cuckoo, limits};

/// The reply to DUMP, after `CF.RESERVE c 8` and `CF.ADD c hello`.
pub(super) const CUCKOO_DUMP: &str =
    "07813016e5a2898214040201020402010200020202140201020405080000000000009f00000c00497609fd4a8b6f4b";

/// The fields of a cuckoo filter without items.
pub(super) fn cuckoo_fields(buckets: u64, bucket_size: u64, max_iterations: u64, expansion: u64) -> Fields {
    let head = [1, buckets, 0, 0, bucket_size, max_iterations, expansion, buckets].map(unsigned);
    let slots = Field::String(vec![0; (buckets * bucket_size) as usize]);
    Fields(head.into_iter().chain([slots]).collect())
}

pub(super) fn load_cuckoo(encoding: u32, mut fields: Fields) -> Cuckoo {
    let value = redisbloom::load_cuckoo(&mut fields, encoding).unwrap();
    assert!(fields.0.is_empty(), "fields are left");
    value.into_cuckoo().unwrap()
}

pub(super) fn save_cuckoo(filter: &Cuckoo) -> Fields {
    let mut fields = Fields::default();
    redisbloom::save_cuckoo(&mut fields, filter);
    fields
}

/// The slots of each sub-filter, as bytes.
fn slots(filter: &Cuckoo) -> Vec<Vec<u8>> {
    let strings = save_cuckoo(filter).0.into_iter().filter_map(|field| match field {
        Field::String(bytes) => Some(bytes),
        _ => None,
    });
    strings.collect()
}

pub(super) fn insert(filter: &mut Cuckoo, item: &[u8]) {
    while filter.try_insert(filter.hash(item)).is_err() {
        filter.grow().unwrap();
    }
}

pub(super) fn holds(filter: &Cuckoo, item: &[u8]) -> bool {
    filter.contains(filter.hash(item))
}

#[test]
fn a_cuckoo_filter_is_read_and_written() {
    let dump = Dump::read(&hex(CUCKOO_DUMP));
    assert_eq!((dump.name.as_str(), dump.encoding), ("MBbloomCF", 4));
    let read = load_cuckoo(4, dump.fields.clone());
    assert!(holds(&read, b"hello") && !holds(&read, b"foo"));
    assert_eq!(Dump { fields: save_cuckoo(&read), ..dump.clone() }.write(12), hex(CUCKOO_DUMP));
    let mut made = load_cuckoo(4, cuckoo_fields(4, 2, 20, 1));
    insert(&mut made, b"hello");
    assert_eq!(Dump { fields: save_cuckoo(&made), ..dump }.write(12), hex(CUCKOO_DUMP));
}

#[test]
fn fingerprints_lie_where_the_original_puts_them() {
    #[rustfmt::skip] // a table: item, fingerprint, slot, and the item's other bucket
    let vectors: [(&[u8], u8, usize, usize); 5] = [
        (b"hello", 159, 558, 156), (b"foo", 217, 514, 76), (b"user:42", 150, 146, 263), (b"", 1, 0, 405),
        (&[0, 0xff, 1], 118, 978, 327),
    ];
    for (item, fingerprint, slot, other) in vectors {
        let mut filter = load_cuckoo(4, cuckoo_fields(512, 2, 20, 1));
        insert(&mut filter, item);
        let bytes = slots(&filter).remove(0);
        let used: Vec<_> = (0..1024).filter(|slot| bytes[*slot] != 0).collect();
        assert_eq!((used, bytes[slot]), (vec![slot], fingerprint), "{item:?}");
        let mut fields = cuckoo_fields(512, 2, 20, 1);
        let mut bytes = vec![0; 1024];
        bytes[2 * other + 1] = fingerprint;
        fields.0[8] = Field::String(bytes);
        assert!(holds(&load_cuckoo(4, fields), item));
    }
}

/// `CF.RESERVE c 8 BUCKETSIZE 2 MAXITERATIONS 5 EXPANSION 2`, then seven adds of `hello`.
#[test]
fn duplicates_fill_buckets_and_open_a_sub_filter() {
    let mut filter = load_cuckoo(4, cuckoo_fields(4, 2, 5, 2));
    for bytes in ["0000000000009f00", "0000000000009f9f", "9f00000000009f9f", "9f9f000000009f9f"] {
        insert(&mut filter, b"hello");
        assert_eq!(slots(&filter), [hex(bytes)]);
    }
    insert(&mut filter, b"hello");
    assert_eq!(slots(&filter)[1], hex("00000000000000000000000000009f00"));
    insert(&mut filter, b"hello");
    insert(&mut filter, b"hello");
    assert_eq!((filter.items(), filter.count(filter.hash(b"hello"))), (7, 7));
    let encoder = Encoder::new(&filter);
    assert_eq!(
        encoder.head(),
        hex("0700000000000000040000000000000000000000000000000200000000000000020005000200")
    );
    // The chunks end at bytes 8 and 24. RedisBloom's iterators for them are 9 and 25.
    let mut chunk = Vec::new();
    assert_eq!(encoder.chunk(0, &mut chunk), Some(8));
    assert_eq!(chunk, slots(&filter)[0]);
    assert_eq!(encoder.chunk(8, &mut chunk), Some(24));
    assert_eq!(chunk, slots(&filter)[1]);
    assert_eq!(encoder.chunk(24, &mut chunk), None);

    // Versions 2.2.0 to 2.2.10 wrote an address after the head. Earlier versions wrote heads of four numbers, which are
    // refused. Their iterators, which counted buckets, are refused, too.
    let head = encoder.head().to_vec();
    let of_2_2_0 = [&head[..], &0x7f00_dead_beef_u64.to_le_bytes()].concat();
    for head in [&head, &of_2_2_0] {
        let mut loader = Loader::cuckoo(head).unwrap();
        let [first, second] = &slots(&filter)[..] else { panic!() };
        assert!(loader.push(4, first).is_err(), "an iterator that counts buckets");
        loader.push(24, second).unwrap();
        assert_eq!((loader.is_complete(), loader.is_cuckoo(), loader.body_len()), (false, true, 24));
        loader.push(8, first).unwrap();
        let loaded = loader.finish().unwrap().into_cuckoo().unwrap();
        assert_eq!(save_cuckoo(&loaded), save_cuckoo(&filter));
    }
    for len in (0..60).filter(|len| ![38, 46].contains(len)) {
        let mut other = head.clone();
        other.resize(len, 0);
        assert_eq!(Loader::cuckoo(&other).err(), Some(DecodeError::Length("header")), "{len}");
    }
}

/// Before 2.2.0, items had a different fingerprint and a different second bucket. Filters with such items keep the old
/// rule, whichever encoding they are saved in.
#[test]
fn cuckoo_filters_of_old_are_found_by_their_own_rule() {
    for slot in [918, 919, 772, 773] {
        let mut bytes = vec![0; 1024];
        bytes[slot] = 229;
        let fields = Fields::from([unsigned(1), unsigned(512), unsigned(1), Field::String(bytes.clone())]);
        for encoding in [1, 3] {
            let filter = load_cuckoo(encoding, fields.clone());
            let spec = filter.spec();
            assert_eq!(
                (spec.bucket_size, spec.max_iterations, spec.expansion, spec.origin),
                (2, 500, 1, Origin::RedisBloom1)
            );
            assert!(holds(&filter, b"hello") && !holds(&filter, b"foo"));
            let again = load_cuckoo(4, save_cuckoo(&filter));
            assert_eq!(again.spec(), spec);
            assert!(holds(&again, b"hello"));
            let mut loader = Loader::cuckoo(Encoder::new(&filter).head()).unwrap();
            loader.push(1024, &bytes).unwrap();
            assert!(holds(&loader.finish().unwrap().into_cuckoo().unwrap(), b"hello"));
            let native = Decoder::read(&Encoder::native(&filter).to_vec()).unwrap().into_cuckoo().unwrap();
            assert!(holds(&native, b"hello") && native.spec() == spec);
        }
        // By today's rule the fingerprint belongs to another item.
        let mut fields = cuckoo_fields(512, 2, 20, 1);
        fields.0[8] = Field::String(bytes);
        assert!(!holds(&load_cuckoo(4, fields), b"hello"));
    }
    let mut filter =
        load_cuckoo(3, Fields::from([unsigned(1), unsigned(512), unsigned(0), Field::String(vec![0; 1024])]));
    insert(&mut filter, b"hello");
    assert_eq!(slots(&filter)[0].iter().position(|byte| *byte != 0), Some(918));
    let of_32_bits =
        Fields::from([unsigned(1), unsigned(1 << 33), unsigned(0), Field::String(vec![0; 1024])]);
    assert_eq!(
        redisbloom::load_cuckoo(&mut of_32_bits.clone(), 3).err(),
        Some(DecodeError::Field("number of buckets"))
    );
}

/// Every filter that growth can reach can be loaded again.
#[test]
fn a_cuckoo_filter_of_as_many_sub_filters_as_there_may_be_is_read_and_written() {
    let mut filter = load_cuckoo(4, cuckoo_fields(1, 1, 20, 1));
    while filter.grow().is_ok() {}
    assert_eq!(filter.tables().len(), limits::MAX_TABLES);
    let loaded = load_cuckoo(4, save_cuckoo(&filter));
    assert_eq!(loaded.tables().len(), limits::MAX_TABLES);
    assert!(Loader::cuckoo(Encoder::new(&loaded).head()).is_ok());
}

#[test]
fn cuckoo_fields_are_refused_by_name() {
    // Indices of the fields: filters 0, buckets 1, items 2, deletes 3, bucket size 4, max iterations 5, expansion 6,
    // buckets again 7, slots 8.
    let with = |changes: &[(usize, u64)]| {
        let mut fields = cuckoo_fields(8, 2, 20, 2);
        changes.iter().for_each(|(at, value)| fields.0[*at] = unsigned(*value));
        redisbloom::load_cuckoo(&mut fields, 4).err()
    };
    let field = |name| Some(DecodeError::Field(name));
    assert_eq!(with(&[]), None);
    assert_eq!(with(&[(2, u64::MAX), (5, 0)]), None, "the number of items is counted");
    assert_eq!(with(&[(0, 2)]), Some(DecodeError::Length("payload")));
    for filters in [0, 65_537, u64::MAX] {
        assert_eq!(with(&[(0, filters)]), field("number of filters"), "{filters}");
    }
    assert_eq!(with(&[(0, 2), (6, 0)]), field("number of filters"));
    for buckets in [0, 3, 9, u64::MAX] {
        assert_eq!(with(&[(1, buckets)]), field("number of buckets"), "{buckets}");
    }
    for buckets in [1 << 48, 1 << 63] {
        assert!(with(&[(1, buckets)]).is_some(), "{buckets}");
    }
    assert_eq!(with(&[(3, limits::MAX_COUNT + 1)]), field("number of deletes"));
    for size in [0, 256, u64::MAX] {
        assert_eq!(with(&[(4, size)]), field("bucket size"), "{size}");
    }
    assert_eq!(with(&[(4, 3)]), Some(DecodeError::Length("payload")));
    assert_eq!(with(&[(5, 1 << 16)]), field("max iterations"));
    assert_eq!(with(&[(6, 1 << 16)]), field("expansion"));
    assert_eq!(with(&[(6, 3)]), field("parameters"));
    assert_eq!(with(&[(7, 16)]), field("number of buckets"));
}
