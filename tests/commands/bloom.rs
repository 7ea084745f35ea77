//! Commands on Bloom filters without a server: replies, what they replicate, and whether a replica ends up with the
//! same bits.

use super::pair::Pair;
use crate::support::fake_server::FakeServer;
use crate::support::kinds::RESERVE_OPTIONS;
use bloomery_commands::config::Settings;
use bloomery_commands::{Answer, CommandError, Reply};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn answers(reply: Result<Reply, CommandError>) -> Vec<u8> {
    match reply {
        Ok(Reply::Answers(answers)) => answers.answers.iter().map(|answer| *answer as u8).collect(),
        other => panic!("{other:?}"),
    }
}

const NO: u8 = Answer::No as u8;
const YES: u8 = Answer::Yes as u8;
const REFUSED: u8 = Answer::Refused as u8;

#[test]
fn an_add_creates_with_everything_spelt_out_and_replicates_only_what_changed() {
    let server = FakeServer::default();
    server.settings.set(Settings { error_rate: 0.001, initial_size: 50, expansion: 4, ..Settings::DEFAULT });
    assert_eq!(server.line("BF.ADD k ada"), Ok(Reply::Bool(true)));
    let sent = server.take_replicated();
    let [creation, add] = &sent[..] else { panic!("{sent:?}") };
    let seed = creation.strip_prefix("BF.RESERVE k 0.001 50 EXPANSION 4 SEED ");
    assert!(seed.is_some_and(|seed| seed.len() > 8), "64 random bits: {creation}");
    assert_eq!(add, "BF.ADD k ada");

    assert_eq!(server.line("BF.ADD k ada"), Ok(Reply::Bool(false)));
    assert_eq!(answers(server.line("BF.MADD k ada bob ada cleo bob")), [NO, YES, NO, YES, NO]);
    assert_eq!(server.take_replicated(), ["BF.MADD k bob cleo"]);
    assert_eq!(answers(server.line("BF.MADD k dora eve")), [YES, YES]);
    assert_eq!(server.take_replicated(), ["BF.MADD k dora eve"]);
    assert_eq!(answers(server.line("BF.INSERT k CAPACITY 9 ITEMS dora fay")), [NO, YES]);
    assert_eq!(server.take_replicated(), ["BF.MADD k fay"]);
    assert_eq!(server.line("BF.ADDNX k gil"), Ok(Reply::Bool(true)));
    assert_eq!(server.line("BF.ADDNX k gil"), Ok(Reply::Bool(false)));
    assert_eq!(server.take_replicated(), ["BF.ADD k gil"]);
}

/// A creation is replicated with every parameter, so a replica with any configuration creates the same filter.
#[test]
fn a_filter_that_an_add_creates_is_sent_before_its_first_items() {
    for line in [
        "BF.ADD k ada",
        "BF.ADDNX k ada",
        "BF.MADD k ada bob ada",
        "BF.INSERT k CAPACITY 7 ERROR 0.125 EXPANSION 3 ITEMS ada bob",
        "BF.INSERT k NONSCALING ITEMS ada",
        "CF.ADD k ada",
        "CF.ADDNX k ada",
        "CF.INSERT k ITEMS ada bob ada",
        "CF.INSERTNX k CAPACITY 70 ITEMS ada bob ada",
    ] {
        let (primary, replica) = (FakeServer::default(), FakeServer::default());
        primary.settings.set(Settings {
            cuckoo_initial_size: 300,
            cuckoo_bucket_size: 3,
            cuckoo_max_iterations: 7,
            cuckoo_expansion: 4,
            ..Settings::DEFAULT
        });
        replica.obeys.set(true);
        replica.settings.set(Settings {
            initial_size: 9,
            expansion: 1,
            error_rate: 0.3,
            cuckoo_initial_size: 2048,
            cuckoo_bucket_size: 4,
            cuckoo_max_iterations: 9,
            cuckoo_expansion: 2,
            ..Settings::DEFAULT
        });
        primary.line(line).unwrap();
        let sent = primary.take_replicated();
        sent.iter().for_each(|command| drop(replica.line(command).unwrap()));
        assert_eq!(primary.dump("k"), replica.dump("k"), "{sent:?}");
        assert_eq!(primary.events.take(), replica.events.take());
        assert_eq!(replica.take_replicated(), sent, "and its own replicas");
    }
}

