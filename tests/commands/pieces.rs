//! Commands in pieces: however a command is divided, the reply, the filter and the replica are the same as if it ran
//! whole. This holds for every kind of filter, and for every refusal in the middle.

use crate::pair::Pair;
use crate::support::fake_server::FakeServer;
use crate::support::golden;
use bloomery_commands::config::Settings;
use bloomery_commands::{Answer, Answers, Pieces, Reply};

type Words = Vec<Vec<u8>>;

/// Numbers of items after which a command pauses. The command reads the clock after every 32 items, or more often if
/// the items have many probes.
const PAUSES: [usize; 4] = [1, 33, 64, 500];

const KINDS: &[&str] = &[
    "BF.RESERVE k 0.01 3000 NONSCALING SEED 1",
    "BF.RESERVE k 0.1 100 NONSCALING SEED 1",
    "BF.RESERVE k 0.1 900 ONFULL SATURATE SEED 1",
    "BF.RESERVE k 0.02 100 SEED 1",
    "BF.RESERVE k 0.02 300 EXPANSION 1 HASH SIPHASH SEED 1",
    "BF.RESERVE k 1e-9 3000 NONSCALING LAYOUT CLASSIC SEED 1",
    "BF.RESERVE k 0.01 3000 COUNTING 8 SEED 1",
    "BF.RESERVE k 0.01 3000 WINDOW 3 SEED 1",
    "BF.RESERVE k 0.01 3000 NONSCALING SHARDS 8 SEED 1",
    "CF.RESERVE k 4000 SEED 1",
    "CF.RESERVE k 100 EXPANSION 2 SEED 1",
    "CF.RESERVE k 100 EXPANSION 0 SEED 1",
];

fn words(line: &str, items: &[Vec<u8>]) -> Words {
    line.split(' ').map(|word| word.as_bytes().to_vec()).chain(items.iter().cloned()).collect()
}

/// `count` items, some of which occur twice.
fn items(count: usize) -> Words {
    (0..count).map(|index| format!("{:05}", index - index % 3 / 2).into_bytes()).collect()
}

fn prefixed(items: &[Vec<u8>]) -> Vec<u8> {
    let with_length = |item: &Vec<u8>| [&u32::try_from(item.len()).unwrap().to_le_bytes()[..], item].concat();
    items.iter().flat_map(with_length).collect()
}

/// Commands of `family` (`BF` or `CF`) with these items.
fn commands(family: &str, items: &[Vec<u8>]) -> Vec<Words> {
    let blob = [items.concat()];
    let prefixed = [prefixed(items)];
    if family == "CF" {
        return vec![
            words("CF.INSERT k ITEMS", items),
            words("CF.INSERTNX k NOCREATE ITEMS", items),
            words("CF.MEXISTS k", items),
            words("CF.MEXISTS missing", items),
        ];
    }
    vec![
        words("BF.MADD k", items),
        words("BF.MADD new", items),
        words("BF.INSERT k NOCREATE ITEMS", items),
        words("BF.INSERT other CAPACITY 500 ERROR 0.01 ITEMS", items),
        words("BF.BULKADD k FIXED 5", &blob),
        words("BF.BULKADD k NOCREATE PREFIXED", &prefixed),
        words("BF.MEXISTS k", items),
        words("BF.MEXISTS missing", items),
        words("BF.MDEL k", items),
        words("BF.MDEL missing", items),
    ]
}

/// Runs a command that pauses when it first reads the clock after this many items. Returns its reply and the number of
/// its pieces. The answers of all pieces are in one reply. After a refusal in the middle, the error is at the end of
/// the reply.
fn run_in_pieces(server: &FakeServer, words: &[Vec<u8>], pause: usize) -> (String, usize) {
    server.pauses_after.set(Some(pause));
    let run = |words: &[&[u8]]| {
        server.rest.set(None);
        let outcome = server.run(words);
        (outcome, server.rest.take())
    };
    let all: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let (outcome, rest) = run(&all);
    let (rest, first) = match (rest, outcome) {
        (Some(rest), Ok(first)) if !first.ends_early() => (rest, first),
        (_, outcome) => return (outcome.map_or_else(|why| why.to_string(), |reply| shown(vec![reply])), 1),
    };
    let end = if rest.within.is_some() { all[rest.first].len() } else { all.len() };
    let mut pieces = Pieces::new(rest, end);
    let (mut replies, mut count) = (Vec::new(), 1);
    let mut progress = pieces.begin(first);
    loop {
        replies.extend(progress.answers);
        match progress.end {
            Some(Ok(Reply::Later)) => return (shown(replies), count),
            Some(Ok(reply)) => return (shown(vec![reply]), count),
            Some(Err(why)) if replies.is_empty() => return (why.to_string(), count),
            Some(Err(why)) => return (format!("{} {why}", shown(replies)), count),
            None => {}
        }
        let first = pieces.first();
        let blob = if pieces.is_blob() { all[first] } else { &[] };
        let piece = pieces.next(blob);
        let items =
            if pieces.is_blob() { vec![&blob[piece.0.clone()]] } else { all[piece.0.clone()].to_vec() };
        assert!(!piece.0.is_empty());
        let (outcome, rest) = run(&[&all[..first], &items[..]].concat());
        progress = pieces.absorb(piece, outcome, rest);
        count += 1;
    }
}

