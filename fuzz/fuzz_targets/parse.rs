//! Commands with arbitrary words: names, options, numbers, and items in one string. Filters that they create are
//! written and read again.

#![no_main]

#[allow(dead_code, reason = "tests use more of it")]
#[path = "../../tests/support/fake_server.rs"]
mod fake_server;

use bloomery::wire::{Decoder, Encoder};
use bloomery_commands::table;
use bloomery_fuzz::{Input, LARGE};
use fake_server::{Content, FakeServer};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;

/// Words that a fuzzer would need a long time to find.
const WORDS: &[&str] = &[
    "a",
    "b",
    "source",
    "config",
    "0",
    "1",
    "2",
    "3",
    "8",
    "9",
    "64",
    "100",
    "1000",
    "-1",
    "0.01",
    "0.5",
    "1e-12",
    "4611686018427387904",
    "9223372036854775807",
    "ITEMS",
    "CAPACITY",
    "ERROR",
    "EXPANSION",
    "NOCREATE",
    "NONSCALING",
    "COUNTING",
    "WINDOW",
    "EVERY",
    "SINCE",
    "SHARDS",
    "LAYOUT",
    "AUTO",
    "BLOCKED",
    "CLASSIC",
    "PARTITIONED",
    "HASH",
    "XXH3",
    "SIPHASH",
    "SEED",
    "ff",
    "TIGHTENING",
    "ONFULL",
    "SATURATE",
    "SCALE",
    "LIKE",
    "BUCKETSIZE",
    "MAXITERATIONS",
    "FIXED",
    "PREFIXED",
    "COUNT",
    "AT",
    "GOZERO",
    "BITS",
    "MAPS",
    "REDISSON",
    "CODEC",
    "STRING",
    "JSON",
    "KRYO5",
    "BLOOMV3",
    "GUAVA",
    "FUNNEL",
    "SBBF",
    "TYPE",
    "BYTES",
    "UTF16",
    "LONG",
    "INT",
];

/// A word that the input chooses: one of [`WORDS`], or arbitrary bytes.
fn word<'a>(input: &mut Input<'a>) -> Option<&'a [u8]> {
    let choice = usize::from(input.byte()?);
    match choice.checked_sub(128) {
        Some(index) => Some(WORDS[index % WORDS.len()].as_bytes()),
        None => input.take(choice.min(input.0.len())),
    }
}

fn run(input: &[u8]) -> Option<()> {
    let mut input = Input(input);
    let server = FakeServer::default();
    server.memory.set(Some(LARGE));
    server.now_ms.set(1_700_000_000_000);
    server.put("source", Content::String(b"hello".to_vec()));
    server.put("config", Content::Hash(BTreeMap::from([("size", "100"), ("hashIterations", "5")])));
    while let (Some(command), Some(count)) = (input.byte(), input.byte()) {
        let table = table();
        let name = table[usize::from(command) % table.len()].name("bf");
        let mut words = vec![name.as_bytes()];
        // Most commands use the same key, because otherwise few of them would find a filter.
        words.push(if count & 7 == 0 { word(&mut input)? } else { b"a" });
        for _ in 0..count >> 3 {
            words.push(word(&mut input)?);
        }
        match server.run(&words) {
            Ok(_) => {}
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        server.replicated.take();
    }
    for content in server.keys.borrow().values() {
        if let Content::Filter(value) = &*content.borrow() {
            let written = Encoder::native(value).to_vec();
            let read = Decoder::read(&written).expect("a command made it");
            assert!(Encoder::native(&read).to_vec() == written);
        }
    }
    Some(())
}

fuzz_target!(|input: &[u8]| {
    let _ = run(input);
});
