//! Limits on what clients may ask for: items in a command, numbers in a reservation, and filters that are being loaded.

use crate::support::fake_server::FakeServer;
use bloomery_commands::config::Settings;
use bloomery_commands::metrics::{ADDS_REFUSED, CREATIONS_REFUSED};
use bloomery_commands::{Reply, table};
use std::ptr;

/// A command with this number of items.
fn with_items(command: &str, count: usize) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = command.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    if command.contains("PREFIXED") {
        words.push([1, 0, 0, 0, b'x'].repeat(count));
    } else if command.contains("FIXED") {
        words.push(vec![b'x'; count]);
    } else {
        let item = |item: usize| item.to_string().into_bytes();
        let increment = command.contains("INCRBY").then(|| b"1".to_vec());
        words.extend((0..count).flat_map(|number| [Some(item(number)), increment.clone()]).flatten());
    }
    words
}

const MANY: [&str; 23] = [
    "BF.MADD k",
    "BF.INSERT k ITEMS",
    "BF.MEXISTS k",
    "BF.MDEL k",
    "BF.BULKADD k FIXED 1",
    "BF.BULKADD k PREFIXED",
    "BF.BULKTEST k FIXED 1",
    "BF.BULKTEST k PREFIXED",
    "CF.INSERT c ITEMS",
    "CF.INSERTNX c ITEMS",
    "CF.MEXISTS c",
    "CMS.INCRBY cms",
    "CMS.QUERY cms",
    "TOPK.ADD topk",
    "TOPK.INCRBY topk",
    "TOPK.QUERY topk",
    "TOPK.COUNT topk",
    "TDIGEST.ADD tdigest",
    "TDIGEST.CDF tdigest",
    "TDIGEST.RANK tdigest",
    "TDIGEST.REVRANK tdigest",
    "TDIGEST.BYRANK tdigest",
    "TDIGEST.BYREVRANK tdigest",
];

#[test]
fn every_command_with_items_is_limited() {
    let limited = Settings { max_items_per_command: 1000, ..Settings::DEFAULT };
    for command in MANY {
        let run = |server: &FakeServer, count| {
            let words = with_items(command, count);
            server.run_words(&words)
        };
        let server = FakeServer::default();
        server.settings.set(limited);
        let why = run(&server, 1001).unwrap_err().to_string();
        assert_eq!(why, "ERR the command has 1001 items, and max-items-per-command is 1000", "{command}");
        assert!(server.keys.borrow().is_empty() && server.take_replicated().is_empty());
        let sketches = |server: &FakeServer| {
            ["CMS.INITBYDIM cms 20 5", "TOPK.RESERVE topk 3", "TDIGEST.CREATE tdigest"]
                .iter()
                .for_each(|line| drop(server.line(line).unwrap()));
        };
        sketches(&server);
        assert!(run(&server, 1000).is_ok(), "{command}");

        // A replica runs whatever its primary allowed. Without a limit, everything is allowed.
        let replica = FakeServer::default();
        replica.settings.set(limited);
        replica.obeys.set(true);
        sketches(&replica);
        assert!(run(&replica, 1001).is_ok(), "{command}");
        let server = FakeServer::default();
        sketches(&server);
        assert!(run(&server, 5000).is_ok(), "{command}");
    }
}

