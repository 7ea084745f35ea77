//! Filters that are being loaded in pieces: what ends a load, how much memory it needs, and how this server obeys a
//! RedisBloom primary that is loading one.

use crate::support::env;
use crate::support::fake_server::{Content, FakeServer};
use crate::support::golden;
use crate::support::rdb::Fields;
use bloomery::filter::Filter;
use bloomery::wire::{Encoder, redisbloom};
use bloomery_commands::{END, Reply};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::cell::Cell;
use std::rc::Rc;

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// A filter as a RedisBloom server would send it: the family, and the pieces with their iterators, each chunk cut into
/// three.
fn sent_by_redisbloom(name: &str) -> (&'static str, Vec<(u64, Vec<u8>)>) {
    let (_, filter) = golden::all().into_iter().find(|(known, _)| *known == name).unwrap();
    let encoder = Encoder::new(&filter);
    let mut pieces = vec![(1, encoder.head().to_vec())];
    encoder.chunks(|end, chunk| {
        let start = end - chunk.len() as u64;
        let cut = chunk.len() / 3;
        for (from, to) in [(0, cut), (cut, 2 * cut), (2 * cut, chunk.len())] {
            pieces.push((1 + start + to as u64, chunk[from..to].to_vec()));
        }
    });
    (if name.starts_with("cuckoo") { "CF" } else { "BF" }, pieces)
}

const REDISBLOOMS: [&str; 5] = [
    "foreign-redisbloom",
    "foreign-redisbloom-1",
    "foreign-redisbloom-2",
    "cuckoo-redisbloom",
    "cuckoo-redisbloom-1",
];

fn load(server: &FakeServer, family: &str, (iterator, piece): &(u64, Vec<u8>)) -> Result<Reply, String> {
    let (command, iterator) = (format!("{family}.LOADCHUNK"), iterator.to_string());
    server.run(&[command.as_bytes(), b"k", iterator.as_bytes(), piece]).map_err(|why| why.to_string())
}

/// A replica after a full sync from a RedisBloom server with the same data as `server`. The replica has read
/// RedisBloom's own fields.
fn synced(server: &FakeServer) -> FakeServer {
    let mut fields = Fields::default();
    let copy = match server.copy("k") {
        Filter::Foreign(filter) => {
            redisbloom::save_bloom(&mut fields, &filter);
            redisbloom::load_bloom(&mut fields, redisbloom::ENCODING)
        }
        Filter::Cuckoo(filter) => {
            redisbloom::save_cuckoo(&mut fields, &filter);
            redisbloom::load_cuckoo(&mut fields, redisbloom::ENCODING)
        }
        _ => panic!("it is RedisBloom's"),
    };
    let replica = FakeServer::replica();
    replica.put("k", copy.unwrap());
    replica
}

/// RedisBloom forwards each piece when it arrives, and has the filter as soon as the head has arrived. A full sync
/// between any two pieces transfers the part of the filter that has arrived, and the other pieces follow.
#[test]
fn a_full_sync_between_two_pieces_loses_nothing() {
    for name in REDISBLOOMS {
        let (family, pieces) = sent_by_redisbloom(name);
        let source = FakeServer::default();
        source.put("k", golden::all().into_iter().find(|(known, _)| *known == name).unwrap().1);
        for first in 1..=pieces.len() {
            let primary = FakeServer::replica();
            pieces[..first].iter().for_each(|piece| drop(load(&primary, family, piece).unwrap()));
            let late = synced(&primary);
            pieces[first..].iter().for_each(|piece| drop(load(&late, family, piece).unwrap()));
            assert!(late.dump("k") == source.dump("k"), "{name}, synchronized before piece {first}");
        }
        // This server's own AOF and replicas get the same pieces.
        let server = FakeServer::replica();
        pieces.iter().for_each(|piece| drop(load(&server, family, piece).unwrap()));
        let sent = server.replicated.take();
        assert_eq!(sent.len(), pieces.len());
        assert!(sent.iter().zip(&pieces).all(|(words, (_, piece))| words[3] == *piece));
    }
}

