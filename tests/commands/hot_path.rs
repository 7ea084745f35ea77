//! ADD, EXISTS and their M-forms allocate nothing per item: counted by the allocator itself.

use crate::support::alloc_counter::requests;
use crate::support::fake_server::FakeServer;

/// Allocations of one run of a command. The server's own are the same for every number of items.
fn allocations(server: &FakeServer, words: &[&[u8]]) -> u64 {
    server.replicated.borrow_mut().reserve(10);
    server.events.borrow_mut().reserve(10);
    let before = requests();
    server.run(words).unwrap();
    let allocations = requests() - before;
    assert_eq!(server.offloaded.get(), 0, "only this thread is counted");
    allocations
}

#[test]
fn no_allocation_per_item() {
    let server = FakeServer::default();
    for reserve in [
        "scaling 0.01 100000",
        "classic 0.0001 100000 LAYOUT CLASSIC",
        "counting 0.01 100000 COUNTING",
        "window 0.01 100000 WINDOW 8",
    ] {
        server.line(&format!("BF.RESERVE {reserve}")).unwrap();
    }
    let items: Vec<String> = (0..10_000).map(|i| format!("item:{i}")).collect();
    for key in ["scaling", "classic", "counting", "window"] {
        let with = |verb: &'static str, items: &'static [String]| -> Vec<&[u8]> {
            [verb.as_bytes(), key.as_bytes()]
                .into_iter()
                .chain(items.iter().map(|item| item.as_bytes()))
                .collect()
        };
        let items: &'static [String] = items.clone().leak();
        // Looking up the key is all that BF.CARD does.
        let floor = allocations(&server, &with("BF.CARD", &[]));
        // The first command that counts makes the counts, and nothing else.
        assert_eq!(allocations(&server, &with("BF.EXISTS", &items[..1])), floor + 1, "{key}");
        for verb in ["BF.EXISTS", "BF.TEST"] {
            assert_eq!(allocations(&server, &with(verb, &items[..1])), floor, "{verb} {key}");
        }
        for verb in ["BF.MEXISTS", "BF.MTEST"] {
            let few = allocations(&server, &with(verb, &items[..10]));
            let many = allocations(&server, &with(verb, items));
            assert!(
                many <= few + 1,
                "{verb} {key}: {few} for 10 items, {many} for 10,000: one for all the answers"
            );
        }
        // Items that are present change nothing, except where everything counts.
        server.run(&with("BF.MADD", items)).unwrap();
        server.replicated.take();
        if key == "scaling" || key == "classic" {
            let few = allocations(&server, &with("BF.MADD", &items[..10]));
            let many = allocations(&server, &with("BF.MADD", items));
            assert!(many <= few + 1, "BF.MADD {key}: {few} for 10 items, {many} for 10,000");
        }
    }
    // A cuckoo filter with room adds without moving anything, and moving is the one thing that allocates.
    server.line("CF.RESERVE cuckoo 100000").unwrap();
    let with = |verb: &'static str, items: &'static [String]| -> Vec<&[u8]> {
        [verb.as_bytes(), b"cuckoo"].into_iter().chain(items.iter().map(|item| item.as_bytes())).collect()
    };
    let items: &'static [String] = items.leak();
    let floor = allocations(&server, &with("CF.COUNT", &items[..1]));
    assert_eq!(allocations(&server, &with("CF.EXISTS", &items[..1])), floor);
    let few = allocations(&server, &with("CF.MEXISTS", &items[..10]));
    let many = allocations(&server, &with("CF.MEXISTS", items));
    assert!(many <= few + 1, "CF.MEXISTS: {few} for 10 items, {many} for 10,000");
}
