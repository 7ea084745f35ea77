//! `BF.MERGE destination BLOB data`: filters in blobs are merged like filters in keys, and damaged blobs change
//! nothing.

use super::algebra::{LIKE, OK, TABLES, UNLIKE, items_for, strangers};
use super::pair::{Pair, add, dumps, found};
use crate::support::fake_server::FakeServer;
use crate::support::kinds::RESERVE_OPTIONS;
use crate::support::rdb::{Dump, Field, Fields};
use crate::support::wire;
use crate::support::{golden, rdb};
use bloomery::Filter;
use bloomery::wire::DecodeError;
use bloomery_commands::{CommandError, Reply};

/// The filter in Bloomery's file format.
fn file(filter: &Filter) -> Vec<u8> {
    wire::encode(filter)
}

/// A server's reply to DUMP for this filter.
fn dump(filter: &Filter) -> Vec<u8> {
    let fields = Fields(wire::saved(filter).0.into_iter().map(Field::String).collect());
    Dump { name: "bloomery1".to_owned(), encoding: 1, fields }.write(12)
}

/// The reply to DUMP from a server that compresses strings.
fn packed_dump(filter: &Filter) -> Vec<u8> {
    let strings: Vec<Vec<u8>> = wire::saved(filter).0.into();
    rdb::packed("bloomery1", 1, &strings, 80)
}

const FORMS: [fn(&Filter) -> Vec<u8>; 3] = [file, dump, packed_dump];

fn merge(server: &FakeServer, destination: &str, blobs: &[Vec<u8>]) -> Result<Reply, CommandError> {
    let mut words: Vec<&[u8]> = vec![b"BF.MERGE", destination.as_bytes(), b"BLOB"];
    words.extend(blobs.iter().map(Vec::as_slice));
    server.run(&words)
}

fn text(outcome: Result<Reply, CommandError>) -> String {
    outcome.map_or_else(|why| why.to_string(), |reply| format!("{reply:?}"))
}

/// Puts filters with these options into `a`, `b` and `c`, each with items of its own.
fn filled(server: &FakeServer, options: &str) {
    server.line(&format!("BF.RESERVE a 0.0001 200 {options} SEED 7")).unwrap();
    for key in ["b", "c"] {
        server.line(&format!("BF.RESERVE {key} 0.0001 200 LIKE a")).unwrap();
    }
    ["a", "b", "c"].iter().for_each(|key| add(server, key, key, items_for(options)));
}

/// Merging blobs gives the same keys, bit for bit, and the same events as merging the sources by name. A replica ends
/// up with the same keys, too.
#[test]
fn a_union_with_blobs_is_that_with_keys() {
    for options in RESERVE_OPTIONS.into_iter().chain(TABLES) {
        for (form, background) in FORMS.iter().flat_map(|form| [(form, false), (form, true)]) {
            let (named, pair) = (FakeServer::default(), Pair::new());
            let server = &pair.primary;
            for server in [&named, server] {
                server.workers.set(if background { 3 } else { 0 });
                server.goes_to_background.set(background);
                filled(server, options);
                server.events.take();
            }
            pair.follow();
            let blobs = |keys: &[&str]| keys.iter().map(|key| form(&server.copy(key))).collect::<Vec<_>>();
            for (line, destination, sources) in [
                ("BF.MERGE a b", "a", &["b"][..]),
                ("BF.MERGE new a c", "new", &["a", "c"]),
                ("BF.MERGE copy b", "copy", &["b"]),
                ("BF.MERGE b a c", "b", &["a", "c"]),
            ] {
                assert_eq!(named.line(line), OK, "{options}");
                assert_eq!(merge(server, destination, &blobs(sources)), OK, "{options} {line}");
                assert!(dumps(&named) == dumps(server), "{options} {line}");
                assert_eq!(server.events.take(), named.events.take());
                assert_eq!(server.replicated.borrow().len(), 1, "the command itself");
                pair.follow();
            }
            assert_eq!(found(server, "new", "c", items_for(options)), items_for(options));
            // There is nothing new to merge.
            if !options.starts_with("COUNTING") {
                assert_eq!(merge(server, "new", &blobs(&["a", "c", "c"])), OK);
                assert_eq!((server.take_replicated(), server.events.take()), (Vec::new(), Vec::new()));
            }
        }
    }
}

