//! A queue of commands that work in the background, and of commands that wait for keys that others hold.
//!
//! A command that would block the server for a long time hands its work to the pool, which computes the result in the
//! background. No client sees any of the result until `resume` runs the command again on the main thread. This second
//! run stores the result in its key in one step.
//!
//! Until its second run, the keys of the command are *held*. A write to them would be lost, or would be applied in a
//! different order on replicas, which execute the whole command at the end. So commands that write to a held key wait
//! as well. If such a command can't wait, the main thread finishes the background work first.
//!
//! The server itself also changes keys, without asking us: DEL, RENAME, RESTORE, FLUSHALL, SWAPDB, expiry, eviction. So
//! a key is held by name, and a filter that is being read is held whichever key it is in. In its second run, the
//! command must find the same filters in its keys.
//!
//! A large filter that replicas and the AOF can't compute themselves is [sent](super::uploads::send) to them before it
//! is put into its key. While the filter is being sent, the command stays in the queue as well.
//!
//! The queue keeps commands in the order in which they arrived. A waiting command can run when no earlier command holds
//! one of its keys.

use super::api::{Context, Detached, Text};
use super::key::OpenKey;
use super::offload::{self, Request, Retained};
use super::{guard, key_locks::KeyLocks, reclaim, uploads};
use crate::command::{Access, Background, Command, CommandError, Data, Key, Reply};
use crate::filter::{Live, LiveRef};
use crate::metrics::{Hold, OFFLOADS_DROPPED, PROMISED_BYTES};
use crate::parallel::{ParallelFor, Stop};
use crate::pool::JobContext;
use redis_module::raw;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A command works in the background if its filters have at least this many bytes of cells. With fewer, it would block
/// the server for at most about a millisecond, so it runs at once.
pub(super) const LONG: u64 = if cfg!(small_steps) { 0 } else { 2 << 20 };

/// Number of bytes of a string that are read in one step. A step takes 0.15 ms.
const SLICE: usize = if cfg!(small_steps) { 16 } else { 1 << 20 };

/// The queue. Only the main thread takes the lock.
static QUEUE: Mutex<Queue> = Mutex::new(Queue { entries: BTreeMap::new(), held: KeyLocks::new(), next: 1 });

/// Number of entries in the queue. Every write command checks it.
static ENTRIES: AtomicUsize = AtomicUsize::new(0);

/// Whether waiting commands must be looked at again, for example because a key was released.
static FREED: AtomicBool = AtomicBool::new(false);

struct Queue {
    /// The entries by number, in order of arrival.
    entries: BTreeMap<u64, Entry>,
    held: KeyLocks,
    /// The number of the next entry.
    next: u64,
}

/// A command in the queue.
pub(super) struct Entry {
    pub(super) request: Request,
    pub(super) command: Command,
    pub(super) database: i32,
    /// The indexes of the arguments that name the keys that the command holds.
    pub(super) keys: Range<usize>,
    stage: Stage,
    is_gone: bool,
}

enum Stage {
    /// Waiting for its keys.
    Waiting,
    /// Reading a string.
    Reading(Reading),
    /// The pool is doing the command's work.
    Working(Job),
    /// The result is being sent to replicas and the AOF.
    Sending {
        /// Whether all pieces but the last have been sent, or sending has been given up.
        is_over: bool,
    },
}

/// A string that is read in slices for a job: once completely, then a second time to check whether it has changed.
struct Reading {
    job: Job,
    prepare: Prepare,
    /// The index of the argument that names its key.
    key: usize,
    /// The string's address in the server, and the number of bytes to read. Bytes that are appended in the meantime
    /// aren't read, as if they had been written after the command.
    place: Option<(usize, usize)>,
    read: Vec<u8>,
    /// Number of bytes that have been read a second time and compared.
    checked: usize,
}

/// The work that a command requested in its first run.
struct Job {
    now_ms: u64,
    begun: Instant,
    inputs: Arc<[Live]>,
    bytes: u64,
    /// The memory that the work needs, reserved until the work has ended.
    promised: Option<Hold>,
    stop: Stop,
    outcome: Arc<Outcome>,
}

/// The first step of a command: prepares the second one.
type Prepare = Box<dyn FnOnce(&[&[u8]], &ParallelFor<'_>) -> Commit + Send>;

/// The second step of a command, which runs on the main thread.
pub(super) type Commit = Box<dyn FnOnce(Context<'_>, &[Text<'_>], &Resumed) -> CommandResult + Send>;

type CommandResult = Result<Reply, CommandError>;

