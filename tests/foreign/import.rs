//! Filters of other systems' files: go-zero, bits-and-blooms, Guava, Redisson. Vectors and fixtures were made by the
//! originals; whatever they answered, an import answers, false positives included.

use crate::support::rdb::{self, Dump, Fields, hex, numbered};
use crate::support::wire;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use bloomery::filter::foreign::Encoding;
use bloomery::filter::{Foreign, Origin};
use bloomery::wire::import::{self, bitmap};
use bloomery::wire::redisbloom::{self, Loader, MAX_PIECE};
use bloomery::wire::{DecodeError, Decoder, Encoder};
use bloomery::{Added, Filter};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::path::PathBuf;

fn add(filter: &mut Foreign, item: &[u8]) -> bool {
    let before = filter.contains(item);
    let added = filter.add_without_growth(item).unwrap();
    assert_eq!(added, Added { added: !before, changed: !before });
    assert!(filter.contains(item));
    added.added
}

/// Positions of the bits that are set.
fn positions(filter: &Foreign) -> Vec<usize> {
    let bits = wire::body(filter);
    (0..bits.len() * 8).filter(|bit| bits[bit / 8] >> (bit % 8) & 1 == 1).collect()
}

/// Adds the item to an empty filter, and looks where it lies.
fn lies_at<const N: usize>(filter: Result<Foreign, DecodeError>, item: &[u8], expected: [usize; N]) {
    let mut filter = filter.unwrap();
    assert!(add(&mut filter, item));
    let expected: std::collections::BTreeSet<_> = expected.into();
    assert_eq!(positions(&filter), expected.into_iter().collect::<Vec<_>>(), "{item:?}");
}

fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

fn json(name: &str) -> Json {
    serde_json::from_slice(&fixture(name)).unwrap()
}

fn number(json: &Json) -> u64 {
    json.as_u64().unwrap()
}

fn numbers(json: &Json) -> Vec<u64> {
    json.as_array().unwrap().iter().map(number).collect()
}

/// Every member is found, and of the absent items those that the original found.
fn answers_alike(
    contains: impl Fn(&[u8]) -> bool,
    prefix: &str,
    members: std::ops::Range<u64>,
    absent: std::ops::Range<u64>,
    found: &[u64],
) {
    assert!(members.clone().all(|i| contains(&numbered(prefix, i))), "{prefix}: a member is missing");
    let wrong: Vec<_> = absent.filter(|i| contains(&numbered(prefix, *i))).collect();
    assert_eq!(wrong, found, "{prefix}: other false positives");
}

// ---- go-zero ---------------------------------------------------------------------------------------------------------

#[test]
fn go_zeros_items_are_where_it_puts_them() {
    let empty = |bits| bitmap::go_zero(bits, bitmap::GO_ZERO_PROBES, &[]);
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
    let filter = bitmap::go_zero(bits, maps, &bytes).unwrap();
    let found = numbers(&manifest["absent_answered_yes"]);
    assert!(!found.is_empty());
    answers_alike(|item| filter.contains(item), "order", 0..2000, 10_000_000..10_200_000, &found);
    assert_eq!((filter.origin(), filter.cells(), filter.links().len()), ("go-zero", bits, 1));
    assert!((1900..2100).contains(&filter.items()), "the fill suggests {}", filter.items());
    // And adds as it does: the same filter, made from nothing.
    let mut made = bitmap::go_zero(bits, maps, &[]).unwrap();
    for i in 0..2000 {
        add(&mut made, &numbered("order", i));
    }
    assert_eq!(wire::body(&made), wire::body(&filter));
}

/// A string is as long as its last set bit needs.
#[test]
fn a_bitmap_may_be_shorter_than_the_filter_and_not_longer() {
    // `hello` in a filter of 1024 bits: SETBIT makes a string of 123 bytes.
    let mut bitmap = vec![0; 123];
    for bit in [307, 802, 866, 915, 983, 770, 138, 576, 596, 224, 781, 153, 819, 373] {
        bitmap[bit / 8] |= 0x80 >> (bit % 8);
    }
    let filter = bitmap::go_zero(1024, 14, &bitmap).unwrap();
    assert!(filter.contains(b"hello") && !filter.contains(b"foo"));
    assert!(bitmap::go_zero(983, 14, &bitmap).is_ok());
    assert!(matches!(bitmap::go_zero(976, 14, &bitmap), Err(DecodeError::Length(_))));
    let empty = bitmap::go_zero(1024, 14, &[]).unwrap();
    assert!(!empty.contains(b"hello") && empty.items() == 0);
    for (bits, maps) in [(0, 14), (1 << 50, 14), (u64::MAX, 14), (1024, 0), (1024, 257)] {
        assert!(bitmap::go_zero(bits, maps, &[]).is_err(), "{bits} {maps}");
    }
    for (bits, iterations) in [(0, 5), (1 << 50, 5), (1024, 0), (1024, 10_001)] {
        assert!(bitmap::redisson(bits, iterations, Encoding::Bytes, &[]).is_err(), "{bits} {iterations}");
    }
}

