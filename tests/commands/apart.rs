//! Commands that work apart, without a server: what happens to their keys, the clock and the memory between their two runs.
//! That they make the same as commands that don't, the tests of each show, which run them in both ways.

use super::pair::{Pair, add, found};
use crate::support::fake_server::{Content, FakeServer};
use crate::support::internals::command::{CommandError, Reply};

const OK: Result<Reply, CommandError> = Ok(Reply::Ok);

/// A primary whose commands work apart, with two filters that go together, and its replica.
fn pair(options: &str) -> Pair {
    let pair = Pair::new();
    let server = &pair.primary;
    server.goes_apart.set(true);
    server.line(&format!("BF.RESERVE a 0.001 200 {options}")).unwrap();
    server.line("BF.RESERVE b 0.001 200 LIKE a").unwrap();
    add(server, "a", "a", 50);
    add(server, "b", "b", 50);
    pair.follow();
    server.events.take();
    pair
}

fn meanwhile(server: &FakeServer, what: impl FnOnce(&FakeServer) + 'static) {
    server.meanwhile.replace(Some(Box::new(what)));
}

/// A copy, so it holds the same, but isn't the same.
fn replace(server: &FakeServer, key: &str) {
    let copy = server.copy(key);
    server.put(key, copy);
}

#[test]
fn nothing_is_done_if_a_key_is_another() {
    let removed = |server: &FakeServer, key: &str| drop(server.keys.borrow_mut().remove(key.as_bytes()));
    for (line, key) in [
        ("BF.MERGE a b", "a"),
        ("BF.MERGE a b", "b"),
        ("BF.MERGE new a b", "b"),
        ("BF.INTERSECT a a b", "a"),
        ("BF.INTERSECT new a b", "b"),
    ] {
        for gone in [false, true] {
            let pair = pair("NONSCALING");
            let server = &pair.primary;
            meanwhile(server, move |server| if gone { removed(server, key) } else { replace(server, key) });
            match server.line(line) {
                // A destination that is gone: there was one before.
                Err(CommandError::Changed) => {}
                Err(CommandError::NotFound) if gone => {}
                other => panic!("{line}, {key}: {other:?}"),
            }
            assert_eq!((server.take_replicated(), server.events.take()), (Vec::new(), Vec::new()));
            assert!(!server.keys.borrow().contains_key(&b"new"[..]));
            assert!(gone && key == "a" || found(server, "a", "b", 50) < 5, "{line}");
        }
    }
    // One that there wasn't before.
    let pair = pair("NONSCALING");
    meanwhile(&pair.primary, |server| server.put("new", server.copy("a")));
    assert_eq!(pair.primary.line("BF.MERGE new a b"), Err(CommandError::Changed));
    assert_eq!(found(&pair.primary, "new", "b", 50), 0);
    meanwhile(&pair.primary, |server| server.put("text", Content::Other));
    assert_eq!(pair.primary.line("BF.MERGE text a b"), Err(CommandError::WrongType));
    meanwhile(&pair.primary, |server| server.put("zeros", server.copy("a")));
    assert_eq!(pair.primary.line("BF.IMPORT zeros GOZERO none BITS 1024"), Err(CommandError::Exists));
    assert_eq!(pair.primary.take_replicated(), Vec::<String>::new());
}

/// The command is as of its first run, so a window is rotated before the union and not after it, here and on a replica.
#[test]
fn the_clock_stands_still_for_a_command() {
    let pair = pair("WINDOW 3 EVERY 60000");
    let server = &pair.primary;
    server.now_ms.set(server.now_ms.get() + 60_000);
    add(server, "b", "later", 20);
    pair.follow();
    meanwhile(server, |server| server.now_ms.set(server.now_ms.get() + 120_000));
    assert_eq!(server.line("BF.MERGE a b"), OK);
    let sent = pair.follow();
    assert!(
        sent.len() == 2 && sent[0].starts_with("BF.ROTATE a AT") && sent[1] == "BF.MERGE a b",
        "{sent:?}"
    );
    // The first items of both leave with the next write, the later ones stay.
    server.line("BF.ADD a now").unwrap();
    assert_eq!(
        [("a", 50), ("b", 50), ("later", 20)].map(|(prefix, n)| found(server, "a", prefix, n)),
        [0, 0, 20]
    );
    pair.follow();
}

#[test]
fn memory_is_asked_for_before_the_work_and_for_all_of_the_result() {
    let pair = pair("EXPANSION 1");
    let server = &pair.primary;
    add(server, "b", "more", 400);
    pair.follow();
    server.memory.set(Some(10));
    let refused = server.text("BF.MERGE a b");
    assert!(
        refused.starts_with("ERR Insufficient memory") && refused.ends_with("in MULTI it makes none"),
        "{refused}"
    );
    // What is there may be copied, but the filter may not become so large.
    let held = server.copy("a").bytes();
    server.memory.set(Some(held));
    assert!(matches!(server.line("BF.MERGE a b"), Err(CommandError::Memory { .. })));
    assert_eq!(server.retired.get(), 1, "what was made is freed elsewhere");
    assert_eq!((server.take_replicated(), found(server, "a", "b", 50)), (Vec::new(), 0));
    server.memory.set(None);
    assert_eq!(server.line("BF.MERGE a b"), OK);
    pair.follow();
}

/// What the union doesn't change is shared and not copied; and a union that changes nothing tells nobody.
#[test]
fn a_repeated_merge_changes_nothing() {
    for options in ["NONSCALING", "EXPANSION 1", "WINDOW 3"] {
        let pair = pair(options);
        let server = &pair.primary;
        add(server, "a", "more", 100);
        assert_eq!(server.line("BF.MERGE a b"), OK, "{options}");
        pair.follow();
        server.events.take();
        assert_eq!(server.line("BF.MERGE a b"), OK, "{options}");
        assert_eq!((server.take_replicated(), server.events.take()), (Vec::new(), Vec::new()), "{options}");
    }
}