/// A command's items are looked up in groups before they are added. A present item is left out only if adding it would
/// change nothing.
#[test]
fn a_group_of_adds_changes_what_each_add_would() {
    for layout in ["BLOCKED", "CLASSIC", "PARTITIONED"] {
        let server = FakeServer::default();
        for (key, kind, changed) in
            [("b", "NONSCALING", "x y"), ("c", "COUNTING", "x y x"), ("w", "WINDOW 2", "x y")]
        {
            server.line(&format!("BF.RESERVE {key} 0.001 100 {kind} LAYOUT {layout}")).unwrap();
            server.take_replicated();
            assert_eq!(
                answers(server.line(&format!("BF.MADD {key} x y x"))),
                [YES, YES, NO],
                "{layout} {kind}"
            );
            assert_eq!(server.take_replicated(), [format!("BF.MADD {key} {changed}")], "{layout} {kind}");
        }

        assert_eq!(answers(server.line("BF.MADD c x z")), [NO, YES]);
        assert_eq!(server.take_replicated(), ["BF.MADD c x z"]);
        assert_eq!(server.line("BF.COUNT c x"), Ok(Reply::Integer(3)));

        server.line("BF.ROTATE w").unwrap();
        server.take_replicated();
        assert_eq!(answers(server.line("BF.MADD w x z x")), [NO, YES, NO]);
        assert_eq!(server.take_replicated(), ["BF.MADD w x z"]);
        server.line("BF.ROTATE w").unwrap();
        assert_eq!(answers(server.line("BF.MEXISTS w x y z")), [YES, NO, YES]);
    }
}

#[test]
fn a_clear_of_an_empty_filter_is_no_write() {
    for kind in ["NONSCALING", "EXPANSION 2", "COUNTING", "WINDOW 3"] {
        let server = FakeServer::default();
        server.line(&format!("BF.RESERVE k 0.01 100 {kind}")).unwrap();
        for before in ["BF.EXISTS k ada", "BF.ADD k ada"] {
            server.line(before).unwrap();
            server.line("BF.CLEAR k").unwrap();
            server.take_replicated();
            server.events.take();
            assert_eq!(server.line("BF.CLEAR k"), Ok(Reply::Ok), "{kind}");
            assert!(server.take_replicated().is_empty() && server.events.take().is_empty(), "{kind}");
        }
        server.line("BF.ADD k ada").unwrap();
        server.take_replicated();
        assert_eq!(server.line("BF.CLEAR k"), Ok(Reply::Ok), "{kind}");
        assert_eq!(server.take_replicated(), ["BF.CLEAR k"], "{kind}");
    }
}

#[test]
fn a_full_filter_ends_the_reply_at_the_first_item_it_refuses() {
    let server = FakeServer::default();
    server.line("BF.RESERVE n 0.001 3 NONSCALING SEED 7").unwrap();
    assert_eq!(answers(server.line("BF.MADD n a b c")), [YES, YES, YES]);
    server.take_replicated();
    assert_eq!(answers(server.line("BF.INSERT n ITEMS a b c d d")), [NO, NO, NO, REFUSED]);
    assert_eq!(server.text("BF.ADD n d"), "ERR non scaling filter is full");
    assert_eq!(server.take_replicated(), [""; 0]);

    // Only the items that were added are replicated, because a replica that refused the others would reply to its
    // primary with an error.
    server.line("BF.RESERVE p 0.001 3 NONSCALING SEED 7").unwrap();
    server.take_replicated();
    assert_eq!(answers(server.line("BF.MADD p a b c d e")), [YES, YES, YES, REFUSED]);
    assert_eq!(server.take_replicated(), ["BF.MADD p a b c"]);

    server.line("BF.RESERVE s 0.001 3 ONFULL SATURATE SEED 7").unwrap();
    assert_eq!(answers(server.line("BF.MADD s a b c d e")), [YES; 5]);
}