/// An add between two pieces goes into the filter that is being loaded, as on RedisBloom.
#[test]
fn an_add_between_two_pieces_goes_into_the_filter() {
    for name in REDISBLOOMS {
        let (family, pieces) = sent_by_redisbloom(name);
        let clean = FakeServer::replica();
        pieces.iter().for_each(|piece| drop(load(&clean, family, piece).unwrap()));
        let members: Vec<String> = (0..20_000).map(|number| format!("member:{number}")).collect();
        let is_in = |server: &FakeServer, item: &str| {
            server.line(&format!("{family}.EXISTS k {item}")) == Ok(Reply::Bool(true))
        };
        let known: Vec<&String> = members.iter().filter(|item| is_in(&clean, item)).collect();
        let server = FakeServer::replica();
        pieces[..pieces.len() - 1].iter().for_each(|piece| drop(load(&server, family, piece).unwrap()));
        server.line(&format!("{family}.ADD k between")).unwrap();
        assert!(is_in(&server, "between"), "{name}: it answers as RedisBloom does meanwhile");
        load(&server, family, &pieces[pieces.len() - 1]).unwrap();
        assert!(known.iter().all(|item| is_in(&server, item)), "{name}: what was loaded is there");
        let has = |server: &FakeServer| match server.copy("k") {
            Filter::Foreign(filter) => filter.links().len(),
            Filter::Cuckoo(filter) => filter.tables().len(),
            _ => 0,
        };
        assert!(has(&server) >= has(&clean), "{name}: it is the filter that was loaded");
    }
}

/// A RedisBloom primary never sends pieces that it has refused itself. If some arrived all the same, they would change
/// neither the filter that is being loaded nor a finished one.
#[test]
fn pieces_that_do_not_fit_are_refused_by_those_who_obey() {
    let (family, pieces) = sent_by_redisbloom("foreign-redisbloom");
    let server = FakeServer::replica();
    load(&server, family, &pieces[0]).unwrap();
    let before = server.dump("k");
    for (iterator, len) in [(0u64, 3), (1, 3), (2, 3), (1 << 40, 1), (9, 0)] {
        assert!(load(&server, family, &(iterator, vec![255; len])).is_err(), "{iterator} {len}");
    }
    assert!(load(&server, family, &pieces[0]).is_err(), "there is one already");
    assert!(load(&server, "CF", &pieces[1]).is_err());
    assert_eq!(server.dump("k"), before);
    for reserve in ["BF.RESERVE own 0.01 100", "CF.RESERVE own 100"] {
        let server = FakeServer::default();
        server.line(reserve).unwrap();
        server.take_replicated();
        server.obeys.set(true);
        let before = server.dump("own");
        let command = format!("{}.LOADCHUNK", &reserve[..2]);
        assert!(server.run(&[command.as_bytes(), b"own", b"9", &[255; 8]]).is_err());
        assert!(server.dump("own") == before && server.take_replicated().is_empty());
    }
}

/// A load can be ended without free memory, because ending it frees memory. Other pieces are refused.
#[test]
fn a_load_can_be_ended_without_memory() {
    for (name, family) in [("foreign-redisbloom", "BF"), ("cuckoo-redisbloom", "CF")] {
        let (_, pieces) = sent_by_redisbloom(name);
        let server = FakeServer::default();
        let end = || load(&server, family, &(0, Vec::new()));
        let none = if family == "BF" { "ERR not found" } else { "Invalid position" };
        assert_eq!(end(), Err(none.to_owned()));
        load(&server, family, &pieces[0]).unwrap();
        server.is_out_of_memory.set(true);
        assert_eq!(load(&server, family, &pieces[1]), Err(OOM.to_owned()));
        assert_eq!(load(&server, family, &pieces[0]), Err(OOM.to_owned()));
        assert_eq!(end(), Ok(Reply::Ok));
        server.is_out_of_memory.set(false);
        assert_eq!(end(), Err(none.to_owned()), "it is gone");
        server.is_out_of_memory.set(true);
        assert!(server.keys.borrow().is_empty() && server.replicated.borrow().is_empty());
        // A server that evicts keys exceeds its limit now and then. Small loads continue, like other writes.
        server.evicts.set(true);
        load(&server, family, &pieces[0]).unwrap();
        let mut large = vec![0; 1 << 20];
        assert_eq!(load(&server, family, &(9, large.clone())), Err(OOM.to_owned()));
        large.truncate(100);
        assert_ne!(load(&server, family, &(9, large)), Err(OOM.to_owned()));
    }
}

/// An array is allocated when half of it has arrived. At that moment it must fit in memory together with the waiting
/// pieces.
#[test]
fn an_array_that_does_not_fit_is_refused_when_its_half_has_come() {
    let source = FakeServer::default();
    source.line("BF.RESERVE k 0.01 8000000 NONSCALING").unwrap();
    let mut pieces = Vec::new();
    if let Content::Filter(filter) = &*source.keys.borrow()[&b"k"[..]].borrow() {
        let encoder = Encoder::new(filter);
        pieces.push((1, encoder.head().to_vec()));
        encoder.chunks(|end, chunk| pieces.push((end + 1, chunk.to_vec())));
    }
    assert_eq!(pieces.len(), 11, "a head and ten chunks of 1 MiB");
    let server = FakeServer::default();
    pieces[..5].iter().for_each(|piece| drop(load(&server, "BF", piece).unwrap()));
    server.memory.set(Some(5 << 20));
    let why = load(&server, "BF", &pieces[5]).unwrap_err();
    assert!(why.starts_with("ERR Insufficient memory to create filter: it needs 9"), "{why}");
    server.memory.set(None);
    // Nothing has changed, and the load continues.
    pieces[5..].iter().for_each(|piece| drop(load(&server, "BF", piece).unwrap()));
    assert!(server.dump("k") == source.dump("k"));
}

