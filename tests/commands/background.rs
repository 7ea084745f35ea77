//! Commands that work in the background, tested without a server: what happens to their keys, the clock and the memory
//! between the run that starts the work and the run that uses its result. Each command's own tests run it in the
//! background and on the main thread, and compare the results.

use super::doubling::lines;
use super::pair::{Pair, add, found};
use crate::support::fake_server::{Content, FakeServer};
use crate::support::golden;
use crate::support::sketches;
use bloomery::filter::{Cuckoo, CuckooSpec, Filter, Origin};
use bloomery::wire::{Encoder, Export};
use bloomery_commands::{CommandError, Reply, table};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

const OK: Result<Reply, CommandError> = Ok(Reply::Ok);

/// A primary with two filters that can be merged, and its replica. Commands on the primary work in the background.
fn pair(options: &str) -> Pair {
    let pair = Pair::new();
    let server = &pair.primary;
    server.goes_to_background.set(true);
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

/// Replaces the filter in `key` with an equal copy, which is a different object.
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
                // A filter was replaced, or the destination, which existed before, was deleted.
                Err(CommandError::Changed) => {}
                Err(CommandError::NotFound) if gone => {}
                other => panic!("{line}, {key}: {other:?}"),
            }
            assert_eq!((server.take_replicated(), server.events.take()), (Vec::new(), Vec::new()));
            assert!(!server.keys.borrow().contains_key(&b"new"[..]));
            assert!(gone && key == "a" || found(server, "a", "b", 50) < 5, "{line}");
        }
    }
    // The destination didn't exist before, and is created in the meantime.
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

/// Replaces the sketch in `key` with an equal one, which is a different object.
fn load_again(server: &FakeServer, key: &str) {
    sketches::load(server, key, &sketches::save(server, key)).unwrap();
}

type What = Box<dyn FnOnce(&FakeServer)>;

/// The sketches that merges read may be deleted, replaced or renamed meanwhile, and written in their new keys.
#[test]
fn sketches_that_are_another_are_not_merged() {
    let renamed = |server: &FakeServer| {
        let rename = |from: &[u8], to: &[u8]| {
            let content = server.keys.borrow_mut().remove(from).unwrap();
            server.keys.borrow_mut().insert(to.to_vec(), content);
        };
        rename(b"b", b"elsewhere");
        // If the writing command could wait, it would be refused.
        server.goes_to_background.set(false);
        server
            .line(if is_cms(server, "elsewhere") {
                "CMS.INCRBY elsewhere x 1"
            } else {
                "TDIGEST.ADD elsewhere 1"
            })
            .unwrap();
        server.take_replicated();
        rename(b"elsewhere", b"b");
    };
    let removed = |server: &FakeServer| drop(server.keys.borrow_mut().remove(&b"b"[..]));
    let replaced = |server: &FakeServer| load_again(server, "b");
    for (made, line, missing) in [
        (["CMS.INITBYDIM KEY 20 2", "CMS.INCRBY KEY x 2"], "CMS.MERGE a 2 a b", "CMS: key does not exist"),
        (
            ["TDIGEST.CREATE KEY", "TDIGEST.ADD KEY 1 2"],
            "TDIGEST.MERGE a 1 b",
            "ERR T-Digest: key does not exist",
        ),
    ] {
        let changed = CommandError::Changed.to_string();
        let whats: [(What, &str); 3] =
            [(Box::new(removed), missing), (Box::new(replaced), &changed), (Box::new(renamed), &changed)];
        for (what, expected) in whats {
            let server = FakeServer::default();
            for (key, line) in ["a", "b"].into_iter().flat_map(|key| made.map(|line| (key, line))) {
                server.line(&line.replace("KEY", key)).unwrap();
            }
            server.take_replicated();
            server.events.take();
            server.goes_to_background.set(true);
            let before = sketches::save(&server, "a");
            meanwhile(&server, what);
            assert_eq!(server.line(line).unwrap_err().to_string(), expected, "{line}");
            assert_eq!(sketches::save(&server, "a"), before, "{line}");
            assert_eq!(server.take_replicated(), Vec::<String>::new());
        }
    }
}

fn is_cms(server: &FakeServer, key: &str) -> bool {
    sketches::save(server, key).name == "CMSk-TYPE"
}

