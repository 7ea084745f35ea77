//! Loom models of layers, windows and unions. They run the server's code on filters of one or two words.

use super::{Bloom, Layer};
use crate::filter::layout::LayerSpec;
use crate::hash::ItemHash;
use crate::params::{Cell, Layout, Spec};
use crate::sync::{explore, thread};
use alloc::sync::Arc;

/// Two items in different shards. In a layer of one word, they share a cell.
const ADA: ItemHash = ItemHash { low: 0x0123_4567_89ab_cc00, high: 0xfedc_ba98_7654_3210 };
const BOB: ItemHash = ItemHash { low: 0x0123_4567_89ab_cc01, high: 0x0246_8ace_1357_9bdf };

/// The smallest layer: one word per shard.
fn layer(cell: Cell, shards: u32) -> Layer {
    let spec = LayerSpec {
        capacity: u64::from(shards),
        error_rate: 0.4,
        layout: Some(Layout::Classic),
        cell,
        shards,
        generations: 0,
    };
    let layer = Layer::new(spec.shape().unwrap()).unwrap();
    assert!(layer.words().len() == shards as usize && layer.probes() <= 2);
    layer
}

/// Asserts that the tallies agree with the cells.
fn assert_tallied(layer: &Layer) {
    let copy = layer.snapshot().unwrap();
    assert_eq!((layer.ones(), layer.saturated()), (copy.ones(), copy.saturated()));
}

/// Two threads add, and a third tests. An item that the third thread has found stays found, no item is lost, and the
/// number of items is the number of adds that reported a new item.
#[test]
fn adds_lose_nothing() {
    for cell in [Cell::Bit, Cell::Counter4] {
        explore(move || {
            let layer = Arc::new(layer(cell, 1));
            let writers = [ADA, BOB].map(|item| {
                let layer = Arc::clone(&layer);
                thread::spawn(move || layer.insert(item).added)
            });
            let found = layer.contains(ADA);
            assert!(!found || layer.contains(ADA));
            let added: u64 = writers.map(|writer| u64::from(writer.join().unwrap())).iter().sum();
            assert!(layer.contains(ADA) && layer.contains(BOB));
            assert_eq!(layer.items(), added);
            assert_tallied(&layer);
        });
    }
}