/// The result of a pool job, for the main thread.
#[derive(Default)]
struct Outcome {
    commit: Mutex<Option<Result<Commit, CommandError>>>,
    ended: Condvar,
}

/// A command that is being run again.
pub(super) struct Resumed {
    /// The request of its client; `None` if the command has begun to wait again.
    pub(super) request: Cell<Option<Request>>,
    /// Its number in the queue.
    pub(super) number: u64,
    /// The time of its first step. `None` if it only waited for keys.
    now_ms: Option<u64>,
}

impl Resumed {
    /// The time of the first step.
    pub(super) fn now_ms(&self) -> Option<u64> {
        self.now_ms
    }

    /// Replies, unless the command has begun to wait again.
    pub(super) fn end(self, outcome: CommandResult) {
        if let Some(request) = self.request.take() {
            request.reply(outcome);
        }
    }
}

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn count(queue: &Queue) {
    ENTRIES.store(queue.entries.len(), Relaxed);
}

/// Whether there are commands in the queue.
#[inline(always)]
pub(super) fn is_any() -> bool {
    ENTRIES.load(Relaxed) > 0
}

/// Whether keys have been released since the last call.
pub(super) fn take_freed() -> bool {
    FREED.swap(false, Relaxed)
}

/// Records that a key has been released, or that waiting commands must be checked again for another reason.
pub(super) fn set_freed() {
    FREED.store(true, Relaxed);
}

/// Puts a command into the queue: at the end if it is new, otherwise at its old place under its old number.
fn insert(number: Option<u64>, entry: Entry) {
    let mut queue = queue();
    let Queue { entries, held, next } = &mut *queue;
    let number = number.unwrap_or(*next);
    *next = number.saturating_add(1).max(*next);
    entry.names().for_each(|name| held.hold_name(number, entry.database, name));
    entry.filters().for_each(|address| held.hold_filter(number, address));
    entries.insert(number, entry);
    count(&queue);
}

/// Removes the entry with this number from the queue.
pub(super) fn remove(number: u64) -> Option<Entry> {
    let mut queue = queue();
    let Queue { entries, held, .. } = &mut *queue;
    let entry = entries.remove(&number);
    if let Some(entry) = &entry {
        entry.names().for_each(|name| held.free_name(number, entry.database, name));
        entry.filters().for_each(|address| held.free_filter(number, address));
    }
    count(&queue);
    set_freed();
    entry
}

/// Milliseconds until it is worth checking the queue again; `None` if it is empty. The longer a job has been running,
/// the less often the queue is checked for it, because it will probably need a long time to finish, and a check takes
/// about 20 µs.
pub(super) fn next_look() -> Option<i64> {
    let wait = |entry: &Entry| match &entry.stage {
        Stage::Working(job) => i64::try_from(job.begun.elapsed().as_millis() / 8).unwrap_or(1).clamp(1, 16),
        Stage::Waiting => 16,
        Stage::Reading(_) | Stage::Sending { .. } => 1,
    };
    queue().entries.values().map(wait).min()
}

/// The lowest entry number that is at least `number`.
pub(super) fn first_from(number: u64) -> Option<u64> {
    queue().entries.range(number..).next().map(|(number, _)| *number)
}

/// What to do with an entry.
pub(super) enum Next {
    /// Nothing yet.
    Nothing,
    /// It is waiting for its keys, so they must be checked again.
    Look,
    /// It can run again, or its client can be released.
    Run,
}

/// What to do with an entry. `may_write` says whether commands are allowed to run now.
pub(super) fn next(number: u64, may_write: bool) -> Next {
    match queue().entries.get(&number) {
        Some(entry) if entry.is_gone => {
            if entry.has_ended() && (may_write || !entry.is_sending()) {
                Next::Run
            } else {
                Next::Nothing
            }
        }
        Some(Entry { stage: Stage::Waiting, .. }) if may_write => Next::Look,
        Some(entry) if may_write && entry.has_ended() => Next::Run,
        _ => Next::Nothing,
    }
}

/// The database and the arguments of an entry, and which of the arguments name its keys.
pub(super) fn keys(number: u64) -> Option<(i32, Arc<[Retained]>, Range<usize>)> {
    let queue = queue();
    let entry = queue.entries.get(&number)?;
    Some((entry.database, Arc::clone(entry.request.arguments()), entry.keys.clone()))
}