/// A command uses the time of its first run. So a window is rotated before the union and not after it, on the primary
/// and on a replica.
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
    // The first items of both filters expire with the next write. The later ones stay.
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
        refused.starts_with("ERR Insufficient memory") && refused.ends_with("in MULTI it runs at once"),
        "{refused}"
    );
    // There is memory for a copy of the existing filter, but not for the larger result.
    let held = server.copy("a").bytes();
    server.memory.set(Some(held));
    assert!(matches!(server.line("BF.MERGE a b"), Err(CommandError::Memory { .. })));
    assert_eq!(server.retired.get(), 1, "what was made is freed elsewhere");
    assert_eq!((server.take_replicated(), found(server, "a", "b", 50)), (Vec::new(), 0));
    server.memory.set(None);
    assert_eq!(server.line("BF.MERGE a b"), OK);
    pair.follow();
}

/// Others may have reached the limits while it was computed.
#[test]
fn an_intersection_asks_for_memory_again_when_it_is_complete() {
    let pair = pair("NONSCALING");
    let server = &pair.primary;
    meanwhile(server, |server| server.memory.set(Some(10)));
    assert!(matches!(server.line("BF.INTERSECT new a b"), Err(CommandError::Memory { .. })));
    assert_eq!(server.retired.get(), 1, "what was made is freed elsewhere");
    server.memory.set(None);
    meanwhile(server, |server| server.is_out_of_memory.set(true));
    for line in ["BF.INTERSECT new a b", "BF.MERGE a b"] {
        assert_eq!(server.line(line), Err(CommandError::OutOfMemory), "{line}");
    }
    assert!(server.take_replicated().is_empty() && !server.keys.borrow().contains_key(&b"new"[..]));
}

/// A union that changes nothing replicates nothing and sends no events.
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

/// Begins to load two RedisBloom filters. Returns the commands with their next pieces, which a worker places.
fn begin_loads(server: &FakeServer) -> Vec<Vec<Vec<u8>>> {
    let cuckoo = Filter::from(
        Cuckoo::new(CuckooSpec { origin: Origin::RedisBloom, ..CuckooSpec::new(2000) }).unwrap(),
    );
    let filters = [("BF", golden::foreign("foreign-redisbloom").into()), ("CF", cuckoo)];
    let next = filters.map(|(namespace, filter)| {
        let (encoder, mut piece) = (Encoder::new(&filter), Vec::new());
        let end = encoder.chunk(0, &mut piece).unwrap() + 1;
        let load = |iterator: u64, data: &[u8]| {
            let words = format!("{namespace}.LOADCHUNK load:{namespace} {iterator}");
            let words = words.split(' ').map(|word| word.as_bytes().to_vec());
            words.chain([data.to_vec()]).collect::<Vec<_>>()
        };
        run(server, &load(1, encoder.head())).unwrap();
        load(end, &piece)
    });
    next.to_vec()
}

fn run(server: &FakeServer, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
    server.run_words(words)
}

/// Creates filters that can be merged, one that can't, a string, a list of items that is to become a static filter, and
/// sketches.
fn bloom_filters(server: &FakeServer) {
    for line in ["CMS.INITBYDIM cms 20 5", "TDIGEST.CREATE tdigest", "TDIGEST.ADD tdigest 1 2"] {
        server.line(line).unwrap();
    }
    for (key, options) in [("k", "1000"), ("other", "1000 LIKE k"), ("small", "10")] {
        server.line(&format!("BF.RESERVE {key} 0.01 {options}")).unwrap();
    }
    add(server, "k", "item", 10);
    server.put("bits", Content::String(vec![7; 1000]));
    server.line("BF.REBUILD list BEGIN LAYOUT FUSE").unwrap();
    server.line("BF.REBUILD list ADD a b c").unwrap();
}

/// Stores in `k` a filter that the next delete will compact.
fn cuckoo_filter(server: &FakeServer) {
    let mut filter = Cuckoo::new(CuckooSpec { origin: Origin::RedisBloom, ..CuckooSpec::new(200) }).unwrap();
    filter.insert(b"x").unwrap();
    for item in 0..1000u64 {
        filter.insert(item.to_le_bytes()).unwrap();
    }
    // Delete items until one more delete would make the filter sparse.
    let mut items = (0..1000u64).map(u64::to_le_bytes);
    while !filter.is_sparse() {
        let mut last = filter.snapshot().unwrap();
        assert!(last.remove(items.next().unwrap()));
        if last.is_sparse() {
            break;
        }
        filter = last;
    }
    server.put("k", filter);
}

