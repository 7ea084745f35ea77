//! Static filters in commands: built by BF.REBUILD from a list, the same on a replica, tested like any other filter,
//! and never added to.

use super::pair::{Pair, add, found};
use crate::support::fake_server::FakeServer;
use bloomery_commands::{CommandError, Reply};

const OK: Result<Reply, CommandError> = Ok(Reply::Ok);
/// The layouts of static filters.
const LAYOUTS: [&str; 2] = ["FUSE", "RIBBON"];
const NO_ADDS: &str = "ERR a static filter accepts no adds. Build it again with them: BF.REBUILD key BEGIN, then ADD all items and COMMIT";

fn full(server: &FakeServer, key: &str, name: &str) -> Reply {
    let Ok(Reply::Map(fields)) = server.line(&format!("BF.STATS {key}")) else { panic!() };
    fields.into_iter().find(|(field, _)| *field == name).map_or(Reply::Null, |(_, value)| value)
}

fn backfill(server: &FakeServer, key: &str, prefix: &str, count: usize) {
    let items: Vec<String> = (0..count).map(|item| format!("{prefix}{item}")).collect();
    assert_eq!(server.line(&format!("BF.REBUILD {key} ADD {}", items.join(" "))), OK);
}

/// Puts a static filter with the items `old0` to `old99` into `k`.
fn built(pair: &Pair, layout: &str) {
    let server = &pair.primary;
    assert_eq!(server.line(&format!("BF.REBUILD k BEGIN ERROR 1e-9 LAYOUT {layout}")), OK);
    backfill(server, "k", "old", 100);
    assert_eq!(server.line("BF.REBUILD k COMMIT"), OK);
    pair.follow();
    server.events.take();
}

#[test]
fn an_empty_key_gets_one_and_a_replica_has_the_same() {
    for (layout, background) in LAYOUTS.into_iter().flat_map(|layout| [(layout, false), (layout, true)]) {
        let pair = Pair::new();
        let server = &pair.primary;
        server.goes_to_background.set(background);
        let begin = format!("BF.REBUILD k BEGIN ERROR 1e-9 LAYOUT {layout} HASH SIPHASH CAPACITY 7");
        assert_eq!(server.line(&begin), OK);
        let sent = pair.follow();
        let expected = format!(
            "BF.REBUILD k BEGIN ERROR 0.000000001 CAPACITY 7 SHARDS 1 LAYOUT {layout} HASH SIPHASH SEED "
        );
        assert!(sent.len() == 1 && sent[0].starts_with(&expected), "{sent:?}");
        assert_eq!(found(server, "k", "old", 100), 0, "until it is built, the filter is empty");
        backfill(server, "k", "old", 60);
        backfill(server, "k", "old", 100);
        pair.follow();
        assert_eq!(server.line("BF.REBUILD k COMMIT"), OK);
        assert_eq!(pair.follow(), ["BF.REBUILD k COMMIT"]);
        assert_eq!(server.events.take().last(), Some(&c"bf.rebuild.commit"));
        assert_eq!((found(server, "k", "old", 100), found(server, "k", "new", 100)), (100, 0));
        for (field, value) in [
            ("Kind", Reply::from("static")),
            ("Layout", Reply::from(layout)),
            ("On full", Reply::Null),
            ("Capacity", Reply::Integer(100)),
            ("Number of items inserted", Reply::Integer(100)),
            ("Approximate number of items", Reply::Integer(100)),
            ("Bits per cell", Reply::Integer(30)),
            ("Advice", Reply::Array(Vec::new())),
            ("Rebuild", Reply::Null),
        ] {
            assert_eq!(full(server, "k", field), value, "{field}");
        }
    }
}

#[test]
fn adds_are_refused_and_change_nothing() {
    LAYOUTS.into_iter().for_each(adds_change_nothing);
}

