//! Several threads on one filter: no item is lost, tallies stay correct, and readers and copies work during concurrent
//! adds.

use crate::support::env;
use crate::support::naive::cells_of;
use bloomery::filter::Reader;
use bloomery::{Bloom, Cell, HashKind, Hasher, ItemHash, Layer, LayerSpec, Layout, Seed, Spec};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;

const THREADS: u32 = 4;

/// Number of items that a thread adds. Some tests use a fraction of it.
fn items() -> u32 {
    env("BLOOMERY_SCALE", 1) as u32 * 100_000
}

fn hasher() -> Hasher {
    HashKind::Xxh3.hasher(Seed::from(11))
}

fn item(hasher: &Hasher, thread: u32, i: u32) -> ItemHash {
    hasher.hash(&[thread.to_le_bytes(), i.to_le_bytes()].concat())
}

/// Layers that many threads write to. They are so small that the threads often write to the same words.
fn layers() -> impl Iterator<Item = Layer> {
    let cells = [Cell::Bit, Cell::Counter4, Cell::Counter8, Cell::Counter16];
    let layouts = [Some(Layout::Classic), Some(Layout::Blocked), Some(Layout::Partitioned)];
    cells.into_iter().flat_map(move |cell| {
        layouts.into_iter().flat_map(move |layout| {
            [1, 8].into_iter().map(move |shards| {
                let spec = LayerSpec { cell, layout, shards, ..LayerSpec::new(2000, 0.01) };
                Layer::new(spec.shape().unwrap()).unwrap()
            })
        })
    })
}

/// Runs `work` in [`THREADS`] threads at the same time.
fn at_once(work: impl Fn(u32) + Sync) {
    let ready = AtomicU32::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (work, ready) = (&work, &ready);
            scope.spawn(move || {
                ready.fetch_add(1, Ordering::SeqCst);
                while ready.load(Ordering::SeqCst) < THREADS {
                    std::hint::spin_loop();
                }
                work(thread);
            });
        }
    });
}

/// Checks that every item is present, and that the numbers of set and of saturated cells are what adding these items
/// gives, in whatever order.
fn assert_cells(layer: &Layer, items: impl Iterator<Item = ItemHash>) {
    let shape = layer.shape();
    let max = (1u64 << shape.cell.bits()) - 1;
    let mut expected: HashMap<u64, u64> = HashMap::new();
    for item in items {
        for cell in cells_of(&shape, item) {
            let value = expected.entry(cell).or_default();
            *value = (*value + 1).min(max);
        }
        assert!(layer.contains(item), "{shape:?}: a lost item");
    }
    assert_eq!(layer.ones(), expected.len() as u64, "{shape:?}");
    let saturated = expected.values().filter(|value| **value == max).count() as u64;
    assert_eq!(layer.saturated(), if shape.cell == Cell::Bit { 0 } else { saturated }, "{shape:?}");
}

/// No item is lost, no counter misses an increment, and the tallies match the cells.
#[test]
fn threads_that_add_lose_nothing() {
    for layer in layers() {
        let (hasher, added) = (hasher(), AtomicU32::new(0));
        at_once(|thread| {
            for i in 0..items() / 10 {
                // Half of the items are the same in all threads.
                let whose = if i % 2 == 0 { thread } else { 99 };
                let done = layer.insert(item(&hasher, whose, i));
                added.fetch_add(done.added.into(), Ordering::Relaxed);
            }
        });
        let all = (0..THREADS).flat_map(|thread| {
            (0..items() / 10).map(move |i| item(&hasher, if i % 2 == 0 { thread } else { 99 }, i))
        });
        assert_cells(&layer, all);
        // Adds that were reported as new are counted, and no others.
        assert_eq!(layer.items(), u64::from(added.into_inner()));
    }
}

/// Adds and deletes at the same time: an item that was added twice and deleted once is present, and other cells in the
/// same word stay intact.
#[test]
fn threads_that_add_and_remove_lose_nothing() {
    for layer in layers().filter(|layer| layer.cell().bits() >= 8) {
        let hasher = hasher();
        let rounds = 200;
        // Each thread has so few items that no counter saturates. A saturated counter would no longer be decremented.
        at_once(|thread| {
            for round in 0..rounds {
                for i in 0..8 {
                    layer.insert(item(&hasher, thread, i));
                }
                for i in 0..8 {
                    assert!(layer.remove(item(&hasher, thread, i)).unwrap().present, "round {round}");
                }
            }
            for i in 0..8 {
                layer.insert(item(&hasher, thread, i));
            }
        });
        if layer.saturated() == 0 {
            assert_cells(
                &layer,
                (0..THREADS).flat_map(|thread| (0..8).map(move |i| item(&hasher, thread, i))),
            );
        }
    }
}

