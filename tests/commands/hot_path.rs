//! ADD, EXISTS and their M-forms allocate nothing per item: counted by the allocator itself.

#![cfg(not(feature = "module"))] // with it the crate brings the server's allocator

mod host;

use host::Host;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static GLOBAL: Counting = Counting;

// SAFETY: System's contract, passed on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Allocations of one run of a command. The host's own are the same for every number of items.
fn allocations(host: &Host, words: &[&[u8]]) -> usize {
    host.replicated.borrow_mut().reserve(10);
    host.events.borrow_mut().reserve(10);
    let before = ALLOCATIONS.load(Relaxed);
    host.run(words).unwrap();
    ALLOCATIONS.load(Relaxed) - before
}

#[test]
fn no_allocation_per_item() {
    let host = Host::default();
    for reserve in [
        "scaling 0.01 100000",
        "classic 0.0001 100000 LAYOUT CLASSIC",
        "counting 0.01 100000 COUNTING",
        "window 0.01 100000 WINDOW 8",
    ] {
        host.line(&format!("BF.RESERVE {reserve}")).unwrap();
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
        let floor = allocations(&host, &with("BF.CARD", &[]));
        // The first command that counts makes the counts, and nothing else.
        assert_eq!(allocations(&host, &with("BF.EXISTS", &items[..1])), floor + 1, "{key}");
        for verb in ["BF.EXISTS", "BF.TEST"] {
            assert_eq!(allocations(&host, &with(verb, &items[..1])), floor, "{verb} {key}");
        }
        for verb in ["BF.MEXISTS", "BF.MTEST"] {
            let few = allocations(&host, &with(verb, &items[..10]));
            let many = allocations(&host, &with(verb, items));
            assert!(
                many <= few + 1,
                "{verb} {key}: {few} for 10 items, {many} for 10,000: one for all the answers"
            );
        }
        // Items that are present change nothing, except where everything counts.
        host.run(&with("BF.MADD", items)).unwrap();
        host.replicated.take();
        if key == "scaling" || key == "classic" {
            let few = allocations(&host, &with("BF.MADD", &items[..10]));
            let many = allocations(&host, &with("BF.MADD", items));
            assert!(many <= few + 1, "BF.MADD {key}: {few} for 10 items, {many} for 10,000");
        }
    }
    // A cuckoo filter with room adds without moving anything, and moving is the one thing that allocates.
    host.line("CF.RESERVE cuckoo 100000").unwrap();
    let with = |verb: &'static str, items: &'static [String]| -> Vec<&[u8]> {
        [verb.as_bytes(), b"cuckoo"].into_iter().chain(items.iter().map(|item| item.as_bytes())).collect()
    };
    let items: &'static [String] = items.leak();
    let floor = allocations(&host, &with("CF.COUNT", &items[..1]));
    assert_eq!(allocations(&host, &with("CF.EXISTS", &items[..1])), floor);
    let few = allocations(&host, &with("CF.MEXISTS", &items[..10]));
    let many = allocations(&host, &with("CF.MEXISTS", items));
    assert!(many <= few + 1, "CF.MEXISTS: {few} for 10 items, {many} for 10,000");
}
