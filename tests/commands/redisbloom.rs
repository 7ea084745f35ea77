//! Commands from a RedisBloom primary are understood as RedisBloom understands them, however the client spelled them,
//! and result in the same bytes.
//!
//! tests/fixtures/redisbloom/commands.json contains 2,000 random commands that RedisBloom 2.8.2 accepted, and the
//! resulting filters after every 50 commands. `scripts/redisbloom` does the same with a real RedisBloom server.

use crate::support::fake_server::FakeServer;
use bloomery::Filter;
use bloomery::filter::Origin;
use bloomery_commands::config::Settings;
use serde_json::Value as Json;

fn obeying() -> FakeServer {
    let server = FakeServer::default();
    server.obeys.set(true);
    server
}

/// The recorded words are bytes, each stored as the character with the same number.
fn words(command: &Json) -> Vec<Vec<u8>> {
    let bytes =
        |word: &Json| word.as_str().unwrap().chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
    command.as_array().unwrap().iter().map(bytes).collect()
}

fn run(server: &FakeServer, words: &[Vec<u8>]) -> bool {
    server.run_words(words).is_ok()
}

#[test]
fn what_redisbloom_accepted_makes_the_same_filters() {
    let recorded =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/redisbloom/commands.json"));
    let Json::Array(batches) = serde_json::from_slice(&recorded.unwrap()).unwrap() else { panic!() };
    // A replica, and a server that reads the replica's append-only file.
    let (server, file) = (obeying(), obeying());
    file.settings.set(Settings { initial_size: 7, expansion: 0, cuckoo_bucket_size: 5, ..Settings::DEFAULT });
    let (mut commands, mut compared, mut lossy) = (0, 0, 0);
    for batch in &batches {
        for command in batch["commands"].as_array().unwrap() {
            let words = words(command);
            lossy += usize::from(!run(&server, &words));
            for effect in server.replicated.take() {
                assert!(run(&file, &effect), "{command}: {effect:?}");
            }
            commands += 1;
        }
        for (key, expected) in batch["filters"].as_object().unwrap() {
            let dump = server.dump(key);
            let found = (dump.len() as u64, u64::from(crc32c::crc32c(&dump)));
            let expected = (expected[0].as_u64().unwrap(), expected[1].as_u64().unwrap());
            assert_eq!(found, expected, "{key} after {commands} commands");
            assert_eq!(file.dump(key), dump, "{key} after {commands} commands, from the file");
            compared += 1;
        }
    }
    assert_eq!(lossy, 0, "refused here");
    assert!(commands > 1500 && compared > 300, "{commands} {compared}");
}

#[test]
fn a_filter_that_redisbloom_creates_is_redisblooms() {
    for command in [
        "BF.RESERVE k 0.01 100",
        "BF.RESERVE k 1e-13 100 NONSC",
        "BF.RESERVE nonscaling 0.01 100",
        "BF.ADD k item",
        "BF.MADD k item",
        "BF.INSERT k CAP 100 I item",
        "CF.RESERVE k 100 x y",
        "CF.ADD k item",
        "CF.ADDNX k item",
        "CF.INSERT k C 100 IT item",
        "CF.INSERTNX k ITEMS item",
        "CF.RESERVE seed 100",
        "CF.RESERVE maxiterations 100",
    ] {
        let (server, file) = (obeying(), obeying());
        server.line(command).unwrap_or_else(|why| panic!("{command}: {why}"));
        let key = command.split(' ').nth(1).unwrap();
        let is_redisblooms = match server.copy(key) {
            Filter::Foreign(filter) => filter.origin() == "redisbloom",
            Filter::Cuckoo(filter) => filter.spec().origin == Origin::RedisBloom,
            _ => false,
        };
        assert!(is_redisblooms, "{command}");
        let effects = server.take_replicated();
        effects.iter().for_each(|effect| drop(file.line(effect).unwrap()));
        assert_eq!(file.dump(key), server.dump(key), "{command}: {effects:?}");
    }
}

/// With the configured expansion 0, RedisBloom's BF.INSERT creates a chain of fixed capacity, whatever its EXPANSION.
#[test]
fn the_configured_expansion_0_outweighs_an_insert() {
    for (configured, scales) in [(0, false), (2, true)] {
        let server = obeying();
        server.settings.set(Settings { expansion: configured, ..Settings::DEFAULT });
        server.line("BF.INSERT k EXPANSION 2 CAPACITY 3 ITEMS a b c").unwrap();
        let refused = server.line("BF.ADD k d").is_err();
        assert_eq!(refused, !scales, "{configured}");
    }
}

/// A client's commands are parsed strictly, and create native filters.
#[test]
fn clients_are_not_redisbloom() {
    let server = FakeServer::default();
    for command in [
        "BF.RESERVE k 1e-13 100",
        "BF.RESERVE k 0.01 100 NONSC",
        "BF.INSERT k CAP 100 ITEMS item",
        "BF.INSERT k I item",
        "CF.RESERVE k 100 x y",
        "CF.INSERT k C 100 ITEMS item",
        "BF.RESERVE k 0.01 100 EXPANSION 2 HASH REDISBLOOM",
        "CF.RESERVE k 100 HASH REDISBLOOM",
    ] {
        assert!(server.line(command).is_err(), "{command}");
        assert!(server.keys.borrow().is_empty(), "{command}");
    }
    for command in [
        "BF.RESERVE nonscaling 0.01 100",
        "BF.RESERVE shards 0.01 100 SHARDS 2",
        "BF.ADD b item",
        "CF.ADD c item",
    ] {
        server.line(command).unwrap();
        assert!(server.take_replicated()[0].contains(" SEED "), "{command}");
    }
}
