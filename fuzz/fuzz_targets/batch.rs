//! Adds and tests items one by one, and in groups that are hashed and prefetched together. The answers and the bits
//! must be the same both ways.

#![no_main]

#[allow(dead_code, reason = "tests use more of it")]
#[path = "../../tests/support/fake_server.rs"]
mod fake_server;

use bloomery::Filter;
use bloomery_commands::{Answer, Reply};
use bloomery_fuzz::{Input, LARGE, made};
use fake_server::FakeServer;
use libfuzzer_sys::fuzz_target;

/// A server with a copy of the filter under the key `a`.
fn server(value: &Filter) -> FakeServer {
    let server = FakeServer::default();
    server.memory.set(Some(LARGE));
    server.put("a", value.snapshot().expect("it is small"));
    server
}

fn run(input: &[u8]) -> Option<()> {
    let mut input = Input(input);
    let filter = Filter::Bloom(made::bloom(&mut input)?);
    let items: Vec<_> = input.0.iter().map(|number| made::item(*number)).collect();
    if items.is_empty() {
        return None;
    }
    let (single, many, bulk) = (server(&filter), server(&filter), server(&filter));
    // Adds items one by one. Stops at the first that is refused, as BF.BULKADD does.
    let added = items.iter().take_while(|item| single.run(&[b"BF.ADD", b"a", item]).is_ok()).count();
    let items = &items[..added];
    if items.is_empty() {
        return None;
    }
    let words: Vec<&[u8]> =
        [&b"BF.MADD"[..], b"a"].into_iter().chain(items.iter().map(Vec::as_slice)).collect();
    many.run(&words).expect("they went in one by one");
    let blob: Vec<u8> = items
        .iter()
        .flat_map(|item| [&(item.len() as u32).to_le_bytes(), item.as_slice()].concat())
        .collect();
    bulk.run(&[b"BF.BULKADD", b"a", b"PREFIXED", &blob]).expect("they went in one by one");
    assert!(many.dump("a") == single.dump("a"), "BF.MADD made another filter");
    assert!(bulk.dump("a") == single.dump("a"), "BF.BULKADD made another filter");

    // Items to test, some of which are absent.
    let asked: Vec<_> =
        (0..=255).map(|number: u8| [made::item(number), vec![number & 128; 1]].concat()).collect();
    let asked: Vec<_> = asked.iter().chain(items).collect();
    let one_by_one: Vec<bool> = asked
        .iter()
        .map(|item| matches!(single.run(&[b"BF.EXISTS", b"a", item]), Ok(Reply::Bool(true))))
        .collect();
    assert!(one_by_one[256..].iter().all(|found| *found), "an item is lost");
    let words: Vec<&[u8]> =
        [&b"BF.MEXISTS"[..], b"a"].into_iter().chain(asked.iter().map(|item| item.as_slice())).collect();
    let Ok(Reply::Answers(answers)) = single.run(&words) else { panic!("BF.MEXISTS has answers") };
    let in_groups: Vec<bool> = answers.answers.iter().map(|answer| matches!(answer, Answer::Yes)).collect();
    assert!(in_groups == one_by_one, "BF.MEXISTS answers otherwise");
    let blob: Vec<u8> = asked
        .iter()
        .flat_map(|item| [&(item.len() as u32).to_le_bytes(), item.as_slice()].concat())
        .collect();
    let Ok(Reply::Bulk(bits)) = single.run(&[b"BF.BULKTEST", b"a", b"PREFIXED", &blob]) else {
        panic!("BF.BULKTEST has bits")
    };
    let in_bulk: Vec<bool> =
        (0..asked.len()).map(|index| bits[index / 8] >> (7 - index % 8) & 1 == 1).collect();
    assert!(in_bulk == one_by_one, "BF.BULKTEST answers otherwise");
    Some(())
}

fuzz_target!(|input: &[u8]| {
    let _ = run(input);
});
