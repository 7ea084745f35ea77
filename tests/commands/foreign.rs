//! BF.IMPORT and BF.LOAD without a server, and other commands on filters from other systems: replies, refusals, what is
//! replicated, and whether a replica ends up with the same filters.

use crate::support::fake_server::{Content, FakeServer};
use crate::support::golden;
use crate::support::rdb::hex;
use bloomery::wire::Encoder;
use bloomery_commands::{Answer, CommandError, Reply};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

const YES: Result<Reply, CommandError> = Ok(Reply::Bool(true));
const NO: Result<Reply, CommandError> = Ok(Reply::Bool(false));
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// A valkey-bloom payload: a filter for 10 items that contains `hello`.
const PAYLOAD: &str = "01 02000000 7b14ae47e17a843f 000000000000e03f 00 0100000000000000 3900000000000000 01 \
    0c00000000000000 07000000 590ff522ea7811daa714d8093b3e7bd91d898a733e988887307f97cd28073383 \
    000000000000000080240922 0100000000000000 0a00000000000000";
/// Files of Guava and of bits-and-blooms that contain `user:42`.
const GUAVA: &str = "0103000000010000010400000020";
const BLOOM_V3: &str = "0000000000000030 0000000000000004 0000000000000030 0000000109020000";
/// The head from SCANDUMP of a RedisBloom filter that contains `user:42`.
const REDISBLOOM: &str = "0100000000000000 01000000 05000000 02000000 0800000000000000 4000000000000000 \
    0100000000000000 9a9999999999b93f 88168ac58c2b1340 04000000 0300000000000000 00";

/// The string that SETBIT creates by setting these bits.
fn bitmap(bits: &[usize]) -> Content {
    let mut bytes = vec![0; bits.iter().max().map_or(0, |most| most / 8 + 1)];
    bits.iter().for_each(|bit| bytes[bit / 8] |= 0x80 >> (bit % 8));
    Content::String(bytes)
}

const GO_ZERO_HELLO: [usize; 14] = [307, 802, 866, 915, 983, 770, 138, 576, 596, 224, 781, 153, 819, 373];
const REDISSON_HELLO: [usize; 7] = [635, 186, 859, 410, 125, 634, 349];
const REDISSON_KRYO5_HELLO: [usize; 7] = [634, 655, 369, 390, 104, 125, 797];

/// A server with a go-zero bitmap, two Redisson bitmaps and their configuration, and a key of another type.
fn sources() -> FakeServer {
    let server = FakeServer::default();
    server.put("bitmap", bitmap(&GO_ZERO_HELLO));
    server.put("text", bitmap(&REDISSON_HELLO));
    server.put("kryo", bitmap(&REDISSON_KRYO5_HELLO));
    server.put("{text}:config", Content::Hash(BTreeMap::from([("size", "958"), ("hashIterations", "7")])));
    server.put("other", Content::Other);
    server
}

