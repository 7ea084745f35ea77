//! BF.REBUILD without a server: which commands change the live filter and which change its shadow, what is replicated,
//! and what is refused without changing anything. After every phase, a replica is equal bit for bit, and both filters
//! survive saving and loading.

use super::pair::{Pair, add, found};
use crate::support::fake_server::FakeServer;
use crate::support::golden;
use crate::support::kinds::RESERVE_OPTIONS;
use bloomery_commands::{CommandError, Reply};

const OK: Result<Reply, CommandError> = Ok(Reply::Ok);
const YES: Result<Reply, CommandError> = Ok(Reply::Bool(true));
const NO: Result<Reply, CommandError> = Ok(Reply::Bool(false));
const RUNNING: &str = "ERR the filter is being rebuilt. End the rebuild first, with BF.REBUILD key COMMIT or BF.REBUILD key ABORT";
const NONE: &str = "ERR no rebuild is running; BF.REBUILD key BEGIN starts one";

fn status(server: &FakeServer, key: &str, name: &str) -> Reply {
    let Ok(Reply::Map(fields)) = server.line(&format!("BF.REBUILD {key} STATUS")) else { panic!() };
    fields.into_iter().find(|(field, _)| *field == name).map_or(Reply::Null, |(_, value)| value)
}

fn full(server: &FakeServer, key: &str, name: &str) -> Reply {
    let Ok(Reply::Map(fields)) = server.line(&format!("BF.STATS {key}")) else { panic!() };
    fields.into_iter().find(|(field, _)| *field == name).map_or(Reply::Null, |(_, value)| value)
}

/// If a replicated BEGIN omits an option, the replica copies it from the live filter. So the primary must send even
/// options that have BF.RESERVE's default values.
#[test]
fn a_replica_rebuilds_with_the_same_options() {
    let pair = Pair::new();
    pair.primary.line("BF.RESERVE k 0.01 10000 SHARDS 8 LAYOUT BLOCKED HASH SIPHASH").unwrap();
    add(&pair.primary, "k", "old", 50);
    pair.primary.line("BF.REBUILD k BEGIN SHARDS 1 LAYOUT AUTO HASH XXH3").unwrap();
    pair.follow();
}

#[test]
fn every_family_is_rebuilt_and_replicas_agree_in_every_phase() {
    for options in RESERVE_OPTIONS {
        let pair = Pair::new();
        let server = &pair.primary;
        server.now_ms.set(10_000);
        server.line(&format!("BF.RESERVE k 0.001 500 {options}")).unwrap();
        add(server, "k", "old", 50);
        add(server, "k", "gone", 50);
        pair.follow();
        server.events.take();
        assert_eq!(server.line("BF.REBUILD k BEGIN"), OK, "{options}");
        assert_eq!(server.events.take(), [c"bf.rebuild.begin"]);
        let sent = pair.follow();
        assert!(sent[0].starts_with("BF.REBUILD k BEGIN ERROR 0.001 CAPACITY 500 "), "{sent:?}");
        // Only the live filter answers.
        assert_eq!(found(server, "k", "old", 50), 50);
        assert_eq!(status(server, "k", "Number of items inserted"), Reply::Integer(0));
        assert_eq!(status(server, "k", "Kind"), full(server, "k", "Kind"));
        // Adds go to both filters, including adds of items that the live filter already has.
        add(server, "k", "new", 30);
        server.line("BF.MADD k new30 new31 old0").unwrap();
        server.line("BF.INSERT k ITEMS new32 old1").unwrap();
        server.line("BF.ADDNX k new33").unwrap();
        server.line("BF.ADDNX k old2").unwrap();
        server.run(&[b"BF.BULKADD", b"k", b"FIXED", b"4", b"new4old3"]).unwrap();
        assert_eq!(status(server, "k", "Number of items inserted"), Reply::Integer(38), "{options}");
        pair.follow();
        // Backfills go to the shadow alone.
        let live = full(server, "k", "Cells set");
        assert_eq!(server.line("BF.REBUILD k ADD old4 old5 back1"), OK);
        assert_eq!(server.events.take().last(), Some(&c"bf.rebuild.add"));
        assert_eq!(full(server, "k", "Cells set"), live);
        assert_eq!(pair.follow(), ["BF.REBUILD k ADD old4 old5 back1"]);
        for item in 6..50 {
            server.line(&format!("BF.REBUILD k ADD old{item}")).unwrap();
        }
        pair.follow();
        assert_eq!(server.line("BF.REBUILD k COMMIT"), OK);
        assert_eq!(server.events.take().last(), Some(&c"bf.rebuild.commit"));
        assert_eq!(pair.follow(), ["BF.REBUILD k COMMIT"]);
        assert!(server.retired.get() > 0);
        // The filter has everything that was added or backfilled, and nothing else.
        assert_eq!(found(server, "k", "old", 50), 50, "{options}");
        assert_eq!(found(server, "k", "new", 34), 34);
        assert_eq!(found(server, "k", "back", 2), 1);
        assert!(found(server, "k", "gone", 50) < 5, "{options}");
        assert_eq!(server.text("BF.REBUILD k COMMIT"), NONE);
        add(server, "k", "later", 3);
        pair.follow();
    }
}

