//! Filters of RedisBloom and valkey-bloom: whole objects as their originals wrote them, read and written back; growth by
//! their rules; and that no item that went in is ever missing.
//!
//! Vectors were recorded from the originals in all the versions that are named.

use crate::support::rdb::{Dump, Field, Fields, hex};
use bloomery::filter::foreign::{LinkSpec, RedisBloomPlan, Scheme};
use bloomery::filter::{Foreign, Origin};
use bloomery::wire::redisbloom::{self, Loader};
use bloomery::wire::{DecodeError, Decoder, Encoder, import};
use bloomery::{Added, Cuckoo, Error, Filter, limits};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashSet;

/// Options of a chain since 2.2.0, of one from 1.1.1 to 2.0.3, and of one before that.
const TODAY: u64 = 5;
const ROUNDED: u64 = 4;
const NARROW: u64 = 0;

/// Not scaling.
const FIXED: u64 = 8;

fn unsigned(value: u64) -> Field {
    Field::Unsigned(value)
}

/// A link in the fields of encoding 1 and later.
#[derive(Clone)]
struct Link {
    capacity: u64,
    error_rate: f64,
    hashes: u64,
    bits_per_item: f64,
    bits: u64,
    n2: u64,
    bitmap: Vec<u8>,
    items: u64,
}

impl Link {
    /// Without items, as 2.2.5 and later make it.
    fn empty(capacity: u64, error_rate: f64, hashes: u64, bits: u64) -> Link {
        let bits_per_item = (error_rate.ln() / 0.480_453_013_918_201).abs();
        let bitmap = vec![0; bits as usize / 8];
        Link { capacity, error_rate, hashes, bits_per_item, bits, n2: 0, bitmap, items: 0 }
    }

    fn rounded(self, n2: u64) -> Link {
        Link { bits: 0, n2, bitmap: vec![0; (1 << n2) / 8], ..self }
    }

    /// With these bits set.
    fn with(mut self, positions: &[usize]) -> Link {
        for position in positions {
            self.bitmap[position / 8] |= 1 << (position % 8);
        }
        Link { items: 1, ..self }
    }
}

/// The fields of a chain of such links. Encoding 0 has no number of bits; 0 and 1 have no options; 4 has a growth.
fn chain(encoding: u32, options: u64, growth: u64, links: &[Link]) -> Fields {
    let mut fields = vec![unsigned(links.iter().map(|link| link.items).sum()), unsigned(links.len() as u64)];
    if encoding >= 3 {
        fields.push(unsigned(options));
    }
    if encoding >= 4 {
        fields.push(unsigned(growth));
    }
    for link in links {
        fields.extend([unsigned(link.capacity), Field::Double(link.error_rate), unsigned(link.hashes)]);
        fields.push(Field::Double(link.bits_per_item));
        if encoding >= 1 {
            fields.extend([unsigned(link.bits), unsigned(link.n2)]);
        }
        fields.extend([Field::String(link.bitmap.clone()), unsigned(link.items)]);
    }
    Fields(fields.into())
}

fn load(encoding: u32, mut fields: Fields) -> Foreign {
    let value = redisbloom::load_bloom(&mut fields, encoding).unwrap();
    assert!(fields.0.is_empty(), "fields are left");
    value.into_foreign().unwrap()
}

fn save(filter: &Foreign) -> Fields {
    let mut fields = Fields::default();
    redisbloom::save_bloom(&mut fields, filter);
    fields
}

/// Adds an item, growing if it must; whether it was added.
fn add(filter: &mut Foreign, item: &[u8]) -> bool {
    match filter.add_without_growth(item) {
        Err(Error::Full) => {
            assert_eq!(filter.grow(), Ok(true));
            filter.add_without_growth(item).unwrap().added
        }
        done => done.unwrap().added,
    }
}

/// Positions of the bits that are set in link `index`.
fn positions(filter: &Foreign, index: usize) -> Vec<usize> {
    let fields = save(filter);
    let bitmaps = fields.0.iter().filter_map(|field| match field {
        Field::String(bytes) => Some(bytes),
        _ => None,
    });
    let bitmap = bitmaps.into_iter().nth(index).unwrap();
    (0..bitmap.len() * 8).filter(|bit| bitmap[bit / 8] >> (bit % 8) & 1 == 1).collect()
}

fn sorted<const N: usize>(positions: [usize; N]) -> Vec<usize> {
    let set: std::collections::BTreeSet<_> = positions.into();
    set.into_iter().collect()
}

// ---- RedisBloom: Bloom filters ---------------------------------------------------------------------------------------

