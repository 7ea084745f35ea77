//! Windows whose generations share a table: TTL, ages in milliseconds, deletes, and rotations that make room.

use super::pair::Pair;
use crate::support::env;
use crate::support::fake_server::FakeServer;
use bloomery_commands::Reply;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;

const START: u64 = 1_790_000_000_123;

fn at(now_ms: u64) -> FakeServer {
    let server = FakeServer::default();
    server.now_ms.set(now_ms);
    server
}

fn field(server: &FakeServer, key: &str, name: &str) -> Reply {
    let Ok(Reply::Map(fields)) = server.line(&format!("BF.STATS {key}")) else { panic!("{key}") };
    let found = fields.into_iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("{name}")).1
}

#[test]
fn a_ttl_is_a_window_that_begins_now() {
    let server = at(START);
    server.line("BF.RESERVE k 0.01 31000 TTL 31000 SEED 7").unwrap();
    let begins = |effects: &[String], with: String| {
        assert!(effects[0].starts_with(&with), "{effects:?}");
    };
    begins(
        &server.take_replicated(),
        format!(
            "BF.RESERVE k 0.01 1000 WINDOW 32 EVERY 1000 SINCE {START} ONFULL SCALE LAYOUT QUOTIENT SEED"
        ),
    );
    server.line("BF.RESERVE few 0.01 100 TTL 1000 STEPS 3 SEED 7 ONFULL ERROR").unwrap();
    begins(
        &server.take_replicated(),
        format!("BF.RESERVE few 0.01 34 WINDOW 4 EVERY 334 SINCE {START} ONFULL ERROR LAYOUT QUOTIENT SEED"),
    );
    server.line("BF.INSERT new CAPACITY 62 ERROR 0.001 TTL 62 ITEMS a b").unwrap();
    let effects = server.take_replicated();
    begins(
        &effects,
        format!("BF.RESERVE new 0.001 2 WINDOW 32 EVERY 2 SINCE {START} ONFULL SCALE LAYOUT QUOTIENT SEED"),
    );
    assert_eq!(effects[1], "BF.MADD new a b");
    // Rotations are whole milliseconds apart.
    for (options, window) in [
        ("TTL 100", "WINDOW 26 EVERY 4 SINCE"),
        ("TTL 5", "WINDOW 6 EVERY 1 SINCE"),
        ("TTL 1.5s", "WINDOW 32 EVERY 49 SINCE"),
        ("WINDOW 2 EVERY 1h", "WINDOW 2 EVERY 3600000 SINCE"),
    ] {
        server.line(&format!("BF.RESERVE t 0.01 100 {options}")).unwrap();
        assert!(server.take_replicated()[0].contains(window), "{options}");
        server.keys.borrow_mut().clear();
    }
    for (wrong, error) in [
        (
            "RESERVE n 0.01 10 TTL 0",
            "ERR TTL expects a time for which an item is kept, such as 60000 (ms), 60s or 1h",
        ),
        ("RESERVE n 0.01 10 TTL 5 STEPS 0", "ERR STEPS expects 1 to 999 steps of a TTL"),
        ("RESERVE n 0.01 10 STEPS 5", "ERR STEPS belongs to TTL time"),
        ("INSERT n STEPS 5 ITEMS a", "ERR STEPS belongs to TTL time"),
    ] {
        assert_eq!(server.text(&format!("BF.{wrong}")), error);
    }
    for options in ["WINDOW 4", "EVERY 5", "LAYOUT BLOCKED"] {
        let reply = server.text(&format!("BF.RESERVE n 0.01 10 TTL 1000 {options}"));
        assert!(reply.starts_with("ERR TTL creates a window of LAYOUT QUOTIENT"), "{reply}");
    }
    for options in ["COUNTING", "EXPANSION 2", "ONFULL SATURATE", "SHARDS 2"] {
        assert!(server.text(&format!("BF.RESERVE n 0.01 10 TTL 1000 {options}")).starts_with("ERR"));
    }
    assert!(server.take_replicated().is_empty());
}

