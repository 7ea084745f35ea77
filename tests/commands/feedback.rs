//! What BF.STATS says about the use of a filter: tests by answer, adds, deletes, what BF.FEEDBACK reported, and the
//! resulting advice.

use crate::support::fake_server::FakeServer;
use crate::support::golden;
use bloomery_commands::Reply;
use bloomery_commands::config::Settings;

fn field(server: &FakeServer, key: &str, name: &str) -> Reply {
    let Ok(Reply::Map(fields)) = server.line(&format!("BF.STATS {key}")) else { panic!("{key}") };
    fields.into_iter().find(|(field, _)| *field == name).unwrap_or_else(|| panic!("{name}")).1
}

fn number(server: &FakeServer, key: &str, name: &str) -> i64 {
    let Reply::Integer(number) = field(server, key, name) else { panic!("{name}") };
    number
}

/// The numbers of tests answered yes, tests answered no, adds and deletes.
fn usage(server: &FakeServer, key: &str) -> [i64; 4] {
    ["Tests answered yes", "Tests answered no", "Adds", "Deletes"].map(|name| number(server, key, name))
}

/// Checked answers, false answers, the share of false answers, and the error rate: over a minute, an hour and the
/// filter's lifetime.
fn feedback(server: &FakeServer, key: &str) -> [Vec<Reply>; 3] {
    let Reply::Map(spans) = field(server, key, "Feedback") else { panic!() };
    assert_eq!(spans.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["Minute", "Hour", "Life"]);
    let figures = spans.into_iter().map(|(_, span)| match span {
        Reply::Map(figures) => figures.into_iter().map(|(_, figure)| figure).collect(),
        _ => panic!(),
    });
    figures.collect::<Vec<Vec<Reply>>>().try_into().expect("three")
}

/// The lines of advice, each only up to its colon.
fn advice(server: &FakeServer, key: &str) -> Vec<String> {
    let Reply::Array(lines) = field(server, key, "Advice") else { panic!() };
    let line = |line| match line {
        Reply::Bulk(line) => String::from_utf8(line).expect("text"),
        _ => panic!(),
    };
    lines.into_iter().map(|reply| line(reply).split(':').next().unwrap_or_default().to_owned()).collect()
}

fn lines(server: &FakeServer, lines: &[&str]) {
    for line in lines {
        server.line(line).unwrap_or_else(|why| panic!("{line}: {why}"));
    }
}

