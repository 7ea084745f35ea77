//! CF commands without a server: refusals, what is replicated, and whether a replica ends up with the same bytes.

use crate::support::fake_server::FakeServer;
use bloomery_commands::config::Settings;
use bloomery_commands::{Answer, CommandError, Reply};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const YES: Result<Reply, CommandError> = Ok(Reply::Bool(true));
const NO: Result<Reply, CommandError> = Ok(Reply::Bool(false));

fn placed(answers: &[bool]) -> Result<Reply, CommandError> {
    let answer = |placed: &bool| if *placed { Answer::Yes } else { Answer::Refused };
    Ok(Reply::Inserted(answers.iter().map(answer).collect()))
}

fn placed_if_absent(answers: &[Answer]) -> Result<Reply, CommandError> {
    Ok(Reply::InsertedIfAbsent(answers.iter().copied().collect()))
}

#[test]
fn an_add_creates_with_everything_spelt_out_and_replicates_only_what_changed() {
    let server = FakeServer::default();
    server.settings.set(Settings {
        cuckoo_bucket_size: 4,
        cuckoo_initial_size: 100,
        cuckoo_max_iterations: 7,
        cuckoo_expansion: 3,
        ..Settings::DEFAULT
    });
    assert_eq!(server.line("CF.ADD k ada"), YES);
    let sent = server.take_replicated();
    let [creation, add] = &sent[..] else { panic!("{sent:?}") };
    let options = "CF.RESERVE k 100 BUCKETSIZE 4 MAXITERATIONS 7 EXPANSION 4 HASH XXH3 SEED ";
    let seed = creation.strip_prefix(options);
    assert!(seed.is_some_and(|seed| seed.len() > 8), "64 random bits: {creation}");
    assert_eq!(add, "CF.ADD k ada");

    assert_eq!(server.line("CF.ADD k ada"), YES, "a multiset");
    assert_eq!(server.line("CF.ADDNX k ada"), NO);
    assert_eq!(server.line("CF.ADDNX k bob"), YES);
    assert_eq!(server.take_replicated(), ["CF.ADD k ada", "CF.ADDNX k bob"]);
    assert_eq!(server.line("CF.INSERT k CAPACITY 9 ITEMS cid cid"), placed(&[true, true]));
    assert_eq!(
        server.line("CF.INSERTNX k NOCREATE ITEMS cid dora dora"),
        placed_if_absent(&[Answer::No, Answer::Yes, Answer::No])
    );
    assert_eq!(server.take_replicated(), ["CF.INSERT k ITEMS cid cid", "CF.INSERT k ITEMS dora"]);
    // The count is doubled if, with the random seed, the item's two buckets are the same.
    assert!(matches!(server.line("CF.COUNT k cid"), Ok(Reply::Integer(2 | 4))));
    let Ok(Reply::Answers(answers)) = server.line("CF.MEXISTS k ada nobody cid") else { panic!() };
    assert_eq!(answers.answers[..], [Answer::Yes, Answer::No, Answer::Yes]);

    assert_eq!((server.line("CF.DEL k cid"), server.line("CF.DEL k nobody")), (YES, NO));
    assert_eq!(server.take_replicated(), ["CF.DEL k cid"]);
    assert_eq!(server.line("CF.COMPACT k"), Ok(Reply::Ok));
    assert_eq!(server.line("CF.COMPACT k"), Ok(Reply::Ok));
    assert_eq!(server.take_replicated(), ["CF.COMPACT k"], "the second has nothing to do");
}

