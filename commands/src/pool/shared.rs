//! The state that callers and workers share: the lock around all pending work, the loop of a worker, and the turns of
//! jobs.
//!
//! A job may last for minutes, and a short one that comes later should not have to wait that long. So between its tasks
//! a job looks at the clock. If its turn is over and others wait, its thread goes to sleep in the middle of the job,
//! and another thread takes its place among the workers: a new one for a job that hasn't begun, or the thread of a job
//! that had its turn before. Jobs that haven't begun alternate with those that have, so that neither of the two groups
//! waits forever. Most jobs end in their first turn, without a thread of their own.
//!
//! So there is one thread for each worker, and one for each paused job. The number of paused jobs is limited to
//! [`MOST_PAUSED`]: at that limit, only jobs that have begun alternate, and another job begins when one of them has
//! ended. If the system refuses another thread, the running job continues.

use super::scope::Scope;
use super::thread;
use super::wait::{lock, spin};
use crate::sync::Ordering::Relaxed;
use crate::sync::thread::{JoinHandle, Thread, current, park};
use crate::sync::{Condvar, Figure, Mutex, MutexGuard};
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Work that the caller doesn't wait for. Its argument says where it runs.
pub type Job = Box<dyn FnOnce(&JobContext<'_>) + Send>;

/// Identifies a queued job, so that it can be [withdrawn](super::Pool::withdraw). No two jobs of a pool have the same
/// ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

/// The state that callers and workers share; see the [module](self).
#[derive(Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Where workers sleep.
    work: Condvar,
    /// Changes whenever there may be something to do. Spinning workers and helpers of jobs watch it. It doesn't order
    /// anything.
    news: Figure,
    pub(super) figures: Counters,
}

#[derive(Default)]
pub(super) struct State {
    /// The fork-joins that may have tasks left to claim.
    scopes: Vec<Arc<Scope>>,
    /// Jobs that haven't begun.
    pub(super) queue: VecDeque<(Ticket, Job)>,
    /// Jobs that have had a turn, in the order in which their turns ended.
    paused: VecDeque<Paused>,
    /// Whether the most recent turn was the first turn of a job.
    has_begun_one: bool,
    /// The job that was most recently told to run to its end.
    hurried: Option<Ticket>,
    /// Number of jobs queued so far: the next ticket.
    pub(super) submitted: u64,
    pub(super) threads: Vec<JoinHandle<()>>,
    /// Number of workers that there should be. While it is 0, jobs are refused.
    pub(super) wanted: usize,
    /// Number of workers that there are.
    alive: usize,
    /// The number of workers started so far, for their names.
    started: u64,
    /// Number of workers that are spinning. They look for work once more before they sleep.
    spinning: usize,
    /// Number of workers that are asleep.
    sleeping: usize,
    pub(super) closed: bool,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) workers: Figure,
    pub(super) queued: Figure,
    pub(super) paused: Figure,
    pub(super) running: Figure,
    pub(super) jobs: Figure,
    pub(super) forks: Figure,
    pub(super) panics: Figure,
}

/// What a worker does next.
enum Assignment {
    Help(Arc<Scope>),
    Job(Ticket, Job),
    Leave,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Starts missing workers. If the system refuses a thread, there is no further attempt before the next `resize`.
    pub(super) fn start(self: &Arc<Shared>, state: &mut State) {
        while state.alive < state.wanted {
            if !self.start_one(state) {
                state.wanted = state.alive;
            }
        }
    }

    /// Starts a worker. Returns false if the system refuses a thread.
    fn start_one(self: &Arc<Shared>, state: &mut State) -> bool {
        let shared = Arc::clone(self);
        let Ok(worker) = thread::spawn(state.started + 1, move || shared.serve()) else { return false };
        state.threads.push(worker);
        state.started += 1;
        state.alive += 1;
        self.count(state);
        true
    }

    /// Updates the metrics from the state.
    pub(super) fn count(&self, state: &State) {
        self.figures.workers.store(state.alive as u64, Relaxed);
        self.figures.queued.store((state.queue.len() + state.paused.len()) as u64, Relaxed);
        self.figures.paused.store(state.paused.len() as u64, Relaxed);
    }