/// All threads delete the same items, each of which was added once. Exactly one thread finds each item, and cells that
/// other items share with it keep their counts.
#[test]
fn an_item_is_deleted_once_whoever_else_deletes_it() {
    let spec = Spec { layout: Some(Layout::Classic), ..Spec::counting(2000, 1e-6) };
    for round in 0..50 {
        let (filter, hasher) = (Bloom::new(spec).unwrap(), hasher());
        let layer = filter.newest_layer();
        let (kept, deleted) = (|i| item(&hasher, 0, i), |i| item(&hasher, 1, i));
        (0..1000).for_each(|i| _ = (layer.insert(kept(i)), layer.insert(deleted(i))));
        let found = AtomicU32::new(0);
        at_once(|_| {
            let mine = (0..1000).filter(|i| layer.remove(deleted(*i)).unwrap().present).count();
            found.fetch_add(mine as u32, Ordering::Relaxed);
        });
        assert_eq!(found.into_inner(), 1000, "round {round}");
        assert!((0..1000).all(|i| layer.contains(kept(i))), "round {round}");
    }
}

/// One thread adds items, and hands each to another thread, which must then find it. The other thread's reader is older
/// than the item, unless the filter has just grown.
#[test]
fn readers_never_miss_what_they_were_handed() {
    let specs = [
        Spec { layout: Some(Layout::Classic), ..Spec::fixed(1 << 20, 0.01) },
        Spec { layout: Some(Layout::Blocked), ..Spec::fixed(1 << 20, 0.01) },
        Spec { shards: 16, ..Spec::counting(1 << 20, 0.01) },
        Spec::scaling(1000, 0.01),
        Spec::window(1 << 20, 0.01, 4),
    ];
    for spec in specs {
        let mut filter = Bloom::new(spec).unwrap();
        let (to_reader, from_writer) = mpsc::sync_channel::<(ItemHash, Option<Reader>)>(64);
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut reader = None;
                for (item, newer) in from_writer {
                    reader = newer.or(reader);
                    assert!(reader.as_ref().is_some_and(|reader| reader.contains(item)), "{spec:?}");
                }
            });
            let mut layers = 0;
            for i in 0..items() {
                let item = filter.hash(i.to_le_bytes());
                filter.add(item).unwrap();
                // A new reader is needed for a layer that the old one doesn't know about.
                let newer = (filter.layers().len() != layers).then(|| filter.reader());
                layers = filter.layers().len();
                to_reader.send((item.into(), newer)).unwrap();
            }
            drop(to_reader);
        });
    }
}

/// A copy that is taken while another thread adds contains everything that was added before the copy began.
#[test]
fn copies_under_adds_hold_all_that_came_before() {
    for layer in layers() {
        let (hasher, stop, done) = (hasher(), AtomicBool::new(false), AtomicU32::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..items() / 10 {
                    layer.insert(item(&hasher, 0, i));
                    done.store(i + 1, Ordering::Release);
                }
                stop.store(true, Ordering::Release);
            });
            while !stop.load(Ordering::Acquire) {
                let before = done.load(Ordering::Acquire);
                let copy = layer.snapshot().unwrap();
                assert!((0..before).all(|i| copy.contains(item(&hasher, 0, i))), "{:?}", layer.shape());
            }
        });
        let copy = layer.snapshot().unwrap();
        assert!(copy.equal(&layer));
        assert_eq!(
            (copy.ones(), copy.saturated(), copy.items()),
            (layer.ones(), layer.saturated(), layer.items())
        );
    }
}

/// A dump that is written while another thread adds contains everything that was added before the dump began. A BGSAVE
/// without a fork would need this.
#[test]
fn dumps_under_adds_hold_all_that_came_before() {
    let filter = Bloom::new(Spec { shards: 4, ..Spec::counting(50_000, 0.01) }).unwrap();
    let (layer, stop, done) = (&filter.layers()[0], AtomicBool::new(false), AtomicU32::new(0));
    let item = |i: u32| filter.hash(i.to_le_bytes());
    thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..items() / 2 {
                layer.insert(item(i).into());
                done.store(i + 1, Ordering::Release);
            }
            stop.store(true, Ordering::Release);
        });
        while !stop.load(Ordering::Acquire) {
            let before = done.load(Ordering::Acquire);
            let copy = crate::support::wire::decode(&crate::support::wire::encode(&filter)).unwrap();
            assert!((0..before).all(|i| copy.contains(item(i))));
        }
    });
}