#[test]
fn an_abort_leaves_the_live_filter_as_it_is() {
    let pair = Pair::new();
    let server = &pair.primary;
    server.line("BF.RESERVE k 0.01 100").unwrap();
    server.line("BF.REBUILD k BEGIN CAPACITY 1000000").unwrap();
    add(server, "k", "a", 20);
    pair.follow();
    assert_eq!(server.line("BF.REBUILD k ABORT"), OK);
    assert_eq!(server.events.take().last(), Some(&c"bf.rebuild.abort"));
    assert_eq!(pair.follow(), ["BF.REBUILD k ABORT"]);
    assert_eq!(found(server, "k", "a", 20), 20);
    assert_eq!(full(server, "k", "Capacity"), Reply::Integer(100));
    assert_eq!(status(server, "k", "Status"), Reply::from("none"));
    for verb in ["ADD x", "COMMIT", "ABORT"] {
        assert_eq!(server.text(&format!("BF.REBUILD k {verb}")), NONE);
    }
    assert!(server.replicated.take().is_empty());
}

#[test]
fn a_rebuild_may_change_every_parameter_and_defaults_to_what_was_needed() {
    let pair = Pair::new();
    let server = &pair.primary;
    // A filter that refuses no items, with three times as many items as its capacity.
    server.line("BF.RESERVE k 0.01 100 ONFULL SATURATE LAYOUT CLASSIC").unwrap();
    add(server, "k", "a", 300);
    server.line("BF.REBUILD k BEGIN").unwrap();
    let Reply::Integer(capacity) = status(server, "k", "Capacity") else { panic!() };
    assert!((250..400).contains(&capacity), "{capacity}");
    let sent = pair.follow().pop().unwrap();
    assert!(sent.contains("ONFULL SATURATE") && sent.contains("LAYOUT CLASSIC"), "{sent}");
    server.line("BF.REBUILD k ABORT").unwrap();
    // A filter that has grown becomes one layer for the items in all its layers.
    for (key, options, capacities) in [("chain", "TIGHTENING 0.5", 200..=200), ("grown", "SEED 1", 175..=180)]
    {
        server.line(&format!("BF.RESERVE {key} 0.01 50 EXPANSION 1 {options}")).unwrap();
        add(server, key, "a", 180);
        server.line(&format!("BF.REBUILD {key} BEGIN")).unwrap();
        let Reply::Integer(capacity) = status(server, key, "Capacity") else { panic!() };
        assert!(capacities.contains(&capacity), "{key}: {capacity}");
        assert_eq!(status(server, key, "Number of filters"), Reply::Integer(1));
    }
    for (options, kind, field, value) in [
        ("ERROR 0.5 CAPACITY 7 SEED 1", "fixed", "Capacity", Reply::Integer(7)),
        ("COUNTING 8", "counting", "Layout", Reply::from("QUOTIENT")),
        ("COUNTING 8 LAYOUT CLASSIC", "counting", "Bits per cell", Reply::Integer(8)),
        ("WINDOW 4 EVERY 500", "window", "Rotates every ms", Reply::Integer(500)),
        ("EXPANSION 3", "scaling", "Expansion rate", Reply::Integer(3)),
        ("NONSCALING", "fixed", "Hash", Reply::from("XXH3")),
        ("SHARDS 4 HASH SIPHASH LAYOUT BLOCKED", "fixed", "Shards", Reply::Integer(4)),
    ] {
        server.line("BF.RESERVE x 0.01 100 NONSCALING").unwrap();
        server.line("BF.ADD x before").unwrap();
        assert_eq!(server.line(&format!("BF.REBUILD x BEGIN {options}")), OK, "{options}");
        pair.follow();
        server.now_ms.set(server.now_ms.get() + 700);
        server.line("BF.ADD x y").unwrap();
        pair.follow();
        server.line("BF.REBUILD x COMMIT").unwrap();
        pair.follow();
        assert_eq!(server.line("BF.EXISTS x y"), YES);
        assert_eq!(server.line("BF.EXISTS x before"), NO);
        assert_eq!((full(server, "x", "Kind"), full(server, "x", field)), (Reply::from(kind), value));
        [server, &pair.replica].iter().for_each(|server| drop(server.keys.borrow_mut().remove(&b"x"[..])));
    }
}