/// While one item is being added, another item that shares a cell with it is deleted. The first item stays.
#[test]
fn a_delete_takes_nobody_elses() {
    explore(|| {
        let layer = Arc::new(layer(Cell::Counter8, 1));
        layer.insert(BOB);
        let threads = [
            thread::spawn({
                let layer = Arc::clone(&layer);
                move || _ = layer.insert(ADA)
            }),
            thread::spawn({
                let layer = Arc::clone(&layer);
                move || assert!(layer.remove(BOB).unwrap().present)
            }),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(layer.count(ADA), 1);
        assert_tallied(&layer);
    });
}

/// Two threads delete an item that was added once. Only one of the threads finds the item, and a cell that the item
/// shares with another one keeps the other item's count.
#[test]
fn an_item_is_deleted_once() {
    explore(|| {
        let layer = Arc::new(layer(Cell::Counter8, 1));
        layer.insert(ADA);
        layer.insert(BOB);
        let threads = [(); 2].map(|()| {
            let layer = Arc::clone(&layer);
            thread::spawn(move || u8::from(layer.remove(BOB).unwrap().present))
        });
        let deleted: u8 = threads.map(|thread| thread.join().unwrap()).iter().sum();
        assert_eq!((deleted, layer.count(ADA)), (1, 1));
        assert_tallied(&layer);
    });
}

/// Two threads, each with its own shard, use plain loads and stores. No count is lost, not even in the total that the
/// shards share.
#[test]
fn writers_of_their_own_shards_do_not_meet() {
    for cell in [Cell::Bit, Cell::Counter4] {
        explore(move || {
            let layer = Arc::new(layer(cell, 2));
            let writers = [ADA, BOB].map(|item| {
                let layer = Arc::clone(&layer);
                thread::spawn(move || assert!(layer.insert_in_own_shard(item).added))
            });
            let found = layer.contains(ADA);
            assert!(!found || layer.contains(ADA));
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            assert!(layer.contains(ADA) && layer.contains(BOB) && layer.is_full_for_single_writer());
            assert_eq!(layer.items(), 2);
            assert_tallied(&layer);
        });
    }
}

fn window() -> Bloom {
    let spec = Spec { layout: Some(Layout::Classic), ..Spec::window(1, 0.5, 2) };
    Bloom::new(spec).unwrap()
}

/// A writer that holds the layer of generation 0 adds an item while the window rotates. The window has two generations,
/// so the item stays until two more have begun. A reader that has found it finds it again.
#[test]
fn an_item_survives_the_rotations_that_it_was_promised() {
    explore(|| {
        let mut filter = window();
        let (layer, reader) = (filter.window().unwrap().current().share(), filter.reader());
        let writer = thread::spawn(move || _ = layer.insert(ADA));
        let asker = thread::spawn(move || assert!(!reader.contains(ADA) || reader.contains(ADA)));
        assert_eq!(filter.advance(1).unwrap().len(), 0);
        filter.add(BOB).unwrap();
        [writer, asker].into_iter().for_each(|thread| thread.join().unwrap());
        assert!(filter.contains(ADA) && filter.contains(BOB));
        assert_eq!(filter.window().unwrap().age(ADA, 1), Some(1));
        // Now both items are dropped, one per rotation.
        assert_eq!(filter.advance(2).unwrap().len(), 1);
        assert!(!filter.contains(ADA) && filter.contains(BOB));
        assert_eq!(filter.advance(3).unwrap().len(), 1);
        assert!(!filter.contains(BOB));
    });
}

/// A writer that holds the layer of generation 0 is so slow that the ring wraps around. While the writer writes to the
/// layer, the window checks whether the layer is empty, and if so, reuses it. The window contains the item if and only
/// if it kept the layer.
#[test]
fn a_slow_writer_adds_to_a_layer_that_is_kept_or_dropped_whole() {
    explore(|| {
        let mut filter = window();
        let layer = Arc::new(filter.window().unwrap().current().share());
        let writer = thread::spawn({
            let layer = Arc::clone(&layer);
            move || _ = layer.insert(ADA)
        });
        let kept = filter.advance(2).unwrap().is_empty();
        writer.join().unwrap();
        assert_eq!(kept, layer.is(filter.window().unwrap().current()));
        assert_eq!(filter.contains(ADA), kept);
        assert!(layer.contains(ADA));
        assert_tallied(&layer);
    });
}

/// A union runs at the same time as an add to the same layer. Neither loses an item.
#[test]
fn a_union_beside_an_add_loses_nothing() {
    for cell in [Cell::Bit, Cell::Counter4] {
        explore(move || {
            let (mine, theirs) = (Arc::new(layer(cell, 1)), layer(cell, 1));
            theirs.insert(BOB);
            let writer = thread::spawn({
                let mine = Arc::clone(&mine);
                move || _ = mine.insert(ADA)
            });
            mine.union(&theirs).unwrap();
            assert!(mine.contains(BOB));
            writer.join().unwrap();
            assert!(mine.contains(ADA) && mine.contains(BOB));
        });
    }
}

/// A table is changed while another thread reads it. The reader finds the item that stays, and the other one before it
/// is deleted or after it was added.
#[test]
fn a_reader_of_a_table_sees_whole_changes() {
    explore(|| {
        let spec = Spec { layout: Some(Layout::Quotient), ..Spec::counting(1, 0.5) };
        let mut filter = Bloom::new(spec).unwrap();
        filter.add(ADA).unwrap();
        let reader = filter.reader();
        let asker = thread::spawn(move || assert!(reader.contains(ADA) && reader.contains(ADA)));
        filter.add(ADA).unwrap();
        assert_eq!(filter.count(ADA).unwrap(), 2);
        filter.remove(ADA).unwrap();
        asker.join().unwrap();
        assert!(filter.contains(ADA));
        assert_eq!(filter.items(), 1);
    });
}