/// Replies as one line. Lists are joined.
fn shown(replies: Vec<Reply>) -> String {
    let mut line = Vec::new();
    for reply in replies {
        match reply {
            Reply::Answers(Answers { answers, error }) => {
                line.extend(answers.iter().map(|answer| match answer {
                    Answer::Refused => error.as_ref().unwrap().to_string(),
                    answer => format!("{answer:?}"),
                }))
            }
            Reply::Inserted(answers) | Reply::InsertedIfAbsent(answers) => {
                line.extend(answers.iter().map(|answer| format!("{answer:?}")));
            }
            reply => line.push(format!("{reply:?}")),
        }
    }
    line.join(" ")
}

fn run_whole(server: &FakeServer, words: &[Vec<u8>]) -> String {
    server.pauses_after.set(None);
    let outcome = server.run_words(words);
    outcome.map_or_else(|why| why.to_string(), |reply| shown(vec![reply]))
}

/// Runs all commands whole and in pieces, one after the other, on equal filters.
fn compare(case: &str, family: &str, items: &[Vec<u8>], make: impl Fn(&FakeServer)) {
    for pause in PAUSES {
        let (whole, pair) = (FakeServer::default(), Pair::new());
        for server in [&whole, &pair.primary, &pair.replica] {
            make(server);
            server.replicated.take();
        }
        for words in commands(family, items) {
            let case = format!("{case} {} {pause}", String::from_utf8_lossy(&words[..3].join(&b' ')));
            // Filters that a command creates have random seeds, so replies about them aren't compared.
            let expected = run_whole(&whole, &words);
            let (seen, count) = run_in_pieces(&pair.primary, &words, pause);
            if words[1] == b"k" || words[1] == b"missing" {
                assert_eq!(seen, expected, "{case}");
                assert!(
                    count > 1 || items.len() <= pause.next_multiple_of(32) || seen.contains("ERR"),
                    "{case}: {count}"
                );
            }
            pair.follow();
        }
        if whole.keys.borrow().contains_key(&b"k"[..]) {
            assert!(whole.dump("k") == pair.primary.dump("k"), "{case} {pause}");
        }
    }
}

#[test]
fn every_kind() {
    for kind in KINDS {
        for count in [1, 31, 32, 33, 65, 1000] {
            compare(&format!("{kind} {count}"), &kind[..2], &items(count), |server| {
                server.line(kind).unwrap();
            });
        }
    }
}

#[test]
fn filters_of_other_systems() {
    for (name, make) in golden::FOREIGN {
        compare(name, "BF", &items(400), |server| server.put("k", make()));
    }
}

#[test]
fn rebuilds() {
    for shadow in ["CAPACITY 100", "CAPACITY 200 NONSCALING", "CAPACITY 4000 SHARDS 4"] {
        let make = |server: &FakeServer| {
            server.line("BF.RESERVE k 0.01 2000 SEED 1").unwrap();
            server.line(&format!("BF.REBUILD k BEGIN {shadow} SEED 2")).unwrap();
        };
        compare(shadow, "BF", &items(500), make);
        for pause in PAUSES {
            let (whole, pair) = (FakeServer::default(), Pair::new());
            for server in [&whole, &pair.primary, &pair.replica] {
                make(server);
                server.replicated.take();
            }
            let words = words("BF.REBUILD k ADD", &items(500));
            let expected = run_whole(&whole, &words);
            assert_eq!(run_in_pieces(&pair.primary, &words, pause).0, expected, "{shadow} {pause}");
            assert_eq!(
                expected.contains(" of 500 items were added"),
                shadow.ends_with("NONSCALING"),
                "{expected}"
            );
            pair.follow();
            assert!(whole.dump("k") == pair.primary.dump("k"));
        }
    }
}

