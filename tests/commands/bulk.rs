//! BF.BULKADD and BF.BULKTEST without a server: replies, refusals, what is replicated, and whether the commands do the
//! same as BF.MADD and BF.MEXISTS, for every kind of filter, on one thread and on several.

use crate::support::fake_server::{Content, FakeServer};
use crate::support::golden;
use bloomery_commands::config::Settings;
use bloomery_commands::{Answer, CommandError, Reply};

/// Numbers of items: around a group of 64, around a task of 64 groups, and enough for the pool.
const SIZES: [usize; 9] = [0, 1, 63, 64, 65, 4095, 4096, 4097, 20_000];

/// Arguments of BF.RESERVE for each kind. The seed is fixed, so that filters can be compared.
const KINDS: &[&str] = &[
    "0.01 30000 NONSCALING SEED 1",
    "0.01 30000 NONSCALING HASH SIPHASH SEED 1",
    "0.0001 30000 NONSCALING LAYOUT CLASSIC SEED 1",
    "0.1 9000 ONFULL SATURATE SEED 1",
    "0.02 100 SEED 1",
    "0.02 3000 EXPANSION 1 TIGHTENING 0.5 HASH SIPHASH SEED 1",
    "0.01 30000 COUNTING 8 SEED 1",
    "0.01 30000 WINDOW 3 SEED 1",
    "0.01 30000 NONSCALING SHARDS 8 SEED 1",
    "0.01 30000 NONSCALING SHARDS 2 LAYOUT CLASSIC HASH SIPHASH SEED 1",
    "0.02 6000 SHARDS 4 SEED 1",
    "0.01 30000 COUNTING 4 SHARDS 4 SEED 1",
    "0.01 30000 WINDOW 3 SHARDS 16 SEED 1",
    "0.1 9000 ONFULL SATURATE SHARDS 1024 SEED 1",
    "0.01 30000 NONSCALING LAYOUT QUOTIENT SEED 1",
    "0.01 30000 COUNTING LAYOUT QUOTIENT HASH SIPHASH SEED 1",
    "0.02 3000 LAYOUT QUOTIENT SEED 1",
];

/// How items are separated in a blob.
#[derive(Clone, Copy, Debug)]
enum Form {
    Fixed,
    Prefixed,
}

impl Form {
    /// The item with this number. Fixed items all have the same length. Prefixed items differ in length, and number 0
    /// is empty.
    fn item(self, number: usize) -> Vec<u8> {
        let digits = format!("{number:011}");
        match self {
            Form::Fixed => digits.into_bytes(),
            Form::Prefixed if number == 0 => Vec::new(),
            Form::Prefixed => [digits.into_bytes(), vec![b'x'; number % 29]].concat(),
        }
    }

    /// The arguments after the key: the form, the width if it is fixed, and these items in one blob.
    fn arguments(self, items: &[Vec<u8>]) -> Vec<Vec<u8>> {
        match self {
            Form::Fixed => {
                let width = items.first().map_or(11, Vec::len);
                assert!(items.iter().all(|item| item.len() == width));
                vec![b"FIXED".to_vec(), width.to_string().into_bytes(), items.concat()]
            }
            Form::Prefixed => vec![b"PREFIXED".to_vec(), prefixed(items)],
        }
    }
}

fn prefixed(items: &[Vec<u8>]) -> Vec<u8> {
    let with_length = |item: &Vec<u8>| [&u32::try_from(item.len()).unwrap().to_le_bytes()[..], item].concat();
    items.iter().flat_map(with_length).collect()
}

/// `count` items. Many of them occur several times, near their first occurrence or far from it.
fn items(form: Form, count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|index| form.item(if index % 3 == 2 { index / 7 } else { index })).collect()
}

fn run(server: &FakeServer, words: &[&str], arguments: &[Vec<u8>]) -> Result<Reply, CommandError> {
    let words = words.iter().map(|word| word.as_bytes());
    server.run(&words.chain(arguments.iter().map(Vec::as_slice)).collect::<Vec<_>>())
}

fn text(reply: &Result<Reply, CommandError>) -> String {
    reply.as_ref().map_or_else(ToString::to_string, |reply| format!("{reply:?}"))
}

