//! Errors: the tables in docs/commands own the texts. The command in each row is refused with the row's text, byte for
//! byte, changes nothing and is not replicated.

use crate::support::fake_server::{Content, FakeServer};
use crate::support::sketches::save;
use bloomery::wire::Encoder;
use bloomery_commands::Reply;
use std::path::Path;

/// Commands that create the keys of the examples. docs/commands/in-common.md lists them.
const KEYS: [&str; 19] = [
    "BF.RESERVE plain 0.01 100",
    "BF.RESERVE full 0.01 1 NONSCALING",
    "BF.ADD full ada",
    "BF.RESERVE counting 0.01 100 COUNTING",
    "BF.RESERVE table 0.01 100 LAYOUT QUOTIENT",
    "BF.RESERVE window 0.01 100 WINDOW 4",
    "CF.RESERVE cuckoo 100",
    "CF.RESERVE tight 4 EXPANSION 0 SEED 1",
    "CF.INSERT tight ITEMS bob bob bob bob",
    "BF.IMPORT foreign GOZERO text BITS 40",
    "BF.RESERVE rebuilding 0.01 100",
    "BF.REBUILD rebuilding BEGIN CAPACITY 1 NONSCALING",
    "BF.REBUILD static BEGIN LAYOUT FUSE ERROR 1e-9",
    "BF.REBUILD static ADD ada",
    "BF.REBUILD static COMMIT",
    "CMS.INITBYDIM sketch 20 5",
    "CMS.INITBYDIM other 20 4",
    "TOPK.RESERVE top 3",
    "TDIGEST.CREATE digest",
];

fn must_be_refused(place: &str, line: &str, expected: &str) {
    let server = FakeServer::default();
    server.put("text", Content::String(b"hello".to_vec()));
    KEYS.iter().for_each(|line| drop(server.line(line).unwrap()));
    server.memory.set(Some(1 << 30));
    server.take_replicated();
    server.events.take();
    let state = || -> Vec<_> {
        let keys = server.keys.borrow();
        let names = keys.keys().map(|key| String::from_utf8(key.clone()).unwrap());
        names
            .map(|key| match &*keys[key.as_bytes()].borrow() {
                Content::Filter(filter) => (key, Encoder::new(filter).to_vec()),
                Content::Sketch(_) => (key.clone(), save(&server, &key).write(0)),
                _ => (key, Vec::new()),
            })
            .collect()
    };
    let before = state();
    let text = match server.line(line) {
        Ok(Reply::Answers(answers)) => answers.error.map_or_else(String::new, |why| why.to_string()),
        Ok(reply) => format!("{reply:?}"),
        Err(why) => why.to_string(),
    };
    assert!(matches(expected, &text), "{place}: {line}: {text}\ninstead of {expected}");
    // Of a command with several items, those that fit are added.
    if !expected.ends_with("items were added") {
        assert!(state() == before, "{place}: {line}: changed by a refusal");
        assert_eq!(
            (server.take_replicated(), server.events.take().len()),
            (Vec::new(), 0),
            "{place}: {line}"
        );
    }
}

/// Whether the text is the expected one, in which `<...>` and `<n>` stand for any text.
fn matches(expected: &str, text: &str) -> bool {
    let Some((head, rest)) = expected.split_once('<') else { return expected == text };
    let wildcard = ["...>", "n>"].iter().find_map(|end| rest.strip_prefix(end));
    match (wildcard, text.strip_prefix(head)) {
        (Some(rest), Some(text)) => {
            (0..=text.len()).any(|at| text.get(at..).is_some_and(|text| matches(rest, text)))
        }
        _ => expected == text,
    }
}

#[test]
fn every_error_in_the_documents() {
    let mut rows = 0;
    for page in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/commands")).unwrap() {
        let page = page.unwrap().path();
        for (number, line) in std::fs::read_to_string(&page).unwrap().lines().enumerate() {
            let row = line.strip_prefix("| `").and_then(|row| row.split_once("` | `"));
            let Some((text, (command, _))) = row.and_then(|(text, rest)| Some((text, rest.split_once('`')?)))
            else {
                continue;
            };
            let name = command.split(' ').next().unwrap_or_default();
            let is_command =
                ["BF.", "CF.", "CMS.", "TOPK.", "TDIGEST."].iter().any(|family| name.starts_with(family));
            if is_command && !text.starts_with("BF.") {
                // The server adds the command's name to this one.
                let text = text.replace(&format!(" for '{}' command", name.to_lowercase()), "");
                must_be_refused(&format!("{}:{}", page.display(), number + 1), command, &text);
                rows += 1;
            }
        }
    }
    assert!(rows > 150, "{rows} rows");
}