/// With several threads, each piece of a blob is added by shard.
#[test]
fn adds_by_shard() {
    for (blob, form) in [(items(90_000).concat(), "FIXED 5"), (prefixed(&items(150_000)), "PREFIXED")] {
        let (whole, pair) = (FakeServer::default(), Pair::new());
        for server in [&whole, &pair.primary, &pair.replica] {
            server.line("BF.RESERVE k 0.01 200000 SHARDS 4 SEED 1").unwrap();
            server.replicated.take();
        }
        pair.primary.workers.set(3);
        let words = words(&format!("BF.BULKADD k {form}"), &[blob]);
        let expected = run_whole(&whole, &words);
        let (seen, count) = run_in_pieces(&pair.primary, &words, 5000);
        assert_eq!(seen, expected);
        assert!(count > 4, "{count}");
        pair.follow();
        assert!(whole.dump("k") == pair.primary.dump("k"));
    }
}

/// A command that adds by shard reads the clock after 32 items, then each time the number of added items has doubled,
/// and later after every 8192 items.
#[test]
fn adds_by_shard_begin_with_few_items() {
    let server = FakeServer::default();
    server.line("BF.RESERVE k 0.01 200000 SHARDS 4").unwrap();
    server.workers.set(3);
    for (blob, form) in [(items(30_000).concat(), "FIXED 5"), (prefixed(&items(30_000)), "PREFIXED")] {
        let words = words(&format!("BF.BULKADD k {form}"), &[blob]);
        for (pause, done) in [(1, 32), (33, 64), (100, 128), (5000, 8192), (10_000, 16_384), (20_000, 24_576)]
        {
            server.pauses_after.set(Some(pause));
            server.run_words(&words).unwrap();
            assert_eq!(server.rest.take().unwrap().done, done, "{form}");
        }
    }
}

/// Items with many probes may cause thousands of page faults, so commands that add or delete them read the clock after
/// at most 512 cache lines. In memory that hadn't been written to yet, 64 items of 29 probes blocked a server for 8 to
/// 20 ms.
#[test]
fn items_with_many_probes() {
    let expected = [("0.01", 32, 32), ("1e-9", 16, 8), ("1e-12", 8, 4)];
    for (rate, items_of_one, items_of_two) in expected {
        let server = FakeServer::default();
        for line in [
            &format!("BF.RESERVE k {rate} 1000 LAYOUT CLASSIC NONSCALING"),
            &format!("BF.RESERVE counting {rate} 1000 LAYOUT CLASSIC COUNTING"),
            &format!("BF.RESERVE rebuilt {rate} 1000 LAYOUT CLASSIC NONSCALING"),
            "BF.REBUILD rebuilt BEGIN CAPACITY 2000",
        ] {
            server.line(line).unwrap();
        }
        server.pauses_after.set(Some(1));
        let all = items(100);
        let blob = [all.concat()];
        for (line, items, done) in [
            ("BF.MADD k", &all[..], items_of_one),
            ("BF.INSERT k ITEMS", &all, items_of_one),
            ("BF.BULKADD k FIXED 5", &blob, items_of_one),
            ("BF.MDEL counting", &all, items_of_one),
            ("BF.REBUILD rebuilt ADD", &all, items_of_one),
            ("BF.MADD rebuilt", &all, items_of_two),
        ] {
            let words = words(line, items);
            server.run_words(&words).unwrap();
            assert_eq!(server.rest.take().map(|rest| rest.done), Some(done), "{line} at {rate}");
        }
    }
}

/// If memory is refused, a command with several answers continues with the other items. A command that stops says how
/// many items were added.
#[test]
fn memory_that_is_refused() {
    for pause in PAUSES {
        for words in
            [words("BF.MADD k", &items(2000)), words("BF.BULKADD k FIXED 5", &[items(2000).concat()])]
        {
            let (whole, pieces) = (FakeServer::default(), FakeServer::default());
            for server in [&whole, &pieces] {
                server.line("BF.RESERVE k 0.01 100 SEED 1").unwrap();
                server.memory.set(Some(1000));
            }
            assert_eq!(run_in_pieces(&pieces, &words, pause).0, run_whole(&whole, &words));
            assert!(whole.dump("k") == pieces.dump("k"));
        }
    }
}