/// The origin that BF.STATS names, an item in the filter, and the command.
type Import<'a> = (&'static str, &'static [u8], &'a [&'a [u8]]);

#[test]
fn an_import_answers_as_the_original_and_replicates_the_filter() {
    let server = sources();
    let (guava, bloom_v3, payload) = (hex(GUAVA), hex(BLOOM_V3), hex(PAYLOAD));
    #[rustfmt::skip] // a table
    let imports: [Import<'_>; 9] = [
        ("go-zero", b"hello", &[b"BF.IMPORT", b"k", b"GOZERO", b"bitmap", b"BITS", b"1024"]),
        ("go-zero", b"hello", &[b"bf.import", b"k", b"gozero", b"bitmap", b"maps", b"14", b"bits", b"1024"]),
        ("redisson", b"hello", &[b"BF.IMPORT", b"k", b"REDISSON", b"text", b"{text}:config"]),
        ("redisson", b"hello", &[b"BF.IMPORT", b"k", b"REDISSON", b"text", b"{text}:config", b"CODEC", b"string"]),
        ("redisson", b"hello", &[b"BF.IMPORT", b"k", b"REDISSON", b"kryo", b"{text}:config", b"CODEC", b"KRYO5"]),
        ("guava", b"user:42", &[b"BF.IMPORT", b"k", b"GUAVA", &guava]),
        ("guava", b"user:42", &[b"BF.IMPORT", b"k", b"GUAVA", &guava, b"FUNNEL", b"bytes"]),
        ("bits-and-blooms", b"user:42", &[b"BF.IMPORT", b"k", b"BLOOMV3", &bloom_v3]),
        ("valkey-bloom", b"hello", &[b"BF.LOAD", b"k", &payload]),
    ];
    for ((origin, member, words), goes_to_background) in
        imports.iter().flat_map(|import| [(*import, false), (*import, true)])
    {
        server.goes_to_background.set(goes_to_background);
        assert_eq!(server.run(words), Ok(Reply::Ok), "{origin}");
        assert_eq!(server.run(&[b"BF.EXISTS", b"k", member]), YES, "{origin}");
        assert_eq!(server.run(&[b"BF.TEST", b"k", b"stranger"]), NO);
        let Ok(Reply::Map(info)) = server.line("BF.STATS k") else { panic!() };
        assert!(info.contains(&("Origin", Reply::from(origin))), "{info:?}");
        assert!(info.contains(&("Number of items inserted", Reply::Integer(1))), "{info:?}");
        assert_eq!(server.line("BF.CARD k"), Ok(Reply::Integer(1)));
        assert_eq!(server.events.take(), [c"bf.import"]);

        // A replica gets either the filter itself or the command with the data. It doesn't matter what the replica has
        // in the keys that were read here.
        let replica = FakeServer::default();
        replica.obeys.set(true);
        replica.memory.set(Some(1));
        let sent = server.replicated.take();
        match (origin, goes_to_background) {
            (_, true) => assert!(sent.len() == 2 && sent.iter().all(|words| words[0] == b"BF.LOADCHUNK")),
            ("go-zero" | "redisson", _) => assert!(sent.len() == 1 && sent[0].contains(&b"DATA".to_vec())),
            _ => assert_eq!(sent, [words.to_vec()]),
        }
        for words in &sent {
            assert_eq!(replica.run_words(words), Ok(Reply::Ok));
        }
        assert_eq!(replica.dump("k"), server.dump("k"), "{origin}");
        server.keys.borrow_mut().remove(&b"k"[..]);
    }
}

/// An imported filter can be exported in its original format, whole or in pieces. If a filter can't be exported, the
/// error says why.
#[test]
fn an_export_is_what_was_imported() {
    let server = sources();
    let (guava, bloom_v3, payload) = (hex(GUAVA), hex(BLOOM_V3), hex(PAYLOAD));
    let commands: [(&[&[u8]], &[u8]); 4] = [
        (&[b"BF.IMPORT", b"k", b"GUAVA", &guava], &guava),
        (&[b"BF.IMPORT", b"k", b"BLOOMV3", &bloom_v3], &bloom_v3),
        (&[b"BF.IMPORT", b"k", b"SBBF", &[0; 32]], b"\x15@\x1c\x1c"),
        (&[b"BF.LOAD", b"k", &payload], &payload),
    ];
    for (words, bytes) in commands {
        assert_eq!(server.run(words), Ok(Reply::Ok));
        server.replicated.take();
        let Ok(Reply::Bulk(whole)) = server.line("BF.EXPORT k") else { panic!("{words:?}") };
        assert!(whole.starts_with(bytes));
        let mut pieces = Vec::new();
        loop {
            let piece = server.line(&format!("BF.EXPORT k count 5 offset {}", pieces.len()));
            let Ok(Reply::Bulk(piece)) = piece else { panic!("{words:?}") };
            pieces.extend_from_slice(&piece);
            if piece.len() < 5 {
                break;
            }
        }
        assert_eq!(pieces, whole);
        assert!(server.replicated.take().is_empty());
        server.keys.borrow_mut().remove(&b"k"[..]);
    }
    let refused = |line: &str| server.line(line).unwrap_err().to_string();
    assert_eq!(refused("BF.EXPORT k"), "ERR not found");
    assert_eq!(refused("BF.EXPORT other"), WRONG_TYPE);
    server.line("BF.RESERVE k 0.01 100").unwrap();
    assert!(refused("BF.EXPORT k").starts_with("ERR the filter is Bloomery's own"));
    server.put("chain", golden::foreign("foreign-redisbloom"));
    assert!(refused("BF.EXPORT chain").starts_with("ERR the filter is RedisBloom's"));
    // A filter that is too long for one reply is exported only with OFFSET, so that a part isn't mistaken for the
    // whole.
    server.line("BF.IMPORT long GOZERO none BITS 8388616").unwrap();
    assert!(refused("BF.EXPORT long").starts_with("ERR the filter has 1048577 bytes"));
    let Ok(Reply::Bulk(rest)) = server.line("BF.EXPORT long OFFSET 1") else { panic!() };
    assert_eq!(rest.len(), 1 << 20);
    for line in ["COUNT 0", "COUNT 1048577", "COUNT", "OFFSET -1", "OFFSET", "ALL"] {
        let why = refused(&format!("BF.EXPORT long {line}"));
        assert!(why.contains("expects a number of bytes") || why == "ERR unknown option 'ALL'", "{why}");
    }
    // During a rebuild, the live filter is exported.
    server.put("{live}", golden::foreign("foreign-sbbf"));
    let before = server.line("BF.EXPORT {live}");
    server.line("BF.REBUILD {live} BEGIN CAPACITY 100").unwrap();
    assert!(before.is_ok() && server.line("BF.EXPORT {live}") == before);
}

/// BF.RESERVE … SCHEME creates the same filter, here and on a replica, as importing an empty one from the original
/// system.
#[test]
fn other_systems_filters_are_reserved() {
    let server = sources();
    for (line, export) in [
        ("BF.RESERVE k 0.1 10 SCHEME GUAVA", "0103000000010000000000000000"),
        ("bf.reserve k 0.1 10 scheme guava funnel long", "0103000000010000000000000000"),
        (
            "BF.RESERVE k 0.1 10 SCHEME BLOOMV3",
            "0000000000000030000000000000000400000000000000300000000000000000",
        ),
        ("BF.RESERVE k 0.1 10 SCHEME REDISSON CODEC KRYO5", "000000000000"),
        ("BF.RESERVE k 0.5 5 SCHEME GOZERO", "000000"),
        ("BF.RESERVE k 0.1 1 SCHEME SBBF TYPE INT", "15401c1c00001c1c00001c1c000000"),
        ("BF.RESERVE k 0.1 1 SCHEME SBBF TYPE bytes", "15401c1c00001c1c00001c1c000000"),
    ] {
        assert_eq!(server.line(line), Ok(Reply::Ok), "{line}");
        assert_eq!(server.events.take(), [c"bf.reserve"]);
        let Ok(Reply::Bulk(bytes)) = server.line("BF.EXPORT k") else { panic!("{line}") };
        assert!(bytes.starts_with(&hex(export)), "{line}: {bytes:02x?}");
        assert_eq!(server.line("BF.ADD k 42"), YES);
        let replica = FakeServer::default();
        replica.obeys.set(true);
        replica.memory.set(Some(1));
        let sent = server.replicated.take();
        assert_eq!(sent[0][sent[0].len() - 2..], [b"SEED".to_vec(), b"0".to_vec()]);
        for words in &sent {
            assert!(replica.run_words(words).is_ok(), "{line}");
        }
        assert_eq!(replica.dump("k"), server.dump("k"), "{line}");
        server.events.take();
        server.keys.borrow_mut().remove(&b"k"[..]);
    }
    let list = "ERR SCHEME expects SBBF, BLOOMV3, GUAVA, REDISSON or GOZERO";
    let exclusive = "ERR SCHEME follows the capacity, and none of our options goes with it: the filter is another system's";
    for (line, error) in [
        ("BF.RESERVE k 0.1 10 SCHEME", list),
        ("BF.RESERVE k 0.1 10 SCHEME VALKEYBLOOM", list),
        ("BF.RESERVE k 0.1 10 COUNTING SCHEME GUAVA", exclusive),
        ("BF.RESERVE k 0.1 10 SCHEME GUAVA COUNTING", "ERR unknown option 'COUNTING'"),
        ("BF.RESERVE k 0.1 10 SCHEME GUAVA TYPE LONG", "ERR unknown option 'TYPE'"),
        ("BF.RESERVE k 0.1 10 SCHEME GUAVA FUNNEL JSON", "ERR FUNNEL expects BYTES, UTF16, LONG or INT"),
        ("BF.RESERVE k 0.1 10 SCHEME SBBF SEED 1", "ERR SEED expects 0 with SCHEME"),
        ("BF.RESERVE k 2 10 SCHEME GUAVA", "ERR error rate must be in the range (0.000000, 1.000000)"),
        ("BF.RESERVE k 0.1 x SCHEME GUAVA", "ERR bad capacity"),
        (
            "BF.RESERVE k 0.01 1000000000000 SCHEME REDISSON",
            "ERR the other system has no filters of that size. Choose another capacity or error rate.",
        ),
        ("BF.RESERVE other 0.1 10 SCHEME GUAVA", WRONG_TYPE),
    ] {
        assert_eq!(server.line(line).unwrap_err().to_string(), error, "{line}");
    }
    server.memory.set(Some(1 << 20));
    assert!(server.line("BF.RESERVE k 0.01 10000000 SCHEME SBBF").is_err());
    assert!(server.replicated.take().is_empty() && server.events.take().is_empty());
    assert!(server.line("BF.EXISTS k x") == NO);
}

#[test]
fn a_refused_import_makes_nothing_and_replicates_nothing() {
    let server = sources();
    server.line("BF.RESERVE taken 0.01 100").unwrap();
    server.put("foreign", golden::foreign("foreign-go-zero"));
    server.put("{no}:config", Content::Hash(BTreeMap::from([("size", "958")])));
    server.put("{bad}:config", Content::Hash(BTreeMap::from([("size", "many"), ("hashIterations", "7")])));
    server.put(
        "{much}:config",
        Content::Hash(BTreeMap::from([("size", "958"), ("hashIterations", "4294967296")])),
    );
    server.put(
        "{vast}:config",
        Content::Hash(BTreeMap::from([("size", "8796093022208"), ("hashIterations", "7")])),
    );
    server.take_replicated();
    server.events.take();
    let keys = server.keys.borrow().len();
    server.memory.set(Some(1 << 20));
    for (line, field) in [
        ("BF.IMPORT n REDISSON text {no}:config", "hashIterations"),
        ("BF.IMPORT n REDISSON text {bad}:config", "size"),
        ("BF.IMPORT n REDISSON text {much}:config", "number of hashes"),
    ] {
        let error = format!("ERR received bad data: invalid {field}");
        assert_eq!(server.text(line), error, "{line}");
        assert_eq!(server.take_replicated(), [""; 0], "{line}");
    }
    assert_eq!((server.line("CF.EXISTS foreign 1"), server.keys.borrow().len()), (NO, keys));
    assert_eq!(server.events.take().len(), 0);

    // The user chooses the size, so the server is asked for the memory before any is allocated.
    for line in [
        "BF.IMPORT n GOZERO bitmap BITS 8796093022208",
        "BF.IMPORT n REDISSON text {vast}:config",
        "BF.IMPORT n GOZERO missing BITS 8796093022208",
    ] {
        let refused = server.text(line);
        assert!(refused.starts_with("ERR Insufficient memory"), "{refused}");
        assert!(refused.contains("the test is"), "it was tried: {refused}");
    }
    server.memory.set(Some(8));
    for words in [[&b"BF.IMPORT"[..], b"n", b"GUAVA"], [b"BF.IMPORT", b"n", b"BLOOMV3"]] {
        let blob = hex(if words[2] == b"GUAVA" { &GUAVA[..28] } else { BLOOM_V3 });
        assert_eq!(server.run(&[&words[..], &[&blob]].concat()), Ok(Reply::Ok), "8 bytes are allowed");
        server.keys.borrow_mut().remove(&b"n"[..]);
    }
    let refused = server.run(&[b"BF.LOAD", b"n", &hex(PAYLOAD)]).unwrap_err().to_string();
    assert!(refused.starts_with("ERR Insufficient memory"), "{refused}");
}

/// An add to another system's filter is replicated only if it changed the filter.
#[test]
fn adds_replicate_what_changed() {
    let server = FakeServer::default();
    server.put("k", golden::foreign("foreign-redisson"));
    assert_eq!((server.line("BF.ADD k new"), server.line("BF.ADD k new")), (YES, NO));
    assert_eq!((server.line("BF.ADDNX k newer"), server.line("BF.ADDNX k newer")), (YES, NO));
    assert_eq!(server.take_replicated(), ["BF.ADD k new", "BF.ADD k newer"]);
    let Ok(Reply::Answers(answers)) = server.line("BF.MADD k new a b a") else { panic!() };
    assert_eq!(answers.answers[..], [Answer::No, Answer::Yes, Answer::Yes, Answer::No]);
    assert_eq!(server.take_replicated(), ["BF.MADD k a b"]);
    let Ok(Reply::Answers(answers)) = server.line("BF.INSERT k CAPACITY 7 NOCREATE ITEMS a c") else {
        panic!()
    };
    assert_eq!(answers.answers[..], [Answer::No, Answer::Yes]);
    assert_eq!(server.take_replicated(), ["BF.MADD k c"]);
    let Ok(Reply::Answers(answers)) = server.line("BF.MEXISTS k a d c") else { panic!() };
    assert_eq!(answers.answers[..], [Answer::Yes, Answer::No, Answer::Yes]);
    assert_eq!(server.take_replicated(), [""; 0]);
    assert_eq!(server.events.take(), [c"bf.add"; 4]);

    // The original system doesn't accept one of the items. The others are added all the same.
    let Ok(Reply::Answers(answers)) = server.run(&[b"BF.MADD", b"k", b"d", b"\xff", b"e"]) else { panic!() };
    assert_eq!(answers.answers[..], [Answer::Yes, Answer::Refused, Answer::Yes]);
    assert_eq!(answers.error.unwrap().to_string(), "ERR the items of this filter are text in UTF-8");
    assert_eq!(server.take_replicated(), ["BF.MADD k d e"]);
    assert_eq!(server.run(&[b"BF.EXISTS", b"k", b"\xff"]), NO);
    let refused = server.run(&[b"BF.ADD", b"k", b"\xff"]).unwrap_err().to_string();
    assert_eq!(refused, "ERR the items of this filter are text in UTF-8");
    let blob = hex(GUAVA);
    for (funnel, item, takes) in
        [("LONG", "9223372036854775808", "integers of 64 bits"), ("INT", "2147483648", "integers of 32 bits")]
    {
        server
            .run(&[b"BF.IMPORT", funnel.as_bytes(), b"GUAVA", &blob, b"FUNNEL", funnel.as_bytes()])
            .unwrap();
        let text = server.text(&format!("BF.ADD {funnel} {item}"));
        assert_eq!(text, format!("ERR the items of this filter are {takes}"));
        assert_eq!(server.line(&format!("BF.ADD {funnel} -7")), YES);
        assert_eq!(server.line(&format!("BF.EXISTS {funnel} -7")), YES);
    }
}

/// RedisBloom's head begins with the number of items. Whatever the number, the head must not be mistaken for a native
/// one. Otherwise a replica, or a server that replays an append-only file, would lose the filter.
#[test]
fn a_number_of_items_that_is_our_magic() {
    let server = FakeServer::default();
    let mut head = hex(REDISBLOOM);
    let chunk = hex("0020008010004000");
    for (high, key) in
        [(0u32, "none"), (1, "version"), (u32::from_le_bytes([1, 5, 0, 0]), "version and kind")]
    {
        let items = u64::from(high) << 32 | u64::from(u32::from_le_bytes(*b"BLMY"));
        head[..8].copy_from_slice(&items.to_le_bytes());
        head[36..44].copy_from_slice(&items.to_le_bytes());
        head[64..72].copy_from_slice(&items.to_le_bytes()); // the capacity
        assert_eq!(server.run(&[b"BF.LOADCHUNK", key.as_bytes(), b"1", &head]), Ok(Reply::Ok), "{key}");
        assert_eq!(server.run(&[b"BF.LOADCHUNK", key.as_bytes(), b"9", &chunk]), Ok(Reply::Ok), "{key}");
        let (dumped, replica) = (server.dump(key), FakeServer::default());
        replica.obey(&server.replicated.take());
        assert!(replica.dump(key) == dumped, "{key}");
    }
}

/// For a filter from RedisBloom, BF.INFO, BF.DEBUG and BF.SCANDUMP reply as RedisBloom does.
#[test]
fn info_of_redisblooms_filter_is_its_own() {
    let server = FakeServer::default();
    let head = hex(REDISBLOOM);
    assert_eq!(server.run(&[b"BF.LOADCHUNK", b"k", b"1", &head]), Ok(Reply::Ok));
    assert_eq!(server.line("BF.EXISTS k user:42"), NO, "nobody sees half a filter");
    assert_eq!(server.run(&[b"BF.LOADCHUNK", b"k", b"9", &hex("0020008010004000")]), Ok(Reply::Ok));
    assert_eq!(server.line("BF.EXISTS k user:42"), YES);
    let Ok(Reply::Numbers(info)) = server.line("BF.INFO k") else { panic!() };
    let info: BTreeMap<_, _> = info.fields().into_iter().collect();
    assert_eq!(info["Capacity"], Reply::Integer(3));
    assert_eq!(info["Number of filters"], Reply::Integer(1));
    assert_eq!(info["Number of items inserted"], Reply::Integer(1));
    assert_eq!(info["Expansion rate"], Reply::Integer(2));
    assert_eq!(server.line("BF.INFO k ITEMS"), Ok(Reply::Entry(c"Number of items inserted", Some(1))));
    let line = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
    assert_eq!(
        server.line("BF.DEBUG k"),
        Ok(Reply::Array(vec![
            line("size:1"),
            line("bytes:8 bits:64 hashes:4 hashwidth:64 capacity:3 size:1 ratio:0.1")
        ]))
    );
    // SCANDUMP gives back what LOADCHUNK was given.
    assert_eq!(server.line("BF.SCANDUMP k 0"), Ok(Reply::Piece(1, Some(head.clone()))));
    assert_eq!(server.line("BF.SCANDUMP k 1"), Ok(Reply::Piece(9, Some(hex("0020008010004000")))));
    assert_eq!(server.line("BF.SCANDUMP k 9"), Ok(Reply::Piece(0, Some(vec![]))));
    let sent = server.replicated.take();
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0][2..], [b"1".to_vec(), head.clone()]);
    assert_eq!(sent[1][2..], [b"9".to_vec(), hex("0020008010004000")]);

    // Versions of RedisBloom up to 2.2.6 wrote the head with iterator 0 into their append-only files.
    assert_eq!(server.run(&[b"BF.LOADCHUNK", b"old", b"0", &head]), Ok(Reply::Ok));
    assert_eq!(server.run(&[b"BF.LOADCHUNK", b"old", b"9", &hex("0020008010004000")]), Ok(Reply::Ok));
    assert_eq!(server.dump("old"), server.dump("k"));
    for (iterator, data, error) in [
        ("0", "ff", "ERR not found"),
        ("1", "ff", "ERR received bad data"),
        ("9", "ff", "ERR not found"),
        ("-1", "ff", "ERR not found"),
        ("x", "ff", "ERR Second argument must be numeric"),
    ] {
        let refused = server.run(&[b"BF.LOADCHUNK", b"n", iterator.as_bytes(), &hex(data)]);
        assert_eq!(refused.unwrap_err().to_string(), error, "{iterator}");
    }
    server.run(&[b"BF.LOADCHUNK", b"n", b"1", &head]).unwrap();
    for (iterator, data) in [("0", "ff"), ("9", ""), ("9", "ffffffffffffffffff"), ("10", "ff"), ("2", "ffff")]
    {
        let refused = server.run(&[b"BF.LOADCHUNK", b"n", iterator.as_bytes(), &hex(data)]).unwrap_err();
        assert!(refused.to_string().starts_with("ERR received bad data: "), "{iterator}: {refused}");
    }
    assert!(server.run(&[b"CF.LOADCHUNK", b"n", b"9", &hex("00")]).is_err());
    // Chunks may come in any order.
    server.run(&[b"BF.LOADCHUNK", b"n", b"9", &hex("10004000")]).unwrap();
    server.run(&[b"BF.LOADCHUNK", b"n", b"5", &hex("00200080")]).unwrap();
    assert_eq!(server.dump("n"), server.dump("k"));
}