/// RedisBloom refuses every add to a filter that has grown as often as it may, even if slots are free. Here an add
/// fails only if there is no room for its item.
#[test]
fn a_filter_is_full_when_it_has_no_room() {
    let server = FakeServer::default();
    server.line("CF.RESERVE fixed 4 EXPANSION 0 SEED 1").unwrap();
    for _ in 0..4 {
        // Equal fingerprints have the same two buckets, which have four slots in total.
        let _ = server.line("CF.ADD fixed same");
    }
    assert_eq!(server.text("CF.ADD fixed same"), "Filter is full");
    assert_eq!(server.line("CF.INSERT fixed ITEMS same same"), placed(&[false, false]));
    assert_eq!(server.line("CF.INSERTNX fixed ITEMS same"), placed_if_absent(&[Answer::No]));

    server.settings.set(Settings { cuckoo_max_expansions: 2, ..Settings::DEFAULT });
    server.line("CF.RESERVE twice 4 SEED 1").unwrap();
    while server.line("CF.ADD twice same") == YES {}
    assert_eq!(server.text("CF.ADD twice same"), "Maximum expansions reached");
    assert_eq!(server.line("CF.DEL twice same"), YES);
    assert_eq!(server.line("CF.ADD twice same"), YES, "a slot is free again");

    server.settings.set(Settings::DEFAULT);
    server.memory.set(Some(8));
    server.take_replicated();
    assert!(server.text("CF.ADD twice same").starts_with("ERR Insufficient memory"));
    assert_eq!(server.line("CF.INSERT twice ITEMS same"), placed(&[false]));
    assert_eq!(server.take_replicated(), [""; 0]);
    server.memory.set(None);
    assert_eq!(server.line("CF.ADD twice same"), YES);
}

#[test]
fn a_filter_moves_in_pieces_and_becomes_a_key_with_the_last() {
    let server = FakeServer::default();
    server.line("CF.RESERVE source 3000000 BUCKETSIZE 3 EXPANSION 1").unwrap();
    server.line("CF.RESERVE empty 1000").unwrap();
    for i in 0..5000 {
        server.line(&format!("CF.ADD source {i}")).unwrap();
    }
    for source in ["source", "empty"] {
        server.take_replicated();
        let (mut iterator, mut pieces) = (0, 0);
        loop {
            let Ok(Reply::Piece(next, piece)) = server.line(&format!("CF.SCANDUMP {source} {iterator}"))
            else {
                panic!()
            };
            let Some(piece) = piece else {
                assert_eq!(next, 0);
                break;
            };
            assert!(server.line("CF.EXISTS copy 1") == NO && server.take_replicated().is_empty());
            let text = next.to_string();
            // BF.LOADCHUNK accepts none of these pieces.
            assert!(server.run(&[b"BF.LOADCHUNK", b"copy", text.as_bytes(), &piece]).is_err());
            assert_eq!(server.run(&[b"CF.LOADCHUNK", b"copy", text.as_bytes(), &piece]), Ok(Reply::Ok));
            (iterator, pieces) = (next, pieces + 1);
        }
        assert_eq!(server.dump("copy"), server.dump(source));
        assert_eq!(server.replicated.take().len(), pieces, "every piece, at once");
        server.keys.borrow_mut().remove(&b"copy"[..]);
    }
}

