//! valkey-bloom's dialect: options and fields that RedisBloom doesn't have, and the commands that a valkey-bloom
//! primary sends or writes to its append-only file.

use crate::pair::Pair;
use crate::support::fake_server::FakeServer;
use crate::support::rdb::hex;
use bloomery::filter::foreign::{Growth, Scheme};
use bloomery::{Filter, Foreign};
use bloomery_commands::{Answers, CommandError, Reply};

/// The seed of valkey-bloom filters that don't have a random one.
const FIXED_SEED: &str = "590ff522ea7811daa714d8093b3e7bd91d898a733e988887307f97cd28073383";
/// A filter for 10 items with [`FIXED_SEED`] and the item `hello`, as valkey-bloom writes it into an append-only file.
const PAYLOAD: &str = "01 02000000 7b14ae47e17a843f 000000000000e03f 00 0100000000000000 3900000000000000 01 \
    0c00000000000000 07000000 590ff522ea7811daa714d8093b3e7bd91d898a733e988887307f97cd28073383 \
    000000000000000080240922 0100000000000000 0a00000000000000";

/// Runs a line of words separated by blanks. `SEED` stands for that word followed by the bytes of `seed`.
fn run(server: &FakeServer, line: &str, seed: &[u8]) -> Result<Reply, CommandError> {
    let words = line.split(' ').flat_map(|word| match word {
        "SEED" => vec![word.as_bytes(), seed],
        word => vec![word.as_bytes()],
    });
    server.run(&words.collect::<Vec<_>>())
}

fn foreign(server: &FakeServer, key: &str) -> Box<Foreign> {
    let Filter::Foreign(filter) = server.copy(key) else { panic!("{key} isn't another system's filter") };
    filter
}

fn info(server: &FakeServer, key: &str, field: &str) -> Result<Reply, String> {
    server.line(&format!("BF.INFO {key} {field}")).map_err(|why| why.to_string())
}

/// A valkey-bloom primary sends BF.INSERT in two forms: for a new filter with its items, and for an empty one.
#[test]
fn what_valkey_bloom_sends_makes_its_filters() {
    let server = FakeServer::default();
    server.obeys.set(true);
    let seed = hex(FIXED_SEED);
    let whole = "CAPACITY 10 ERROR 0.01 TIGHTENING 0.5 SEED EXPANSION 2";
    run(&server, &format!("BF.INSERT items {whole} ITEMS hello"), &seed).unwrap();
    run(&server, &format!("BF.INSERT empty {whole}"), &seed).unwrap();
    assert_eq!(foreign(&server, "empty").items(), 0);
    server.line("BF.ADD empty hello").unwrap();
    server.run(&[b"BF.LOAD", b"loaded", &hex(PAYLOAD)]).unwrap();
    assert_eq!(server.dump("items"), server.dump("loaded"));
    assert_eq!(server.dump("empty"), server.dump("loaded"));
    // All three continue to grow in the same way.
    for item in 0..200 {
        for key in ["items", "empty", "loaded"] {
            server.line(&format!("BF.ADD {key} {item}")).unwrap();
        }
    }
    assert!(foreign(&server, "items").links().len() > 3);
    assert_eq!(server.dump("items"), server.dump("loaded"));
    assert_eq!(server.dump("empty"), server.dump("loaded"));
    // valkey-bloom replicates an insert into an existing filter as the client wrote it.
    run(&server, "BF.INSERT items SEED TIGHTENING 0.9 VALIDATESCALETO 1000 ITEMS more", &seed).unwrap();
    assert_eq!(server.line("BF.EXISTS items more"), Ok(Reply::Bool(true)));
    // Two filters with another seed: one of fixed size, and one with an expansion that RedisBloom doesn't allow.
    let other: Vec<u8> = (0..32).collect();
    let fixed = "CAPACITY 3 ERROR 0.2 TIGHTENING 0.25 SEED NONSCALING";
    run(&server, &format!("BF.INSERT fixed {fixed}"), &other).unwrap();
    run(&server, "BF.INSERT large CAPACITY 3 ERROR 0.2 TIGHTENING 0.5 SEED EXPANSION 4000000000", &other)
        .unwrap();
    let growth = |expansion, tightening, is_seed_random| Growth::ValkeyBloom {
        expansion,
        error_rate: 0.2,
        tightening,
        is_seed_random,
    };
    assert_eq!(foreign(&server, "fixed").growth(), growth(0, 0.25, true));
    assert_eq!(foreign(&server, "large").growth(), growth(4_000_000_000, 0.5, true));
    assert_eq!(*foreign(&server, "fixed").scheme(), Scheme::ValkeyBloom { seed: other.try_into().unwrap() });
    // What this server writes for its own replicas and into its append-only file creates the same filters.
    let file = FakeServer::default();
    file.obeys.set(true);
    file.obey(&server.replicated.take());
    for key in ["items", "empty", "loaded", "fixed", "large"] {
        assert_eq!(file.dump(key), server.dump(key), "{key}");
    }
}