    /// Offers the tasks of a scope to the workers, if there are any.
    pub(super) fn post(self: &Arc<Shared>, scope: &Arc<Scope>, tasks: usize) {
        let mut state = self.lock();
        self.start(&mut state);
        // Removes scopes whose tasks have all been claimed. Callers leave them here instead of taking the lock again.
        state.scopes.retain(|scope| scope.is_open());
        if state.wanted == 0 || state.scopes.try_reserve(1).is_err() {
            return;
        }
        state.scopes.push(Arc::clone(scope));
        self.figures.forks.fetch_add(1, Relaxed);
        self.wake(state, tasks - 1);
    }

    /// Notifies up to `helpers` idle workers that there may be work.
    pub(super) fn wake(&self, state: MutexGuard<'_, State>, helpers: usize) {
        self.news.fetch_add(1, Relaxed);
        let (sleeping, needed) = (state.sleeping, helpers.saturating_sub(state.spinning));
        drop(state); // or those that wake up would wait for the lock
        if needed >= sleeping && sleeping > 0 {
            self.work.notify_all();
        } else {
            (0..needed.min(sleeping)).for_each(|_| self.work.notify_one());
        }
    }

    /// Runs a worker until it is told to leave.
    fn serve(self: &Arc<Shared>) {
        loop {
            match self.next() {
                Assignment::Help(scope) => {
                    let seen = self.news.load(Relaxed);
                    scope.help(|| self.news.load(Relaxed) != seen);
                }
                Assignment::Job(ticket, job) => self.run(ticket, job),
                Assignment::Leave => return,
            }
        }
    }

