//! The threads of a load: one reads batches, one for each connection sends them, and the caller's puts the acks in
//! order.

use super::acks::{Ack, Acks};
use super::bookmark::Bookmark;
use super::send::Sender;
use crate::input::{Batch, BatchLimits, Items};
use crate::interrupt::Interrupted;
use crate::output::progress::Progress;
use crate::server::connection::Connection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Maximum bytes per command: a server handles this many in a few milliseconds.
const BATCH_BYTES: usize = 1 << 20;

/// How often a connection that waits for items checks for an interruption.
const LISTEN_EVERY: Duration = Duration::from_millis(100);

/// A load in progress.
pub(super) struct Pipeline {
    pub(super) acks: Acks,
    pub(super) progress: Progress,
    /// Number of connections.
    pub(super) connections: u8,
    /// Maximum number of items per command.
    pub(super) batch: u64,
    /// If the load can be resumed: its bookmark, the filter's identity, and a connection to move the bookmark.
    pub(super) bookmark: Option<(Bookmark, String, Connection)>,
}

impl Pipeline {
    /// Sends batches until the end, an error, or an interruption.
    pub(super) fn run(
        &mut self,
        sender: &Sender,
        items: Items,
        interrupted: &Interrupted,
    ) -> anyhow::Result<()> {
        let limits = BatchLimits { items: sender.most_items(self.batch), bytes: BATCH_BYTES };
        let workers = usize::from(self.connections);
        // One batch may wait per connection, so that reading and sending overlap and memory stays bounded.
        let (to_send, batches) = mpsc::sync_channel(workers);
        // So the bookmark is at most a few batches behind.
        let (to_caller, acks) = mpsc::sync_channel(workers);
        let batches = Arc::new(Mutex::new(batches));
        let stop = interrupted.clone();
        // This thread isn't joined, because it may be blocked on a pipe that never delivers.
        std::thread::spawn(move || read(items, limits, &to_send, &stop));
        std::thread::scope(|scope| {
            for _ in 0..workers {
                let (batches, to_caller) = (Arc::clone(&batches), to_caller.clone());
                scope.spawn(move || {
                    if let Err(error) = work(sender, &batches, &to_caller, interrupted) {
                        let _ = to_caller.send(Err(error));
                    }
                });
            }
            // Only the threads hold senders now: when they end, so does `acks`.
            drop(to_caller);
            let mut result = Ok(());
            for ack in acks {
                let taken = ack.and_then(|ack| self.take(ack));
                if taken.is_err() {
                    interrupted.set();
                }
                result = result.and(taken);
            }
            result
        })
    }

    /// Records an ack, and moves the bookmark.
    fn take(&mut self, ack: Ack) -> anyhow::Result<()> {
        self.acks.add(ack);
        let position = self.acks.position();
        self.progress.at(position.offset, position.items);
        match &mut self.bookmark {
            Some((bookmark, identity, connection)) if !position.is_open => {
                bookmark.move_to(connection, identity, position)
            }
            _ => Ok(()),
        }
    }
}

/// Reads batches until the input ends, reading fails, `stop` is set, or nobody receives them any more.
fn read(
    mut items: Items,
    limits: BatchLimits,
    to_send: &SyncSender<anyhow::Result<Batch>>,
    stop: &Interrupted,
) {
    // A thread that panics must not look like one that has reached the end.
    let mut next = || {
        catch_unwind(AssertUnwindSafe(|| items.next_batch(limits)))
            .unwrap_or_else(|_| Err(anyhow::anyhow!("the thread that reads the input has panicked")))
    };
    while let Some(batch) = next().transpose() {
        let failed = batch.is_err();
        if stop.is_set() || to_send.send(batch).is_err() || failed {
            return;
        }
    }
}

/// Sends batches over one connection until there are no more, the server refuses one, or the user interrupts.
fn work(
    sender: &Sender,
    batches: &Mutex<Receiver<anyhow::Result<Batch>>>,
    to_caller: &SyncSender<anyhow::Result<Ack>>,
    interrupted: &Interrupted,
) -> anyhow::Result<()> {
    let mut connection = sender.connect()?;
    while !interrupted.is_set() {
        let next = batches.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LISTEN_EVERY);
        let batch = match next {
            Ok(batch) => batch?,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if to_caller.send(Ok(sender.send(&mut connection, &batch)?)).is_err() {
            break;
        }
    }
    Ok(())
}