#[test]
fn what_the_live_filter_refuses_the_shadow_never_sees() {
    let pair = Pair::new();
    let server = &pair.primary;
    server.line("BF.RESERVE k 0.001 5 NONSCALING").unwrap();
    server.line("BF.REBUILD k BEGIN CAPACITY 100").unwrap();
    let Ok(Reply::Answers(answers)) = server.line("BF.MADD k a b c d e f g") else { panic!() };
    assert_eq!((answers.answers.len(), answers.error), (6, Some(CommandError::Full)));
    assert_eq!(server.line("BF.ADD k h"), Err(CommandError::Full));
    assert!(server.run(&[b"BF.BULKADD", b"k", b"FIXED", b"1", b"axb"]).is_err());
    assert_eq!(status(server, "k", "Number of items inserted"), Reply::Integer(5));
    let sent = pair.follow();
    assert_eq!(sent.last().unwrap(), "BF.MADD k a b c d e");
    // Adding an item that the live filter already has still adds it to the shadow, whichever command does it.
    server.line("BF.REBUILD k ABORT").unwrap();
    server.line("BF.REBUILD k BEGIN CAPACITY 100").unwrap();
    assert!(server.run(&[b"BF.BULKADD", b"k", b"FIXED", b"1", b"abx"]).is_err());
    assert_eq!(status(server, "k", "Number of items inserted"), Reply::Integer(2));
    assert_eq!(pair.follow().pop().unwrap(), "BF.BULKADD k FIXED 1 ab");
    // This add changes only the shadow, and is replicated for that reason.
    assert_eq!(server.line("BF.ADD k c"), NO);
    assert_eq!(pair.follow(), ["BF.ADD k c"]);
    // Now it changes neither filter.
    assert_eq!(server.line("BF.ADD k c"), NO);
    assert!(pair.follow().is_empty());
}

#[test]
fn an_addnx_counts_once_in_either_filter() {
    let pair = Pair::new();
    let server = &pair.primary;
    server.line("BF.RESERVE k 0.0001 100 COUNTING").unwrap();
    server.line("BF.ADD k a").unwrap();
    server.line("BF.REBUILD k BEGIN").unwrap();
    assert_eq!(server.line("BF.ADDNX k a"), NO);
    assert_eq!(server.line("BF.ADDNX k a"), NO);
    assert_eq!(server.line("BF.ADDNX k b"), YES);
    let sent = pair.follow();
    assert_eq!(sent[sent.len() - 2..], ["BF.ADDNX k a", "BF.ADDNX k b"]);
    assert_eq!(server.line("BF.COUNT k a"), Ok(Reply::Integer(1)));
    server.line("BF.REBUILD k COMMIT").unwrap();
    assert_eq!(server.line("BF.COUNT k a"), Ok(Reply::Integer(1)));
    assert_eq!(server.line("BF.COUNT k b"), Ok(Reply::Integer(1)));
}