/// A valkey-bloom primary sends none of these: a seed that doesn't have 32 bytes, an insert with neither a seed nor
/// items, or a tightening ratio above 1.
#[test]
fn what_it_does_not_send_is_refused() {
    let server = FakeServer::default();
    server.obeys.set(true);
    for line in ["BF.INSERT k SEED ITEMS a", "BF.INSERT k CAPACITY 10 SEED"] {
        assert!(run(&server, line, b"short").is_err());
    }
    assert!(server.line("BF.INSERT k CAPACITY 10").is_err());
    assert!(server.line("BF.INSERT k TIGHTENING 2 ITEMS a").is_err());
    assert!(server.keys.borrow().is_empty());
}

#[test]
fn a_clients_seed_makes_a_filter_of_valkey_blooms() {
    let pair = Pair::new();
    let seed: Vec<u8> = (0..32).collect();
    let replied = run(&pair.primary, "BF.INSERT k CAPACITY 2 ERROR 0.02 SEED ITEMS a b a c", &seed).unwrap();
    assert_eq!(format!("{replied:?}").matches("Yes").count(), 3, "{replied:?}");
    let filter = foreign(&pair.primary, "k");
    assert_eq!((filter.origin(), filter.links().len(), filter.items()), ("valkey-bloom", 2, 3));
    let sent = pair.follow();
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert!(sent[0].starts_with("BF.INSERT k CAPACITY 2 ERROR 0.02 TIGHTENING 0.5 SEED "), "{sent:?}");
    assert!(sent[0].ends_with(" EXPANSION 2"));
    assert_eq!(sent[1], "BF.MADD k a b c");
    // Without items, the first command creates an empty filter, and the second one changes nothing. Both replies are
    // empty.
    for expected in [1, 0] {
        let replied = run(&pair.primary, "BF.INSERT e SEED TIGHTENING 0.25 NONSCALING", &seed).unwrap();
        assert_eq!(replied, Reply::Answers(Answers::default()));
        assert_eq!(pair.follow().len(), expected);
    }
    assert_eq!(info(&pair.primary, "e", "EXPANSION"), Ok(Reply::Entry(c"Expansion rate", None)));
}

/// Without valkey-bloom's SEED, the filter is a native one, which can have a tightening ratio, too.
#[test]
fn a_tightening_makes_a_filter_of_ours() {
    let pair = Pair::new();
    pair.primary.line("BF.INSERT k CAPACITY 5 ERROR 0.02 TIGHTENING 0.25 ITEMS a b").unwrap();
    let sent = pair.follow();
    assert!(sent[0].starts_with("BF.RESERVE k 0.02 5 EXPANSION 2 TIGHTENING 0.25 SEED "), "{sent:?}");
    assert_eq!(sent[1..], ["BF.MADD k a b"]);
    assert_eq!(info(&pair.primary, "k", "TIGHTENING"), Ok(Reply::Double(0.25)));
    pair.primary.line("BF.INSERT e VALIDATESCALETO 1000").unwrap();
    assert_eq!(pair.follow().len(), 1);
    assert_eq!(info(&pair.primary, "e", "TIGHTENING"), Ok(Reply::Null));
    // The tightening has no effect in a filter that doesn't grow.
    pair.primary.line("BF.INSERT fixed TIGHTENING 0.25 NONSCALING").unwrap();
    assert!(pair.follow()[0].starts_with("BF.RESERVE fixed 0.01 100 ONFULL ERROR SEED "));
}

/// Refusals of a seed, which the tables in the documents can't contain.
#[test]
fn refusals_are_valkey_blooms() {
    let server = FakeServer::default();
    let large = "ERR the other system has no filters of that size. Choose another capacity or error rate.";
    for (line, seed, expected) in [
        ("BF.INSERT k SEED CAPACITY 70368744177664 ERROR 1e-12", 32, large),
        ("BF.INSERT k SEED NOCREATE ITEMS a", 32, "ERR not found"),
        ("BF.INSERT k SEED ITEMS a", 31, "ERR invalid seed"),
    ] {
        assert_eq!(run(&server, line, &vec![7; seed]).unwrap_err().to_string(), expected, "{line}");
    }
    assert!(server.keys.borrow().is_empty() && server.replicated.borrow().is_empty());
}

