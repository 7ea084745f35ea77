//! RedisBloom's chains of Bloom filters: whole objects as it wrote them, read and written again, and growth by its
//! rules.
//!
//! Vectors were recorded from the original, in every version that is named.

use super::redisbloom_cuckoo::CUCKOO_DUMP;
use crate::support::rdb::{Dump, Field, Fields, hex};
use bloomery::filter::Foreign;
use bloomery::filter::foreign::{RedisBloomPlan, Scheme};
use bloomery::wire::redisbloom::{self, Loader};
use bloomery::wire::{DecodeError, Encoder};
use bloomery::{Error, limits};

/// Options of a chain: since 2.2.0, from 1.1.1 to 2.0.3, and before 1.1.1.
pub(super) const TODAY: u64 = 5;
pub(super) const ROUNDED: u64 = 4;
pub(super) const NARROW: u64 = 0;

/// The option of a chain that doesn't scale.
pub(super) const FIXED: u64 = 8;

pub(super) fn unsigned(value: u64) -> Field {
    Field::Unsigned(value)
}

/// A link in the fields of encoding 1 and later.
#[derive(Clone)]
pub(super) struct Link {
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
    /// A link without items, as 2.2.5 and later create it.
    pub(super) fn empty(capacity: u64, error_rate: f64, hashes: u64, bits: u64) -> Link {
        let bits_per_item = (error_rate.ln() / 0.480_453_013_918_201).abs();
        let bitmap = vec![0; bits as usize / 8];
        Link { capacity, error_rate, hashes, bits_per_item, bits, n2: 0, bitmap, items: 0 }
    }

    pub(super) fn rounded(self, n2: u64) -> Link {
        Link { bits: 0, n2, bitmap: vec![0; (1 << n2) / 8], ..self }
    }

    /// The link with these bits set, as if one item had been added.
    fn with(mut self, positions: &[usize]) -> Link {
        for position in positions {
            self.bitmap[position / 8] |= 1 << (position % 8);
        }
        Link { items: 1, ..self }
    }
}

