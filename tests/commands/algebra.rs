//! BF.MERGE, BF.INTERSECT and BF.EQUAL without a server: results for every kind of filter, refusals that change
//! nothing, what is replicated, and whether a replica ends up with the same filters.

use super::pair::{Pair, add, dumps, found, must_survive_the_wire};
use crate::support::fake_server::{Content, FakeServer};
use crate::support::golden;
use crate::support::kinds::RESERVE_OPTIONS;
use bloomery::Spec;
use bloomery::filter::Bloom;
use bloomery_commands::{CommandError, Reply};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

pub(super) const OK: Result<Reply, CommandError> = Ok(Reply::Ok);
pub(super) const YES: Result<Reply, CommandError> = Ok(Reply::Bool(true));
pub(super) const NO: Result<Reply, CommandError> = Ok(Reply::Bool(false));
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
pub(super) const LIKE: &str =
    "BF.RESERVE key error_rate capacity LIKE other creates filters that can be combined";

pub(super) fn field(server: &FakeServer, key: &str, name: &str) -> Reply {
    let Ok(Reply::Map(fields)) = server.line(&format!("BF.STATS {key}")) else { panic!() };
    fields.into_iter().find(|(field, _)| *field == name).expect("a field").1
}

/// Options for tables of fixed size.
pub(super) const TABLES: [&str; 3] =
    ["NONSCALING LAYOUT QUOTIENT", "COUNTING NONSCALING", "COUNTING 16 EXPANSION 0 HASH SIPHASH"];

/// Number of items for a filter of capacity 200. A chain with EXPANSION 1 gets enough items to grow.
pub(super) fn items_for(options: &str) -> usize {
    if options.starts_with("EXPANSION 1") { 250 } else { 50 }
}

#[test]
fn a_union_has_the_items_of_all_and_replicas_come_to_the_same() {
    for options in RESERVE_OPTIONS.into_iter().chain(TABLES) {
        let count = items_for(options);
        for workers in [0, 3] {
            let pair = Pair::new();
            let server = &pair.primary;
            server.workers.set(workers);
            server.goes_to_background.set(workers > 0);
            server.line(&format!("BF.RESERVE a 0.0001 200 {options}")).unwrap();
            for key in ["b", "c"] {
                server.line(&format!("BF.RESERVE {key} 0.0001 200 LIKE a")).unwrap();
            }
            ["a", "b", "c"].iter().for_each(|key| add(server, key, key, count));
            pair.follow();
            server.events.take();
            // Merge into an existing filter, and into a missing key.
            assert_eq!(server.line("BF.MERGE a b"), OK, "{options}");
            assert_eq!(server.line("BF.MERGE new a c"), OK);
            assert_eq!(server.events.take(), [c"bf.merge", c"bf.merge"]);
            let sent: Vec<_> = server.replicated.borrow().iter().map(|words| words.join(&b' ')).collect();
            assert_eq!(sent, [&b"BF.MERGE a b"[..], b"BF.MERGE new a c"]);
            pair.follow();
            for (key, prefixes) in [("a", "ab"), ("new", "abc")] {
                for prefix in prefixes.chars() {
                    assert_eq!(found(server, key, &prefix.to_string(), count), count, "{options} {key}");
                }
                // In chains that have grown, more absent items test positive: each layer now has up to three times as
                // many items as it is sized for.
                assert!(found(server, key, "stranger", 1000) < 5 || count > 200, "{options} {key}");
            }
            // The sources are unchanged.
            assert!(found(server, "b", "a", count) < 3 && found(server, "c", "b", count) < 3);
            let Ok(Reply::Integer(items)) = server.line("BF.CARD new") else { panic!() };
            let all = 3 * count as i64;
            assert!((all - all / 20..=all).contains(&items), "{options}: {items}");
            // Adds still work, and a repeated merge changes nothing.
            add(server, "new", "more", 20);
            if !options.starts_with("COUNTING") {
                pair.follow();
                server.events.take();
                assert_eq!(server.line("BF.MERGE new a c c new"), OK);
                assert_eq!(
                    (server.take_replicated(), server.events.take()),
                    (Vec::new(), Vec::new()),
                    "{options}"
                );
            }
            pair.follow();
        }
    }
}