/// `BF.RESERVE k 0.2 3`, `BF.ADD k user:42` in Redis 8.0.6.
const TODAYS_DUMP: &str = "07813016e5a289bef80402010201020502020203049a9999999999b93f02040488168ac58c2b13400240400200\
                           050800200080100040000201000c00e661f6b222b24a0d";
const TODAYS_HEAD: &str = "01000000000000000100000005000000020000000800000000000000400000000000000001000000000000009a99\
                           99999999b93f88168ac58c2b134004000000030000000000000000";
/// The same in 2.0.1.
const OLD_DUMP: &str = "07813016e5a289bef8030201020102040204049a9999999999c93f020304906b7ed875cc0a4002000204050203800201\
                        000a005d2ff2f4a424f40c";
const OLD_HEAD: &str = "010000000000000001000000040000000200000000000000000000000000000001000000000000009a9999999999c93f\
                        906b7ed875cc0a40030000000400000004";

#[test]
fn todays_chain_is_read_and_written() {
    let dump = Dump::read(&hex(TODAYS_DUMP));
    assert_eq!((dump.name.as_str(), dump.encoding), ("MBbloom--", redisbloom::ENCODING));
    let read = load(4, dump.fields.clone());
    assert_eq!(positions(&read, 0), [13, 31, 36, 54]);
    assert!(read.contains(b"user:42") && !read.contains(b"user:43"));
    assert_eq!((read.items(), read.capacity(), read.origin()), (1, 3, "redisbloom"));
    assert_eq!(Dump { fields: save(&read), ..dump.clone() }.write(12), hex(TODAYS_DUMP));

    let mut made = load(4, chain(4, TODAY, 2, &[Link::empty(3, 0.1, 4, 64)]));
    assert!(add(&mut made, b"user:42") && !add(&mut made, b"user:42"));
    assert_eq!(Dump { fields: save(&made), ..dump }.write(12), hex(TODAYS_DUMP));

    let encoder = Encoder::new(&made);
    assert_eq!(encoder.head(), hex(TODAYS_HEAD));
    let mut chunk = Vec::new();
    assert_eq!((encoder.chunk(0, &mut chunk), &chunk), (Some(8), &hex("0020008010004000")));
    assert_eq!(encoder.chunk(8, &mut chunk), None);
    // Any offset will do, as in the original.
    assert_eq!((encoder.chunk(2, &mut chunk), &chunk), (Some(8), &hex("008010004000")));
}

#[test]
fn the_chain_of_2_0_1_is_read_and_written_as_today() {
    let dump = Dump::read(&hex(OLD_DUMP));
    assert_eq!((dump.name.as_str(), dump.encoding), ("MBbloom--", 3));
    let mut filter = load(3, dump.fields);
    assert_eq!(filter.scheme(), &Scheme::RedisBloom(RedisBloomPlan::FullOrCut));
    assert_eq!(positions(&filter, 0), [0, 1, 15]);
    assert!(filter.contains(b"user:42") && !filter.contains(b"user:43"));
    // There was no number of bits, for which RedisBloom refuses it today; the rest is as it was.
    let link = Link { bits: 16, ..Link::empty(4, 0.2, 3, 16).rounded(4).with(&[0, 1, 15]) };
    assert_eq!(save(&filter), chain(4, ROUNDED, 2, std::slice::from_ref(&link)));
    // What is added goes where RedisBloom looks today, and what was there stays.
    assert!(add(&mut filter, b"hello"));
    let seen_by_today = load(4, chain(4, TODAY, 2, &[Link { n2: 0, ..link }]));
    assert!(filter.contains(b"user:42") && filter.contains(b"hello") && !seen_by_today.contains(b"hello"));
}

/// A head with its links as 2.2.0 wrote it: capacities of 32 bits.
fn head_of_2_2_0(head: &[u8]) -> Vec<u8> {
    let (fixed, links) = head.split_at(20);
    let narrowed = links.chunks(53).flat_map(|link| [&link[..48], &link[52..]].concat());
    fixed.iter().copied().chain(narrowed).collect()
}

