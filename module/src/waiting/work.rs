//! Work that the pool does for a waiting client.
//!
//! A worker never touches what belongs to the main thread: neither keys, nor contexts, nor the reference counts of
//! strings, which aren't atomic. The worker has its own references to the filter's layers, so anything can happen to
//! the key in the meantime (DEL, FLUSHALL, RENAME, SWAPDB). Dropping the last reference frees the layers. The worker
//! reads the bytes of arguments that the main thread has retained.
//!
//! At its end, a job that only reads replies to the client. The job of a command that writes keeps the command's second
//! step for the main thread.

use super::super::api::{Context, Text};
use super::super::guard;
use super::super::workers::POOL;
use super::client::{Blocked, Done, Request, Retained};
use super::timer;
use bloomery::filter::Live;
use bloomery::parallel::{ParallelFor, Stop};
use bloomery_commands::metrics::{Hold, OFFLOADS_DROPPED, PROMISED_BYTES};
use bloomery_commands::pool::{Job, JobContext, Ticket};
use bloomery_commands::{Background, CommandError, Reply};
use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

pub(crate) type CommandResult = Result<Reply, CommandError>;

/// The first step of a command: prepares the second one.
pub(crate) type Prepare = Box<dyn FnOnce(&[&[u8]], &ParallelFor<'_>) -> Commit + Send>;

/// The second step of a command, which runs on the main thread.
pub(crate) type Commit = Box<dyn FnOnce(Context<'_>, &[Text<'_>], &Resumed) -> CommandResult + Send>;

/// A client whose command goes on after waiting.
pub(crate) struct Resumed {
    /// `None` if the command has begun to wait again.
    pub(crate) request: Cell<Option<Request>>,
    /// The time of the command's first step. `None` if it only waited for keys.
    pub(crate) now_ms: Option<u64>,
}

/// Maximum number of filters of one job that are examined for those that nobody else keeps in memory. A job can read
/// tens of thousands of filters, and a thousand jobs can wait.
const LOOKED_AT: usize = 16;

/// A job of the pool.
pub(super) struct PoolWork {
    /// The time of the command.
    pub(super) now_ms: u64,
    /// The filters that the job reads. These references keep the cells alive after the filters have left their keys.
    pub(super) inputs: Arc<[Live]>,
    /// The largest of the `inputs`, each as its number of bytes and its index.
    largest: Vec<(u64, usize)>,
    /// The memory that the work needs.
    pub(super) bytes: u64,
    /// The reservation of this memory. It lasts until the work has ended.
    promised: Option<Hold>,
    stop: Stop,
    /// `None` if the job hasn't begun to wait for a worker, or needn't.
    ticket: Option<Ticket>,
    /// Where the job puts the second step. `None` for a job that replies itself.
    commit: Option<Arc<CommitSlot>>,
}

impl PoolWork {
    fn new(now_ms: u64, inputs: Arc<[Live]>, bytes: u64) -> PoolWork {
        let sized = inputs.iter().enumerate().map(|(place, filter)| (filter.as_ref().bytes(), place));
        let mut largest: Vec<_> = sized.collect();
        largest.sort_unstable_by(|a, b| b.cmp(a));
        largest.truncate(LOOKED_AT);
        let (promised, stop, ticket, commit) = Default::default();
        PoolWork { now_ms, inputs, largest, bytes, promised, stop, ticket, commit }
    }