#[test]
fn counters_add_up_and_what_is_full_stays_full() {
    let server = FakeServer::default();
    server.line("BF.RESERVE a 0.001 100 COUNTING").unwrap();
    server.line("BF.RESERVE b 0.001 100 LIKE a").unwrap();
    for (key, item, count) in [("a", "x", 3), ("b", "x", 4), ("a", "much", 9), ("b", "much", 8)] {
        (0..count).for_each(|_| drop(server.line(&format!("BF.ADD {key} {item}")).unwrap()));
    }
    assert_eq!(server.line("BF.MERGE a b"), OK);
    assert_eq!(server.line("BF.COUNT a x"), Ok(Reply::Integer(7)));
    assert_eq!(server.line("BF.COUNT a much"), Ok(Reply::Integer(15)));
    server.line("BF.DEL a much").unwrap();
    assert_eq!(server.line("BF.COUNT a much"), Ok(Reply::Integer(15)), "15 + more is not known any more");
    let before = dumps(&server);
    for line in ["BF.MERGE a a", "BF.MERGE a b b", "BF.MERGE a b a", "BF.MERGE new b b"] {
        let refusal = "ERR a counting filter would be counted twice; name each key once";
        assert_eq!(server.text(line), refusal, "{line}");
    }
    assert_eq!(dumps(&server), before);
}

#[test]
fn layers_of_another_shape_go_into_the_chain_and_adds_go_on_where_they_did() {
    let pair = Pair::new();
    let server = &pair.primary;
    for (key, options) in [
        ("young", "0.001 1000 SEED 5 LAYOUT CLASSIC"),
        ("grown", "0.0001 20 SEED 5 LAYOUT CLASSIC"),
        ("fixed", "0.0001 300 NONSCALING LAYOUT CLASSIC SEED 5"),
        ("empty", "0.01 7 SEED 5"),
    ] {
        server.line(&format!("BF.RESERVE {key} {options}")).unwrap();
    }
    add(server, "young", "y", 100);
    add(server, "grown", "g", 500);
    add(server, "fixed", "f", 300);
    let Reply::Integer(layers) = field(server, "grown", "Number of filters") else { panic!() };
    assert!(layers > 3);
    assert_eq!(server.line("BF.MERGE young grown fixed empty"), OK);
    assert_eq!(
        field(server, "young", "Number of filters"),
        Reply::Integer(layers + 2),
        "none for the empty one"
    );
    assert_eq!(server.line("BF.INFO young ITEMS"), Ok(Reply::Entry(c"Number of items inserted", Some(900))));
    pair.follow();
    // Repeat the merge, as a client that didn't get the reply would.
    assert_eq!(server.line("BF.MERGE young grown fixed empty"), OK);
    assert_eq!(
        (field(server, "young", "Number of filters"), server.take_replicated()),
        (Reply::Integer(layers + 2), Vec::new())
    );
    for (prefix, count) in [("y", 100), ("g", 500), ("f", 300)] {
        assert_eq!(found(server, "young", prefix, count), count);
    }
    // Adds go to the layer with room until it holds a thousand items, its capacity. Then the chain grows by a layer
    // with twice that capacity.
    add(server, "young", "more", 890);
    assert_eq!(field(server, "young", "Number of filters"), Reply::Integer(layers + 2));
    add(server, "young", "even", 50);
    let Reply::Array(all) = field(server, "young", "Layers") else { panic!() };
    let Some(Reply::Map(newest)) = all.last() else { panic!() };
    assert!(newest.contains(&("Capacity", Reply::Integer(2000))), "{newest:?}");
    pair.follow();
    // The wire form keeps all layers, although the first one came from another filter.
    must_survive_the_wire(server, "young");
}

