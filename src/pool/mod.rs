//! Threads for two kinds of work: [`Pool::fork_join`] splits work that the caller waits for, [`Pool::submit`] queues a
//! job that nobody waits for. It knows neither filters nor a server.
//!
//! * Nothing depends on a worker being free, or existing. A caller runs its own tasks, and workers only help. A job that
//!   no worker can run is returned.
//! * A job has one owner: the caller until it is queued, then the queue, then the worker that takes it, or the thread
//!   that withdraws it. So it runs once, or it is given back once.
//! * Threads start at first use. [`Pool::shutdown`] joins them all.
//! * A child process, as BGSAVE forks it, has no workers, and a lock may stay locked there forever. A child must not call
//!   a pool.
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
//! work a second time**, whether or not it saw any news. Only if there is still none does it count itself as sleeping
//! and wait on the condition variable, which releases the lock in the same step.
//!
//! No wake-up is lost, because work is posted under the same lock, at one of three times:
//!
//! 1. Before the first look, or before the second: that look finds it. This is why a poster need not notify workers that
//!    are spinning: they always look once more before they sleep.
//! 2. After the worker has gone to sleep: the poster finds it counted in `sleeping`, and notifies it. Between the second
//!    look and the wait the lock isn't released, so nothing can be posted in between.
//! 3. While the worker runs other work: it looks again when that ends.
//!
//! `news` only makes a worker look sooner. It orders nothing, so it is relaxed. A worker that misses news spins to the
//! end and then finds the work under the lock. One that sees news but finds the work taken by another goes to sleep.
//!
//! A caller that waits for its last tasks is woken by `unpark`, see `scope.rs`. The models in `model.rs` try all of
//! this without spinning, which is the harder case: a lost wake-up is a deadlock there.
//!
//! The lock is held for a few instructions, or to start threads, and never while a task or a job runs.

#[cfg(all(loom, test))]
mod model;
mod scope;
mod thread;
mod wait;

use crate::sync::Ordering::Relaxed;
use crate::sync::{Condvar, Figure, Mutex, MutexGuard};
use scope::Scope;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, PoisonError};
use wait::{lock, spin};

/// The most workers of a pool. Callers come on top.
pub const MAX_WORKERS: usize = 8;

/// Work that nobody waits for.
pub type Job = Box<dyn FnOnce() + Send>;

/// A job that was queued, to [withdraw](Pool::withdraw) it. No two jobs of a pool have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// A pool of threads; see the [module](self).
#[derive(Default)]
pub struct Pool(OnceLock<Arc<Shared>>);

/// Metrics: what a pool is doing and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Threads.
    pub workers: u64,
    /// Jobs that wait for a worker.
    pub queued: u64,
    /// Jobs that a worker is running.
    pub running: u64,
    /// Jobs that have ended, including those that panicked.
    pub jobs: u64,
    /// Fork-joins that were offered to workers.
    pub forks: u64,
    /// Jobs that panicked. The panic of a task goes to its caller instead.
    pub panics: u64,
}

impl Pool {
    /// A pool without workers.
    pub const fn new() -> Pool {
        Pool(OnceLock::new())
    }

    /// Sets the number of workers, up to [`MAX_WORKERS`]. Additional workers are started at the next use. Superfluous
    /// ones leave now if they are idle, else when they have finished their work. If none are to remain, they finish the
    /// queue first.
    pub fn resize(&self, workers: usize) {
        let shared = self.shared();
        let mut state = shared.lock();
        if !state.closed {
            state.wanted = workers.min(MAX_WORKERS);
        }
        let left: Vec<_> = state.threads.extract_if(.., |worker| thread::is_finished(worker)).collect();
        shared.wake(state, usize::MAX);
        for worker in left {
            _ = worker.join();
        }
    }

    /// Runs `task(0..tasks)`, each index exactly once, on the caller and on idle workers. Returns when all have ended.
    /// The caller waits only for tasks that a worker has begun. A task may call `fork_join` itself.
    ///
    /// # Panics
    /// If a task panics, with its panic, when all others have ended.
    pub fn fork_join(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        match tasks {
            0 => {}
            1 => task(0),
            _ => Scope::join(tasks, task, |scope| self.shared().post(scope, tasks)),
        }
    }