/// An added item stays for the TTL, and is gone at most one step later. Ages in milliseconds are never too low, and at
/// most one step too high.
#[test]
fn items_are_forgotten_within_a_step_after_their_ttl() {
    for steps in [1, 4, 31, 999] {
        let server = at(START);
        let ttl = 10 * steps;
        server.line(&format!("BF.RESERVE k 0.000001 1000 TTL {ttl} STEPS {steps}")).unwrap();
        for (number, into) in (0..30).map(|number| (number, number * 7 % 10)) {
            let added = server.now_ms.get() + into;
            server.now_ms.set(added);
            server.line(&format!("BF.ADD k {number}")).unwrap();
            for after in [0, 1, 9, 10, ttl / 2, ttl - 1, ttl, ttl + 9, ttl + 10, 1000 * ttl] {
                server.now_ms.set(added + after);
                let found = server.line(&format!("BF.EXISTS k {number}")) == Ok(Reply::Bool(true));
                assert!(found || after >= ttl, "{after} of {ttl}");
                assert!(!found || after < ttl + 10, "{after} of {ttl}");
                let Ok(Reply::Integer(age)) = server.line(&format!("BF.AGE k {number} MS")) else { panic!() };
                let expected = if found { after as i64..after as i64 + 10 } else { -1..0 };
                assert!(expected.contains(&age), "{age} after {after}");
            }
        }
    }
    let server = at(START);
    server.line("BF.RESERVE k 0.01 10 WINDOW 3").unwrap();
    assert_eq!(
        server.text("BF.AGE k a MS"),
        "ERR a window that is only rotated manually has no ages in milliseconds; leave MS out"
    );
    assert_eq!(server.text("BF.AGE k a s"), "ERR BF.AGE expects an item, and MS or nothing");
    assert!(server.text("BF.AGE k a MS MS").starts_with("ERR wrong number of arguments"));
}

/// Each item stays exactly until the generation of its last add is dropped. New generations are started manually and by
/// the clock, items are added again and deleted, and the clock jumps so far ahead that generation numbers are reused.
#[test]
fn deadlines_equal_a_model() {
    const EVERY: u64 = 1000;
    for seed in 0..env("BLOOMERY_SEQUENCES", 300) {
        let mut random = SmallRng::seed_from_u64(seed);
        let server = at(START);
        let span: u64 = [2, 3, 4, 7, 8, 15, 32, 64, 1000][random.random_range(0..9)];
        // At this error rate, no item is mistaken for another, so the answers are exact.
        let steps = span - 1;
        server
            .line(&format!("BF.RESERVE k 1e-12 60000 TTL {} STEPS {steps} ONFULL ERROR", EVERY * steps))
            .unwrap();
        let mut by_hand = 0;
        let mut last: HashMap<u32, u64> = HashMap::new();
        let generation = |by_hand: u64| by_hand + (server.now_ms.get() - START) / EVERY;
        for _ in 0..300 {
            let item = random.random_range(0..40);
            let current = generation(by_hand);
            let is_there = last.get(&item).is_some_and(|added| current - added < span);
            match random.random_range(0..20) {
                0..8 => {
                    assert_eq!(
                        server.line(&format!("BF.ADD k {item}")),
                        Ok(Reply::Bool(!is_there)),
                        "seed {seed}"
                    );
                    last.insert(item, current);
                }
                8..10 => {
                    assert_eq!(
                        server.line(&format!("BF.DEL k {item}")),
                        Ok(Reply::Bool(is_there)),
                        "seed {seed}"
                    );
                    last.remove(&item);
                }
                10 => {
                    server.line("BF.ROTATE k").unwrap();
                    by_hand += 1;
                }
                11..17 => server.now_ms.set(server.now_ms.get() + random.random_range(0..2 * EVERY)),
                17 => server.now_ms.set(server.now_ms.get() + random.random_range(0..span) * EVERY),
                18 => {
                    let wrap = (span + 1).next_power_of_two() << random.random_range(0..20);
                    server.now_ms.set(server.now_ms.get() + (wrap + random.random_range(0..3) - 1) * EVERY);
                }
                _ => {}
            }
            let current = generation(by_hand);
            for item in 0..40 {
                let age = last.get(&item).map(|added| current - added).filter(|age| *age < span);
                let found = server.line(&format!("BF.AGE k {item}"));
                assert_eq!(
                    found,
                    Ok(Reply::Integer(age.map_or(-1, |age| age as i64))),
                    "seed {seed}, item {item}"
                );
            }
        }
    }
}