#[test]
fn growth_beyond_memory_is_refused_item_by_item_and_keeps_the_filter() {
    let server = FakeServer::default();
    server.line("BF.RESERVE s 0.01 10 SEED 7").unwrap();
    let items: Vec<String> = (0..10).map(|i| i.to_string()).collect();
    assert_eq!(answers(server.line(&format!("BF.MADD s {}", items.join(" ")))), [YES; 10]);
    server.memory.set(Some(16));
    server.take_replicated();
    assert_eq!(answers(server.line("BF.MADD s x 3 y")), [REFUSED, NO, REFUSED]);
    assert_eq!(server.take_replicated(), [""; 0]);
    let text = server.text("BF.ADD s x");
    assert!(
        text.starts_with("ERR problem inserting into filter: Insufficient memory to create filter: it needs")
    );
    server.memory.set(None);
    assert_eq!(server.line("BF.ADD s x"), Ok(Reply::Bool(true)));
}

#[test]
fn the_clock_rotates_a_window_before_a_write_and_reads_see_it_at_once() {
    let server = FakeServer::default();
    server.now_ms.set(10_000);
    server.line("BF.RESERVE w 0.01 100 WINDOW 3 EVERY 1000").unwrap();
    assert!(server.take_replicated()[0].contains("WINDOW 3 EVERY 1000 SINCE 10000 ONFULL SATURATE"));
    server.line("BF.ADD w old").unwrap();
    server.take_replicated();

    server.now_ms.set(12_999);
    assert_eq!(server.line("BF.AGE w old"), Ok(Reply::Integer(2)));
    server.now_ms.set(13_000);
    assert_eq!(
        server.line("BF.TEST w old"),
        Ok(Reply::Bool(false)),
        "nothing has been written, yet it is gone"
    );
    assert_eq!(server.take_replicated(), [""; 0], "reads replicate nothing");

    assert_eq!(server.line("BF.ADD w old"), Ok(Reply::Bool(true)));
    assert_eq!(server.take_replicated(), ["BF.ROTATE w AT 3", "BF.ADD w old"]);
    server.line("BF.ROTATE w").unwrap();
    assert_eq!(server.take_replicated(), ["BF.ROTATE w AT 4 MANUAL"]);
    assert_eq!(server.line("BF.AGE w old"), Ok(Reply::Integer(1)));
    server.now_ms.set(14_000);
    assert_eq!(
        server.line("BF.AGE w old"),
        Ok(Reply::Integer(2)),
        "the schedule has moved along with the hand"
    );
    assert_eq!(
        server.text("BF.ROTATE w AT 9"),
        "ERR AT is for replication only; to rotate, use BF.ROTATE key"
    );
}

#[test]
fn an_add_renews_an_item_of_a_window_and_addnx_does_not() {
    let server = FakeServer::default();
    server.line("BF.RESERVE w 0.001 100 WINDOW 3").unwrap();
    for key in ["renewed", "first"] {
        server.line(&format!("BF.ADD w {key}")).unwrap();
    }
    server.line("BF.ROTATE w").unwrap();
    assert_eq!(server.line("BF.ADD w renewed"), Ok(Reply::Bool(false)));
    assert_eq!(server.line("BF.ADDNX w first"), Ok(Reply::Bool(false)));
    server.line("BF.ROTATE w").unwrap();
    server.line("BF.ROTATE w").unwrap();
    assert_eq!(answers(server.line("BF.MEXISTS w renewed first")), [YES, NO]);
}

