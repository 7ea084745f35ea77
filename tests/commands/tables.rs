//! LAYOUT QUOTIENT in commands: what tables are combined with, and what their memory is asked for.

use super::algebra::{LIKE, NO, OK, TABLES, YES, field};
use super::pair::{Pair, add, dumps, found, must_survive_the_wire};
use crate::support::fake_server::FakeServer;
use bloomery_commands::Reply;

/// BF.MERGE of tables of fixed size either forms the whole union or changes nothing, whether it runs on the main thread
/// or in the background.
#[test]
fn tables_without_room_for_the_union_stay_as_they_are() {
    for options in TABLES {
        for background in [false, true] {
            let pair = Pair::new();
            let server = &pair.primary;
            server.goes_to_background.set(background);
            server.line(&format!("BF.RESERVE a 1e-9 200 {options} SEED 7")).unwrap();
            for (key, count) in [("a", 120), ("b", 80), ("c", 81), ("d", 1)] {
                let _ = server.line(&format!("BF.RESERVE {key} 1e-9 200 LIKE a"));
                add(server, key, key, count);
            }
            pair.follow();
            server.events.take();
            let before = dumps(server);
            let refusal = "ERR the union does not fit into a filter for 200 items. Nothing was changed. Create a larger filter, or one \
                           that may grow";
            for line in ["BF.MERGE a c", "BF.MERGE a b d", "BF.MERGE new a c", "BF.MERGE c a"] {
                assert_eq!(server.text(line), refusal, "{options} {line}");
                assert_eq!((server.take_replicated(), server.events.take()), (Vec::new(), Vec::new()));
                assert!(dumps(server) == before, "{options} {line}");
            }
            assert_eq!(server.line("BF.MERGE a b"), OK);
            assert_eq!([found(server, "a", "a", 120), found(server, "a", "b", 80)], [120, 80]);
            assert_eq!(server.line("BF.CARD a"), Ok(Reply::Integer(200)));
            assert_eq!(server.text("BF.ADD a more"), "ERR non scaling filter is full");
            if options.starts_with("COUNTING") {
                assert_eq!(server.line("BF.MERGE b d"), OK);
                assert_eq!(server.line("BF.MERGE d b"), OK);
                let counts = ["d0", "b0"].map(|item| server.line(&format!("BF.COUNT d {item}")));
                assert_eq!(counts, [Ok(Reply::Integer(2)), Ok(Reply::Integer(1))]);
                (0..2).for_each(|_| assert_eq!(server.line("BF.DEL d d0"), YES));
                assert_eq!(server.line("BF.DEL d d0"), NO);
            }
            pair.follow();
        }
    }
}

/// Tables are combined only with tables of the same cells, and windows of the same number of generations.
#[test]
fn tables_are_combined_with_tables() {
    let server = FakeServer::default();
    for (key, options) in [
        ("table", "NONSCALING LAYOUT QUOTIENT"),
        ("scaling", "EXPANSION 2 LAYOUT QUOTIENT"),
        ("small", "LAYOUT QUOTIENT"),
        ("counting", "COUNTING"),
        ("bits", "NONSCALING"),
        ("chain", "EXPANSION 2"),
        ("window", "WINDOW 3 LAYOUT QUOTIENT"),
        ("twin", "WINDOW 3 LAYOUT QUOTIENT ONFULL ERROR"),
        ("longer", "WINDOW 4 LAYOUT QUOTIENT"),
    ] {
        let (rate, capacity) = if key == "small" { (0.001, 2) } else { (0.01, 200) };
        server.line(&format!("BF.RESERVE {key} {rate} {capacity} {options} SEED 1")).unwrap();
        add(&server, key, key, 3);
    }
    let before = dumps(&server);
    for (to, from) in [("table", "bits"), ("bits", "table"), ("chain", "table"), ("counting", "bits")] {
        let refusal = format!(
            "ERR '{from}' or the destination is static, or only one of them has LAYOUT QUOTIENT, so they cannot be \
             combined. BF.REBUILD moves a filter into another layout"
        );
        assert_eq!(server.text(&format!("BF.MERGE {to} {from}")), refusal);
    }
    for (to, from, what) in [("table", "counting", "cell width"), ("window", "longer", "kind")] {
        let refusal = format!("ERR the filter in '{from}' has a different {what}; {LIKE}");
        assert_eq!(server.text(&format!("BF.MERGE {to} {from}")), refusal);
    }
    assert!(dumps(&server) == before);
    for (to, from) in [("table", "scaling"), ("small", "table"), ("window", "twin"), ("twin", "window")] {
        assert_eq!(server.line(&format!("BF.MERGE {to} {from}")), OK, "{to} {from}");
        assert_eq!(found(&server, to, from, 3), 3);
    }
    assert_eq!(server.line("BF.EQUAL table small"), NO);
    assert_eq!(server.line("BF.INTERSECT new small scaling"), OK);
    assert_eq!(found(&server, "new", "scaling", 3), 3);
    assert_eq!(server.line("BF.EQUAL new scaling"), YES);
}