/// A server with `workers` threads in addition to the main thread, and a filter.
fn server(workers: usize, kind: &str) -> FakeServer {
    let server = FakeServer::default();
    server.workers.set(workers);
    server.line(&format!("BF.RESERVE k {kind}")).unwrap();
    server.take_replicated();
    server.events.take();
    server
}

/// The answers of BF.MADD or BF.MEXISTS as bits in the order of GETBIT, and the number of yes answers.
fn bits(reply: Result<Reply, CommandError>) -> (Vec<u8>, i64) {
    let Ok(Reply::Answers(answers)) = reply else { panic!("{reply:?}") };
    let mut bytes = vec![0; answers.answers.len().div_ceil(8)];
    let mut ones = 0;
    for (index, _) in answers.answers.iter().enumerate().filter(|(_, answer)| **answer == Answer::Yes) {
        bytes[index / 8] |= 0x80 >> (index % 8);
        ones += 1;
    }
    (bytes, ones)
}

/// The [`bits`] of a command's answers for the filter in `k`. Without items, the command isn't run, because the server
/// would refuse it.
fn bits_of(server: &FakeServer, command: &str, items: &[Vec<u8>]) -> (Vec<u8>, i64) {
    if items.is_empty() { (Vec::new(), 0) } else { bits(run(server, &[command, "k"], items)) }
}

/// Makes `replica` obey, and runs on it what `primary` has replicated.
fn obey(primary: &FakeServer, replica: &FakeServer) {
    replica.obeys.set(true);
    replica.obey(&primary.replicated.take());
}

// ---- the same as one item at a time ---------------------------------------------------------------------------------

#[test]
fn adds_are_those_of_madd_and_tests_those_of_mexists() {
    for kind in KINDS {
        for form in [Form::Fixed, Form::Prefixed] {
            for size in SIZES {
                let (added, asked) = (items(form, size), items(form, 2 * size));
                let plain = server(0, kind);
                let (_, new) = bits_of(&plain, "BF.MADD", &added);
                let (expected, ones) = bits_of(&plain, "BF.MEXISTS", &asked);
                for workers in [0, 3] {
                    let case = format!("{kind} {form:?} {size} {workers}");
                    let server = server(workers, kind);
                    let arguments = form.arguments(&added);
                    assert_eq!(
                        run(&server, &["BF.BULKADD", "k"], &arguments),
                        Ok(Reply::Integer(new)),
                        "{case}"
                    );
                    assert_eq!(server.dump("k"), plain.dump("k"), "{case}");
                    assert_eq!(server.replicated.borrow().len(), usize::from(size > 0), "{case}");
                    assert_eq!(server.events.take().len(), usize::from(size > 0), "{case}");

                    let mut arguments = form.arguments(&asked);
                    let bitmap = run(&server, &["BF.BULKTEST", "k"], &arguments);
                    assert_eq!(bitmap, Ok(Reply::Bulk(expected.clone())), "{case}");
                    arguments.push(b"count".to_vec());
                    let counted = run(&server, &["BF.BULKTEST", "k"], &arguments);
                    assert_eq!(counted, Ok(Reply::Integer(ones)), "{case}");
                    assert_eq!(server.dump("k"), plain.dump("k"), "{case}");

                    let replica = self::server(workers, kind);
                    obey(&server, &replica);
                    assert_eq!(replica.dump("k"), server.dump("k"), "{case}");
                }
            }
        }
    }
}

/// BF.BULKADD does the same as BF.MADD even if the filter already has content: older layers, generations and counters.
#[test]
fn blob_after_blob() {
    for kind in KINDS {
        let (plain, bulk) = (server(0, kind), server(3, kind));
        for round in 0..4 {
            let items: Vec<_> = (0..5000).map(|index| Form::Prefixed.item(index + round * 2500)).collect();
            let (_, new) = bits(run(&plain, &["BF.MADD", "k"], &items));
            let reply = run(&bulk, &["BF.BULKADD", "k", "PREFIXED"], &[prefixed(&items)]);
            assert_eq!(reply, Ok(Reply::Integer(new)), "{kind} {round}");
            assert_eq!(bulk.dump("k"), plain.dump("k"), "{kind} {round}");
            if kind.contains("WINDOW") {
                [&plain, &bulk].iter().for_each(|server| _ = server.line("BF.ROTATE k").unwrap());
            }
        }
    }
}