#[test]
fn windows_merge_generation_by_generation() {
    let pair = Pair::new();
    let server = &pair.primary;
    server.now_ms.set(1_000);
    server.line("BF.RESERVE a 0.0001 100 WINDOW 3 EVERY 1000 SINCE 1000").unwrap();
    for key in ["b", "idle", "c"] {
        server.line(&format!("BF.RESERVE {key} 0.0001 100 LIKE a")).unwrap();
    }
    for (now, adds) in [(1_000, "a:a0 b:b0 idle:i0"), (2_000, "b:b1 idle:i1"), (3_000, "b:b2")] {
        server.now_ms.set(now);
        for (key, item) in adds.split(' ').filter_map(|add| add.split_once(':')) {
            server.line(&format!("BF.ADD {key} {item}")).unwrap();
        }
    }
    // `a` is at generation 0, and rotates first. `idle` is at generation 1, but is read as if it were at generation 3.
    server.now_ms.set(4_000);
    pair.follow();
    assert_eq!(server.line("BF.MERGE a b idle"), OK);
    assert_eq!(
        server.replicated.borrow().iter().map(|words| words.join(&b' ')).collect::<Vec<_>>(),
        [&b"BF.ROTATE a AT 3"[..], b"BF.MERGE a b idle"]
    );
    for (item, age) in [("a0", -1), ("b0", -1), ("i0", -1), ("b1", 2), ("i1", 2), ("b2", 1)] {
        assert_eq!(server.line(&format!("BF.AGE a {item}")), Ok(Reply::Integer(age)), "{item}");
    }
    pair.follow();
    // A new destination begins at the generation of the newest source.
    assert_eq!(server.line("BF.MERGE new idle a"), OK);
    assert_eq!(server.line("BF.AGE new b2"), Ok(Reply::Integer(1)));
    pair.follow();
    // A manual rotation ages only the items of the filter that is rotated.
    for item in ["c0", "c1"] {
        server.line(&format!("BF.ADD c {item}")).unwrap();
        server.line("BF.ROTATE c").unwrap();
    }
    assert_eq!(server.line("BF.MERGE b a c"), OK);
    for (item, age) in [("b1", 2), ("i1", 2), ("b2", 1), ("c0", 2), ("c1", 1)] {
        assert_eq!(server.line(&format!("BF.AGE b {item}")), Ok(Reply::Integer(age)), "{item}");
    }
    pair.follow();
}

#[test]
fn an_intersection_keeps_the_common_items_and_replaces_the_destination() {
    let combines = |options: &&str| !options.contains("WINDOW");
    for options in RESERVE_OPTIONS.into_iter().filter(combines) {
        let pair = Pair::new();
        let server = &pair.primary;
        server.workers.set(2);
        server.line(&format!("BF.RESERVE a 0.0001 200 {options}")).unwrap();
        for key in ["b", "c"] {
            server.line(&format!("BF.RESERVE {key} 0.0001 200 LIKE a")).unwrap();
        }
        for key in ["a", "b", "c"] {
            add(server, key, "common", 50);
            add(server, key, key, 50);
        }
        server.line("BF.RESERVE other 0.01 10 SEED 1").unwrap();
        pair.follow();
        server.events.take();
        for line in ["BF.INTERSECT other a b c", "BF.INTERSECT b b a", "BF.INTERSECT new c c"] {
            assert_eq!(server.line(line), OK);
            assert_eq!(server.replicated.borrow().last().unwrap().join(&b' '), line.as_bytes());
        }
        assert_eq!(server.events.take(), [c"bf.intersect"; 3]);
        pair.follow();
        for (key, own) in [("other", 0), ("b", 0), ("new", 50)] {
            assert_eq!(found(server, key, "common", 50), 50, "{options} {key}");
            let c = found(server, key, "c", 50) + found(server, key, "b", 50);
            assert!((own..own + 4).contains(&c), "{options} {key} {c}");
        }
        assert_eq!(server.line("BF.EQUAL new c"), YES);
        assert_eq!(server.line("BF.EQUAL other c"), NO);
    }
}

#[test]
fn counters_of_an_intersection_are_the_smaller_ones() {
    let server = FakeServer::default();
    server.line("BF.RESERVE a 0.001 100 COUNTING").unwrap();
    server.line("BF.RESERVE b 0.001 100 LIKE a").unwrap();
    for (key, count) in [("a", 9), ("b", 4)] {
        (0..count).for_each(|_| drop(server.line(&format!("BF.ADD {key} x")).unwrap()));
    }
    assert_eq!(server.line("BF.INTERSECT a a b"), OK);
    assert_eq!(server.line("BF.COUNT a x"), Ok(Reply::Integer(4)));
}