/// Counting filters grow when they are full. A replica stays identical bit for bit, even after deletes.
#[test]
fn a_counting_filter_grows() {
    let pair = Pair::new();
    let server = &pair.primary;
    let reserve = "BF.RESERVE c 0.001 20 COUNTING 8";
    assert!(server.line(&format!("{reserve} EXPANSION 2 LAYOUT CLASSIC")).is_err());
    for options in ["EXPANSION 2", "ONFULL SCALE LAYOUT AUTO", "TIGHTENING 0.5 LAYOUT QUOTIENT"] {
        server.line(&format!("{reserve} {options}")).unwrap();
        let items: Vec<String> = (0..100).map(|item| format!("i{item}")).collect();
        let all = items.join(" ");
        let counted = |item: &String| match server.line(&format!("BF.COUNT c {item}")) {
            Ok(Reply::Integer(count)) => count,
            other => panic!("{other:?}"),
        };
        for times in 1..=2 {
            server.line(&format!("BF.MADD c {all}")).unwrap();
            assert!(items.iter().all(|item| counted(item) >= times));
        }
        let number = |field: &str| match server.line(&format!("BF.INFO c {field}")) {
            Ok(Reply::Entry(_, number)) => number,
            other => panic!("{other:?}"),
        };
        assert_eq!(answers(server.line(&format!("BF.MDEL c {all}"))), [YES; 100]);
        assert_eq!(answers(server.line(&format!("BF.MEXISTS c {all}"))), [YES; 100]);
        pair.follow();
        assert_eq!(number("FILTERS"), Some(1));
        items
            .iter()
            .for_each(|item| assert_eq!(server.line(&format!("BF.DEL c {item}")), Ok(Reply::Bool(true))));
        assert_eq!(number("ITEMS"), Some(0));
        pair.follow();
        server.keys.borrow_mut().clear();
        pair.replica.keys.borrow_mut().clear();
    }
}

/// AUTO chooses QUOTIENT for counting, and for what no other layout can do.
#[test]
fn auto_is_quotient_for_counting_and_where_no_other_layout_has_what_is_asked_for() {
    let layout = |server: &FakeServer| match server.line("BF.STATS k") {
        Ok(Reply::Map(fields)) => {
            fields.into_iter().find(|(name, _)| *name == "Layout").map(|(_, layout)| layout)
        }
        other => panic!("{other:?}"),
    };
    for (options, chosen) in [
        ("COUNTING EXPANSION 2", "QUOTIENT"),
        ("COUNTING 16 ONFULL SCALE LAYOUT AUTO", "QUOTIENT"),
        ("WINDOW 65", "QUOTIENT"),
        ("WINDOW 4 ONFULL FORGET", "QUOTIENT"),
        ("COUNTING", "QUOTIENT"),
        ("COUNTING EXPANSION 0", "QUOTIENT"),
        ("COUNTING SHARDS 2", "AUTO"),
        ("COUNTING ONFULL SATURATE", "AUTO"),
        ("EXPANSION 2", "AUTO"),
        ("WINDOW 64 EVERY 1000", "AUTO"),
        ("WINDOW 4 ONFULL ERROR", "AUTO"),
    ] {
        let pair = Pair::new();
        assert_eq!(pair.primary.line(&format!("BF.RESERVE k 0.01 20 {options}")), Ok(Reply::Ok), "{options}");
        assert_eq!(layout(&pair.primary), Some(Reply::from(chosen)), "{options}");
        pair.follow();
        // A rebuild chooses in the same way, unless the layout of its filter was chosen explicitly.
        for named in ["AUTO", "CLASSIC"] {
            let server = FakeServer::default();
            server.line(&format!("BF.RESERVE k 0.01 20 LAYOUT {named}")).unwrap();
            let begun = server.line(&format!("BF.REBUILD k BEGIN {options}"));
            // Counters of a fixed size also exist in other layouts.
            let is_fixed = ["COUNTING", "COUNTING EXPANSION 0"].contains(&options);
            let is_possible = named == "AUTO" || chosen == "AUTO" || options.contains("AUTO") || is_fixed;
            assert_eq!(begun.is_ok(), is_possible, "{options} over {named}: {begun:?}");
        }
    }
    for options in ["COUNTING EXPANSION 2 SHARDS 2", "WINDOW 65 ONFULL SATURATE", "NONSCALING ONFULL FORGET"]
    {
        let server = FakeServer::default();
        assert!(server.line(&format!("BF.RESERVE k 0.01 20 {options}")).is_err(), "{options}");
    }
}