/// The blob has every item twice in a row, and is added five times. A lost update, or an item that two threads add,
/// would show as a different dump or count.
#[test]
fn parallel_adds_are_sequential_ones_bit_for_bit() {
    for kind in KINDS.iter().filter(|kind| kind.contains("30000") && kind.contains("SHARDS")) {
        let items: Vec<_> = (0..20_000).map(|index| Form::Fixed.item(index / 2)).collect();
        let arguments = Form::Fixed.arguments(&items);
        let sequential = server(0, kind);
        let new = run(&sequential, &["BF.BULKADD", "k"], &arguments).unwrap();
        for workers in [1, 2, 3, 7, 8] {
            let server = server(workers, kind);
            for round in 0..5 {
                let reply = run(&server, &["BF.BULKADD", "k"], &arguments).unwrap();
                let expected = if round == 0 { integer(&new) } else { 0 };
                assert_eq!(integer(&reply), expected, "{kind} {workers} {round}");
                if round == 0 {
                    assert_eq!(server.dump("k"), sequential.dump("k"), "{kind} {workers}");
                }
            }
        }
    }
}

fn integer(reply: &Reply) -> i64 {
    match reply {
        Reply::Integer(value) => *value,
        other => panic!("{other:?}"),
    }
}

/// In a window that rotates by the clock, both commands use the current time: expired generations aren't tested, and
/// get no adds.
#[test]
fn windows_go_by_the_clock() {
    for workers in [0, 3] {
        let server = server(workers, "0.0001 30000 WINDOW 2 EVERY 1000 SINCE 0 SHARDS 4 SEED 1");
        let test = |from: usize| {
            let items: Vec<_> = (from..from + 20_000).map(|index| Form::Fixed.item(index)).collect();
            let arguments = [Form::Fixed.arguments(&items), vec![b"COUNT".to_vec()]].concat();
            integer(&run(&server, &["BF.BULKTEST", "k"], &arguments).unwrap())
        };
        let add = |from: usize, count: usize| {
            let items: Vec<_> = (from..from + count).map(|index| Form::Fixed.item(index)).collect();
            integer(&run(&server, &["BF.BULKADD", "k"], &Form::Fixed.arguments(&items)).unwrap())
        };
        assert_eq!(add(0, 5000), 5000);
        server.now_ms.set(1500);
        assert_eq!(test(0), 5000);
        assert_eq!(add(3000, 5000), 3000); // 2000 of them are in the previous generation
        assert!(server.take_replicated()[1].starts_with("BF.ROTATE k AT 1"));
        server.now_ms.set(2500);
        assert_eq!(test(0), 5000, "the first generation is gone, and no write has dropped it yet");
        server.now_ms.set(3500);
        assert_eq!(test(0), 0);
    }
}

// ---- filters of other systems ---------------------------------------------------------------------------------------

/// Integers as decimal text, which the filters of all other systems accept as items.
fn numbers(range: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    range.map(|number| number.to_string().into_bytes()).collect()
}

#[test]
fn filters_of_other_systems() {
    for (name, make) in golden::FOREIGN {
        for (form, numbers) in [(Form::Fixed, numbers(10_000..30_000)), (Form::Prefixed, numbers(0..9000))] {
            for (size, workers) in [(1, 0), (65, 3), (4097, 0), (9000, 3)] {
                let case = format!("{name} {form:?} {size} {workers}");
                let (plain, bulk) = (FakeServer::default(), FakeServer::default());
                for server in [&plain, &bulk] {
                    server.workers.set(workers);
                    server.put("k", make());
                }
                let (added, asked) = (&numbers[..size.min(400)], &numbers[..size]);
                let Ok(Reply::Answers(answers)) = run(&plain, &["BF.MADD", "k"], added) else {
                    panic!("{case}")
                };
                let new = answers.answers.iter().filter(|answer| **answer == Answer::Yes).count() as i64;
                let reply = run(&bulk, &["BF.BULKADD", "k"], &form.arguments(added));
                match answers.error {
                    None => assert_eq!(reply, Ok(Reply::Integer(new)), "{case}"),
                    // The last answer is for the refused item.
                    Some(why) => assert_eq!(
                        text(&reply),
                        format!("{why}; {} of {} items were added", answers.answers.len() - 1, added.len()),
                        "{case}"
                    ),
                }
                assert_eq!(bulk.dump("k"), plain.dump("k"), "{case}");
                let (expected, ones) = bits(run(&plain, &["BF.MEXISTS", "k"], asked));
                let arguments = form.arguments(asked);
                assert_eq!(
                    run(&bulk, &["BF.BULKTEST", "k"], &arguments),
                    Ok(Reply::Bulk(expected)),
                    "{case}"
                );
                let arguments = [arguments, vec![b"COUNT".to_vec()]].concat();
                assert_eq!(run(&bulk, &["BF.BULKTEST", "k"], &arguments), Ok(Reply::Integer(ones)), "{case}");

                let replica = FakeServer::default();
                replica.put("k", make());
                obey(&bulk, &replica);
                assert_eq!(replica.dump("k"), bulk.dump("k"), "{case}");
            }
        }
    }
}