#[test]
fn equal_is_what_answers_alike() {
    let server = FakeServer::default();
    for options in RESERVE_OPTIONS {
        let count = items_for(options);
        server.line(&format!("BF.RESERVE a 0.001 200 {options}")).unwrap();
        server.line("BF.RESERVE b 0.001 200 LIKE a").unwrap();
        assert_eq!(server.line("BF.EQUAL a b"), YES, "{options}");
        add(&server, "a", "i", count);
        assert_eq!(server.line("BF.EQUAL a b"), NO, "{options}");
        add(&server, "b", "i", count);
        assert_eq!(server.line("BF.EQUAL a b"), YES, "{options}");
        assert_eq!(server.line("BF.EQUAL a a"), YES);
        server.keys.take();
    }
    for (a, b, equal) in [
        ("0.01 100 SEED 1", "0.01 100 SEED 2", NO),
        ("0.01 100 SEED 1", "0.01 100 SEED 1 HASH SIPHASH", NO),
        ("0.01 100 SEED 1", "0.01 100 SEED 1 COUNTING", NO),
        ("0.01 100 SEED 1", "0.01 100 SEED 1 NONSCALING", NO),
        ("0.01 100 SEED 1", "0.01 900 SEED 1", NO),
        ("0.01 100 SEED 1 WINDOW 2", "0.01 100 SEED 1 WINDOW 3", NO),
        // These two differ only in what an add does when the filter is full, which doesn't affect answers.
        ("0.01 100 SEED 1 NONSCALING", "0.01 100 SEED 1 ONFULL SATURATE", YES),
    ] {
        server.line(&format!("BF.RESERVE a {a}")).unwrap();
        server.line(&format!("BF.RESERVE b {b}")).unwrap();
        assert_eq!(server.line("BF.EQUAL a b"), equal, "{a}, {b}");
        server.keys.take();
    }
    // In windows that rotate by the clock, expired items don't count, even if no write has dropped them yet.
    server.line("BF.RESERVE a 0.001 200 WINDOW 2 EVERY 10").unwrap();
    server.line("BF.RESERVE b 0.001 200 LIKE a").unwrap();
    server.line("BF.ADD a old").unwrap();
    server.now_ms.set(10);
    assert_eq!(server.line("BF.EQUAL a b"), NO);
    server.now_ms.set(20);
    assert_eq!(server.line("BF.EQUAL a b"), YES);
    server.line("BF.ADD b new").unwrap();
    assert_eq!(server.line("BF.EQUAL a b"), NO);
    assert_eq!(server.take_replicated().pop().as_deref(), Some("BF.ADD b new"), "a read replicates nothing");
}

#[test]
fn other_systems_filters_merge_with_their_like() {
    for (recipe, _) in golden::FOREIGN {
        let pair = Pair::new();
        for server in [&pair.primary, &pair.replica] {
            server.put("a", golden::foreign(recipe));
            server.put("b", golden::foreign(recipe));
        }
        let server = &pair.primary;
        assert_eq!(server.line("BF.EQUAL a b"), YES, "{recipe}");
        let number = matches!(golden::foreign(recipe).encoding() as u8, 2 | 3);
        let item = |item: u32| if number { item.to_string() } else { format!("merged{item}") };
        // At most three new items, which fit without a new link.
        let mut new = Vec::new();
        for number in 0..3 {
            let links = field(server, "b", "Number of filters");
            let before = server.copy("b");
            let _ = server.line(&format!("BF.ADD b {}", item(1000 + number)));
            if field(server, "b", "Number of filters") != links {
                server.put("b", before);
                break;
            }
            new.push(item(1000 + number));
        }
        server.take_replicated();
        pair.replica.put("b", server.copy("b"));
        let (Ok(Reply::Integer(mine)), Ok(Reply::Integer(theirs))) =
            (server.line("BF.CARD a"), server.line("BF.CARD b"))
        else {
            panic!()
        };
        assert_eq!(server.line("BF.MERGE a b"), OK, "{recipe}");
        assert_eq!(server.line("BF.MERGE new b a"), OK);
        for item in &new {
            assert_eq!(server.line(&format!("BF.EXISTS a {item}")), YES);
        }
        assert_eq!(server.line("BF.EQUAL a b"), YES, "{recipe}: the one was a part of the other");
        assert_eq!(server.line("BF.EQUAL a new"), YES);
        let Ok(Reply::Integer(items)) = server.line("BF.CARD a") else { panic!() };
        assert!((mine.max(theirs)..=mine + theirs).contains(&items), "{recipe}: {items}");
        pair.follow();
        // The union is validated like a filter from the original system: valkey-bloom's last link never has more items
        // than its capacity.
        must_survive_the_wire(server, "a");
    }
}