#[test]
fn deletes_go_to_the_live_filter_and_are_counted() {
    let pair = Pair::new();
    let server = &pair.primary;
    server.line("BF.RESERVE k 0.0001 100 COUNTING").unwrap();
    add(server, "k", "a", 20);
    server.line("BF.DEL k a19").unwrap();
    server.line("BF.REBUILD k BEGIN").unwrap();
    (0..19).for_each(|item| drop(server.line(&format!("BF.REBUILD k ADD a{item}")).unwrap()));
    assert_eq!(server.line("BF.DEL k a0"), YES);
    assert_eq!(server.line("BF.DEL k never"), NO);
    server.line("BF.MDEL k a1 never a2").unwrap();
    assert_eq!(status(server, "k", "Deletes missed"), Reply::Integer(3));
    pair.follow();
    assert_eq!(found(server, "k", "a", 20), 16);
    server.line("BF.REBUILD k COMMIT").unwrap();
    pair.follow();
    // Items that were deleted during the rebuild are back. No item is lost.
    assert_eq!(found(server, "k", "a", 20), 19);
}

#[test]
fn a_live_add_never_fails_because_of_the_shadow() {
    let cases: [&[&str]; 4] = [&["BF.ADD k i4"], &["BF.MADD k i4 i5"], &["BF.INSERT k ITEMS i4 i5"], &[]];
    for commands in cases {
        let pair = Pair::new();
        let server = &pair.primary;
        server.line("BF.RESERVE k 0.01 100").unwrap();
        server.line("BF.REBUILD k BEGIN CAPACITY 4 NONSCALING").unwrap();
        add(server, "k", "i", 4);
        pair.follow();
        server.events.take();
        if commands.is_empty() {
            server.run(&[b"BF.BULKADD", b"k", b"FIXED", b"2", b"i4i5"]).unwrap();
        }
        commands.iter().for_each(|line| drop(server.line(line).unwrap()));
        assert_eq!(found(server, "k", "i", 5), 5);
        let sent = pair.follow();
        assert_eq!(sent[0], "BF.REBUILD k ABORT");
        assert_eq!(sent.len(), 2, "{sent:?}");
        assert_eq!(server.events.take(), [c"bf.rebuild.abort", c"bf.add"]);
        assert_eq!(
            server.log.take(),
            [
                "the rebuild of the filter in 'k' has ended, because items could not be added to its shadow: non scaling filter is full"
            ]
        );
        assert_eq!(
            server.text("BF.REBUILD k COMMIT"),
            format!(
                "{NONE}. The last one ended because items could not be added to its shadow: non scaling filter is full"
            )
        );
        assert_eq!(status(server, "k", "Status"), Reply::from("none"));
        assert_eq!(status(server, "k", "Ended because"), Reply::from("non scaling filter is full"));
        // After another rebuild, the server no longer says why the previous one ended.
        server.line("BF.REBUILD k BEGIN").unwrap();
        server.line("BF.REBUILD k ABORT").unwrap();
        assert_eq!(server.text("BF.REBUILD k ABORT"), NONE);
    }
}

/// Only if a replica is short of memory does its shadow refuse an item that the primary's shadow accepted. If the
/// primary's shadow had refused it too, the primary would have sent an ABORT first. The item is added to the live
/// filter, and the reply to the primary is an error, so that the server logs and counts it.
#[test]
fn a_replica_whose_shadow_cannot_follow_says_so() {
    for line in ["BF.ADD k i4", "BF.MADD k i4 i5", "BF.INSERT k ITEMS i4 i5", "BF.BULKADD k FIXED 2 i4i5"] {
        let replica = FakeServer::default();
        replica.line("BF.RESERVE k 0.01 100").unwrap();
        replica.line("BF.REBUILD k BEGIN CAPACITY 4 NONSCALING").unwrap();
        add(&replica, "k", "i", 4);
        replica.obeys.set(true);
        assert_eq!(
            replica.text(line),
            "ERR items could not be added to the filter's shadow: non scaling filter is full. The rebuild has ended here, but \
             not on the server that sent the command. Restart this server without its RDB and append-only files, so \
             that it copies everything again"
        );
        replica.obeys.set(false);
        assert_eq!(found(&replica, "k", "i", 5), 5, "{line}");
        assert_eq!(status(&replica, "k", "Status"), Reply::from("none"));
        assert_eq!(replica.text("BF.ADD k another"), "Bool(true)");
    }
}

