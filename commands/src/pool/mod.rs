//! Threads for two kinds of work: [`Pool::fork_join`] splits work that the caller waits for, and [`Pool::submit`]
//! queues a job that the caller doesn't wait for. A pool knows nothing of filters or servers.
//!
//! * Nothing depends on a worker being free, or existing. A caller runs its own tasks, and workers only help. A job
//!   that no worker can run is returned.
//! * A job has one owner: the caller until it is queued, then the queue, then the worker that takes it, or the thread
//!   that withdraws it. So it runs once, or it is given back once.
//! * Jobs take turns, see `shared.rs`. A job waits only until other jobs' turns are over, not until those jobs have
//!   ended, unless very many jobs have begun.
//! * Threads start at first use. [`Pool::shutdown`] joins them all.
//! * A forked child process, such as that of BGSAVE, has no workers, and a lock may stay locked in it forever. So a
//!   child must not call a pool.
//!
//! # How workers are woken
//!
//! An idle worker first *spins*: for 5 µs it watches for news. Then it *sleeps* on a condition variable. A worker that
//! spins begins a task about 7 µs sooner than one that sleeps, and waking it costs the caller nothing. In `Shared`:
//!
//! | field | what | who changes it |
//! | --- | --- | --- |
//! | `state` | one lock around what there is to do (`scopes`, `queue`) and who is idle (`spinning`, `sleeping`) | the thread that holds the lock |
//! | `news` | a counter outside the lock | a thread that posts work, under the lock, after posting it |
//! | `work` | the condition variable of the sleepers | |
//!
//! A thread that posts work takes the lock, adds the work, increments `news`, reads how many workers are spinning and
//! sleeping, and releases the lock. The spinning workers see the news by themselves. If there are fewer of them than
//! tasks, the poster notifies sleepers for the rest.
//!
//! A worker takes the lock and looks for work (`take`). If there is none, it counts itself as spinning, reads `news`,
//! releases the lock and watches `news`. Then it takes the lock again, no longer counts as spinning, and **looks for
//! work a second time**, whether or not it saw any news. Only if there is still no work does it count itself as
//! sleeping and wait on the condition variable, which releases the lock in the same step.
//!
//! No wake-up is lost, because work is posted under the same lock, at one of three times:
//!
//! 1. Before the first look, or before the second: that look finds it. This is why a poster need not notify workers
//!    that are spinning: they always look once more before they sleep.
//! 2. After the worker has gone to sleep: the poster finds it counted in `sleeping`, and notifies it. Between the
//!    second look and the wait the lock isn't released, so nothing can be posted in between.
//! 3. While the worker runs other work: it looks again when that work ends.
//!
//! `news` only makes a worker look sooner. It orders nothing, so it is relaxed. A worker that misses news spins to the
//! end and then finds the work under the lock. A worker that sees news but finds that another worker has taken the work
//! goes to sleep.
//!
//! A caller that waits for its last tasks is woken by `unpark`, see `scope.rs`. The models in `model.rs` try all of
//! this without spinning, which is the harder case: a lost wake-up is a deadlock there.
//!
//! The lock is held for a few instructions, or to start threads, and never while a task or a job runs.

#[cfg(all(loom, test))]
mod model;
mod scope;
mod shared;
mod thread;
mod wait;

use crate::sync::Ordering::Relaxed;
use scope::Scope;
use shared::{Counters, Shared};
pub use shared::{Job, JobContext, Ticket};
use std::sync::{Arc, OnceLock};

/// Maximum number of workers in a pool. Callers are additional threads.
pub const MAX_WORKERS: usize = 8;

/// A pool of threads; see the [module](self).
#[derive(Default)]
pub struct Pool(OnceLock<Arc<Shared>>);

/// Metrics: what a pool is doing and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Number of threads, without those of paused jobs.
    pub workers: u64,
    /// Jobs that wait for a worker, or for their next turn.
    pub queued: u64,
    /// Jobs that have begun and wait for their next turn, each with a thread of its own. `queued` includes them.
    pub paused: u64,
    /// Jobs that a worker is running now.
    pub running: u64,
    /// Jobs that have ended, including those that panicked.
    pub jobs: u64,
    /// Fork-joins that were offered to workers.
    pub forks: u64,
    /// Jobs that panicked. The panic of a task goes to its caller instead.
    pub panics: u64,
}