/// A delete consults the clock, just as a test does.
#[test]
fn items_of_a_window_are_deleted_while_they_are_there() {
    let pair = Pair::new();
    let server = &pair.primary;
    server.now_ms.set(START);
    server.line("BF.RESERVE k 0.000001 100 WINDOW 3 EVERY 1000 LAYOUT QUOTIENT").unwrap();
    server.line("BF.MADD k a b c").unwrap();
    assert_eq!(server.line("BF.DEL k a"), Ok(Reply::Bool(true)));
    assert_eq!(server.line("BF.DEL k a"), Ok(Reply::Bool(false)));
    server.now_ms.set(START + 2999);
    assert_eq!(server.line("BF.DEL k d"), Ok(Reply::Bool(false)));
    assert_eq!(server.line("BF.DEL k b"), Ok(Reply::Bool(true)));
    server.now_ms.set(START + 3000);
    assert_eq!(server.line("BF.DEL k c"), Ok(Reply::Bool(false)));
    assert_eq!(server.line("BF.CARD k"), Ok(Reply::Integer(0)));
    pair.follow();
    server.line("BF.RESERVE ring 0.01 100 WINDOW 3").unwrap();
    assert!(server.text("BF.DEL ring a").starts_with("ERR not a counting filter"));
}

/// The oldest items make room for new ones, one at a time: in the new item's leaf, one of the oldest generation. So of
/// the items that stay, few are of an older generation than one that leaves early.
#[test]
fn a_full_window_forgets_its_oldest_items() {
    const STEP: u64 = 1000;
    let number = |server: &FakeServer, name: &str| match field(server, "k", name) {
        Reply::Integer(number) => number as u64,
        other => panic!("{other:?}"),
    };
    let (mut early, mut most) = (0, 0.0f64);
    for seed in 0..24 {
        let mut random = SmallRng::seed_from_u64(seed);
        let server = at(START);
        let steps = [2, 31, 200][seed as usize % 3];
        let ttl = steps * STEP;
        server
            .line(&format!("BF.RESERVE k 0.0000001 4000 TTL {ttl} STEPS {steps} ONFULL FORGET SEED {seed}"))
            .unwrap();
        let room = 4000u64.div_ceil(steps) * (steps + 1);
        // The generation of each item.
        let (mut added, mut items) = (HashMap::new(), 0u32);
        for _ in 0..40 {
            server.now_ms.set(server.now_ms.get() + random.random_range(0..3 * STEP));
            let new = items..items + [4, 80, 400, 2800][random.random_range(0..4)];
            items = new.end;
            let forgotten = number(&server, "Items forgotten early");
            server.line(&format!("BF.MADD k {}", words(new.clone()))).unwrap();
            let newest = number(&server, "Generation");
            let generation = |item: u32| match server.line(&format!("BF.AGE k {item}")) {
                Ok(Reply::Integer(age)) => (age >= 0).then(|| newest - age as u64),
                other => panic!("{other:?}"),
            };
            added.extend(new.filter_map(|item| Some((item, generation(item)?))));
            let (there, gone): (HashMap<u32, u64>, HashMap<_, _>) =
                added.iter().partition(|(item, _)| generation(**item).is_some());
            let forgotten = number(&server, "Items forgotten early") - forgotten;
            let gone: Vec<u64> =
                gone.into_values().filter(|generation| newest - generation <= steps).collect();
            assert!(gone.len() as u64 <= forgotten, "{} of {forgotten}", gone.len());
            assert!(there.len() as u64 <= room, "{} of {room}", there.len());
            for generation in &gone {
                let older = there.values().filter(|other| *other < generation).count();
                most = most.max(older as f64 / there.len() as f64);
            }
            early += gone.len();
            added = there;
        }
    }
    assert!(early > 10_000, "{early}");
    assert!(most < 0.13, "{most}");
}

