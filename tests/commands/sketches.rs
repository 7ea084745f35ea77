//! Count-min and Top-K sketches: RedisBloom's recorded replies and values, refused payloads, and what replicas get.

use crate::support::fake_server::FakeServer;
use crate::support::rdb::{Dump, Field, Fields};
use crate::support::sketches::{answers_after_loading, load, replay, save};
use bloomery_commands::Reply;

#[test]
fn replies_are_redisblooms() {
    assert_eq!(replay("cms"), 115);
    assert_eq!(replay("topk"), 124);
}

#[test]
fn loaded_values_answer_as_in_redisbloom() {
    for (file, manifest) in [("dump.rdb", "manifest.json"), ("dump-rdb11.rdb", "manifest-rdb11.json")] {
        assert_eq!(answers_after_loading(file, manifest, "CMSk-TYPE"), 6);
        assert_eq!(answers_after_loading(file, manifest, "TopK-TYPE"), 7);
    }
}

#[test]
fn counters_stay_at_their_largest_value() {
    let server = FakeServer::default();
    server.line("CMS.INITBYDIM c 3 3").unwrap();
    for increment in ["4294967294", "1", "7", "9223372036854775807"] {
        server.line(&format!("CMS.INCRBY c a {increment}")).unwrap();
    }
    assert_eq!(server.line("CMS.QUERY c a").unwrap(), Reply::Counts(vec![u32::MAX], None));
    let overflow = Reply::Counts(vec![u32::MAX], Some("CMS: INCRBY overflow"));
    assert_eq!(server.line("CMS.INCRBY c a 0").unwrap(), overflow);
}

/// Items with NUL bytes and the empty item, which RedisBloom cuts, and the state of the dice.
#[test]
fn values_survive_saving() {
    let server = FakeServer::default();
    server.line("CMS.INITBYDIM c 3 3").unwrap();
    server.line("CMS.INCRBY c a 5 b 4294967295 c 7").unwrap();
    server.line("TOPK.RESERVE t 4 3 2 0.9").unwrap();
    for items in [&[&b"a\0b"[..], b"", b"a\0b", b"a", b"x"][..], &[b"y", b"x", b"z", b"z", b""]] {
        server.run(&[&[&b"TOPK.ADD"[..], b"t"], items].concat()).unwrap();
    }
    for key in ["c", "t"] {
        let dump = save(&server, key);
        load(&server, "copy", &dump).unwrap();
        assert_eq!(save(&server, "copy"), dump);
    }
    let list = |key: &str| server.line(&format!("TOPK.LIST {key} WITHCOUNT"));
    assert_eq!(list("copy"), list("t"));
    assert!(format!("{:?}", list("t")).contains("[97, 0, 98]"), "{:?}", list("t"));
    // The dice go on where they were.
    for item in 0..100 {
        for key in ["t", "copy"] {
            server.line(&format!("TOPK.INCRBY {key} {} 3 b 1", item % 7)).unwrap();
        }
    }
    assert_eq!(save(&server, "copy"), save(&server, "t"));
}

/// Every field with another number, type or length, and every payload that ends early, is refused before memory for it
/// is allocated.
#[test]
fn bad_payloads_are_refused() {
    let server = FakeServer::default();
    server.line("CMS.INITBYDIM c 3 3").unwrap();
    server.line("TOPK.RESERVE t 2 3 2 0.9").unwrap();
    server.line("TOPK.ADD t a").unwrap();
    let huge = [0, 1 << 32, 1 << 40, (1 << 62) + 1, u64::MAX];
    for (key, numbers, doubles, strings) in [("c", 0..2, 0..0, 3..4), ("t", 0..3, 3..4, 4..8)] {
        let good = save(&server, key);
        load(&server, "copy", &good).unwrap();
        let refused = |index: usize, field: Option<Field>| {
            let mut bad = good.clone();
            match field {
                Some(field) => bad.fields.0[index] = field,
                None => bad.fields.0.truncate(index),
            }
            assert!(load(&server, "copy", &bad).is_err(), "{key} {bad:?}");
        };
        for index in numbers {
            huge.iter().for_each(|value| refused(index, Some(Field::Unsigned(*value))));
        }
        for index in doubles {
            for value in [0.0, -0.5, 1.5, f64::NAN, f64::INFINITY] {
                refused(index, Some(Field::Double(value)));
            }
        }
        for index in strings {
            let Field::String(bytes) = &good.fields.0[index] else { panic!() };
            let shorter = bytes[..bytes.len() - 1].to_vec();
            // Without its NUL byte, an item is refused. One that is longer is another item.
            refused(index, Some(Field::String(shorter)));
            refused(index, Some(Field::String([bytes, &b"x"[..]].concat())));
            refused(index, Some(Field::String(Vec::new())));
        }
        for index in 0..good.fields.0.len() {
            refused(index, None);
            refused(
                index,
                Some(if matches!(good.fields.0[index], Field::Double(_)) {
                    Field::Unsigned(1)
                } else {
                    Field::Double(1.0)
                }),
            );
        }
        let newer = Dump { encoding: 1, ..good.clone() };
        assert!(load(&server, "copy", &newer).is_err());
    }
    // 4 times these dimensions is 16, modulo 2^64.
    let wraps =
        [Field::Unsigned((1 << 62) + 1), Field::Unsigned(4), Field::Unsigned(0), Field::String(vec![0; 16])];
    let wraps = Dump { name: "CMSk-TYPE".to_owned(), encoding: 0, fields: Fields::from(wraps) };
    assert!(load(&server, "copy", &wraps).is_err());
}