/// An item that the original system doesn't accept ends BF.BULKADD. Earlier items are added.
#[test]
fn an_item_that_the_original_cannot_have() {
    let server = FakeServer::default();
    let make = golden::FOREIGN.iter().find(|(name, _)| *name == "foreign-guava-utf16").expect("a recipe").1;
    server.put("k", make());
    let items = [b"ada".to_vec(), b"\xff".to_vec(), b"grace".to_vec()];
    let reply = run(&server, &["BF.BULKADD", "k", "PREFIXED"], &[prefixed(&items)]);
    assert_eq!(text(&reply), "ERR the items of this filter are text in UTF-8; 1 of 3 items were added");
    let sent = server.replicated.take();
    assert_eq!(sent, [[&b"BF.BULKADD"[..], b"k", b"PREFIXED", &prefixed(&items[..1])].map(<[u8]>::to_vec)]);
    assert_eq!(text(&run(&server, &["BF.BULKTEST", "k", "PREFIXED"], &[prefixed(&items)])), "Bulk([128])");
}

// ---- replies --------------------------------------------------------------------------------------------------------

#[test]
fn the_bitmap_is_in_the_order_of_getbit() {
    let server = server(0, "0.000001 100 SEED 1");
    assert_eq!(server.text("BF.BULKADD k FIXED 1 abc"), "Integer(3)");
    assert_eq!(server.text("BF.BULKADD k FIXED 1 abcd"), "Integer(1)");
    assert_eq!(server.text("BF.BULKTEST k FIXED 1 axxxxxxb"), format!("Bulk([{}])", 0b1000_0001));
    assert_eq!(
        server.text("BF.BULKTEST k FIXED 1 xbcxxxxxxxa"),
        format!("Bulk([{}, {}])", 0b0110_0000, 0b0010_0000)
    );
    assert_eq!(server.text("BF.BULKTEST k fixed 2 abcdab"), "Bulk([0])");
    assert_eq!(server.text("BF.BULKTEST k FIXED 1 xbcxxxxxxxa COUNT"), "Integer(3)");
}

#[test]
fn a_missing_key_is_created_by_an_add_and_holds_nothing_for_a_test() {
    let server = FakeServer::default();
    assert_eq!(server.text("BF.BULKTEST k FIXED 3 adabob"), "Bulk([0])");
    assert_eq!(server.text("BF.BULKTEST k FIXED 3 adabob COUNT"), "Integer(0)");
    assert_eq!(server.text("BF.BULKTEST k FIXED 1 abcdefghi"), "Bulk([0, 0])");
    assert!(server.keys.borrow().is_empty());
    assert_eq!(server.text("BF.BULKADD k FIXED 3 adabobada"), "Integer(2)");
    let sent = server.take_replicated();
    assert!(sent[0].starts_with("BF.RESERVE k 0.01 100 EXPANSION 2 "), "{sent:?}");
    assert_eq!(sent[1..], ["BF.BULKADD k FIXED 3 adabobada"]);
    assert_eq!(server.events.take(), [c"bf.reserve", c"bf.add"]);
    assert_eq!(server.text("BF.BULKTEST k FIXED 3 bobeveada"), "Bulk([160])");
    // BF.BULKADD creates the filter even without items.
    assert_eq!(server.text("BF.BULKADD other FIXED 3 "), "Integer(0)");
    assert_eq!(server.take_replicated().len(), 1);
    assert_eq!(server.events.take(), [c"bf.reserve"]);
}