/// With auto-create off, an add to a missing key is refused, unless it says how large the filter is to be.
#[test]
fn adds_create_filters_only_if_they_may() {
    let (bloom, cuckoo) = ("BF.RESERVE key error_rate capacity", "CF.RESERVE key capacity");
    for (command, by) in [
        ("BF.ADD k a", Some(bloom)),
        ("BF.ADDNX k a", Some(bloom)),
        ("BF.MADD k a", Some(bloom)),
        ("BF.BULKADD k FIXED 1 a", Some(bloom)),
        ("BF.INSERT k ITEMS a", Some(bloom)),
        ("BF.INSERT k EXPANSION 4 ITEMS a", Some(bloom)),
        ("BF.INSERT k CAPACITY 10 ITEMS a", None),
        ("BF.INSERT k ERROR 0.1 ITEMS a", Some(bloom)),
        ("CF.ADD k a", Some(cuckoo)),
        ("CF.ADDNX k a", Some(cuckoo)),
        ("CF.INSERT k ITEMS a", Some(cuckoo)),
        ("CF.INSERTNX k ITEMS a", Some(cuckoo)),
        ("CF.INSERT k CAPACITY 10 ITEMS a", None),
    ] {
        let server = FakeServer::default();
        let run = |auto_create, obeys| {
            server.settings.set(Settings { auto_create, ..Settings::DEFAULT });
            server.obeys.set(obeys);
            server.keys.borrow_mut().clear();
            let outcome = server.line(command);
            assert_eq!(server.keys.borrow().contains_key(&b"k"[..]), outcome.is_ok(), "{command}");
            assert_eq!(server.take_replicated().is_empty(), outcome.is_err(), "{command}");
            outcome
        };
        assert!(run(true, false).is_ok() && run(false, true).is_ok(), "{command}");
        let Some(by) = by else {
            assert!(run(false, false).is_ok(), "{command}");
            continue;
        };
        let why = run(false, false).unwrap_err();
        let expected = "ERR no filter is in the key, and auto-create is no. Create the filter first, with";
        assert_eq!(why.to_string(), format!("{expected} {by}"), "{command}");
        assert!(ptr::eq(why.counter().unwrap(), &CREATIONS_REFUSED), "{command}");
        // An existing filter accepts adds.
        let reserve = if by == bloom { "BF.RESERVE k 0.01 100" } else { "CF.RESERVE k 100" };
        server.line(reserve).unwrap();
        assert!(server.line(command).is_ok(), "{command}");
    }
}

/// Adds that a filter refuses are counted by reason, each item once. Neither a copy nor a load keeps the counts.
#[test]
fn refused_adds_are_counted_by_reason() {
    let server = FakeServer::default();
    let refused = |key: &str| {
        let family = if key.starts_with("cf") { "CF" } else { "BF" };
        let Ok(Reply::Map(fields)) = server.line(&format!("{family}.STATS {key}")) else { panic!("{key}") };
        let Some((_, Reply::Map(counts))) = fields.into_iter().find(|(name, _)| *name == "Adds refused")
        else {
            panic!("{key} has no counts");
        };
        let number = |count| if let Reply::Integer(number) = count { number } else { panic!("{key}") };
        counts.into_iter().map(|(_, count)| number(count)).collect::<Vec<i64>>()
    };
    let sums = || [&ADDS_REFUSED.full, &ADDS_REFUSED.limit, &ADDS_REFUSED.memory].map(|sum| sum.get());
    let before = sums();
    for command in [
        "BF.RESERVE full 0.01 2 NONSCALING",
        "BF.MADD full a b",
        "BF.RESERVE grows 0.01 2",
        "BF.MADD grows a b",
        "CF.RESERVE cf:full 4 BUCKETSIZE 2 EXPANSION 0",
        "CF.RESERVE cf:limit 4 BUCKETSIZE 2",
        "BF.RESERVE rebuilt 0.01 100",
    ] {
        server.line(command).unwrap();
    }
    assert_eq!((refused("full"), refused("cf:full")), (vec![0, 0, 0], vec![0, 0, 0]));
    assert!(server.line("BF.ADD full x").is_err());
    server.line("BF.MADD full y z").unwrap(); // ends at the first item that the filter refuses
    server.line("BF.ADDNX full a").unwrap();
    assert_eq!(refused("full"), [2, 0, 0]);
    server.memory.set(Some(0));
    assert!(server.line("BF.ADD grows x").is_err());
    server.line("BF.MADD grows a x y z").unwrap();
    assert_eq!(refused("grows"), [0, 0, 4]);
    server.memory.set(None);
    server.settings.set(Settings { cuckoo_max_expansions: 1, ..Settings::DEFAULT });
    let adds =
        |key| (0..9).filter(|item| server.line(&format!("CF.ADD {key} {item}")).is_err()).count() as i64;
    let (full, limit) = (adds("cf:full"), adds("cf:limit"));
    assert!(full >= 5 && limit >= 5, "there are 4 slots: {full} {limit}");
    assert_eq!((refused("cf:full"), refused("cf:limit")), (vec![full, 0, 0], vec![0, limit, 0]));
    // If only the shadow refuses an item, the add succeeds.
    server.line("BF.REBUILD rebuilt BEGIN CAPACITY 1 NONSCALING").unwrap();
    server.line("BF.MADD rebuilt a b").unwrap();
    let ended = server.text("BF.REBUILD rebuilt COMMIT");
    assert!(ended.contains("The last one ended because"), "{ended}");
    assert_eq!(refused("rebuilt"), [0, 0, 0]);
    let now = sums();
    let sums = [0, 1, 2].map(|reason| (now[reason] - before[reason]) as i64);
    // Tests that run at the same time count, too.
    assert!(sums[0] >= 2 + full && sums[1] >= limit && sums[2] >= 4, "{sums:?}");
}