/// The reason why a rebuild ended stays with its filter, whatever happens to the key. So no client is told about a
/// rebuild of another filter.
#[test]
fn why_a_rebuild_ended_goes_with_the_filter() {
    let ended = |server: &FakeServer| {
        server.line("BF.REBUILD k BEGIN CAPACITY 1 NONSCALING").unwrap();
        server.line("BF.MADD k a b c").unwrap();
        assert_eq!(status(server, "k", "Ended because"), Reply::from("non scaling filter is full"));
    };
    let server = FakeServer::default();
    server.line("BF.RESERVE k 0.01 100").unwrap();
    ended(&server);
    // DEL, and a new filter with the same name.
    server.keys.borrow_mut().clear();
    server.line("BF.RESERVE k 0.01 100").unwrap();
    assert_eq!(status(&server, "k", "Ended because"), Reply::Null);
    assert_eq!(server.text("BF.REBUILD k COMMIT"), NONE);
    ended(&server);
    // RENAME.
    let content = server.keys.borrow_mut().remove(&b"k"[..]).unwrap();
    server.keys.borrow_mut().insert(b"renamed".to_vec(), content);
    assert_eq!(status(&server, "renamed", "Ended because"), Reply::from("non scaling filter is full"));
    // A rebuild that succeeds.
    server.line("BF.REBUILD renamed BEGIN").unwrap();
    server.line("BF.REBUILD renamed COMMIT").unwrap();
    assert_eq!(status(&server, "renamed", "Ended because"), Reply::Null);
}

#[test]
fn memory_is_asked_for_both_filters_together() {
    let server = FakeServer::default();
    server.line("BF.RESERVE k 0.01 1000 EXPANSION 1 LAYOUT CLASSIC").unwrap();
    add(&server, "k", "a", 10);
    let Reply::Integer(size) = full(&server, "k", "Cells") else { panic!() };
    let bytes = size as u64 / 8;
    // There is memory for one filter, but not for two.
    server.memory.set(Some(bytes + bytes / 2));
    assert!(server.text("BF.REBUILD k BEGIN").contains("Insufficient memory"));
    assert_eq!(status(&server, "k", "Status"), Reply::from("none"));
    // There is memory for two, but not for a shadow that grows: a backfill gets the error, and the rebuild continues.
    // The seed is fixed because in 1 of 100 shadows, the item added below tests positive, so it needs no room.
    server.memory.set(Some(2 * bytes + bytes / 2));
    server.line("BF.REBUILD k BEGIN SEED 1").unwrap();
    let mut words = vec!["BF.REBUILD".to_owned(), "k".into(), "ADD".into()];
    words.extend((0..2000).map(|item| format!("b{item}")));
    let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
    let error = server.run(&words).unwrap_err().to_string();
    assert!(
        error.contains("problem inserting into filter") && error.ends_with("of 2000 items were added"),
        "{error}"
    );
    let Reply::Integer(items) = status(&server, "k", "Number of items inserted") else { panic!() };
    assert!((900..=1000).contains(&items));
    // An add ends the rebuild, and isn't refused.
    assert_eq!(server.line("BF.ADD k new"), YES);
    assert_eq!(status(&server, "k", "Status"), Reply::from("none"));
    server.is_out_of_memory.set(true);
    let oom = "OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(server.text("BF.REBUILD k BEGIN"), oom);
    server.is_out_of_memory.set(false);
    server.line("BF.REBUILD k BEGIN CAPACITY 10").unwrap();
    server.is_out_of_memory.set(true);
    assert_eq!(server.text("BF.REBUILD k ADD a"), oom);
    assert_eq!(server.line("BF.REBUILD k COMMIT"), OK);
}