#[test]
fn counting_is_a_multiset_and_a_saturated_counter_stays() {
    let server = FakeServer::default();
    server.line("BF.RESERVE c 0.001 100 COUNTING").unwrap();
    assert_eq!(server.line("BF.ADD c a"), Ok(Reply::Bool(true)));
    assert_eq!(server.line("BF.ADD c a"), Ok(Reply::Bool(false)));
    assert_eq!(server.line("BF.COUNT c a"), Ok(Reply::Integer(2)));
    assert_eq!(answers(server.line("BF.MDEL c a a a b")), [YES, YES, NO, NO]);
    assert_eq!(server.take_replicated()[1..], ["BF.ADD c a", "BF.ADD c a", "BF.MDEL c a a"]);
    for _ in 0..20 {
        server.line("BF.ADD c x").unwrap();
    }
    server.take_replicated();
    assert_eq!(server.line("BF.COUNT c x"), Ok(Reply::Integer(15)));
    assert_eq!(server.line("BF.DEL c x"), Ok(Reply::Bool(true)));
    assert_eq!(server.line("BF.COUNT c x"), Ok(Reply::Integer(15)));
    assert_eq!(server.take_replicated(), [""; 0], "nothing moved");
}

#[test]
fn a_filter_moves_in_pieces_and_becomes_a_key_with_the_last() {
    let server = FakeServer::default();
    server.line("BF.RESERVE source 0.001 200000 LAYOUT CLASSIC SHARDS 4").unwrap();
    for i in 0..5000 {
        server.line(&format!("BF.ADD source {i}")).unwrap();
    }
    server.take_replicated();
    let (mut iterator, mut pieces) = (0, 0);
    loop {
        let Ok(Reply::Piece(next, Some(piece))) = server.line(&format!("BF.SCANDUMP source {iterator}"))
        else {
            panic!()
        };
        if next == 0 {
            break;
        }
        assert!(
            server.line("BF.EXISTS copy 1") == Ok(Reply::Bool(false)) && server.take_replicated().is_empty()
        );
        let next_text = next.to_string();
        assert_eq!(server.run(&[b"BF.LOADCHUNK", b"copy", next_text.as_bytes(), &piece]), Ok(Reply::Ok));
        (iterator, pieces) = (next, pieces + 1);
    }
    assert_eq!(server.dump("copy"), server.dump("source"));
    assert_eq!(server.replicated.take().len(), pieces, "every piece, at once");
    assert_eq!(server.text("BF.LOADCHUNK copy 1 BLMY"), "ERR received bad data");
}

/// The limit on unfinished loads doesn't apply to commands from a primary, or from the source of a migrating slot:
/// these can't wait until clients have finished their loads.
#[test]
fn loads_that_wait_do_not_keep_out_what_must_be_obeyed() {
    let server = FakeServer::default();
    server.line("BF.RESERVE source 0.01 100").unwrap();
    let Ok(Reply::Piece(_, Some(head))) = server.line("BF.SCANDUMP source 0") else { panic!() };
    let begin = |key: &str| server.run(&[b"BF.LOADCHUNK", key.as_bytes(), b"1", &head]);
    for number in 0..64 {
        assert_eq!(begin(&number.to_string()), Ok(Reply::Ok));
    }
    assert!(begin("one more").is_err());
    server.obeys.set(true);
    assert_eq!(begin("one more"), Ok(Reply::Ok));
}