/// However unevenly items arrive, they keep their TTL under two conditions. Within a TTL, no more items arrive than the
/// capacity. Within a TTL plus a step, no more items arrive than the table has room for, because an expired item can
/// take up room until a step after its TTL.
#[test]
fn items_within_the_capacity_keep_their_ttl() {
    const STEP: u64 = 1000;
    for seed in 0..12 {
        let mut random = SmallRng::seed_from_u64(seed);
        let server = at(START);
        let steps = [2, 3, 5, 31][seed as usize % 4];
        let ttl = steps * STEP;
        server.line(&format!("BF.RESERVE k 0.0000001 1000 TTL {ttl} STEPS {steps}")).unwrap();
        let (mut added, mut items) = (Vec::new(), 0u32);
        for _ in 0..60 {
            let now = server.now_ms.get() + random.random_range(0..ttl / 2);
            server.now_ms.set(now);
            added.retain(|(_, time)| now - time < ttl + STEP);
            let within = |time| added.iter().filter(|(_, added)| now - added < time).count() as u64;
            let room = (1000 - within(ttl)).min(1000 + 1000 / steps - within(ttl + STEP)) as u32;
            let count = if random.random() { room } else { random.random_range(0..=room) };
            let words: String = (items..items + count).map(|item| format!(" {item}")).collect();
            if count > 0 {
                server.line(&format!("BF.MADD k{words}")).unwrap();
            }
            added.extend((items..items + count).map(|item| (item, now)));
            items += count;
            for (item, time) in &added {
                let found = server.line(&format!("BF.EXISTS k {item}")) == Ok(Reply::Bool(true));
                assert!(found || now - time >= ttl, "{item} of {time} left at {now}, {steps} steps");
            }
        }
    }
}

/// A burst of up to ten times the usual number of items per step loses nothing, unless the filter has a limit.
#[test]
fn a_burst_loses_nothing() {
    const STEP: u64 = 1000;
    for (seed, percent) in [101, 110, 150, 200, 500, 1000].into_iter().enumerate() {
        let server = at(START);
        server.line(&format!("BF.RESERVE k 0.000001 3100 TTL {} SEED {seed}", 31 * STEP)).unwrap();
        let (mut added, mut items) = (Vec::new(), 0);
        for step in 0..80 {
            server.now_ms.set(START + step * STEP);
            // Ten steps of a burst, after the filter has come to its usual size.
            let count = if (35..45).contains(&step) { percent } else { 100 };
            server.line(&format!("BF.MADD k {}", words(items..items + count))).unwrap();
            added.extend((items..items + count).map(|item| (item, step)));
            items += count;
            added.retain(|(_, then)| step - then < 31);
            let is_there = |item: u32| server.line(&format!("BF.EXISTS k {item}")) == Ok(Reply::Bool(true));
            let lost = added.iter().filter(|(item, _)| !is_there(*item)).count();
            assert_eq!(lost, 0, "{percent}% in step {step}");
        }
        let Reply::Integer(held) = field(&server, "k", "Number of items inserted") else { panic!() };
        assert!(held <= 3300, "{held}: those of the burst have gone");
    }
}

/// Items are forgotten early, and generations begin early, in the middle of commands with many items, during a rebuild,
/// and between manual rotations and rotations by the clock. A replica forgets the same items, and a filter loaded from
/// a dump has the same state.
#[test]
fn full_windows_forget_alike_everywhere() {
    let mut forgetful = 0;
    for seed in 0..30 {
        let mut random = SmallRng::seed_from_u64(seed);
        let pair = Pair::new();
        let server = &pair.primary;
        server.now_ms.set(START);
        for reserve in [
            "rotating 0.01 20 WINDOW 3 EVERY 1000 ONFULL FORGET",
            "long 0.01 2 WINDOW 100 ONFULL FORGET HASH SIPHASH",
            "refusing 0.01 20 WINDOW 4 EVERY 700 LAYOUT QUOTIENT ONFULL ERROR",
        ] {
            server.line(&format!("BF.RESERVE {reserve}")).unwrap();
        }
        for _ in 0..150 {
            server.now_ms.set(server.now_ms.get() + random.random_range(0..300));
            let key = ["rotating", "long", "refusing"][random.random_range(0..3)];
            let items = |count: u32, random: &mut SmallRng| -> String {
                (0..count).map(|_| format!(" {}", random.random_range(0..1000))).collect()
            };
            let line = match random.random_range(0..20) {
                0..8 => format!("BF.MADD {key}{}", items(40, &mut random)),
                8..10 => format!("BF.ADDNX {key}{}", items(1, &mut random)),
                10 => format!("BF.BULKADD {key} FIXED 4 {:04}{:04}", random.random_range(0..9), 7777),
                11..13 => format!("BF.MDEL {key}{}", items(5, &mut random)),
                13 => format!("BF.ROTATE {key}"),
                14 => format!("BF.REBUILD {key} BEGIN CAPACITY {}", random.random_range(1..60)),
                15 => format!("BF.REBUILD {key} ADD{}", items(10, &mut random)),
                16 => format!("BF.REBUILD {key} COMMIT"),
                17 => {
                    // The clock jumps forward. The next arm sets it back.
                    server.now_ms.set(server.now_ms.get() + random.random_range(0..100_000));
                    format!("BF.ADD {key} 1")
                }
                18 => {
                    server.now_ms.set(server.now_ms.get() - random.random_range(0..10_000));
                    format!("BF.ADD {key} 2")
                }
                _ => format!("BF.INSERT {key} ITEMS{}", items(3, &mut random)),
            };
            let _ = server.line(&line);
            pair.follow();
        }
        for key in ["rotating", "long"] {
            let Ok(Reply::Map(fields)) = server.line(&format!("BF.STATS {key}")) else { panic!() };
            let forgot = |(name, value): &(&str, Reply)| {
                *name == "Items forgotten early" && matches!(value, Reply::Integer(1..))
            };
            forgetful += usize::from(fields.iter().any(forgot));
        }
    }
    assert!(forgetful > 20, "{forgetful}");
}