/// The fill in BF.STATS covers only the bits that a probe can reach. A file may contain further bits after these.
#[test]
fn a_fill_is_at_most_1() {
    let server = FakeServer::default();
    // A filter of 48 bits in a bitset of 128, all of them set.
    let blob = [hex("0000000000000030 0000000000000004 0000000000000080"), vec![0xFF; 16]].concat();
    server.run(&[b"BF.IMPORT", b"k", b"BLOOMV3", &blob]).unwrap();
    let Ok(Reply::Map(info)) = server.line("BF.STATS k") else { panic!() };
    let info: BTreeMap<_, _> = info.into_iter().collect();
    assert_eq!((&info["Fill"], &info["Error rate now"]), (&Reply::Double(1.0), &Reply::Double(1.0)));
    let Reply::Array(layers) = &info["Layers"] else { panic!() };
    let Reply::Map(layer) = &layers[0] else { panic!() };
    assert!(layer.contains(&("Fill", Reply::Double(1.0))), "{layer:?}");
}

/// Growth asks for memory first. A refusal leaves the filter unchanged, and items that test positive aren't refused.
#[test]
fn growth_is_refused_where_there_is_no_memory() {
    let server = FakeServer::default();
    server.put("k", golden::foreign("foreign-redisbloom"));
    let mut i = 0;
    let size = || server.text("BF.INFO k FILTERS");
    let filters = size();
    while size() == filters {
        server.line(&format!("BF.ADD k member:{i}")).unwrap();
        i += 1;
    }
    let full = loop {
        let before = server.dump("k");
        server.memory.set(Some(8));
        let refused = server.text(&format!("BF.ADD k other:{i}"));
        server.memory.set(None);
        if refused.starts_with("ERR problem inserting into filter: ") {
            assert!(refused.contains("Insufficient memory"), "{refused}");
            assert_eq!(server.dump("k"), before);
            break i;
        }
        i += 1;
    };
    server.take_replicated();
    server.memory.set(Some(8));
    let Ok(Reply::Answers(answers)) = server.line(&format!("BF.MADD k other:{full} member:0")) else {
        panic!()
    };
    assert_eq!(answers.answers[..], [Answer::Refused, Answer::No]);
    assert_eq!(server.take_replicated(), [""; 0]);
    server.memory.set(None);
    assert_eq!(server.line(&format!("BF.ADD k other:{full}")), YES);
    assert_eq!(server.take_replicated(), [format!("BF.ADD k other:{full}")]);

    // When a filter of fixed capacity is full, the command ends at the first item that is refused.
    let mut fixed = hex(REDISBLOOM);
    fixed[..8].fill(0);
    fixed[12] |= 8;
    fixed[36..44].fill(0);
    server.run(&[b"BF.LOADCHUNK", b"fixed", b"1", &fixed]).unwrap();
    server.run(&[b"BF.LOADCHUNK", b"fixed", b"9", &[0; 8]]).unwrap();
    let Ok(Reply::Answers(answers)) = server.line("BF.MADD fixed a b c d e f") else { panic!() };
    assert_eq!(answers.answers[..], [Answer::Yes, Answer::Yes, Answer::Yes, Answer::Refused]);
    assert_eq!(answers.error.unwrap().to_string(), "ERR non scaling filter is full");
    assert_eq!(server.text("BF.ADD fixed d"), "ERR non scaling filter is full");
    assert_eq!(server.line("BF.ADD fixed a"), NO, "it is there");
    assert_eq!(server.text("BF.INFO fixed EXPANSION"), "Entry(\"Expansion rate\", None)");
}