/// The fields of a chain with these links. Encoding 0 has no number of bits, encodings 0 and 1 have no options, and
/// encoding 4 has a growth factor.
pub(super) fn chain(encoding: u32, options: u64, growth: u64, links: &[Link]) -> Fields {
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

pub(super) fn load(encoding: u32, mut fields: Fields) -> Foreign {
    let value = redisbloom::load_bloom(&mut fields, encoding).unwrap();
    assert!(fields.0.is_empty(), "fields are left");
    value.into_foreign().unwrap()
}

pub(super) fn save(filter: &Foreign) -> Fields {
    let mut fields = Fields::default();
    redisbloom::save_bloom(&mut fields, filter);
    fields
}

/// Adds an item, and grows the filter if necessary. Returns whether the item was added.
pub(super) fn add(filter: &mut Foreign, item: &[u8]) -> bool {
    match filter.try_add(item) {
        Err(Error::Full) => {
            assert_eq!(filter.grow(), Ok(true));
            filter.try_add(item).unwrap().added
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

pub(super) fn sorted<const N: usize>(positions: [usize; N]) -> Vec<usize> {
    let set: std::collections::BTreeSet<_> = positions.into();
    set.into_iter().collect()
}

/// The reply to DUMP from Redis 8.0.6, after `BF.RESERVE k 0.2 3` and `BF.ADD k user:42`.
const TODAYS_DUMP: &str = "07813016e5a289bef80402010201020502020203049a9999999999b93f02040488168ac58c2b13400240400200\
                           050800200080100040000201000c00e661f6b222b24a0d";
const TODAYS_HEAD: &str = "01000000000000000100000005000000020000000800000000000000400000000000000001000000000000009a99\
                           99999999b93f88168ac58c2b134004000000030000000000000000";
/// The reply to DUMP from a server with RedisBloom 2.0.1, after `BF.RESERVE k 0.2 3` and `BF.ADD k user:42`.
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
    // Any offset works, as in the original.
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
    // The old dump has 0 as the number of bits, which today's RedisBloom refuses. So the number is saved. The rest is
    // unchanged.
    let link = Link { bits: 16, ..Link::empty(4, 0.2, 3, 16).rounded(4).with(&[0, 1, 15]) };
    assert_eq!(save(&filter), chain(4, ROUNDED, 2, std::slice::from_ref(&link)));
    // An add keeps the existing bits. They don't contain the added item under today's rules either, so its bits are
    // new.
    assert!(add(&mut filter, b"hello"));
    let seen_by_today = load(4, chain(4, TODAY, 2, &[Link { n2: 0, ..link }]));
    assert!(filter.contains(b"user:42") && filter.contains(b"hello") && !seen_by_today.contains(b"hello"));
}

/// A head with its links as 2.2.0 wrote it, with capacities of 32 bits.
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
        // All lengths except those that a head has in one of the versions.
        for len in (0..80).filter(|len| ![16 + 49, 20 + 49, 20 + 53].contains(len)) {
            let mut cut = head.clone();
            cut.resize(len, 0);
            assert_eq!(Loader::bloom(&cut).err(), Some(DecodeError::Length("header")), "{len}");
        }
    }
}

/// An impossible head is refused at once, not only when the last piece arrives.
#[test]
fn a_head_has_no_more_links_than_a_filter() {
    let (fixed, link) = {
        let head = hex(TODAYS_HEAD);
        (head[..20].to_vec(), head[20..].to_vec())
    };
    let head = |links: usize, probes: u32| {
        let mut link = link.clone();
        link[40..44].copy_from_slice(&probes.to_le_bytes());
        let mut head = [fixed.clone(), link.repeat(links)].concat();
        head[..8].copy_from_slice(&(links as u64).to_le_bytes()); // each has an item
        head[8..12].copy_from_slice(&(links as u32).to_le_bytes());
        Loader::bloom(&head).map(|loader| loader.body_len())
    };
    let most = limits::MAX_FOREIGN_LINKS;
    assert_eq!(head(most, 7), Ok(8 * most as u64));
    assert_eq!(head(most + 1, 7), Err(DecodeError::Field("links")));
    let most = limits::MAX_FOREIGN_WORK / 1024;
    assert!(head(most as usize, 1024).is_ok());
    assert_eq!(head(most as usize + 1, 1024), Err(DecodeError::Field("links")));
}

/// With a damaged number of items, BF.CARD was 2^63 − 1.
#[test]
fn a_head_whose_sum_is_wrong_is_refused() {
    for (at, number) in [(0, 2), (0, u64::MAX >> 1), (36, 7 << 56 | 1), (36, 0)] {
        let mut head = hex(TODAYS_HEAD);
        head[at..at + 8].copy_from_slice(&u64::to_le_bytes(number));
        assert_eq!(Loader::bloom(&head).err(), Some(DecodeError::Field("number of items")), "{at} {number}");
    }
}

/// RedisShake rounds the doubles of a head to six digits. The error rate then follows from the bits per item.
#[test]
fn a_rounded_error_rate_is_restored() {
    let rate = 0.000_000_3_f64;
    let bits_per_item = (-rate.ln() / 2f64.ln().powi(2) * 1e6).round() / 1e6;
    let mut head = hex(TODAYS_HEAD);
    head[44..52].copy_from_slice(&0f64.to_le_bytes());
    head[52..60].copy_from_slice(&bits_per_item.to_le_bytes());
    let mut loader = Loader::bloom(&head).unwrap();
    loader.push(8, &hex("0020008010004000")).unwrap();
    let found = loader.finish().unwrap().into_foreign().unwrap().links()[0].spec().error_rate;
    assert!((found / rate - 1.0).abs() < 1e-6, "{found}");
}

/// Bits of an item, for parameters that BF.RESERVE chose in Redis 8.0.6.
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

/// Version 2.0.1 on Linux and version 2.0.3 write the same encoding, but set different bits for an item.
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
            // The item is also found after the filter has been saved in a later encoding. If one of its bits isn't set,
            // it isn't found.
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

/// Versions up to 1.1.0 had 32-bit hashes, whose sum wrapped at 32 bits. That makes a difference if the modulus isn't a
/// power of two.
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
        // Encoding 0 doesn't contain the number of bits, which follows from the capacity and the bits per item. Once
        // the filter has been saved in today's encoding, both the old item and the new one are found.
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

/// The filter after `BF.RESERVE s 0.01 2` and adds of a, b and c.
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

/// Links have the sizes that RedisBloom gives them. Each is tested as the next link of a loaded chain, because a chain
/// can be loaded with any options.
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
    // Rounded up to a power of two, which also raises the capacity.
    assert_eq!(next(ROUNDED, 2, 50, 0.02), (106, 7, 1024, 1024, 10));
    assert_eq!(next(ROUNDED, 2, 500, 0.002), (1139, 10, 16_384, 16_384, 14));
    assert_eq!(next(ROUNDED, 2, 106, 0.01), (371, 8, 4096, 4096, 12));
    // A tiny link has more bits than its modulus.
    assert_eq!(next(ROUNDED, 1, 3, 0.4), (4, 3, 16, 64, 4));

    let fixed = load(4, chain(4, TODAY | FIXED, 2, &[Link::empty(50, 0.01, 7, 512)]));
    assert_eq!(fixed.next_link(), Ok(None));
}

