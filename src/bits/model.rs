//! Loom models of cells: several threads access one word. Counters are modelled at each width.

use super::{Shared, Single, bit, counter};
use crate::sync::{AtomicU64, Ordering::Relaxed, explore, thread};
use alloc::sync::Arc;
use counter::{Step, maximum};

/// A word that the threads of a model share.
fn word(value: u64) -> Arc<[AtomicU64; 1]> {
    Arc::new([AtomicU64::new(value)])
}

/// Runs `work` on the word in another thread.
fn beside<R: 'static>(
    words: &Arc<[AtomicU64; 1]>,
    work: impl FnOnce(&[AtomicU64]) -> R + 'static,
) -> thread::JoinHandle<R> {
    let words = Arc::clone(words);
    thread::spawn(move || work(&*words))
}

/// A bit that a reader has seen set stays set. If two threads set the same bit, exactly one of them is told that it was
/// first.
#[test]
fn bits_once_seen_stay() {
    explore(|| {
        let words = word(0);
        let writers = [[3, 5], [5, 9]]
            .map(|bits| beside(&words, move |words| bits.map(|index| bit::set::<Shared>(words, index))));
        let look = || [3, 5, 9].map(|index| bit::get(&*words, index));
        let (before, after) = (look(), look());
        assert!(before.iter().zip(after).all(|(before, after)| after || !before));
        let [[first, met], [met_too, last]] = writers.map(|writer| writer.join().unwrap());
        assert!(first && last && met != met_too);
        assert_eq!(words[0].load(Relaxed), 1 << 3 | 1 << 5 | 1 << 9);
    });
}

/// With a single writer, which uses a plain load and store, a bit that a reader has seen set stays set.
#[test]
fn a_single_writers_bits_once_seen_stay() {
    explore(|| {
        let words = word(1 << 63);
        let readers = [(); 2].map(|()| {
            beside(&words, |words| {
                let (before, after) = (words[0].load(Relaxed), words[0].load(Relaxed));
                assert!(before & !after == 0 && before >> 63 == 1);
            })
        });
        assert!(bit::set::<Single>(&*words, 3) && bit::set::<Single>(&*words, 5));
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert_eq!(words[0].load(Relaxed), 1 << 63 | 1 << 5 | 1 << 3);
    });
}

/// Explores a model at each counter width.
fn explore_widths(model: impl Fn(u32) + Send + Sync + Copy + 'static) {
    [4, 8, 16].into_iter().for_each(|width| explore(move || model(width)));
}

/// The counter that the models change. In most models its neighbours are full, so that a stray carry or borrow is
/// noticed.
const COUNTER: usize = 1;

fn around(width: u32, value: u64) -> u64 {
    !(maximum(width) << width) | value << width
}

fn value(words: &[AtomicU64; 1], width: u32) -> u64 {
    let word = words[0].load(Relaxed);
    let value = counter::get(words, width, COUNTER);
    assert_eq!(word, around(width, value), "a neighbour has changed");
    value
}

fn increment(width: u32) -> impl FnOnce(&[AtomicU64]) -> Step {
    move |words| counter::increment::<Shared>(words, width, COUNTER)
}

fn decrement(width: u32) -> impl FnOnce(&[AtomicU64]) -> Step {
    move |words| counter::decrement::<Shared>(words, width, COUNTER)
}

/// Two increments of one counter, and one of another counter in the same word. All of them take effect, and a reader
/// never sees one undone.
#[test]
fn increments_in_one_word_all_count() {
    explore_widths(|width| {
        let words = word(0);
        let writers = [COUNTER, COUNTER, COUNTER + 1]
            .map(|index| beside(&words, move |words| counter::increment::<Shared>(words, width, index)));
        let look = || counter::get(&*words, width, COUNTER);
        assert!(look() <= look());
        let [one, other, neighbour] = writers.map(|writer| writer.join().unwrap());
        assert_eq!(neighbour, Step { before: 0, after: 1 });
        assert_eq!((one.before + other.before, one.after + other.after), (1, 3));
        assert_eq!(words[0].load(Relaxed), 2 << width | 1 << (2 * width));
    });
}

/// A counter starts at one below its maximum. Once it reaches the maximum, no increment or decrement changes it.
#[test]
fn a_counter_stays_at_its_maximum() {
    explore_widths(|width| {
        let max = maximum(width);
        let words = word(around(width, max - 1));
        let writers = [beside(&words, increment(width)), beside(&words, increment(width))];
        let down = decrement(width)(&*words);
        let [one, other] = writers.map(|writer| writer.join().unwrap());
        assert_eq!(value(&words, width), max);
        assert!([one, other].iter().all(|step| step.after == (step.before + 1).min(max)));
        assert_eq!(down.after, if down.before == max { max } else { down.before - 1 });
    });
}

/// A counter is 1, and is decremented twice. One decrement takes it to 0, and the other changes nothing.
#[test]
fn a_counter_stays_at_0() {
    explore_widths(|width| {
        let words = word(around(width, 1));
        let writers = [(); 2].map(|()| beside(&words, decrement(width)));
        let seen = value(&words, width);
        let [one, other] = writers.map(|writer| writer.join().unwrap());
        assert!(seen <= 1);
        assert_eq!((one.before + other.before, one.after + other.after), (1, 0));
        assert_eq!(value(&words, width), 0);
    });
}

/// An increment and a decrement run at the same time. Neither is lost, and a reader sees at most one step up or down.
#[test]
fn an_increment_and_a_decrement_both_count() {
    explore_widths(|width| {
        let words = word(around(width, 5));
        let (up, down) = (beside(&words, increment(width)), beside(&words, decrement(width)));
        assert!((4..=6).contains(&value(&words, width)));
        (up.join().unwrap(), down.join().unwrap());
        assert_eq!(value(&words, width), 5);
    });
}
