//! The worker pool of the process.

use crate::pool::Pool;

pub(super) static POOL: Pool = Pool::new();

/// Runs tasks on the calling thread and on the pool.
pub(super) fn fork(tasks: usize, task: &(dyn Fn(usize) + Sync)) {
    POOL.fork_join(tasks, task);
}