/// Tables of any size become one table, which is the newest layer, also in a filter that grows by layers.
#[test]
fn tables_of_grown_filters_become_one() {
    for layout in ["AUTO", "CLASSIC"] {
        let pair = Pair::new();
        let server = &pair.primary;
        server.line(&format!("BF.RESERVE young 0.001 1000 SEED 5 LAYOUT {layout}")).unwrap();
        add(server, "young", "y", 100);
        for (key, options, items) in
            [("few", "0.01 20", 90), ("many", "0.001 50", 2000), ("same", "0.01 20", 400)]
        {
            server.line(&format!("BF.RESERVE {key} {options} SEED 5")).unwrap();
            add(server, key, key, items);
            assert_eq!(field(server, key, "Number of filters"), Reply::Integer(2));
        }
        let has_all = || {
            let all = [("y", 100), ("few", 90), ("many", 2000), ("same", 400)];
            all.iter().all(|(prefix, items)| found(server, "young", prefix, *items) == *items)
        };
        // Both have full bits of one shape. Their union would exceed the error rate.
        assert_eq!(server.line("BF.MERGE same few"), OK);
        assert_eq!(field(server, "same", "Number of filters"), Reply::Integer(3));
        assert_eq!(server.line("BF.MERGE young same many few"), OK);
        let expected = Reply::Integer(5);
        assert_eq!(field(server, "young", "Number of filters"), expected, "four of bits and a table");
        assert!(has_all());
        pair.follow();
        let before = server.dump("young");
        assert_eq!(server.line("BF.MERGE young same many few"), OK, "a repetition changes nothing");
        assert!(server.dump("young") == before && server.take_replicated().is_empty());
        // The bits that were reserved are filled first.
        add(server, "young", "more", 3000);
        assert_eq!((field(server, "young", "Number of filters"), has_all()), (expected, true));
        let Reply::Array(layers) = field(server, "young", "Layers") else { panic!() };
        let is_full = |layer: &Reply| {
            let Reply::Map(layer) = layer else { panic!() };
            let has = |field, value: i64| layer.contains(&(field, Reply::Integer(value)));
            has("Capacity", 1000) && has("Number of items inserted", 1000)
        };
        assert!(layers.iter().any(is_full), "{layers:?}");
        // The table promises the rate of this filter, not that of its first source.
        let promised = |layer: &Reply| {
            let Reply::Map(layer) = layer else { panic!() };
            layer.contains(&("Error rate", Reply::Double(0.001 * 0.4)))
        };
        assert!(layers.last().is_some_and(promised), "{layers:?}");
        assert_eq!(found(server, "young", "more", 3000), 3000);
        assert!(found(server, "young", "stranger", 2000) < 60);
        pair.follow();
        must_survive_the_wire(server, "young");
        assert_eq!(server.line("BF.CLEAR young"), OK);
        assert_eq!(field(server, "young", "Number of filters"), Reply::Integer(1));
        pair.follow();
    }
}

/// A table that got smaller asks again before it grows.
#[test]
fn a_table_that_got_smaller_has_no_room_left_over() {
    const WINDOW: &str = "WINDOW 4 LAYOUT QUOTIENT";
    for (options, how) in [
        ("COUNTING", "BF.CLEAR k"),
        ("COUNTING", "BF.MDEL k"),
        ("COUNTING", "BF.INTERSECT k k few"),
        (WINDOW, "BF.CLEAR k"),
        (WINDOW, "BF.MDEL k"),
    ] {
        let pair = Pair::new();
        let server = &pair.primary;
        for key in ["k", "few"] {
            server.line(&format!("BF.RESERVE {key} 0.01 10 {options} SEED 5")).unwrap();
        }
        add(server, "k", "a", 20_000);
        add(server, "few", "a", 10);
        let items: String = (0..20_000).map(|item| format!(" a{item}")).collect();
        let line = if how == "BF.MDEL k" { format!("{how}{items}") } else { how.to_owned() };
        server.line(&line).unwrap();
        server.memory.set(Some(10_000));
        let text = server.text(&format!("BF.MADD k{items}"));
        assert!(text.contains("CannotGrow"), "{options} {how}");
        let Reply::Integer(bytes) = field(server, "k", "Size") else { panic!() };
        assert!(bytes < 60_000, "{options} {how}: {bytes}");
        pair.follow();
    }
}