#[test]
fn heads_of_all_generations_are_read() {
    let chunk = |head: &str, end: u64, chunk: &str| {
        let mut loader = Loader::bloom(&hex(head)).unwrap();
        loader.push(end, &hex(chunk)).unwrap();
        loader.finish().unwrap().into_foreign().unwrap()
    };
    let todays = chunk(TODAYS_HEAD, 8, "0020008010004000");
    assert_eq!(save(&todays), Dump::read(&hex(TODAYS_DUMP)).fields);
    let old = chunk(OLD_HEAD, 2, "0380");
    assert_eq!(save(&old), save(&load(3, Dump::read(&hex(OLD_DUMP)).fields)));
    assert_eq!(old.scheme(), &Scheme::RedisBloom(RedisBloomPlan::FullOrCut));

    let of_2_2_0 = head_of_2_2_0(&hex(TODAYS_HEAD));
    assert_eq!(of_2_2_0.len(), 20 + 49);
    let mut loader = Loader::bloom(&of_2_2_0).unwrap();
    loader.push(8, &hex("0020008010004000")).unwrap();
    assert_eq!(Encoder::new(&loader.finish().unwrap()).head(), hex(TODAYS_HEAD));
    for head in [hex(TODAYS_HEAD), hex(OLD_HEAD), of_2_2_0] {
        // All lengths but those of the other generations.
        for len in (0..80).filter(|len| ![16 + 49, 20 + 49, 20 + 53].contains(len)) {
            let mut cut = head.clone();
            cut.resize(len, 0);
            assert_eq!(Loader::bloom(&cut).err(), Some(DecodeError::Length("header")), "{len}");
        }
    }
}

/// Bits of an item, for parameters that BF.RESERVE made in Redis 8.0.6.
#[test]
fn items_lie_where_todays_redisbloom_puts_them() {
    #[rustfmt::skip] // a table
    let vectors: [(u64, Link, &[u8], Vec<usize>); 6] = [
        (TODAY, Link::empty(100, 0.005, 8, 1152), b"hello", sorted([537, 957, 97, 517, 809, 77, 497, 789])),
        (TODAY | FIXED, Link::empty(100, 0.01, 7, 960), b"hello", sorted([153, 189, 481, 517, 809, 845, 881])),
        (TODAY, Link::empty(1000, 0.0005, 11, 15872), b"foo",
            sorted([6413, 207, 10385, 4179, 14357, 8151, 1945, 12123, 5917, 15583, 9889])),
        (TODAY, Link::empty(100, 0.005, 8, 1152), b"", sorted([366, 1077, 764, 451, 138, 849, 536, 223])),
        (TODAY, Link::empty(100, 0.005, 8, 1152), b"0123456789abcdef", sorted([239, 623, 1007, 367, 751, 1135])),
        (TODAY, Link::empty(1_000_000, 0.005, 8, 11_027_776), &[0, 0xff, 1, 0xfe, 2],
            sorted([408_301, 2_438_395, 4_468_489, 6_498_583, 8_528_677, 10_558_771, 762_049, 2_792_143])),
    ];
    for (options, link, item, expected) in vectors {
        let mut filter = load(4, chain(4, options, 2, std::slice::from_ref(&link)));
        assert!(!filter.contains(item) && add(&mut filter, item));
        assert_eq!(positions(&filter, 0), expected, "{item:?}");
        let recorded = load(4, chain(4, options, 2, &[link.with(&expected)]));
        assert!(recorded.contains(item) && !recorded.contains(b"stranger"));
    }
}

/// Filters of 2.0.1 on Linux and of 2.0.3: the same version of the encoding, other bits.
#[test]
fn items_are_found_whatever_their_seeds_were() {
    let of_100 = Link::empty(106, 0.01, 7, 0).rounded(10);
    let of_1000 = Link::empty(1139, 0.001, 10, 0).rounded(14);
    #[rustfmt::skip] // a table
    let vectors = [
        (&of_100, &b"hello"[..], [&[113, 151, 189, 227, 265, 303, 341][..], &[297, 317, 625, 645, 665, 973, 993]]),
        (&of_1000, b"foo", [
            &[220, 2409, 4598, 5659, 6787, 7848, 8976, 10037, 12226, 14415],
            &[4815, 5715, 6615, 7515, 8415, 12557, 13457, 14357, 15257, 16157],
        ]),
    ];
    for (link, item, of_version) in vectors {
        for set in of_version {
            let filter = load(3, chain(3, ROUNDED, 0, &[link.clone().with(set)]));
            assert!(filter.contains(item));
            // Saved by a later version, and half of a variant is none.
            assert!(load(4, save(&filter)).contains(item));
            assert!(!load(3, chain(3, ROUNDED, 0, &[link.clone().with(&set[1..])])).contains(item));
        }
        let halves = [&of_version[0][1..], &of_version[1][1..]].concat();
        assert!(!load(3, chain(3, ROUNDED, 0, &[link.clone().with(&halves)])).contains(item));
        let mut filter = load(3, chain(3, ROUNDED, 0, std::slice::from_ref(link)));
        assert!(add(&mut filter, item));
        assert_eq!(positions(&filter, 0), of_version[1], "as RedisBloom would find it today");
    }
}