// ---- Redisson --------------------------------------------------------------------------------------------------------

#[test]
fn redissons_items_are_where_it_puts_them() {
    let empty = |bits, iterations, encoding| bitmap::redisson(bits, iterations, encoding, &[]);
    let text = |bits, iterations| empty(bits, iterations, Encoding::Bytes);
    lies_at(text(958, 7), b"hello", [635, 186, 859, 410, 125, 634, 349]);
    lies_at(text(14_377, 10), b"foo", [13551, 2386, 3884, 7096, 8594, 11806, 13304, 2139, 1313, 6849]);
    lies_at(text(958, 7), b"", [879, 289, 248, 616, 575, 943, 864]);
    lies_at(
        text(401_414_246, 5),
        b"user:42",
        [280_914_879, 122_049_333, 42_751_052, 285_299_752, 206_001_471],
    );
    // The codec is said once, at the import, and items come as text.
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
    let filter = bitmap::redisson(958, 7, Encoding::Bytes, &bitmap).unwrap();
    assert!(filter.contains(b"hello") && !filter.contains(b"foo"));
    assert_eq!((filter.origin(), filter.ones()), ("redisson", 7));
}

/// An item that the original cannot have had is absent, and cannot be added.
#[test]
fn items_of_another_type_are_refused() {
    let mut filter = bitmap::redisson(958, 7, Encoding::Kryo5, &[0xFF; 119]).unwrap();
    assert!(filter.contains("é".as_bytes()) && !filter.contains(b"\xff"));
    assert!(filter.add_without_growth(b"\xff").is_err());
    let mut filter = import::guava(&guava_blob(1, 7, 15), Encoding::Int).unwrap();
    for item in ["", "x", "1.5", "2147483648", "-2147483649", " 1"] {
        assert!(filter.add_without_growth(item.as_bytes()).is_err() && !filter.contains(item.as_bytes()));
    }
    assert!(add(&mut filter, b"-2147483648") && filter.ones() > 0);
}

// ---- bits-and-blooms -------------------------------------------------------------------------------------------------

/// A file without items.
fn bloom_v3_blob(bits: u64, probes: u64) -> Vec<u8> {
    let mut blob = [bits, probes, bits].map(u64::to_be_bytes).concat();
    blob.resize(24 + bits.div_ceil(64) as usize * 8, 0);
    blob
}

