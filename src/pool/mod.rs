//! Threads for two kinds of work: [`Pool::fork_join`] splits work that the caller waits for, [`Pool::submit`] queues a
//! job that nobody waits for. It knows neither filters nor a server.
//!
//! * Nothing here depends on a worker being there, or free. A caller runs its own fork-join and is merely helped; a job
//!   that no worker can take is given back.
//! * Threads start at first use. [`Pool::shutdown`] joins them all.
//! * A worker with nothing to do spins for a few microseconds, and then sleeps until it is woken.
//! * In a child of `fork` no worker runs, and a lock may be held for ever: a child must not call a pool.
//!
//! One lock guards what there is to do and who is idle, so that a wake-up cannot be lost between the two. It is held
//! for a few instructions, or to start threads, and never while a task or a job runs.

mod fork;
#[cfg(all(loom, test))]
mod model;
mod thread;

use crate::sync::Ordering::Relaxed;
use crate::sync::{Condvar, Figure, Mutex, MutexGuard};
use fork::Fork;
use std::collections::VecDeque;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Workers that a pool has at most, beside the callers.
pub const MAX_WORKERS: usize = 8;

/// How long an idle worker, and a caller whose tasks are all taken, look for news before they sleep: about what waking
/// them would cost. A task was begun by a worker after 1.2 µs if the worker was spinning, and after 8 µs if it slept.
const SPIN: Duration = Duration::from_micros(5);

/// Work that nobody waits for.
pub type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads; see the [module](self). At first it has no workers.
#[derive(Default)]
pub struct Pool(OnceLock<Arc<Shared>>);

/// What a pool has done and is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Threads.
    pub workers: u64,
    /// Jobs that wait for a worker.
    pub queued: u64,
    /// Jobs that a worker is running.
    pub running: u64,
    /// Jobs that have ended, those that panicked among them.
    pub jobs: u64,
    /// Fork-joins that were open to workers.
    pub forks: u64,
    /// Jobs that panicked. The panic of a task is its caller's.
    pub panics: u64,
}

impl Pool {
    /// A pool without workers.
    pub const fn new() -> Pool {
        Pool(OnceLock::new())
    }

    /// Sets the number of workers, up to [`MAX_WORKERS`]. More are started at the next use. Fewer: those that are idle
    /// leave now, the others when they have ended what they do; with none left, when the queue is empty.
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

    /// Runs `task(0..tasks)`, each index exactly once, on the caller and on idle workers; returns when all have ended.
    /// The caller waits only for tasks that a worker has begun. A task may call `fork_join` itself.
    ///
    /// # Panics
    /// With the panic of a task, when all others have ended.
    pub fn fork_join(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        match tasks {
            0 => {}
            1 => task(0),
            _ => Fork::join(tasks, task, |fork| self.shared().post(fork, tasks)),
        }
    }

    /// Queues a job. Fork-joins go before it. If it panics, that is counted, and the worker lives on.
    ///
    /// # Errors
    /// The job, if there is no worker to run it: the pool has none, could not start one, or is shut down.
    pub fn submit(&self, job: Job) -> Result<(), Job> {
        let shared = self.shared();
        let mut state = shared.lock();
        shared.start(&mut state);
        if state.wanted == 0 || state.queue.try_reserve(1).is_err() {
            return Err(job);
        }
        state.queue.push_back(job);
        let queued = state.queue.len();
        shared.figures.queued.store(queued as u64, Relaxed);
        shared.wake(state, queued);
        Ok(())
    }

    /// Ends the pool for good: runs the jobs that are queued to their end, and joins all threads. Afterwards `submit`
    /// gives jobs back, and `fork_join` runs on the caller. Not to be called from a task or a job, which it waits for.
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

    /// The figures, each of them read for itself, without a lock.
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
    /// Changes whenever there may be something to do. For those who spin; nothing is read on the strength of it.
    news: Figure,
    figures: Counters,
}

#[derive(Default)]
struct State {
    /// The fork-joins under way, and some that have been.
    forks: Vec<Arc<Fork>>,
    queue: VecDeque<Job>,
    threads: Vec<crate::sync::thread::JoinHandle<()>>,
    /// How many workers there shall be, and how many there are. No jobs are taken while none are wanted.
    wanted: usize,
    alive: usize,
    /// Workers that have ever been started, for their names.
    started: u64,
    /// Workers that look for work and will take the lock once more before they sleep; and those that sleep.
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
    Fork(Arc<Fork>),
    Job(Job),
    Leave,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Starts the workers that are missing. A system that refuses one is not asked again before the next `resize`.
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

    /// Opens a fork to the workers, if there are any.
    fn post(self: &Arc<Shared>, fork: &Arc<Fork>, tasks: usize) {
        let mut state = self.lock();
        self.start(&mut state);
        // The caller leaves its fork behind, instead of taking the lock again to remove it.
        state.forks.retain(|fork| fork.is_open());
        if state.wanted == 0 || state.forks.try_reserve(1).is_err() {
            return;
        }
        state.forks.push(Arc::clone(fork));
        self.figures.forks.fetch_add(1, Relaxed);
        self.wake(state, tasks - 1);
    }

    /// Sees to it that `helpers` idle workers, or all, look at the state as it is now.
    fn wake(&self, state: MutexGuard<'_, State>, helpers: usize) {
        self.news.fetch_add(1, Relaxed);
        let (sleeping, needed) = (state.sleeping, helpers.saturating_sub(state.spinning));
        drop(state); // or those who wake would wait for it
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
                Work::Fork(fork) => fork.help(),
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
            // Yields meanwhile: the caller that it has just helped may be waiting for this very processor.
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
        // The last to leave leave no job behind.
        if state.alive > state.wanted && (state.wanted > 0 || state.queue.is_empty()) {
            state.alive -= 1;
            self.figures.workers.store(state.alive as u64, Relaxed);
            return Some(Work::Leave);
        }
        // Before jobs: somebody waits for it.
        if let Some(fork) = state.forks.iter().find(|fork| fork.is_open()) {
            return Some(Work::Fork(Arc::clone(fork)));
        }
        let job = state.queue.pop_front()?;
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

/// No code that may panic runs under these locks, so what they guard is whole in any case.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks for news for a while, with a `pause` now and then; says whether there are any. Not in a model, where time does
/// not pass.
fn spin(news: impl Fn() -> bool, pause: fn()) -> bool {
    let end = (!cfg!(all(loom, test))).then(|| Instant::now() + SPIN);
    while end.is_some_and(|end| Instant::now() < end) {
        // The clock costs about as much as a pause, and is asked seldom.
        for _ in 0..8 {
            if news() {
                return true;
            }
            spin_loop();
        }
        pause();
    }
    news()
}
