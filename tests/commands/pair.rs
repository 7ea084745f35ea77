//! A primary, and a replica that runs the commands that the primary replicates.

use crate::support::fake_server::{Content, FakeServer};
use bloomery::wire::{Decoder, Encoder};
use bloomery_commands::Reply;

pub(crate) struct Pair {
    pub(crate) primary: FakeServer,
    pub(crate) replica: FakeServer,
}

impl Pair {
    pub(crate) fn new() -> Pair {
        // A replica has to run what its primary sends, even if it has no memory left.
        Pair { primary: FakeServer::default(), replica: FakeServer::replica() }
    }

    /// Runs the primary's effects on the replica, and compares every filter bit for bit, including the shadows of
    /// rebuilds. Returns the effects as lines.
    pub(crate) fn follow(&self) -> Vec<String> {
        let effects = self.primary.replicated.take();
        let line = |words: &Vec<Vec<u8>>| String::from_utf8_lossy(&words.join(&b' ')).into_owned();
        let lines: Vec<String> = effects.iter().map(line).collect();
        for effect in &effects {
            self.replica.run_words(effect).unwrap_or_else(|error| panic!("{}: {error}", lines.join("\n")));
        }
        let expected = dumps(&self.primary);
        assert!(expected == dumps(&self.replica), "{lines:?}");
        expected.iter().for_each(|(key, _)| must_survive_the_wire(&self.primary, key));
        lines
    }
}

/// The key and the wire form of every filter.
pub(crate) fn dumps(server: &FakeServer) -> Vec<(String, Vec<u8>)> {
    let keys = server.keys.borrow();
    let filters = keys.iter().filter(|(_, content)| matches!(&*content.borrow(), Content::Filter(_)));
    let names = filters.map(|(key, _)| String::from_utf8(key.clone()).expect("a name"));
    names.map(|key| (key.clone(), server.dump(&key))).collect()
}

/// Checks that the content of the key is the same after it is written and read again.
pub(crate) fn must_survive_the_wire(server: &FakeServer, key: &str) {
    let filter = server.copy(key);
    let bytes = Encoder::native(&filter).to_vec();
    let read = Decoder::read(&bytes).unwrap_or_else(|why| panic!("{key}: {why}"));
    assert!(Encoder::native(&read).to_vec() == bytes, "{key}");
    assert_eq!(read.rebuild().is_some(), filter.rebuild().is_some());
}

/// Adds `prefix0`, `prefix1`, …
pub(crate) fn add(server: &FakeServer, key: &str, prefix: &str, count: usize) {
    for item in 0..count {
        server.line(&format!("BF.ADD {key} {prefix}{item}")).unwrap();
    }
}

/// The number of items among `prefix0`, `prefix1`, … that test positive.
pub(crate) fn found(server: &FakeServer, key: &str, prefix: &str, count: usize) -> usize {
    let yes = |item: &usize| server.line(&format!("BF.EXISTS {key} {prefix}{item}")) == Ok(Reply::Bool(true));
    (0..count).filter(yes).count()
}