/// Threads that each fill a layer of their own through the single-writer path share nothing. The union of their layers
/// equals one layer that all of them have filled.
#[test]
fn union_of_layers_filled_apart_is_the_layer_filled_together() {
    for together in layers() {
        let hasher = hasher();
        let apart: Vec<_> = (0..THREADS).map(|_| Layer::new(together.shape()).unwrap()).collect();
        at_once(|thread| {
            for i in 0..1000 {
                apart[thread as usize].insert_single_writer(item(&hasher, thread, i)).unwrap();
                together.insert(item(&hasher, thread, i));
            }
        });
        let (first, rest) = apart.split_first().unwrap();
        rest.iter().for_each(|layer| first.union(layer).unwrap());
        assert!(first.equal(&together), "{:?}", together.shape());
        assert_eq!((first.ones(), first.saturated()), (together.ones(), together.saturated()));
    }
}

/// Number of operations per thread in the tests below. Under a race detector, use one million or ten million.
fn operations() -> u32 {
    env("BLOOMERY_OPERATIONS", 10_000) as u32
}

/// Number of threads in the tests below. There are more threads than cores, so that they can be interrupted anywhere.
const MANY: u32 = 8;

/// Eight threads add, test, delete and count in each kind of layer at the same time. At the end the tallies match the
/// cells, and in layers of bits each thread's last item is present.
#[test]
fn eight_threads_do_anything_at_once() {
    const OWN: u32 = 500;
    for layer in layers() {
        let hasher = hasher();
        thread::scope(|scope| {
            for thread in 0..MANY {
                let (layer, hasher) = (&layer, &hasher);
                scope.spawn(move || {
                    // There are several layers for each type of cell, so each layer gets only a quarter of the
                    // operations.
                    for i in 0..operations() / 4 {
                        // Four threads share the same items, and so do the other four.
                        let mine = item(hasher, thread % 2, i % OWN);
                        match i % 4 {
                            0 if layer.cell().counts() && i >= OWN => _ = layer.remove(mine).unwrap(),
                            1 => _ = (layer.contains(mine), layer.count(mine)),
                            2 => _ = (layer.items(), layer.ones(), layer.is_full(), layer.rate_now()),
                            _ => _ = layer.insert(mine),
                        }
                    }
                    layer.insert(item(hasher, 2 + thread, 0));
                });
            }
        });
        let copy = layer.snapshot().unwrap();
        assert_eq!((layer.ones(), layer.saturated()), (copy.ones(), copy.saturated()), "{:?}", layer.shape());
        if !layer.cell().counts() {
            assert!((0..MANY).all(|thread| layer.contains(item(&hasher, 2 + thread, 0))));
        }
    }
}

/// One thread adds, rotates and clears, as the server's main thread does. Seven other threads use readers of the
/// filter, and get a new one now and then. Until a reader is dropped, it keeps the items that it had at first.
#[test]
fn seven_readers_beside_one_writer() {
    let specs = [
        Spec { layout: Some(Layout::Classic), ..Spec::fixed(1 << 16, 0.01) },
        Spec { layout: Some(Layout::Blocked), shards: 8, ..Spec::fixed(1 << 16, 0.01) },
        Spec::counting(1 << 16, 0.01),
        Spec::scaling(100, 0.01),
        Spec::window(1000, 0.01, 4),
        Spec { layout: Some(Layout::Quotient), ..Spec::counting(1 << 16, 0.01) },
        Spec { layout: Some(Layout::Quotient), ..Spec::scaling(100, 0.01) },
    ];
    for spec in specs {
        let mut filter = Bloom::new(spec).unwrap();
        thread::scope(|scope| {
            let readers: Vec<_> = (1..MANY)
                .map(|_| {
                    let (give, given) = mpsc::sync_channel::<(Reader, u32)>(1);
                    scope.spawn(move || {
                        for (reader, last) in given {
                            for i in 0..25 {
                                let known = reader.hash(last.to_le_bytes());
                                assert!(reader.contains(known), "{spec:?}: {last}");
                                let other = reader.hash(i32::to_le_bytes(-i));
                                reader.prefetch(other.into());
                                _ = (
                                    reader.contains(other),
                                    reader.contains_many(&[known.into(), other.into()], 0),
                                );
                            }
                        }
                    });
                    give
                })
                .collect();
            for i in 0..operations() {
                let item = filter.hash(i.to_le_bytes());
                filter.add(item).unwrap();
                for reader in readers.iter().filter(|_| i % 100 == 0) {
                    reader.send((filter.reader(), i)).unwrap();
                }
                // This comes after the handover, so that readers keep layers that are dropped here.
                if filter.window().is_some() && i % 64 == 0 {
                    drop(filter.advance(u64::from(i / 64)).unwrap());
                }
                if i % 10_000 == 9_999 {
                    drop(filter.clear().unwrap());
                }
            }
        });
    }
}