/// The pieces of a filter arrive in any order, some of them more than once, and another thread places some of them.
/// Between the two runs of the command for such a piece, the load may be ended, and may be started again.
#[test]
fn chunks_that_another_thread_places_become_the_same_filter() {
    for name in REDISBLOOMS {
        let whole = golden::all().into_iter().find(|(known, _)| *known == name).unwrap().1;
        let source = FakeServer::default();
        source.put("k", whole);
        let (family, pieces) = sent_by_redisbloom(name);
        for seed in 0..20 {
            let mut random = SmallRng::seed_from_u64(seed);
            let server = FakeServer::default();
            load(&server, family, &pieces[0]).unwrap();
            let mut left: Vec<_> = pieces[1..].iter().filter(|(_, piece)| !piece.is_empty()).collect();
            while !left.is_empty() {
                server.goes_to_background.set(random.random());
                let piece = left[random.random_range(0..left.len())];
                if server.goes_to_background.get() && random.random_range(0..4) == 0 {
                    let (head, begins_again) = (pieces[0].clone(), random.random::<bool>());
                    server.meanwhile.replace(Some(Box::new(move |server: &FakeServer| {
                        server.uploads.borrow_mut().flush(None);
                        if begins_again {
                            load(server, family, &head).unwrap();
                        }
                    })));
                    assert_eq!(
                        load(&server, family, piece),
                        Err("ERR not found".to_owned()),
                        "{name} {seed}"
                    );
                    if !begins_again {
                        load(&server, family, &pieces[0]).unwrap();
                    }
                    left = pieces[1..].iter().filter(|(_, piece)| !piece.is_empty()).collect();
                    continue;
                }
                load(&server, family, piece).unwrap();
                if random.random_range(0..3) > 0 {
                    left.retain(|other| *other != piece);
                }
                if server.keys.borrow().contains_key(&b"k"[..]) {
                    break;
                }
            }
            assert!(server.dump("k") == source.dump("k"), "{name} {seed}");
            assert!(server.uploads.borrow().is_empty());
        }
    }
}

/// If a client disconnects while another thread is placing its chunk, nobody records the chunk in the load. Its memory
/// is counted all the same, and the chunk can be sent again.
#[test]
fn a_chunk_that_nobody_comes_back_to_is_counted() {
    let size = 1u64 << 20;
    for arrived in [false, true] {
        let mut loader = redisbloom::Loader::cuckoo(&redisbloom_cuckoo(size)).unwrap();
        let chunk: Vec<u8> = (0..size / 2).map(|byte| (byte % 251) as u8).collect();
        if arrived {
            loader.push(size / 2, &chunk).unwrap();
        }
        let end = size / 2 + if arrived { size / 4 } else { 0 };
        let chunk = &chunk[..chunk.len() / if arrived { 2 } else { 1 }];
        let before = loader.held();
        drop(loader.destination(end, chunk).unwrap().take(chunk));
        let counted = loader.held();
        loader.push(end, chunk).unwrap();
        assert!(before < counted && loader.held() <= counted, "{before} {counted} {}", loader.held());
    }
}

/// If a piece in RedisBloom's format comes again with different bytes, before or after the array is allocated, the most
/// recent bytes count, as in RedisBloom and on its replicas. If the old and the new bytes were ORed, the filter would
/// have items that nobody added.
#[test]
fn of_a_piece_that_comes_again_the_last_counts() {
    let size = 1u64 << 16;
    for seed in 0..20 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut loader = redisbloom::Loader::cuckoo(&redisbloom_cuckoo(size)).unwrap();
        let mut slots = vec![0u8; size as usize];
        let mut load = |start: usize, chunk: &[u8]| {
            loader.push((start + chunk.len()) as u64, chunk).unwrap();
            slots[start..start + chunk.len()].copy_from_slice(chunk);
            loader.is_complete()
        };
        let mut is_complete = false;
        while !is_complete {
            let start = random.random_range(0..size as usize + 9000).saturating_sub(9000);
            let len = random.random_range(1..=(size as usize - start).min(9000));
            let byte: u8 = if random.random() { 0 } else { random.random() };
            load(start, &vec![byte; len]);
            is_complete = load(start, &vec![byte.wrapping_mul(2); len / 2 + 1]);
        }
        let filter = loader.finish().unwrap();
        let Filter::Cuckoo(cuckoo) = &filter else { panic!("a cuckoo filter") };
        assert_eq!(cuckoo.items(), slots.iter().filter(|slot| **slot != 0).count() as u64);
        let mut found = Vec::new();
        Encoder::new(&filter).chunks(|_, chunk| found.extend_from_slice(chunk));
        assert!(found == slots, "{seed}");
    }
}