/// A rebuild puts all items of the backfill into one generation, which must have room for the full capacity.
#[test]
fn a_window_that_is_rebuilt_has_room_for_its_capacity() {
    let server = at(START);
    for (key, begin) in [("k", "TTL 3600000 CAPACITY 1000"), ("same", "CAPACITY 1000")] {
        server.line(&format!("BF.RESERVE {key} 0.00001 1000 TTL 3600000")).unwrap();
        server.line(&format!("BF.REBUILD {key} BEGIN {begin}")).unwrap();
        server.line(&format!("BF.REBUILD {key} ADD {}", words(0..1000))).unwrap();
        server.line(&format!("BF.REBUILD {key} COMMIT")).unwrap();
        assert_eq!(server.line(&format!("BF.CARD {key}")), Ok(Reply::Integer(1000)), "{begin}");
    }
}

/// Nothing is forgotten unless room is needed. The newest 10 items always stay: 10 is the capacity of a generation.
#[test]
fn a_full_window_keeps_the_newest_items() {
    let server = at(START);
    server.line("BF.RESERVE k 0.000001 10 WINDOW 4 EVERY 1000 ONFULL FORGET").unwrap();
    // With four generations, a busy one can hold three times the capacity of a generation.
    server.line(&format!("BF.MADD k {}", words(0..30))).unwrap();
    assert_eq!(field(&server, "k", "Generation"), Reply::Integer(0));
    server.line("BF.ADD k 30").unwrap();
    assert_eq!(field(&server, "k", "Generation"), Reply::Integer(1));
    server.line(&format!("BF.MADD k {}", words(31..40))).unwrap();
    assert_eq!(field(&server, "k", "Items forgotten early"), Reply::Integer(0));
    assert_eq!(field(&server, "k", "Number of items inserted"), Reply::Integer(40));
    server.line("BF.ADD k 40").unwrap();
    assert_eq!(field(&server, "k", "Items forgotten early"), Reply::Integer(1));
    assert_eq!(field(&server, "k", "Number of items inserted"), Reply::Integer(40));
    let mut ages = HashMap::new();
    for item in 41..400 {
        server.line(&format!("BF.ADD k {item}")).unwrap();
        for back in 0..10 {
            let Ok(Reply::Integer(age)) = server.line(&format!("BF.AGE k {}", item - back)) else { panic!() };
            assert!(age >= 0, "{item} − {back}");
            *ages.entry(age).or_insert(0) += 1;
        }
    }
    assert!(ages.len() >= 2, "{ages:?}");
    assert_eq!(field(&server, "k", "On full"), Reply::from("FORGET"));
    server.line("BF.RESERVE e 0.000001 10 WINDOW 4 LAYOUT QUOTIENT ONFULL ERROR").unwrap();
    server.line(&format!("BF.MADD e {}", words(0..40))).unwrap();
    assert_eq!(server.text("BF.ADD e 40"), "ERR non scaling filter is full");
    assert_eq!(server.line("BF.ADD e 39"), Ok(Reply::Bool(false)));
    let advice =
        "full: it holds 40 items of 40 and refuses new ones; BF.REBUILD e BEGIN CAPACITY 20 makes room";
    assert_eq!(field(&server, "e", "Advice"), Reply::Array(vec![Reply::from(advice)]));
}

fn words(items: std::ops::Range<u32>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(" ")
}