/// A replica that runs what a primary replicates has the same values, also in the middle of a command.
#[test]
fn replicas_have_the_same_values() {
    for pauses_after in [None, Some(1), Some(64)] {
        let (primary, replica) = (FakeServer::default(), FakeServer::replica());
        primary.line("TOPK.RESERVE t 5 4 3 0.9").unwrap();
        primary.line("CMS.INITBYPROB c 0.1 0.1").unwrap();
        primary.pauses_after.set(pauses_after);
        for round in 0..200 {
            let item = |n: u32| format!("item{}", (round * 7 + n * n) % 23);
            let items: Vec<String> = (0..100).map(item).collect();
            primary.line(&format!("TOPK.ADD t {}", items.join(" "))).unwrap();
            let pairs: Vec<String> = items.iter().map(|item| format!("{item} {}", round % 40)).collect();
            primary.line(&format!("TOPK.INCRBY t {}", pairs.join(" "))).unwrap();
            primary.line(&format!("CMS.INCRBY c {}", pairs.join(" "))).unwrap();
        }
        replica.obey(&primary.replicated.take());
        for key in ["t", "c"] {
            assert_eq!(save(&replica, key), save(&primary, key), "{pauses_after:?}");
        }
    }
}

#[test]
fn what_failed_is_not_replicated() {
    let server = FakeServer::default();
    server.line("CMS.INITBYDIM c 3 3").unwrap();
    server.line("TOPK.RESERVE t 2").unwrap();
    server.replicated.take();
    for line in [
        "CMS.INITBYDIM c 3 3",
        "CMS.INCRBY c a 1 b -1",
        "CMS.MERGE c 1 c WEIGHTS x",
        "TOPK.RESERVE t 2",
        "TOPK.ADD none a",
        "TOPK.INCRBY t a 1 b 100001 c 1",
    ] {
        server.text(line);
        assert!(server.replicated.borrow().is_empty(), "{line}");
    }
    assert_eq!(server.line("TOPK.COUNT t a c"), Ok(Reply::Counts(vec![0, 0], None)));
    assert_eq!(server.line("CMS.QUERY c a"), Ok(Reply::Counts(vec![0], None)));
}

/// A RedisBloom primary sends the whole command, although it stops at a bad increment.
#[test]
fn replicas_stop_where_redisbloom_does() {
    let replica = FakeServer::replica();
    replica.line("TOPK.RESERVE t 2").unwrap();
    assert_eq!(replica.line("TOPK.INCRBY t a 1 b 100001 c 1"), Ok(Reply::Items(vec![None])));
    assert_eq!(replica.line("TOPK.COUNT t a b c"), Ok(Reply::Counts(vec![1, 0, 0], None)));
}

#[test]
fn sizes_are_limited() {
    let server = FakeServer::default();
    server.memory.set(Some(4000));
    let too_large = "CMS: Insufficient memory to create the key";
    assert_eq!(server.text("CMS.INITBYDIM a 1001 1"), too_large);
    assert_eq!(server.text("CMS.INITBYPROB a 0.001 0.01"), too_large);
    assert_eq!(server.text("CMS.INITBYDIM a 1000 1"), "Ok");
    assert_eq!(server.text("TOPK.RESERVE b 100"), "ERR Insufficient memory to create topk data structure");
    assert_eq!(server.text("TOPK.RESERVE b 10"), "Ok");
}

