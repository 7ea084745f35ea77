//! Everything that the library does with memory, once and on a small scale: for scripts/miri, under which the code runs
//! ten thousand times more slowly. Other tests check answers and numbers.

use crate::support::{kinds, wire};
use bloomery::filter::{Origin, Target, Union};
use bloomery::parallel::alone;
use bloomery::wire::Decoder;
use bloomery::{Bloom, Cell, Cuckoo, CuckooSpec, Filter, HashKind, Layer, LayerSpec, Layout, Seed};
use bloomery_commands::pool::Pool;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;

/// Adds, tests, growth, rotations, copies, unions, encoding, decoding and clears, for filters of every kind.
#[test]
fn every_kind_of_filter() {
    for (name, kind) in kinds::ALL.iter().chain(kinds::TABLES) {
        let mut filter = Bloom::new(kind()).unwrap();
        for i in 0..8u32 {
            let item = filter.hash(i.to_le_bytes());
            filter.prefetch(item.into());
            filter.add(item).unwrap();
            if i == 3 {
                // A window isn't grown here, because that would drop its oldest generation.
                _ = filter.window().is_some() || filter.grow().is_ok();
                _ = filter.advance(1);
            }
            assert!(filter.contains(item), "{name}");
        }
        let copy = filter.snapshot().unwrap();
        let bytes = wire::encode(&copy);
        assert!(wire::decode(&bytes).unwrap().equal(&filter), "{name}");
        let mut value = Filter::Bloom(copy);
        let source = Filter::Bloom(filter);
        let sources = [source.live().unwrap()];
        let mut union = Union::plan(value.live(), &sources, None).unwrap();
        union.join(value.live().unwrap(), &alone).unwrap();
        let Some(Target::One(live)) = value.target() else { panic!("nothing is being rebuilt") };
        union.apply(live, &alone).unwrap();
        let mut filter = value.into_bloom().unwrap();
        drop(filter.clear().unwrap());
        assert_eq!(filter.ones(), 0, "{name}");
    }
}

/// Fingerprints that move, within a sub-filter and from one to another.
#[test]
fn cuckoo_filters() {
    let spec = CuckooSpec {
        capacity: 12,
        bucket_size: 3,
        max_iterations: 20,
        expansion: 1,
        origin: Origin::Bloomery,
        hash: HashKind::Xxh3,
        seed: Seed { low: 7, high: 0 },
    };
    let mut filter = Cuckoo::new(spec).unwrap();
    let items: Vec<_> = (0..24u32).map(|i| filter.hash(&i.to_le_bytes())).collect();
    for item in &items {
        if filter.try_insert(*item).is_err() {
            filter.grow().unwrap();
            filter.try_insert(*item).unwrap();
        }
    }
    assert!(filter.moves() > 0 && items.iter().all(|item| filter.contains(*item)));
    items.iter().skip(6).for_each(|item| assert!(filter.remove(*item)));
    drop(filter.compact(true));
    assert!(items.iter().take(6).all(|item| filter.contains(*item)));
    let bytes = wire::encode(&filter);
    assert!(wire::encode(&Decoder::read(&bytes).unwrap()) == bytes);
}

/// Other systems' filters: read, written, tested and added to.
#[test]
fn foreign_filters() {
    for bytes in [
        &include_bytes!("../golden/foreign-redisbloom.bin")[..],
        include_bytes!("../golden/foreign-guava-32.bin"),
        include_bytes!("../golden/foreign-redisson.bin"),
        include_bytes!("../golden/foreign-sbbf.bin"),
        include_bytes!("../golden/foreign-valkey.bin"),
    ] {
        let mut filter = Decoder::read(bytes).unwrap().into_foreign().unwrap();
        assert!(wire::encode(&filter) == bytes);
        _ = filter.try_add(b"ada");
        _ = (filter.contains(b"ada"), filter.contains(b"bob"), filter.grow());
    }
}

/// Bytes that end early or are wrong don't lead to accesses out of bounds.
#[test]
fn damaged_bytes() {
    for kind in [kinds::bits_blocked_sharded as fn() -> _, kinds::bits_classic] {
        let mut filter = Bloom::new(kind()).unwrap();
        filter.add(filter.hash(b"ada")).unwrap();
        let bytes = wire::encode(&filter);
        for at in (0..bytes.len()).step_by(31) {
            assert!(Decoder::read(&bytes[..at]).is_err());
            let mut wrong = bytes.clone();
            wrong[at] ^= 1 << (at % 8);
            assert!(Decoder::read(&wrong).is_err());
        }
    }
}

/// Threads that write to one layer, and one that reads it.
#[test]
fn threads_on_a_layer() {
    for (cell, layout) in [(Cell::Bit, Some(Layout::Blocked)), (Cell::Counter4, Some(Layout::Classic))] {
        let spec = LayerSpec { cell, layout, shards: 2, ..LayerSpec::new(20, 0.05) };
        let layer = Layer::new(spec.shape().unwrap()).unwrap();
        let item = |i: u64| bloomery::ItemHash { low: i.wrapping_mul(0x9E37_79B9_7F4A_7C15), high: !i << 7 };
        thread::scope(|scope| {
            for thread in 0..2 {
                let layer = &layer;
                scope.spawn(move || (0..10).for_each(|i| _ = layer.insert(item(thread * 100 + i))));
            }
            scope
                .spawn(|| (0..10).for_each(|i| assert!(!layer.contains(item(i)) || layer.contains(item(i)))));
        });
        assert!((0..10).all(|i| layer.contains(item(i)) && layer.contains(item(100 + i))));
    }
}

/// Tasks that borrow from the caller's stack, a task that panics, a job, and a shutdown that leaves no thread.
#[test]
fn the_pool() {
    let pool = Pool::new();
    pool.resize(2);
    for _ in 0..3 {
        let counts: Vec<_> = (0..5).map(|_| AtomicU32::new(0)).collect();
        pool.fork_join(5, &|index| _ = counts[index].fetch_add(1, Relaxed));
        assert!(counts.into_iter().all(|count| count.into_inner() == 1));
    }
    let ended = AtomicU32::new(0);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        pool.fork_join(3, &|index| {
            ended.fetch_add(1, Relaxed);
            assert!(index != 1, "on purpose");
        });
    }));
    assert!(panic.is_err() && ended.into_inner() == 3);
    let (send, receive) = mpsc::channel();
    let text = Arc::new(String::from("kept beyond its maker"));
    assert!(pool.submit(Box::new(move |_| send.send(text.len()).unwrap())).is_ok());
    assert_eq!(receive.recv(), Ok(21));
    pool.shutdown();
    assert_eq!(pool.figures().workers, 0);
}