/// With NOCREATE, a client that fills a filter with several commands gets an error if the filter is deleted in the
/// meantime.
#[test]
fn nocreate_refuses_a_missing_key_and_is_not_replicated() {
    let server = FakeServer::default();
    for form in ["FIXED 3 adabob", "PREFIXED ", "FIXED 3 "] {
        assert_eq!(server.text(&format!("BF.BULKADD k NOCREATE {form}")), "ERR not found");
    }
    assert!(server.keys.borrow().is_empty());
    assert_eq!(server.take_replicated(), [""; 0]);
    server.line("BF.RESERVE k 0.000001 3 NONSCALING SEED 1").unwrap();
    server.take_replicated();
    assert_eq!(server.text("BF.BULKADD k nocreate FIXED 3 adabob"), "Integer(2)");
    assert_eq!(server.take_replicated(), ["BF.BULKADD k FIXED 3 adabob"]);
    assert_eq!(
        server.text("BF.BULKADD k NOCREATE FIXED 3 evedan"),
        "ERR non scaling filter is full; 1 of 2 items were added"
    );
    assert_eq!(server.take_replicated(), ["BF.BULKADD k FIXED 3 eve"]);
    assert_eq!(
        server.text("BF.BULKADD k NOCREATE FIXED 3 ada more"),
        server.text("BF.BULKADD k FIXED 3 ada more")
    );
    assert!(
        server
            .text("BF.BULKADD k NOCREATE NOCREATE FIXED 3 ada")
            .starts_with("ERR syntax error: expected FIXED")
    );
}

#[test]
fn what_changed_nothing_is_not_replicated() {
    let server = server(0, "0.001 100 SEED 1");
    assert_eq!(server.text("BF.BULKADD k FIXED 1 ab"), "Integer(2)");
    assert_eq!(server.take_replicated(), ["BF.BULKADD k FIXED 1 ab"]);
    server.events.take();
    assert_eq!(server.text("BF.BULKADD k FIXED 1 ba"), "Integer(0)");
    assert_eq!(server.text("BF.BULKADD k FIXED 1 "), "Integer(0)");
    assert_eq!(server.text("BF.BULKTEST k FIXED 1 ba"), "Bulk([192])");
    assert_eq!(server.take_replicated(), [""; 0]);
    assert_eq!(server.events.take(), [c""; 0]);
    // Counters count items that are already present, and a window adds them to its newest generation.
    for kind in ["0.001 100 COUNTING", "0.001 100 WINDOW 2"] {
        let server = self::server(0, kind);
        server.line("BF.ADD k a").unwrap();
        if kind.contains("WINDOW") {
            server.line("BF.ROTATE k").unwrap();
        }
        server.take_replicated();
        assert_eq!(server.text("BF.BULKADD k FIXED 1 a"), "Integer(0)", "{kind}");
        assert_eq!(server.take_replicated(), ["BF.BULKADD k FIXED 1 a"], "{kind}");
    }
}

#[test]
fn items_that_end_early_are_refused() {
    let server = server(0, "0.01 100 SEED 1");
    server.put("text", Content::String(b"x".to_vec()));
    server.line("CF.ADD cuckoo a").unwrap();
    server.take_replicated();
    server.events.take();
    let before = server.dump("k");
    let words: Vec<_> = ["ada", "grace"].map(|item| item.as_bytes().to_vec()).to_vec();
    let whole = prefixed(&words);
    for (len, error) in [
        (3, "item 0 needs 4 bytes, and 3 are left"),
        (6, "item 0 needs 7 bytes, and 6 are left"),
        (8, "item 1 needs 4 bytes, and 1 are left"),
        (15, "item 1 needs 9 bytes, and 8 are left"),
    ] {
        for command in ["BF.BULKADD", "BF.BULKTEST"] {
            let reply = run(&server, &[command, "k", "PREFIXED"], &[whole[..len].to_vec()]);
            assert_eq!(text(&reply), format!("ERR the items end early: {error}"));
        }
    }
    // The highest possible length, almost 4 GiB.
    let reply = run(&server, &["BF.BULKTEST", "k", "PREFIXED"], &[[&[0xff; 4][..], b"ada"].concat()]);
    assert_eq!(text(&reply), "ERR the items end early: item 0 needs 4294967299 bytes, and 7 are left");

    assert_eq!(server.take_replicated(), [""; 0]);
    assert_eq!(server.events.take(), [c""; 0]);
    assert_eq!(server.dump("k"), before);
    assert_eq!(server.keys.borrow().len(), 3);
}