    /// Queues a job. Fork-joins have priority over it. If it panics, the panic is counted and the worker continues.
    ///
    /// # Errors
    /// Returns the job if there is no worker to run it: the pool has none, could not start one, or is shut down.
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
        let queued = state.queue.len();
        shared.figures.queued.store(queued as u64, Relaxed);
        shared.wake(state, queued);
        Ok(ticket)
    }

    /// Takes a job out of the queue. `None` if a worker has begun it. Costs a binary search, and moves the entries of the
    /// jobs before it or after it, whichever are fewer.
    pub fn withdraw(&self, ticket: Ticket) -> Option<Job> {
        let shared = self.0.get()?;
        let mut state = shared.lock();
        // Jobs are queued in the order of their tickets.
        let place = state.queue.binary_search_by_key(&ticket, |(ticket, _)| *ticket).ok()?;
        let (_, job) = state.queue.remove(place)?;
        shared.figures.queued.store(state.queue.len() as u64, Relaxed);
        Some(job) // nobody need be woken: a worker never sleeps while there are jobs
    }

    /// Ends the pool for good: finishes the queued jobs and joins all threads. Afterwards `submit` returns jobs, and
    /// `fork_join` runs on the caller alone. A task or a job must not call it: it would wait for itself.
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

    /// The metrics, each read on its own, without a lock.
    pub fn figures(&self) -> Figures {
        let Some(shared) = self.0.get() else { return Figures::default() };
        let Counters { workers, queued, running, jobs, forks, panics } = &shared.figures;
        Figures {
            workers: workers.load(Relaxed),
            queued: queued.load(Relaxed),
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

/// What callers and workers share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Where workers sleep.
    work: Condvar,
    /// Changes whenever there may be something to do. Only those that spin read it, and it orders nothing.
    news: Figure,
    figures: Counters,
}

#[derive(Default)]
struct State {
    /// The fork-joins under way, and some that have ended.
    scopes: Vec<Arc<Scope>>,
    queue: VecDeque<(Ticket, Job)>,
    /// Number of jobs queued so far: the next ticket.
    submitted: u64,
    threads: Vec<crate::sync::thread::JoinHandle<()>>,
    /// How many workers there should be, and how many there are. While none are wanted, jobs are refused.
    wanted: usize,
    alive: usize,
    /// The number of workers started so far, for their names.
    started: u64,
    /// Workers that watch for news and will look for work once more before they sleep, and workers that sleep.
    spinning: usize,
    sleeping: usize,
    closed: bool,
}

#[derive(Default)]
struct Counters {
    workers: Figure,
    queued: Figure,
    running: Figure,
    jobs: Figure,
    forks: Figure,
    panics: Figure,
}

/// What a worker does next.
enum Work {
    Help(Arc<Scope>),
    Job(Job),
    Leave,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Starts missing workers. If the system refuses one, there is no further attempt before the next `resize`.
    fn start(self: &Arc<Shared>, state: &mut State) {
        while state.alive < state.wanted {
            let shared = Arc::clone(self);
            let Ok(worker) = thread::spawn(state.started + 1, move || shared.serve()) else {
                state.wanted = state.alive;
                break;
            };
            state.threads.push(worker);
            state.started += 1;
            state.alive += 1;
            self.figures.workers.store(state.alive as u64, Relaxed);
        }
    }

    /// Offers the tasks of a scope to the workers, if there are any.
    fn post(self: &Arc<Shared>, scope: &Arc<Scope>, tasks: usize) {
        let mut state = self.lock();
        self.start(&mut state);
        // Callers leave their scopes here, instead of taking the lock again to remove them.
        state.scopes.retain(|scope| scope.is_open());
        if state.wanted == 0 || state.scopes.try_reserve(1).is_err() {
            return;
        }
        state.scopes.push(Arc::clone(scope));
        self.figures.forks.fetch_add(1, Relaxed);
        self.wake(state, tasks - 1);
    }

    /// Makes `helpers` idle workers, or all if there are fewer, look for work.
    fn wake(&self, state: MutexGuard<'_, State>, helpers: usize) {
        self.news.fetch_add(1, Relaxed);
        let (sleeping, needed) = (state.sleeping, helpers.saturating_sub(state.spinning));
        drop(state); // or those that wake up would wait for the lock
        if needed >= sleeping && sleeping > 0 {
            self.work.notify_all();
        } else {
            (0..needed.min(sleeping)).for_each(|_| self.work.notify_one());
        }
    }

    /// The life of a worker.
    fn serve(&self) {
        loop {
            match self.next() {
                Work::Help(scope) => scope.help(),
                Work::Job(job) => self.run(job),
                Work::Leave => return,
            }
        }
    }

    fn next(&self) -> Work {
        let mut state = self.lock();
        loop {
            if let Some(work) = self.take(&mut state) {
                return work;
            }
            state.spinning += 1;
            let seen = self.news.load(Relaxed);
            drop(state);
            // Yields the processor now and then: the caller that it has just helped may be waiting for it.
            spin(|| self.news.load(Relaxed) != seen, std::thread::yield_now);
            state = self.lock();
            state.spinning -= 1;
            if let Some(work) = self.take(&mut state) {
                return work;
            }
            state.sleeping += 1;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.sleeping -= 1;
        }
    }

    fn take(&self, state: &mut State) -> Option<Work> {
        // If all are to leave, the queue is finished first.
        if state.alive > state.wanted && (state.wanted > 0 || state.queue.is_empty()) {
            state.alive -= 1;
            self.figures.workers.store(state.alive as u64, Relaxed);
            return Some(Work::Leave);
        }
        // Before jobs, because a caller waits for it.
        if let Some(scope) = state.scopes.iter().find(|scope| scope.is_open()) {
            return Some(Work::Help(Arc::clone(scope)));
        }
        let (_, job) = state.queue.pop_front()?;
        self.figures.queued.store(state.queue.len() as u64, Relaxed);
        self.figures.running.fetch_add(1, Relaxed);
        Some(Work::Job(job))
    }

    fn run(&self, job: Job) {
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            self.figures.panics.fetch_add(1, Relaxed);
        }
        self.figures.running.fetch_sub(1, Relaxed);
        self.figures.jobs.fetch_add(1, Relaxed);
    }
}