#[test]
fn windows_rotate_together() {
    let pair = Pair::new();
    let server = &pair.primary;
    server.now_ms.set(1000);
    server.line("BF.RESERVE k 0.001 100 WINDOW 3 EVERY 1000").unwrap();
    server.now_ms.set(4500);
    // The clock has moved on, so a rotation is replicated before BEGIN.
    server.line("BF.REBUILD k BEGIN WINDOW 5").unwrap();
    let sent = pair.follow();
    assert_eq!(sent[1], "BF.ROTATE k AT 3");
    assert!(sent[2].contains("WINDOW 5") && sent[2].contains("EVERY 1000 SINCE"), "{sent:?}");
    server.line("BF.ADD k a").unwrap();
    server.now_ms.set(5500);
    server.line("BF.ADD k b").unwrap();
    server.line("BF.ROTATE k").unwrap();
    let sent = pair.follow();
    assert_eq!(sent, ["BF.ADD k a", "BF.ROTATE k AT 4", "BF.ADD k b", "BF.ROTATE k AT 5 MANUAL"]);
    server.now_ms.set(6500);
    server.line("BF.REBUILD k ADD c").unwrap();
    assert_eq!(pair.follow(), ["BF.ROTATE k AT 6", "BF.REBUILD k ADD c"]);
    let age = |server: &FakeServer, item: &str| server.line(&format!("BF.AGE k {item}")).unwrap();
    assert_eq!([age(server, "a"), age(server, "b"), age(server, "c")], [-1, 2, -1].map(Reply::Integer));
    server.line("BF.REBUILD k COMMIT").unwrap();
    pair.follow();
    assert_eq!([age(server, "a"), age(server, "b"), age(server, "c")], [3, 2, 0].map(Reply::Integer));
    assert_eq!(full(server, "k", "Generation"), Reply::Integer(6));
    // The shadow must have the same schedule as the live filter.
    for options in ["WINDOW 3 EVERY 2000", "WINDOW 3 EVERY 1000 SINCE 5"] {
        let text = server.text(&format!("BF.REBUILD k BEGIN {options}"));
        assert!(text.contains("a window and its shadow rotate together"), "{text}");
    }
}

#[test]
fn what_would_pass_the_shadow_by_is_refused_and_sources_are_the_live_filter() {
    let server = FakeServer::default();
    server.line("BF.RESERVE k 0.01 100 NONSCALING").unwrap();
    server.line("BF.ADD k live").unwrap();
    for key in ["like", "other"] {
        server.line(&format!("BF.RESERVE {key} 0.01 100 LIKE k")).unwrap();
    }
    server.line("BF.ADD like live").unwrap();
    server.line("BF.REBUILD k BEGIN").unwrap();
    server.line("BF.REBUILD k ADD shadow").unwrap();
    server.replicated.take();
    for line in [
        "BF.REBUILD k BEGIN",
        "BF.MERGE k other",
        "BF.MERGE k k other",
        "BF.INTERSECT k like other",
        "BF.INTERSECT k k other",
    ] {
        assert_eq!(server.text(line), RUNNING, "{line}");
    }
    assert_eq!(server.text("BF.RESERVE k 0.01 100"), "ERR item exists");
    assert_eq!(server.text("BF.IMPORT k BLOOMV3 x"), server.text("BF.IMPORT like BLOOMV3 x"));
    assert!(server.text("BF.LOADCHUNK k 1 x").starts_with("ERR received bad data"));
    assert!(server.replicated.take().is_empty() && server.events.take().last() == Some(&c"bf.rebuild.add"));
    // Commands that read the key, or use it as a source, get the live filter.
    assert_eq!(server.line("BF.EQUAL k like"), YES);
    assert_eq!(server.line("BF.EQUAL like k"), YES);
    assert_eq!(server.line("BF.SCANDUMP k 0"), server.line("BF.SCANDUMP like 0"));
    assert_eq!(server.line("BF.MERGE other k"), OK);
    assert_eq!(server.line("BF.INTERSECT both k like"), OK);
    assert_eq!(server.line("BF.RESERVE third 0.01 100 LIKE k"), OK);
    for key in ["other", "both"] {
        assert_eq!(server.line(&format!("BF.EXISTS {key} live")), YES);
        assert_eq!(server.line(&format!("BF.EXISTS {key} shadow")), NO);
    }
    assert_eq!(server.line("BF.MERGE new k"), OK);
    assert_eq!(status(&server, "new", "Status"), Reply::from("none"));
    // BF.CLEAR empties both filters, and the rebuild continues.
    assert_eq!(server.line("BF.CLEAR k"), OK);
    assert_eq!(status(&server, "k", "Number of items inserted"), Reply::Integer(0));
    assert_eq!(server.line("BF.EXISTS k live"), NO);
    server.replicated.take();
    assert_eq!(server.line("BF.CLEAR k"), OK);
    assert!(server.replicated.take().is_empty(), "nothing was left to clear");
    server.line("BF.REBUILD k ADD shadow").unwrap();
    server.replicated.take();
    assert_eq!(server.line("BF.CLEAR k"), OK);
    assert_eq!(server.take_replicated(), ["BF.CLEAR k"]);
}