fn run(server: &FakeServer, words: &[&[u8]]) {
    server.run(words).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn every_command_that_tests_is_counted() {
    for workers in [0, 2] {
        for kind in [
            "BF.RESERVE k 0.001 1000",
            "BF.RESERVE k 0.001 1000 WINDOW 4",
            "BF.RESERVE k 0.001 1000 COUNTING",
        ] {
            let server = FakeServer::default();
            server.workers.set(workers);
            // If there are workers, BF.BULKTEST answers from another thread.
            server.settings.set(Settings {
                offload_min_items: if workers > 0 { 1 } else { 1 << 20 },
                ..Settings::DEFAULT
            });
            lines(&server, &[kind, "BF.MADD k a b c"]);
            assert_eq!(usage(&server, "k"), [0, 0, 3, 0], "{kind}");
            lines(&server, &["BF.EXISTS k a", "BF.EXISTS k x", "BF.TEST k b", "BF.TEST k y"]);
            assert_eq!(usage(&server, "k"), [2, 2, 3, 0], "{kind}");
            lines(&server, &["BF.MEXISTS k a b x y z", "BF.MEXISTS k c w"]);
            assert_eq!(usage(&server, "k"), [5, 6, 3, 0], "{kind}");
            run(&server, &[b"BF.BULKTEST", b"k", b"FIXED", b"1", b"abcdefgh"]);
            run(&server, &[b"BF.BULKTEST", b"k", b"FIXED", b"1", b"ax", b"COUNT"]);
            assert_eq!(usage(&server, "k"), [9, 12, 3, 0], "{kind}");
            // Commands that ask for numbers about the filter aren't tests.
            lines(&server, &["BF.CARD k", "BF.INFO k", "BF.DEBUG k"]);
            assert_eq!(usage(&server, "k"), [9, 12, 3, 0], "{kind}");
        }
    }
}

#[test]
fn adds_count_the_items_that_were_not_refused() {
    let server = FakeServer::default();
    server.workers.set(2);
    lines(
        &server,
        &["BF.RESERVE k 0.01 1000 SHARDS 4", "BF.ADD k a", "BF.ADD k a", "BF.ADDNX k a", "BF.ADDNX k b"],
    );
    assert_eq!(usage(&server, "k"), [0, 0, 4, 0]);
    lines(&server, &["BF.INSERT k ITEMS c d", "BF.MADD k c d e"]);
    run(&server, &[b"BF.BULKADD", b"k", b"FIXED", b"1", b"fgh"]);
    assert_eq!(usage(&server, "k"), [0, 0, 12, 0]);
    // These items are divided among threads, by shard.
    let blob: Vec<u8> = (0..10_000u32).flat_map(u32::to_le_bytes).collect();
    lines(&server, &["BF.RESERVE large 0.01 20000 SHARDS 4"]);
    run(&server, &[b"BF.BULKADD", b"large", b"FIXED", b"4", &blob]);
    assert_eq!(usage(&server, "large"), [0, 0, 10_000, 0]);

    lines(&server, &["BF.RESERVE tight 0.000001 2 NONSCALING", "BF.MADD tight a b c d"]);
    assert_eq!(usage(&server, "tight"), [0, 0, 2, 0]);
    assert!(server.line("BF.ADD tight e").is_err());
    assert!(server.run(&[b"BF.BULKADD", b"tight", b"FIXED", b"1", b"abxy"]).is_err());
    assert_eq!(usage(&server, "tight"), [0, 0, 4, 0]);
}

#[test]
fn deletes_count_the_items_that_were_there() {
    let server = FakeServer::default();
    lines(&server, &["BF.RESERVE k 0.0001 1000 COUNTING", "BF.MADD k a b c"]);
    lines(&server, &["BF.DEL k a", "BF.DEL k a", "BF.MDEL k b c d"]);
    assert_eq!(usage(&server, "k"), [0, 0, 3, 3]);
}

#[test]
fn a_copy_begins_anew_and_a_cleared_filter_goes_on() {
    let server = FakeServer::default();
    lines(&server, &["BF.ADD k a", "BF.EXISTS k a", "BF.CLEAR k"]);
    assert_eq!(usage(&server, "k"), [1, 0, 1, 0]);
    server.put("copy", server.copy("k"));
    assert_eq!(usage(&server, "copy"), [0, 0, 0, 0]);
}

#[test]
fn other_systems_filters_are_counted_too() {
    for (name, recipe) in golden::FOREIGN {
        let server = FakeServer::default();
        server.put("k", recipe());
        lines(&server, &["BF.MADD k 17 18", "BF.ADD k 19"]);
        lines(&server, &["BF.EXISTS k 17", "BF.MEXISTS k 18 19"]);
        run(&server, &[b"BF.BULKTEST", b"k", b"FIXED", b"2", b"1718"]);
        assert_eq!(usage(&server, "k"), [5, 0, 3, 0], "{name}");
        lines(&server, &["BF.FEEDBACK k 4 1"]);
        let [.., life] = feedback(&server, "k");
        assert_eq!(life[..3], [Reply::Integer(4), Reply::Integer(1), Reply::Double(0.25)], "{name}");
    }
}

#[test]
fn feedback_gives_the_error_rate_over_a_minute_an_hour_and_life() {
    let server = FakeServer::default();
    server.now_ms.set(1_000_000_000);
    lines(&server, &["BF.RESERVE k 0.01 100000"]);
    assert!(
        feedback(&server, "k")
            .iter()
            .all(|span| { *span == [Reply::Integer(0), Reply::Integer(0), Reply::Null, Reply::Null] })
    );
    // Test ten present items and ninety absent ones, and report half of the yes answers as false.
    lines(&server, &["BF.MADD k 0 1 2 3 4 5 6 7 8 9"]);
    let test = || (0..100).for_each(|item| lines(&server, &[&format!("BF.EXISTS k {item}")]));
    test();
    lines(&server, &["BF.FEEDBACK k 10 5"]);
    let rate = 5.0 / 95.0;
    let close =
        |reply: &Reply, rate: f64| matches!(reply, Reply::Double(found) if (found / rate - 1.0).abs() < 1e-4);
    for span in feedback(&server, "k") {
        assert_eq!(span[..3], [Reply::Integer(10), Reply::Integer(5), Reply::Double(0.5)]);
        assert!(close(&span[3], rate), "{:?}", span[3]);
    }
    // Two minutes later, no answers are reported as false.
    server.now_ms.set(server.now_ms.get() + 120_000);
    test();
    lines(&server, &["BF.FEEDBACK k 10 0"]);
    let [minute, hour, life] = feedback(&server, "k");
    assert_eq!(minute, [Reply::Integer(10), Reply::Integer(0), Reply::Double(0.0), Reply::Double(0.0)]);
    assert!(close(&hour[3], 5.0 / 185.0) && hour == life);
    // Two hours later, the last hour has no reports.
    server.now_ms.set(server.now_ms.get() + 7_200_000);
    let [minute, hour, life] = feedback(&server, "k");
    assert!(minute == hour && minute[0] == Reply::Integer(0) && minute[3] == Reply::Null);
    assert_eq!(life[0], Reply::Integer(20));
}

#[test]
fn feedback_is_refused_with_what_would_be_right() {
    let server = FakeServer::default();
    lines(&server, &["BF.ADD k a", "BF.EXISTS k a"]);
    for (line, why) in [
        ("BF.FEEDBACK k x 1", "ERR checked expects the number of answers \"yes\" that were checked"),
        ("BF.FEEDBACK k -1 0", "ERR checked expects the number of answers \"yes\" that were checked"),
        (
            "BF.FEEDBACK k 10 11",
            "ERR false expects the number of those that were false, at most the number checked",
        ),
        (
            "BF.FEEDBACK k 10 x",
            "ERR false expects the number of those that were false, at most the number checked",
        ),
        ("BF.FEEDBACK nothing 1 1", "ERR not found"),
    ] {
        assert_eq!(server.line(line).unwrap_err().to_string(), why, "{line}");
    }
    server.line("CF.ADD cuckoo a").unwrap();
    assert!(server.line("BF.FEEDBACK cuckoo 1 1").unwrap_err().to_string().starts_with("WRONGTYPE"));
    assert_eq!(feedback(&server, "k")[2][0], Reply::Integer(0));
}

#[test]
fn feedback_changes_nothing_that_anybody_else_sees() {
    let server = FakeServer::default();
    server.line("BF.ADD k a").unwrap();
    server.take_replicated();
    server.events.borrow_mut().clear();
    lines(&server, &["BF.EXISTS k a", "BF.FEEDBACK k 1 0"]);
    assert!(server.take_replicated().is_empty() && server.events.borrow().is_empty());
}

fn add(server: &FakeServer, key: &str, count: usize) {
    let blob: Vec<u8> = (0..count as u64).flat_map(u64::to_le_bytes).collect();
    run(server, &[b"BF.BULKADD", key.as_bytes(), b"FIXED", b"8", &blob]);
}

#[test]
fn a_filter_that_is_well_gets_no_advice() {
    for kind in ["EXPANSION 2", "NONSCALING", "COUNTING", "WINDOW 4", "NONSCALING ONFULL SATURATE"] {
        let server = FakeServer::default();
        lines(&server, &[&format!("BF.RESERVE k 0.01 10000 {kind}")]);
        assert!(advice(&server, "k").is_empty(), "{kind}");
        add(&server, "k", 9_900);
        assert!(advice(&server, "k").is_empty(), "{kind}: {:?}", field(&server, "k", "Advice"));
    }
    // Growing a few times is normal for a chain.
    let server = FakeServer::default();
    lines(&server, &["BF.RESERVE k 0.01 1000"]);
    add(&server, "k", 20_000);
    assert!(advice(&server, "k").is_empty());
}

#[test]
fn advice_on_what_is_wrong() {
    for (options, items, expected) in [
        ("NONSCALING ONFULL SATURATE", 12_000, "over capacity"),
        ("NONSCALING", 10_000, "full"),
        ("COUNTING NONSCALING", 10_000, "full"),
        ("WINDOW 2", 12_000, "over capacity"),
        ("WINDOW 2 ONFULL ERROR", 10_000, "full"),
        ("EXPANSION 1 LAYOUT CLASSIC", 85_000, "many layers"),
    ] {
        let server = FakeServer::default();
        lines(&server, &[&format!("BF.RESERVE k 0.01 10000 {options}")]);
        // Try a tenth more items, because a few test positive before they are added.
        for from in (0..items * 11 / 10).step_by(1000) {
            let blob: Vec<u8> = (from..from + 1000).flat_map(|item| (item as u64).to_le_bytes()).collect();
            let _ = server.run(&[b"BF.BULKADD", b"k", b"FIXED", b"8", &blob]);
        }
        assert_eq!(advice(&server, "k"), [expected], "{options}");
    }
}

#[test]
fn advice_on_counters_that_saturate() {
    let server = FakeServer::default();
    lines(&server, &["BF.RESERVE k 0.01 1000 COUNTING 4"]);
    (0..20).for_each(|_| lines(&server, &["BF.ADD k a"]));
    assert_eq!(advice(&server, "k"), ["saturating"]);
    lines(&server, &["BF.RESERVE wide 0.01 1000 COUNTING 8"]);
    (0..20).for_each(|_| lines(&server, &["BF.ADD wide a"]));
    assert!(advice(&server, "wide").is_empty());
}

#[test]
fn advice_on_a_union_that_is_too_full() {
    let server = FakeServer::default();
    lines(&server, &["BF.RESERVE a 0.01 10000 NONSCALING SEED 1", "BF.RESERVE b 0.01 10000 LIKE a"]);
    add(&server, "a", 9_000);
    let blob: Vec<u8> = (20_000..29_000u64).flat_map(u64::to_le_bytes).collect();
    run(&server, &[b"BF.BULKADD", b"b", b"FIXED", b"8", &blob]);
    lines(&server, &["BF.MERGE a b"]);
    assert_eq!(advice(&server, "a"), ["full"]);
}

#[test]
fn advice_on_an_observed_rate_far_above_the_promise() {
    let server = FakeServer::default();
    server.now_ms.set(1_000_000_000);
    lines(&server, &["BF.RESERVE k 0.01 10000"]);
    add(&server, "k", 1000);
    let test = |count: u64| {
        let blob: Vec<u8> = (0..count).flat_map(u64::to_le_bytes).collect();
        run(&server, &[b"BF.BULKTEST", b"k", b"FIXED", b"8", &blob]);
    };
    test(2000);
    // According to the reports, 6% of the absent items test positive. But ten false answers are too few to prove
    // anything.
    lines(&server, &["BF.FEEDBACK k 160 10"]);
    assert!(advice(&server, "k").is_empty());
    lines(&server, &["BF.FEEDBACK k 840 55"]);
    assert_eq!(advice(&server, "k"), ["observed error rate far above the promise"]);
    // After more than an hour, the reports no longer count.
    server.now_ms.set(server.now_ms.get() + 2 * 3_600_000);
    assert!(advice(&server, "k").is_empty());
}

/// The filter is for 10,000 items and holds 6,000. Several times as many answers are false as this fill accounts for,
/// but not far more than the promised error rate allows.
#[test]
fn advice_on_an_observed_rate_that_the_cells_do_not_explain() {
    let server = FakeServer::default();
    server.now_ms.set(1_000_000_000);
    lines(&server, &["BF.RESERVE k 0.1 10000 NONSCALING", "BF.RESERVE window 0.1 10000 WINDOW 2"]);
    for key in ["k", "window"] {
        add(&server, key, 6000);
        let blob: Vec<u8> = (0..8000u64).flat_map(u64::to_le_bytes).collect();
        run(&server, &[b"BF.BULKTEST", key.as_bytes(), b"FIXED", b"8", &blob]);
    }
    let Reply::Double(explained) = field(&server, "k", "Error rate now") else { panic!() };
    let wrong = |times: f64| (times * explained * 2000.0) as u64;
    assert!((40..80).contains(&wrong(1.0)), "{explained}");
    lines(&server, &[&format!("BF.FEEDBACK k 6060 {}", wrong(1.5))]);
    assert!(advice(&server, "k").is_empty(), "an accident");
    lines(&server, &[&format!("BF.FEEDBACK k 200 {}", wrong(2.0))]);
    assert_eq!(advice(&server, "k"), ["observed error rate above what the cells explain"]);
    // A window may have been fuller earlier in the hour, so its error rate may have been as high as promised.
    lines(&server, &[&format!("BF.FEEDBACK window 6060 {}", wrong(3.0))]);
    assert!(advice(&server, "window").is_empty());
}

#[test]
fn a_filter_that_is_rebuilt_counts_once_and_its_successor_anew() {
    let server = FakeServer::default();
    lines(&server, &["BF.RESERVE k 0.001 100", "BF.MADD k a b", "BF.REBUILD k BEGIN"]);
    lines(&server, &["BF.ADD k c", "BF.ADDNX k c", "BF.MADD k d e", "BF.REBUILD k ADD a b"]);
    run(&server, &[b"BF.BULKADD", b"k", b"FIXED", b"1", b"fg"]);
    lines(&server, &["BF.EXISTS k a", "BF.MEXISTS k x y", "BF.FEEDBACK k 1 0"]);
    run(&server, &[b"BF.BULKTEST", b"k", b"FIXED", b"1", b"az"]);
    assert_eq!(usage(&server, "k"), [2, 3, 8, 0]);
    assert_eq!(feedback(&server, "k")[2][0], Reply::Integer(1));
    lines(&server, &["BF.REBUILD k COMMIT", "BF.EXISTS k a"]);
    assert_eq!(usage(&server, "k"), [1, 0, 0, 0]);
    assert_eq!(feedback(&server, "k")[2][0], Reply::Integer(0));
}

#[test]
fn to_look_at_a_filter_costs_it_no_memory() {
    let server = FakeServer::default();
    lines(&server, &["BF.RESERVE k 0.01 100"]);
    let idle = number(&server, "k", "Memory");
    assert_eq!([number(&server, "k", "Memory"), number(&server, "k", "Size")], [idle, idle]);
    lines(&server, &["BF.EXISTS k a"]);
    assert!(number(&server, "k", "Memory") > idle && number(&server, "k", "Size") == idle);
}