/// A merge doesn't raise a link's number of items above its capacity. The original systems would refuse to load such a
/// link, or would be unable to grow the filter.
#[test]
fn links_that_are_full_are_no_fuller_by_a_merge() {
    for recipe in ["foreign-valkey", "foreign-redisbloom"] {
        let server = FakeServer::default();
        for key in ["a", "b"] {
            server.put(key, golden::foreign(recipe));
            let links = field(&server, key, "Number of filters");
            for item in 0.. {
                let before = server.copy(key);
                server.line(&format!("BF.ADD {key} {key}{item}")).unwrap();
                if field(&server, key, "Number of filters") != links {
                    server.put(key, before);
                    break;
                }
            }
        }
        let links = field(&server, "a", "Number of filters");
        let items = server.line("BF.CARD a");
        assert_eq!(server.line("BF.MERGE a b"), OK);
        assert_eq!(server.line("BF.CARD a"), items, "{recipe}: each link was full, and is");
        must_survive_the_wire(&server, "a");
        server.line("BF.ADD a next").unwrap();
        assert_ne!(field(&server, "a", "Number of filters"), links);
    }
}

/// Some of the [strangers](strangers), and how each differs from the plain filter.
pub(super) const UNLIKE: [(&str, &str); 6] = [
    ("seed", "seed"),
    ("hash", "hash"),
    ("shards", "number of shards"),
    ("large", "shape"),
    ("scaling", "kind"),
    ("counting", "cell width"),
];

/// Stores `plain`, and keys of many kinds that can't be merged into it.
pub(super) fn strangers(server: &FakeServer) {
    server.put("text", Content::Other);
    for line in [
        "BF.RESERVE plain 0.01 100 SEED 1 NONSCALING",
        "BF.RESERVE seed 0.01 100 SEED 2 NONSCALING",
        "BF.RESERVE hash 0.01 100 SEED 1 HASH SIPHASH NONSCALING",
        "BF.RESERVE shards 0.01 100 SEED 1 SHARDS 2 NONSCALING",
        "BF.RESERVE large 0.01 1000 SEED 1 NONSCALING",
        "BF.RESERVE scaling 0.01 100 SEED 1",
        "BF.RESERVE grown 0.01 3 SEED 1",
        "BF.RESERVE counting 0.01 100 SEED 1 COUNTING LAYOUT CLASSIC",
        "BF.RESERVE counting8 0.01 100 SEED 1 COUNTING 8 LAYOUT CLASSIC",
        "BF.RESERVE window 0.01 100 SEED 1 WINDOW 2",
        "BF.RESERVE window3 0.01 100 SEED 1 WINDOW 3",
        "BF.RESERVE every 0.01 100 SEED 1 WINDOW 2 EVERY 1000 SINCE 5",
        "BF.RESERVE since 0.01 100 SEED 1 WINDOW 2 EVERY 1000 SINCE 6",
        "CF.RESERVE cuckoo 100",
    ] {
        server.line(line).unwrap();
    }
    add(server, "grown", "g", 10);
    add(server, "plain", "p", 10);
    server.put("guava", golden::foreign("foreign-guava"));
    server.put("gozero", golden::foreign("foreign-go-zero"));
}