/// Opening a source takes time, however small it is. A replica combines what its primary combined.
#[test]
fn the_number_of_sources_is_limited() {
    for command in ["BF.MERGE d", "BF.MERGE d BLOB", "BF.INTERSECT d"] {
        let run = |sources: usize, obeys| {
            let server = FakeServer::default();
            server.line("BF.RESERVE k 0.01 100 NONSCALING").unwrap();
            server.obeys.set(obeys);
            let source = if command.ends_with("BLOB") { server.dump("k") } else { b"k".to_vec() };
            let words = command.split(' ').map(str::as_bytes);
            server.run(&words.chain(vec![&source[..]; sources]).collect::<Vec<_>>())
        };
        let why = run(2049, false).unwrap_err().to_string();
        assert!(
            why.starts_with("ERR the command has 2049 sources, and the maximum is 2048."),
            "{command}: {why}"
        );
        assert!(run(2048, false).is_ok() && run(2049, true).is_ok(), "{command}");
    }
}

/// [`MANY`] contains every command that accepts several items.
#[test]
fn no_command_with_items_is_forgotten() {
    for entry in table() {
        let takes_many = entry.arguments.iter().any(|argument| {
            let name = argument.name;
            argument.multiple && name == "item" || name == "blob" || name == "items"
        });
        let name = entry.name("bf").to_ascii_uppercase();
        let listed = MANY.iter().any(|command| command.split(' ').next() == Some(&name));
        assert!(!takes_many || listed, "{name}");
    }
}

#[test]
fn rates_and_capacities_are_taken_up_to_their_bounds() {
    let server = FakeServer::default();
    let why = |words: &str| {
        let reply = server.line(&format!("BF.RESERVE k {words}"));
        server.keys.borrow_mut().clear();
        reply.err().map(|why| why.to_string())
    };
    assert_eq!(why("1e-12 100"), None);
    assert_eq!(why("9.9e-13 100"), Some("ERR error rate must be at least 1e-12".into()));
    let most = bloomery::limits::MAX_CAPACITY;
    let memory = why(&format!("0.01 {most}")).unwrap();
    assert!(memory.starts_with("ERR Insufficient memory to create filter: it needs "), "{memory}");
    assert_eq!(why(&format!("0.01 {}", most + 1)), Some(format!("ERR capacity must be at most {most}")));
}

/// The head of an empty filter of about 1 MiB.
fn head() -> Vec<u8> {
    let server = FakeServer::default();
    server.line("BF.RESERVE k 0.01 700000").unwrap();
    match server.line("BF.SCANDUMP k 0") {
        Ok(Reply::Piece(_, Some(head))) => head,
        other => panic!("{other:?}"),
    }
}

const TOO_MANY: &str = "ERR too many filters are being loaded; finish those or wait five minutes";

fn begin(server: &FakeServer, key: &str) -> Result<Reply, String> {
    server.run(&[b"BF.LOADCHUNK", key.as_bytes(), b"1", &head()]).map_err(|why| why.to_string())
}

#[test]
fn loads_that_wait_are_limited_in_number() {
    let server = FakeServer::default();
    for load in 0..64 {
        begin(&server, &format!("k{load}")).unwrap();
    }
    assert_eq!(begin(&server, "one more"), Err(TOO_MANY.to_owned()));
    begin(&server, "k7").unwrap(); // restarts a load, so there are no more than before
    // If a replica refused pieces from its primary, it would miss the filter.
    server.obeys.set(true);
    begin(&server, "one more").unwrap();
}

#[test]
fn loads_that_wait_have_the_memory_of_one_filter() {
    let server = FakeServer::default();
    server.memory.set(Some(3 << 20));
    for key in ["a", "b", "c"] {
        begin(&server, key).unwrap();
    }
    assert_eq!(begin(&server, "d"), Err(TOO_MANY.to_owned()));
    begin(&server, "a").unwrap();
    server.memory.set(Some(1 << 10));
    let why = begin(&server, "a").unwrap_err();
    assert!(why.starts_with("ERR Insufficient memory to create filter: it needs "), "{why}");
}