/// A rebuild turns a filter from any other system into a native one with the backfilled items.
#[test]
fn other_systems_filters_are_rebuilt_into_ours() {
    for (name, make) in golden::FOREIGN {
        let pair = Pair::new();
        let server = &pair.primary;
        server.put("k", make());
        pair.replica.put("k", make());
        let origin = full(server, "k", "Origin");
        // Each of these systems accepts a number as an item.
        let before = server.line("BF.EXISTS k 1234567");
        assert_eq!(server.line("BF.REBUILD k BEGIN"), OK, "{name}");
        let sent = pair.follow().pop().unwrap();
        let grows = sent.contains("EXPANSION");
        assert!(grows || sent.contains("ONFULL ERROR"), "{sent}");
        assert_eq!(full(server, "k", "Origin"), origin, "the live one answers");
        assert_eq!(server.line("BF.EXISTS k 1234567"), before);
        let refused = server.line("BF.ADD k 42").is_err();
        server.line("BF.MADD k 43 44").unwrap();
        server.run(&[b"BF.BULKADD", b"k", b"FIXED", b"2", b"4546"]).ok();
        server.line("BF.REBUILD k ADD 1234567 47").unwrap();
        pair.follow();
        assert_eq!(server.text("BF.CLEAR k"), server.text("BF.DEL k x"));
        server.line("BF.REBUILD k COMMIT").unwrap();
        pair.follow();
        assert_eq!(full(server, "k", "Origin"), Reply::from("bloomery"));
        for item in ["1234567", "47"].iter().chain(["42", "43", "44", "45", "46"].iter().filter(|_| !refused))
        {
            assert_eq!(server.line(&format!("BF.EXISTS k {item}")), YES, "{name}: {item}");
        }
        // After an abort, the key holds the old filter, unchanged.
        server.put("k", make());
        let dump = server.dump("k");
        server.line("BF.REBUILD k BEGIN COUNTING").unwrap();
        server.line("BF.REBUILD k ABORT").unwrap();
        assert!(server.dump("k") == dump, "{name}");
    }
}

#[test]
fn statistics_have_the_status_of_the_rebuild() {
    let server = FakeServer::default();
    server.line("BF.RESERVE k 0.01 100 NONSCALING").unwrap();
    assert_eq!(status(&server, "k", "Status"), Reply::from("none"));
    assert_eq!(full(&server, "k", "Rebuild"), Reply::Null);
    server.line("BF.REBUILD k BEGIN").unwrap();
    assert_eq!(Ok(full(&server, "k", "Rebuild")), server.line("BF.REBUILD k STATUS"));
}

/// BF.BULKADD on several threads gives the same two filters as on one thread.
#[test]
fn bulk_adds_in_parallel_reach_both() {
    let bytes: Vec<u8> = (0..20_000u32).flat_map(u32::to_le_bytes).collect();
    let mut dumps = Vec::new();
    for workers in [0, 3] {
        let server = FakeServer::default();
        server.workers.set(workers);
        server.line("BF.RESERVE k 0.01 50000 NONSCALING SHARDS 8 SEED 1").unwrap();
        server.line("BF.REBUILD k BEGIN SEED 2").unwrap();
        let added = server.run(&[b"BF.BULKADD", b"k", b"FIXED", b"4", &bytes]).unwrap();
        let Reply::Integer(added) = added else { panic!() };
        assert!(added > 19_800);
        dumps.push(server.dump("k"));
        server.line("BF.REBUILD k COMMIT").unwrap();
        let all = server.run(&[b"BF.BULKTEST", b"k", b"FIXED", b"4", &bytes, b"COUNT"]);
        assert_eq!(all, Ok(Reply::Integer(20_000)));
    }
    assert!(dumps[0] == dumps[1]);
}