#[test]
fn a_refused_command_changes_nothing() {
    let server = FakeServer::default();
    strangers(&server);
    let before = dumps(&server);
    server.take_replicated();
    server.events.take();
    let unlike = |key: &str, what: &str| format!("ERR the filter in '{key}' has a different {what}; {LIKE}");
    let several = |key: &str| {
        format!(
            "ERR the filter in '{key}' is a window or has grown, so its layers do not correspond to those of another \
             filter, and an intersection would lose items"
        )
    };
    let arity = "ERR wrong number of arguments".to_owned();
    let mut cases = vec![
        ("BF.MERGE plain".to_owned(), arity.clone()),
        ("BF.INTERSECT plain plain".to_owned(), arity.clone()),
        ("BF.EQUAL plain".to_owned(), arity),
        ("BF.MERGE scaling guava".into(), unlike("guava", "origin")),
        ("BF.MERGE guava gozero".into(), unlike("gozero", "origin")),
        ("BF.MERGE counting counting8".into(), unlike("counting8", "cell width")),
        ("BF.MERGE window window3".into(), unlike("window3", "shape")),
        ("BF.MERGE window every".into(), unlike("every", "schedule")),
        ("BF.MERGE every since".into(), unlike("since", "schedule")),
        ("BF.MERGE scaling counting".into(), unlike("counting", "cell width")),
        ("BF.MERGE scaling window".into(), unlike("window", "kind")),
        ("BF.MERGE scaling seed".into(), unlike("seed", "seed")),
        ("BF.MERGE scaling shards".into(), unlike("shards", "number of shards")),
        ("BF.MERGE missing missing".into(), "ERR not found".into()),
        ("BF.MERGE missing plain missing".into(), "ERR not found".into()),
        ("BF.INTERSECT plain window window".into(), several("window")),
        ("BF.INTERSECT plain plain grown".into(), several("grown")),
        (
            "BF.INTERSECT plain guava guava".into(),
            "ERR the command needs one of Bloomery's own filters, and this one came from another system. If you have \
             its items, BF.REBUILD key BEGIN converts it".into(),
        ),
        ("BF.INTERSECT missing plain missing".into(), "ERR not found".into()),
        ("BF.EQUAL plain missing".into(), "ERR not found".into()),
        ("BF.EQUAL missing plain".into(), "ERR not found".into()),
    ];
    for (key, what) in UNLIKE {
        for line in [
            format!("BF.MERGE plain {key}"),
            format!("BF.MERGE missing plain {key}"),
            format!("BF.INTERSECT plain plain {key}"),
            format!("BF.INTERSECT missing plain {key}"),
        ] {
            cases.push((line, unlike(key, what)));
        }
        // Earlier sources aren't merged either.
        cases.push((format!("BF.MERGE plain plain2 {key}"), unlike(key, what)));
    }
    for key in ["cuckoo", "text"] {
        for line in
            ["MERGE plain {}", "MERGE {} plain", "MERGE missing plain {}", "EQUAL plain {}", "EQUAL {} plain"]
        {
            cases.push((format!("BF.{}", line.replace("{}", key)), WRONG_TYPE.into()));
        }
        for line in ["INTERSECT {} plain plain", "INTERSECT plain plain {}", "INTERSECT missing {} plain"] {
            cases.push((format!("BF.{}", line.replace("{}", key)), WRONG_TYPE.into()));
        }
    }
    server.line("BF.RESERVE plain2 0.01 100 LIKE plain").unwrap();
    add(&server, "plain2", "other", 10);
    let before = [before, vec![("plain2".to_owned(), server.dump("plain2"))]].concat();
    let sorted = |mut dumps: Vec<(String, Vec<u8>)>| {
        dumps.sort();
        dumps
    };
    server.take_replicated();
    server.events.take();
    for (line, error) in cases {
        assert_eq!(server.text(&line), error, "{line}");
        assert_eq!((server.take_replicated(), server.events.take()), (Vec::new(), Vec::new()), "{line}");
        assert!(sorted(dumps(&server)) == sorted(before.clone()), "{line}");
    }
    assert!(!server.keys.borrow().contains_key(&b"missing"[..]));
    for key in server.keys.borrow().keys() {
        let words: [&[u8]; 3] = [b"BF.EQUAL", b"plain", key];
        if !matches!(&key[..], b"cuckoo" | b"text" | b"plain") {
            assert_eq!(server.run(&words), NO, "{}", String::from_utf8_lossy(key));
        }
    }
}

#[test]
fn memory_is_asked_for_before_anything_changes() {
    let server = FakeServer::default();
    server.line("BF.RESERVE chain 0.01 100 SEED 1").unwrap();
    server.line("BF.RESERVE alike 0.01 100 SEED 1").unwrap();
    server.line("BF.RESERVE large 0.01 5000 SEED 1").unwrap();
    ["chain", "alike", "large"].iter().for_each(|key| add(&server, key, key, 10));
    let before = dumps(&server);
    server.take_replicated();
    server.memory.set(Some(2000));
    for line in ["BF.MERGE chain alike large", "BF.MERGE new large", "BF.INTERSECT chain large large"] {
        assert!(
            server.text(line).starts_with("ERR Insufficient memory to create filter: it needs"),
            "{line}"
        );
        assert_eq!((dumps(&server), server.take_replicated()), (before.clone(), Vec::new()), "{line}");
    }
    // A merge that needs no memory doesn't ask for any, and neither does any merge on a replica.
    server.memory.set(Some(1));
    assert_eq!(server.line("BF.MERGE chain alike"), OK);
    server.obeys.set(true);
    assert_eq!(server.line("BF.MERGE chain large"), OK);
    assert_eq!(found(&server, "chain", "large", 10), 10);
}

