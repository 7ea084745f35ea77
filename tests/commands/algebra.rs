//! BF.MERGE, BF.INTERSECT and BF.EQUAL without a server: what they make of every kind, what they refuse with nothing
//! changed, what they replicate, and that a replica which obeys ends equal.

mod battery;
mod host;

use battery::golden;
use bloomery::command::{CommandError, Reply};
use bloomery::filter::{Bloom, Filter, Foreign};
use bloomery::wire::{Decoder, Encoder};
use bloomery::{Family, Spec, Tightening};
use host::{Content, Host};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::cell::RefCell;
use std::rc::Rc;

const OK: Result<Reply, CommandError> = Ok(Reply::Ok);
const YES: Result<Reply, CommandError> = Ok(Reply::Bool(true));
const NO: Result<Reply, CommandError> = Ok(Reply::Bool(false));
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const LIKE: &str = "BF.RESERVE key error_rate capacity LIKE other makes filters that go together";

fn put(host: &Host, key: &str, content: Content) {
    host.keys.borrow_mut().insert(key.into(), Rc::new(RefCell::new(content)));
}

fn foreign(recipe: &str) -> Foreign {
    golden::FOREIGN.iter().find(|(name, _)| *name == recipe).expect("a recipe").1()
}

fn put_foreign(host: &Host, key: &str, recipe: &str) {
    put(host, key, Content::Filter(Filter::Foreign(Box::new(foreign(recipe)))));
}

fn copy(host: &Host, key: &str) -> Content {
    match &*host.keys.borrow()[key.as_bytes()].borrow() {
        Content::Filter(value) => Content::Filter(value.snapshot().unwrap()),
        _ => panic!("{key} holds another type"),
    }
}

/// What the key holds, written and read again, is the same.
fn must_survive_the_wire(host: &Host, key: &str) {
    let Content::Filter(value) = copy(host, key) else { return };
    let bytes = Encoder::native(&value).to_vec();
    let read = Decoder::read(&bytes).unwrap_or_else(|why| panic!("{key}: {why}"));
    assert_eq!(Encoder::native(&read).to_vec(), bytes, "{key}");
}

fn add(host: &Host, key: &str, prefix: &str, count: usize) {
    for item in 0..count {
        host.line(&format!("BF.ADD {key} {prefix}{item}")).unwrap();
    }
}

/// How many of these items test positive.
fn found(host: &Host, key: &str, prefix: &str, count: usize) -> usize {
    (0..count).filter(|item| host.line(&format!("BF.EXISTS {key} {prefix}{item}")) == YES).count()
}

fn field(host: &Host, key: &str, name: &str) -> Reply {
    let Ok(Reply::Map(fields)) = host.line(&format!("BF.INFO {key} FULL")) else { panic!() };
    fields.into_iter().find(|(field, _)| *field == name).expect("a field").1
}

fn dumps(host: &Host) -> Vec<(Vec<u8>, Vec<u8>)> {
    let keys: Vec<Vec<u8>> = host.keys.borrow().keys().cloned().collect();
    let is_filter = |key: &Vec<u8>| matches!(&*host.keys.borrow()[key].borrow(), Content::Filter(_));
    let dump = |key: Vec<u8>| (key.clone(), host.dump(std::str::from_utf8(&key).unwrap()));
    keys.into_iter().filter(is_filter).map(dump).collect()
}

/// A primary whose effects a replica obeys.
#[derive(Default)]
struct Pair {
    primary: Host,
    replica: Host,
}

impl Pair {
    fn new() -> Pair {
        let pair = Pair::default();
        pair.replica.obeys.set(true);
        pair.replica.memory.set(Some(1));
        pair
    }

    fn follow(&self) {
        for effect in self.primary.replicated.take() {
            let words: Vec<&[u8]> = effect.iter().map(Vec::as_slice).collect();
            self.replica.run(&words).unwrap_or_else(|error| panic!("{effect:?}: {error}"));
        }
        assert_eq!(dumps(&self.primary), dumps(&self.replica));
    }
}