    fn next(&self) -> Assignment {
        let mut state = self.lock();
        loop {
            if let Some(work) = self.take(&mut state) {
                return work;
            }
            state.spinning += 1;
            let seen = self.news.load(Relaxed);
            drop(state);
            // Yields the processor from time to time, because the caller that the worker has just helped may be waiting
            // for the processor.
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

    fn take(&self, state: &mut State) -> Option<Assignment> {
        // If all workers are to leave, the jobs are finished first.
        if state.alive > state.wanted && (state.wanted > 0 || !state.has_jobs()) {
            state.alive -= 1;
            self.count(state);
            return Some(Assignment::Leave);
        }
        // Fork-joins come before jobs, because a caller waits for them. The fork-join of a job comes after other jobs,
        // because a job has turns.
        let open = |of_job| state.scopes.iter().find(|scope| scope.is_of_job() == of_job && scope.is_open());
        if let Some(scope) = open(false) {
            return Some(Assignment::Help(Arc::clone(scope)));
        }
        if state.is_paused_next() {
            self.resume(state, 0);
            return Some(Assignment::Leave); // its thread takes the place of this one
        }
        if let Some((ticket, job)) = state.queue.pop_front() {
            state.has_begun_one = true;
            self.figures.running.fetch_add(1, Relaxed);
            self.count(state);
            return Some(Assignment::Job(ticket, job));
        }
        open(true).map(|scope| Assignment::Help(Arc::clone(scope)))
    }

    fn run(self: &Arc<Shared>, ticket: Ticket, job: Job) {
        let context = JobContext::of_worker(self, ticket);
        if catch_unwind(AssertUnwindSafe(|| job(&context))).is_err() {
            self.figures.panics.fetch_add(1, Relaxed);
        }
        self.figures.running.fetch_sub(1, Relaxed);
        self.figures.jobs.fetch_add(1, Relaxed);
    }
}

impl State {
    /// Whether there are jobs that no worker is running.
    fn has_jobs(&self) -> bool {
        !(self.queue.is_empty() && self.paused.is_empty())
    }

    /// Joins the threads that have left.
    pub(super) fn join_finished(&mut self) {
        for worker in self.threads.extract_if(.., |worker| thread::is_finished(worker)) {
            _ = worker.join();
        }
    }
}

/// How long a job works before other jobs get their turn. In a model, time doesn't pass, so every turn is over at once.
const TURN: Duration = Duration::from_millis(if cfg!(any(all(loom, test), small_steps)) { 0 } else { 5 });

/// Maximum number of paused jobs. When it is reached, no other job begins. Each paused job keeps a thread, and a
/// container may allow as few as 100 threads, of which the server needs some for itself and one for a fork. With 1000
/// clients and no bound, there were up to 1000 threads. With a lower bound, fewer long jobs would suffice to keep a
/// short one waiting. In a model, two jobs reach the bound.
const MOST_PAUSED: usize = if cfg!(all(loom, test)) { 1 } else { 32 };

/// Where a job runs: on a worker, or on another thread.
pub struct JobContext<'p> {
    shared: &'p Arc<Shared>,
    /// The ticket of the job, and when its turn began. `None` on another thread, where a job doesn't take turns.
    turn: Option<(Ticket, Cell<Instant>)>,
}

/// A job whose thread waits for its next turn.
struct Paused {
    ticket: Ticket,
    thread: Thread,
}

impl<'p> JobContext<'p> {
    fn of_worker(shared: &'p Arc<Shared>, ticket: Ticket) -> JobContext<'p> {
        JobContext { shared, turn: Some((ticket, Cell::new(Instant::now()))) }
    }

    pub(super) fn outside_pool(shared: &'p Arc<Shared>) -> JobContext<'p> {
        JobContext { shared, turn: None }
    }

    /// Like [`Pool::fork_join`](super::Pool::fork_join), for the job that runs here. Between tasks, other jobs get
    /// their turn. So that they needn't wait for long, a task should last a millisecond at most.
    pub fn fork_join(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let pause = || self.pause();
        let pause: Option<&dyn Fn()> = if self.turn.is_some() { Some(&pause) } else { None };
        match tasks {
            0 => {}
            1 => {
                task(0);
                self.pause();
            }
            _ => Scope::join(tasks, task, pause, |scope| self.shared.post(scope, tasks)),
        }
    }

    /// Gives other jobs their turn if this job's turn is over.
    fn pause(&self) {
        let Some((ticket, began)) = &self.turn else { return };
        if began.get().elapsed() >= TURN && self.shared.figures.queued.load(Relaxed) > 0 {
            self.shared.pause(*ticket);
            began.set(Instant::now());
        }
    }
}

impl Shared {
    /// Ends the turn of this thread's job if other jobs wait. Returns when the job has its next turn.
    fn pause(self: &Arc<Shared>, ticket: Ticket) {
        let mut state = self.lock();
        let must_go_on = state.wanted == 0 || state.hurried == Some(ticket);
        if must_go_on || !state.has_jobs() || state.paused.try_reserve(1).is_err() {
            return;
        }
        // If there is one worker too many, this one leaves. Otherwise the thread of the first paused job, or a new
        // thread, takes its place.
        let is_one_too_many = state.alive > state.wanted;
        let is_next = state.is_paused_next();
        if !is_one_too_many && !is_next {
            state.join_finished();
            if !self.start_one(&mut state) {
                return;
            }
        }
        self.figures.running.fetch_sub(1, Relaxed);
        state.paused.push_back(Paused { ticket, thread: current() });
        if !is_one_too_many && is_next {
            self.resume(&mut state, 0);
        } else {
            state.alive -= 1;
            self.count(&state);
        }
        while state.paused.iter().any(|paused| paused.ticket == ticket) {
            drop(state);
            park(); // may return early: a helper of an earlier scope may unpark late
            state = self.lock();
        }
    }

    /// Continues the paused job at index `place`. Its thread becomes a worker again, usually in place of one that
    /// leaves.
    fn resume(&self, state: &mut State, place: usize) {
        let Some(paused) = state.paused.remove(place) else { return };
        state.has_begun_one = false;
        self.figures.running.fetch_add(1, Relaxed);
        self.count(state);
        paused.thread.unpark();
    }

    /// Lets a job that has begun run to its end without giving others a turn, because the caller waits for it, or
    /// because it was told to stop. If the job is paused, it continues now, as an additional worker, and a worker
    /// leaves later.
    pub(super) fn hurry(&self, mut state: MutexGuard<'_, State>, ticket: Ticket) {
        state.hurried = Some(ticket);
        if let Some(place) = state.paused.iter().position(|paused| paused.ticket == ticket) {
            state.alive += 1;
            self.resume(&mut state, place);
        }
    }
}

impl State {
    /// Whether the next turn goes to a job that has already begun.
    fn is_paused_next(&self) -> bool {
        let may_begin = !self.queue.is_empty() && self.paused.len() < MOST_PAUSED;
        !self.paused.is_empty() && (!may_begin || self.has_begun_one)
    }
}