/// Up to 1.1.0: 32-bit hashes, and where the modulus is no power of two a sum that wraps at 32 bits.
#[test]
fn items_of_the_first_versions_are_found() {
    let narrow: [usize; 7] = [113, 234, 414, 535, 715, 836, 957];
    let link = Link::empty(106, 0.01, 7, 0).rounded(10);
    for encoding in [1, 3, 4] {
        let mut filter = load(encoding, chain(encoding, NARROW, 2, &[link.clone().with(&narrow)]));
        assert!(filter.contains(b"hello") && !filter.contains(b"foo"), "{encoding}");
        assert_eq!(filter.scheme(), &Scheme::RedisBloom(RedisBloomPlan::Narrow));
        assert!(add(&mut filter, b"foo"));
    }
    let mut filter = load(1, chain(1, NARROW, 0, &[Link::empty(1139, 0.001, 10, 0).rounded(14)]));
    assert!(add(&mut filter, b"foo"));
    assert_eq!(positions(&filter, 0), [803, 2424, 4045, 5840, 7461, 9082, 10703, 12324, 13945, 15566]);

    let wrapped: [usize; 7] = [14, 33, 327, 346, 640, 659, 953];
    let wide: [usize; 7] = [33, 208, 383, 469, 644, 730, 905];
    let link = Link { bits: 958, bitmap: vec![0; 120], ..Link::empty(100, 0.01, 7, 0) };
    for encoding in [0, 1] {
        // Encoding 0 has no number of bits: it follows from the capacity. Today's is what it is saved in, so that the
        // items of later versions are asked for from the start.
        let mut filter = load(encoding, chain(encoding, NARROW, 0, &[link.clone().with(&wrapped)]));
        assert_eq!(filter.cells(), 958);
        assert_eq!(filter.scheme(), &Scheme::RedisBloom(RedisBloomPlan::NarrowEither));
        assert!(filter.contains(b"hello"));
        assert!(add(&mut filter, b"foo") && filter.contains(b"foo"));
        let saved = load(4, save(&filter));
        assert!(saved.contains(b"hello") && saved.contains(b"foo"), "whoever read it next");
    }
    for encoding in [0, 1, 3, 4] {
        for set in [&wrapped, &wide] {
            let filter = load(encoding, chain(encoding, NARROW, 0, &[link.clone().with(set)]));
            assert!(filter.contains(b"hello") && !filter.contains(b"foo"), "{encoding}");
        }
        let mut filter = load(encoding, chain(encoding, NARROW, 0, std::slice::from_ref(&link)));
        assert!(add(&mut filter, b"hello"));
        assert_eq!(positions(&filter, 0), sorted(wide));
    }
}

/// `BF.RESERVE s 0.01 2`, then a, b and c.
#[test]
fn a_chain_grows_as_the_original() {
    let mut filter = load(4, chain(4, TODAY, 2, &[Link::empty(2, 0.005, 8, 64)]));
    assert_eq!([b"a", b"b", b"c"].map(|item| add(&mut filter, item)), [true; 3]);
    let first = Link { bitmap: hex("0244208c10520921"), items: 2, ..Link::empty(2, 0.005, 8, 64) };
    let second = Link { bitmap: hex("3800000700c00100"), items: 1, ..Link::empty(4, 0.0025, 9, 64) };
    assert_eq!(save(&filter), chain(4, TODAY, 2, &[first, second]));
    assert_eq!(positions(&filter, 1), sorted([48, 5, 26, 47, 4, 25, 46, 3, 24]));
    assert_eq!((filter.items(), filter.capacity(), filter.links().len()), (3, 6, 2));
}

/// What the next link of a chain is, so that each case of BF.RESERVE can be had by growing into it.
#[test]
fn links_have_the_originals_size() {
    let next = |options: u64, growth: u64, capacity: u64, error_rate: f64| {
        let filter = load(4, chain(4, options, growth, &[Link::empty(capacity, error_rate, 1, 64)]));
        let spec = filter.next_link().unwrap().unwrap();
        (spec.capacity, spec.probes, spec.modulus, spec.bits, spec.log2)
    };
    assert_eq!(next(TODAY, 2, 50, 0.01), (100, 8, 1152, 1152, 0));
    assert_eq!(next(TODAY, 4, 250, 0.001), (1000, 11, 15_872, 15_872, 0));
    assert_eq!(next(TODAY, 1000, 1000, 0.01), (1_000_000, 8, 11_027_776, 11_027_776, 0));
    assert_eq!(next(TODAY, 0, 50, 0.01), next(TODAY, 2, 50, 0.01), "a growth that was lost on the way");
    assert_eq!(next(TODAY, 1, 4, 0.005), (4, 9, 64, 64, 0));
    // Rounded up to a power of two; the capacity takes what that adds.
    assert_eq!(next(ROUNDED, 2, 50, 0.02), (106, 7, 1024, 1024, 10));
    assert_eq!(next(ROUNDED, 2, 500, 0.002), (1139, 10, 16_384, 16_384, 14));
    assert_eq!(next(ROUNDED, 2, 106, 0.01), (371, 8, 4096, 4096, 12));
    // A tiny one has more bits than its modulus.
    assert_eq!(next(ROUNDED, 1, 3, 0.4), (4, 3, 16, 64, 4));

    let fixed = load(4, chain(4, TODAY | FIXED, 2, &[Link::empty(50, 0.01, 7, 512)]));
    assert_eq!(fixed.next_link(), Ok(None));
}