// ---- a filter that refuses ------------------------------------------------------------------------------------------

#[test]
fn a_full_filter_says_how_many_went_in() {
    for (kind, workers) in [
        ("NONSCALING", 0),
        ("NONSCALING", 3),
        ("NONSCALING SHARDS 4", 3),
        ("WINDOW 2 ONFULL ERROR SHARDS 4", 3),
    ] {
        let kind = format!("0.0001 6000 {kind} SEED 1");
        for form in [Form::Fixed, Form::Prefixed] {
            let server = server(workers, &kind);
            let items: Vec<_> = (0..8000).map(|index| form.item(index)).collect();
            let reply = run(&server, &["BF.BULKADD", "k"], &form.arguments(&items));
            // A full filter still accepts false positives, so it may accept a few more items than its capacity.
            let Err(CommandError::Stopped { done, of: Some(8000), .. }) = reply else { panic!("{reply:?}") };
            assert!((6000..6010).contains(&done), "{done}");
            assert_eq!(
                text(&reply),
                format!("ERR non scaling filter is full; {done} of 8000 items were added")
            );

            // Exactly the first `done` items are replicated, and no others are in the filter.
            let sent = server.replicated.take();
            let words =
                [&[b"BF.BULKADD".to_vec(), b"k".to_vec()], &form.arguments(&items[..done])[..]].concat();
            assert_eq!(sent, [words]);
            server.replicated.replace(sent);
            let replica = self::server(workers, &kind);
            obey(&server, &replica);
            assert_eq!(replica.dump("k"), server.dump("k"));
            let plain = self::server(0, &kind);
            bits(run(&plain, &["BF.MADD", "k"], &items[..done]));
            assert_eq!(plain.dump("k"), server.dump("k"));
            assert_eq!(server.events.take(), [c"bf.add"]);

            // Repeating the command changes nothing. Present items aren't refused, wherever they are in the blob.
            let again = run(&server, &["BF.BULKADD", "k"], &form.arguments(&items));
            assert_eq!(again, reply);
            let known = run(&server, &["BF.BULKADD", "k"], &form.arguments(&items[..done]));
            assert_eq!(known, Ok(Reply::Integer(0)));
            assert_eq!(server.take_replicated(), [""; 0]);
            assert_eq!(server.events.take(), [c""; 0]);
        }
    }
}

/// BF.BULKADD stops at the first refused item, unlike BF.MADD, which tries later items. So a single number can say how
/// many were added.
#[test]
fn growth_beyond_memory_ends_the_command() {
    let server = server(0, "0.01 10 SEED 1");
    server.memory.set(Some(100));
    let items: Vec<_> = (0..500).map(|index| Form::Fixed.item(index)).collect();
    let reply = run(&server, &["BF.BULKADD", "k"], &Form::Fixed.arguments(&items));
    let Err(CommandError::Stopped { done, of: Some(500), .. }) = &reply else { panic!("{reply:?}") };
    assert!(*done >= 10);
    let expected = format!("; {done} of 500 items were added");
    assert!(text(&reply).starts_with("ERR problem inserting into filter: Insufficient memory"), "{reply:?}");
    assert!(text(&reply).ends_with(&expected), "{reply:?}");
    let (_, ones) = bits(run(&server, &["BF.MEXISTS", "k"], &items[..*done]));
    assert_eq!(ones as usize, *done);
    let replica = self::server(0, "0.01 10 SEED 1");
    replica.memory.set(Some(0));
    obey(&server, &replica);
    assert_eq!(replica.dump("k"), server.dump("k"));
}

// ---- where it runs --------------------------------------------------------------------------------------------------

