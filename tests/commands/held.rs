//! What prevents a command from blocking the server: work that is done once for many items, and bounds that don't
//! depend on what a client sends. These tests count steps. The suite `latency` measures times on real servers.

use crate::support::fake_server::{Content, FakeServer};
use crate::support::golden;
use bloomery::filter::{Bloom, Cuckoo, CuckooSpec, Filter};
use bloomery::{Family, Layout, Spec, Tightening};
use bloomery_commands::{Answer, Reply};
use std::collections::BTreeMap;

fn number(server: &FakeServer, key: &str, field: &str) -> i64 {
    let family = if server.copy(key).cuckoo().is_some() { "CF" } else { "BF" };
    let Ok(Reply::Numbers(info)) = server.line(&format!("{family}.INFO {key}")) else { panic!() };
    match info.fields().iter().find(|(name, _)| *name == field) {
        Some((_, Reply::Integer(value))) => *value,
        other => panic!("{other:?}"),
    }
}

/// A command asks for growth once, however many of its items find the filter full. To ask, it computes the size of a
/// layer and requests that memory from the server, which costs more than adding a thousand items.
#[test]
fn a_refusal_to_grow_is_worked_out_once_in_a_command() {
    let chain = |server: &FakeServer| drop(server.line("BF.RESERVE k 0.01 100").unwrap());
    let foreign = |server: &FakeServer| server.put("k", golden::foreign("foreign-redisbloom"));
    let rebuild = |server: &FakeServer| {
        server.line("BF.RESERVE k 0.01 100").unwrap();
        server.line("BF.REBUILD k BEGIN CAPACITY 100000").unwrap();
    };
    let cuckoo = |server: &FakeServer| drop(server.line("CF.RESERVE k 100").unwrap());
    type Make = fn(&FakeServer);
    let kinds: [(&str, Make, &[&str]); 4] = [
        ("chain", chain, &["BF.MADD k", "BF.INSERT k ITEMS", "BF.BULKADD k FIXED 8"]),
        ("foreign", foreign, &["BF.MADD k", "BF.INSERT k ITEMS", "BF.BULKADD k FIXED 8"]),
        ("rebuild", rebuild, &["BF.MADD k", "BF.INSERT k ITEMS", "BF.BULKADD k FIXED 8"]),
        ("cuckoo", cuckoo, &["CF.INSERT k ITEMS", "CF.INSERTNX k ITEMS"]),
    ];
    let add = |server: &FakeServer, command: &str, from: u64| {
        let items: Vec<[u8; 8]> = (from..from + 2000).map(u64::to_le_bytes).collect();
        let blob = items.concat();
        let mut words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        match command.contains("FIXED") {
            true => words.push(&blob),
            false => words.extend(items.iter().map(|item| &item[..])),
        }
        server.run(&words)
    };
    for (kind, make, commands) in kinds {
        for command in commands {
            let server = FakeServer::default();
            make(&server);
            // There is no memory for more cells.
            server.memory.set(Some(1));
            let first = add(&server, command, 0);
            server.asked.set(0);
            let second = add(&server, command, 1 << 32);
            assert_eq!(server.asked.get(), 1, "{kind}: {command}");
            // Both replies show refusals, and name the error if their format allows it.
            for reply in [first, second] {
                match reply {
                    Ok(Reply::Answers(answers)) => {
                        assert!(answers.error.is_some());
                        assert_eq!(answers.answers.len(), 2000, "{kind}: {command}");
                        assert!(answers.answers.contains(&Answer::Refused), "{kind}: {command}");
                    }
                    Ok(Reply::Inserted(answers) | Reply::InsertedIfAbsent(answers)) => {
                        assert_eq!(answers.len(), 2000);
                        assert!(answers.contains(&Answer::Refused), "{kind}: {command}");
                    }
                    Err(why) => assert!(why.to_string().contains("Insufficient memory"), "{why}"),
                    Ok(other) => panic!("{other:?}"),
                }
            }
            // The next command asks again, and grows the filter if memory is granted.
            server.memory.set(None);
            let cells = server.copy("k").summary(0).size;
            add(&server, command, 2 << 32).unwrap();
            assert!(server.copy("k").summary(0).size > cells, "{kind}: {command}");
        }
    }
}

/// The number of layers grows with the logarithm of the number of items, whatever EXPANSION is, and a replica has the
/// same number of layers.
#[test]
fn a_filter_that_began_small_has_few_layers() {
    for (options, most) in
        [("EXPANSION 1", 2), ("EXPANSION 1 TIGHTENING 0.9", 80), ("EXPANSION 2 LAYOUT CLASSIC", 16)]
    {
        let (server, replica) = (FakeServer::default(), FakeServer::default());
        replica.obeys.set(true);
        server.line(&format!("BF.RESERVE k 0.01 1 {options}")).unwrap();
        for from in (0..20_000u64).step_by(1000) {
            let blob: Vec<u8> = (from..from + 1000).flat_map(u64::to_le_bytes).collect();
            server.run(&[b"BF.BULKADD", b"k", b"FIXED", b"8", &blob]).unwrap();
        }
        let layers = number(&server, "k", "Number of filters");
        assert!(layers <= most, "{options}: {layers} layers");
        replica.obey(&server.replicated.take());
        assert_eq!(server.dump("k"), replica.dump("k"));
    }
}