/// A link for no items, which no version makes, is not the first of ever more of them.
#[test]
fn a_chain_without_capacity_grows_once() {
    let mut filter = load(4, chain(4, TODAY, 2, &[Link::empty(0, 0.01, 7, 64)]));
    assert!(add(&mut filter, b"a") && filter.contains(b"a"));
    assert_eq!(filter.links().len(), 2);
    assert!(load(4, save(&filter)).contains(b"a"));
}

/// A chain whose tests already cost as much as those of a chain may does not grow beyond what can be loaded again.
#[test]
fn a_chain_that_asks_too_much_is_refused_and_does_not_come_to_be() {
    let hashes = 1024;
    let most = limits::MAX_FOREIGN_WORK / hashes;
    // Of capacity 0: full.
    let link = Link::empty(0, 0.5, hashes, 64);
    let links = vec![link; most as usize + 1];
    let mut fields = chain(4, TODAY, 2, &links);
    assert_eq!(redisbloom::load_bloom(&mut fields, 4).err(), Some(DecodeError::Field("links")));
    let mut filter = load(4, chain(4, TODAY, 2, &links[1..]));
    assert_eq!(filter.add_without_growth(b"a"), Err(Error::Full));
    assert_eq!(filter.next_link(), Err(Error::TooManyLayers));
    assert_eq!(filter.grow(), Err(Error::TooManyLayers));
    assert!(redisbloom::load_bloom(&mut save(&filter), 4).is_ok());
}

#[test]
fn encodings_that_are_not_known_are_refused() {
    let fields = chain(4, TODAY, 2, &[Link::empty(2, 0.005, 8, 64)]);
    for encoding in [2, 5, 6, 255, 256, 1023] {
        assert!(redisbloom::load_bloom(&mut fields.clone(), encoding).is_err(), "{encoding}");
    }
    let cuckoo = Dump::read(&hex(CUCKOO_DUMP)).fields;
    for encoding in [0, 2, 5, 1023] {
        assert!(redisbloom::load_cuckoo(&mut cuckoo.clone(), encoding).is_err(), "{encoding}");
    }
}

/// Each field at a value that no filter has, and at those that are odd but have been seen.
#[test]
fn fields_are_refused_by_name() {
    // Places in the fields: capacity 4, error rate 5, hashes 6, bits per item 7, bits 8, n2 9, bitmap 10, items 11.
    let with = |changes: &[(usize, Field)]| {
        let mut fields = chain(4, TODAY, 2, &[Link::empty(100, 0.005, 8, 64)]);
        changes.iter().for_each(|(at, value)| fields.0[*at] = value.clone());
        redisbloom::load_bloom(&mut fields, 4).err()
    };
    let field = |name| Some(DecodeError::Field(name));
    let number = |value: f64| Field::Double(value);
    assert_eq!(with(&[]), None);
    assert_eq!(with(&[(1, unsigned(0))]), field("links"));
    assert_eq!(with(&[(1, unsigned(2))]), Some(DecodeError::Length("payload")));
    assert_eq!(with(&[(1, unsigned(u64::MAX))]), Some(DecodeError::Length("payload")));
    assert_eq!(with(&[(2, unsigned(1 << 32))]), field("options"));
    assert_eq!(with(&[(3, unsigned(1 << 32))]), field("growth"));
    for rate in [0.0, -0.0, -0.1, f64::NAN, f64::INFINITY] {
        assert_eq!(with(&[(5, number(rate))]), field("error rate"), "{rate}");
    }
    for hashes in [0, 1101, u64::from(u32::MAX) + 2, u64::MAX] {
        assert!(with(&[(6, unsigned(hashes))]).is_some(), "{hashes}");
    }
    for density in [-0.1, f64::NAN, f64::INFINITY] {
        assert_eq!(with(&[(7, number(density))]), field("bits per item"), "{density}");
    }
    assert_eq!(with(&[(8, unsigned(0))]), field("bits"));
    for bits in [65, 1 << 40, 1 << 63, u64::MAX] {
        assert_eq!(with(&[(8, unsigned(bits))]), field("length of the bits"), "{bits}");
    }
    for n2 in [64, 256, u64::MAX] {
        assert_eq!(with(&[(9, unsigned(n2))]), field("n2"), "{n2}");
    }
    for n2 in [7, 50, 63] {
        assert_eq!(with(&[(9, unsigned(n2))]), field("length of the bits"), "{n2}");
    }
    assert_eq!(with(&[(10, Field::String(vec![]))]), field("length of the bits"));
    assert_eq!(with(&[(10, unsigned(1))]), Some(DecodeError::Length("payload")), "of another type");

    for changes in [
        [(0, unsigned(7)), (2, unsigned(0xFFF5)), (3, unsigned(0))],
        [(4, unsigned(0)), (5, number(0.9)), (11, unsigned(u64::MAX))],
        [(4, unsigned(u64::MAX)), (5, number(3.0)), (6, unsigned(1100))],
        [(5, number(5e-324)), (7, number(0.0)), (8, unsigned(1))],
        [(8, unsigned(0)), (9, unsigned(6)), (10, Field::String(vec![0xFF; 8]))],
        [(8, unsigned(0)), (9, unsigned(1)), (10, Field::String(vec![1; 100]))],
    ] {
        assert_eq!(with(&changes), None, "{changes:?}");
    }
}