#[test]
fn only_large_tests_are_left_to_the_pool() {
    let server = server(3, "0.01 100 SEED 1");
    server.settings.set(Settings { offload_min_items: 100, ..Settings::DEFAULT });
    for (form, workers) in [(Form::Fixed, 3), (Form::Prefixed, 0)] {
        server.workers.set(workers);
        for (count, offloaded) in [(0, 0), (99, 0), (100, 1), (101, 1)] {
            server.offloaded.set(0);
            run(&server, &["BF.BULKTEST", "k"], &form.arguments(&items(form, count))).unwrap();
            assert_eq!(server.offloaded.get(), offloaded, "{count}");
            run(&server, &["BF.BULKADD", "k"], &form.arguments(&items(form, count))).unwrap();
            assert_eq!(server.offloaded.get(), offloaded, "{count}");
            // A large test of a missing key is also left to the pool: for a string of 460 MiB, creating the answers
            // takes 50 ms.
            run(&server, &["BF.BULKTEST", "missing"], &form.arguments(&items(form, count))).unwrap();
            assert_eq!(server.offloaded.get(), 2 * offloaded, "{count}");
        }
    }
}

/// Towards `offload_min_items`, an item counts once for each layer of the filter.
#[test]
fn layers_count_as_items() {
    let server = server(3, "0.01 10 SEED 1 EXPANSION 1");
    server.settings.set(Settings { offload_min_items: 100, ..Settings::DEFAULT });
    run(&server, &["BF.BULKADD", "k"], &Form::Fixed.arguments(&items(Form::Fixed, 30))).unwrap();
    let layers = server.copy("k").live().unwrap().arrays();
    assert!(layers >= 2);
    for (count, offloaded) in [(99 / layers, 0), (100_usize.div_ceil(layers), 1)] {
        server.offloaded.set(0);
        run(&server, &["BF.BULKTEST", "k"], &Form::Fixed.arguments(&items(Form::Fixed, count))).unwrap();
        assert_eq!(server.offloaded.get(), offloaded, "{count}");
    }
}

/// The main thread doesn't read the lengths in a long string, which would take 0.6 ms per MB. The worker finds any
/// errors in them.
#[test]
fn long_strings_of_short_items_are_read_by_the_pool() {
    let server = server(3, "0.01 100 SEED 1");
    let long = vec![0; (1 << 20) + 4];
    for (bytes, offloaded) in [(&long[4..], 1), (&long, 1), (&long[..long.len() - 3], 1), (&long[..1000], 0)]
    {
        for key in ["k", "missing"] {
            server.offloaded.set(0);
            let reply = run(&server, &["BF.BULKTEST", key, "PREFIXED"], &[bytes.to_vec(), b"COUNT".to_vec()]);
            match bytes.len() % 4 {
                0 => assert!(matches!(reply, Ok(Reply::Integer(_))), "{reply:?}"),
                _ => assert!(matches!(reply, Err(CommandError::BadBlob { .. })), "{reply:?}"),
            }
            // The main thread still reads a string of exactly 1 MiB, but the pool tests its many items.
            assert_eq!(server.offloaded.get(), offloaded);
        }
    }
    server.settings.set(Settings { max_items_per_command: 1 << 18, ..Settings::DEFAULT });
    let reply = run(&server, &["BF.BULKTEST", "k", "PREFIXED"], &[long]);
    assert!(matches!(reply, Err(CommandError::TooManyItems { .. })), "{reply:?}");
}

/// A client that has disconnected gets no reply, and the tests begun for it don't count in the filter's usage.
#[test]
fn a_client_that_goes_leaves_no_trace() {
    let server = server(3, "0.01 100 SEED 1");
    server.settings.set(Settings { offload_min_items: 100, ..Settings::DEFAULT });
    let blob = Form::Fixed.arguments(&items(Form::Fixed, 3 * 4096));
    let tests = || {
        let Ok(Reply::Map(fields)) = server.line("BF.STATS k") else { panic!() };
        fields.into_iter().filter(|(name, _)| name.starts_with("Tests")).collect::<Vec<_>>()
    };
    let before = tests();
    for after in [0, 1, 2, 3] {
        server.leaves_after.set(Some(after));
        assert_eq!(run(&server, &["BF.BULKTEST", "k"], &blob), Ok(Reply::Later));
    }
    assert!(!before.is_empty());
    assert_eq!(tests(), before);
    server.leaves_after.set(None);
    assert_ne!(run(&server, &["BF.BULKTEST", "k"], &blob), Ok(Reply::Later));
    assert_ne!(tests(), before);
}