fn adds_change_nothing(layout: &str) {
    let pair = Pair::new();
    let server = &pair.primary;
    built(&pair, layout);
    let before = server.dump("k");
    for line in ["BF.ADD k new", "BF.ADDNX k new", "BF.BULKADD k FIXED 3 new"] {
        assert!(server.text(line).starts_with(NO_ADDS), "{line}: {}", server.text(line));
    }
    for line in ["BF.MADD k old1 new", "BF.INSERT k ITEMS old1 new"] {
        let Ok(Reply::Answers(answers)) = server.line(line) else { panic!("{line}") };
        assert_eq!(answers.error.map(|why| why.to_string()).as_deref(), Some(NO_ADDS), "{line}");
    }
    assert_eq!(server.line("BF.ADD k old1"), Ok(Reply::Bool(false)), "what it has is no news");
    for line in ["BF.DEL k old1", "BF.MERGE k k", "BF.MERGE other k", "BF.INTERSECT k k"] {
        if line != "BF.MERGE other k" {
            assert!(server.line(line).is_err() || server.dump("k") == before, "{line}");
        }
    }
    assert!(server.take_replicated().is_empty() && server.dump("k") == before);
}

#[test]
fn a_rebuild_of_one_gives_another_unless_it_says_otherwise() {
    let pair = Pair::new();
    let server = &pair.primary;
    built(&pair, "RIBBON");
    assert_eq!(server.line("BF.REBUILD k BEGIN"), OK);
    assert_eq!(found(server, "k", "old", 100), 100, "the live filter answers");
    assert_eq!(server.text("BF.ADD k new0"), NO_ADDS, "the live filter takes none");
    backfill(server, "k", "new", 50);
    server.line("BF.REBUILD k COMMIT").unwrap();
    pair.follow();
    assert_eq!((found(server, "k", "new", 50), found(server, "k", "old", 100)), (50, 0));
    assert_eq!(
        (full(server, "k", "Kind"), full(server, "k", "Layout"), full(server, "k", "Error rate")),
        ("static".into(), "RIBBON".into(), Reply::Double(1e-9))
    );
    // The static filter is rebuilt into a counting one.
    server.line("BF.REBUILD k BEGIN COUNTING CAPACITY 1000").unwrap();
    backfill(server, "k", "new", 50);
    server.line("BF.REBUILD k COMMIT").unwrap();
    pair.follow();
    assert_eq!(full(server, "k", "Kind"), "counting".into());
    // The counting filter is rebuilt into a static one. Items added in the meantime go to both filters.
    server.line("BF.REBUILD k BEGIN LAYOUT FUSE").unwrap();
    add(server, "k", "old", 30);
    backfill(server, "k", "new", 50);
    pair.follow();
    server.line("BF.REBUILD k COMMIT").unwrap();
    pair.follow();
    assert_eq!((found(server, "k", "new", 50), found(server, "k", "old", 100)), (50, 30));
    // ABORT keeps the live filter, and BF.CLEAR empties both filters.
    server.line("BF.REBUILD k BEGIN").unwrap();
    backfill(server, "k", "x", 3);
    server.line("BF.REBUILD k ABORT").unwrap();
    assert_eq!(found(server, "k", "new", 50), 50);
    server.line("BF.REBUILD k BEGIN").unwrap();
    backfill(server, "k", "x", 3);
    server.line("BF.CLEAR k").unwrap();
    assert_eq!(found(server, "k", "new", 50), 0);
    server.line("BF.REBUILD k COMMIT").unwrap();
    assert_eq!(
        (found(server, "k", "x", 3), full(server, "k", "Number of items inserted")),
        (0, Reply::Integer(0))
    );
    pair.follow();
}

/// While a worker builds the filter, its key may get another filter, or its list may get more items. In both cases,
/// COMMIT is refused.
#[test]
fn a_commit_that_would_lose_items_is_refused() {
    for more in [false, true] {
        let pair = Pair::new();
        let server = &pair.primary;
        server.goes_to_background.set(true);
        // At this error rate no absent item tests positive.
        server.line("BF.REBUILD k BEGIN LAYOUT FUSE ERROR 0.000001").unwrap();
        backfill(server, "k", "a", 50);
        pair.follow();
        server.meanwhile.replace(Some(Box::new(move |server: &FakeServer| {
            if more {
                backfill(server, "k", "late", 1);
            } else {
                let copy = server.copy("k");
                server.put("k", copy);
            }
        })));
        assert_eq!(server.line("BF.REBUILD k COMMIT"), Err(CommandError::Changed));
        server.goes_to_background.set(false);
        server.line("BF.REBUILD k COMMIT").unwrap();
        assert_eq!(found(server, "k", "late", 1), usize::from(more));
    }
}