#[test]
fn bits_and_blooms_items_are_where_it_puts_them() {
    let empty = |bits, probes| import::bloom_v3(&bloom_v3_blob(bits, probes));
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

/// `user:42` in a filter for 10 items at 10 %.
#[test]
fn bits_and_blooms_files_are_read_in_either_byte_order() {
    let big = "0000000000000030 0000000000000004 0000000000000030 0000000109020000";
    let little = "0000000000000030 0000000000000004 3000000000000000 0000020901000000";
    for file in [big, little] {
        let filter = import::bloom_v3(&hex(file)).unwrap();
        assert_eq!(positions(&filter), [17, 24, 27, 32], "{file}");
        assert!(filter.contains(b"user:42") && !filter.contains(b"user:43"));
        assert_eq!((filter.cells(), filter.origin()), (48, "bits-and-blooms"));
        for len in 0..32 {
            assert!(import::bloom_v3(&hex(file)[..len]).is_err(), "{len}");
        }
        assert!(import::bloom_v3(&[&hex(file)[..], &[0]].concat()).is_err());
    }
    let json: Json = serde_json::from_str(r#"{"m":48,"k":4,"b":"AAAAAAAAADAAAAABCQIAAA=="}"#).unwrap();
    assert_eq!(of_json(&json), hex(big));
}

/// The binary form of a file in JSON, whose bitset is base64 of its end.
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
    let filter = import::bloom_v3(&file).unwrap();
    let found = numbers(&manifest["absent_answered_yes"]);
    assert!(!found.is_empty());
    answers_alike(|item| filter.contains(item), "user", 0..10_000, 10_000_000..10_020_000, &found);
    assert!((9900..10_100).contains(&filter.items()), "the fill suggests {}", filter.items());
    let mut made =
        import::bloom_v3(&bloom_v3_blob(number(&manifest["m_bits"]), number(&manifest["k"]))).unwrap();
    for i in 0..10_000 {
        add(&mut made, &numbered("user", i));
    }
    assert_eq!(wire::body(&made), wire::body(&filter));
}

/// `From` and `FromWithM` make bitsets that are shorter or longer than the filter; behind the end nothing is set.
#[test]
fn a_bitset_may_have_another_length_than_the_filter() {
    let blob = |bits: u64, probes: u64, length: u64, words: &[u64]| {
        let numbers = [bits, probes, length].map(u64::to_be_bytes).concat();
        import::bloom_v3(&[numbers, words.iter().flat_map(|word| word.to_be_bytes()).collect()].concat())
    };
    let longer = blob(48, 4, 128, &[0x0902_0000 | 1 << 32, u64::MAX]).unwrap();
    assert!(longer.contains(b"user:42") && longer.rate_now() <= 1.0);
    // Of the bits of `hello`, 98 to 896 of 959, the bitset has room for none but the first.
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

// ---- Guava -----------------------------------------------------------------------------------------------------------

/// A file without items.
fn guava_blob(strategy: u8, probes: u8, words: u32) -> Vec<u8> {
    let mut blob = [&[strategy, probes][..], &words.to_be_bytes()].concat();
    blob.resize(6 + words as usize * 8, 0);
    blob
}

#[test]
fn guavas_items_are_where_it_puts_them() {
    let empty =
        |strategy, probes, words, encoding| import::guava(&guava_blob(strategy, probes, words), encoding);
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
    let filter = import::guava(&file, Encoding::Bytes).unwrap();
    assert!(filter.contains(b"user:42") && !filter.contains(b"user:43"));
    assert_eq!((positions(&filter), filter.cells(), filter.origin()), (vec![5, 34, 40], 64, "guava"));
    for len in (0..14).chain([15]) {
        let mut other = file.clone();
        other.resize(len, 0);
        assert!(import::guava(&other, Encoding::Bytes).is_err(), "{len}");
    }
    for (at, value) in [(0, 2), (0, 0xFF), (1, 0), (2, 0x80), (5, 0), (5, 2)] {
        let mut other = file.clone();
        other[at] = value;
        assert!(import::guava(&other, Encoding::Bytes).is_err(), "{value} at {at}");
    }
    let serialized = import::guava(&hex("aced0005737200"), Encoding::Bytes).unwrap_err().to_string();
    assert!(serialized.contains("writeTo"), "{serialized}");
}

// ---- RedisBloom ------------------------------------------------------------------------------------------------------

/// All filters of the fixtures: those of the RDB file, and the same as DUMP payloads, where there are any.
fn redisblooms() -> Vec<(Json, Vec<Dump>)> {
    let file: HashMap<_, _> = rdb::read_file(&fixture("redisbloom/dump.rdb")).into_iter().collect();
    let Json::Array(manifest) = json("redisbloom/manifest.json") else { panic!() };
    assert_eq!((file.len(), manifest.len()), (8, 8));
    let with_dumps = |entry: Json| {
        let of_file = file[entry["key"].as_str().unwrap()].clone();
        let payload = entry["dump_base64"].as_str().map(|text| Dump::read(&STANDARD.decode(text).unwrap()));
        (entry, [Some(of_file), payload].into_iter().flatten().collect())
    };
    manifest.into_iter().map(with_dumps).collect()
}

fn load(dump: &Dump) -> Filter {
    let mut fields = dump.fields.clone();
    let value = match dump.name.as_str() {
        "MBbloom--" => redisbloom::load_bloom(&mut fields, dump.encoding),
        "MBbloomCF" => redisbloom::load_cuckoo(&mut fields, dump.encoding),
        other => panic!("{other}"),
    };
    assert!(fields.0.is_empty(), "fields are left");
    value.unwrap()
}

fn save(value: &Filter) -> Fields {
    let mut fields = Fields::default();
    match value {
        Filter::Foreign(filter) => redisbloom::save_bloom(&mut fields, filter),
        Filter::Cuckoo(filter) => redisbloom::save_cuckoo(&mut fields, filter),
        Filter::Bloom(_) | Filter::Rebuild(_) => panic!("not from RedisBloom"),
    }
    fields
}

fn contains(value: &Filter, item: &[u8]) -> bool {
    match value {
        Filter::Foreign(filter) => filter.contains(item),
        Filter::Cuckoo(filter) => filter.contains(filter.hash(item)),
        Filter::Bloom(_) | Filter::Rebuild(_) => panic!("not from RedisBloom"),
    }
}

/// In by one door and out by the other: the fields are the same, and in between the filter answers as RedisBloom's.
#[test]
fn redisblooms_filters_are_written_as_they_were_read() {
    let mut dumps = 0;
    for (manifest, of_key) in redisblooms() {
        for dump in &of_key {
            let value = load(dump);
            assert_eq!((save(&value), dump.encoding), (dump.fields.clone(), 4), "{}", manifest["key"]);
            // DUMP and file agree.
            assert_eq!(dump, &of_key[0], "{}", manifest["key"]);
            dumps += 1;
        }
    }
    assert_eq!(dumps, 8 + 6);
}

#[test]
fn redisblooms_filters_answer_as_it_does() {
    for (manifest, of_key) in redisblooms() {
        let value = load(&of_key[0]);
        let prefix = manifest["prefix"].as_str().unwrap();
        let members = 0..(manifest["last"].as_i64().unwrap() + 1) as u64;
        let first = number(&manifest["absent_first"]);
        let absent = first..first + number(&manifest["absent_count"]);
        let found = numbers(&manifest["absent_answered_yes"]);
        answers_alike(|item| contains(&value, item), prefix, members.clone(), absent, &found);
        let inserted = number(&manifest["info"]["Number of items inserted"]);
        let filters = number(&manifest["info"]["Number of filters"]) as usize;
        match &value {
            Filter::Foreign(filter) => {
                assert_eq!((filter.items(), filter.links().len()), (inserted, filters));
                assert_eq!(filter.capacity(), number(&manifest["info"]["Capacity"]));
            }
            Filter::Cuckoo(filter) => {
                assert_eq!((filter.items(), filter.tables().len()), (inserted, filters));
                assert_eq!(filter.spec().origin, Origin::RedisBloom);
            }
            Filter::Bloom(_) | Filter::Rebuild(_) => panic!(),
        }
    }
}

/// Filters that BF.ADD made there, made here: the same adds end in the same bytes.
#[test]
fn adds_end_in_redisblooms_bytes() {
    for (manifest, of_key) in redisblooms() {
        let Filter::Foreign(recorded) = load(&of_key[0]) else { continue };
        // Its first link, emptied.
        let mut fields = of_key[0].fields.clone();
        fields.0[0] = rdb::Field::Unsigned(0);
        fields.0[1] = rdb::Field::Unsigned(1);
        fields.0.truncate(12);
        fields.0[11] = rdb::Field::Unsigned(0);
        let rdb::Field::String(bits) = &mut fields.0[10] else { panic!() };
        bits.fill(0);
        let mut filter = redisbloom::load_bloom(&mut fields, 4).unwrap().into_foreign().unwrap();
        let prefix = manifest["prefix"].as_str().unwrap();
        for i in 0..(manifest["last"].as_i64().unwrap() + 1) as u64 {
            let item = numbered(prefix, i);
            if filter.add_without_growth(&item).is_err() {
                assert_eq!(filter.grow(), Ok(true));
                assert!(filter.add_without_growth(&item).unwrap().added);
            }
        }
        assert!(Encoder::new(&filter).to_vec() == Encoder::new(&*recorded).to_vec(), "{}", manifest["key"]);
    }
}

/// SCANDUMP's pieces are RedisBloom's, and loading them, in whatever order and more than once, makes the same filter.
#[test]
fn redisblooms_pieces_are_its_own() {
    let mut dumped = 0;
    for (manifest, of_key) in redisblooms() {
        let value = load(&of_key[0]);
        let encoder = Encoder::new(&value);
        let mut pieces: Vec<(u64, Vec<u8>)> = vec![(1, encoder.head().to_vec())];
        encoder.chunks(|end, chunk| pieces.push((end + 1, chunk.to_vec())));
        if let Json::Array(recorded) = &manifest["scandump"] {
            let piece =
                |piece: &Json| (number(&piece[0]), STANDARD.decode(piece[1].as_str().unwrap()).unwrap());
            assert!(pieces == recorded.iter().map(piece).collect::<Vec<_>>(), "{}", manifest["key"]);
            dumped += 1;
        }
        let loader = || match &value {
            Filter::Cuckoo(_) => Loader::cuckoo(encoder.head()),
            _ => Loader::bloom(encoder.head()),
        };
        let chunks = &pieces[1..];
        let again: Vec<_> = chunks.iter().rev().chain(chunks).collect();
        let orders = [chunks.iter().collect(), chunks.iter().rev().collect(), again];
        for order in orders {
            let mut loader = loader().unwrap();
            assert_eq!(loader.body_len(), chunks.last().unwrap().0 - 1);
            for (iterator, chunk) in order {
                loader.push(iterator - 1, chunk).unwrap();
            }
            assert!(loader.is_complete());
            assert!(save(&loader.finish().unwrap()) == of_key[0].fields, "{}", manifest["key"]);
        }
        // Half of the chunks are no filter.
        let mut loader = loader().unwrap();
        for (iterator, chunk) in chunks.iter().skip(1) {
            loader.push(iterator - 1, chunk).unwrap();
        }
        assert!(!loader.is_complete());
        assert_eq!(loader.finish().err(), Some(DecodeError::Length("body")));
    }
    assert_eq!(dumped, 6);
}

/// Chunks as a client may cut them: at any byte, overlapping; but not over the end of a link, nor behind the last.
#[test]
fn chunks_may_be_cut_anywhere_within_a_link() {
    let (_, of_key) = redisblooms().remove(0);
    let value = load(&of_key[0]);
    let encoder = Encoder::new(&value);
    let mut body = Vec::new();
    encoder.chunks(|_, chunk| body.extend_from_slice(chunk));
    let head = encoder.head();
    let links: Vec<usize> = head[20..]
        .chunks(53)
        .map(|link| u64::from_le_bytes(link[..8].try_into().unwrap()) as usize)
        .collect();
    assert_eq!(links, [144, 312, 696, 1536]);
    for step in [1, 3, 7, 8, 13, 100] {
        let mut loader = Loader::bloom(head).unwrap();
        let mut start = 0;
        for link in &links {
            for from in (0..*link).step_by(step) {
                assert!(!loader.is_complete());
                // Some of it comes twice.
                let (from, to) = (from.saturating_sub(2), (from + step).min(*link));
                let (from, to) = (start + from, start + to);
                loader.push(to as u64, &body[from..to]).unwrap();
            }
            start += link;
        }
        assert!(save(&loader.finish().unwrap()) == of_key[0].fields, "{step}");
    }
    let mut loader = Loader::bloom(head).unwrap();
    for (end, len) in
        [(145, 2), (2688, 1537), (2689, 1), (3000, 10), (u64::MAX, 1), (5, 6), (0, 1), (0, 0), (144, 0)]
    {
        assert!(loader.push(end, &vec![0xFF; len]).is_err(), "{len} bytes up to {end}");
    }
    assert!(loader.push(MAX_PIECE + 1, &vec![0xFF; MAX_PIECE as usize + 1]).is_err());
    for (end, len) in [(2688, 1536), (1152, 696), (456, 312), (144, 144)] {
        loader.push(end, &body[end as usize - len..end as usize]).unwrap();
    }
    assert!(save(&loader.finish().unwrap()) == of_key[0].fields, "a refused chunk leaves nothing");
}

/// In our own format as well, and from there to RedisBloom's again.
#[test]
fn redisblooms_filters_pass_through_our_format() {
    for (manifest, of_key) in redisblooms() {
        let value = load(&of_key[0]);
        let read = Decoder::read(&Encoder::native(&value).to_vec()).unwrap();
        assert!(save(&read) == of_key[0].fields, "{}", manifest["key"]);
        let copy = value.snapshot().unwrap();
        assert!(save(&copy) == of_key[0].fields && copy.bytes() == value.bytes());
    }
}