/// A filter's identity tells the client that fills it whether the filter has been replaced. The identity must not
/// reveal the seed.
#[test]
fn an_identity_tells_filters_apart() {
    let server = FakeServer::default();
    let of = |key| full(&server, key, "Identity");
    let shadow = || status(&server, "k", "Identity");
    server.line("BF.RESERVE k 0.01 100 SEED 7").unwrap();
    let first = of("k");
    let Reply::Bulk(digits) = &first else { panic!("{first:?}") };
    assert!(digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit));
    add(&server, "k", "item", 50);
    server.line("BF.RESERVE twin 0.01 100 LIKE k").unwrap();
    server.line("BF.RESERVE same 0.5 9 WINDOW 2 SEED 7").unwrap();
    server.line("BF.RESERVE other 0.01 100").unwrap();
    for key in ["k", "twin", "same"] {
        assert_eq!(of(key), first, "{key}");
    }
    assert_ne!(of("other"), first);
    // Each shadow has its own seed, and keeps it.
    server.line("BF.REBUILD k BEGIN").unwrap();
    let aborted = shadow();
    server.line("BF.REBUILD k ABORT").unwrap();
    server.line("BF.REBUILD k BEGIN").unwrap();
    let committed = shadow();
    assert_eq!(of("k"), first);
    assert!(aborted != committed && aborted != first && committed != first);
    server.line("BF.REBUILD k COMMIT").unwrap();
    assert_eq!(of("k"), committed);
    // A cuckoo filter and a Bloom filter with the same seed have the same identity.
    server.line("CF.RESERVE c 100 SEED 7").unwrap();
    let Ok(Reply::Map(fields)) = server.line("CF.STATS c") else { panic!() };
    assert_eq!(fields.last(), Some(&("Identity", first)));
    let Ok(Reply::Numbers(plain)) = server.line("CF.INFO c") else { panic!() };
    assert_eq!(plain.fields(), fields[..8]);
    assert_eq!(server.text("CF.INFO c SIZE"), server.text("CF.INFO"));
}

/// If all cells of a filter are set, they don't show how many items it has. BEGIN then assumes a multiple of the old
/// capacity, rather than the largest possible number of items.
#[test]
fn a_saturated_filter_can_be_rebuilt() {
    for options in
        ["ONFULL SATURATE", "ONFULL SATURATE LAYOUT CLASSIC", "COUNTING ONFULL SATURATE", "WINDOW 3"]
    {
        let server = FakeServer::default();
        server.line(&format!("BF.RESERVE k 0.1 20 SEED 3 {options}")).unwrap();
        add(&server, "k", "i", 4000);
        let newest = match full(&server, "k", "Layers") {
            Reply::Array(layers) => layers.into_iter().next(),
            _ => None,
        };
        let Some(Reply::Map(fields)) = newest else { panic!() };
        assert!(fields.contains(&("Fill", Reply::Double(1.0))), "{options}: {fields:?}");
        let Reply::Integer(estimate) = full(&server, "k", "Approximate number of items") else { panic!() };
        assert!((40..2000).contains(&estimate), "{options}: {estimate}");
        server.memory.set(Some(100_000));
        server.line("BF.REBUILD k BEGIN").unwrap();
        let Reply::Integer(capacity) = status(&server, "k", "Capacity") else { panic!() };
        assert!((40..6000).contains(&capacity), "{options}: {capacity}");
    }
}

/// All items go into one generation of the new window. So this generation must be able to use the whole table.
#[test]
fn a_full_window_is_rebuilt_with_its_own_items() {
    for generations in [2, 3, 5] {
        let pair = Pair::new();
        let server = &pair.primary;
        server
            .line(&format!("BF.RESERVE k 0.01 200 WINDOW {generations} LAYOUT QUOTIENT ONFULL ERROR SEED 5"))
            .unwrap();
        for generation in 0..generations {
            add(server, "k", &format!("g{generation}-"), 190);
            if generation + 1 < generations {
                server.line("BF.ROTATE k").unwrap();
            }
        }
        let items: Vec<String> =
            (0..generations).flat_map(|g| (0..190).map(move |item| format!("g{g}-{item}"))).collect();
        server.line("BF.REBUILD k BEGIN").unwrap();
        for (index, item) in items.iter().enumerate() {
            // A client adds half of the items, and a backfill adds the others.
            let command = if index % 2 == 0 { "BF.ADD k" } else { "BF.REBUILD k ADD" };
            server.line(&format!("{command} {item}")).unwrap();
        }
        assert_eq!(status(server, "k", "Status"), Reply::from("running"), "{generations}");
        server.line("BF.REBUILD k COMMIT").unwrap();
        for item in &items {
            assert_eq!(
                server.line(&format!("BF.EXISTS k {item}")),
                Ok(Reply::Bool(true)),
                "{generations} {item}"
            );
        }
        pair.follow();
    }
}