/// Runs every command in the table on filters in several states, with background work, each on a server of its own.
fn every_command(run: impl Fn(&FakeServer, &str, &[Vec<u8>])) {
    let more = [
        "BF.MERGE k other",
        "BF.MERGE new k other",
        "BF.MERGE other BLOB {k}",
        "BF.MERGE new BLOB {k} {k}",
        "BF.INTERSECT k k other",
        "BF.INTERSECT small k other",
        "BF.IMPORT new GOZERO bits BITS 8000",
        "BF.IMPORT new GOZERO none BITS 80000 DATA bits",
        "BF.REBUILD list COMMIT",
    ];
    let of_table: Vec<&str> = table().iter().flat_map(|entry| lines(&entry.name("bf"))).copied().collect();
    for state in [bloom_filters, cuckoo_filter] {
        let lines =
            of_table.iter().chain(&more).map(|line| line.split(' ').map(|word| word.into()).collect());
        let mut commands: Vec<Vec<Vec<u8>>> = lines.collect();
        commands.push(vec![b"BF.LOAD".to_vec(), b"new".to_vec(), valkey_payload()]);
        commands.extend(begin_loads(&FakeServer::default()));
        for words in commands {
            let server = FakeServer::default();
            state(&server);
            begin_loads(&server);
            server.goes_to_background.set(true);
            let line = String::from_utf8_lossy(&words.join(&b' ')).into_owned();
            let file = |word| if word == b"{k}" { server.dump("k") } else { word };
            run(&server, &line, &words.into_iter().map(file).collect::<Vec<_>>());
        }
    }
}

/// What valkey-bloom writes of a filter.
fn valkey_payload() -> Vec<u8> {
    let filter = golden::foreign("foreign-valkey");
    let export = Export::new(&filter).expect("an original");
    export.read(0, usize::try_from(export.len()).unwrap())
}

/// A command asks for the memory of its background work, as `Background` demands, but lets the server evict keys only
/// for the bytes by which the command's own keys grow. This also fails if a command that isn't listed here works in the
/// background.
#[test]
fn no_command_has_keys_evicted_for_what_no_key_grows_by() {
    let fields = valkey_payload().len() as u64 - golden::foreign("foreign-valkey").bytes();
    let background = RefCell::new(BTreeSet::new());
    every_command(|server, line, words| {
        let bytes = || {
            let keys = server.keys.borrow();
            let bytes = keys.values().map(|content| match &*content.borrow() {
                Content::Filter(filter) => filter.bytes(),
                Content::Sketch(sketch) => sketches::bytes_of(sketch.as_ref()),
                _ => 0,
            });
            bytes.sum::<u64>()
        };
        let before = bytes();
        server.may_evict.set(0);
        let reply = run(server, words);
        let (grown, may_evict) = (bytes().saturating_sub(before), server.may_evict.get());
        // A payload is longer than the filter, because it has fields in addition to the cells.
        let is_kept = reply.is_err() || may_evict <= grown + fields;
        assert!(is_kept, "{line}: {may_evict} bytes for keys that grow by {grown}");
        if server.worked_in_background.get() {
            background.borrow_mut().insert(String::from_utf8(words[0].clone()).unwrap());
        }
    });
    let known = "BF.IMPORT BF.INTERSECT BF.LOAD BF.LOADCHUNK BF.MERGE BF.REBUILD CF.COMPACT CF.DEL CF.LOADCHUNK CMS.MERGE TDIGEST.MERGE";
    assert_eq!(background.into_inner().into_iter().collect::<Vec<_>>().join(" "), known);
}

/// The server may refuse to open a key for writing, from the beginning or when the work in the background has been
/// done. The command is refused, and changes nothing.
#[test]
fn a_locked_key_is_not_written() {
    for at_once in [true, false] {
        let locked = Cell::new(0);
        every_command(|server, line, words| {
            let lock = |server: &FakeServer| server.keys_are_locked.set(true);
            if at_once {
                lock(server)
            } else {
                meanwhile(server, lock)
            }
            server.take_replicated();
            let reply = run(server, words);
            let is_read = at_once && (!writes(words) || line.ends_with("STATUS"));
            if server.keys_are_locked.get() && !is_read {
                let ends_a_load = line.starts_with("BF.LOADCHUNK") || line.starts_with("CF.LOADCHUNK");
                assert!(reply.is_err() || ends_a_load, "{line}: {reply:?}");
                assert!(server.take_replicated().is_empty() || ends_a_load, "{line}");
                locked.set(locked.get() + usize::from(reply == Err(CommandError::Locked)));
            }
        });
        let least = if at_once { 60 } else { 8 };
        assert!(locked.get() >= least, "{}", locked.get());
    }
}

/// Whether the command writes its key.
fn writes(words: &[Vec<u8>]) -> bool {
    table().iter().any(|entry| entry.name.as_bytes().eq_ignore_ascii_case(&words[0]) && entry.writes())
}