/// The filters of all other systems can be moved in pieces, by SCANDUMP and LOADCHUNK. The key appears when the last
/// piece arrives.
#[test]
fn filters_move_in_pieces() {
    for (recipe, _) in golden::FOREIGN {
        let server = FakeServer::default();
        server.put("source", golden::foreign(recipe));
        let (mut iterator, mut pieces) = (0, 0);
        loop {
            let reply = server.line(&format!("BF.SCANDUMP source {iterator}"));
            let Ok(Reply::Piece(next, Some(piece))) = reply else { panic!("{reply:?}") };
            if next == 0 {
                assert!(piece.is_empty());
                break;
            }
            assert!(!server.keys.borrow().contains_key(&b"copy"[..]), "{recipe}: too early");
            let text = next.to_string();
            assert!(server.run(&[b"CF.LOADCHUNK", b"copy", text.as_bytes(), &piece]).is_err());
            assert_eq!(
                server.run(&[b"BF.LOADCHUNK", b"copy", text.as_bytes(), &piece]),
                Ok(Reply::Ok),
                "{recipe}"
            );
            (iterator, pieces) = (next, pieces + 1);
        }
        assert_eq!(server.dump("copy"), server.dump("source"), "{recipe}");
        assert_eq!(server.replicated.take().len(), pieces, "{recipe}: every piece, at once");
    }
}

