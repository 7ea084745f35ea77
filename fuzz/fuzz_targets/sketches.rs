//! RedisBloom's fields of count-min sketches, Top-K sketches and t-digests in RDB files and DUMP payloads. What is
//! loaded gets commands, and must be the same after it has been saved and loaded again.

#![no_main]

#[allow(dead_code, reason = "tests use more of it")]
#[path = "../../tests/support/fake_server.rs"]
mod fake_server;
#[allow(dead_code, reason = "tests use more of it")]
#[path = "../../tests/support/rdb.rs"]
mod rdb;

use bloomery::wire::Source;
use bloomery_commands::{DataType, ForEach, for_each};
use bloomery_fuzz::{Input, LARGE};
use fake_server::{Content, FakeServer};
use libfuzzer_sys::fuzz_target;
use rdb::{Field, Fields};

/// For each type, commands that read, and commands that write. The first read compresses a t-digest, as a save does.
const COMMANDS: [(&str, [&[&str]; 2]); 3] = [
    (
        "CMSk-TYPE",
        [
            &["CMS.QUERY k a b", "CMS.INFO k"],
            &[
                "CMS.INCRBY k a 1 b 4294967295",
                "CMS.INCRBY k c 9223372036854775807",
                "CMS.MERGE k 2 k k WEIGHTS 2 -1",
            ],
        ],
    ),
    (
        "TopK-TYPE",
        [
            &["TOPK.QUERY k a b", "TOPK.COUNT k a b", "TOPK.LIST k WITHCOUNT", "TOPK.INFO k"],
            &["TOPK.ADD k a b a", "TOPK.INCRBY k c 100000 a 0"],
        ],
    ),
    (
        "TDIS-TYPE",
        [
            &[
                "TDIGEST.QUANTILE k 0 0.5 1",
                "TDIGEST.CDF k -1 0 1e300",
                "TDIGEST.RANK k -1 0 1",
                "TDIGEST.REVRANK k -1 0 1",
                "TDIGEST.BYRANK k 0 1 100",
                "TDIGEST.BYREVRANK k 0 1 100",
                "TDIGEST.TRIMMED_MEAN k 0.1 0.9",
                "TDIGEST.MIN k",
                "TDIGEST.MAX k",
                "TDIGEST.INFO k",
            ],
            &[
                "TDIGEST.ADD k 1 -1e308 1e308 5",
                "TDIGEST.MERGE k 1 k",
                "TDIGEST.MERGE k 1 k COMPRESSION 3 OVERRIDE",
            ],
        ],
    ),
];

/// Loads a value of the type with this name.
struct Load<'s, S>(&'s str, &'s mut S, Option<Content>);

impl<S: Source> ForEach for Load<'_, S> {
    fn data_type<D: DataType>(&mut self) {
        if D::NAME.to_str() == Ok(self.0) {
            self.2 = D::load(self.1, 0).ok().map(|value| Content::Sketch(Box::new(value)));
        }
    }
}

/// Saves the value of the type with this name.
struct Save<'s>(&'s str, &'s Content, Fields);

impl ForEach for Save<'_> {
    fn data_type<D: DataType>(&mut self) {
        if let (true, Content::Sketch(value)) = (D::NAME.to_str() == Ok(self.0), self.1) {
            D::save(value.downcast_ref::<D::Value>().expect("it was loaded"), &mut self.2);
        }
    }
}

fn load(name: &str, source: &mut impl Source) -> Option<Content> {
    let mut load = Load(name, source, None);
    for_each(&mut load);
    load.2
}

fn save(name: &str, server: &FakeServer) -> Fields {
    let keys = server.keys.borrow();
    let content = keys[&b"k"[..]].borrow();
    let mut save = Save(name, &content, Fields::default());
    for_each(&mut save);
    save.2
}

/// A server with a value in the key `k`.
fn with(content: Content) -> FakeServer {
    let server = FakeServer::default();
    server.memory.set(Some(LARGE));
    server.put("k", content);
    server
}

/// Checks that the value is the same after it has been saved and loaded.
fn comes_back(name: &str, reads: &[&str], server: &FakeServer) {
    let answers = |server: &FakeServer| reads.iter().map(|line| server.text(line)).collect::<Vec<_>>();
    let saved = save(name, server);
    let other = with(load(name, &mut saved.clone()).expect("it was saved"));
    // The encoding has weights as doubles, which round weights above 2^53.
    if !matches!(saved.0.get(7), Some(Field::Double(weight)) if *weight > (1u64 << 53) as f64) {
        assert_eq!(save(name, &other), saved, "saved otherwise than loaded");
        assert_eq!(answers(&other), answers(server));
    }
}

fn run(input: &[u8]) -> Option<()> {
    let mut input = Input(input);
    let (name, [reads, writes]) = COMMANDS[usize::from(input.byte()?) % COMMANDS.len()];
    let server = with(load(name, &mut input)?);
    comes_back(name, reads, &server);
    while let Some(choice) = input.byte() {
        let commands = if choice & 1 == 0 { reads } else { writes };
        server.text(commands[usize::from(choice >> 1) % commands.len()]);
        server.replicated.take();
    }
    comes_back(name, reads, &server);
    Some(())
}

fuzz_target!(|input: &[u8]| {
    let _ = run(input);
});
