//! Commands that add, test and delete allocate nothing per item, as counted by the allocator itself.

use crate::support::alloc_counter::requests;
use crate::support::fake_server::FakeServer;
use bloomery::{Bloom, Cuckoo, CuckooSpec, Filter, Spec};

/// Number of allocations in one run of a command, including the fake server's own.
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
        // BF.CARD only looks up the key.
        let floor = allocations(&server, &with("BF.CARD", &[]));
        // The first test creates the usage counters, and allocates nothing else.
        assert_eq!(allocations(&server, &with("BF.EXISTS", &items[..1])), floor + 1, "{key}");
        for verb in ["BF.EXISTS", "BF.TEST"] {
            assert_eq!(allocations(&server, &with(verb, &items[..1])), floor, "{verb} {key}");
        }
        let few = allocations(&server, &with("BF.MEXISTS", &items[..10]));
        let many = allocations(&server, &with("BF.MEXISTS", items));
        assert!(many <= few + 1, "{key}: {few} for 10 items, {many} for 10,000: one for all the answers");
        // Present items change nothing, unless the filter counts every add.
        server.run(&with("BF.MADD", items)).unwrap();
        server.replicated.take();
        if key == "scaling" || key == "classic" {
            let few = allocations(&server, &with("BF.MADD", &items[..10]));
            let many = allocations(&server, &with("BF.MADD", items));
            assert!(many <= few + 1, "BF.MADD {key}: {few} for 10 items, {many} for 10,000");
        }
    }
}

/// A number of items small enough that their answers and effects need no allocation of their own.
const FEW: usize = 10;

#[test]
fn no_allocation_per_item_of_a_cuckoo_filter() {
    let server = FakeServer::default();
    let items: Vec<String> = (0..10_000).map(|i| format!("item:{i}")).collect();
    let items: &'static [String] = items.leak();
    server.line("CF.RESERVE cuckoo 30000").unwrap();
    let with = |verb: &'static str, items: &'static [String]| -> Vec<&[u8]> {
        verb.split(' ').chain(items.iter().map(String::as_str)).map(str::as_bytes).collect()
    };
    let run = |verb, items| allocations(&server, &with(verb, items));
    // CF.COUNT only looks up the key.
    let floor = run("CF.COUNT cuckoo", &items[..1]);
    assert_eq!(run("CF.EXISTS cuckoo", &items[..1]), floor);
    // The fake server keeps a copy of what is replicated: a list, and each of its words.
    let replicated = |words: u64| words + 1;
    assert_eq!(run("CF.ADD cuckoo", &items[..1]), floor + replicated(3));
    assert_eq!(run("CF.ADDNX cuckoo", &items[1..2]), floor + replicated(3));
    assert_eq!(run("CF.ADDNX cuckoo", &items[1..2]), floor, "it is present");
    assert_eq!(run("CF.DEL cuckoo", &items[..1]), floor + replicated(3) + 1, "the number of deletes");
    assert_eq!(run("CF.DEL cuckoo", &items[..1]), floor, "it is absent");
    // Two thirds of the slots stay free, so a search for room ends before the list of its steps needs memory.
    let words = |items: &[String]| replicated(items.len() as u64 + 3);
    let (few, many) = (&items[10..10 + FEW], &items[100..7_000]);
    assert_eq!(run("CF.INSERT cuckoo ITEMS", few), floor + words(few));
    assert_eq!(run("CF.INSERT cuckoo ITEMS", many), floor + words(many) + 1, "one for all answers");
    assert_eq!(run("CF.INSERTNX cuckoo ITEMS", few), floor, "all are present");
    // Some of the other items test positive, so a different command is replicated, which needs an allocation for the
    // list of its items.
    let others = &items[7_000..];
    let allocations = run("CF.INSERTNX cuckoo ITEMS", others);
    assert!(allocations <= floor + words(others) + 2, "{allocations}");
    assert_eq!(run("CF.MEXISTS cuckoo", &items[..FEW]), floor);
    assert_eq!(run("CF.MEXISTS cuckoo", items), floor + 1, "one for all answers");
}

