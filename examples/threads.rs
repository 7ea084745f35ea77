//! Several threads drop what any of them has already seen: `cargo run --release --example threads`.

use bloomery::AtomicBloom;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const THREADS: u64 = 4;
const EVENTS: u64 = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    // Sized for all different events. One in a million new events is taken for a repeated one.
    let seen = AtomicBloom::fixed(2 * EVENTS, 1e-6)?;
    let handled = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (seen, handled) = (&seen, &handled);
            scope.spawn(move || {
                // Each thread also gets half of the next one's events. An item is a tuple: a source and a number.
                for event in number * EVENTS / 2..number * EVENTS / 2 + EVENTS {
                    if seen.insert(("sensor", event % (2 * EVENTS))) {
                        handled.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let handled = handled.into_inner();
    println!("{} events came, {handled} were handled", THREADS * EVENTS);
    // Two threads that add the same new item at the same time may both be told that it is new.
    assert!(handled > 2 * EVENTS - 100, "all different events, but for false positives");
    assert!((0..2 * EVENTS).all(|event| seen.contains(("sensor", event))));
    Ok(())
}