/// Runs random commands on a primary, and their effects on a replica without memory. Both servers end up with the same
/// filters, bit for bit.
#[test]
fn a_replica_that_obeys_ends_equal() {
    let mut grown = 0;
    for seed in 0..30 {
        let mut random = SmallRng::seed_from_u64(seed);
        let (primary, replica) = (sources(), FakeServer::default());
        replica.obeys.set(true);
        replica.memory.set(Some(1));
        let obey = |primary: &FakeServer| {
            for effect in primary.replicated.take() {
                replica.run_words(&effect).unwrap_or_else(|error| panic!("seed {seed}: {effect:?}: {error}"));
            }
        };
        let mut keys = vec!["zero", "valkey", "native"];
        primary.line("BF.IMPORT zero GOZERO bitmap BITS 1024").unwrap();
        primary.run(&[b"BF.LOAD", b"valkey", &hex(PAYLOAD)]).unwrap();
        for (recipe, _) in golden::FOREIGN {
            primary.put("source", golden::foreign(recipe));
            let mut pieces = Vec::new();
            if let Content::Filter(value) = &*primary.keys.borrow()[&b"source"[..]].borrow() {
                let encoder = Encoder::new(value);
                pieces.push((1, encoder.head().to_vec()));
                encoder.chunks(|end, chunk| pieces.push((end + 1, chunk.to_vec())));
            }
            for (iterator, piece) in pieces {
                let iterator = iterator.to_string();
                primary.run(&[b"BF.LOADCHUNK", recipe.as_bytes(), iterator.as_bytes(), &piece]).unwrap();
            }
            keys.push(recipe);
        }
        obey(&primary);
        let before: Vec<_> = keys.iter().map(|key| primary.text(&format!("BF.INFO {key} FILTERS"))).collect();
        for _ in 0..400 {
            let key = keys[random.random_range(0..keys.len())];
            let verb = ["ADD", "ADDNX", "MADD", "INSERT", "DEL", "MEXISTS"][random.random_range(0..6)];
            let count =
                if matches!(verb, "MADD" | "INSERT" | "MEXISTS") { random.random_range(1..20) } else { 1 };
            let mut words = vec![format!("BF.{verb}").into_bytes(), key.into()];
            if verb == "INSERT" {
                words.push(b"ITEMS".to_vec());
            }
            for _ in 0..count {
                let number: u16 = random.random_range(0..2000);
                // Some items aren't valid text.
                words.push(if random.random_bool(0.1) {
                    vec![0xFF; 3]
                } else {
                    number.to_string().into_bytes()
                });
            }
            primary.memory.set(random.random_bool(0.1).then_some(8));
            let _ = primary.run_words(&words);
            obey(&primary);
        }
        let after: Vec<_> = keys.iter().map(|key| primary.text(&format!("BF.INFO {key} FILTERS"))).collect();
        grown += before.iter().zip(&after).filter(|(before, after)| before != after).count();
        for key in keys.into_iter().filter(|key| primary.keys.borrow().contains_key(key.as_bytes())) {
            assert_eq!(primary.dump(key), replica.dump(key), "seed {seed}, {key}");
        }
    }
    assert!(grown > 60, "it would show little otherwise: {grown}");
}