/// The first entry that satisfies `is_meant` and holds the key of this name or the filter in that key. Entries whose
/// clients have disconnected are skipped.
fn find(ctx: Context<'_>, name: Text<'_>, is_meant: impl Fn(&Entry) -> bool) -> Option<u64> {
    let key = OpenKey::open(ctx, name, Access::Read);
    let filter = key.filter().ok().flatten().and_then(|filter| filter.live());
    let queue = queue();
    let is_meant =
        |number: &u64| queue.entries.get(number).filter(|entry| !entry.is_gone).is_some_and(&is_meant);
    let named = queue.held.by_name(ctx.database(), name.bytes()).find(is_meant);
    let reads = |number: &u64, filter| queue.entries.get(number).is_some_and(|entry| entry.reads(filter));
    let mut read = filter.into_iter().flat_map(|filter| {
        queue.held.by_filter(filter.address()).filter(move |number| reads(number, filter))
    });
    named.into_iter().chain(read.find(is_meant)).min()
}

/// Whether an entry with a number below `before` holds the key.
pub(super) fn is_held(ctx: Context<'_>, name: Text<'_>, before: u64) -> bool {
    is_any() && find(ctx, name, |_| true).is_some_and(|number| number < before)
}

/// The first entry that holds the key and isn't itself waiting for keys.
pub(super) fn worker_on(ctx: Context<'_>, name: Text<'_>) -> Option<u64> {
    find(ctx, name, |entry| !matches!(entry.stage, Stage::Waiting))
}

/// Blocks the client of the running command. `None` if it can't wait.
///
/// # Errors
/// [`CommandError::ManyWaiting`] or [`CommandError::MuchWaiting`].
pub(super) fn block(ctx: Context<'_>, arguments: &[Text<'_>]) -> Result<Option<Request>, CommandError> {
    Request::new(ctx, arguments, gone)
}

/// Makes a command wait for its keys.
pub(super) fn wait(
    (number, request): (Option<u64>, Request),
    command: Command,
    database: i32,
    keys: Range<usize>,
) {
    insert(number, Entry { request, command, database, keys, stage: Stage::Waiting, is_gone: false });
}

/// Makes a command wait until its filter has been sent.
pub(super) fn send((number, request): (Option<u64>, Request), command: Command, database: i32) {
    let stage = Stage::Sending { is_over: false };
    insert(number, Entry { request, command, database, keys: 1..2, stage, is_gone: false });
}

/// Starts the first step of a command.
pub(super) fn begin(
    ctx: Context<'_>,
    (number, request): (Option<u64>, Request),
    command: Command,
    job: Background,
    prepare: Prepare,
) {
    let Background { keys, inputs, data, memory } = job;
    let bytes = memory.bytes();
    let mut job = Job {
        now_ms: ctx.now_ms(),
        begun: Instant::now(),
        inputs,
        bytes,
        promised: Some(PROMISED_BYTES.hold(bytes)),
        stop: Stop::default(),
        outcome: Arc::default(),
    };
    let stage = match data {
        Data::Arguments(range) => {
            let arguments = Arc::clone(request.arguments());
            job.submit(&request, move |parallel| {
                let read = arguments.get(range).unwrap_or_default();
                prepare(&read.iter().map(Retained::bytes).collect::<Vec<_>>(), parallel)
            });
            Stage::Working(job)
        }
        Data::Key(key) => {
            Stage::Reading(Reading { job, prepare, key, place: None, read: Vec::new(), checked: 0 })
        }
    };
    let mut entry = Entry { request, command, database: ctx.database(), keys, stage, is_gone: false };
    // This call only records which string the command has seen. Reading a slice here would take too long if hundreds of
    // commands began at the same time.
    entry.read_slice(ctx);
    insert(number, entry);
}

impl Job {
    /// Hands the work to the pool.
    fn submit(&mut self, request: &Request, work: impl FnOnce(&ParallelFor<'_>) -> Commit + Send + 'static) {
        let (client, stop, outcome) = (request.client, self.stop.clone(), Arc::clone(&self.outcome));
        let (promised, inputs) = (self.promised.take(), Arc::clone(&self.inputs));
        let job = move |context: &JobContext<'_>| {
            client.started();
            let parallel: &ParallelFor<'_> =
                &|tasks, task| stop.run(&|tasks, task| context.fork_join(tasks, task), tasks, task);
            let commit = || if stop.is_set() { None } else { Some(work(parallel)) };
            let commit = guard::call("job", || Ok(commit()), || Err(CommandError::Internal));
            // Stopped work has no result. Nobody waits for one, unless the work was stopped because a filter has left
            // its key.
            let commit = commit.and_then(|done| done.filter(|_| !stop.is_set()).ok_or(CommandError::Changed));
            client.ended();
            drop(promised);
            outcome.set(commit);
        };
        offload::submit(request.client, self.stop.clone(), inputs, Box::new(job));
    }
}