/// Runs random commands on a primary, and their effects on a replica with a different configuration. Both servers end
/// up with the same filters, bit for bit.
#[test]
fn a_replica_that_obeys_ends_equal() {
    let (mut grown, mut compacted) = (0, 0);
    for seed in 0..40 {
        let mut random = SmallRng::seed_from_u64(seed);
        let (primary, replica) = (FakeServer::default(), FakeServer::default());
        primary.settings.set(Settings { cuckoo_max_expansions: 6, ..Settings::DEFAULT });
        replica.obeys.set(true);
        replica.settings.set(Settings {
            cuckoo_bucket_size: 5,
            cuckoo_initial_size: 10,
            cuckoo_max_iterations: 1,
            cuckoo_expansion: 0,
            cuckoo_max_expansions: 1,
            max_filter_bytes: 1,
            ..Settings::DEFAULT
        });
        replica.memory.set(Some(1));
        for reserve in [
            "small 8",
            "wide 60 BUCKETSIZE 20 EXPANSION 2",
            "fixed 60 BUCKETSIZE 4 EXPANSION 0 HASH SIPHASH",
            "odd 40 BUCKETSIZE 3 MAXITERATIONS 3 EXPANSION 1",
        ] {
            primary.line(&format!("CF.RESERVE {reserve}")).unwrap();
        }
        let keys = ["small", "wide", "fixed", "odd", "auto"];
        for step in 0..600 {
            let key = keys[random.random_range(0..keys.len())];
            let deletes = if step < 300 { 2 } else { 8 };
            let verb = match random.random_range(0..12) {
                choice if choice < deletes => "DEL",
                8 => "INSERT",
                9 => "INSERTNX",
                10 => "ADDNX",
                11 if random.random_range(0..10) == 0 => "COMPACT",
                _ => "ADD",
            };
            let count = if verb.starts_with("INSERT") { random.random_range(1..20) } else { 1 };
            let mut words = vec![format!("CF.{verb}"), key.to_owned()];
            if verb.starts_with("INSERT") {
                words.extend(["CAPACITY", "50", "ITEMS"].map(str::to_owned));
            }
            if verb != "COMPACT" {
                words.extend((0..count).map(|_| random.random_range(0..60).to_string()));
            }
            let _ = primary.line(&words.join(" "));
            for effect in primary.replicated.take() {
                replica.run_words(&effect).unwrap_or_else(|error| panic!("seed {seed}: {effect:?}: {error}"));
            }
            if step == 300 {
                let Ok(Reply::Numbers(info)) = primary.line("CF.INFO small") else { panic!() };
                grown += i32::from(info.fields()[2] != ("Number of filters", Reply::Integer(1)));
            }
        }
        compacted += primary.retired.get();
        for key in keys.into_iter().filter(|key| primary.keys.borrow().contains_key(key.as_bytes())) {
            assert_eq!(primary.dump(key), replica.dump(key), "seed {seed}, {key}");
        }
    }
    assert!(grown > 20 && compacted > 5, "it would show little otherwise: {grown} {compacted}");
}

#[test]
fn an_insert_is_replicated_as_it_came_only_if_it_added_every_item() {
    let server = FakeServer::default();
    server.line("CF.RESERVE k 1000 SEED 1").unwrap();
    server.take_replicated();
    for (line, effect) in [
        ("CF.INSERT k ITEMS a b a", "CF.INSERT k ITEMS a b a"),
        ("CF.INSERT k NOCREATE ITEMS a", "CF.INSERT k ITEMS a"),
        ("CF.INSERTNX k ITEMS c d", "CF.INSERTNX k ITEMS c d"),
        ("CF.INSERTNX k ITEMS a e", "CF.INSERT k ITEMS e"),
        ("CF.INSERTNX k ITEMS f f", "CF.INSERT k ITEMS f"),
    ] {
        server.line(line).unwrap();
        assert_eq!(server.take_replicated(), [effect], "{line}");
    }
    server.line("CF.RESERVE tight 2 BUCKETSIZE 1 EXPANSION 0 SEED 1").unwrap();
    server.take_replicated();
    assert_eq!(server.line("CF.INSERT tight ITEMS a a a"), placed(&[true, true, false]));
    assert_eq!(server.take_replicated(), ["CF.INSERT tight ITEMS a a"]);
}

/// CF.INSERT may pause after any item here, but pauses only when it looks at the clock. So the number of its answers
/// shows how many items it processes between two looks.
#[test]
fn an_insert_looks_at_the_clock_while_it_searches_for_room() {
    let server = FakeServer::default();
    server.line("CF.RESERVE k 1000 EXPANSION 0 SEED 1").unwrap();
    let line = |first: usize, items| {
        let items: Vec<String> = (first..first + items).map(|item| item.to_string()).collect();
        format!("CF.INSERT k ITEMS {}", items.join(" "))
    };
    let answers = |line: &str| match server.line(line) {
        Ok(Reply::Inserted(answers)) => answers.len(),
        reply => panic!("{reply:?}"),
    };
    server.pauses_after.set(Some(1));
    assert_eq!(answers(&line(0, 500)), 32, "a group of items that find room at once");
    server.pauses_after.set(None);
    answers(&line(1000, 2000));
    // A delete clears what the filter remembers about refusals.
    assert_eq!(server.line("CF.DEL k 0"), YES);
    server.pauses_after.set(Some(1));
    let before = answers(&line(5000, 500));
    assert!((1..8).contains(&before), "{before} items, each of which looked at hundreds of slots");
}