// ---- RedisBloom: cuckoo filters --------------------------------------------------------------------------------------

/// `CF.RESERVE c 8`, `CF.ADD c hello`.
const CUCKOO_DUMP: &str =
    "07813016e5a2898214040201020402010200020202140201020405080000000000009f00000c00497609fd4a8b6f4b";

/// The fields of a cuckoo filter without items.
fn cuckoo_fields(buckets: u64, bucket_size: u64, max_iterations: u64, expansion: u64) -> Fields {
    let head = [1, buckets, 0, 0, bucket_size, max_iterations, expansion, buckets].map(unsigned);
    let slots = Field::String(vec![0; (buckets * bucket_size) as usize]);
    Fields(head.into_iter().chain([slots]).collect())
}

fn load_cuckoo(encoding: u32, mut fields: Fields) -> Cuckoo {
    let value = redisbloom::load_cuckoo(&mut fields, encoding).unwrap();
    assert!(fields.0.is_empty(), "fields are left");
    value.into_cuckoo().unwrap()
}

fn save_cuckoo(filter: &Cuckoo) -> Fields {
    let mut fields = Fields::default();
    redisbloom::save_cuckoo(&mut fields, filter);
    fields
}

/// The bytes of each sub-filter.
fn slots(filter: &Cuckoo) -> Vec<Vec<u8>> {
    let strings = save_cuckoo(filter).0.into_iter().filter_map(|field| match field {
        Field::String(bytes) => Some(bytes),
        _ => None,
    });
    strings.collect()
}

fn insert(filter: &mut Cuckoo, item: &[u8]) {
    while filter.insert(filter.hash(item)).is_err() {
        filter.grow().unwrap();
    }
}