impl Reading {
    /// The first call records the address of the string. Each later call reads or checks its next slice. Returns
    /// whether this was the last step.
    ///
    /// If the key received another string in the meantime, the result would mix the two. While both strings exist, they
    /// are at different addresses. If the old string was deleted first, the new one can have the same address. In that
    /// case, the new string is recognised by bits that were set and no longer are: adds to a bitmap only set bits.
    fn next(&mut self, now: &[u8]) -> Result<bool, CommandError> {
        let Some((address, len)) = self.place else {
            self.place = Some((now.as_ptr().addr(), now.len()));
            return Ok(now.is_empty());
        };
        let now = now.get(..len).filter(|now| now.as_ptr().addr() == address).ok_or(CommandError::Changed)?;
        let slice = |from| now.iter().skip(from).take(SLICE);
        if self.read.len() < len {
            let refused = |_| CommandError::Memory { bytes: len as u64, bound: None };
            self.read.try_reserve_exact(len.saturating_sub(self.read.len())).map_err(refused)?;
            self.read.extend(slice(self.read.len()));
        } else {
            let pairs = self.read.iter().skip(self.checked).zip(slice(self.checked));
            if pairs.fold(0, |lost, (read, now)| lost | read & !now) != 0 {
                return Err(CommandError::Changed);
            }
            self.checked = self.checked.saturating_add(SLICE);
        }
        Ok(self.checked >= len)
    }
}

impl Outcome {
    fn lock(&self) -> MutexGuard<'_, Option<Result<Commit, CommandError>>> {
        self.commit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, commit: Result<Commit, CommandError>) {
        *self.lock() = Some(commit);
        self.ended.notify_all();
    }

    fn has_ended(&self) -> bool {
        self.lock().is_some()
    }

    fn wait(&self) {
        drop(self.ended.wait_while(self.lock(), |commit| commit.is_none()));
    }
}

impl Entry {
    fn job(&self) -> Option<&Job> {
        match &self.stage {
            Stage::Waiting | Stage::Sending { .. } => None,
            Stage::Reading(Reading { job, .. }) | Stage::Working(job) => Some(job),
        }
    }

    /// Whether the command's result is being sent.
    pub(super) fn is_sending(&self) -> bool {
        matches!(self.stage, Stage::Sending { .. })
    }