/// A full table has room for what it has, also for a prefix that some of its own ones begin with.
#[test]
fn a_full_table_is_united_with_its_own_items() {
    for options in ["NONSCALING LAYOUT QUOTIENT", "WINDOW 4 LAYOUT QUOTIENT ONFULL ERROR"] {
        let server = FakeServer::default();
        server.line(&format!("BF.RESERVE full 1e-6 1000 {options} SEED 1")).unwrap();
        server
            .line(&format!("BF.RESERVE few 0.01 10 {} SEED 1", options.replace("NONSCALING ", "")))
            .unwrap();
        add(&server, "full", "i", 10);
        add(&server, "few", "i", 10);
        let more: String = (0..4000).map(|item| format!(" more{item}")).collect();
        assert!(server.text(&format!("BF.MADD full{more}")).contains("Full"), "{options}");
        assert_eq!(server.line("BF.MERGE full few"), OK, "{options}");
    }
}

/// A window near its limit goes on as before: the cells of expired items are used again.
#[test]
fn a_steady_window_needs_no_more_memory() {
    let server = FakeServer::default();
    server.line("BF.RESERVE w 0.01 100 WINDOW 2 LAYOUT QUOTIENT SEED 1").unwrap();
    let mut largest = 0;
    for turn in 0..20 {
        let added = server
            .text(&format!("BF.MADD w{}", (0..5000).map(|i| format!(" {turn}:{i}")).collect::<String>()));
        assert!(!added.contains("CannotGrow"), "{turn}");
        server.line("BF.ROTATE w").unwrap();
        let Reply::Integer(bytes) = field(&server, "w", "Size") else { panic!() };
        largest = largest.max(bytes as u64);
        server.memory.set((turn > 10).then_some(largest));
    }
}

/// The intersection of a table with a high error rate and one with a low one has the prefixes of the latter.
#[test]
fn an_intersection_is_asked_for_what_it_needs() {
    for background in [false, true] {
        let pair = Pair::new();
        let server = &pair.primary;
        server.goes_to_background.set(background);
        for (key, rate, items) in [("coarse", 0.9, 3000), ("fine", 1e-9, 100_000)] {
            server.line(&format!("BF.RESERVE {key} {rate} 0 LAYOUT QUOTIENT SEED 5")).unwrap();
            add(server, key, "c", items);
        }
        pair.follow();
        let before = dumps(server);
        for limit in [&server.memory, &server.left] {
            limit.set(Some(20_000));
            assert!(server.text("BF.INTERSECT new coarse fine").contains("Insufficient memory"));
            assert!(server.take_replicated().is_empty() && dumps(server) == before);
            limit.set(None);
        }
        assert_eq!(server.line("BF.INTERSECT new coarse fine"), OK);
        assert_eq!(found(server, "new", "c", 3000), 3000);
        let Reply::Integer(bytes) = field(server, "new", "Size") else { panic!() };
        assert!(bytes > 20_000, "{bytes}");
        pair.follow();
    }
}

/// A short prefix has several cells, but is one item.
#[test]
fn a_union_counts_items_and_not_cells() {
    let server = FakeServer::default();
    server.line("BF.RESERVE coarse 0.5 0 LAYOUT QUOTIENT SEED 5").unwrap();
    add(&server, "coarse", "c", 30_000);
    let Ok(Reply::Integer(card)) = server.line("BF.CARD coarse") else { panic!() };
    server.line(&format!("BF.RESERVE exact 0.5 {card} NONSCALING LAYOUT QUOTIENT SEED 5")).unwrap();
    server.line("BF.RESERVE scaling 0.01 10 LAYOUT QUOTIENT SEED 5").unwrap();
    for key in ["exact", "scaling"] {
        assert_eq!(server.line(&format!("BF.MERGE {key} coarse")), OK, "{key}");
        assert_eq!(server.line(&format!("BF.CARD {key}")), Ok(Reply::Integer(card)), "{key}");
        assert_eq!(found(&server, key, "c", 30_000), 30_000);
    }
}