/// Number of allocations for creating a filter: one, for the slots of its sub-filter.
const CREATION: u64 = 1;

#[test]
fn creation_allocates_the_filter_alone() {
    let before = requests();
    let filter = Cuckoo::new(CuckooSpec::new(1024)).unwrap();
    assert_eq!(requests() - before, CREATION);
    drop(filter);
    let server = FakeServer::default();
    server.has_no_sinks.set(true);
    server.line("CF.RESERVE there 1024").unwrap();
    let floor = allocations(&server, &[b"CF.ADD", b"there", b"ada"]);
    let created = allocations(&server, &[b"CF.ADD", b"new", b"ada"]);
    // The fake server allocates the key and the value.
    assert_eq!(created - floor, CREATION + 2);
}

/// Whichever command creates a Bloom filter, with up to 64 items, it allocates only the layer. The fake server
/// allocates the key and the value.
#[test]
fn creating_a_bloom_filter_allocates_the_filter_alone() {
    let server = FakeServer::default();
    server.has_no_sinks.set(true);
    server.line("BF.RESERVE first 0.01 100").unwrap(); // this creates the list of keys
    let floor = allocations(&server, &[b"BF.CARD", b"none"]);
    let items: Vec<String> = (0..64).map(|i| format!("item:{i}")).collect();
    for (line, count) in [
        ("BF.RESERVE reserved 0.01 100", 0),
        ("BF.RESERVE large 0.01 5000 NONSCALING", 0),
        ("BF.ADD added", 1),
        ("BF.ADDNX absent", 1),
        ("BF.MADD one", 1),
        ("BF.MADD many", 64),
        ("BF.INSERT inserted ITEMS", 10),
        ("BF.INSERT options CAPACITY 1000 ERROR 0.001 EXPANSION 4 ITEMS", 64),
    ] {
        let items = items.iter().take(count).map(String::as_str);
        let words: Vec<&[u8]> = line.split(' ').chain(items).map(str::as_bytes).collect();
        let (layer, key, value) = (1, 1, 1);
        assert_eq!(allocations(&server, &words) - floor, layer + key + value, "{line}");
    }
}

/// A small Bloom filter has its cells and the description of its layer in one block.
#[test]
fn a_small_bloom_filter_is_one_allocation_and_its_value() {
    for spec in [Spec::scaling(100, 0.01), Spec::fixed(10, 0.01), Spec::scaling(5000, 0.01)] {
        let before = requests();
        let mut filter = Filter::from(Bloom::new(spec).unwrap());
        assert_eq!(requests() - before, 1, "the layer");
        assert_eq!(filter.allocated(), 56 + 32 + filter.bytes() as usize);
        let Filter::Bloom(bloom) = &mut filter else { unreachable!() };
        (0..5u32).for_each(|item| assert!(bloom.insert(item.to_le_bytes()).unwrap()));
        assert_eq!(requests() - before, 1, "adding");
    }
    // The value that the server keeps is 56 bytes long, and the layer is 168 bytes long.
    let default = Bloom::new(Spec::scaling(100, 0.01)).unwrap();
    assert_eq!((size_of::<Filter>(), default.allocated() - size_of::<Filter>()), (56, 168));
}

/// A filter that only gets adds has a counter of adds, but no other usage counters.
#[test]
fn the_adds_of_a_bloom_filter_are_counted_without_an_allocation() {
    let server = FakeServer::default();
    server.line("BF.ADD there bob").unwrap();
    let floor = allocations(&server, &[b"BF.CARD", b"there"]);
    // The fake server keeps a copy of what is replicated: a list, and each of its words.
    assert_eq!(allocations(&server, &[b"BF.ADD", b"there", b"ada"]), floor + 4);
    assert_eq!(allocations(&server, &[b"BF.ADD", b"there", b"ada"]), floor, "it is present");
    server.line("BF.EXISTS there eve").unwrap();
    server.line("BF.ADD there eve").unwrap();
    assert!(server.text("BF.STATS there").contains("(\"Adds\", Integer(4))"));
}