/// If a blob contains a filter that is being rebuilt, its live filter is merged. Filters from other systems can be
/// merged, too. A destination that is being rebuilt is refused.
#[test]
fn blobs_of_all_kinds_are_merged() {
    for form in FORMS {
        let pair = Pair::new();
        let server = &pair.primary;
        server.line("BF.RESERVE a 0.01 100 SEED 1").unwrap();
        server.line("BF.RESERVE b 0.01 100 SEED 1").unwrap();
        server.line("BF.MADD a live both").unwrap();
        server.line("BF.REBUILD a BEGIN").unwrap();
        server.line("BF.REBUILD a ADD shadow").unwrap();
        assert_eq!(merge(server, "b", &[form(&server.copy("a"))]), OK);
        let yes = |item: &str| server.line(&format!("BF.EXISTS b {item}"));
        assert_eq!([yes("live"), yes("shadow")], [Ok(Reply::Bool(true)), Ok(Reply::Bool(false))]);
        pair.follow();
        assert_eq!(merge(server, "a", &[form(&server.copy("b"))]), Err(CommandError::Rebuilding));
        for (name, recipe) in golden::FOREIGN {
            let filter = Filter::from(recipe());
            assert_eq!(merge(server, name, &[form(&filter)]), OK, "{name}");
            assert!(server.dump(name) == bloomery::wire::Encoder::new(&filter).to_vec(), "{name}");
            assert_eq!(merge(server, name, &[form(&filter)]), OK, "{name}");
        }
    }
}

#[test]
fn a_blob_that_does_not_go_together_is_named() {
    for (form, background) in FORMS.iter().flat_map(|form| [(form, false), (form, true)]) {
        let server = FakeServer::default();
        strangers(&server);
        server.goes_to_background.set(background);
        let (before, blob) = (dumps(&server), |key: &str| form(&server.copy(key)));
        server.take_replicated();
        server.events.take();
        for (key, what) in UNLIKE.into_iter().chain([("guava", "origin")]) {
            let unlike = |blob| format!("ERR the filter in blob {blob} has a different {what}; {LIKE}");
            assert_eq!(text(merge(&server, "plain", &[blob(key)])), unlike(1), "{key}");
            assert_eq!(text(merge(&server, "plain", &[blob("plain"), blob(key)])), unlike(2));
            assert_eq!(text(merge(&server, "missing", &[blob("plain"), blob(key)])), unlike(2));
        }
        let cuckoo = "ERR blob 2 is a cuckoo filter; only Bloom filters can be merged";
        assert_eq!(text(merge(&server, "plain", &[blob("plain"), blob("cuckoo")])), cuckoo);
        for key in ["cuckoo", "text"] {
            assert_eq!(merge(&server, key, &[blob("plain")]), Err(CommandError::WrongType));
        }
        assert_eq!((server.take_replicated(), server.events.take()), (Vec::new(), Vec::new()));
        assert!(dumps(&server) == before);
    }
}

/// A blob is refused if a byte is changed, if its end is missing, or if it has an additional byte.
#[test]
fn damaged_blobs_change_nothing() {
    for (form, background) in FORMS.iter().flat_map(|form| [(form, false), (form, true)]) {
        for options in ["NONSCALING", "COUNTING CAPACITY 3000"] {
            let server = FakeServer::default();
            server.goes_to_background.set(background);
            // The counting filter has more than 2048 bytes of cells, so it isn't saved as one string. The other one is.
            let (kind, capacity) = options.split_once(" CAPACITY ").unwrap_or((options, "60"));
            server.line(&format!("BF.RESERVE a 0.01 {capacity} {kind}")).unwrap();
            server.line(&format!("BF.RESERVE b 0.01 {capacity} LIKE a")).unwrap();
            add(&server, "b", "b", 30);
            let (whole, before) = (form(&server.copy("b")), dumps(&server));
            server.take_replicated();
            server.events.take();
            let refused = |blob: Vec<u8>, how: &str| {
                let told = text(merge(&server, "a", &[blob]));
                assert!(told.starts_with("ERR received bad data in blob 1: "), "{options} {how}: {told}");
                assert!(server.take_replicated().is_empty() && server.events.take().is_empty());
            };
            let step = whole.len().div_ceil(500);
            let places = (0..whole.len()).filter(|at| at % step == 0 || *at < 150 || at + 20 > whole.len());
            for at in places {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << (at % 8);
                refused(damaged, &format!("byte {at}"));
                refused(whole[..at].to_vec(), &format!("{at} bytes"));
            }
            refused([&whole[..], b"x"].concat(), "more");
            refused(b"ada".to_vec(), "text");
            assert!(dumps(&server) == before);
            assert_eq!(merge(&server, "a", &[whole]), OK);
            assert_eq!(found(&server, "a", "b", 30), 30);
        }
    }
}