/// Runs random commands on a primary, and their effects on a replica with a different configuration. Both servers end
/// up with the same filters, bit for bit.
#[test]
fn a_replica_that_obeys_ends_equal() {
    for seed in 0..40 {
        let mut random = SmallRng::seed_from_u64(seed);
        let (primary, replica) = (FakeServer::default(), FakeServer::default());
        replica.obeys.set(true);
        replica.settings.set(Settings {
            error_rate: 0.2,
            initial_size: 7,
            expansion: 0,
            max_filter_bytes: 1,
            ..Settings::DEFAULT
        });
        replica.memory.set(Some(1));
        primary.now_ms.set(1_000_000);
        for reserve in [
            "scaling 0.01 20",
            "tight 0.01 20 TIGHTENING 0.5 EXPANSION 3 LAYOUT CLASSIC",
            "fixed 0.01 50 NONSCALING",
            "sharded 0.001 500 SHARDS 4 ONFULL SATURATE HASH SIPHASH",
            "counting 0.01 100 COUNTING 8",
            "window 0.01 100 WINDOW 4 EVERY 500",
            "byhand 0.01 50 WINDOW 3 ONFULL ERROR",
            "table 0.01 30 WINDOW 3 EVERY 500 LAYOUT QUOTIENT",
            "bursts 0.01 10 WINDOW 5 LAYOUT QUOTIENT",
        ] {
            primary.line(&format!("BF.RESERVE {reserve}")).unwrap();
        }
        let keys = [
            "scaling", "tight", "fixed", "sharded", "counting", "window", "byhand", "table", "bursts", "auto",
        ];
        let verbs = ["ADD", "MADD", "ADDNX", "INSERT", "DEL", "MDEL", "ROTATE", "CLEAR", "EXISTS"];
        for _ in 0..400 {
            primary.now_ms.set(primary.now_ms.get() + random.random_range(0..200));
            let (key, verb) =
                (keys[random.random_range(0..keys.len())], verbs[random.random_range(0..verbs.len())]);
            if verb == "CLEAR" && random.random_range(0..10) > 0 {
                continue;
            }
            let count =
                if verb.starts_with('M') || verb == "INSERT" { random.random_range(1..80) } else { 1 };
            let mut words = vec![format!("BF.{verb}"), key.to_owned()];
            match verb {
                "ROTATE" | "CLEAR" => {}
                _ => {
                    words.extend((verb == "INSERT").then(|| "ITEMS".to_owned()));
                    words.extend((0..count).map(|_| random.random_range(0..300).to_string()));
                }
            }
            // A refusal is acceptable here, but it must not make the two servers differ.
            let _ = primary.line(&words.join(" "));
            for effect in primary.replicated.take() {
                replica.run_words(&effect).unwrap_or_else(|error| panic!("seed {seed}: {effect:?}: {error}"));
            }
        }
        for key in keys {
            assert_eq!(primary.dump(key), replica.dump(key), "seed {seed}, {key}");
        }
    }
}

/// A filter stores how many items still fit, instead of computing this for each add. The number must be exact, whatever
/// was deleted in the meantime.
#[test]
fn fixed_filters_are_full_at_their_capacity_to_the_item() {
    for options in
        ["NONSCALING", "NONSCALING SHARDS 8", "NONSCALING SHARDS 1024 LAYOUT CLASSIC", "COUNTING 8 SHARDS 4"]
    {
        let server = FakeServer::default();
        server.line(&format!("BF.RESERVE f 0.000001 1000 {options}")).unwrap();
        let mut held = 0;
        for i in 0..1000 {
            held += u32::from(server.line(&format!("BF.ADD f {i}")) == Ok(Reply::Bool(true)));
        }
        assert_eq!(held, 1000, "{options}");
        assert_eq!(server.text("BF.ADD f new"), "ERR non scaling filter is full", "{options}");
        if options.starts_with("COUNTING") {
            for i in 0..10 {
                server.line(&format!("BF.DEL f {i}")).unwrap();
            }
            for i in 0..10 {
                assert_eq!(server.line(&format!("BF.ADD f new{i}")), Ok(Reply::Bool(true)));
            }
            assert_eq!(server.text("BF.ADD f more"), "ERR non scaling filter is full");
        }
    }
}