/// Stores single-layer filters with different capacities and one item each, and returns their keys. Only merging such
/// filters gives a chain thousands of layers, because no chain grows that far by itself.
fn single_layers(server: &FakeServer, capacities: std::ops::Range<u64>) -> String {
    let keys = capacities.map(|capacity| {
        let mut filter = Bloom::new(Spec::fixed(capacity, 0.01)).unwrap();
        filter.add(filter.hash(capacity.to_le_bytes())).unwrap();
        server.put(&format!("of:{capacity}"), filter);
        format!("of:{capacity}")
    });
    keys.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_chain_takes_no_more_layers_than_it_may_have() {
    let server = FakeServer::default();
    server.put("a", Bloom::new(Spec::scaling(5000, 0.01)).unwrap());
    for first in (1..4096).step_by(15) {
        assert_eq!(server.line(&format!("BF.MERGE a {}", single_layers(&server, first..first + 15))), OK);
    }
    let (last, others) = (single_layers(&server, 4096..4098), single_layers(&server, 5000..5300));
    let before = dumps(&server);
    for line in [format!("BF.MERGE a {last}"), format!("BF.MERGE new a {last}")] {
        assert_eq!(server.text(&line), "ERR the filter has grown as often as it may");
    }
    // The sources have more layers than one command may compare.
    for line in [format!("BF.MERGE a {others}"), format!("BF.MERGE new a {others}")] {
        assert!(
            server.text(&line).starts_with("ERR the filters have too many layers to merge all"),
            "{line}"
        );
    }
    assert!(dumps(&server) == before);
}

/// Random merges of chains of different lengths and a filter of fixed size: no added item is ever missing, and the
/// replica ends up with the same filters.
#[test]
fn no_item_is_ever_missed() {
    for seed in 0..30 {
        let mut random = SmallRng::seed_from_u64(seed);
        let pair = Pair::new();
        let server = &pair.primary;
        for (key, reserve) in [
            ("a", "0.01 10 SEED 1"),
            ("b", "0.01 10 SEED 1"),
            ("c", "0.001 35 SEED 1 EXPANSION 1"),
            ("d", "0.01 400 SEED 1 LAYOUT CLASSIC"),
            ("e", "0.02 60 SEED 1 ONFULL SATURATE"),
        ] {
            server.line(&format!("BF.RESERVE {key} {reserve}")).unwrap();
        }
        let keys = ["a", "b", "c", "d", "e"];
        let mut members = vec![Vec::<u32>::new(); keys.len()];
        for _ in 0..60 {
            let (to, from) = (random.random_range(0..keys.len()), random.random_range(0..keys.len()));
            if random.random_range(0..4) > 0 {
                for _ in 0..random.random_range(1..15) {
                    let item = random.random_range(0..5000);
                    server.line(&format!("BF.ADD {} {item}", keys[to])).unwrap();
                    members[to].push(item);
                }
            } else if server.line(&format!("BF.MERGE {} {}", keys[to], keys[from])) == OK {
                let more = members[from].clone();
                members[to].extend(more);
            } else {
                assert_eq!(keys[to], "e", "only the one of fixed size takes no layers");
            }
            for (key, members) in keys.iter().zip(&members) {
                for item in members {
                    assert_eq!(
                        server.line(&format!("BF.EXISTS {key} {item}")),
                        YES,
                        "seed {seed}: {key} {item}"
                    );
                }
            }
        }
        pair.follow();
    }
}

/// The number of items that BF.CARD reports.
fn card(server: &FakeServer, key: &str) -> i64 {
    let Ok(Reply::Integer(items)) = server.line(&format!("BF.CARD {key}")) else { panic!() };
    items
}

/// If growing sources are merged repeatedly, the destination updates the layers that it got from them, instead of
/// adding them again. Two sources of the same shape don't replace each other's layers.
#[test]
fn repeated_merges_of_growing_sources_stay_as_small_as_the_sources() {
    let pair = Pair::new();
    let server = &pair.primary;
    server.line("BF.RESERVE a 0.001 50 SEED 1 LAYOUT CLASSIC").unwrap();
    server.line("BF.RESERVE b 0.001 50 SEED 1 LAYOUT CLASSIC").unwrap();
    server.line("BF.RESERVE sum 0.01 900 SEED 1 LAYOUT CLASSIC").unwrap();
    for round in 0..120 {
        for item in 0..7 {
            server.line(&format!("BF.ADD a a{round}/{item}")).unwrap();
            server.line(&format!("BF.ADD b b{}/{item}", round % 60)).unwrap();
        }
        assert_eq!(server.line("BF.MERGE sum a"), OK);
        assert_eq!(server.line("BF.MERGE sum b"), OK);
        let layers = |key| match field(server, key, "Number of filters") {
            Reply::Integer(layers) => layers,
            other => panic!("{other:?}"),
        };
        assert!(layers("sum") <= layers("a") + layers("b") + 1, "{round}: {}", layers("sum"));
        assert_eq!(card(server, "sum"), card(server, "a") + card(server, "b"), "{round}");
    }
    for round in 0..120 {
        for item in 0..7 {
            assert_eq!(server.line(&format!("BF.EXISTS sum a{round}/{item}")), YES);
            assert_eq!(server.line(&format!("BF.EXISTS sum b{}/{item}", round % 60)), YES);
        }
    }
    assert!(found(server, "sum", "stranger", 2000) < 60);
    pair.follow();
}

/// An item has different cells in a different layout, even if the layers have the same size and number of probes.
#[test]
fn layers_of_other_layouts_are_not_combined() {
    let server = FakeServer::default();
    for layout in ["CLASSIC", "PARTITIONED"] {
        let options = format!("NONSCALING SHARDS 16 SEED 7 LAYOUT {layout}");
        server.line(&format!("BF.RESERVE {layout} 0.01 100000 {options}")).unwrap();
        server.line(&format!("BF.ADD {layout} ada")).unwrap();
    }
    let size =
        |key: &str| [server.line(&format!("BF.INFO {key} SIZE")), server.line(&format!("BF.DEBUG {key}"))];
    assert_eq!(size("CLASSIC"), size("PARTITIONED"), "this shows nothing if the sizes differ");
    for command in ["BF.MERGE both", "BF.INTERSECT both", "BF.EQUAL"] {
        let answer = server.line(&format!("{command} CLASSIC PARTITIONED"));
        assert!(answer.is_err() || answer == Ok(Reply::Bool(false)), "{command}: {answer:?}");
    }
    server.line("BF.RESERVE chain 0.01 100 EXPANSION 2 LAYOUT CLASSIC SEED 7 SHARDS 16").unwrap();
    // A chain can hold layers of any layout.
    server.line("BF.RESERVE other 0.01 100000 EXPANSION 2 LAYOUT PARTITIONED SEED 7 SHARDS 16").unwrap();
    add(&server, "other", "x", 200);
    assert_eq!(server.line("BF.MERGE chain other"), OK);
    assert_eq!(found(&server, "chain", "x", 200), 200);
}

/// The estimated number of common items is off by less than 45, whatever the overlap, the layout or the cell width.
#[test]
fn an_intersection_says_how_many_items_are_common() {
    for options in [
        "NONSCALING",
        "NONSCALING LAYOUT CLASSIC SHARDS 4",
        "NONSCALING LAYOUT PARTITIONED SHARDS 2",
        "COUNTING",
        "COUNTING 8 LAYOUT BLOCKED",
        "COUNTING LAYOUT PARTITIONED",
    ] {
        for common in [0, 1, 50, 500, 999, 1000] {
            let server = FakeServer::default();
            server.line(&format!("BF.RESERVE a 0.01 1000 SEED 5 {options}")).unwrap();
            for key in ["b", "c"] {
                server.line(&format!("BF.RESERVE {key} 0.01 1000 LIKE a")).unwrap();
            }
            add(&server, "a", "common", common);
            add(&server, "b", "common", common);
            add(&server, "a", "a", 1000 - common);
            add(&server, "b", "b", 1000 - common);
            add(&server, "c", "common", common.min(100));
            assert_eq!(server.line("BF.INTERSECT both a b"), OK);
            let most = card(&server, "a").min(card(&server, "b"));
            let items = card(&server, "both");
            assert!(items <= most && (items - common as i64).abs() < 45, "{options}: {items} of {common}");
            assert_eq!(server.line("BF.INTERSECT three a b c"), OK);
            let (items, most) = (card(&server, "three"), card(&server, "c"));
            assert!(items <= most && (items - most).abs() < 45, "{options}: {items} of {most}");
            // Nothing is estimated if a filter is combined with itself or with a part of itself.
            assert_eq!(server.line("BF.INTERSECT same a a"), OK);
            assert_eq!(card(&server, "same"), card(&server, "a"));
            assert_eq!(server.line("BF.INTERSECT part c c both"), OK);
            assert!(card(&server, "part") <= card(&server, "both").min(card(&server, "c")));
        }
    }
}