/// The error for a blob that a client may have sent by mistake says what is wrong with the bytes.
#[test]
fn a_refusal_says_what_the_bytes_are() {
    let server = FakeServer::default();
    let bad = |why| Err(CommandError::BadSource { blob: 1, why });
    let filter = golden::foreign("foreign-redisbloom").into();
    let mut fields = Fields::default();
    bloomery::wire::redisbloom::save_bloom(&mut fields, &golden::foreign("foreign-redisbloom"));
    let theirs = Dump { name: "MBbloom--".to_owned(), encoding: 4, fields }.write(12);
    assert_eq!(merge(&server, "a", &[theirs]), bad(DecodeError::OtherType));
    assert_eq!(merge(&server, "a", &[b"\0\xc0\x07".to_vec()]), bad(DecodeError::Magic));
    assert_eq!(merge(&server, "a", &[Vec::new()]), bad(DecodeError::Magic));
    let mut newer = Dump::read(&dump(&filter));
    newer.encoding = 2;
    assert_eq!(merge(&server, "a", &[newer.write(12)]), bad(DecodeError::Version(2)));
    let mut cut = Dump::read(&dump(&filter));
    cut.fields.0.pop_back();
    assert_eq!(merge(&server, "a", &[cut.write(12)]), bad(DecodeError::Length("payload")));
    let mut long = Dump::read(&dump(&filter));
    long.fields.0.push_back(Field::Unsigned(1));
    assert_eq!(merge(&server, "a", &[long.write(12)]), bad(DecodeError::Length("payload")));
    // Payloads of older and newer servers are accepted.
    for version in [9, 80, u16::MAX] {
        assert_eq!(merge(&server, "a", &[Dump::read(&dump(&filter)).write(version)]), OK);
    }
    assert!(merge(&FakeServer::default(), "a", &[file(&filter)]) == OK);
}

#[test]
fn a_key_named_blob_is_a_key() {
    let server = FakeServer::default();
    for key in ["BLOB", "blob", "a", "b"] {
        server.line(&format!("BF.RESERVE {key} 0.01 100 SEED 1")).unwrap();
        add(&server, key, key, 20);
    }
    assert_eq!(server.line("BF.MERGE a BLOB"), OK, "nothing follows it");
    assert_eq!(server.line("BF.MERGE a b blob"), OK, "it isn't the first");
    assert_eq!(["BLOB", "blob", "b"].map(|prefix| found(&server, "a", prefix, 20)), [20; 3]);
    let bad = CommandError::BadSource { blob: 1, why: DecodeError::Magic };
    for line in ["BF.MERGE a BLOB b", "BF.MERGE a blob b"] {
        assert_eq!(server.line(line), Err(bad.clone()));
    }
}

/// Memory for the cells is requested before they are read, and memory for the result before it is created.
#[test]
fn memory_is_asked_for_before_it_is_used() {
    for (form, background) in FORMS.iter().flat_map(|form| [(form, false), (form, true)]) {
        let server = FakeServer::default();
        server.goes_to_background.set(background);
        for (key, capacity) in [("small", 100), ("large", 100_000)] {
            server.line(&format!("BF.RESERVE {key} 0.01 {capacity} SEED 1")).unwrap();
            add(&server, key, key, 20);
        }
        let (large, before) = (server.copy("large"), dumps(&server));
        // Merging `large` into itself wouldn't even make it grow.
        for destination in ["small", "new", "large"] {
            for most in [1, large.bytes() - 1] {
                server.memory.set(Some(most));
                let told = text(merge(&server, destination, &[form(&large)]));
                assert!(told.starts_with("ERR Insufficient memory"), "{told}");
            }
        }
        // A head that declares more cells than follow it.
        let mut short = file(&large);
        short.truncate(500);
        server.memory.set(None);
        let why = DecodeError::Length("body");
        assert_eq!(merge(&server, "small", &[short]), Err(CommandError::BadSource { blob: 1, why }));
        assert!(dumps(&server) == before);
        assert_eq!(merge(&server, "small", &[form(&large)]), OK);
    }
}

#[test]
fn a_key_that_is_another_after_the_work_is_left_alone() {
    for line in ["a", "new"] {
        let pair = Pair::new();
        let server = &pair.primary;
        filled(server, "NONSCALING");
        server.goes_to_background.set(true);
        server.events.take();
        server.take_replicated();
        let blob = dump(&server.copy("b"));
        // While the blobs are read, the key may change: the work with it begins only then.
        server.meanwhile.replace(Some(Box::new(move |server| {
            server.meanwhile.replace(Some(Box::new(move |server| server.put(line, server.copy("c")))));
        })));
        assert_eq!(merge(server, line, &[blob]), Err(CommandError::Changed));
        assert_eq!((server.take_replicated(), server.events.take()), (Vec::new(), Vec::new()));
        assert_eq!(found(server, line, "b", 50), 0);
    }
}