    /// Starts work whose result is the reply. A worker does it as soon as the pool has one to spare.
    pub(super) fn reading<W>(request: &Request, inputs: Arc<[Live]>, work: W) -> PoolWork
    where
        W: FnOnce(&[u8], &ParallelFor<'_>, &Stop) -> Option<CommandResult> + Send + 'static,
    {
        let bytes = inputs.iter().map(|filter| filter.as_ref().bytes()).sum();
        let mut job = PoolWork::new(0, inputs, bytes);
        let (client, number, stop) = (request.client, request.number, job.stop.clone());
        let arguments = Arc::clone(request.arguments());
        job.submit(client, move |parallel| {
            let argument = arguments.first().map_or(&[][..], Retained::bytes);
            let run = || if stop.is_set() { None } else { work(argument, parallel, &stop) };
            let done = guard::call("job", run, || Some(Err(CommandError::Internal)));
            if stop.is_set() {
                OFFLOADS_DROPPED.add(1);
            }
            // A stopped job has no reply. Nobody waits for one, unless the job was stopped because a filter has left
            // its key.
            let reply = done.unwrap_or(Err(CommandError::Changed));
            move || client.unblock(Done { reply, number })
        });
        job
    }

    /// Prepares the job of a command with two steps.
    pub(super) fn of_two_steps(now_ms: u64, job: Background) -> PoolWork {
        let bytes = job.memory.bytes();
        let (promised, commit) = (Some(PROMISED_BYTES.hold(bytes)), Some(Arc::default()));
        PoolWork { promised, commit, ..PoolWork::new(now_ms, job.inputs, bytes) }
    }

    /// Starts the first step of a command.
    pub(super) fn prepare(
        &mut self,
        client: Blocked,
        prepare: impl FnOnce(&ParallelFor<'_>) -> Commit + Send + 'static,
    ) {
        let (promised, stop) = (self.promised.take(), self.stop.clone());
        let Some(outcome) = self.commit.clone() else { return };
        self.submit(client, move |parallel| {
            let parallel: &ParallelFor<'_> = &|tasks, task| stop.run(parallel, tasks, task);
            let commit = || if stop.is_set() { None } else { Some(prepare(parallel)) };
            let commit = guard::call("job", || Ok(commit()), || Err(CommandError::Internal));
            // Stopped work has no result. Nobody waits for one, unless the work was stopped because a filter has left
            // its key.
            let commit = commit.and_then(|done| done.filter(|_| !stop.is_set()).ok_or(CommandError::Changed));
            drop(promised);
            move || outcome.set(commit)
        });
    }

    /// Hands a job to the pool. The job returns what is to be done after its time has been measured.
    fn submit<E: FnOnce()>(
        &mut self,
        client: Blocked,
        job: impl FnOnce(&ParallelFor<'_>) -> E + Send + 'static,
    ) {
        let job: Job = Box::new(move |context: &JobContext<'_>| {
            client.started();
            let end = job(&|tasks, task| context.fork_join(tasks, task));
            client.ended();
            end();
        });
        match POOL.submit(job) {
            Ok(ticket) => self.ticket = Some(ticket),
            // The pool returns the job if it has no worker to run it. The client is already blocked, so run the job
            // here to unblock it.
            Err(job) => job(&POOL.job_context()),
        }
    }

    /// Ends the work without having done it.
    pub(super) fn fail(&self, why: CommandError) {
        if let Some(commit) = &self.commit {
            commit.set(Err(why));
        }
    }

    /// Whether the second step can run.
    pub(super) fn is_prepared(&self) -> bool {
        self.commit.as_ref().is_some_and(|commit| commit.has_ended())
    }

    /// The second step, or why there is none.
    pub(super) fn take_commit(&self) -> Result<Commit, CommandError> {
        let commit = self.commit.as_ref().and_then(|commit| commit.lock().take());
        commit.unwrap_or(Err(CommandError::Internal))
    }

    /// Finishes the first step now: does it on this thread, or waits for a worker that has already started it.
    pub(super) fn finish(&self) {
        if let Some(job) = self.withdraw() {
            job(&POOL.job_context());
        }
        if let Some(commit) = &self.commit {
            commit.wait();
        }
    }

    /// Tells the job to stop.
    pub(super) fn stop(&self) {
        self.stop.set();
    }

    /// Takes the job out of the pool's queue. `None` if a worker has begun it; the worker then doesn't let others have
    /// a turn.
    pub(super) fn withdraw(&self) -> Option<Job> {
        self.ticket.and_then(|ticket| POOL.withdraw(ticket))
    }

    /// The largest filters that the job reads, and the job's place in the order of all jobs.
    pub(super) fn largest(&self) -> impl Iterator<Item = (&Live, Ticket)> {
        self.largest.iter().filter_map(|(_, place)| Some((self.inputs.get(*place)?, self.ticket?)))
    }
}

/// The second step that a job has prepared, for the main thread.
#[derive(Default)]
struct CommitSlot {
    commit: Mutex<Option<Result<Commit, CommandError>>>,
    ended: Condvar,
}

impl CommitSlot {
    fn lock(&self) -> MutexGuard<'_, Option<Result<Commit, CommandError>>> {
        self.commit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, commit: Result<Commit, CommandError>) {
        *self.lock() = Some(commit);
        self.ended.notify_all();
        timer::soon();
    }

    fn has_ended(&self) -> bool {
        self.lock().is_some()
    }

    fn wait(&self) {
        drop(self.ended.wait_while(self.lock(), |commit| commit.is_none()));
    }
}