/// A sketch in which an item has more cells than are found at once.
#[test]
fn a_deep_sketch_counts() {
    let server = FakeServer::default();
    server.line("CMS.INITBYDIM c 2 1000").unwrap();
    assert_eq!(
        server.line("CMS.INCRBY c a 3 b 4"),
        Ok(Reply::Counts(vec![3, 4], Some("CMS: INCRBY overflow")))
    );
    assert_eq!(server.line("CMS.QUERY c a b"), Ok(Reply::Counts(vec![3, 4], None)));
    server.line("TOPK.RESERVE t 2 2 1000 1").unwrap();
    server.line("TOPK.INCRBY t a 3 b 7").unwrap();
    assert_eq!(server.line("TOPK.COUNT t a b"), Ok(Reply::Counts(vec![3, 7], None)));
}

/// Hashing a long item for each of many rows, or drawing as often, would block the server.
#[test]
fn an_item_that_takes_too_long_is_refused() {
    let server = FakeServer::default();
    server.line("CMS.INITBYDIM c 1 20000").unwrap();
    server.line("TOPK.RESERVE t 2 1 20000 0.99999").unwrap();
    let (item, most) = ("x".repeat(14_000), (1u64 << 27) / 20_000 - 72);
    let refused = format!(
        "ERR an item takes too long in a sketch with 20000 rows. Its bytes, and with TOPK.INCRBY 12 times its \
         increment, may be {most} together"
    );
    for line in [
        "CMS.INCRBY c a 1 {} 1",
        "CMS.QUERY c a {}",
        "TOPK.ADD t a {}",
        "TOPK.COUNT t {}",
        "TOPK.INCRBY t a 100000",
    ] {
        assert_eq!(server.text(&line.replace("{}", &item)), refused);
        server.text(&line.replace("{}", &item[..most as usize - 12]).replace("100000", "500"));
    }
    assert_eq!(server.line("CMS.QUERY c a"), Ok(Reply::Counts(vec![2], None)), "only what wasn't refused");
    let too_deep = "ERR any item takes too long in a sketch with 2000000 rows";
    assert_eq!(server.text("CMS.INITBYDIM deep 1 2000000"), too_deep);
    assert_eq!(server.text("TOPK.RESERVE deep 2 1 2000000 0.9"), too_deep);
    server.obeys.set(true);
    server.line("CMS.INITBYDIM deep 1 2000000").unwrap();
    server.obeys.set(false);
    assert_eq!(server.text("CMS.QUERY deep "), too_deep);
    server.obeys.set(true);
    assert_ne!(server.text(&format!("CMS.INCRBY c {item} 1")), refused);
}

#[test]
fn merges_add_with_weights() {
    [false, true].into_iter().for_each(merge_with_weights);
}

fn merge_with_weights(background: bool) {
    let server = FakeServer::default();
    server.goes_to_background.set(background);
    for key in ["a", "b", "sum"] {
        server.line(&format!("CMS.INITBYDIM {key} 5000 3")).unwrap();
    }
    server.workers.set(2);
    server.line("CMS.INCRBY a x 10 y 3").unwrap();
    server.line("CMS.INCRBY b x 1 z 4294967295").unwrap();
    assert_eq!(server.text("CMS.MERGE sum 2 a b WEIGHTS 3 -1"), "CMS: MERGE overflow");
    assert_eq!(server.text("CMS.MERGE sum 2 a b WEIGHTS 3 2"), "CMS: MERGE overflow");
    assert_eq!(
        server.text("CMS.MERGE sum 2 a a WEIGHTS 9223372036854775807 -9223372036854775807"),
        "CMS: MERGE overflow"
    );
    assert_eq!(server.text("CMS.QUERY sum x y z"), "Counts([0, 0, 0], None)");
    assert_eq!(server.text("CMS.MERGE sum 2 a b"), "Ok");
    assert_eq!(server.text("CMS.MERGE sum 3 sum a b WEIGHTS 2 -1 -1"), "Ok");
    assert_eq!(server.text("CMS.QUERY sum x y z"), "Counts([11, 3, 4294967295], None)");
    server.line("CMS.INCRBY a z 1").unwrap();
    assert_eq!(server.text("CMS.QUERY sum x y z"), "Counts([11, 3, 4294967295], None)");
    let Ok(Reply::Map(info)) = server.line("CMS.INFO sum") else { panic!() };
    assert_eq!(info.last(), Some(&("count", Reply::Integer(10 + 3 + 1 + 4_294_967_295))));
    assert_eq!(server.worked_in_background.get(), background);
}
