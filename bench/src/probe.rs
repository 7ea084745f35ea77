//! A client that runs alongside the load. It sends one command after another, and records how long each one takes.

use crate::server::Server;
use crate::wire::{Batch, Connection};
use anyhow::{Result, anyhow, bail};
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Latencies in nanoseconds, up to a minute, with three significant digits.
pub type Latencies = Histogram<u64>;

/// The client, on a thread of its own.
pub struct Probe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Latencies>>,
}

impl Probe {
    /// Starts the client, which sends the command `words` again and again, with `pause` between a reply and the next
    /// command.
    pub fn start(server: &Server, words: &[&str], pause: Duration) -> Result<Probe> {
        let mut batch = Batch::default();
        batch.push(words, 1);
        let mut requests = std::iter::repeat_with(move || batch.clone());
        Probe::of(server, pause, move || requests.next().unwrap_or_default())
    }

    /// Starts the client as [`start`](Probe::start) does, but with commands that `next` creates.
    pub fn of(
        server: &Server,
        pause: Duration,
        next: impl FnMut() -> Batch + Send + 'static,
    ) -> Result<Probe> {
        let stop = Arc::new(AtomicBool::new(false));
        let (connection, seen) = (server.connect()?, stop.clone());
        let thread = std::thread::spawn(move || probe(connection, pause, next, &seen));
        Ok(Probe { stop, thread })
    }

    /// Stops the client, and returns what it recorded.
    pub fn stop(self) -> Result<Latencies> {
        self.stop.store(true, Relaxed);
        self.thread.join().map_err(|_| anyhow!("the probing thread panicked"))?
    }
}

fn probe(
    mut connection: Connection,
    pause: Duration,
    mut next: impl FnMut() -> Batch,
    stop: &AtomicBool,
) -> Result<Latencies> {
    crate::server::hurry();
    let mut latencies = Latencies::new_with_bounds(1, 60_000_000_000, 3)?;
    while !stop.load(Relaxed) {
        let batch = next();
        let start = Instant::now();
        let tally = connection.round_trip(&batch)?;
        let taken = start.elapsed().as_nanos() as u64;
        if let Some(error) = tally.error {
            bail!("a probe got {error}");
        }
        // While a slow command runs, the client can't send others. Those that it would have sent are recorded too, with
        // the time that they would have waited.
        latencies.record_correct(taken.max(1), pause.as_nanos() as u64)?;
        std::thread::sleep(pause);
    }
    Ok(latencies)
}
