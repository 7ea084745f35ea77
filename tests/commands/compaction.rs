//! Compaction of cuckoo filters from RedisBloom. A compaction always runs to the end, as in RedisBloom, because
//! RedisBloom may be the primary or the replica. If it would block the server for long, a worker does it.

use super::pair::Pair;
use crate::support::fake_server::FakeServer;
use bloomery::filter::{Cuckoo, CuckooSpec, Filter, Origin};
use bloomery::wire::Encoder;
use bloomery_commands::{CommandError, Reply};

/// A filter and its items. Compacting the filter needs more steps than one command may take on a native filter.
fn theirs() -> (Cuckoo, Vec<[u8; 8]>) {
    let spec = CuckooSpec { origin: Origin::RedisBloom, ..CuckooSpec::new(2000) };
    let mut filter = Cuckoo::new(spec).unwrap();
    let mut items: Vec<[u8; 8]> = (0..60_000u64).map(u64::to_le_bytes).collect();
    items.iter().for_each(|item| filter.insert(item).unwrap());
    // The items are deleted in a different order, so that deletes free slots in all sub-filters.
    items.sort_by_key(|item| u64::from_le_bytes(*item) * 7 % 60_000);
    (filter, items)
}

fn pair(filter: &Cuckoo, background: bool) -> Pair {
    let pair = Pair::new();
    pair.primary.goes_to_background.set(background);
    [&pair.primary, &pair.replica].into_iter().for_each(|server| server.put("k", filter.snapshot().unwrap()));
    pair
}

fn dump(filter: &Cuckoo) -> Vec<u8> {
    Encoder::new(&Filter::from(filter.snapshot().unwrap())).to_vec()
}

#[test]
fn a_delete_compacts_whole() {
    for background in [false, true] {
        let (mut expected, items) = theirs();
        let pair = pair(&expected, background);
        let (mut compacted, mut moved) = (0, 0);
        for (number, item) in items[..11_000].iter().enumerate() {
            assert!(expected.remove(item));
            let before = expected.moves();
            if expected.is_sparse() {
                expected.compact(false);
                compacted += 1;
                moved += expected.moves() - before;
            }
            assert_eq!(pair.primary.run(&[b"CF.DEL", b"k", item]), Ok(Reply::Bool(true)));
            if expected.deletes() == 0 {
                assert!(
                    pair.primary.dump("k") == dump(&expected),
                    "delete {number}, background {background}"
                );
            }
        }
        let kept = &items[11_000..];
        assert!(compacted > 1 && moved > 100, "it would show little otherwise: {compacted}, {moved}");
        assert!(kept.iter().all(|item| pair.primary.copy("k").cuckoo().unwrap().contains(item)));
        assert_eq!(pair.follow().len(), 11_000, "each as it came");
    }
}

#[test]
fn a_compaction_is_whole() {
    for background in [false, true] {
        let (mut expected, items) = theirs();
        items[..5000].iter().for_each(|item| assert!(expected.remove(item)));
        let pair = pair(&expected, background);
        expected.compact(true);
        assert_eq!(pair.primary.line("CF.COMPACT k"), Ok(Reply::Ok));
        assert!(expected.moves() > 100 && expected.deletes() == 0);
        assert!(pair.primary.dump("k") == dump(&expected), "background {background}");
        assert_eq!(pair.primary.events.take(), [c"cf.compact"]);
        assert_eq!(pair.follow(), ["CF.COMPACT k"]);
    }
}

/// While a worker compacts a filter, the filter in the key may be replaced, written to or deleted. The result is then
/// discarded, even if the filter has the same items as before.
#[test]
fn a_compaction_is_of_the_filter_that_is_there() {
    type Meanwhile = fn(&FakeServer);
    let changes: [Meanwhile; 4] = [
        |server| server.put("k", server.copy("k")),
        |server| drop(server.line("CF.ADD k more")),
        |server| {
            server.line("CF.ADD k more").unwrap();
            server.line("CF.DEL k more").unwrap();
        },
        |server| drop(server.keys.borrow_mut().remove(&b"k"[..])),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let (mut filter, items) = theirs();
        items[..5000].iter().for_each(|item| assert!(filter.remove(item)));
        let pair = pair(&filter, true);
        let server = &pair.primary;
        server.meanwhile.replace(Some(Box::new(move |server| {
            server.goes_to_background.set(false);
            change(server);
            server.goes_to_background.set(true);
            server.take_replicated();
            server.events.take();
        })));
        match server.line("CF.COMPACT k") {
            Err(CommandError::Changed) if number < 3 => {}
            Err(CommandError::RedisBloom(_)) if number == 3 => {}
            other => panic!("{number}: {other:?}"),
        }
        assert_eq!((server.take_replicated(), server.events.take()), (Vec::new(), Vec::new()), "{number}");
        assert_eq!(number < 3, server.keys.borrow().contains_key(&b"k"[..]));
    }
}

/// A compaction in the background needs memory for a copy of the filter. Without that memory, CF.COMPACT is refused,
/// and a delete compacts the filter in place.
#[test]
fn a_delete_is_never_refused_for_want_of_memory() {
    let (mut filter, items) = theirs();
    let mut deleted = 0;
    // Stop one delete before the number of deletes exceeds a tenth of the number of items left.
    while 10 * (deleted + 1) < items.len() - deleted {
        assert!(filter.remove(items[deleted]));
        deleted += 1;
    }
    let pair = pair(&filter, true);
    pair.primary.memory.set(Some(1));
    assert!(matches!(pair.primary.line("CF.COMPACT k"), Err(CommandError::Background(_))));
    assert!(pair.primary.dump("k") == dump(&filter));
    assert_eq!(pair.primary.run(&[b"CF.DEL", b"k", &items[deleted]]), Ok(Reply::Bool(true)));
    assert_eq!(pair.primary.copy("k").cuckoo().unwrap().deletes(), 0);
    pair.follow();
}