/// If a piece is refused as a whole, the command ends with that error. A command without a list of answers also says
/// how many items were added.
#[test]
fn a_key_that_changes_between_pieces() {
    let expected = [
        ("BF.MADD k", "WRONGTYPE"),
        ("BF.INSERT k ITEMS", "WRONGTYPE"),
        ("BF.MDEL k", "WRONGTYPE"),
        (
            "BF.BULKADD k FIXED 5",
            "WRONGTYPE Operation against a key holding the wrong kind of value; 32 of 100 items were added",
        ),
    ];
    for (line, text) in expected {
        let server = FakeServer::default();
        server.line("BF.RESERVE k 0.01 1000 COUNTING 8").unwrap();
        server.pauses_after.set(Some(1));
        let items = if line.contains("FIXED") { vec![items(100).concat()] } else { items(100) };
        let all = words(line, &items);
        let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        let first = server.run(&all).unwrap();
        let rest = server.rest.take().unwrap();
        let mut pieces = Pieces::new(rest, if rest.within.is_some() { 500 } else { all.len() });
        pieces.begin(first);
        server.put("k", crate::support::fake_server::Content::Other);
        let blob = all[all.len() - 1];
        let piece = pieces.next(blob);
        let outcome = server.run(&[&all[..rest.first], &[blob]].concat());
        let end = pieces.absorb(piece, outcome, None).end.unwrap().unwrap_err().to_string();
        assert!(end == text || end.starts_with("WRONGTYPE Op") && text == "WRONGTYPE", "{end}");
    }
}

/// A blob that fits in one part is checked before anything changes. A larger blob of length-prefixed items is checked
/// part by part. So by the time a truncated item is found, earlier items have already been added.
#[test]
fn a_blob_that_ends_in_the_middle_of_an_item() {
    let server = FakeServer::default();
    let text =
        |server: &FakeServer, blob: Vec<u8>| run_whole(server, &words("BF.BULKADD k PREFIXED", &[blob]));
    let small = [prefixed(&items(1000)), vec![9, 0, 0, 0, 1]].concat();
    assert_eq!(text(&server, small), "ERR the items end early: item 1000 needs 13 bytes, and 5 are left");
    assert!(server.keys.borrow().is_empty());
    let large = [prefixed(&items(150_000)), vec![9, 0, 0, 0, 1]].concat();
    let expected =
        "ERR the items end early: item 150000 needs 13 bytes, and 5 are left; 114858 items were added";
    assert_eq!(text(&server, large.clone()), expected);
    for pause in [1, 100_000] {
        let pieces = FakeServer::default();
        let words = words("BF.BULKADD k PREFIXED", std::slice::from_ref(&large));
        let seen = run_in_pieces(&pieces, &words, pause).0;
        let text = "ERR the items end early: item 150000 needs 13 bytes, and 5 are left; ";
        assert!(seen.starts_with(text) && seen.ends_with(" items were added"), "{seen}");
    }
}

/// The limit applies to all items of the command, not to those of a piece.
#[test]
fn the_limit_of_items() {
    let server = FakeServer::default();
    server.settings.set(Settings { max_items_per_command: 2000, ..Settings::DEFAULT });
    server.pauses_after.set(Some(1));
    for words in commands("BF", &items(2001)) {
        let text = run_in_pieces(&server, &words, 1).0;
        assert_eq!(text, "ERR the command has 2001 items, and max-items-per-command is 2000");
    }
    assert!(server.keys.borrow().is_empty());
    let blob = words("BF.BULKADD k PREFIXED", &[prefixed(&items(300_000))]);
    assert!(run_in_pieces(&server, &blob, 1).0.starts_with("ERR the command has "));
    assert!(server.keys.borrow().is_empty());
}

/// A test of ten items in a small filter isn't timed, because reading the clock would account for 4% of its time. In a
/// chain of hundreds of layers the same items may take a millisecond, which LATENCY should report.
#[test]
fn few_items_are_timed_if_each_has_many_probes() {
    let server = FakeServer::default();
    server.line("BF.RESERVE k 0.01 1 EXPANSION 1 LAYOUT CLASSIC").unwrap();
    // Make the filter grow here: a command that makes it grow is timed, because growth can take a long time.
    server.line("BF.MADD k 0 1").unwrap();
    let timed = |line: &str| {
        server.is_timed.set(false);
        server.line(line).unwrap();
        server.is_timed.get()
    };
    let lines = ["BF.MEXISTS k 0 1", "BF.MADD k 0 1", "BF.INSERT k ITEMS 0 1"];
    assert_eq!(lines.map(timed), [false; 3]);
    for item in 0..200 {
        server.line(&format!("BF.ADD k {item}")).unwrap();
    }
    assert_eq!(lines.map(timed), [true; 3]);
}
