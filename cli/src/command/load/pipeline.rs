//! The threads of a load: one reads batches, one for each connection sends them, and the caller's puts the acks in
//! order.

use super::acks::{Ack, Acks, Position};
use super::bookmark::Bookmark;
use crate::input::{Batch, BatchLimits, Items};
use crate::interrupt::Interrupted;
use crate::output::progress::{Pace, Progress};
use crate::server::connection::Connection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often a connection that waits for items checks for an interruption.
const LISTEN_EVERY: Duration = Duration::from_millis(100);

/// A load in progress.
pub(super) struct Pipeline {
    pub(super) acks: Acks,
    /// Where in the input the load began.
    pub(super) from: u64,
    progress: Progress,
    /// If the load can be resumed: its bookmark, the filter's identity, and a connection to move the bookmark.
    pub(super) bookmark: Option<(Bookmark, String, Connection)>,
}

impl Pipeline {
    /// A load of these items from a position on.
    pub(super) fn new(
        pace: &Pace,
        items: &mut Items,
        from: Position,
        bookmark: Option<(Bookmark, String, Connection)>,
    ) -> Pipeline {
        let progress = Progress::new(pace, items.length(), from.offset);
        Pipeline { from: from.offset, acks: Acks::new(from), progress, bookmark }
    }

    /// Sends batches until the end, an error, or an interruption. Each of the `senders` gets a thread.
    pub(super) fn run(
        &mut self,
        senders: Vec<impl FnMut(&Batch) -> anyhow::Result<u64> + Send>,
        limits: BatchLimits,
        items: Items,
        interrupted: &Interrupted,
    ) -> anyhow::Result<()> {
        let workers = senders.len();
        // One batch may wait per connection, so that reading and sending overlap and memory stays bounded.
        let (to_send, batches) = mpsc::sync_channel(workers);
        // So the bookmark is at most a few batches behind.
        let (to_caller, acks) = mpsc::sync_channel(workers);
        let batches = Arc::new(Mutex::new(batches));
        let stop = interrupted.clone();
        // This thread isn't joined, because it may be blocked on a pipe that never delivers.
        std::thread::spawn(move || read(items, limits, &to_send, &stop));
        let result = std::thread::scope(|scope| {
            for sender in senders {
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
        });
        self.progress.finish();
        result
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

/// Sends batches until there are no more, the server refuses one, or the user interrupts.
fn work(
    mut send: impl FnMut(&Batch) -> anyhow::Result<u64>,
    batches: &Mutex<Receiver<anyhow::Result<Batch>>>,
    to_caller: &SyncSender<anyhow::Result<Ack>>,
    interrupted: &Interrupted,
) -> anyhow::Result<()> {
    while !interrupted.is_set() {
        let next = batches.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LISTEN_EVERY);
        let batch = match next {
            Ok(batch) => batch?,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let ack = Ack { span: batch.span, blank: batch.blank, items: batch.items, new: send(&batch)? };
        if to_caller.send(Ok(ack)).is_err() {
            break;
        }
    }
    Ok(())
}
