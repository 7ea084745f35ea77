//! The worker pool of the process.

use super::api::Context;
use super::settings::settings;
use super::waiting::may_block;
use bloomery_commands::config::MAX_THREADS;
use bloomery_commands::pool::{Figures, Pool};
use std::thread::available_parallelism;

pub(super) static POOL: Pool = Pool::new();

/// Runs tasks on the calling thread and on the pool.
pub(super) fn fork(tasks: usize, task: &(dyn Fn(usize) + Sync)) {
    POOL.fork_join(tasks, task);
}

/// The pool's metrics.
pub(super) fn figures() -> Figures {
    POOL.figures()
}

/// Number of threads in addition to the main thread, as configured.
fn workers() -> usize {
    let cores_but_one = || available_parallelism().map_or(0, |cores| cores.get().saturating_sub(1));
    // There is a worker even on a single core, where the operating system lets the two threads take turns. Without it,
    // large filters would block the server.
    settings().threads.unwrap_or_else(|| cores_but_one().clamp(1, MAX_THREADS))
}

/// Applies the configuration. Threads are started at first use: if loading the module failed after they were started,
/// the server would unmap the code that they run.
pub(super) fn configure() {
    POOL.resize(workers());
}

/// Number of threads that [`fork`] can use, including the caller.
pub(super) fn threads() -> usize {
    workers().saturating_add(1)
}

/// Whether the client of the running command can wait for the pool.
pub(super) fn may_wait(ctx: Context<'_>) -> bool {
    has_workers() && may_block(ctx)
}

/// Whether there are workers to wait for.
pub(super) fn has_workers() -> bool {
    workers() > 0
}