/// Prefixes of a source with a high error rate are divided in a table that was reserved for many items.
#[test]
fn a_union_is_asked_for_what_it_needs() {
    const MOST: u64 = 40_000;
    for background in [false, true] {
        let pair = Pair::new();
        let server = &pair.primary;
        server.goes_to_background.set(background);
        server.line("BF.RESERVE coarse 0.9 0 LAYOUT QUOTIENT SEED 5").unwrap();
        add(server, "coarse", "c", 3000);
        for (key, capacity) in [("small", 10_000), ("large", 1_000_000), ("huge", 100_000_000)] {
            server.line(&format!("BF.RESERVE {key} 0.01 {capacity} LAYOUT QUOTIENT SEED 5")).unwrap();
        }
        pair.follow();
        let before = dumps(server);
        assert_eq!(
            server.text("BF.MERGE huge coarse"),
            "ERR the error rate of 'coarse' is too high for a destination of this size. Merge fewer filters at a time, \
             or reserve the destination with a smaller capacity: it grows"
        );
        let blob = server.dump("coarse");
        for limit in [&server.memory, &server.left] {
            limit.set(Some(MOST));
            let refused = server.text("BF.MERGE large coarse");
            assert!(refused.contains("Insufficient memory"), "{refused}");
            let refused = server.run(&[b"BF.MERGE", b"large", b"BLOB", &blob]).unwrap_err().to_string();
            assert!(refused.contains("Insufficient memory"), "{refused}");
            assert!(dumps(server) == before);
            limit.set(None);
        }
        server.left.set(Some(MOST));
        assert_eq!(server.line("BF.MERGE small coarse"), OK);
        server.left.set(None);
        assert_eq!(server.line("BF.MERGE large coarse"), OK);
        assert_eq!([found(server, "small", "c", 3000), found(server, "large", "c", 3000)], [3000; 2]);
        let Reply::Integer(bytes) = field(server, "large", "Size") else { panic!() };
        assert!(bytes > MOST as i64, "{bytes}");
        pair.follow();
    }
}

/// The cells of expired items are no part of a union.
#[test]
fn a_union_has_no_room_for_expired_items() {
    for background in [false, true] {
        let pair = Pair::new();
        let server = &pair.primary;
        server.goes_to_background.set(background);
        for (key, items) in [("d", 1000), ("s", 50_000)] {
            server.line(&format!("BF.RESERVE {key} 0.01 1 WINDOW 4 LAYOUT QUOTIENT SEED 5")).unwrap();
            add(server, key, key, items);
        }
        (0..4).for_each(|_| _ = server.line("BF.ROTATE s").unwrap());
        server.line("BF.ADD s last").unwrap();
        pair.follow();
        let size = || match field(server, "d", "Size") {
            Reply::Integer(bytes) => bytes as u64,
            other => panic!("{other:?}"),
        };
        let before = size();
        server.left.set(Some(10_000));
        assert_eq!(server.line("BF.MERGE d s"), OK);
        assert_eq!(server.line("BF.EXISTS d last"), YES);
        assert!(size() < before + 1000, "{before} {}", size());
        pair.follow();
    }
}

/// Deleting some parts of a divided prefix leaves cells, but no items.
#[test]
fn a_table_without_items_can_be_cleared() {
    for options in ["COUNTING", "WINDOW 4"] {
        let pair = Pair::new();
        let server = &pair.primary;
        for (key, capacity) in [("s", 1), ("d", 1_000_000)] {
            let line = format!("BF.RESERVE {key} 0.5 {capacity} {options} LAYOUT QUOTIENT SEED 5");
            server.line(&line).unwrap();
        }
        add(server, "s", "s", 3);
        assert_eq!(server.line("BF.MERGE d s"), OK);
        (0..3).for_each(|item| _ = server.line(&format!("BF.DEL d s{item}")).unwrap());
        assert_eq!(server.line("BF.CARD d"), Ok(Reply::Integer(0)));
        assert!(found(server, "d", "probe", 1000) > 0);
        assert_eq!(server.line("BF.CLEAR d"), OK);
        assert_eq!(found(server, "d", "probe", 1000), 0, "{options}");
        pair.follow();
        assert_eq!(found(&pair.replica, "d", "probe", 1000), 0, "{options}");
    }
}

/// Its cells would fill any number of leaves.
#[test]
fn a_table_with_a_high_error_rate_says_why_it_does_not_grow() {
    let server = FakeServer::default();
    for source in 0..20 {
        server.line(&format!("BF.RESERVE {source} 0.1 1000 LAYOUT QUOTIENT SEED 1")).unwrap();
        add(&server, &source.to_string(), &format!("{source}:"), 1600);
        assert_eq!(server.line(&format!("BF.MERGE all {source}")), OK);
    }
    let expected =
        "ERR merges of filters with high error rates have left no room in this table. Create a larger filter";
    let items = |from| (0..1000).map(|item| format!(" {from}:{item}")).collect::<String>();
    let mut told = (20..800).map(|from| server.text(&format!("BF.MADD all{}", items(from))));
    assert!(told.any(|text| text.contains("Saturated")));
    server.line("BF.RESERVE large 0.01 200000 LAYOUT QUOTIENT SEED 1").unwrap();
    add(&server, "large", "l", 200_000);
    assert_eq!(server.text("BF.MERGE all large"), expected);
    assert_eq!(server.line("BF.MERGE large all"), OK);
}