/// A client's piece of more than 1 MiB is refused, because placing one of 16 MiB would block the server for 50 ms. Such
/// a piece from a primary or an append-only file is accepted.
#[test]
fn a_chunk_longer_than_those_written_is_taken_from_whom_is_obeyed_only() {
    let source = FakeServer::default();
    source.line("BF.RESERVE k 0.01 2000000 NONSCALING").unwrap();
    source.line("BF.ADD k item").unwrap();
    let filter = source.copy("k");
    let encoder = Encoder::new(&filter);
    let (mut stamp, mut cells) = ([0; 4], Vec::new());
    encoder.chunks(|_, chunk| {
        stamp = chunk[12..16].try_into().unwrap();
        cells.extend_from_slice(&chunk[20..]);
    });
    let mut long = 0u64.to_le_bytes().to_vec();
    long.extend((cells.len() as u32).to_le_bytes());
    long.extend(stamp);
    long.extend(crc32c::crc32c_append(crc32c::crc32c(&long), &cells).to_le_bytes());
    long.extend(&cells);
    let end = (cells.len() + 1).to_string();
    for obeys in [false, true] {
        let server = FakeServer::default();
        server.obeys.set(obeys);
        server.run(&[b"BF.LOADCHUNK", b"copy", b"1", encoder.head()]).unwrap();
        let loaded = server.run(&[b"BF.LOADCHUNK", b"copy", end.as_bytes(), &long]);
        match loaded {
            Ok(_) => assert!(obeys),
            Err(why) => assert!(!obeys && why.to_string().contains("more than 1 MiB"), "{why}"),
        }
    }
}

/// The head of a RedisBloom cuckoo filter whose slots occupy `size` bytes in total.
fn redisbloom_cuckoo(size: u64) -> Vec<u8> {
    let mut head = Vec::new();
    [0, size / 4, 0, 1].iter().for_each(|field: &u64| head.extend(field.to_le_bytes()));
    [4u16, 20, 1].iter().for_each(|field| head.extend(field.to_le_bytes()));
    head
}

/// The family and the pieces of a native filter with 100 items.
fn sent_by_us(reserve: &str) -> (&'static str, Vec<(u64, Vec<u8>)>) {
    let family = if reserve.starts_with("CF") { "CF" } else { "BF" };
    let source = FakeServer::default();
    source.line(reserve).unwrap();
    (0..100).for_each(|item| drop(source.line(&format!("{family}.ADD k {item}")).unwrap()));
    let mut pieces = Vec::new();
    let filter = source.copy("k");
    let encoder = Encoder::new(&filter);
    pieces.push((1, encoder.head().to_vec()));
    encoder.chunks(|end, chunk| pieces.push((end + 1, chunk.to_vec())));
    (family, pieces)
}

const OURS: [&str; 4] = [
    "BF.RESERVE k 0.01 100",
    "BF.RESERVE k 0.01 10 EXPANSION 1 LAYOUT CLASSIC",
    "BF.RESERVE k 0.01 10",
    "CF.RESERVE k 10 EXPANSION 1",
];

/// Two clients load into one key. A chunk in Bloomery's format contains another filter's cells, which must not get into
/// RedisBloom's filter.
#[test]
fn a_chunk_of_ours_is_no_chunk_of_redisblooms() {
    let (_, ours) = sent_by_us(OURS[1]);
    for name in REDISBLOOMS {
        let (family, pieces) = sent_by_redisbloom(name);
        let server = FakeServer::default();
        load(&server, family, &pieces[0]).unwrap();
        for (_, chunk) in &ours[1..] {
            let why = load(&server, family, &(1 + chunk.len() as u64, chunk.clone())).unwrap_err();
            let ending = "the chunk has the format of Bloomery, the header that of RedisBloom; load one filter into a \
                          key at a time";
            assert!(why.ends_with(ending), "{name}: {why}");
        }
        pieces[1..].iter().for_each(|piece| drop(load(&server, family, piece).unwrap()));
        let source = FakeServer::default();
        source.put("k", golden::all().into_iter().find(|(known, _)| *known == name).unwrap().1);
        assert!(server.dump("k") == source.dump("k"), "{name}: what was refused changed nothing");
    }
}