/// BF.STATS lists only the newest layers. Its other fields cover all layers.
#[test]
fn the_layers_that_info_lists_are_limited() {
    let family = Family::Scaling { expansion: 1, tightening: Tightening::INVERSE_SQUARE };
    for (grown, listed) in [(100, 101), (127, 128), (135, 128)] {
        let spec = Spec { family, layout: Some(Layout::Classic), ..Spec::scaling(1, 0.01) };
        let mut filter = Bloom::new(spec).unwrap();
        (0..grown).for_each(|_| assert_eq!(filter.grow(), Ok(true)));
        let newest = filter.newest_layer().capacity();
        let server = FakeServer::default();
        server.put("k", Filter::from(filter));
        let Ok(Reply::Map(info)) = server.line("BF.STATS k") else { panic!() };
        let field = |name| info.iter().find(|(known, _)| *known == name).map(|(_, value)| value).unwrap();
        assert_eq!(field("Number of filters"), &Reply::Integer(grown + 1));
        let Reply::Array(layers) = field("Layers") else { panic!() };
        assert_eq!(layers.len(), listed);
        let Some(Reply::Map(last)) = layers.last() else { panic!() };
        assert!(last.contains(&("Capacity", newest.into())), "{last:?}");
    }
}

/// The cost of an import depends on the length of its source, not on BITS. The same is true of the number of bytes that
/// it replicates.
#[test]
fn an_import_replicates_as_many_bytes_as_its_source_has() {
    const BITS: usize = 1 << 20;
    let formats: [&[&str]; 4] = [
        &["BF.IMPORT", "k", "GOZERO", "source", "BITS", "1048576"],
        &["BF.IMPORT", "k", "GOZERO", "source", "MAPS", "3", "BITS", "1048576"],
        &["BF.IMPORT", "k", "REDISSON", "source", "config"],
        &["BF.IMPORT", "k", "REDISSON", "source", "config", "CODEC", "KRYO5"],
    ];
    for words in formats {
        for len in [0, 1, 100, 10_000, BITS / 16 - 1, BITS / 16, BITS / 8] {
            let server = FakeServer::default();
            let source: Vec<u8> = (0..len).map(|byte| (byte % 251) as u8).collect();
            if len > 0 {
                server.put("source", Content::String(source));
            }
            server
                .put("config", Content::Hash(BTreeMap::from([("size", "1048576"), ("hashIterations", "7")])));
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            assert_eq!(server.run(&words), Ok(Reply::Ok));
            let sent = server.replicated.take();
            let bytes: usize = sent.iter().flatten().map(Vec::len).sum();
            assert!(bytes <= 2 * len + 1000, "{bytes} bytes for a source of {len}");
            // A replica may have other content in `source` and `config`, or nothing, as here.
            let replica = FakeServer::default();
            replica.obeys.set(true);
            replica.memory.set(Some(1));
            for words in sent {
                assert_eq!(replica.run_words(&words), Ok(Reply::Ok));
            }
            assert!(replica.dump("k") == server.dump("k"), "a source of {len} bytes");
        }
    }
}

#[test]
fn a_bitmap_in_the_command_is_checked_like_one_in_a_key() {
    let server = FakeServer::default();
    for (line, why) in [
        ("BF.IMPORT k GOZERO none BITS 8 DATA", "ERR DATA expects a bitmap"),
        (
            "BF.IMPORT k GOZERO none BITS 8 DATA ab",
            "ERR received bad data: wrong length of the bitmap: it has more bits than the filter",
        ),
        (
            "BF.IMPORT k REDISSON none none DATA 8 7",
            "ERR DATA expects the size, the number of hash iterations and a bitmap",
        ),
        (
            "BF.IMPORT k REDISSON none none DATA 8 x a",
            "ERR DATA expects the size, the number of hash iterations and a bitmap",
        ),
        (
            "BF.IMPORT k REDISSON none none DATA 8 4294967296 a",
            "ERR received bad data: invalid number of hashes",
        ),
    ] {
        assert_eq!(server.text(line), why, "{line}");
    }
    assert!(server.keys.borrow().is_empty() && server.replicated.take().is_empty());
}

/// One CF.COMPACT visits a limited number of sub-filters, and the next one continues. The replica moves the same
/// fingerprints, and in the end nothing is left to do.
#[test]
fn a_compaction_of_many_small_tables_ends_early_and_goes_on() {
    let spec = CuckooSpec { capacity: 4, bucket_size: 2, ..CuckooSpec::new(4) };
    let mut filter = Cuckoo::new(spec).unwrap();
    // These items need at least 8,000 sub-filters of four slots. Visiting all sub-filters for each item would mean more
    // than 100 million visits.
    let items: Vec<[u8; 8]> = (0..32_000u64).map(u64::to_le_bytes).collect();
    for item in &items {
        filter.insert(item).unwrap();
    }
    let (kept, deleted): (Vec<[u8; 8]>, Vec<_>) = items.iter().partition(|item| item[0] % 2 == 0);
    assert!(deleted.iter().all(|item| filter.remove(item)));
    let (server, replica) = (FakeServer::default(), FakeServer::default());
    replica.put("k", Filter::Cuckoo(filter.snapshot().unwrap()));
    server.put("k", Filter::Cuckoo(filter));
    replica.obeys.set(true);
    let mut commands = 0;
    loop {
        let before = server.copy("k").cuckoo().unwrap().moves();
        assert_eq!(server.line("CF.COMPACT k"), Ok(Reply::Ok));
        let moved = server.copy("k").cuckoo().unwrap().moves() - before;
        assert!(moved <= 1 << 15, "{moved} moves in one command");
        commands += 1;
        if number(&server, "k", "Number of items deleted") == 0 {
            break;
        }
        assert!(moved > 0, "it goes on");
    }
    println!("{commands} commands, {} sub-filters", number(&server, "k", "Number of filters"));
    replica.obey(&server.replicated.take());
    assert_eq!(server.dump("k"), replica.dump("k"));
    let filter = server.copy("k");
    assert!(kept.iter().all(|item| filter.cuckoo().unwrap().contains(item)));
}