impl Figures {
    /// Number of threads, including those of paused jobs.
    pub fn threads(&self) -> u64 {
        self.workers.saturating_add(self.paused)
    }
}

impl Pool {
    /// A pool without workers.
    pub const fn new() -> Pool {
        Pool(OnceLock::new())
    }

    /// Sets the number of workers, up to [`MAX_WORKERS`]. Additional workers are started at the next use. Superfluous
    /// workers leave immediately if they are idle, otherwise when they have finished their work. If no workers are to
    /// remain, the existing ones finish the queue first.
    pub fn resize(&self, workers: usize) {
        let shared = self.shared();
        let mut state = shared.lock();
        if !state.closed {
            state.wanted = workers.min(MAX_WORKERS);
        }
        state.join_finished();
        shared.wake(state, usize::MAX);
    }

    /// Runs `task(0..tasks)`, each index exactly once, on the caller and on idle workers. Returns when all have ended.
    /// The caller only has to wait for tasks that a worker has begun. A task may call `fork_join` itself.
    ///
    /// # Panics
    /// If a task panics, this panics in the same way once all other tasks have ended.
    pub fn fork_join(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        match tasks {
            0 => {}
            1 => task(0),
            _ => Scope::join(tasks, task, None, |scope| self.shared().post(scope, tasks)),
        }
    }

    /// Queues a job. Fork-joins have priority over jobs. If the job panics, the panic is counted and the worker
    /// continues.
    ///
    /// # Errors
    /// Returns the job if there is no worker to run it (the pool has none, could not start one, or is shut down), or no
    /// memory to queue it.
    pub fn submit(&self, job: Job) -> Result<Ticket, Job> {
        let shared = self.shared();
        let mut state = shared.lock();
        shared.start(&mut state);
        if state.wanted == 0 || state.queue.try_reserve(1).is_err() {
            return Err(job);
        }
        let ticket = Ticket(state.submitted);
        state.submitted += 1;
        state.queue.push_back((ticket, job));
        shared.count(&state);
        let queued = state.queue.len();
        shared.wake(state, queued);
        Ok(ticket)
    }

    /// Takes a job out of the queue, so that it can be run [outside the pool](Pool::job_context). `None` if a worker
    /// has begun it. In that case, the job runs to its end without giving others a turn, and resumes immediately if it
    /// was waiting for its own turn. Costs a binary search, and moves the entries of the jobs before it or after it,
    /// whichever are fewer.
    pub fn withdraw(&self, ticket: Ticket) -> Option<Job> {
        let shared = self.0.get()?;
        let mut state = shared.lock();
        // Jobs are queued in the order of their tickets.
        let Ok(place) = state.queue.binary_search_by_key(&ticket, |(ticket, _)| *ticket) else {
            shared.hurry(state, ticket);
            return None;
        };
        let (_, job) = state.queue.remove(place)?;
        shared.count(&state);
        Some(job) // nobody need be woken: a worker never sleeps while there are jobs
    }

    /// The context for a job that was withdrawn or returned, and now runs on the calling thread.
    pub fn job_context(&self) -> JobContext<'_> {
        JobContext::outside_pool(self.shared())
    }

    /// Ends the pool for good: finishes the queued jobs and joins all threads. Afterwards, `submit` returns jobs, and
    /// `fork_join` runs only on the caller. A task or a job must not call this, because it would wait for itself.
    pub fn shutdown(&self) {
        let shared = self.shared();
        let mut state = shared.lock();
        (state.closed, state.wanted) = (true, 0);
        let threads = std::mem::take(&mut state.threads);
        shared.wake(state, usize::MAX);
        for worker in threads {
            _ = worker.join();
        }
    }

    /// The metrics. Each is read on its own, without a lock.
    pub fn figures(&self) -> Figures {
        let Some(shared) = self.0.get() else { return Figures::default() };
        let Counters { workers, queued, paused, running, jobs, forks, panics } = &shared.figures;
        Figures {
            workers: workers.load(Relaxed),
            queued: queued.load(Relaxed),
            paused: paused.load(Relaxed),
            running: running.load(Relaxed),
            jobs: jobs.load(Relaxed),
            forks: forks.load(Relaxed),
            panics: panics.load(Relaxed),
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        self.0.get_or_init(Arc::default)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.0.get().is_some() {
            self.shutdown();
        }
    }
}