fn holds(filter: &Cuckoo, item: &[u8]) -> bool {
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
    #[rustfmt::skip] // a table: item, fingerprint, slot, and the bucket that it could lie in as well
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

/// `CF.RESERVE c 8 BUCKETSIZE 2 MAXITERATIONS 5 EXPANSION 2`, then `hello` seven times.
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
    // Iterators 9 and 25, then the end.
    let mut chunk = Vec::new();
    assert_eq!(encoder.chunk(0, &mut chunk), Some(8));
    assert_eq!(chunk, slots(&filter)[0]);
    assert_eq!(encoder.chunk(8, &mut chunk), Some(24));
    assert_eq!(chunk, slots(&filter)[1]);
    assert_eq!(encoder.chunk(24, &mut chunk), None);

    // 2.2.0 to 2.2.10 wrote an address behind the head; before, there were four numbers, and other iterators.
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

/// Before 2.2.0: another fingerprint and another second bucket. Where they are needed is kept through all encodings.
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
        // By today's rule it is another item's.
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

/// What a filter can grow to can be loaded again.
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
    // Filters 0, buckets 1, items 2, deletes 3, bucket size 4, max iterations 5, expansion 6, buckets again 7, slots 8.
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

// ---- valkey-bloom ----------------------------------------------------------------------------------------------------

const FIXED_SEED: &str = "590ff522ea7811daa714d8093b3e7bd91d898a733e988887307f97cd28073383";

/// Expansion 2, error rate 0.01, tightening 0.5, the fixed seed, one filter of 10 that holds `hello`.
fn payload() -> Vec<u8> {
    hex(&format!(
        "01 02000000 7b14ae47e17a843f 000000000000e03f 00 0100000000000000 3900000000000000 01 0c00000000000000 07000000 \
         {FIXED_SEED} 000000000000000080240922 0100000000000000 0a00000000000000"
    ))
}

/// The fields of a chain of one filter without items.
fn valkey_fields(
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

fn load_valkey(mut fields: Fields) -> Foreign {
    let filter = import::load_valkey_bloom(&mut fields, 1).unwrap();
    assert!(fields.0.is_empty(), "fields are left");
    filter
}

fn save_valkey(filter: &Foreign) -> Fields {
    let mut fields = Fields::default();
    import::save_valkey_bloom(&mut fields, filter);
    fields
}

#[test]
fn valkeys_payload_is_read() {
    assert_eq!(payload().len(), 111);
    let read = import::valkey_bloom_payload(&payload()).unwrap();
    assert!(read.contains(b"hello") && !read.contains(b"foo"));
    assert_eq!((read.items(), read.capacity(), read.cells(), read.ones()), (1, 10, 96, 7));
    assert_eq!(read.origin(), "valkey-bloom");
    // Bytes behind it are ignored, as in the original.
    let more = import::valkey_bloom_payload(&[&payload()[..], b"more"].concat()).unwrap();
    assert_eq!(save_valkey(&more), save_valkey(&read));
    for len in 0..111 {
        assert!(import::valkey_bloom_payload(&payload()[..len]).is_err(), "{len}");
    }
    // The same filter by its fields, from nothing.
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
    // Until the error rate is no normal number any more.
    let mut tiny = load_valkey(valkey_fields(1, 1e-300, 1e-5, &hex(FIXED_SEED), 1, 7, 960));
    assert_eq!((tiny.grow(), tiny.grow()), (Ok(true), Err(Error::TooManyLayers)));
    let mut large = load_valkey(valkey_fields(2, 0.01, 0.5, &hex(FIXED_SEED), 1 << 62, 7, 960));
    assert_eq!(large.grow(), Err(Error::TooManyLayers));
}

/// A filter that grew is, after it was saved and loaded, the same to the bit, its links' error rates included.
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
    let error = |bytes: &[u8]| import::valkey_bloom_payload(bytes).err();
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

// ---- all of them -----------------------------------------------------------------------------------------------------

/// One of each kind, small.
fn kinds() -> Vec<(&'static str, Foreign)> {
    let link = || Link::empty(10, 0.05, 5, 128);
    let rounded = |n2| Link::empty(10, 0.05, 5, 0).rounded(n2);
    let seed: Vec<u8> = (0..32).collect();
    vec![
        ("today's", load(4, chain(4, TODAY, 2, &[link()]))),
        ("today's by 1", load(4, chain(4, TODAY, 1, &[link()]))),
        ("today's by 7", load(4, chain(4, TODAY, 7, &[link()]))),
        ("a growth that was lost", load(4, chain(4, TODAY, 0, &[link()]))),
        ("rounded", load(3, chain(3, ROUNDED, 0, &[rounded(7)]))),
        ("rounded, saved later", load(4, chain(4, ROUNDED, 3, &[rounded(8)]))),
        ("narrow", load(1, chain(1, NARROW, 0, &[rounded(7)]))),
        ("narrow, of either sum", load(3, chain(3, NARROW, 0, &[link()]))),
        ("narrow, of no version", load(4, chain(4, 1, 2, &[link()]))),
        ("valkey", load_valkey(valkey_fields(2, 0.05, 0.5, &seed, 10, 4, 64))),
        ("valkey by 1", load_valkey(valkey_fields(1, 0.05, 0.9, &seed, 10, 4, 64))),
        ("go-zero", import::bitmap::go_zero(4001, 14, &[]).unwrap()),
        ("redisson", import::bitmap::redisson(4001, 5, Default::default(), &[]).unwrap()),
        (
            "guava",
            import::guava(&[&hex("010500000040")[..], &[0; 512]].concat(), Default::default()).unwrap(),
        ),
        (
            "guava 32",
            import::guava(&[&hex("000500000040")[..], &[0; 512]].concat(), Default::default()).unwrap(),
        ),
        (
            "bits-and-blooms",
            import::bloom_v3(&hex(&format!("{:016x}{:016x}{:016x}{:0128}", 500, 5, 500, 0))).unwrap(),
        ),
    ]
}

/// Saves the filter as a server does, and loads it.
fn restarted(filter: &Foreign) -> Foreign {
    match filter.scheme() {
        Scheme::RedisBloom(_) => load(4, save(filter)),
        Scheme::ValkeyBloom { .. } => load_valkey(save_valkey(filter)),
        _ => Decoder::read(&Encoder::new(filter).to_vec()).unwrap().into_foreign().unwrap(),
    }
}

/// Random items, through growth, restarts and copies: what went in is found, and what an add says is true.
#[test]
fn nothing_that_went_in_is_missing() {
    for (name, filter) in kinds() {
        for seed in 0..20 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut filter = filter.snapshot().unwrap();
            let mut members: HashSet<Vec<u8>> = HashSet::new();
            let mut added = 0;
            for step in 0..800 {
                let mut item = vec![0; random.random_range(0..40)];
                random.fill(&mut item[..]);
                item.truncate(if random.random_bool(0.3) { 1 } else { 40 });
                let before = filter.contains(&item);
                assert!(before || !members.contains(&item), "{name} {seed}: lost");
                assert_eq!(add(&mut filter, &item), !before, "{name}");
                added += u64::from(!before);
                members.insert(item);
                match step % 200 {
                    60 => filter = restarted(&filter),
                    120 => filter = filter.snapshot().unwrap(),
                    180 => {
                        let bytes = Encoder::native(&filter).to_vec();
                        filter = Decoder::read(&bytes).unwrap().into_foreign().unwrap();
                    }
                    _ => {}
                }
            }
            assert!(members.iter().all(|item| filter.contains(item)), "{name} {seed}");
            assert_eq!(filter.items(), added, "{name}");
            if filter.next_link() != Ok(None) {
                assert!(filter.links().len() > 2, "{name} did not grow");
                assert!(filter.rate_now() < 0.5, "{name}: {}", filter.rate_now());
            }
        }
    }
}

/// The same of cuckoo filters by both rules, with deletes.
#[test]
fn nothing_that_went_into_a_cuckoo_filter_is_missing() {
    let old = Fields::from([unsigned(1), unsigned(16), unsigned(0), Field::String(vec![0; 32])]);
    for filter in [
        load_cuckoo(4, cuckoo_fields(16, 2, 20, 1)),
        load_cuckoo(4, cuckoo_fields(1, 3, 5, 2)),
        load_cuckoo(4, cuckoo_fields(8, 255, 1, 4)),
        load_cuckoo(3, old),
    ] {
        for seed in 0..20 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut filter = filter.snapshot().unwrap();
            let mut members: Vec<u16> = Vec::new();
            for step in 0..1200 {
                if random.random_bool(0.6) {
                    let item = random.random_range(0..600);
                    insert(&mut filter, &u16::to_le_bytes(item));
                    members.push(item);
                } else if !members.is_empty() {
                    let item = members.swap_remove(random.random_range(0..members.len()));
                    assert!(filter.remove(filter.hash(&item.to_le_bytes())));
                }
                match step % 300 {
                    100 => filter = load_cuckoo(4, save_cuckoo(&filter)),
                    200 => drop(filter.compact(true)),
                    _ => {}
                }
            }
            assert!(members.iter().all(|item| holds(&filter, &item.to_le_bytes())));
            assert_eq!(filter.items(), members.len() as u64);
            assert!(filter.tables().len() > 1 || filter.spec().bucket_size == 255);
        }
    }
}

/// A full filter that may not grow refuses what is new, and changes nothing.
#[test]
fn a_full_filter_of_fixed_capacity_refuses() {
    let seed = hex(FIXED_SEED);
    for mut filter in [
        load(4, chain(4, TODAY | FIXED, 2, &[Link::empty(50, 0.01, 7, 512)])),
        load_valkey(valkey_fields(0, 0.01, 0.5, &seed, 50, 7, 480)),
    ] {
        let mut i = 0u32;
        while filter.items() < 50 {
            add(&mut filter, &i.to_le_bytes());
            i += 1;
        }
        let before = Encoder::native(&filter).to_vec();
        let stranger = (i..).map(u32::to_le_bytes).find(|item| !filter.contains(item)).unwrap();
        assert_eq!(filter.add_without_growth(&stranger), Err(Error::Full));
        assert_eq!(filter.grow(), Ok(false));
        assert_eq!(filter.add_without_growth(&0u32.to_le_bytes()), Ok(Added::default()), "it is there");
        assert!(Encoder::native(&filter).to_vec() == before);
        assert!(matches!(Decoder::read(&before), Ok(Filter::Foreign(_))));
    }
}