#[test]
fn bulk_items_go_to_the_shadow_of_every_rebuild() {
    let pair = Pair::new();
    let server = &pair.primary;
    server.line("BF.RESERVE bits 1e-9 100").unwrap();
    server.line("BF.REBUILD bits BEGIN").unwrap();
    server.line("BF.REBUILD list BEGIN LAYOUT FUSE ERROR 1e-9").unwrap();
    for key in ["bits", "list"] {
        let key = key.as_bytes();
        pair.follow();
        let bulk = |words: &[&[u8]]| {
            let words: Vec<&[u8]> = [&[&b"BF.REBUILD"[..], key, b"ADDBULK"], words].concat();
            server.run(&words)
        };
        assert_eq!(bulk(&[b"FIXED", b"2", b"a0a1a2"]), OK);
        assert_eq!(bulk(&[b"PREFIXED", b"\x02\0\0\0a3\x02\0\0\0a4"]), OK);
        assert_eq!(bulk(&[b"PREFIXED", b""]), OK);
        let key = std::str::from_utf8(key).unwrap();
        assert_eq!(
            pair.follow(),
            [
                format!("BF.REBUILD {key} ADDBULK FIXED 2 a0a1a2"),
                format!("BF.REBUILD {key} ADDBULK PREFIXED \x02\0\0\0a3\x02\0\0\0a4"),
            ]
        );
        assert!(matches!(bulk(&[b"FIXED", b"2", b"abc"]), Err(CommandError::BadBlob { .. })));
        assert!(matches!(bulk(&[b"PREFIXED", b"\x09\0\0\0a"]), Err(CommandError::BadBlob { .. })));
        assert_eq!(bulk(&[b"FIXED", b"2"]), Err(CommandError::Arity));
        assert!(matches!(bulk(&[]), Err(CommandError::Expected(_))));
        assert_eq!(found(server, key, "a", 5), 0);
        assert!(pair.follow().is_empty());
        server.line(&format!("BF.REBUILD {key} COMMIT")).unwrap();
        pair.follow();
        assert_eq!(found(server, key, "a", 9), 5);
    }
    let none = "ERR no rebuild is running; BF.REBUILD key BEGIN starts one";
    assert_eq!(server.text("BF.REBUILD bits ADDBULK FIXED 1 a"), none);
    assert!(server.text("BF.REBUILD nothing ADDBULK FIXED 1 a").contains("not found"));
}

#[test]
fn what_does_not_go_with_it_is_refused_and_nothing_is_made() {
    let server = FakeServer::default();
    server.line("BF.RESERVE sharded 0.01 100 SHARDS 8").unwrap();
    server.line("BF.RESERVE exact 1e-11 100").unwrap();
    let keys = server.keys.borrow().len();
    let lines = [
        "BF.REBUILD exact BEGIN LAYOUT FUSE",
        "BF.RESERVE k 0.01 100 LAYOUT FUSE",
        "BF.REBUILD k BEGIN",
        "BF.REBUILD k BEGIN LAYOUT BLOCKED",
        "BF.REBUILD k BEGIN LAYOUT FUSE COUNTING",
        "BF.REBUILD k BEGIN LAYOUT FUSE WINDOW 3",
        "BF.REBUILD k BEGIN LAYOUT FUSE SHARDS 2",
        "BF.REBUILD k BEGIN LAYOUT FUSE EXPANSION 2",
        "BF.REBUILD k BEGIN LAYOUT FUSE ONFULL ERROR",
        "BF.REBUILD k BEGIN LAYOUT FUSE NONSCALING",
        "BF.REBUILD k BEGIN LAYOUT FUSE ERROR 1e-11",
        "BF.REBUILD k BEGIN LAYOUT FUSE LIKE sharded",
    ];
    for line in LAYOUTS.iter().flat_map(|layout| lines.map(|line| line.replace("FUSE", layout))) {
        assert!(server.line(&line).is_err(), "{line}");
        assert_eq!(server.keys.borrow().len(), keys, "{line}");
    }
    server.line("BF.REBUILD sharded BEGIN LAYOUT FUSE").unwrap();
    server.line("BF.REBUILD sharded COMMIT").unwrap();
    assert!(server.line("BF.RESERVE other 0.01 1 LIKE sharded").is_err());
    assert!(server.take_replicated().iter().all(|line| !line.contains("other")));
}