    /// The names of the keys that the command holds.
    fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.clone().map(|index| self.request.argument(index))
    }

    /// The addresses of the filters that the command holds.
    fn filters(&self) -> impl Iterator<Item = usize> {
        let inputs = self.job().map_or(&[][..], |job| &job.inputs);
        inputs.iter().map(|input| input.as_ref().address())
    }

    /// Whether the command's work reads the filter.
    fn reads(&self, filter: LiveRef<'_>) -> bool {
        self.job().is_some_and(|job| job.inputs.iter().any(|input| input.as_ref().is_shared_with(filter)))
    }

    /// Whether the command's job or its sending has ended. Reading and sending also end if the client has disconnected.
    /// True for a command that only waits for keys.
    fn has_ended(&self) -> bool {
        match &self.stage {
            Stage::Waiting => true,
            Stage::Reading(_) => self.is_gone,
            Stage::Working(job) => job.outcome.has_ended(),
            Stage::Sending { is_over } => *is_over || self.is_gone,
        }
    }

    /// Sends part of the command's result. Sending ends early if something else is in the key by then.
    fn send_more(&mut self, ctx: Context<'_>, turn: Duration) {
        let Stage::Sending { is_over } = &mut self.stage else { return };
        let (name, detached) = (self.request.arguments().get(1), Detached::new(ctx, self.database));
        *is_over = match (name, &detached) {
            (Some(name), Some(detached)) => {
                let (ctx, name) = (detached.context(), name.text());
                let is_empty = matches!(OpenKey::open(ctx, name, Access::Read).filter(), Ok(None));
                !is_empty || uploads::send_more(ctx, name, turn)
            }
            _ => true,
        };
    }

    /// Reads the next slice of the string that the command's work needs. After the last slice, the work begins.
    fn read_slice(&mut self, ctx: Context<'_>) {
        let Stage::Reading(reading) = &mut self.stage else { return };
        let (name, detached) = (self.request.arguments().get(reading.key), Detached::new(ctx, self.database));
        let (Some(name), Some(detached)) = (name, detached) else {
            return self.begin(Err(CommandError::Internal));
        };
        let next =
            OpenKey::open(detached.context(), name.text(), Access::Read).string(|now| reading.next(now));
        match next.unwrap_or(Err(CommandError::Changed)) {
            Ok(false) => {}
            Ok(true) => self.begin(Ok(())),
            Err(why) => self.begin(Err(why)),
        }
    }

    /// Begins the work on the string that was read, or ends the job with an error.
    fn begin(&mut self, is_read: Result<(), CommandError>) {
        let stage = std::mem::replace(&mut self.stage, Stage::Waiting);
        let Stage::Reading(Reading { mut job, read, prepare, .. }) = stage else { return };
        match is_read {
            Ok(()) => job.submit(&self.request, move |parallel| prepare(&[&read], parallel)),
            Err(why) => job.outcome.set(Err(why)),
        }
        self.stage = Stage::Working(job);
    }

    /// Finishes the command's work now: does it on this thread, or waits for a worker that has already started it.
    pub(super) fn finish(&mut self, ctx: Context<'_>) {
        while matches!(self.stage, Stage::Reading(_)) {
            self.read_slice(ctx);
        }
        while self.is_sending() && !self.has_ended() {
            self.send_more(ctx, Duration::MAX);
        }
        if let Stage::Working(job) = &self.stage {
            offload::hurry(self.request.client);
            job.outcome.wait();
        }
    }

    /// Runs the command's next step with `run`, and replies. The step is `None` for a command that has only waited for
    /// keys, or whose filter was sent. If the work has failed, the client has disconnected, or the command is
    /// `refused`, the command ends here.
    pub(super) fn resume(
        self,
        number: u64,
        refused: Option<CommandError>,
        run: impl FnOnce(Option<Commit>, &Resumed) -> CommandResult,
    ) {
        let (step, job) = match self.stage {
            Stage::Waiting | Stage::Sending { .. } => (Ok(None), None),
            Stage::Reading(Reading { job, .. }) | Stage::Working(job) => {
                let commit = job.outcome.lock().take().unwrap_or(Err(CommandError::Internal));
                (commit.map(Some), Some(job))
            }
        };
        let refused = if self.is_gone { Some(CommandError::Internal) } else { refused };
        let (now_ms, bytes) = job.as_ref().map_or((None, 0), |job| (Some(job.now_ms), job.bytes));
        let resumed = Resumed { request: Cell::new(Some(self.request)), number, now_ms };
        let outcome = match (step, refused) {
            (Ok(step), None) => run(step, &resumed),
            (Ok(step), Some(why)) => {
                reclaim::free(step, bytes);
                Err(why)
            }
            (Err(why), _) => Err(why),
        };
        resumed.end(outcome);
        // The job might have the last references to filters.
        reclaim::free(job.map(|job| job.inputs), bytes);
    }
}

/// Continues to read the strings that commands need, one after another, until `turn` is over.
pub(super) fn read_slices(ctx: Context<'_>, turn: Duration) {
    let begun = Instant::now();
    // The lock can be held here: opening a key doesn't make the server call back into the queue.
    for entry in queue().entries.values_mut().filter(|entry| !entry.is_gone) {
        while matches!(entry.stage, Stage::Reading(_)) {
            if begun.elapsed() >= turn {
                return;
            }
            entry.read_slice(ctx);
        }
    }
}

/// Continues to send the result of the first command that is sending one. The others have to wait, because sending a
/// piece takes as long as a turn.
pub(super) fn send_pieces(ctx: Context<'_>, turn: Duration) {
    let mut queue = queue();
    let mut sending = queue.entries.values_mut().filter(|entry| entry.is_sending() && !entry.has_ended());
    if let Some(entry) = sending.next() {
        entry.send_more(ctx, turn);
    }
}

/// Gives up the command of a client that disconnected while it was blocked. The server calls this on the main thread.
unsafe extern "C" fn gone(_ctx: *mut raw::RedisModuleCtx, client: *mut raw::RedisModuleBlockedClient) {
    let forget = || {
        let is_its = |entry: &&mut Entry| entry.request.client.address() == client.addr();
        if let Some(entry) = queue().entries.values_mut().find(is_its) {
            entry.is_gone = true;
            set_freed();
            OFFLOADS_DROPPED.add(1);
        }
        offload::abandon(client.addr());
    };
    guard::call("gone", forget, || ());
}