/// A link with capacity 0, which no version creates, must not be followed by an endless chain of such links.
#[test]
fn a_chain_without_capacity_grows_once() {
    let mut filter = load(4, chain(4, TODAY, 2, &[Link::empty(0, 0.01, 7, 64)]));
    assert!(add(&mut filter, b"a") && filter.contains(b"a"));
    assert_eq!(filter.links().len(), 2);
    assert!(load(4, save(&filter)).contains(b"a"));
}

/// A chain in which a test already costs the maximum doesn't grow, because it couldn't be loaded again.
#[test]
fn a_chain_that_asks_too_much_is_refused_and_does_not_come_to_be() {
    let hashes = 1024;
    let most = limits::MAX_FOREIGN_WORK / hashes;
    // A link with capacity 0 is full.
    let link = Link::empty(0, 0.5, hashes, 64);
    let links = vec![link; most as usize + 1];
    let mut fields = chain(4, TODAY, 2, &links);
    assert_eq!(redisbloom::load_bloom(&mut fields, 4).err(), Some(DecodeError::Field("links")));
    let mut filter = load(4, chain(4, TODAY, 2, &links[1..]));
    assert_eq!(filter.try_add(b"a"), Err(Error::Full));
    assert_eq!(filter.next_link(), Err(Error::TooManyLayers));
    assert_eq!(filter.grow(), Err(Error::TooManyLayers));
    assert!(redisbloom::load_bloom(&mut save(&filter), 4).is_ok());
}

/// RedisBloom can grow a chain until its error rate is 0. The limit for the cost of a test allows all of these links.
#[test]
fn every_chain_that_redisbloom_can_make_is_allowed() {
    let mut filter = load(4, chain(4, TODAY, 1, &[Link::empty(1, 0.5, 1, 64)]));
    while filter.grow().is_ok() {}
    let probes: u64 = filter.links().iter().map(|link| u64::from(link.spec().probes)).sum();
    assert_eq!((filter.links().len(), probes), (1074, 578_348));
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

/// An impossible value of any field is refused, usually with the field's name in the error. Odd but possible values are
/// accepted.
#[test]
fn fields_are_refused_by_name() {
    // Indices of the fields: capacity 4, error rate 5, hashes 6, bits per item 7, bits 8, n2 9, bitmap 10, items 11.
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