#[test]
fn information_has_redisblooms_fields_for_every_kind_and_statistics_have_all() {
    let names = |reply: Result<Reply, CommandError>| {
        let fields = match reply {
            Ok(Reply::Map(fields)) => fields,
            Ok(Reply::Numbers(numbers)) => numbers.fields(),
            other => panic!("{other:?}"),
        };
        fields.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    let bloom = ["Capacity", "Size", "Number of filters", "Number of items inserted", "Expansion rate"];
    for options in RESERVE_OPTIONS {
        let server = FakeServer::default();
        assert_eq!(server.line(&format!("BF.RESERVE k 0.01 100 {options}")), Ok(Reply::Ok));
        assert_eq!(names(server.line("BF.INFO k")), bloom, "{options}");
        let names = names(server.line("BF.STATS k"));
        for name in bloom.iter().filter(|name| **name != "Expansion rate").chain(&["Advice", "Identity"]) {
            assert!(names.contains(name), "{options}: {name}");
        }
    }
    let server = FakeServer::default();
    assert_eq!(server.line("CF.RESERVE k 1000"), Ok(Reply::Ok));
    let cuckoo = names(server.line("CF.INFO k"));
    assert_eq!((cuckoo.len(), &names(server.line("CF.STATS k"))[..8]), (8, &cuckoo[..]));
}

/// Numbers aren't rounded, and the advice contains a command that can be typed as it stands.
#[test]
fn statistics_are_exact_and_name_the_key() {
    let server = FakeServer::default();
    server.line("BF.RESERVE users:7 0.01 7 ONFULL SATURATE SEED 1").unwrap();
    server.line("BF.MADD users:7 1 2 3 4 5 6 7 8 9 10").unwrap();
    let Ok(Reply::Map(fields)) = server.line("BF.STATS users:7") else { panic!() };
    let field = |name: &str| &fields.iter().find(|(known, _)| *known == name).unwrap().1;
    let (Reply::Integer(cells), Reply::Integer(set)) = (field("Cells"), field("Cells set")) else { panic!() };
    assert_eq!(*field("Fill"), Reply::Double(*set as f64 / *cells as f64));
    let advice = "over capacity: it holds 10 items of 7; BF.REBUILD users:7 BEGIN CAPACITY 20 makes room";
    assert_eq!(*field("Advice"), Reply::Array(vec![advice.into()]));
}

#[test]
fn a_cuckoo_filter_that_is_full_says_so() {
    let server = FakeServer::default();
    server.line("CF.RESERVE k 1024 BUCKETSIZE 4 EXPANSION 0 SEED 1").unwrap();
    let advice = || {
        let Ok(Reply::Map(fields)) = server.line("CF.STATS k") else { panic!() };
        let Some((_, Reply::Array(lines))) = fields.into_iter().find(|(name, _)| *name == "Advice") else {
            panic!()
        };
        lines
    };
    let mut item = 0;
    while server.line(&format!("CF.ADD k {item}")) == Ok(Reply::Bool(true)) {
        item += 1;
        assert!(item > 900 || advice().is_empty(), "{item} of 1024 slots");
    }
    let [Reply::Bulk(line)] = &advice()[..] else { panic!("{:?}", advice()) };
    assert!(line.starts_with(b"full: "), "{}", String::from_utf8_lossy(line));
}