/// VALIDATESCALETO is checked for the kind of filter that is created, a native one or valkey-bloom's.
#[test]
fn a_filter_is_created_if_it_can_grow_so_far() {
    const MEMORY: &str = "ERR provided VALIDATESCALETO causes bloom object to exceed memory limit";
    const ERROR_RATE: &str = "ERR provided VALIDATESCALETO causes false positive to degrade to 0";
    let server = FakeServer::default();
    for seeded in ["", " SEED"] {
        let insert = |options: &str| {
            let line = format!("BF.INSERT k{options}{seeded} ITEMS a");
            run(&server, &line, &[7; 32]).map_err(|why| why.to_string())
        };
        server.memory.set(Some(1 << 20));
        assert_eq!(insert(" VALIDATESCALETO 10000000"), Err(MEMORY.to_owned()), "{seeded}");
        assert_eq!(insert(" CAPACITY 10000000 VALIDATESCALETO 1"), Err(MEMORY.to_owned()), "{seeded}");
        assert!(server.keys.borrow().is_empty());
        assert!(insert(" VALIDATESCALETO 100000").is_ok(), "{seeded}");
        // An existing filter isn't checked.
        assert!(insert(" VALIDATESCALETO 10000000").is_ok(), "{seeded}");
        server.keys.borrow_mut().clear();
        server.memory.set(None);
    }
    // Link n is for 100 · 2^n items at an error rate of 0.01 · 1e-200^n, which is too small for n = 2.
    let line = "BF.INSERT k TIGHTENING 1e-200 VALIDATESCALETO";
    assert!(run(&server, &format!("{line} 300 SEED"), &[7; 32]).is_ok());
    server.keys.borrow_mut().clear();
    let refused = run(&server, &format!("{line} 301 SEED"), &[7; 32]).map_err(|why| why.to_string());
    assert_eq!(refused, Err(ERROR_RATE.to_owned()));
    // Our own filters never need error rates that small.
    assert!(server.line(&format!("{line} 3000000")).is_ok());
}

/// For a field that only valkey-bloom has, BF.INFO replies with just the value, as valkey-bloom does. RedisBloom puts
/// its fields in an array or a map.
#[test]
fn fields_that_only_valkey_bloom_has() {
    let server = FakeServer::default();
    server.memory.set(Some(1 << 20));
    server.line("BF.RESERVE table 0.02 1000").unwrap();
    server.line("BF.RESERVE chain 0.02 1000 LAYOUT CLASSIC").unwrap();
    server.line("BF.RESERVE ratio 0.02 1000 TIGHTENING 0.25 EXPANSION 4").unwrap();
    server.line("BF.RESERVE fixed 0.02 1000 NONSCALING").unwrap();
    server.line("BF.RESERVE window 0.02 1000 WINDOW 3").unwrap();
    run(&server, "BF.INSERT valkey CAPACITY 1000 ERROR 0.02 SEED", &[7; 32]).unwrap();
    server.line("BF.RESERVE parquet 0.02 1000 SCHEME SBBF").unwrap();
    server.obeys.set(true);
    server.line("BF.RESERVE redisbloom 0.02 1000 EXPANSION 2").unwrap();
    server.obeys.set(false);
    const REFUSED: &str = "ERR invalid information value";
    let double = |value| Ok(Reply::Double(value));
    for (key, error_rate, tightening) in [
        ("table", double(0.02), Ok(Reply::Null)),
        ("chain", double(0.02), Ok(Reply::Null)),
        ("ratio", double(0.02), double(0.25)),
        ("valkey", double(0.02), double(0.5)),
        ("redisbloom", double(0.02), double(0.5)),
        ("fixed", double(0.02), Err(REFUSED.to_owned())),
        ("window", double(0.02), Err(REFUSED.to_owned())),
        ("parquet", Ok(Reply::Null), Err(REFUSED.to_owned())),
    ] {
        assert_eq!(info(&server, key, "error"), error_rate, "{key}");
        assert_eq!(info(&server, key, "TIGHTENING"), tightening, "{key}");
        let most = info(&server, key, "MAXSCALEDCAPACITY");
        if tightening.is_err() {
            assert_eq!(most, tightening, "{key}");
            continue;
        }
        let Ok(Reply::Integer(most)) = most else { panic!("{key}: {most:?}") };
        // The memory limit is 2^23 bits, some of which a layer may leave unused. Adds make the filter grow to exactly
        // the capacity in the reply.
        assert!((200_000..2_000_000).contains(&most), "{key}: {most}");
        let mut item = 0;
        while server.line(&format!("BF.ADD {key} {item}")).is_ok() {
            item += 1;
        }
        let capacity = info(&server, key, "CAPACITY");
        if key == "table" {
            // How much memory a table needs is estimated.
            let Ok(Reply::Entry(_, Some(capacity))) = capacity else { panic!("{capacity:?}") };
            let ratio = most as f64 / capacity as f64;
            assert!((0.75..1.25).contains(&ratio), "{most} for {capacity}");
            continue;
        }
        assert_eq!(capacity, Ok(Reply::Entry(c"Capacity", Some(most.unsigned_abs()))), "{key}");
        assert_eq!(info(&server, key, "MAXSCALEDCAPACITY"), Ok(Reply::Integer(most)), "{key}");
    }
    assert_eq!(info(&server, "fixed", "COLOR"), Err("Invalid information value".to_owned()));
    assert_eq!(info(&server, "nothing", "ERROR"), Err("ERR not found".to_owned()));
}