/// More commands that are refused with the text of a row.
const ALSO: [(&str, &str); 20] = [
    (
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "BF.RESERVE text 0.01 100|CF.RESERVE text 8|CF.RESERVE plain 8|BF.RESERVE cuckoo 0.01 8|CF.DEBUG plain|\
         BF.RESERVE n 0.01 8 LIKE cuckoo|CF.INSERT plain ITEMS a|CF.LOADCHUNK plain 1 abc|CF.ADD foreign a|\
         CF.SCANDUMP foreign 0|BF.IMPORT n GOZERO cuckoo BITS 9|BF.IMPORT text GOZERO text BITS 40|CF.ADD rebuilding a|\
         BF.IMPORT n REDISSON text text|BF.REBUILD cuckoo ADD x|BF.REBUILD cuckoo COMMIT|BF.REBUILD cuckoo ABORT|\
         BF.REBUILD cuckoo STATUS|BF.BULKADD text FIXED 3 ada|BF.BULKTEST cuckoo PREFIXED |BF.ADD cuckoo a",
    ),
    (
        "ERR the command needs one of Bloomery's own filters, and this one came from another system. If you have \
         its items, BF.REBUILD key BEGIN converts it",
        "BF.DEL foreign a|BF.MDEL foreign a b|BF.COUNT foreign a|BF.AGE foreign a|BF.ROTATE foreign|\
         BF.RESERVE n 0.01 100 LIKE foreign",
    ),
    (
        "ERR item exists",
        "BF.RESERVE foreign 0.01 100|BF.IMPORT foreign GOZERO text BITS 40|CF.LOADCHUNK cuckoo 1 abc",
    ),
    (
        "ERR not found",
        "BF.REBUILD n STATUS|BF.REBUILD n COMMIT|BF.ROTATE n|BF.LOADCHUNK n 2 abc|CF.LOADCHUNK n 9 abc",
    ),
    (
        "ERR wrong number of arguments",
        "BF.IMPORT n GOZERO|BF.IMPORT n BLOOMV3 x y|BF.LOAD n|CF.INSERT n NOCREATE ITEMS|CF.RESERVE n 8 BUCKETSIZE|\
         BF.REBUILD plain ADD|BF.REBUILD plain COMMIT now|BF.REBUILD plain ABORT now|BF.REBUILD plain STATUS now|\
         BF.INSERT n CAPACITY 100|BF.INSERT n TIGHTENING 0.5 ITEMS|BF.INSERT n CAPACITY 100 TIGHTENING|BF.BULKADD n FIXED|\
         BF.BULKADD n PREFIXED|BF.BULKTEST n FIXED 3|BF.BULKADD n FIXED 3 ada COUNT|BF.BULKTEST n FIXED 3 ada COUNT more",
    ),
    (
        "ERR unknown option 'MORE'",
        "BF.RESERVE n 0.01 100 MORE|CF.RESERVE n 8 MORE 1|BF.REBUILD plain BEGIN MORE|BF.IMPORT n GOZERO text BITS 40 MORE 1|\
         BF.IMPORT n REDISSON text config MORE 3|BF.IMPORT n GUAVA x MORE",
    ),
    ("ERR BF.IMPORT expects GOZERO, REDISSON, BLOOMV3, GUAVA or SBBF after the key", "BF.IMPORT n FUNNEL x"),
    (
        "ERR BITS expects the number of bits that the filter was made with",
        "BF.IMPORT n GOZERO text BITS|BF.IMPORT n GOZERO text BITS -1|BF.IMPORT n GOZERO text BITS 1e3|\
         BF.IMPORT n GOZERO text BITS 9223372036854775807",
    ),
    ("ERR MAPS expects the number of hashes, from 1 to 256", "BF.IMPORT n GOZERO text BITS 40 MAPS 0"),
    ("ERR CODEC expects STRING, JSON or KRYO5", "BF.IMPORT n REDISSON text config CODEC"),
    ("ERR received bad data: wrong length of the payload", "BF.LOAD n \u{1}"),
    ("ERR received bad data", "BF.LOADCHUNK foreign 1 x|BF.LOADCHUNK n 1 abc"),
    (
        "ERR bad capacity",
        "BF.REBUILD plain BEGIN CAPACITY|BF.REBUILD plain BEGIN CAPACITY x|BF.INSERT n VALIDATESCALETO -1",
    ),
    ("ERR bad error rate", "BF.REBUILD plain BEGIN ERROR"),
    ("ERR bad tightening ratio", "BF.INSERT n TIGHTENING nan ITEMS a"),
    ("ERR (0 < tightening ratio range < 1)", "BF.INSERT n TIGHTENING 0 ITEMS a"),
    (
        "ERR FIXED expects the number of bytes of each item, 1 or more",
        "BF.BULKADD n FIXED -1 abc|BF.BULKTEST n FIXED 0 abc|BF.BULKADD n FIXED 1.5 abc|BF.BULKTEST n FIXED 01 abc|\
         BF.BULKADD n FIXED 99999999999999999999 abc|BF.BULKTEST n FIXED 99999999999999999999 abc",
    ),
    // These numbers would be within range if only their lowest bits were checked.
    ("BUCKETSIZE: value must be in the range [1, 255]", "CF.RESERVE n 8 BUCKETSIZE 258"),
    ("MAXITERATIONS: value must be in the range [1, 65535]", "CF.RESERVE n 8 MAXITERATIONS 65537"),
    ("EXPANSION: value must be in the range [0, 32768]", "CF.RESERVE n 8 EXPANSION 4294967298"),
];

#[test]
fn the_same_errors_of_other_commands() {
    for (text, line) in ALSO.iter().flat_map(|(text, lines)| lines.split('|').map(move |line| (text, line))) {
        must_be_refused("", line, text);
    }
}