/// Between two pieces of its dump, a key gets another filter with the same parameters, seed and shape. An item that
/// both filters have may be in different parts of the two, so it could be missing from a mixture of their pieces. Such
/// a mixture must not load. Adds and merges between two pieces do no harm.
#[test]
fn a_dump_of_two_filters_is_refused() {
    let windows = |rotated_first: bool| {
        let server = FakeServer::default();
        server.line("BF.RESERVE k 0.01 100 WINDOW 2 SEED 7").unwrap();
        let item = || drop(server.line("BF.ADD k both").unwrap());
        if rotated_first {
            server.line("BF.ROTATE k").unwrap();
            item();
        } else {
            item();
            server.line("BF.ROTATE k").unwrap();
        }
        server
    };
    let made = |lines: &[&str]| {
        let server = FakeServer::default();
        lines.iter().for_each(|line| drop(server.line(line).unwrap()));
        server
    };
    let chain = ["BF.RESERVE k 0.01 4 SEED 7 EXPANSION 1", "BF.MADD k a b c d e f g h"];
    let cuckoo = ["CF.RESERVE k 4 SEED 7", "CF.INSERT k ITEMS a b c d e f g h"];
    type Swap<'s> = &'s dyn Fn(&FakeServer);
    let put = |other: FakeServer| move |server: &FakeServer| server.put("k", other.copy("k"));
    let (window, chained, fingerprints) = (put(windows(true)), put(made(&chain)), put(made(&cuckoo)));
    let copied = |server: &FakeServer| server.put("k", server.copy("k"));
    let run = |line: &'static str| move |server: &FakeServer| drop(server.line(line).unwrap());
    let committed = |server: &FakeServer| {
        server.line("BF.REBUILD k BEGIN SEED 7").unwrap();
        server.line("BF.REBUILD k COMMIT").unwrap();
    };
    let merged = |server: &FakeServer| {
        server.put("other", server.copy("k"));
        server.line("BF.MERGE k other").unwrap();
    };
    let cases: [(&str, FakeServer, Swap<'_>, bool); 9] = [
        ("window", windows(false), &window, false),
        ("window, copied", windows(false), &copied, false),
        ("window, cleared", windows(false), &run("BF.CLEAR k"), false),
        ("window, rebuilt", windows(false), &committed, false),
        ("window, added to", windows(false), &run("BF.ADD k more"), true),
        ("window, merged into", windows(false), &merged, true),
        ("chain", made(&chain), &chained, false),
        ("cuckoo", made(&cuckoo), &fingerprints, false),
        ("cuckoo, tested", made(&cuckoo), &run("CF.EXISTS k y"), true),
    ];
    for (name, server, swap, is_accepted) in cases {
        let family = if name.starts_with("cuckoo") { "CF" } else { "BF" };
        let copy = FakeServer::default();
        let (mut iterator, mut pieces, mut refused) = (0, 0, None);
        loop {
            let reply = server.line(&format!("{family}.SCANDUMP k {iterator}"));
            let Ok(Reply::Piece(next, piece)) = reply else { panic!("{name}: {reply:?}") };
            let (1.., Some(piece)) = (next, piece) else { break };
            refused = load(&copy, family, &(next, piece)).err();
            if refused.is_some() {
                break;
            }
            (iterator, pieces) = (next, pieces + 1);
            if pieces == 2 {
                swap(&server);
            }
        }
        let stranger = "the chunk does not belong to the header that was loaded";
        match is_accepted {
            true => assert!(refused.is_none() && !copy.keys.borrow().is_empty(), "{name}: {refused:?}"),
            false => assert!(refused.is_some_and(|why| why.ends_with(stranger)), "{name}"),
        }
    }
}

/// Whatever happens to a filter while it is dumped, its copy either has every item that was in the filter throughout,
/// or is refused. Most of these filters are small and have several arrays, and each array is a chunk.
#[test]
fn a_dump_of_a_busy_filter_is_complete_or_refused() {
    let (mut complete, mut refused) = (0, 0);
    for seed in 0..env("BLOOMERY_SEQUENCES", 500) {
        let mut random = SmallRng::seed_from_u64(seed);
        let reserve = match random.random_range(0..10) {
            0..2 => format!("BF.RESERVE k 0.01 20 EXPANSION 1 SEED {seed}"),
            2..4 => format!("BF.RESERVE k 0.01 100 WINDOW 3 SEED {seed}"),
            4..8 => format!("CF.RESERVE k 16 EXPANSION 1 SEED {seed}"),
            // Two chunks, with room everywhere: nothing is ever moved.
            _ => format!("CF.RESERVE k 2097152 BUCKETSIZE 1 SEED {seed}"),
        };
        let (server, family) = (FakeServer::default(), &reserve[..2]);
        server.line(&reserve).unwrap();
        let is_yes = |server: &FakeServer, command: &str, item: usize| {
            server.line(&format!("{family}.{command} k {item}")) == Ok(Reply::Bool(true))
        };
        // For a cuckoo filter, the number of copies of each item: adds minus deletes. A test isn't enough: an item may
        // be found only because of another one, which is deleted later.
        let mut added: [u32; 40] = std::array::from_fn(|item| is_yes(&server, "ADD", item).into());
        for _ in 0..20 {
            let is_in = |added: &[u32], item| match family {
                "CF" => added[item] > 0,
                _ => is_yes(&server, "EXISTS", item),
            };
            let (copy, mut iterator) = (FakeServer::default(), 0);
            let mut throughout: Vec<usize> = (0..added.len()).filter(|item| is_in(&added, *item)).collect();
            let is_refused = loop {
                let reply = server.line(&format!("{family}.SCANDUMP k {iterator}"));
                let Ok(Reply::Piece(next, piece)) = reply else { panic!("{reply:?}") };
                let (1.., Some(piece)) = (next, piece) else { break true };
                if load(&copy, family, &(next, piece)).is_err() {
                    break true;
                }
                if copy.keys.borrow().contains_key(&b"k"[..]) {
                    break false;
                }
                iterator = next;
                for _ in 0..random.random_range(0..8) {
                    let item = random.random_range(0..added.len());
                    match (family, random.random_range(0..15)) {
                        (_, 0) => server.put("k", server.copy("k")),
                        (_, 1..=5) => added[item] += u32::from(is_yes(&server, "ADD", item)),
                        ("CF", 6) if added[item] > 0 => {
                            added[item] -= u32::from(is_yes(&server, "DEL", item))
                        }
                        // The item is added once more, and then deleted once.
                        ("CF", 7..=10) => {
                            added[item] += u32::from(is_yes(&server, "ADD", item));
                            added[item] -= u32::from(is_yes(&server, "DEL", item));
                        }
                        ("CF", 11..) => drop(server.line("CF.COMPACT k")),
                        ("BF", 6) => drop(server.line("BF.CLEAR k")),
                        ("BF", 7) => drop(server.line("BF.ROTATE k")),
                        ("BF", 8) => {
                            server.put("other", server.copy("k"));
                            let _ = server.line(&format!("BF.ADD other {item}"));
                            server.line("BF.MERGE k other").unwrap();
                        }
                        _ => {}
                    }
                    throughout.retain(|item| is_in(&added, *item));
                }
            };
            if is_refused {
                refused += 1;
            } else {
                complete += 1;
                let lost = throughout.iter().find(|item| !is_yes(&copy, "EXISTS", **item));
                assert_eq!(lost, None, "seed {seed}: {reserve}");
            }
        }
    }
    assert!(complete > 500 && refused > 500, "it would show little otherwise: {complete} {refused}");
}

/// A server that saves loads in RDB files.
fn saving() -> FakeServer {
    let server = FakeServer::default();
    server.uploads.borrow_mut().are_saved = true;
    server
}

/// Each piece is replicated unchanged when it arrives, and a replica replicates it in turn.
#[test]
fn each_piece_is_replicated_when_it_comes() {
    for reserve in OURS {
        let (family, pieces) = sent_by_us(reserve);
        let (server, replica) = (saving(), FakeServer::replica());
        replica.uploads.borrow_mut().are_saved = true;
        for piece in &pieces {
            load(&server, family, piece).unwrap();
            assert_eq!(
                server.replicated.borrow().iter().map(|words| &words[3]).collect::<Vec<_>>(),
                [&piece.1]
            );
            replica.obey(&server.replicated.take());
            assert_eq!(server.keys.borrow().is_empty(), replica.keys.borrow().is_empty());
            assert_eq!(replica.replicated.take().len(), 1, "into its own file");
        }
        assert!(server.dump("k") == replica.dump("k"), "{reserve}");
    }
}

/// A snapshot taken after any piece contains what is needed to continue the load. If a snapshot doesn't contain the
/// load, all pieces are sent at the end, and replicas that had some of them start again.
#[test]
fn a_snapshot_in_the_middle_of_a_load_loses_nothing() {
    for reserve in OURS {
        let (family, pieces) = sent_by_us(reserve);
        for first in 1..pieces.len() {
            let server = saving();
            pieces[..first].iter().for_each(|piece| drop(load(&server, family, piece).unwrap()));
            let mut fields = Fields::default();
            server.uploads.borrow().save(&mut fields);
            let (old, new, missed) = (FakeServer::replica(), FakeServer::replica(), FakeServer::replica());
            old.obey(&server.replicated.take());
            assert_eq!(new.uploads.borrow_mut().load(&mut fields), Some(Ok(())));
            load(&server, family, &pieces[first]).unwrap();
            new.obey(&server.replicated.borrow());
            old.obey(&server.replicated.take());
            if first + 1 < pieces.len() {
                server.uploads.borrow_mut().are_missed();
                load(&server, family, &pieces[first + 1]).unwrap();
                for piece in pieces.get(first + 2..).unwrap_or_default() {
                    assert!(server.replicated.borrow().is_empty());
                    load(&server, family, piece).unwrap();
                }
                let sent = server.replicated.take();
                [&old, &new, &missed].iter().for_each(|replica| replica.obey(&sent));
                assert!(missed.dump("k") == server.dump("k"), "{reserve} after {first}");
            }
            assert!(
                old.dump("k") == server.dump("k") && new.dump("k") == server.dump("k"),
                "{reserve} after {first}"
            );
        }
    }
}

/// Sequences of commands. The last command of each creates a filter that neither replicas nor the AOF can create by
/// themselves: it imports the filter, or completes a load whose pieces they don't have.
fn making() -> Vec<Vec<Vec<Vec<u8>>>> {
    let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let bitmap: Vec<u8> = (0..2_500_000u32).map(|byte| (byte.wrapping_mul(byte) % 251) as u8).collect();
    let given = [words("BF.IMPORT k GOZERO none BITS 20000000 DATA"), vec![bitmap]].concat();
    let mut all = vec![vec![given], vec![words("BF.IMPORT k GOZERO bitmap BITS 20000000")]];
    for (family, pieces) in REDISBLOOMS.map(sent_by_redisbloom).into_iter().chain(OURS.map(sent_by_us)) {
        let command = |(iterator, piece): (u64, Vec<u8>)| {
            [words(&format!("{family}.LOADCHUNK k {iterator}")), vec![piece]].concat()
        };
        all.push(pieces.into_iter().map(command).collect());
    }
    all
}

/// Runs these commands on a server that sends large filters in pieces. The server doesn't save loads in snapshots, so
/// it doesn't forward their pieces as they arrive. Calls `between` after each piece of the filter.
fn make(
    commands: &[Vec<Vec<u8>>],
    between: impl FnMut(&FakeServer) + 'static,
) -> (FakeServer, Result<Reply, String>) {
    let server = FakeServer::default();
    server.goes_to_background.set(true);
    server.put("bitmap", Content::String((0..2_500_000u32).map(|byte| (byte % 253) as u8).collect()));
    server.between_pieces.replace(Some(Box::new(between)));
    let run = |words: &Vec<Vec<u8>>| server.run_words(words);
    let last = commands.iter().map(run).last().unwrap();
    (server, last.map_err(|why| why.to_string()))
}

/// The number of pieces that the last of these commands sends.
fn count(commands: &[Vec<Vec<u8>>]) -> usize {
    make(commands, |_| ()).0.replicated.take().len()
}

/// A filter that was created as a whole is sent to other servers in pieces, as a load. The key appears on each server
/// only with the last piece.
#[test]
fn a_filter_that_was_made_goes_in_pieces() {
    for commands in making() {
        let replica = Rc::new(FakeServer::replica());
        let (follower, seen) = (Rc::clone(&replica), Rc::new(Cell::new(0)));
        let pieces = Rc::clone(&seen);
        let (server, reply) = make(&commands, move |server| {
            assert!(!server.keys.borrow().contains_key(&b"k"[..]) && follower.keys.borrow().is_empty());
            pieces.set(pieces.get() + server.replicated.borrow().len());
            follower.obey(&server.replicated.take());
        });
        assert_eq!((reply, server.events.take().len()), (Ok(Reply::Ok), 1));
        assert_eq!(server.replicated.borrow().len(), 1, "the last piece comes with the key");
        replica.obey(&server.replicated.take());
        assert!(seen.get() > 0 && server.dump("k") == replica.dump("k"), "{:?}", commands[0][1]);
    }
}

/// Nothing is sent if nobody receives it, and everything is sent at once if the client isn't allowed to wait.
#[test]
fn a_filter_that_need_not_go_in_pieces_is_a_key_at_once() {
    for commands in making().split_off(2) {
        for has_no_sinks in [false, true] {
            let server = FakeServer::default();
            server.has_no_sinks.set(has_no_sinks);
            server.obey(&commands);
            assert_eq!(server.replicated.take().is_empty(), has_no_sinks);
            assert!(server.keys.borrow().contains_key(&b"k"[..]));
        }
    }
}

/// A snapshot after any piece contains the pieces that were sent. After a snapshot that doesn't contain them, and after
/// a flush, they are sent again.
#[test]
fn a_snapshot_in_the_middle_of_sending_loses_nothing() {
    for commands in making() {
        let pieces = count(&commands);
        for (at, way) in (1..pieces).flat_map(|at| ["saved", "missed", "flushed"].map(|way| (at, way))) {
            let (old, new) = (Rc::new(FakeServer::replica()), Rc::new(FakeServer::replica()));
            let (replicas, mut after) = ([Rc::clone(&old), Rc::clone(&new)], 0);
            let (server, reply) = make(&commands, move |server| {
                after += 1;
                let sent = server.replicated.take();
                let obey = |replica: &FakeServer| {
                    replica.obey(&sent);
                };
                obey(&replicas[0]);
                if after > at {
                    obey(&replicas[1]);
                }
                let mut loads = server.uploads.borrow_mut();
                match way {
                    _ if after != at => {}
                    "saved" => {
                        let mut fields = Fields::default();
                        assert!(!loads.is_empty());
                        loads.save(&mut fields);
                        assert_eq!(replicas[1].uploads.borrow_mut().load(&mut fields), Some(Ok(())));
                    }
                    "missed" => loads.are_missed(),
                    _ => {
                        drop(loads.flush(Some(1)));
                        drop(loads.flush(Some(0)));
                        drop(replicas[0].uploads.borrow_mut().flush(None));
                    }
                }
            });
            assert_eq!(reply, Ok(Reply::Ok));
            let sent = server.replicated.take();
            [&old, &new].iter().for_each(|replica| replica.obey(&sent));
            assert!(
                server.dump("k") == old.dump("k") && server.dump("k") == new.dump("k"),
                "{way} after {at}"
            );
        }
    }
}

/// If another value appears in the key while the filter is sent, the load ends, here and on the servers that have its
/// pieces.
#[test]
fn a_key_that_appears_while_its_filter_is_sent_stays() {
    for commands in making() {
        let (server, reply) = make(&commands, |server| server.put("k", Content::Other));
        assert!(reply.unwrap_err().starts_with("WRONGTYPE"));
        let last = server.replicated.take().pop().unwrap();
        assert_eq!(last[2..], END.map(<[u8]>::to_vec));
        assert!(server.events.take().is_empty());
    }
}

/// A server that reads its own snapshot replicates the remaining pieces, unless the load was missing from an earlier
/// snapshot.
#[test]
fn a_snapshot_says_whether_the_following_pieces_are_sent() {
    let (family, pieces) = sent_by_us(OURS[1]);
    for is_missed in [false, true] {
        let (server, copy) = (saving(), saving());
        load(&server, family, &pieces[0]).unwrap();
        if is_missed {
            server.uploads.borrow_mut().are_missed();
        }
        load(&server, family, &pieces[1]).unwrap();
        let mut fields = Fields::default();
        server.uploads.borrow().save(&mut fields);
        assert_eq!(copy.uploads.borrow_mut().load(&mut fields), Some(Ok(())));
        load(&copy, family, &pieces[2]).unwrap();
        assert!(copy.keys.borrow().is_empty(), "more pieces follow");
        assert_eq!(copy.replicated.take().len(), usize::from(!is_missed));
    }
}

/// Whatever ends a load here ends it on the servers that have its pieces, even if they have only some.
#[test]
fn a_load_that_ends_is_ended_elsewhere() {
    let (family, pieces) = sent_by_us(OURS[0]);
    let ends: [&dyn Fn(&FakeServer); 3] = [
        &|server| drop(load(server, family, &(0, Vec::new())).unwrap()),
        &|server| drop(load(server, family, &(7, pieces[1].1.clone())).unwrap_err()),
        &|server| drop(load(server, family, &sent_by_redisbloom("foreign-redisbloom").1[0]).unwrap()),
    ];
    for (end, is_missed) in ends.iter().zip([false; 3]).chain(ends.iter().zip([true; 3])) {
        let server = saving();
        load(&server, family, &pieces[0]).unwrap();
        if is_missed {
            server.uploads.borrow_mut().are_missed();
        }
        server.take_replicated();
        end(&server);
        assert_eq!(server.take_replicated(), ["BF.LOADCHUNK k 0 "]);
    }
    // On a replica, ending a load that doesn't exist isn't an error.
    assert_eq!(load(&FakeServer::replica(), family, &(0, Vec::new())), Ok(Reply::Ok));
}