/// Options of BF.RESERVE, and how many items make what is tested.
const SHAPES: [(&str, usize); 9] = [
    ("NONSCALING", 50),
    ("NONSCALING LAYOUT CLASSIC HASH SIPHASH SEED 7", 50),
    ("NONSCALING LAYOUT BLOCKED SHARDS 8", 50),
    ("EXPANSION 2", 50),
    ("EXPANSION 1 TIGHTENING 0.5", 250),
    ("COUNTING", 50),
    ("COUNTING 8 SHARDS 4", 50),
    ("COUNTING 16", 50),
    ("WINDOW 3", 50),
];

#[test]
fn a_union_has_the_items_of_all_and_replicas_come_to_the_same() {
    for (options, count) in SHAPES {
        for workers in [0, 3] {
            let pair = Pair::new();
            let host = &pair.primary;
            host.workers.set(workers);
            host.line(&format!("BF.RESERVE a 0.0001 200 {options}")).unwrap();
            for key in ["b", "c"] {
                host.line(&format!("BF.RESERVE {key} 0.0001 200 LIKE a")).unwrap();
            }
            ["a", "b", "c"].iter().for_each(|key| add(host, key, key, count));
            pair.follow();
            host.events.take();
            // Into one that exists, and into one that does not.
            assert_eq!(host.line("BF.MERGE a b"), OK, "{options}");
            assert_eq!(host.line("BF.MERGE new a c"), OK);
            assert_eq!(host.events.take(), [c"bf.merge", c"bf.merge"]);
            let sent: Vec<_> = host.replicated.borrow().iter().map(|words| words.join(&b' ')).collect();
            assert_eq!(sent, [&b"BF.MERGE a b"[..], b"BF.MERGE new a c"]);
            pair.follow();
            for (key, prefixes) in [("a", "ab"), ("new", "abc")] {
                for prefix in prefixes.chars() {
                    assert_eq!(found(host, key, &prefix.to_string(), count), count, "{options} {key}");
                }
                // Of chains that have grown each layer now holds what three are made for.
                assert!(found(host, key, "stranger", 1000) < 5 || count > 200, "{options} {key}");
            }
            // The sources are as they were.
            assert!(found(host, "b", "a", count) < 3 && found(host, "c", "b", count) < 3);
            let Ok(Reply::Integer(items)) = host.line("BF.CARD new") else { panic!() };
            let all = 3 * count as i64;
            assert!((all - all / 20..=all).contains(&items), "{options}: {items}");
            // Adds go on, and a repeated merge changes nothing.
            add(host, "new", "more", 20);
            if !options.starts_with("COUNTING") {
                pair.follow();
                host.events.take();
                assert_eq!(host.line("BF.MERGE new a c c new"), OK);
                assert_eq!(
                    (host.take_replicated(), host.events.take()),
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
    let host = Host::default();
    host.line("BF.RESERVE a 0.001 100 COUNTING").unwrap();
    host.line("BF.RESERVE b 0.001 100 LIKE a").unwrap();
    for (key, item, count) in [("a", "x", 3), ("b", "x", 4), ("a", "much", 9), ("b", "much", 8)] {
        (0..count).for_each(|_| drop(host.line(&format!("BF.ADD {key} {item}")).unwrap()));
    }
    assert_eq!(host.line("BF.MERGE a b"), OK);
    assert_eq!(host.line("BF.COUNT a x"), Ok(Reply::Integer(7)));
    assert_eq!(host.line("BF.COUNT a much"), Ok(Reply::Integer(15)));
    host.line("BF.DEL a much").unwrap();
    assert_eq!(host.line("BF.COUNT a much"), Ok(Reply::Integer(15)), "15 + more is not known any more");
    let before = dumps(&host);
    for line in ["BF.MERGE a a", "BF.MERGE a b b", "BF.MERGE a b a", "BF.MERGE new b b"] {
        let refusal = "ERR a counting filter would be counted twice; name each key once";
        assert_eq!(host.text(line), refusal, "{line}");
    }
    assert_eq!(dumps(&host), before);
}

#[test]
fn layers_of_another_shape_go_into_the_chain_and_adds_go_on_where_they_did() {
    let pair = Pair::new();
    let host = &pair.primary;
    for (key, options) in [
        ("young", "0.001 1000 SEED 5"),
        ("grown", "0.001 20 SEED 5"),
        ("fixed", "0.01 300 NONSCALING LAYOUT CLASSIC SEED 5"),
        ("empty", "0.01 7 SEED 5"),
    ] {
        host.line(&format!("BF.RESERVE {key} {options}")).unwrap();
    }
    add(host, "young", "y", 100);
    add(host, "grown", "g", 500);
    add(host, "fixed", "f", 300);
    let Reply::Integer(layers) = field(host, "grown", "Number of filters") else { panic!() };
    assert!(layers > 3);
    assert_eq!(host.line("BF.MERGE young grown fixed empty"), OK);
    assert_eq!(
        field(host, "young", "Number of filters"),
        Reply::Integer(layers + 2),
        "none for the empty one"
    );
    assert_eq!(
        host.line("BF.INFO young ITEMS"),
        Ok(Reply::Entry("Number of items inserted", Box::new(Reply::Integer(900))))
    );
    pair.follow();
    // Once more, as a client does whose answer got lost.
    assert_eq!(host.line("BF.MERGE young grown fixed empty"), OK);
    assert_eq!(
        (field(host, "young", "Number of filters"), host.take_replicated()),
        (Reply::Integer(layers + 2), Vec::new())
    );
    for (prefix, count) in [("y", 100), ("g", 500), ("f", 300)] {
        assert_eq!(found(host, "young", prefix, count), count);
    }
    // The layer that had room takes the adds until it has a thousand, and then one of twice its capacity is opened.
    add(host, "young", "more", 890);
    assert_eq!(field(host, "young", "Number of filters"), Reply::Integer(layers + 2));
    add(host, "young", "even", 50);
    let Reply::Array(all) = field(host, "young", "Layers") else { panic!() };
    let Some(Reply::Map(newest)) = all.last() else { panic!() };
    assert!(newest.contains(&("Capacity", Reply::Integer(2000))), "{newest:?}");
    pair.follow();
    // What the wire carries is what there is, with the first layer another's.
    must_survive_the_wire(host, "young");
}

#[test]
fn windows_merge_generation_by_generation() {
    let pair = Pair::new();
    let host = &pair.primary;
    host.now_ms.set(1_000);
    host.line("BF.RESERVE a 0.0001 100 WINDOW 3 EVERY 1000 SINCE 1000").unwrap();
    for key in ["b", "idle", "c"] {
        host.line(&format!("BF.RESERVE {key} 0.0001 100 LIKE a")).unwrap();
    }
    for (now, adds) in [(1_000, "a:a0 b:b0 idle:i0"), (2_000, "b:b1 idle:i1"), (3_000, "b:b2")] {
        host.now_ms.set(now);
        for (key, item) in adds.split(' ').filter_map(|add| add.split_once(':')) {
            host.line(&format!("BF.ADD {key} {item}")).unwrap();
        }
    }
    // `a` is at generation 0, and rotates first; `idle` is at 1, and read as of 3.
    host.now_ms.set(4_000);
    pair.follow();
    assert_eq!(host.line("BF.MERGE a b idle"), OK);
    assert_eq!(
        host.replicated.borrow().iter().map(|words| words.join(&b' ')).collect::<Vec<_>>(),
        [&b"BF.ROTATE a AT 3"[..], b"BF.MERGE a b idle"]
    );
    for (item, age) in [("a0", -1), ("b0", -1), ("i0", -1), ("b1", 2), ("i1", 2), ("b2", 1)] {
        assert_eq!(host.line(&format!("BF.AGE a {item}")), Ok(Reply::Integer(age)), "{item}");
    }
    pair.follow();
    // A copy is as new as the newest source.
    assert_eq!(host.line("BF.MERGE new idle a"), OK);
    assert_eq!(host.line("BF.AGE new b2"), Ok(Reply::Integer(1)));
    pair.follow();
    // One that was rotated by hand is ahead.
    host.line("BF.ROTATE c").unwrap();
    let before = dumps(host);
    let ahead = "ERR the window in 'c' is ahead; BF.ROTATE brings the destination along";
    host.take_replicated();
    assert_eq!(host.text("BF.MERGE b a c"), ahead);
    assert_eq!((dumps(host), host.take_replicated()), (before, Vec::new()), "not even the rotation");
}

#[test]
fn an_intersection_keeps_the_common_items_and_replaces_the_destination() {
    for (options, _) in SHAPES.into_iter().filter(|(options, _)| !options.contains("WINDOW")) {
        let pair = Pair::new();
        let host = &pair.primary;
        host.workers.set(2);
        host.line(&format!("BF.RESERVE a 0.0001 200 {options}")).unwrap();
        for key in ["b", "c"] {
            host.line(&format!("BF.RESERVE {key} 0.0001 200 LIKE a")).unwrap();
        }
        for key in ["a", "b", "c"] {
            add(host, key, "common", 50);
            add(host, key, key, 50);
        }
        host.line("BF.RESERVE other 0.01 10 SEED 1").unwrap();
        pair.follow();
        host.events.take();
        for line in ["BF.INTERSECT other a b c", "BF.INTERSECT b b a", "BF.INTERSECT new c c"] {
            assert_eq!(host.line(line), OK);
            assert_eq!(host.replicated.borrow().last().unwrap().join(&b' '), line.as_bytes());
        }
        assert_eq!(host.events.take(), [c"bf.intersect"; 3]);
        pair.follow();
        for (key, own) in [("other", 0), ("b", 0), ("new", 50)] {
            assert_eq!(found(host, key, "common", 50), 50, "{options} {key}");
            let c = found(host, key, "c", 50) + found(host, key, "b", 50);
            assert!((own..own + 4).contains(&c), "{options} {key} {c}");
        }
        assert_eq!(host.line("BF.EQUAL new c"), YES);
        assert_eq!(host.line("BF.EQUAL other c"), NO);
    }
}

#[test]
fn counters_of_an_intersection_are_the_smaller_ones() {
    let host = Host::default();
    host.line("BF.RESERVE a 0.001 100 COUNTING").unwrap();
    host.line("BF.RESERVE b 0.001 100 LIKE a").unwrap();
    for (key, count) in [("a", 9), ("b", 4)] {
        (0..count).for_each(|_| drop(host.line(&format!("BF.ADD {key} x")).unwrap()));
    }
    assert_eq!(host.line("BF.INTERSECT a a b"), OK);
    assert_eq!(host.line("BF.COUNT a x"), Ok(Reply::Integer(4)));
}

#[test]
fn equal_is_what_answers_alike() {
    let host = Host::default();
    for (options, count) in SHAPES {
        host.line(&format!("BF.RESERVE a 0.001 200 {options}")).unwrap();
        host.line("BF.RESERVE b 0.001 200 LIKE a").unwrap();
        assert_eq!(host.line("BF.EQUAL a b"), YES, "{options}");
        add(&host, "a", "i", count);
        assert_eq!(host.line("BF.EQUAL a b"), NO, "{options}");
        add(&host, "b", "i", count);
        assert_eq!(host.line("BF.EQUAL a b"), YES, "{options}");
        assert_eq!(host.line("BF.EQUAL a a"), YES);
        host.keys.take();
    }
    for (a, b, equal) in [
        ("0.01 100 SEED 1", "0.01 100 SEED 2", NO),
        ("0.01 100 SEED 1", "0.01 100 SEED 1 HASH SIPHASH", NO),
        ("0.01 100 SEED 1", "0.01 100 SEED 1 COUNTING", NO),
        ("0.01 100 SEED 1", "0.01 100 SEED 1 NONSCALING", NO),
        ("0.01 100 SEED 1", "0.01 900 SEED 1", NO),
        ("0.01 100 SEED 1 WINDOW 2", "0.01 100 SEED 1 WINDOW 3", NO),
        // What an add does when there is no room is no matter of answers.
        ("0.01 100 SEED 1 NONSCALING", "0.01 100 SEED 1 ONFULL SATURATE", YES),
    ] {
        host.line(&format!("BF.RESERVE a {a}")).unwrap();
        host.line(&format!("BF.RESERVE b {b}")).unwrap();
        assert_eq!(host.line("BF.EQUAL a b"), equal, "{a}, {b}");
        host.keys.take();
    }
    // By the clock one that nobody has written to is the same as one that somebody has.
    host.line("BF.RESERVE a 0.001 200 WINDOW 2 EVERY 10").unwrap();
    host.line("BF.RESERVE b 0.001 200 LIKE a").unwrap();
    host.line("BF.ADD a old").unwrap();
    host.now_ms.set(10);
    assert_eq!(host.line("BF.EQUAL a b"), NO);
    host.now_ms.set(20);
    assert_eq!(host.line("BF.EQUAL a b"), YES);
    host.line("BF.ADD b new").unwrap();
    assert_eq!(host.line("BF.EQUAL a b"), NO);
    assert_eq!(host.take_replicated().pop().as_deref(), Some("BF.ADD b new"), "a read replicates nothing");
}

#[test]
fn other_systems_filters_merge_with_their_like() {
    for (recipe, _) in golden::FOREIGN {
        let pair = Pair::new();
        for host in [&pair.primary, &pair.replica] {
            put_foreign(host, "a", recipe);
            put_foreign(host, "b", recipe);
        }
        let host = &pair.primary;
        assert_eq!(host.line("BF.EQUAL a b"), YES, "{recipe}");
        let number = matches!(foreign(recipe).encoding() as u8, 2 | 3);
        let item = |item: u32| if number { item.to_string() } else { format!("merged{item}") };
        // As many as go in without a new link.
        let mut new = Vec::new();
        for number in 0..3 {
            let links = field(host, "b", "Number of filters");
            let before = copy(host, "b");
            let _ = host.line(&format!("BF.ADD b {}", item(1000 + number)));
            if field(host, "b", "Number of filters") != links {
                put(host, "b", before);
                break;
            }
            new.push(item(1000 + number));
        }
        host.take_replicated();
        put(&pair.replica, "b", copy(host, "b"));
        let (Ok(Reply::Integer(mine)), Ok(Reply::Integer(theirs))) =
            (host.line("BF.CARD a"), host.line("BF.CARD b"))
        else {
            panic!()
        };
        assert_eq!(host.line("BF.MERGE a b"), OK, "{recipe}");
        assert_eq!(host.line("BF.MERGE new b a"), OK);
        for item in &new {
            assert_eq!(host.line(&format!("BF.EXISTS a {item}")), YES);
        }
        assert_eq!(host.line("BF.EQUAL a b"), YES, "{recipe}: the one was a part of the other");
        assert_eq!(host.line("BF.EQUAL a new"), YES);
        let Ok(Reply::Integer(items)) = host.line("BF.CARD a") else { panic!() };
        assert!((mine.max(theirs)..=mine + theirs).contains(&items), "{recipe}: {items}");
        pair.follow();
        // Its wire form is validated as the original's: the last link of valkey-bloom's is not above its capacity.
        must_survive_the_wire(host, "a");
    }
}

/// The originals would not load a link that holds more than it is made for, or not go on with it.
#[test]
fn links_that_are_full_are_no_fuller_by_a_merge() {
    for recipe in ["foreign-valkey", "foreign-redisbloom"] {
        let host = Host::default();
        for key in ["a", "b"] {
            put_foreign(&host, key, recipe);
            let links = field(&host, key, "Number of filters");
            for item in 0.. {
                let before = copy(&host, key);
                host.line(&format!("BF.ADD {key} {key}{item}")).unwrap();
                if field(&host, key, "Number of filters") != links {
                    put(&host, key, before);
                    break;
                }
            }
        }
        let links = field(&host, "a", "Number of filters");
        let items = host.line("BF.CARD a");
        assert_eq!(host.line("BF.MERGE a b"), OK);
        assert_eq!(host.line("BF.CARD a"), items, "{recipe}: each link was full, and is");
        must_survive_the_wire(&host, "a");
        host.line("BF.ADD a next").unwrap();
        assert_ne!(field(&host, "a", "Number of filters"), links);
    }
}

/// Filters of every kind that does not go together with `plain`.
fn strangers(host: &Host) {
    put(host, "text", Content::Other);
    for line in [
        "BF.RESERVE plain 0.01 100 SEED 1 NONSCALING",
        "BF.RESERVE seed 0.01 100 SEED 2 NONSCALING",
        "BF.RESERVE hash 0.01 100 SEED 1 HASH SIPHASH NONSCALING",
        "BF.RESERVE shards 0.01 100 SEED 1 SHARDS 2 NONSCALING",
        "BF.RESERVE large 0.01 1000 SEED 1 NONSCALING",
        "BF.RESERVE scaling 0.01 100 SEED 1",
        "BF.RESERVE grown 0.01 3 SEED 1",
        "BF.RESERVE counting 0.01 100 SEED 1 COUNTING",
        "BF.RESERVE counting8 0.01 100 SEED 1 COUNTING 8",
        "BF.RESERVE window 0.01 100 SEED 1 WINDOW 2",
        "BF.RESERVE window3 0.01 100 SEED 1 WINDOW 3",
        "BF.RESERVE every 0.01 100 SEED 1 WINDOW 2 EVERY 1000 SINCE 5",
        "BF.RESERVE since 0.01 100 SEED 1 WINDOW 2 EVERY 1000 SINCE 6",
        "CF.RESERVE cuckoo 100",
    ] {
        host.line(line).unwrap();
    }
    add(host, "grown", "g", 10);
    add(host, "plain", "p", 10);
    put_foreign(host, "guava", "foreign-guava");
    put_foreign(host, "gozero", "foreign-go-zero");
}

#[test]
fn a_refused_command_changes_nothing() {
    let host = Host::default();
    strangers(&host);
    let before = dumps(&host);
    host.take_replicated();
    host.events.take();
    let unlike = |key: &str, what: &str| format!("ERR the filter in '{key}' has another {what}; {LIKE}");
    let several = |key: &str| {
        format!(
            "ERR the filter in '{key}' is a window or has grown, and its items may lie in other layers than the same \
             items of another filter: an intersection would lose them"
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
            "ERR the filter came from another system, whose filters take adds, tests and merges only".into(),
        ),
        ("BF.INTERSECT missing plain missing".into(), "ERR not found".into()),
        ("BF.EQUAL plain missing".into(), "ERR not found".into()),
        ("BF.EQUAL missing plain".into(), "ERR not found".into()),
    ];
    for (key, what) in [
        ("seed", "seed"),
        ("hash", "hash"),
        ("shards", "number of shards"),
        ("large", "shape"),
        ("scaling", "kind"),
        ("counting", "cell width"),
    ] {
        for line in [
            format!("BF.MERGE plain {key}"),
            format!("BF.MERGE missing plain {key}"),
            format!("BF.INTERSECT plain plain {key}"),
            format!("BF.INTERSECT missing plain {key}"),
        ] {
            cases.push((line, unlike(key, what)));
        }
        // The sources before it do not get in either.
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
    host.line("BF.RESERVE plain2 0.01 100 LIKE plain").unwrap();
    add(&host, "plain2", "other", 10);
    let before = [before, vec![(b"plain2".to_vec(), host.dump("plain2"))]].concat();
    let sorted = |mut dumps: Vec<(Vec<u8>, Vec<u8>)>| {
        dumps.sort();
        dumps
    };
    host.take_replicated();
    host.events.take();
    for (line, error) in cases {
        assert_eq!(host.text(&line), error, "{line}");
        assert_eq!((host.take_replicated(), host.events.take()), (Vec::new(), Vec::new()), "{line}");
        assert!(sorted(dumps(&host)) == sorted(before.clone()), "{line}");
    }
    assert!(!host.keys.borrow().contains_key(&b"missing"[..]));
    for key in host.keys.borrow().keys() {
        let words: [&[u8]; 3] = [b"BF.EQUAL", b"plain", key];
        if !matches!(&key[..], b"cuckoo" | b"text" | b"plain") {
            assert_eq!(host.run(&words), NO, "{}", String::from_utf8_lossy(key));
        }
    }
}

#[test]
fn memory_is_asked_for_before_anything_changes() {
    let host = Host::default();
    host.line("BF.RESERVE chain 0.01 100 SEED 1").unwrap();
    host.line("BF.RESERVE alike 0.01 100 SEED 1").unwrap();
    host.line("BF.RESERVE large 0.01 5000 SEED 1").unwrap();
    ["chain", "alike", "large"].iter().for_each(|key| add(&host, key, key, 10));
    let before = dumps(&host);
    host.take_replicated();
    host.memory.set(Some(2000));
    for line in ["BF.MERGE chain alike large", "BF.MERGE new large", "BF.INTERSECT chain large large"] {
        assert!(host.text(line).starts_with("ERR Insufficient memory to create filter: it takes"), "{line}");
        assert_eq!((dumps(&host), host.take_replicated()), (before.clone(), Vec::new()), "{line}");
    }
    // What does not grow needs none, and who obeys is not asked.
    host.memory.set(Some(1));
    assert_eq!(host.line("BF.MERGE chain alike"), OK);
    host.obeys.set(true);
    assert_eq!(host.line("BF.MERGE chain large"), OK);
    assert_eq!(found(&host, "chain", "large", 10), 10);
}

/// A chain of layers of the same capacity, each with items.
fn chain(capacity: u64, layers: usize) -> Bloom {
    let family = Family::Scaling { expansion: 1, tightening: Tightening::INVERSE_SQUARE };
    let mut filter = Bloom::new(Spec { family, ..Spec::scaling(capacity, 0.01) }).unwrap();
    for item in 0u32.. {
        if filter.layers().len() == layers {
            break;
        }
        filter.add(filter.hash(&item.to_le_bytes())).unwrap();
    }
    filter
}

#[test]
fn a_chain_takes_no_more_layers_than_it_may_have() {
    let host = Host::default();
    put(&host, "a", Content::Filter(Filter::Bloom(chain(100, 2))));
    put(&host, "b", Content::Filter(Filter::Bloom(chain(3, 2000))));
    put(&host, "c", Content::Filter(Filter::Bloom(chain(7, 2100))));
    assert_eq!(host.line("BF.MERGE a b"), OK);
    let before = dumps(&host);
    assert_eq!(host.text("BF.MERGE a c"), "ERR the filter has grown as often as it may");
    assert_eq!(host.text("BF.MERGE new a b c"), "ERR the filter has grown as often as it may");
    assert!(dumps(&host) == before);
}

/// Random merges among chains of all lengths, windows and fixed filters: nothing that was added is ever missed, and the
/// replica stays equal.
#[test]
fn no_item_is_ever_missed() {
    for seed in 0..30 {
        let mut random = SmallRng::seed_from_u64(seed);
        let pair = Pair::new();
        let host = &pair.primary;
        for (key, reserve) in [
            ("a", "0.01 10 SEED 1"),
            ("b", "0.01 10 SEED 1"),
            ("c", "0.001 35 SEED 1 EXPANSION 1"),
            ("d", "0.01 400 SEED 1 LAYOUT CLASSIC"),
            ("e", "0.02 60 SEED 1 ONFULL SATURATE"),
        ] {
            host.line(&format!("BF.RESERVE {key} {reserve}")).unwrap();
        }
        let keys = ["a", "b", "c", "d", "e"];
        let mut members = vec![Vec::<u32>::new(); keys.len()];
        for _ in 0..60 {
            let (to, from) = (random.random_range(0..keys.len()), random.random_range(0..keys.len()));
            if random.random_range(0..4) > 0 {
                for _ in 0..random.random_range(1..15) {
                    let item = random.random_range(0..5000);
                    host.line(&format!("BF.ADD {} {item}", keys[to])).unwrap();
                    members[to].push(item);
                }
            } else if host.line(&format!("BF.MERGE {} {}", keys[to], keys[from])) == OK {
                let more = members[from].clone();
                members[to].extend(more);
            } else {
                assert_eq!(keys[to], "e", "only the one of fixed size takes no layers");
            }
            for (key, members) in keys.iter().zip(&members) {
                for item in members {
                    assert_eq!(
                        host.line(&format!("BF.EXISTS {key} {item}")),
                        YES,
                        "seed {seed}: {key} {item}"
                    );
                }
            }
        }
        pair.follow();
    }
}
